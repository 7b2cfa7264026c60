"""A custom metric, the class of the page on metrics."""

import inspect
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
from extension_pages import load_page_module
from sample_traces import make_small_trace
from trained_runs import make_small_config, train_to_end, write_digit_files

import pellucid
from pellucid.config.toml import build_config, override_settings
from pellucid.config.training_types import BUILT_IN_METRICS, METRIC_TYPES, best_rank, format_metric, metric_sign
from pellucid.errors import ArgumentError, ConfigError
from pellucid.evaluation.custom_metrics import (
    RESERVED_NAMES,
    EvaluatedExample,
    Metric,
    RatioMetric,
    compute_metric,
    score_metric,
)
from pellucid.evaluation.metrics import ScoredExample
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS
from pellucid.reporting.tables import format_metric_value
from pellucid.run_folder.log import read_log
from pellucid.run_folder.log_records import ValidatedRecord
from pellucid.tasks.registry import BUILT_IN_TASKS
from pellucid.tasks.transduce import TransductionTask
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


def test_a_ratio_is_of_sums_and_has_a_bootstrap_interval() -> None:
    examples = [make_example("abcd", "abxd"), make_example("xy", "ab"), make_example("abc", "zz", "abc")]
    score = score_metric("prefix_accuracy", examples)
    assert score.value == pytest.approx(100 * (2 + 0 + 3) / (4 + 2 + 3)) and score.unit == "%"
    assert score.interval is not None and score.value is not None
    assert 0 <= score.interval.low < score.value < score.interval.high <= 100
    assert score_metric("num_symbols", examples).value == 3
    assert score_metric("num_symbols", examples[:1] * 5).interval == (4, 4)
    assert score_metric("distinct", examples).to_dict() == {
        "value": 3.0, "ci95": None, "unit": "", "higher_is_better": True}  # fmt: skip


class ErrorsOfVowels(RatioMetric):
    """Percentage of wrong outputs among references with a vowel."""

    higher_is_better = False
    best_value = 0.0

    def terms(self, example: EvaluatedExample) -> tuple[float, float]:
        """Return 100 for a wrong output, and 1; both are 0 without a vowel."""
        counts = bool(set(example.references[0]) & set("aeiou"))
        return 100.0 * (counts and example.output != example.references[0]), float(counts)


class NoneMetric(Distinct):
    """A metric that is undefined."""

    def compute(self, examples: Sequence[EvaluatedExample]) -> float | None:  # type: ignore[override]
        """Return no value."""
        return None


def test_a_metric_without_denominators_is_undefined(tmp_path: Path) -> None:
    pellucid.register_metric("vowel_errors", ErrorsOfVowels)
    pellucid.register_metric("none", NoneMetric)
    examples = [make_example("xyz", "xyy"), make_example("ab", "ab"), make_example("cd", "ce")]
    score = score_metric("vowel_errors", examples)
    assert score.value == 50 and score.interval is not None and 0 <= score.interval.low <= score.interval.high <= 100
    for name in ("vowel_errors", "none"):
        undefined = score_metric(name, examples[:1])
        assert undefined.value is None and undefined.to_dict()["value"] is None and undefined.interval is None
        assert format_metric_value(undefined) == "undefined"
    files = write_digit_files(tmp_path)
    config = override_settings(make_small_config({"epochs": 1}), {"training": {"metric": "none"}})
    message = "the metric 'none' is undefined for the .* validation examples .* so it cannot select a model"
    with pytest.raises(ConfigError, match=message):
        train_to_end(files, tmp_path / "run", config)


def test_the_direction_decides_which_validation_is_better() -> None:
    assert metric_sign("num_symbols") == -1 == metric_sign("loss") and metric_sign("distinct") == 1
    assert best_rank("prefix_accuracy") == 100 and best_rank("num_symbols") == math.inf
    assert best_rank("symbol_error_rate") == 0 and format_metric("num_symbols", 2.0) == "2.000"


