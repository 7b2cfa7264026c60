"""A custom metric, the class of the page on metrics."""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import cast

import pytest
from extension_pages import load_page_module
from sample_traces import make_small_trace
from trained_runs import make_small_config, train_to_end, write_digit_files

import pellucid
from pellucid.config.toml import build_config, override_settings
from pellucid.config.training_types import BUILT_IN_METRICS, METRIC_TYPES, best_rank, format_metric, metric_sign
from pellucid.errors import ArgumentError, ConfigError
from pellucid.evaluation.custom_metrics import EvaluatedExample, Metric, RatioMetric, score_metric
from pellucid.run_folder.log import read_log
from pellucid.training.events import ValidationCompleted


class NumberOfSymbols(RatioMetric):
    """Mean number of output symbols."""

    higher_is_better = False

    def terms(self, example: EvaluatedExample) -> tuple[float, float]:
        """Return the number of symbols, and 1."""
        return len(example.output_symbols), 1


class Distinct(Metric):
    """Number of distinct outputs."""

    def compute(self, examples: Sequence[EvaluatedExample]) -> float:
        """Return the number."""
        return len({example.output for example in examples})


@pytest.fixture(autouse=True)
def registered_metrics(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register metrics for each test."""
    monkeypatch.setattr(METRIC_TYPES, "registered", {})
    pellucid.register_metric("prefix_accuracy", load_page_module("metric").PrefixAccuracy)
    pellucid.register_metric("num_symbols", NumberOfSymbols)
    pellucid.register_metric("distinct", Distinct)
    yield


def make_example(output: str, *references: str) -> EvaluatedExample:
    """Return an example whose symbols are characters."""
    symbols = tuple(map(tuple, references))
    return EvaluatedExample("source", output, references, tuple(output), symbols, make_small_trace())


def register(name: object, value: object) -> None:
    """Register a value of any type; the wrapper of the tests would check types first."""
    cast("Callable[[object, object], None]", inspect.unwrap(pellucid.register_metric))(name, value)


def test_a_ratio_is_of_sums_and_has_a_bootstrap_interval() -> None:
    examples = [make_example("abcd", "abxd"), make_example("xy", "ab"), make_example("abc", "zz", "abc")]
    score = score_metric("prefix_accuracy", examples)
    assert score.value == pytest.approx(100 * (2 + 0 + 3) / (4 + 2 + 3)) and score.unit == "%"
    assert score.interval is not None and 0 <= score.interval.low < score.value < score.interval.high <= 100
    assert score_metric("num_symbols", examples).value == 3
    assert score_metric("num_symbols", examples[:1] * 5).interval == (4, 4)
    assert score_metric("distinct", examples).to_dict() == {
        "value": 3.0, "ci95": None, "unit": "", "higher_is_better": True}  # fmt: skip


def test_the_direction_decides_which_validation_is_better() -> None:
    assert metric_sign("num_symbols") == -1 == metric_sign("loss") and metric_sign("distinct") == 1
    assert best_rank("prefix_accuracy") == 100 and best_rank("num_symbols") == math.inf
    assert best_rank("symbol_error_rate") == 0 and format_metric("num_symbols", 2.0) == "2.000"


def test_a_metric_selects_the_best_validation_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_digit_files(tmp_path)
    config = override_settings(
        make_small_config({"epochs": 4, "eval_interval": 1}), {"training": {"metric": "num_symbols"}}
    )
    events = [
        event for event in train_to_end(files, tmp_path / "run", config) if isinstance(event, ValidationCompleted)
    ]
    values = [event.metrics["num_symbols"] for event in events]
    assert events[0].best and events[-1].progress.best is not None
    assert events[-1].progress.best[0] == -min(values)
    logged = [record for record in read_log(tmp_path / "run") if record["event"] == "validated"]
    assert [record["num_symbols"] for record in logged] == values
    assert f"* num_symbols {min(values):.3f}" in (tmp_path / "run" / "card.md").read_text("utf-8")
    options = pellucid.EvaluationOptions(metrics=("distinct", "exact_match"))
    evaluation = pellucid.evaluate(tmp_path / "run", files.valid, options)
    metrics = evaluation.to_dict()["metrics"]
    assert set(metrics) == {"num_symbols", "distinct"} and metrics["num_symbols"]["ci95"][0] <= values[0] + 50
    monkeypatch.setattr(METRIC_TYPES, "registered", {})
    without = pellucid.evaluate(tmp_path / "run", files.valid)
    assert without.to_dict()["metrics"] == {}
    assert any(
        "training.metric = 'num_symbols' is neither built in nor installed: install" in note for note in without.notes
    )
    with pytest.raises(ConfigError, match="unknown metric 'distinkt': expected exact_match"):
        pellucid.evaluate(tmp_path / "run", files.valid, pellucid.EvaluationOptions(metrics=("distinkt",)))
    with pytest.raises(ConfigError, match=r"training\.metric: expected .* or one that is installed \(entry points"):
        train_to_end(files, tmp_path / "run", config)


class Failing(Distinct):
    """A metric that fails."""

    def compute(self, examples: Sequence[EvaluatedExample]) -> float:
        """Raise an error."""
        raise ZeroDivisionError("no examples today")


class NotFinite(Distinct):
    """A metric that is no number."""

    def compute(self, examples: Sequence[EvaluatedExample]) -> float:
        """Return NaN."""
        return math.nan


class NegativeTerms(NumberOfSymbols):
    """A ratio with a negative denominator."""

    def terms(self, example: EvaluatedExample) -> tuple[float, float]:
        """Return impossible terms."""
        return 1.0, -1.0


@pytest.mark.parametrize(
    ("metric_class", "message"),
    [
        (Failing, "the metric 'wrong' cannot be computed: no examples today"),
        (NotFinite, r"the metric 'wrong': NotFinite\.compute returned nan; expected a finite number"),
        (NegativeTerms, r"NegativeTerms\.terms returned \(1\.0, -1\.0\) for the source 'source'; expected two finite"),
    ],
)
def test_values_that_are_no_metrics_are_refused(metric_class: type[Metric], message: str) -> None:
    pellucid.register_metric("wrong", metric_class)
    with pytest.raises(ConfigError, match=message):
        score_metric("wrong", [make_example("a", "a")])


def test_other_objects_and_names_are_refused() -> None:
    with_argument = type("WithArgument", (Distinct,), {"__init__": lambda self, size: None})
    for value in (None, 5, object(), Metric, RatioMetric, dict, with_argument, type("D", (Distinct,), {"unit": 1})):
        with pytest.raises(ArgumentError, match=r"^metric_class: expected a subclass of pellucid\.Metric or pellucid"):
            register("mine", value)
    for name in BUILT_IN_METRICS:
        with pytest.raises(ConfigError, match=f"the name '{name}' belongs to a built-in metric"):
            register(name, Distinct)
    for invalid in ("", "a/b", "x" * 101, None, "seconds", "best"):
        with pytest.raises(ArgumentError, match=r"^name: expected"):
            register(invalid, Distinct)
    message = "training.metric: expected exact_match, symbol_error_rate, symbol_accuracy, loss, prefix_accuracy"
    with pytest.raises(ConfigError, match=re.escape(message) + ".*did you mean 'distinct'"):
        build_config({"training": {"metric": "distinc"}}, "a test")


def test_entry_points_that_provide_no_metric_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"number": f"{__name__}:BUILT_IN_METRICS", "missing": "no_such_package_of_anyone:Metric"}
    entries = {name: EntryPoint(name, value, METRIC_TYPES.group) for name, value in values.items()}
    monkeypatch.setattr(METRIC_TYPES, "declared", entries)
    for name, message in (("number", "does not provide the metric"), ("missing", "cannot be loaded: No module named")):
        with pytest.raises(ConfigError, match=message):
            score_metric(name, [make_example("a", "a")])
