"""A custom task, defined in this file only: the first and last position of the marked span of a source.

The tests register it, and then train, predict, evaluate and view it with the ordinary subcommands.
"""

import inspect
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple, cast

import chromium
import msgspec
import numpy as np
import pytest
import torch
from command_line import CommandResult, build_environment
from jaxtyping import Float
from page_navigation import find_panel, open_tab
from playwright.sync_api import expect
from report_documents import CONTENTS_ELEMENT, read_report
from torch import Tensor
from trained_runs import write_pairs

import pellucid
from pellucid.config.settings import Config
from pellucid.config.task_settings import TASKS, TaskSettings, reject_feature_prefix
from pellucid.config.toml import build_config, load_config
from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.data.target_vocabularies import learn_position_vocabularies
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import NUM_SPECIAL, Vocabularies
from pellucid.decoding.trace import Trace
from pellucid.errors import ArgumentError, ConfigError
from pellucid.evaluation.label_metrics import LabelCounter, LabelMetrics
from pellucid.evaluation.metrics import ScoredExample, ValidationMetric, wilson_interval
from pellucid.evaluation.task_metrics import TaskMetrics, accuracy_rates
from pellucid.model.attention import build_attention
from pellucid.model.encoder import Encoder
from pellucid.model.labeling_networks import LabelingNetwork, Pointer, Query
from pellucid.model.losses import pointing_cross_entropy
from pellucid.model.memory import Memory, NetworkOutput
from pellucid.model.network import Network, NetworkParts
from pellucid.run_folder.log import read_log
from pellucid.tasks.registry import get_task
from pellucid.tasks.task import LabelingTask, TaskLabels
from pellucid.viewer.schema import PageContents

browser, open_page, page_errors = chromium.browser, chromium.open_page, chromium.page_errors


class SpanNetwork(LabelingNetwork):
    """Two pointers over one encoder: the first and the last position of the span."""

    def __init__(self, encoder: Encoder, pointers: Sequence[Pointer]) -> None:
        super().__init__(encoder)
        self.first, self.last = pointers

    @property
    def vocabulary_size(self) -> int:
        return self.first.vocabulary_size

    def forward_memory(self, memory: Memory) -> NetworkOutput:
        """Return the predictions of both pointers, concatenated."""
        ends = [pointer.forward_memory(memory) for pointer in (self.first, self.last)]
        logits, weights = (
            torch.cat(parts, dim=1) for parts in zip(*((e.logits, e.weights) for e in ends), strict=True)
        )
        return NetworkOutput(logits, weights, memory.final)


class SpanCounter(LabelCounter):
    """Counts of spans, and of those whose two ends are correct."""

    def __init__(self) -> None:
        self.num_correct = self.total = 0

    def add(self, scored: Sequence[ScoredExample], traces: Sequence[Trace]) -> None:
        self.num_correct += sum(example.exact for example in scored)
        self.total += len(scored)

    def extend(self, other: Any) -> None:  # noqa: ANN401
        self.num_correct += other.num_correct
        self.total += other.total

    def metrics(self) -> LabelMetrics:
        """Return the proportion of spans whose two ends are correct."""
        accuracy, interval = 100 * self.num_correct / self.total, wilson_interval(self.num_correct, self.total).percent
        return LabelMetrics("span", accuracy, interval, None, None, None, None, None, [], [], None)


def start_accuracy(scored: Sequence[ScoredExample]) -> float:
    """Return the percentage of outputs whose first position is correct."""
    return 100 * float(np.mean([example.output[:1] == example.reference[:1] for example in scored]))