@pytest.mark.slow
def test_a_metric_selects_the_best_validation_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_digit_files(tmp_path)
    config = override_settings(
        make_small_config({"epochs": 4, "eval_interval": 1}), {"training": {"metric": "num_symbols"}}
    )
    events = [
        event for event in train_to_end(files, tmp_path / "run", config) if isinstance(event, ValidationCompleted)
    ]
    values = [event.metrics["num_symbols"] for event in events]
    assert events[0].is_best and events[-1].progress.best_rank is not None
    assert events[-1].progress.best_rank[0] == -min(values)
    logged = [record for record in read_log(tmp_path / "run") if record["event"] == "validated"]
    assert [record["num_symbols"] for record in logged] == values
    assert f"* num_symbols {min(values):.3f}" in (tmp_path / "run" / "card.md").read_text("utf-8")
    options = pellucid.EvaluationOptions(metrics=("distinct",))
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
    built_in = pellucid.EvaluationOptions(metrics=("exact_match",))  # regression test: it had no effect
    with pytest.raises(ConfigError, match="metrics: 'exact_match' is a built-in metric, whose results need no option"):
        pellucid.evaluate(tmp_path / "run", files.valid, built_in)
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
        (Failing, "the metric 'wrong' cannot be computed: ZeroDivisionError: no examples today"),
        (NotFinite, r"the metric 'wrong': NotFinite\.compute returned nan; expected a finite number"),
        (NegativeTerms, r"NegativeTerms\.terms returned \(1\.0, -1\.0\) for the source 'source'; expected two finite"),
    ],
)
def test_values_that_are_no_metrics_are_refused(metric_class: type[Metric], message: str) -> None:
    pellucid.register_metric("wrong", metric_class)
    with pytest.raises(ConfigError, match=message):
        score_metric("wrong", [make_example("a", "a")])


def test_unknown_names_are_refused_with_the_nearest_one() -> None:
    message = "training.metric: expected exact_match, symbol_error_rate, symbol_accuracy, loss, prefix_accuracy"
    with pytest.raises(ConfigError, match=re.escape(message) + ".*did you mean 'distinct'"):
        build_config({"training": {"metric": "distinc"}}, "a test")


def test_names_of_other_fields_of_the_log_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("seconds", "best", "span_f1", "class_accuracy", "tag_accuracy"):
        with pytest.raises(ArgumentError, match=r"^name: expected a name that no other field of the training log has"):
            pellucid.register_metric(name, Distinct)
        monkeypatch.setitem(METRIC_TYPES.registered, name, Distinct)  # as from an entry point
        with pytest.raises(ConfigError, match=f"the metric '{name}' has the name of another field of the training log"):
            score_metric(name, [make_example("a", "a")])


def test_all_fields_of_validations_are_reserved() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(ValidatedRecord)}
    for task in BUILT_IN_TASKS.values():
        fields |= {metric.key for metric in (*task.metrics.validation_metrics, *task.metrics.other_metrics)}
        labels = ("C", "B-x", "I-x")
        fields |= task.metrics.validation_scores([ScoredExample(labels, (labels,), 2, True)]).keys()
    assert {"tag_accuracy", "training_loss", "update"} <= fields <= RESERVED_NAMES | BUILT_IN_METRICS.keys()


def test_the_name_of_a_metric_of_a_custom_task_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = replace(ERROR_RATE_METRICS, validation_scores=lambda scored: {"distinct": 0.0})
    monkeypatch.setattr(TransductionTask, "metrics", metrics)
    config = override_settings(make_small_config({"epochs": 1}), {"training": {"metric": "distinct"}})
    message = r"training\.metric = 'distinct': the task 'transduce' has a metric of this name"
    with pytest.raises(ConfigError, match=message):
        train_to_end(write_digit_files(tmp_path), tmp_path / "run", config)


class Exits(NumberOfSymbols):
    """A metric that ends the process."""

    def terms(self, example: EvaluatedExample) -> tuple[float, float]:
        """End the process."""
        sys.exit(0)


def test_a_metric_cannot_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the command ended with the code 0, and printed nothing."""
    pellucid.register_metric("exits", Exits)
    with pytest.raises(ConfigError, match=r"the metric 'exits' cannot be computed: it called sys\.exit\(0\)"):
        score_metric("exits", [make_example("a", "a")])
    monkeypatch.setattr(EntryPoint, "load", lambda entry: sys.exit(0))
    entry = EntryPoint("declared", "module:Class", METRIC_TYPES.group)
    with pytest.raises(ConfigError, match=r"the entry point .* cannot be loaded: it called sys\.exit\(0\)"):
        METRIC_TYPES._load("declared", entry)


@pytest.mark.parametrize("value", ["0.5", True, np.bool_(True), b"1"])
def test_texts_and_booleans_are_no_values(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(Distinct):
        """A metric whose value has another type."""

        def compute(self, examples: Sequence[EvaluatedExample]) -> float:
            """Return the value."""
            return cast(float, value)

    monkeypatch.setattr(METRIC_TYPES, "registered", {"wrong": Wrong})
    with pytest.raises(ConfigError, match=r"Wrong\.compute returned .*; expected a finite number"):
        compute_metric("wrong", [make_example("a", "a")])


def test_the_message_names_the_wrong_property() -> None:
    for name, value, text in (
        ("unit", 3, "unit must be a string, not 3"),
        ("higher_is_better", "yes", "higher_is_better must be True or False, not 'yes'"),
        ("best_value", "1", "best_value must be a number or None, not '1'"),
    ):
        with pytest.raises(ArgumentError, match=f"; {text}$"):
            inspect.unwrap(pellucid.register_metric)("mine", type("Wrong", (Distinct,), {name: value}))
