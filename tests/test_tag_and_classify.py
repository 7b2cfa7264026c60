"""The task tag-and-classify: an independent implementation of its network and loss, and its commands."""

import csv
import io
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import output_lines, run_pellucid, usage_error_message
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from small_networks import SEEDS, few_examples, make_config, make_vocabularies, randomize_parameters
from task_cases import make_examples, make_task_config, make_untrained_predictor, task_run
from torch import Tensor, nn

from pellucid.config.settings import DataConfig
from pellucid.data.batches import Batch
from pellucid.data.encoding import label_masks
from pellucid.data.examples import Example, read_examples
from pellucid.data.vocabulary import NUM_SPECIAL, PAD, Vocabularies
from pellucid.decoding.trace import Trace
from pellucid.errors import BadLineError, ConfigError, DataError, RunError
from pellucid.model.labeling_networks import TaggingClassifier
from pellucid.model.losses import class_and_tag_cross_entropy
from pellucid.run_folder.predictor_loader import load
from pellucid.tasks.registry import build_ensemble, build_network, get_task

TASK = "tag-and-classify"
LENGTH_LISTS = st.lists(st.integers(1, 5), min_size=1, max_size=4)
INITIAL_STATES = st.sampled_from(["final", "mean", "zero"])


def labeled_vocabularies() -> Vocabularies:
    """Return vocabularies whose five target symbols are three classes and four tags, of which two are both."""
    vocabularies = make_vocabularies()
    symbols = vocabularies.target.symbols
    return replace(vocabularies, classes=symbols[:3], tags=symbols[1:])


def build_labeler(init_hidden: str, seed: int) -> TaggingClassifier:
    """Return a network of the task in double precision, with random parameters."""
    settings = {
        "data": {"source_symbols": "words", "target_symbols": "words", "equal_length": True, "class_first": True},
        "attention": {"type": "general"},
        "decoder": {"init_hidden": init_hidden},
    }
    network = build_network(make_config({"task": TASK, **settings}), labeled_vocabularies())
    assert isinstance(network, TaggingClassifier)
    randomize_parameters(network, seed)
    return network.double().eval()


def make_batch(lengths: list[int], seed: int) -> Batch:
    """Return a batch of random sources, each with a class and tags of the vocabulary."""
    vocabularies, generator = labeled_vocabularies(), np.random.default_rng(seed)
    classes, tags = (np.flatnonzero(mask) for mask in label_masks(vocabularies))
    source = np.full((len(lengths), max(lengths)), PAD)
    target = np.full((len(lengths), 1 + max(lengths)), PAD)
    for row, length in enumerate(lengths):
        source[row, :length] = generator.integers(NUM_SPECIAL, len(vocabularies.source), length)
        target[row, 0], target[row, 1 : 1 + length] = generator.choice(classes), generator.choice(tags, length)
    sizes = torch.tensor(lengths)
    return Batch(torch.from_numpy(source), sizes, torch.from_numpy(target), 1 + sizes)


def linear_layer(weights: Mapping[str, Tensor], name: str, inputs: Tensor) -> Tensor:
    """Return W x + b with the parameters of a layer."""
    return nn.functional.linear(inputs, weights[f"{name}.weight"], weights[f"{name}.bias"])


