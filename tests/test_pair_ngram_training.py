"""training/pair_ngram_training.py: the pair n-gram model of a training, its weight, and lost or foreign files."""

import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from command_line import run_pellucid
from trained_runs import (
    DataFiles,
    assert_runs_identical,
    copy_run_folder,
    make_copy_examples,
    make_small_config,
    shared_folder,
    train_to_end,
    write_copy_files,
    write_digit_files,
    write_pairs,
)

import pellucid
from pellucid.config.settings import Config, DataConfig
from pellucid.config.task_settings import pair_ngram_notes, uses_pair_ngram
from pellucid.config.toml import build_config
from pellucid.data.examples import Example, read_examples
from pellucid.decoding.transducer import Transducer, require_transducer
from pellucid.errors import RunError
from pellucid.export import onnx_export
from pellucid.pair_ngram import model as pair_ngram_model
from pellucid.pair_ngram.predictor import fit_encoded_examples
from pellucid.reporting.progress import pair_ngram_line, training_progress
from pellucid.run_folder import predictor_loader, run_parts
from pellucid.run_folder.identity import read_identity
from pellucid.run_folder.lock import lock_run_folder
from pellucid.run_folder.log import load_run_log, read_log
from pellucid.run_folder.pair_ngram_file import SavedPairNgram, load_pair_ngram
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.provisional_weight import provisional_weight
from pellucid.run_folder.run_files import PAIR_NGRAM
from pellucid.run_folder.unfinished_training import find_unfinished
from pellucid.runtime.loader import load as load_runtime
from pellucid.runtime.run_reader import read_run
from pellucid.training import model_card, pair_ngram_training, run_folder_writer, session, validation_sample
from pellucid.training.events import (
    ConfidenceFitted,
    FileSaved,
    ModelBuilt,
    PairNgramFitted,
    PairNgramWeighted,
    TrainingStopped,
    ValidationCompleted,
)
from pellucid.training.pair_ngram_training import PairNgramWithWeight, choose_pair_ngram_weight
from pellucid.training.session import train_run
from pellucid.training.training_state import TrainingState

CONFIG = make_small_config({"epochs": 2, "pair_ngram": True})


@pytest.fixture(scope="module")
def files() -> DataFiles:
    return write_copy_files(shared_folder() / "with-pair-ngram")


@pytest.fixture(scope="module")
def finished(files: DataFiles) -> Path:
    """Return the folder of a finished run, whose network has hardly learned."""
    folder = shared_folder() / "with-pair-ngram" / "run"
    events = train_to_end(files, folder, CONFIG)
    kinds = [type(event) for event in events]
    assert kinds.count(PairNgramFitted) == kinds.count(PairNgramWeighted) == 1
    assert kinds.index(PairNgramFitted) < kinds.index(PairNgramWeighted) < kinds.index(TrainingStopped)
    return folder


