"""training/ensemble_fitting.py: the weight of the pair n-gram model of an ensemble, and its confidence."""

import json
import os
import warnings
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from trained_runs import (
    DataFiles,
    copy_run_folder,
    fit_folder,
    make_small_config,
    read_folder_state,
    shared_folder,
    train_to_end,
    write_copy_files,
)

from pellucid.config.settings import Config
from pellucid.data.examples import read_examples
from pellucid.data.validation_split import format_validation_file
from pellucid.decoding.pair_ngram_interpolation import WEIGHTS
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import RunError
from pellucid.files import digest_file, write_json
from pellucid.run_folder.confidence_file import load_confidence
from pellucid.run_folder.pair_ngram_file import load_pair_ngram, save_pair_ngram
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.run_files import (
    CONFIDENCE,
    ENSEMBLE,
    PAIR_NGRAM,
    VALIDATION,
    EnsembleRecord,
    read_ensemble_record,
)
from pellucid.runtime.loader import load as load_runtime
from pellucid.training import ensemble_fitting
from pellucid.training.events import ConfidenceFitted, PairNgramWeighted
from pellucid.training.preparation import prepare_data
from pellucid.training.training_data import TrainingFiles, read_validation_examples

CONFIG = make_small_config({"epochs": 3, "pair_ngram": True})
NAMES = ("seed-1", "seed-2")


@pytest.fixture(scope="module")
def files() -> DataFiles:
    return write_copy_files(shared_folder() / "fitted-ensemble")


@pytest.fixture(scope="module")
def fitted(files: DataFiles) -> Path:
    """Return the folder of an ensemble of two that has been fitted."""
    folder: Path = shared_folder() / "fitted-ensemble" / "run"
    train_members(folder, files, CONFIG)
    kinds = [type(event) for event in fit_folder(TrainingFiles(files.train, files.valid), folder, CONFIG)]
    assert kinds == [PairNgramWeighted, ConfidenceFitted]
    return folder


def train_members(folder: Path, files: TrainingFiles, config: Config) -> None:
    for seed, name in enumerate(NAMES, start=1):
        train_to_end(files, folder / name, msgspec.structs.replace(config, seed=seed))
    write_json(folder / ENSEMBLE, EnsembleRecord(NAMES))


@pytest.mark.slow
def test_the_weight_is_the_best_for_the_ensemble_and_predictions_use_it(fitted: Path, files: DataFiles) -> None:
    ensemble, members = load(fitted), [fitted / name for name in NAMES]
    joined = require_transducer(load(members), "joined")
    assert joined.pair_ngram is not None
    validation = read_examples(files.valid, joined.config.data).examples
    right = {}
    for weight in WEIGHTS:
        predictor = replace(joined, pair_ngram=joined.pair_ngram._replace(weight=weight) if weight else None)
        outputs = predictor.predict_examples(validation)
        right[weight] = sum(trace.output == example.target for trace, example in zip(outputs, validation, strict=True))
    assert ensemble.pair_ngram_weight == read_ensemble_record(fitted / ENSEMBLE).pair_ngram_weight
    assert right[ensemble.pair_ngram_weight] >= max(right.values()) - 1  # the choice is a mean over neighbors
    assert joined.pair_ngram_weight == sum(load(member).pair_ngram_weight for member in members) / 2


def set_own_weight(run: Path, weight: float) -> None:
    """Write another weight of the pair n-gram model of a run."""
    saved = load_pair_ngram(run / PAIR_NGRAM, load(run).vocabularies)
    save_pair_ngram(run / PAIR_NGRAM, saved._replace(weight=weight))


def test_members_without_a_weight_of_their_own_have_a_model_for_the_ensemble(
    fitted: Path, files: DataFiles, tmp_path: Path
) -> None:
    """Regression test: only the model of the first member was used, and only if its own weight was above 0."""
    folder = copy_run_folder(fitted, tmp_path / "run")
    members = [folder / name for name in NAMES]
    set_own_weight(members[0], 0.0)
    set_own_weight(members[1], 0.4)
    assert load(members).pair_ngram_weight == load(members[::-1]).pair_ngram_weight == 0.2
    assert load_runtime(members).pair_ngram_weight == load_runtime(members[::-1]).pair_ngram_weight == 0.2
    set_own_weight(members[1], 0.0)
    assert load(members).pair_ngram_weight == load_runtime(members).pair_ngram_weight == 0
    write_json(folder / ENSEMBLE, EnsembleRecord(NAMES))
    events = fit_folder(TrainingFiles(files.train, files.valid), folder, CONFIG)
    assert [type(event) for event in events] == [PairNgramWeighted, ConfidenceFitted]
    expected = load(fitted).pair_ngram_weight
    assert load(folder).pair_ngram_weight == load_runtime(folder).pair_ngram_weight == expected > 0