def reference_logits(network: TaggingClassifier, source: Tensor, init_hidden: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of the class and of the tags of one source, and its attention weights, by `nn.GRU`."""
    weights = dict(network.named_parameters())
    hidden_size = network.encoder.forward_cells.layers[0].hidden_size
    gru = nn.GRU(weights["encoder.table.weight"].shape[1], hidden_size, batch_first=True, bidirectional=True).double()
    for direction, suffix in (("forward", "_l0"), ("backward", "_l0_reverse")):
        for side, ours in (("ih", "input"), ("hh", "hidden")):
            for kind in ("weight", "bias"):
                values = weights[f"encoder.{direction}_cells.layers.0.{ours}_{kind}"]
                getattr(gru, f"{kind}_{side}{suffix}").data.copy_(values.data)
    states, last = gru(weights["encoder.table.weight"][source][None])
    states = states[0]
    summary = {"final": last[:, 0].flatten(), "mean": states.mean(dim=0), "zero": None}[init_hidden]
    keys = nn.functional.linear(states, weights["attention.key_projection.weight"])
    query = (
        torch.zeros(keys.shape[1], dtype=torch.float64)
        if summary is None
        else torch.tanh(linear_layer(weights, "query.projection", summary))
    )
    attention = torch.softmax(keys @ query, dim=0)
    classes = linear_layer(weights, "head.classes.projection", torch.cat([query, attention @ states]))
    return classes, linear_layer(weights, "head.tags.projection", states), attention


def reference_loss(logits: Tensor, target: list[int], possible: list[int], smoothing: float) -> list[float]:
    """Return −Σ q log p of each row, over the possible ids."""
    losses = []
    for row, expected in zip(logits[:, possible].tolist(), target, strict=True):
        total = math.log(math.fsum(map(math.exp, row)))
        scores = dict(zip(possible, row, strict=True))
        uniform = math.fsum(score - total for score in row) / len(row)
        losses.append(-(1 - smoothing) * (scores[expected] - total) - smoothing * uniform)
    return losses


@few_examples
@given(LENGTH_LISTS, INITIAL_STATES, SEEDS, st.sampled_from([0.0, 0.2]))
def test_network_and_loss_equal_an_independent_implementation(
    lengths: list[int], init_hidden: str, seed: int, smoothing: float
) -> None:
    network, batch = build_labeler(init_hidden, seed), make_batch(lengths, seed)
    output = network(batch)
    allowed = [[*range(NUM_SPECIAL), *np.flatnonzero(mask).tolist()] for mask in label_masks(labeled_vocabularies())]
    losses = list[float]()
    for row, length in enumerate(lengths):
        classes, tags, attention = reference_logits(network, batch.source[row, :length], init_hidden)
        target = batch.target[row].tolist()
        torch.testing.assert_close(output.logits[row, 0, allowed[0]], classes[allowed[0]])
        torch.testing.assert_close(output.logits[row, 1 : 1 + length, allowed[1]], tags[:, allowed[1]])
        torch.testing.assert_close(output.weights[row, 0, :length], attention)
        losses += reference_loss(classes[None], target[:1], allowed[0], smoothing)
        losses += reference_loss(tags, target[1 : 1 + length], allowed[1], smoothing)
    loss = class_and_tag_cross_entropy(output.logits, batch.target, smoothing)
    assert loss.item() == pytest.approx(sum(losses) / len(losses), abs=1e-9)


@few_examples
@given(LENGTH_LISTS, SEEDS)
def test_a_class_is_never_a_tag_and_a_tag_never_a_class(lengths: list[int], seed: int) -> None:
    network, batch = build_labeler("final", seed), make_batch(lengths, seed)
    logits = network(batch).logits
    is_class, is_tag = map(torch.from_numpy, label_masks(labeled_vocabularies()))
    is_class[:NUM_SPECIAL] = is_tag[:NUM_SPECIAL] = True
    assert (logits[:, 0, ~is_class] == -torch.inf).all() and (logits[:, 1:][..., ~is_tag] == -torch.inf).all()
    assert logits[:, 0, is_class].isfinite().all() and logits[:, 1:][..., is_tag].isfinite().all()


@few_examples
@given(LENGTH_LISTS, SEEDS, st.sampled_from([0.0, 0.2]))
def test_labels_that_are_not_scored_change_neither_loss_nor_gradient(
    lengths: list[int], seed: int, smoothing: float
) -> None:
    network, batch = build_labeler("final", seed), make_batch(lengths, seed)
    logits = network(batch).logits.detach().requires_grad_()
    target = batch.target.clone()
    target[0, 1:] = PAD
    gradient = torch.autograd.grad(class_and_tag_cross_entropy(logits, target, smoothing), logits)[0]
    assert gradient.isfinite().all() and not gradient[target == PAD].any()
    nothing = class_and_tag_cross_entropy(logits, torch.full_like(target, PAD), smoothing)
    assert nothing.item() == 0  # no label of a batch is scored


def test_members_with_other_classes_are_refused_as_an_ensemble() -> None:
    pairs = make_examples(TASK, 20, 1)
    config = make_task_config(TASK)
    one = make_untrained_predictor(config, pairs)
    vocabularies = replace(one.vocabularies, classes=one.vocabularies.target.symbols)
    other = get_task(TASK).build_predictor(config, vocabularies, build_network(config, vocabularies).eval(), "")
    with pytest.raises(RunError, match="one and other have different classes: members of an ensemble need equal ones"):
        build_ensemble([one, other], ["one", "other"])


@pytest.mark.slow
def test_a_run_without_classes_is_refused(tmp_path: Path) -> None:
    run = shutil.copytree(task_run(TASK).run, tmp_path / "run")
    path = run / "vocabulary.json"
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**content, "classes": []}), "utf-8")
    with pytest.raises(RunError, match=r"vocabulary\.json: classes: expected one symbol or more, got an empty list"):
        load(run)
    path.write_text(json.dumps({**content, "tags": ["Z"]}), "utf-8")
    with pytest.raises(RunError, match=r"classes and tags must be symbols of target, and 'Z' is none"):
        load(run)


def column_config(**settings: Any) -> DataConfig:  # noqa: ANN401
    """Return data settings of a table with a column each for requests, slots and intents."""
    columns = {"source_column": "request", "target_column": "slots", "class_column": "intent"}
    words = {"source_symbols": "words", "target_symbols": "words"}
    return make_task_config(TASK, data={"ignored_tag": "", **columns, **words, **settings}).data


def test_a_column_of_classes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("slots,intent,request\nO B-x,Play,play it\n,Play,play\nO,,play\nO,Play it,play\nO O,Play,play\n")
    reading = read_examples(path, column_config(on_bad_line="skip"))
    assert reading.examples == [Example("play it", "Play O B-x")]
    assert [line.reason for line in reading.bad_lines] == [
        "the target is empty",
        "the class is empty",
        "the class 'Play it' is not one symbol of a target (data.target_symbols = 'words'), which data.class_column "
        "needs",
        "the source has 1 symbol and the target has 3: data.class_first needs a class, and a tag for each source "
        "symbol",
    ]
    with pytest.raises(BadLineError, match=r"train\.csv:3: the target is empty"):
        read_examples(path, column_config())
    with pytest.raises(DataError, match=r"no column 'intnt' \(--class-column, data\.class_column\)"):
        read_examples(path, column_config(class_column="intnt"))
    with pytest.raises(ConfigError, match=r"data\.class_column selects a column of a table, and parallel files have"):
        read_examples(path, column_config(), path)
    with pytest.raises(ConfigError, match=r"data\.class_column: expected a name or a number from 1, got '0'"):
        make_task_config(TASK, data={"class_column": "0"})


REQUESTS = [("play some jazz", "O O B-genre", "Play"), ("is it raining", "O O O", "Weather"), ("play", "O", "Play")]
TRAINING_REQUESTS = [
    ("play the jazz", "O O B-genre", "Play"),
    ("play jazz", "O B-genre", "Play"),
    ("some jazz", "O B-genre", "Play"),
    ("play some", "O O", "Play"),
    ("is it snowing", "O O O", "Weather"),
    ("raining today", "O O", "Weather"),
]
TRAINING_FLAGS = (
    *("--task", TASK, "--size", "tiny", "--source-symbols", "words", "--target-symbols", "words"),
    *("--source-column", "request", "--target-column", "slots", "--class-column", "intent"),
    *("--epochs", 12, "--training.batch-size", 6, "--training.learning-rate", 0.02),
)


def write_requests(path: Path, rows: list[tuple[str, str, str]]) -> Path:
    """Write CSV with a column each for requests, slots and intents."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("request", "slots", "intent"), *rows])
    return path


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that is trained by the command line on a table with a column of classes."""
    folder = tmp_path_factory.mktemp("columns")
    train = write_requests(folder / "train.csv", TRAINING_REQUESTS * 10)
    valid = write_requests(folder / "valid.csv", REQUESTS)
    result = run_pellucid("train", train, "--valid", valid, "--run", folder / "run", *TRAINING_FLAGS)
    assert result.code == 0 and "class accuracy 100.00 %" in result.err and "span F1 100.00 %" in result.err
    return folder


def test_predict_writes_a_column_for_classes_and_one_for_tags(trained_run: Path) -> None:
    run, valid = trained_run / "run", trained_run / "valid.csv"
    table = run_pellucid("predict", run, valid, "--output-format", "csv")
    rows = list(csv.DictReader(io.StringIO(table.out)))
    assert [(row["request"], row["output"], row["class"]) for row in rows] == REQUESTS
    assert output_lines(run_pellucid("predict", run, valid).out)[0] == "Play O O B-genre"
    traces = run_pellucid("predict", run, valid, "--output-format", "jsonl").out.splitlines()
    assert Trace.from_json(traces[1]).target == ("Weather", "O", "O", "O")
    blank = run_pellucid("predict", run, "--output-format", "csv", stdin=b'request\nplay\n""\n')
    assert [row["class"] for row in csv.DictReader(io.StringIO(blank.out))] == ["Play", ""]
    message = usage_error_message(run_pellucid("predict", run, valid, "--fill", "slots"))
    assert message.startswith("--fill fills one column, and this model predicts classes and tags for two")


def test_evaluate_score_and_look_read_both_columns(trained_run: Path, tmp_path: Path) -> None:
    run, valid = trained_run / "run", trained_run / "valid.csv"
    scores = json.loads(run_pellucid("evaluate", run, valid, "--json").out)
    assert scores["class_accuracy"] == scores["tag_accuracy"] == scores["span_f1"] == scores["exact_match"] == 100
    text = run_pellucid("evaluate", run, valid).out
    for name in ("class accuracy", "tag accuracy", "sequence accuracy", "span F1", "class labels: references"):
        assert name in text
    assert len(output_lines(run_pellucid("score", run, valid).out)) == 3
    other = tmp_path / "other.csv"
    other.write_text("request,slots,goal\nplay,O,Play\n")
    assert "no column 'intent'" in usage_error_message(run_pellucid("evaluate", run, other))
    result = run_pellucid("evaluate", run, other, "--class-column", "goal", "--json")
    assert json.loads(result.out)["exact_match"] == 100
    look = run_pellucid("look", run, valid, "--terminal", "--max-examples", 1).out
    assert "Play" in look and "The first row has the attention weights of the class" in " ".join(look.split())
    assert run_pellucid("look", run, valid, "--export", tmp_path / "page.html").code == 0
    tagger = task_run("tag")
    message = usage_error_message(run_pellucid("score", tagger.run, tagger.files.valid, "--class-column", 3))
    assert message.startswith("--class-column selects the classes beside the tags")


def test_a_validation_set_is_held_out_of_a_table_with_classes(trained_run: Path, tmp_path: Path) -> None:
    run, letters = tmp_path / "run", "abcdefghijklmnopqrstuvwxyz"
    table = write_requests(tmp_path / "table.csv", [(f"play {word} now", "O B-x O", "Play") for word in letters])
    assert run_pellucid("train", table, "--run", run, *TRAINING_FLAGS, "--epochs", 1).code == 0
    result = run_pellucid("evaluate", run, run / "validation.jsonl", "--json")
    assert json.loads(result.out)["examples"] >= 1


def test_runs_are_shared_and_fine_tuned(trained_run: Path, tmp_path: Path) -> None:
    run = trained_run / "run"
    assert run_pellucid("share", run, "--to", tmp_path / "shared").code == 0
    expected = load(run).predict(["play some jazz"])[0].output
    assert load(tmp_path / "shared").predict(["play some jazz"])[0].output == expected
    more = write_requests(tmp_path / "more.csv", [("stop now", "O B-when", "Stop"), ("stop", "O", "Stop")] * 10)
    valid = write_requests(tmp_path / "valid.csv", [("please stop now", "O O B-when", "Stop")])
    tuned = tmp_path / "tuned"
    result = run_pellucid("train", more, "--valid", valid, "--run", tuned, "--init-from", run, "--epochs", 20)
    assert result.code == 0, result.err
    model = load(tuned)
    assert model.vocabularies.classes == ("Play", "Weather", "Stop") and "B-when" in model.vocabularies.tags
    assert model.predict(["stop now"])[0].target[0] == "Stop"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("predict", "--nbest", 2), "--nbest: expected 1, because a model whose task is 'tag-and-classify' gives one"),
        (("predict", "--beam-size", 3), "--beam-size = 3 needs task = 'transduce'"),
        (("evaluate", "--multi-reference"), "--multi-reference applies to tasks with several correct outputs"),
        (("export", "--html", "page.html"), "tag-and-classify"),
        (("align",), "tag-and-classify"),
    ],
)
def test_what_the_task_does_not_support_is_refused(command: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    trained = task_run(TASK)
    first, *flags = command
    flags = [tmp_path / flag if flag == "page.html" else flag for flag in flags]
    files = [] if first == "export" else [trained.files.valid]
    assert message in usage_error_message(run_pellucid(first, trained.run, *files, *flags))