def test_the_end_of_a_training_reads_each_model_once(
    files: DataFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: the network was read twice and the pair n-gram model four times."""
    read = list[str]()

    def count(module: ModuleType, name: str) -> None:
        """Record the calls of a function."""
        function = getattr(module, name)

        def call(*arguments: Any) -> Any:  # noqa: ANN401 (any arguments)
            read.append(name)
            return function(*arguments)

        monkeypatch.setattr(module, name, call)

    count(predictor_loader, "load_parameters")
    for module in (run_parts, pair_ngram_training):
        count(module, "load_pair_ngram")
    events = train_to_end(files, tmp_path / "run", make_small_config({"epochs": 1, "pair_ngram": True}))
    kinds = [type(event) for event in events]
    assert kinds.count(PairNgramWeighted) == kinds.count(ConfidenceFitted) == 1
    # The training itself reads the pair n-gram model that it has written, and loads a predictor with it.
    assert sorted(read) == ["load_pair_ngram", "load_pair_ngram", "load_parameters"]


def test_log_card_and_predictor_have_the_weight(finished: Path) -> None:
    records = {record["event"]: record for record in read_log(finished)}
    weighted = records["interpolated"]
    predictor = load(finished)
    assert isinstance(predictor, Transducer) and predictor.pair_ngram_weight == weighted["weight"] > 0
    assert weighted["exact_match"] >= weighted["pair_ngram_exact_match"] > weighted["network_exact_match"]
    assert records["pair_ngram"]["examples"] == 40 and records["pair_ngram"]["exact_match"] == 100
    assert f"has the weight {weighted['weight']:g} in predictions" in (finished / "card.md").read_text("utf-8")
    assert [trace.output for trace in predictor.predict(["dab", "c"])] == ["dab", "c"]


def test_the_weight_is_chosen_with_a_search_that_ranks_by_both(finished: Path, files: DataFiles) -> None:
    """Regression test: with other search settings the weight was 0, which predictions with these settings keep."""
    predictor, weight = require_transducer(load(finished), "run"), load_saved(finished).weight
    assert predictor.pair_ngram is not None
    validation = read_examples(files.valid, DataConfig()).examples
    expected = choose_pair_ngram_weight(predictor, predictor.pair_ngram, validation)
    assert expected.weight == weight
    for search in ({"pair_ngram": False}, {"length_normalization": "average"}, {"coverage_penalty": 0.2}):
        changed = predictor.with_search(search)
        chosen = choose_pair_ngram_weight(changed, predictor.pair_ngram, validation)
        assert chosen == expected._replace(in_predictions=False)
        assert not changed.pair_ngram_weight and expected.in_predictions
        assert pair_ngram_line(chosen) == f"{pair_ngram_line(expected)}; the search settings of this run do not use it"


@pytest.mark.parametrize(
    "search", [{}, {"pair_ngram": False}, {"length_normalization": "average"}, {"coverage_penalty": 0.2}]
)
def test_card_export_and_evaluation_say_whether_the_search_uses_the_weight(
    finished: Path, files: DataFiles, search: dict[str, Any]
) -> None:
    """Regression test: they named the weight with search settings by which the network alone ranks."""
    predictor, run = require_transducer(load(finished), "run").with_search(search), read_run(finished)
    config, is_used = predictor.config, not search
    assert bool(predictor.pair_ngram_weight) == is_used
    assert bool(onnx_export.pair_ngram_weight(replace(run, config=config))) == is_used
    provenance = pellucid.evaluate(predictor, files.valid).provenance
    assert provenance is not None and provenance.search is not None and provenance.search["pair_ngram"] == is_used
    text = "\n".join(model_card._pair_ngram_scores(load_run_log(finished), config))
    assert (" in predictions. Its own outputs, without the network, have an exact match of " in text) == is_used
    assert ("which predictions with the search settings of this run do not use. Its own " in text) != is_used


def test_a_validation_set_of_empty_sources_has_no_scores(finished: Path) -> None:
    """Regression test: 100 % of no sources were right."""
    predictor = require_transducer(load(finished), "run")
    assert predictor.pair_ngram is not None
    weighted = choose_pair_ngram_weight(predictor, predictor.pair_ngram, [Example("", "a")])
    assert weighted.weight == weighted.num_sources == weighted.exact_match == 0
    assert pair_ngram_line(weighted) == "pair n-gram: weight 0, since no validation source has a symbol"
    assert pair_ngram_line(PairNgramFitted(40, 40, 0.0, 0)) == "pair n-gram: fitted to 40 examples"


def test_validation_sources_with_unknown_symbols_are_counted(files: DataFiles, tmp_path: Path) -> None:
    """Regression test: the model skips such a symbol, and the line of its exact match did not say so."""
    valid = write_pairs(tmp_path / "dev.tsv", [Example("ab", "ab"), Example("az", "a"), Example("c", "c")])
    events = train_to_end(DataFiles(files.train, valid), tmp_path / "run", CONFIG)
    (fitted,) = (event for event in events if isinstance(event, PairNgramFitted))
    assert (fitted.num_sources, fitted.num_uncovered) == (3, 1)
    line = "on 3 validation sources without the network; it cannot read all symbols of 1 of them"
    assert pair_ngram_line(fitted).endswith(line)
    assert "cannot read" not in pair_ngram_line(fitted._replace(num_uncovered=0))


def test_the_line_does_not_say_more_than_the_choice() -> None:
    line = pair_ngram_line(PairNgramWeighted(0.0, 98.0, 98.0, 90.0, 100))
    assert line == (
        "pair n-gram: no weight above 0 is chosen on 100 different validation sources: exact match 98.00 % by the "
        "network alone, 90.00 % if the pair n-gram model alone ranks the outputs of both"
    )
    rough = [pair_ngram_line(PairNgramWeighted(0.6, 98.0, 97.0, 90.0, sources)) for sources in (49, 50)]
    note = "; the weight is a rough choice, because these sources are few"
    assert [line.endswith(note) for line in rough] == [True, False]


@pytest.mark.parametrize(
    ("module", "limit", "reason"),
    [
        (pair_ngram_model, "MAX_CHUNK_GRAPHONES", "the symbols are too many or too varied"),
        (pair_ngram_training, "MAX_CELLS", "every example is too long for it"),
    ],
)
def test_a_model_that_cannot_be_fitted_is_reported_and_not_fitted_again(
    files: DataFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str, reason: str
) -> None:
    """Regression test: it was fitted before the training, after it and at each repetition, without a line."""
    calls, states = list[int](), list[TrainingState]()
    fit, open_training = fit_encoded_examples, session._open_training

    def count_fits(*arguments: Any) -> object:  # noqa: ANN401 (any arguments)
        calls.append(1)
        return fit(*arguments)

    def keep_state(*arguments: Any) -> Any:  # noqa: ANN401 (any arguments)
        opened = open_training(*arguments)
        states.append(opened[0])
        return opened

    monkeypatch.setattr(module, limit, 0)
    monkeypatch.setattr(pair_ngram_training, "fit_encoded_examples", count_fits)
    monkeypatch.setattr(session, "_open_training", keep_state)
    config = make_small_config({"epochs": 1, "pair_ngram": True})
    events = [train_to_end(files, tmp_path / "run", config) for _ in range(2)]
    fitted = [event for event in events[0] if isinstance(event, PairNgramFitted)]
    assert fitted == [PairNgramFitted(0, 40, 0.0, 0, are_all_too_long=module is pair_ngram_training)]
    assert pair_ngram_line(fitted[0]).startswith(f"pair n-gram: no model, since {reason}")
    assert not any(isinstance(event, PairNgramFitted | PairNgramWeighted) for event in events[1])
    assert [record["examples"] for record in read_log(tmp_path / "run") if record["event"] == "pair_ngram"] == [0]
    assert len(calls) == 1 and not (tmp_path / "run" / PAIR_NGRAM).exists()
    assert [state.has_pair_ngram for state in states] == [False, False]
    assert load(tmp_path / "run").pair_ngram_weight == 0


def load_saved(run: Path) -> SavedPairNgram:
    """Return the pair n-gram model of a run with its weight."""
    return load_pair_ngram(run / PAIR_NGRAM, load(run).vocabularies)


def test_an_unfinished_run_predicts_with_the_provisional_weight(
    finished: Path, files: DataFiles, tmp_path: Path
) -> None:
    """It predicted by the network alone. The finished run is that of an uninterrupted training."""
    folder = tmp_path / "run"
    events = train_run(files, folder, CONFIG)
    next(event for event in events if isinstance(event, FileSaved) and event.is_best_model)
    events.close()
    weight = provisional_weight(read_identity(folder), load_run_log(folder))
    with pytest.warns(UserWarning, match=f"until its end, the weight of the pair n-gram model is {weight:g}"):
        predictor = require_transducer(load(folder), "run")
    assert predictor.pair_ngram_weight == weight > 0.5 and predictor.confidence is None
    with pytest.warns(UserWarning, match=f"the weight of the pair n-gram model is {weight:g}"):
        in_numpy = load_runtime(folder)
    assert in_numpy.pair_ngram_weight == weight
    outputs = [trace.output for trace in predictor.predict(["dab", "c"])]
    assert outputs == [trace.output for trace in in_numpy.predict(["dab", "c"])] == ["dab", "c"]
    assert onnx_export.pair_ngram_weight(read_run(folder)) == weight
    with pytest.warns(UserWarning, match="the training is unfinished"):
        joined = load([folder, finished])
    chosen = load_saved(finished).weight
    assert chosen is not None and joined.pair_ngram_weight == pytest.approx((weight + chosen) / 2)
    pellucid.save(predictor, tmp_path / "copy")
    assert load(tmp_path / "copy").pair_ngram_weight == weight
    train_to_end(files, folder, CONFIG)
    assert_runs_identical(folder, finished)
    assert load(folder).pair_ngram_weight == chosen


def test_a_training_that_ended_before_the_choice_of_the_weight_is_completed(
    finished: Path, files: DataFiles, tmp_path: Path
) -> None:
    """Regression test: it counted as finished, and its outputs were ranked with the weight 0.5 without a message."""
    folder = tmp_path / "run"
    events = train_run(files, folder, CONFIG)
    for event in events:
        if isinstance(event, ValidationCompleted) and event.progress.is_finished:
            break
    events.close()
    (unfinished,) = find_unfinished(folder)
    assert unfinished.made_all_updates and unfinished.update == unfinished.max_updates == 10
    weight = provisional_weight(read_identity(folder), load_run_log(folder))
    message = (
        f"{folder}: the weight of the pair n-gram model is not chosen yet, and is {weight:g} until then; the training "
        "command chooses it"
    )
    for load_run in (load, load_runtime):
        with pytest.warns(UserWarning) as caught:
            assert load_run(folder).pair_ngram_weight == weight
        assert [str(warning.message) for warning in caught] == [message]
    with lock_run_folder(folder):
        (running,) = find_unfinished(folder)
    assert str(running).endswith(f"is {weight:g} until then; the training still runs")
    lines = tmp_path / "lines.txt"
    with lines.open("w", encoding="utf-8") as stream, training_progress(stream) as reporter:
        for event in train_run(files, folder, CONFIG):
            reporter.report(event)
    text = lines.read_text("utf-8")
    assert "pair n-gram: weight 0." in text and "nothing to do" not in text
    assert_runs_identical(folder, finished)
    assert find_unfinished(folder) == []


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_commands_without_the_pair_ngram_model_need_no_file_of_it(
    finished: Path, files: DataFiles, tmp_path: Path, damage: str
) -> None:
    """Regression test: they were refused."""
    folder = copy_run_folder(finished, tmp_path / "run")
    alone = ("--no-pair-ngram",)
    commands = [
        ("predict", files.valid, *alone),
        ("predict", files.valid, "--sample", "1"),
        ("score", files.valid),
        ("evaluate", files.valid, "--json", *alone),
    ]
    expected = [run_pellucid(name, folder, *arguments) for name, *arguments in commands]
    assert all(result.code == 0 and "left out" not in result.err for result in expected)
    if damage == "missing":
        (folder / PAIR_NGRAM).unlink()
    else:
        (folder / PAIR_NGRAM).write_bytes((folder / PAIR_NGRAM).read_bytes()[:-9])
    for (name, *arguments), before in zip(commands, expected, strict=True):
        result = run_pellucid(name, folder, *arguments)
        warning = f"pellucid: the pair n-gram model is left out, and not needed here: {folder / PAIR_NGRAM}"
        assert result.code == 0 and result.err.count(warning) == 1, result
        if name == "evaluate":
            values, former = json.loads(result.out), json.loads(before.out)
            assert values["exact_match"] == former["exact_match"]
            assert values["pair_ngram"] is None and former["pair_ngram"] is not None
        else:
            assert result.out == before.out
    for name in ("predict", "evaluate"):
        result = run_pellucid(name, folder, files.valid)
        assert result.code == 2 and str(folder / PAIR_NGRAM) in result.err, result
    with pytest.warns(UserWarning, match="the pair n-gram model is left out"):
        assert load_runtime([folder, finished], needs_pair_ngram=False).pair_ngram is not None


@pytest.mark.parametrize("damage", ["missing", "damaged", "foreign"])
def test_the_training_command_restores_the_file(finished: Path, files: DataFiles, tmp_path: Path, damage: str) -> None:
    folder = copy_run_folder(finished, tmp_path / "run")
    if damage == "missing":
        (folder / PAIR_NGRAM).unlink()
        with pytest.raises(RunError, match=f"{PAIR_NGRAM} is missing: restore the file, or run the training command"):
            load(folder)
    elif damage == "damaged":
        (folder / PAIR_NGRAM).write_bytes((folder / PAIR_NGRAM).read_bytes()[:-9])
        with pytest.raises(RunError, match=PAIR_NGRAM):
            load(folder)
    else:
        other = make_small_config({"epochs": 1, "pair_ngram": True})
        train_to_end(files, tmp_path / "other", other)
        (folder / PAIR_NGRAM).write_bytes((tmp_path / "other" / PAIR_NGRAM).read_bytes())
    train_to_end(files, folder, CONFIG)
    assert_runs_identical(folder, finished)


def test_without_the_setting_nothing_is_fitted(files: DataFiles, tmp_path: Path) -> None:
    train_to_end(files, tmp_path / "run", make_small_config({"epochs": 1}))
    assert not (tmp_path / "run" / PAIR_NGRAM).exists()
    assert not {"pair_ngram", "interpolated"} & {record["event"] for record in read_log(tmp_path / "run")}


@pytest.mark.slow
def test_the_network_alone_is_kept_where_it_is_as_good(tmp_path: Path) -> None:
    """The network writes all targets without fault."""
    files = write_digit_files(tmp_path / "data", num_training=80, max_digits=1)
    write_pairs(files.valid, [Example("one", "1"), Example("two", "2"), Example("nine", "9")])
    config = build_config({"size": "tiny", "training": {"epochs": 60, "batch_size": 8, "learning_rate": 0.02}}, "test")
    train_to_end(files, tmp_path / "run", config)
    weighted = next(record for record in read_log(tmp_path / "run") if record["event"] == "interpolated")
    assert weighted["network_exact_match"] == weighted["exact_match"] == 100 and weighted["weight"] == 0
    assert load(tmp_path / "run").pair_ngram_weight == 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"training": {"pair_ngram": False}}, False),
        ({"data": {"features_column": "3"}}, False),
        ({"decoder": {"pointer_generator": True}}, False),
        ({"task": "tag"}, False),
    ],
)
def test_only_sequences_without_features_have_a_pair_ngram_model(settings: dict[str, object], expected: bool) -> None:
    config: Config = build_config({"size": "tiny", **settings}, origin="test")
    assert uses_pair_ngram(config) == expected


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"data": {"features_column": "3"}}, "it does not read features (data.features_column)"),
        ({"decoder": {"pointer_generator": True}}, "it cannot copy source symbols (decoder.pointer_generator)"),
        ({"data": {"features_column": "3"}, "training": {"pair_ngram": False}}, ""),
        ({"data": {"context_words": 1}}, ""),
        ({"task": "tag"}, ""),
        ({}, ""),
    ],
)
def test_a_setting_that_excludes_the_pair_ngram_model_is_named(settings: dict[str, object], reason: str) -> None:
    """Regression test: the pair n-gram model was left out without a message."""
    config: Config = build_config({"size": "tiny", **settings}, origin="test")
    note = f"no pair n-gram model is fitted, because {reason}: the network ranks its outputs alone"
    assert pair_ngram_notes(config) == ([note] if reason else [])


def test_a_training_with_features_says_that_it_has_no_pair_ngram_model(tmp_path: Path) -> None:
    examples = [example._replace(features="N") for example in make_copy_examples(20, seed=1)]
    files = DataFiles(write_pairs(tmp_path / "train.tsv", examples), write_pairs(tmp_path / "dev.tsv", examples[:5]))
    config = make_small_config({"epochs": 1, "pair_ngram": True}, data={"features_column": "3"})
    (note,) = pair_ngram_notes(config)
    for is_finished in (False, True):
        built = next(event for event in train_run(files, tmp_path / "run", config) if isinstance(event, ModelBuilt))
        assert (note in built.warnings) == (not is_finished)
        train_to_end(files, tmp_path / "run", config)


def test_a_time_limit_bounds_the_examples_and_the_sources_that_decide(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With little time, the model is fitted to some of the examples, and few validation sources decide its weight."""
    files = write_copy_files(tmp_path, num_training=40, num_validation=2000)
    num_sources = len({example.source for example in read_examples(files.valid, DataConfig()).examples})
    events = train_to_end(files, tmp_path / "unlimited", CONFIG)
    (fitted,) = (event for event in events if isinstance(event, PairNgramFitted))
    (weighted,) = (event for event in events if isinstance(event, PairNgramWeighted))
    assert fitted.num_examples == 40 and weighted.num_sources == num_sources
    monkeypatch.setattr(pair_ngram_training, "CELLS_PER_SECOND", 20)
    monkeypatch.setattr(validation_sample, "BLOCK_SIZE", 10)
    config = make_small_config({"epochs": 2, "pair_ngram": True, "time_limit": "30s"})
    clock = SimpleNamespace(monotonic=iter(range(0, 10**6, 20)).__next__)
    monkeypatch.setattr(validation_sample, "time", clock)
    limits, weigh = list[float](), pair_ngram_training.weight_pair_ngram

    def weigh_in_time(*arguments: Any) -> PairNgramWithWeight:  # noqa: ANN401
        """Record the time limit."""
        limits.append(arguments[-1])
        return weigh(*arguments)

    monkeypatch.setattr(run_folder_writer, "weight_pair_ngram", weigh_in_time)
    events = train_to_end(files, tmp_path / "limited", config)
    assert 0 < limits[0] <= 15, "half of the time is left for the confidence"
    (fitted,) = (event for event in events if isinstance(event, PairNgramFitted))
    (weighted,) = (event for event in events if isinstance(event, PairNgramWeighted))
    assert 0 < fitted.num_examples < 40 and fitted.num_available == 40 and weighted.num_sources in (10, 20)


def test_the_weight_depends_on_symbols_not_on_texts(tmp_path: Path) -> None:
    """Regression test: targets with other white space or in another normal form were never right."""
    names = str.maketrans({"a": "é ", "b": "è ", "c": "ô ", "d": "ñ "})
    examples = [Example(pair.source, pair.target.translate(names)) for pair in make_copy_examples(50, seed=1)]
    data = {"target_symbols": "words", "target_normalization": "nfc"}
    config = make_small_config({"epochs": 1, "pair_ngram": True}, data=data)
    decided = []
    for form in ("NFC", "NFD"):
        texts = (unicodedata.normalize(form, pair.target) for pair in examples[40:])
        validation = [Example(pair.source, text) for pair, text in zip(examples[40:], texts, strict=True)]
        folder = tmp_path / form
        folder.mkdir()
        if form == "NFC":
            validation = [Example(source, target.strip()) for source, target, *_ in validation]
        files = DataFiles(write_pairs(folder / "train.tsv", examples[:40]), write_pairs(folder / "dev.tsv", validation))
        events = train_to_end(files, folder / "run", config)
        decided.append([event for event in events if isinstance(event, PairNgramFitted | PairNgramWeighted)])
    (fitted, weighted), other = decided
    assert isinstance(fitted, PairNgramFitted) and fitted.exact_match == 100
    assert isinstance(weighted, PairNgramWeighted) and weighted.weight > 0 and weighted.exact_match == 100
    assert other == [fitted, weighted]