def test_an_ensemble_without_a_chosen_weight_is_named(fitted: Path, tmp_path: Path) -> None:
    """Regression test: outputs were ranked with the mean of the members' weights without a message."""
    folder = copy_run_folder(fitted, tmp_path / "run")
    write_json(folder / ENSEMBLE, EnsembleRecord(NAMES))
    for load_run in (load, load_runtime):
        with pytest.warns(UserWarning) as caught:
            assert load_run(folder).pair_ngram_weight > 0
        (warning,) = caught
        assert str(warning.message).startswith(
            f"{folder}: the weight of the pair n-gram model of the ensemble is not chosen yet, and is the mean of its "
            "members' weights until then"
        )


def test_outputs_of_the_ensemble_have_the_fitted_confidence(fitted: Path) -> None:
    ensemble, joined = load(fitted), load([fitted / name for name in NAMES])
    assert ensemble.confidence == load_confidence(fitted / CONFIDENCE).model
    assert all(trace.confidence is not None for trace in ensemble.predict(["abc", "d"]))
    assert ensemble.no_confidence_reason() == ""
    assert joined.predict(["abc"])[0].confidence is None
    assert "train --ensemble fits one" in joined.no_confidence_reason()


def test_a_fitted_ensemble_is_unchanged(fitted: Path, files: DataFiles) -> None:
    before = read_folder_state(fitted)
    assert fit_folder(TrainingFiles(files.train, files.valid), fitted, CONFIG) == []
    assert read_folder_state(fitted) == before