class SpanTask(LabelingTask):
    """Predict the first and last position of the marked span of a source, such as "2-4"."""

    settings = TaskSettings(
        name="span",
        presets={"data": {"target_symbols": "-"}, "training": {"metric": "symbol_accuracy"}},
        check=reject_feature_prefix,
    )
    labels = TaskLabels(
        symbol="end",
        symbols="ends",
        output="span",
        loss_unit="an end",
        attention_caption="The weights point at both ends of the span.",
    )
    metrics = TaskMetrics(
        validation_metrics=(
            ValidationMetric("exact_match", "spans right"),
            ValidationMetric("symbol_accuracy", "ends right"),
        ),
        compared_rates=(("accuracy", "spans right"),),
        rates=accuracy_rates,
        labels=SpanCounter,
        validation_scores=lambda scored: {
            "starts_right": 100 * float(np.mean([s.output[:1] == s.reference[:1] for s in scored]))
        },
    )

    def learn_vocabularies(self, examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
        return learn_position_vocabularies(examples, tokenizers, config)

    def build_network(self, parts: NetworkParts) -> Network:
        config, sizes = parts.config, parts.sizes

        def pointer() -> Pointer:
            query = Query(config.decoder.init_hidden, sizes.memory_size, config.decoder.hidden_size)
            attention = build_attention(config.attention, config.decoder.hidden_size, sizes.memory_size)
            return Pointer(parts.encoder, query, attention, sizes.vocabulary_size - NUM_SPECIAL)

        return SpanNetwork(parts.encoder, [pointer(), pointer()])

    def loss(self, network: Network, output: NetworkOutput, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """Return the mean loss over both ends."""
        logits, target = output.logits, batch.target
        ends = [
            (logits[:, end_index : end_index + 1], target[:, end_index : end_index + 1])
            for end_index in range(target.shape[1])
        ]
        return torch.stack([pointing_cross_entropy(*end, label_smoothing) for end in ends]).mean()

    def describe_architecture(self, config: Config) -> str:
        return "Two pointers over one encoder"


class TrainedTask(NamedTuple):
    """A run trained by the command line, its validation pairs, and the result of the training command."""

    run: Path
    dev: Path
    result: CommandResult


def make_pairs(count: int, seed: int) -> list[Example]:
    """Return sources of lowercase letters with one span of x, whose positions are the target."""
    generator, examples = random.Random(seed), list[Example]()
    for _ in range(count):
        before, inside, after = generator.randint(0, 3), generator.randint(1, 3), generator.randint(0, 3)
        letters = [*generator.choices("abc", k=before), *"x" * inside, *generator.choices("abc", k=after)]
        examples.append(Example("".join(letters), f"{before + 1}-{before + inside}"))
    return examples


def read_exported_contents(path: Path) -> PageContents:
    """Decode the contents of an exported page, validated by the schema."""
    (data,) = CONTENTS_ELEMENT.findall(path.read_text("utf-8"))
    return msgspec.json.decode(data, type=PageContents)


PROGRAM = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
import pellucid, test_custom_task
from pellucid.cli import main

pellucid.register_task(test_custom_task.SpanTask())
for arguments in json.load(sys.stdin):
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(arguments)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
"""A program that registers the task and then runs subcommands."""


def run_subcommands(*argument_lists: Sequence[object]) -> list[CommandResult]:
    """Run subcommands in a process that registers the task, and return their results."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([[str(argument) for argument in arguments] for arguments in argument_lists]),
        capture_output=True,
        text=True,
        env=build_environment({"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}),
        check=True,
    )
    results = [CommandResult(*json.loads(line)) for line in process.stdout.splitlines()]
    assert [result.code for result in results] == [0] * len(argument_lists), results
    return results


@pytest.fixture(scope="module", autouse=True)
def registered_task() -> Iterator[None]:
    """Register the task for the tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TASKS, "registered", {})
        pellucid.register_task(SpanTask())
        yield


@pytest.fixture(scope="module")
def trained_task(registered_task: None, tmp_path_factory: pytest.TempPathFactory) -> TrainedTask:
    """Train a run on spans of x."""
    folder = tmp_path_factory.mktemp("span")
    train, dev = (
        write_pairs(folder / "train.tsv", make_pairs(300, 1)),
        write_pairs(folder / "dev.tsv", make_pairs(40, 2)),
    )
    size_flags = ("--size", "tiny", "--max-sequence-length", 20)
    training_flags = ("--training.epochs", 12, "--training.batch-size", 20, "--training.learning-rate", 0.02)
    (result,) = run_subcommands(
        ("train", train, "--valid", dev, "--run", folder / "run", "--task", "span", *size_flags, *training_flags)
    )
    return TrainedTask(folder / "run", dev, result)


def test_custom_task_is_trained_and_reported_with_its_own_scores(trained_task: TrainedTask) -> None:
    assert "spans right" in trained_task.result.err and "ends right" in trained_task.result.err
    log = [record for record in read_log(trained_task.run) if record["event"] == "validated"]
    assert all(0 <= record["starts_right"] <= 100 for record in log) and log[-1]["exact_match"] > 90
    card = (trained_task.run / "card.md").read_text("utf-8")
    assert "Two pointers over one encoder" in card and "* spans right" in card and "cross-entropy" in card
    config = load_config(trained_task.run / "config.toml")
    assert config.task == "span" and config.data.target_symbols == "-" and config.training.metric == "symbol_accuracy"


@pytest.mark.slow
def test_custom_task_predicts_texts_and_traces(trained_task: TrainedTask, tmp_path: Path) -> None:
    sources = write_pairs(tmp_path / "sources.tsv", [Example("abxxc", ""), Example("xa", "")])
    predict = ("predict", trained_task.run, sources)
    texts, jsonl = run_subcommands(predict, (*predict, "--output-format", "jsonl"))
    assert texts.out == "3-4\n1-1\n"
    lines = jsonl.out.splitlines()
    traces = [Trace.from_json(line) for line in lines]
    assert [trace.output for trace in traces] == ["3-4", "1-1"] and json.loads(lines[0])["task"] == "span"
    assert traces[0].target == ("3", "4") and traces[0].attention.shape == (2, 5) and traces[0].finished
    np.testing.assert_allclose(traces[0].attention.sum(axis=1), 1, atol=1e-4)
    model = pellucid.load(trained_task.run)
    (single,) = model.predict(["abxxc"])
    assert single.target == traces[0].target
    ensemble_trace = pellucid.load([trained_task.run, trained_task.run]).predict(["abxxc"])[0]
    assert ensemble_trace.output == "3-4"
    np.testing.assert_allclose(ensemble_trace.attention, traces[0].attention, atol=1e-5)


def test_a_run_whose_task_is_not_registered_is_refused(
    trained_task: TrainedTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TASKS, "registered", {})
    message = r"config\.toml: task = 'span' is neither built in nor installed: install the package that declares it"
    with pytest.raises(ConfigError, match=message):
        pellucid.load(trained_task.run)


def test_unsupported_operations_are_refused(trained_task: TrainedTask) -> None:
    model = pellucid.load(trained_task.run)
    with pytest.raises(ConfigError, match=r"^count: expected 1, because a model whose task is 'span' gives one output"):
        model.nbest(["abxxc"], 2)
    with pytest.raises(ConfigError, match="needs task = 'transduce'"):
        model.with_beam(3)
    with pytest.raises(ConfigError, match="task = 'span' with features needs"):
        build_config({"task": "span", "data": {"features_column": "3"}}, "a test")
    with pytest.raises(ConfigError, match="the name 'tag' belongs to a built-in task"):
        pellucid.register_task(get_task("tag"))


@pytest.mark.slow
def test_custom_task_is_evaluated_with_its_own_scores(trained_task: TrainedTask, tmp_path: Path) -> None:
    copy = shutil.copytree(trained_task.run, tmp_path / "copy")
    one_run, two_runs = run_subcommands(
        ("evaluate", trained_task.run, trained_task.dev, "--json", "--html", tmp_path / "one.html"),
        ("evaluate", trained_task.run, copy, trained_task.dev, "--html", tmp_path / "two.html"),
    )
    result = json.loads(one_run.out)
    assert result["task"] == "span" and result["accuracy"] > 90 and "sequence_error_rate" not in result
    summary = {value.label: value.value for value in read_report(tmp_path / "one.html").summary}
    assert summary["accuracy"] == f"{result['accuracy']:.2f} %"
    assert "spans right" in two_runs.out and "error rate" not in two_runs.out
    assert read_report(tmp_path / "two.html").summary[0].label.startswith("spans right, ")


@pytest.mark.slow
def test_custom_task_has_a_page(trained_task: TrainedTask, tmp_path: Path) -> None:
    names = ("page.html", "trace.svg", "trace.json", "trace.tex")
    look = ("look", trained_task.run, trained_task.dev)
    terminal, *_ = run_subcommands(
        (*look, "--terminal", "--max-examples", 2), *((*look, "--export", tmp_path / name) for name in names)
    )
    assert terminal.out.endswith("The weights point at both ends of the span.\n")
    page = read_exported_contents(tmp_path / "page.html")
    assert page.card is not None and page.card.task == "span" and page.card.has_attention and page.corpus is not None
    assert page.training is not None and page.training.loss_unit == "an end" and len(page.examples) == 40
    assert page.examples[0].traces[0].task == "span" and page.examples[0].errors is not None
    view = page.tasks["span"]
    assert (view.symbol, view.output, view.points, view.autoregressive) == ("end", "span", False, False)
    assert all((tmp_path / name).stat().st_size > 300 for name in names)
    assert Trace.from_json((tmp_path / "trace.json").read_text("utf-8")).task == "span"


@pytest.mark.slow
def test_page_uses_the_labels_of_the_custom_task(
    trained_task: TrainedTask, tmp_path: Path, open_page: chromium.OpenPage
) -> None:
    """The page contains no code for this task."""
    page_file, report_file, copy = (
        tmp_path / "page.html",
        tmp_path / "report.html",
        shutil.copytree(trained_task.run, tmp_path / "copy"),
    )
    run_subcommands(
        ("look", trained_task.run, trained_task.dev, "--export", page_file),
        ("evaluate", trained_task.run, copy, trained_task.dev, "--html", report_file),
    )
    page = open_page(page_file.as_uri())
    expect(page.get_by_role("tab", name="Examples")).to_be_visible()
    for name in ("Beam", "Space"):
        expect(page.get_by_role("tab", name=name, exact=True)).to_have_count(0)
    expect(find_panel(page, "End").get_by_text("Most probable ends")).to_be_visible()
    expect(find_panel(page, "Attention over the source")).to_be_visible()
    open_tab(page, "Corpus")
    expect(page.get_by_text("Accuracy by source length")).to_be_visible()
    expect(page.get_by_text("Accuracy by position")).to_have_count(0)
    report = open_page(report_file.as_uri())
    expect(report.get_by_text("spans right").first).to_be_visible()


def test_installed_package_can_declare_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = EntryPoint("declared", f"{__name__}:DECLARED", TASKS.group)
    broken = EntryPoint("broken", f"{__name__}:NUM_SPECIAL", TASKS.group)
    monkeypatch.setattr(TASKS, "declared", {each.name: (each,) for each in (declared, broken)})
    assert TASKS.names() == ("transduce", "tag", "classify", "point", "tag-and-classify", "span", "declared", "broken")
    assert get_task("declared") is DECLARED
    assert build_config({"task": "declared"}, "a test").data.target_symbols == "-"
    with pytest.raises(ConfigError, match=r"the entry point .* does not provide the task 'broken'"):
        get_task("broken")
    with pytest.raises(
        ConfigError, match="task: expected transduce, tag, classify, point, tag-and-classify, span, declared or broken"
    ):
        build_config({"task": "spam"}, "a test")


class DeclaredTask(SpanTask):
    """The span task under another name, for an entry point."""

    settings = replace(SpanTask.settings, name="declared")


DECLARED = DeclaredTask()


@pytest.mark.parametrize("value", [None, 5, pellucid.Task, "span", object()])
def test_other_objects_are_not_registered(value: object) -> None:
    register = cast(
        "Callable[[object], None]", inspect.unwrap(pellucid.register_task)
    )  # the wrapper of the tests checks types first
    with pytest.raises(ArgumentError, match=r"^task: expected an instance of pellucid\.Task with settings and a name"):
        register(value)


@pytest.mark.parametrize(
    ("presets", "message"),
    [
        ({"nope": {"x": 1}}, "unknown key 'nope'"),
        ({"training": {"epochz": 1}}, "unknown key 'training.epochz'; did you mean 'training.epochs'?"),
        ({"training": {"epochs": "x"}}, "training.epochs: expected a number, got 'x'"),
        ({"encoder": {"cell": None}}, "encoder.cell: expected gru or lstm, got None"),
        ({"seed": {}}, "seed: expected a whole number, got {}"),
    ],
)
def test_wrong_presets_are_refused_when_a_task_is_registered(
    presets: dict[str, dict[str, object]], message: str
) -> None:
    task = SpanTask()
    task.settings = replace(task.settings, presets=presets)
    with pytest.raises(ArgumentError, match=rf"^task\.settings\.presets: {re.escape(message)}"):
        pellucid.register_task(task)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("check", None),
        ("presets", None),
        ("presets", {"encoder": 1}),
        ("name", "\ud800"),
        ("name", "a/b"),
        ("name", "x" * 101),
        ("autoregressive", 1),
        ("counts_symbols", "yes"),
        ("pipeline_tag", 5),
    ],
)
def test_settings_of_wrong_types_are_refused_when_a_task_is_registered(field: str, value: object) -> None:
    task = SpanTask()
    changed = object.__new__(type(task.settings))
    for each in fields(task.settings):
        new = value if each.name == field else getattr(task.settings, each.name)
        object.__setattr__(changed, each.name, new)
    task.settings = changed
    with pytest.raises(ArgumentError, match=rf"task\.settings\.{field}"):
        pellucid.register_task(task)


class WithoutLabels(LabelingTask):
    """A task that lacks what only a training and an evaluation need."""

    settings = replace(SpanTask.settings, name="without")
    metrics = SpanTask.metrics
    build_network = SpanTask.build_network

    def describe_architecture(self, config: Config) -> str:
        return "two pointers"


class WithoutMetrics(WithoutLabels):
    """A task with labels and a wrong value in place of the metrics."""

    labels = SpanTask.labels
    metrics = None  # type: ignore[assignment]


WITHOUT_LABELS = WithoutLabels()


def test_tasks_without_labels_or_metrics_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match=r"^task\.labels: expected an instance of TaskLabels, got None"):
        pellucid.register_task(WITHOUT_LABELS)
    with pytest.raises(ArgumentError, match=r"^task\.metrics: expected an instance of TaskMetrics, got None"):
        pellucid.register_task(WithoutMetrics())
    entry = EntryPoint("without", f"{__name__}:WITHOUT_LABELS", TASKS.group)
    monkeypatch.setattr(TASKS, "declared", {"without": (entry,)})
    with pytest.raises(ConfigError, match=r"^the task 'without': task\.labels: expected an instance of TaskLabels"):
        get_task("without")
