"""Words outside the training set, which are read by their characters: every task from training to the command line."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from command_line import output_lines, run_pellucid, usage_error_message
from trained_runs import (
    SMALL_SIZES,
    DataFiles,
    TrainedRun,
    assert_training_resumes,
    shared_folder,
    train_to_end,
    write_pairs,
)

from pellucid.config.settings import Config, TaskName
from pellucid.config.toml import build_config
from pellucid.data.corpus import EncodedCorpus, map_corpus
from pellucid.data.examples import Example
from pellucid.data.vocabulary import Vocabulary
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.errors import ArgumentError, ConfigError
from pellucid.inspection.attribution import attribute
from pellucid.inspection.states import trace_states
from pellucid.model.network import Network
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.training import corpus_cache, training_data
from pellucid.training.events import ModelBuilt

TASKS: tuple[TaskName, ...] = ("transduce", "tag", "classify", "point")
KINDS = ("convolution", "gru")


def make_word(generator: random.Random, ending: str) -> str:
    """Return a random word that ends with a letter; most words occur once."""
    return "".join(generator.choices("bcdfgklm", k=generator.randint(3, 6))) + ending


def make_example(task: TaskName, generator: random.Random) -> Example:
    """Return a pair whose target follows from the last letters of the words: a or e, and y for one word."""
    endings = generator.choices("ae", k=generator.randint(2, 5))
    place = generator.randrange(len(endings))
    if task in ("classify", "point"):
        endings = ["a"] * len(endings)
        if task == "point" or generator.random() < 0.5:
            endings[place] = "y"
    source = " ".join(make_word(generator, ending) for ending in endings)
    match task:
        case "classify":
            return Example(source, "a y" if "y" in endings else "no y")
        case "point":
            return Example(source, str(place + 1))
        case _:
            return Example(source, " ".join(ending.upper() for ending in endings))


def make_examples(task: TaskName, count: int, seed: int) -> list[Example]:
    """Return pairs of a task."""
    generator = random.Random(seed)
    return [make_example(task, generator) for _ in range(count)]


def make_config(task: TaskName, kind: str = "convolution", **settings: dict[str, Any]) -> Config:
    """Return a configuration of the smallest sizes with characters."""
    tables: dict[str, dict[str, Any]] = {name: dict(table) for name, table in SMALL_SIZES.items()}
    tables["data"] = {"source_symbols": "words"}
    if task in ("transduce", "tag"):
        tables["data"]["target_symbols"] = "words"
    tables["encoder"] |= {"characters": kind, "character_size": 8}
    tables["training"] = {"epochs": 8, "batch_size": 8, "learning_rate": 0.02, "pair_ngram": False}
    if task == "transduce":
        tables["search"] = {"beam_size": 3}
    for name, table in settings.items():
        tables[name] = {**tables.get(name, {}), **table}
    return build_config({"size": "tiny", "task": task, **tables}, origin="a test")


def write_files(folder: Path, task: TaskName, count: int = 300) -> DataFiles:
    """Write a training and a validation file."""
    folder.mkdir(parents=True, exist_ok=True)
    return DataFiles(
        write_pairs(folder / "train.tsv", make_examples(task, count, 1)),
        write_pairs(folder / "dev.tsv", make_examples(task, 40, 2)),
    )


@cache
def characters_run(task: TaskName, kind: str = "convolution", seed: int = 1) -> TrainedRun:
    """Return a finished run. Tests copy it before they change it."""
    folder = shared_folder() / f"characters-{task}-{kind}-{seed}"
    files, config = write_files(folder, task), make_config(task, kind)
    config = build_config({**json.loads(json.dumps(_tables(config))), "seed": seed}, origin="a test")
    train_to_end(files, folder / "run", config)
    return TrainedRun(files, folder / "run", config)


def _tables(config: Config) -> dict[str, Any]:
    """Return a configuration as tables."""
    tables: dict[str, Any] = msgspec.to_builtins(config)
    return tables


def unseen(task: TaskName, count: int = 60) -> list[Example]:
    """Return pairs with words outside the training set."""
    known = {word for example in make_examples(task, 300, 1) for word in example.source.split()}
    examples = make_examples(task, count, 3)
    return [example for example in examples if not known.intersection(example.source.split())]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kind"), [*((task, "convolution") for task in TASKS), ("tag", "gru")])
def test_unseen_words_are_understood_by_their_characters(task: TaskName, kind: str) -> None:
    examples = unseen(task)
    predictor = load(characters_run(task, kind).run)
    outputs = [trace.output for trace in predictor.predict([example.source for example in examples])]
    share = sum(output == example.target for output, example in zip(outputs, examples, strict=True)) / len(examples)
    assert len(examples) > 20 and share > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_batches_and_streams_change_no_output(task: TaskName) -> None:
    predictor = load(characters_run(task).run)
    sources = [example.source for example in unseen(task)]
    sources += ["", "x", "ab " * 12, "w" * 100 + "y"]
    together = predictor.predict(sources)
    alone = [predictor.predict([source])[0] for source in sources]
    streamed = list(predictor.predict(iter(sources)))
    for one, *others in zip(together, alone, streamed, strict=True):
        for other in others:
            assert one.output == other.output
            np.testing.assert_allclose(one.log_probabilities, other.log_probabilities, atol=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_predictions_are_scored_alike(task: TaskName) -> None:
    predictor = load(characters_run(task).run)
    traces = predictor.predict([example.source for example in unseen(task, 20)])
    scored = predictor.score_examples([Example(trace.text, trace.output) for trace in traces])
    for one, other in zip(scored, traces, strict=True):
        np.testing.assert_allclose(one.log_probabilities, other.log_probabilities, atol=1e-5)


def test_every_search_reads_characters() -> None:
    predictor, sources = load(characters_run("transduce").run), [each.source for each in unseen("transduce", 8)]
    beam = predictor.nbest(sources, 3)
    assert all(len({trace.output for trace in traces}) == 3 for traces in beam)
    greedy = predictor.with_beam(1).predict(sources)
    constrained = predictor.predict_examples([Example(source, "") for source in sources], prefixes=["A"] * len(sources))
    assert len(greedy) == len(sources) and all(trace.output.startswith("A") for trace in constrained)
    sampled = predictor.sample(sources, SamplingConfig(samples=2, seed=1))
    assert [len(traces) for traces in sampled] == [2] * len(sources)


@pytest.mark.parametrize("task", TASKS)
def test_ensembles_average_members_with_other_characters(task: TaskName, tmp_path: Path) -> None:
    first, folder = characters_run(task), tmp_path / "data"
    folder.mkdir()
    other_examples = [
        example._replace(source=example.source.replace("b", "é").replace("c", "z"))
        for example in make_examples(task, 120, 5)
    ]
    files = DataFiles(write_pairs(folder / "train.tsv", other_examples), first.files.valid)
    train_to_end(files, tmp_path / "other", make_config(task, "gru", training={"epochs": 2}))
    members = [load(first.run), load(tmp_path / "other")]
    assert members[0].vocabularies.characters != members[1].vocabularies.characters
    ensemble = load([first.run, tmp_path / "other"])
    examples = [Example(f"{example.source} dézy"[: len(example.source)], example.target) for example in unseen(task, 9)]
    together = ensemble.score_examples(examples)
    alone = [member.score_examples(examples) for member in members]
    for trace, *others in zip(together, *alone, strict=True):
        steps = slice(1) if task == "transduce" else slice(None)
        mean = np.mean([np.exp(other.log_probabilities[steps]) for other in others], axis=0)
        np.testing.assert_allclose(np.exp(trace.log_probabilities[steps]), mean, atol=1e-5)


@pytest.mark.parametrize(("task", "kind"), [("transduce", "gru"), ("tag", "convolution")])
def test_training_resumes_bit_for_bit(task: TaskName, kind: str, tmp_path: Path) -> None:
    files = write_files(tmp_path, task, 60)
    config = make_config(task, kind, training={"epochs": 3, "weight_averaging": "ema"}, encoder={"dropout": 0.3})
    assert_training_resumes(files, config, tmp_path, update=11)


def test_a_memory_mapped_corpus_gives_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, config = write_files(tmp_path, "tag", 40), make_config("tag", training={"epochs": 2})
    train_to_end(files, tmp_path / "memory", config)
    mapped = list[bool]()

    def record_mapped(path: Path, key: str, has_features: bool) -> EncodedCorpus:
        corpus = map_corpus(path, key, has_features)
        mapped.append(corpus.encoded.characters is not None)
        return corpus

    monkeypatch.setattr(corpus_cache, "MIN_CORPUS_SYMBOLS", 1)
    for module in (corpus_cache, training_data):
        monkeypatch.setattr(module, "map_corpus", record_mapped)
    assert_training_resumes(files, config, tmp_path, update=7)
    assert mapped == [True, True, True]  # two new trainings, and one resumed
    one, other = (load(tmp_path / name).predict(["bcd fga"])[0] for name in ("memory", "uninterrupted"))
    assert one.log_probabilities.tolist() == other.log_probabilities.tolist()


def test_fine_tuning_adds_characters(tmp_path: Path) -> None:
    first = characters_run("tag")
    pairs = [each._replace(source=each.source.replace("b", "é")) for each in make_examples("tag", 60, 5)]
    files = DataFiles(write_pairs(tmp_path / "train.tsv", pairs), first.files.valid)
    config = make_config("tag", training={"epochs": 1, "init_from": str(first.run)})
    events = train_to_end(files, tmp_path / "run", config)
    (initialized,) = (event.initialized for event in events if isinstance(event, ModelBuilt))
    assert initialized is not None and initialized.new_characters == ("é",)
    (record,) = (record for record in read_log(tmp_path / "run") if record["event"] == "initialized")
    assert record["new_characters"] == 1
    before, after = load(first.run), load(tmp_path / "run")
    assert after.vocabularies.characters.symbols == (*before.vocabularies.characters.symbols, "é")
    assert character_table(after.network).shape[0] == character_table(before.network).shape[0] + 1


def character_table(network: Network) -> torch.Tensor:
    """Return the embeddings of the characters of a network."""
    assert network.encoder.characters is not None
    return network.encoder.characters.table.weight


def test_states_and_attributions_of_unseen_words() -> None:
    predictor = load(characters_run("transduce").run)
    trace = predictor.predict([unseen("transduce")[0].source])[0]
    (states,) = trace_states(predictor, [trace], gates=True)
    assert states.encoder.shape[0] == len(trace.source) and "encoder forwards update" in states.gates
    attribution = attribute(predictor, trace)
    for scores in (attribution.occlusion, attribution.input_x_gradient):
        assert scores.shape == (len(trace.log_probabilities), len(trace.source)) and np.isfinite(scores).all()


def run_lines(*arguments: object, stdin: str = "") -> Iterator[str]:
    """Yield the lines of output of a command that succeeds."""
    result = run_pellucid(*arguments, stdin=stdin.encode())
    assert result.code == 0, result.err
    yield from output_lines(result.out)


@pytest.mark.parametrize("task", TASKS)
def test_commands_read_characters(task: TaskName) -> None:
    run, dev = characters_run(task).run, characters_run(task).files.valid
    sources = [example.source for example in unseen(task, 10)]
    expected = [trace.output for trace in load(run).predict(sources)]
    assert list(run_lines("predict", run, stdin="".join(f"{source}\n" for source in sources))) == expected
    assert len(list(run_lines("score", run, dev))) == 40
    assert run_pellucid("evaluate", run, dev).code == 0
    assert run_pellucid("look", run, "-", stdin=f"{sources[0]}\n".encode()).code == 0


def test_other_backends_decline_characters(tmp_path: Path) -> None:
    run = characters_run("transduce").run
    for flags in (("--onnx", tmp_path / "onnx"), ("--html", tmp_path / "page.html")):
        message = usage_error_message(run_pellucid("export", run, *flags))
        assert "does not support encoder.characters: 'convolution' computes in PyTorch" in message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": {"source_symbols": "characters"}}, "needs sources that are cut into words"),
        ({"data": {"source_symbols": "whole"}}, "needs sources that are cut into words"),
        ({"encoder": {"embedding": "one-hot"}}, "needs encoder.embedding = 'learned' or 'frozen'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"encoder\.characters = 'convolution' {message}"):
        make_config("transduce", "convolution", **settings)


def test_vocabularies_of_another_network_are_refused() -> None:
    predictor = load(characters_run("tag").run)
    others = msgspec.structs.replace(predictor.vocabularies, characters=Vocabulary(("a",), (1,)))
    with pytest.raises(
        ArgumentError, match=r"^vocabularies: expected characters for the \d+ ids of the network, got 5"
    ):
        replace(predictor, vocabularies=others)


def test_members_with_and_without_characters_are_no_ensemble(tmp_path: Path) -> None:
    first = characters_run("tag")
    config = make_config("tag", training={"epochs": 0.1}, encoder={"characters": "none", "character_size": 32})
    train_to_end(first.files, tmp_path / "plain", config)
    result = run_pellucid("predict", first.run, tmp_path / "plain", "-", stdin=b"a\n")
    assert "differ in encoder.characters: members of an ensemble need equal settings" in usage_error_message(result)