@pytest.mark.parametrize("name", ["read_validation_examples", "_choose_weight", "fit_predictor_confidence"])
def test_an_ensemble_that_is_replaced_during_the_fit_is_left_alone(
    fitted: Path, files: DataFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Regression test: weight and confidence were written into the folder at the path."""
    folder, moved = copy_run_folder(fitted, tmp_path / "run"), tmp_path / "moved"
    write_json(folder / ENSEMBLE, EnsembleRecord(NAMES))
    (folder / CONFIDENCE).unlink()
    function = getattr(ensemble_fitting, name)

    def work_and_replace(*arguments: object) -> object:
        result = function(*arguments)
        folder.rename(moved)
        copy_run_folder(moved, folder)
        return result

    monkeypatch.setattr(ensemble_fitting, name, work_and_replace)
    with pytest.raises(RunError, match=r"run was removed, moved or replaced during training; nothing more is written"):
        fit_folder(files, folder, CONFIG)
    assert read_folder_state(folder) == read_folder_state(moved)


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_lost_confidence_is_fitted_again(fitted: Path, files: DataFiles, tmp_path: Path, damage: str) -> None:
    folder = copy_run_folder(fitted, tmp_path / "run")
    content = (folder / CONFIDENCE).read_bytes()
    if damage == "missing":
        (folder / CONFIDENCE).unlink()
    else:
        (folder / CONFIDENCE).write_bytes(content[:-9])
    events = fit_folder(TrainingFiles(files.train, files.valid), folder, CONFIG)
    assert [type(event) for event in events] == [ConfidenceFitted]
    assert (folder / CONFIDENCE).read_bytes() == content


def test_an_ensemble_of_gpus_is_fitted_on_a_machine_without_one(
    fitted: Path, files: DataFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    folder = copy_run_folder(fitted, tmp_path / "run")
    write_json(folder / ENSEMBLE, EnsembleRecord(NAMES))
    (folder / CONFIDENCE).unlink()
    config = msgspec.structs.replace(CONFIG, device="cuda")
    events = fit_folder(TrainingFiles(files.train, files.valid), folder, config)
    assert [type(event) for event in events] == [PairNgramWeighted, ConfidenceFitted]


def test_a_replaced_member_gives_a_warning_and_a_new_fit(fitted: Path, files: DataFiles, tmp_path: Path) -> None:
    folder = copy_run_folder(fitted, tmp_path / "run")
    record = {**json.loads((folder / ENSEMBLE).read_text("utf-8")), "members": NAMES[::-1]}
    write_json(folder / ENSEMBLE, record)
    with pytest.warns(UserWarning, match="its members have changed since their training ended"):
        changed = load(folder)
    assert changed.confidence is None
    assert changed.pair_ngram_weight == load([folder / name for name in NAMES[::-1]]).pair_ngram_weight
    events = fit_folder(TrainingFiles(files.train, files.valid), folder, CONFIG)
    assert [type(event) for event in events] == [PairNgramWeighted, ConfidenceFitted]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(folder).confidence is not None


def test_an_ensemble_without_a_pair_ngram_model_reads_the_validation_set_that_was_held_out(tmp_path: Path) -> None:
    files, config = TrainingFiles(write_copy_files(tmp_path).train, None), make_small_config({"epochs": 1})
    train_members(tmp_path / "run", files, config)
    events = fit_folder(files, tmp_path / "run", config)
    held_out = (tmp_path / "run" / NAMES[0] / VALIDATION).read_text("utf-8").splitlines()
    assert [event.num_examples for event in events if isinstance(event, ConfidenceFitted)] == [len(held_out)]
    assert len(events) == 1 and load(tmp_path / "run").pair_ngram_weight == 0


@pytest.mark.parametrize("form", ["prepared data", "file of another format", "validation set of another run"])
def test_an_ensemble_reads_the_validation_set_of_its_members(fitted: Path, tmp_path: Path, form: str) -> None:
    """Regression test: all members were trained, and then the validation set was not found, or read as TSV."""
    files, config = write_copy_files(tmp_path), make_small_config({"epochs": 1})
    validation = read_examples(files.valid, config.data).examples
    if form == "prepared data":
        list(prepare_data(files, tmp_path / "prepared", config))
        given = TrainingFiles(tmp_path / "prepared", None)
    elif form == "file of another format":
        rows = [f"{example.source},{example.target}\n" for example in validation]
        (tmp_path / "dev.csv").write_text("".join(rows))
        given = TrainingFiles(files.train, tmp_path / "dev.csv")
    else:
        (copy_run_folder(fitted / NAMES[0], tmp_path / "other") / VALIDATION).write_bytes(
            format_validation_file(validation)
        )
        given = TrainingFiles(files.train, tmp_path / "other" / VALIDATION)
    train_members(tmp_path / "run", given, config)
    (event,) = fit_folder(given, tmp_path / "run", config)
    assert isinstance(event, ConfidenceFitted) and event.num_examples == len(validation)
    assert read_validation_examples(given, config.data, tmp_path / "run" / NAMES[0]) == validation


def test_a_changed_validation_set_is_refused(tmp_path: Path) -> None:
    """Regression test: the weight and the confidence were fitted to whatever the file held at the end."""
    files, config, folder = write_copy_files(tmp_path), make_small_config({"epochs": 1}), tmp_path / "run"
    train_members(folder, files, config)
    content = files.valid.read_text("utf-8")
    files.valid.write_text("".join(content.splitlines(keepends=True)[:-1]), "utf-8")
    with pytest.raises(RunError, match=r"dev\.tsv has changed since the members of .* were trained: restore"):
        fit_folder(files, folder, config)
    assert not (folder / CONFIDENCE).exists()
    files.valid.write_text(content, "utf-8")
    assert [type(event) for event in fit_folder(files, folder, config)] == [ConfidenceFitted]


def test_members_of_different_data_are_refused(tmp_path: Path) -> None:
    files, config, folder = write_copy_files(tmp_path), make_small_config({"epochs": 1}), tmp_path / "run"
    train_members(folder, files, config)
    log = folder / NAMES[1] / "log.jsonl"
    digest = digest_file(files.train)
    assert digest is not None
    log.write_text(log.read_text("utf-8").replace(digest.sha256, "0" * 64), "utf-8")
    with pytest.raises(RunError, match=rf"{NAMES[1]} was trained on another .*{files.train.name} than .*{NAMES[0]}"):
        fit_folder(files, folder, config)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist on POSIX systems only")
def test_a_pipe_in_place_of_the_validation_set_is_refused(fitted: Path, files: DataFiles, tmp_path: Path) -> None:
    folder = copy_run_folder(fitted, tmp_path / "run")
    held_out = folder / NAMES[0] / VALIDATION
    held_out.unlink(missing_ok=True)
    os.mkfifo(held_out)
    with pytest.raises(RunError, match=r"validation\.jsonl is a named pipe, not a regular file"):
        read_validation_examples(TrainingFiles(files.train, None), CONFIG.data, folder / NAMES[0])
