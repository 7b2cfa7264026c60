"""Files of two runs that were mixed by hand are refused by one message that names both; whole runs are loaded."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from trained_runs import (
    TrainedRun,
    assert_runs_identical,
    copy_run_folder,
    make_small_config,
    read_folder_state,
    train_to_end,
    write_copy_files,
    write_old_model,
)

from pellucid.config.toml import override_settings, to_toml
from pellucid.errors import RunError
from pellucid.run_folder import identity
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.predictor_loader import load, load_with_log
from pellucid.run_folder.run_files import load_run_config
from pellucid.run_folder.tensor_file import open_tensors
from pellucid.training.ensemble_training import plan_ensemble, train_ensemble
from pellucid.training.events import FileSaved, ModelBuilt, ValidationCompleted
from pellucid.training.session import train_run
from pellucid.training.snapshots import read_snapshots
from pellucid.version import __version__

TRAINING = {"epochs": 3, "learning_rate": 0.3, "pair_ngram": True, "eval_interval": 0.5, "snapshots": True}
OTHER_LETTERS = str.maketrans("abcd", "efgh")


def train_small_run(folder: Path, other: bool) -> TrainedRun:
    """Train a run; the other one has letters and a setting of its own, and files of exactly the same sizes."""
    files, config = write_copy_files(folder), make_small_config(TRAINING)
    for path in (files.train, files.valid) if other else ():
        path.write_text(path.read_text("utf-8").translate(OTHER_LETTERS), "utf-8")
    config = override_settings(config, {"encoder": {"merge": "sum" if other else "product"}})
    train_to_end(files, folder / "run", config)
    return TrainedRun(files, folder / "run", config)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainedRun, TrainedRun]:
    """Return two runs of equal sizes with different symbols and settings."""
    folder = tmp_path_factory.mktemp("runs")
    return train_small_run(folder / "one", False), train_small_run(folder / "other", True)


def predict_outputs(run: Path, sources: list[str]) -> list[str]:
    """Return the outputs of a run."""
    return [trace.output for trace in load(run).predict(sources)]


MIXED = {
    "config.toml": ("config.toml", "encoder.merge is 'sum', and 'product' in the model"),
    "vocabulary.json": ("vocabulary.json", "its symbols are not those of the model"),
    "model.safetensors": ("config.toml", "encoder.merge is 'product', and 'sum' in the model"),
    "pair_ngram.safetensors": ("pair_ngram.safetensors", "their trainings had other data or settings (fingerprint)"),
}
"""Each file of another run in a run folder: the file that does not fit the model, and the reason."""


@pytest.mark.parametrize("name", MIXED)
def test_a_file_of_another_run_is_refused(tmp_path: Path, runs: tuple[TrainedRun, TrainedRun], name: str) -> None:
    run = copy_run_folder(runs[0].run, tmp_path / "run")
    shutil.copy(runs[1].run / name, run / name)
    file, reason = MIXED[name]
    with pytest.raises(RunError) as caught:
        load(run)
    assert str(caught.value) == (
        f"{run / file} and {run / 'model.safetensors'} are not of the same run: {reason}; copy all files of the run "
        "folder from one run, or train the model again"
    )


def test_a_pair_ngram_model_beside_settings_without_one_is_refused(
    tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]
) -> None:
    run = copy_run_folder(runs[0].run, tmp_path / "run")
    text = (run / "config.toml").read_text("utf-8")
    before_search, _, search = text.rpartition("[search]")
    settings = before_search.replace("pair_ngram = true", "pair_ngram = false") + "[search]" + search
    (run / "config.toml").write_text(settings, "utf-8")
    with pytest.raises(RunError) as caught:
        load(run)
    assert str(caught.value) == (
        f"{run / 'config.toml'} and {run / 'pair_ngram.safetensors'} are not of the same run: training.pair_ngram is "
        "false (search.pair_ngram = false decodes without the file); copy all files of the run folder from one run, or "
        "train the model again"
    )
    (run / "pair_ngram.safetensors").unlink()
    assert getattr(load(run), "pair_ngram", None) is None


def test_a_training_without_a_pair_ngram_model_removes_that_of_an_earlier_attempt(
    tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(runs[0].run / "pair_ngram.safetensors", run)
    config = override_settings(load_run_config(runs[0].run), {"training": {"pair_ngram": False}})
    (run / "config.toml").write_text(to_toml(config), "utf-8")
    train_to_end(runs[0].files, run, config)
    train_to_end(runs[0].files, run, config)
    load(run)
    with pytest.raises(RunError, match="holds a run with a different configuration"):
        train_to_end(runs[0].files, run, runs[0].config)


@pytest.mark.parametrize("first", MIXED)
@pytest.mark.parametrize("second", MIXED)
def test_two_files_of_another_run_are_refused(
    tmp_path: Path, runs: tuple[TrainedRun, TrainedRun], first: str, second: str
) -> None:
    run = copy_run_folder(runs[0].run, tmp_path / "run")
    for name in (first, second):
        shutil.copy(runs[1].run / name, run / name)
    with pytest.raises(RunError, match=r"are not of the same run: .*; copy all files of the run folder from one run"):
        load(run)


def test_all_files_of_another_run_are_that_run(tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]) -> None:
    run = copy_run_folder(runs[0].run, tmp_path / "run")
    for name in (*MIXED, "confidence.json"):
        shutil.copy(runs[1].run / name, run / name)
    assert predict_outputs(run, ["ef"]) == predict_outputs(runs[1].run, ["ef"])


@pytest.mark.parametrize("name", ["config.toml", "vocabulary.json", "training.safetensors"])
def test_a_training_with_a_file_of_another_run_is_not_resumed(
    tmp_path: Path, runs: tuple[TrainedRun, TrainedRun], name: str
) -> None:
    run = copy_run_folder(runs[0].run, tmp_path / "run")
    shutil.copy(runs[1].run / name, run / name)
    with pytest.raises(RunError, match=r"different configuration|not the vocabulary|is of a training on other data"):
        train_to_end(runs[0].files, run, runs[0].config)


def interrupt_after_a_worse_validation(trained: TrainedRun, run: Path) -> None:
    """Stop a training after a validation that is not the best, so that the checkpoint does not hold the best model."""
    training = train_run(trained.files, run, trained.config)
    next(event for event in training if isinstance(event, ValidationCompleted) and not event.is_best)
    training.close()


def test_a_model_of_another_run_stops_a_resumed_training(tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]) -> None:
    interrupt_after_a_worse_validation(runs[0], tmp_path / "run")
    original = (tmp_path / "run" / "model.safetensors").read_bytes()
    shutil.copy(runs[1].run / "model.safetensors", tmp_path / "run")
    with pytest.raises(RunError, match=r"training\.safetensors and .*model\.safetensors are not of the same run: "):
        train_to_end(runs[0].files, tmp_path / "run", runs[0].config)
    (tmp_path / "run" / "model.safetensors").write_bytes(original)
    train_to_end(runs[0].files, tmp_path / "run", runs[0].config)
    assert_runs_identical(runs[0].run, tmp_path / "run")


@pytest.mark.slow
def test_a_model_of_an_earlier_validation_stops_a_resumed_training(tmp_path: Path) -> None:
    files, run = write_copy_files(tmp_path), tmp_path / "run"
    config = make_small_config({"epochs": 8, "learning_rate": 0.03, "eval_interval": 0.5})
    best_models: list[bytes] = []
    training = train_run(files, run, config)
    for event in training:
        if isinstance(event, FileSaved) and event.is_best_model:
            best_models.append((run / "model.safetensors").read_bytes())
        if isinstance(event, ValidationCompleted) and not event.is_best and len(best_models) > 1:
            training.close()
            break
    (run / "model.safetensors").write_bytes(best_models[-2])
    with pytest.raises(
        RunError, match=r"model\.safetensors is of update \d+, but the best validation in .* is of update"
    ):
        train_to_end(files, run, config)
    (run / "model.safetensors").write_bytes(best_models[-1])
    train_to_end(files, run, config)
    train_to_end(files, tmp_path / "uninterrupted", config)
    assert_runs_identical(tmp_path / "uninterrupted", run)


def test_a_pair_ngram_model_of_another_run_is_fitted_again(tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]) -> None:
    run = copy_run_folder(runs[0].run, tmp_path / "run")
    shutil.copy(runs[1].run / "pair_ngram.safetensors", run)
    train_to_end(runs[0].files, run, runs[0].config)
    assert (run / "pair_ngram.safetensors").read_bytes() == (runs[0].run / "pair_ngram.safetensors").read_bytes()


@pytest.mark.slow
def test_a_run_of_an_earlier_version_is_loaded_and_resumed(tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]) -> None:
    run = copy_run_folder(runs[0].run, tmp_path / "run")
    expected = predict_outputs(run, ["ab", "c"])
    write_old_model(run)
    assert predict_outputs(run, ["ab", "c"]) == expected
    train_to_end(runs[0].files, run, runs[0].config)
    interrupt_after_a_worse_validation(runs[0], tmp_path / "old")
    write_old_model(tmp_path / "old")
    train_to_end(runs[0].files, tmp_path / "old", runs[0].config)
    assert predict_outputs(tmp_path / "old", ["ab", "c"]) == expected


def test_a_copied_and_moved_run_is_loaded(tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]) -> None:
    run = copy_run_folder(runs[0].run, tmp_path / "copy")
    run = run.rename(tmp_path / "moved")
    vocabulary = run / "vocabulary.json"
    vocabulary.write_text(json.dumps(json.loads(vocabulary.read_text("utf-8"))), "utf-8")  # another layout
    assert predict_outputs(run, ["ab"]) == predict_outputs(runs[0].run, ["ab"])


@pytest.mark.parametrize(
    "changes",
    [
        {"beam_size": "3", "threads": "2", "seed": "9", "epochs": "77.0"},
        {"source_column": '"text"', "on_bad_line": '"skip"', "dropout": "0.3", "max_sequence_length": "50"},
    ],
)
def test_settings_that_do_not_shape_the_model_may_be_edited(
    tmp_path: Path, runs: tuple[TrainedRun, TrainedRun], changes: Mapping[str, str]
) -> None:
    run = copy_run_folder(runs[0].run, tmp_path / "run")
    text = (run / "config.toml").read_text("utf-8")
    for name, value in changes.items():
        changed = re.sub(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
        assert changed != text
        text = changed
    (run / "config.toml").write_text(text, "utf-8")
    load(run)


def test_a_changed_identity_is_damage(tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]) -> None:
    """The checksum of the model file includes the identity, so that it cannot be removed or replaced alone."""
    run = copy_run_folder(runs[0].run, tmp_path / "run")
    path = run / "model.safetensors"
    content = path.read_bytes()
    with open_tensors(path) as stored:
        fingerprint = stored.metadata["fingerprint"]
    path.write_bytes(content.replace(fingerprint.encode(), b"0" * 64, 1))
    with pytest.raises(RunError, match=r"model\.safetensors is damaged: its content does not match its checksum"):
        load(run)
    path.write_bytes(content.replace(b'"settings":"{', b'"settings":"[', 1))
    with pytest.raises(RunError, match=r"model\.safetensors is damaged: settings in its header: .*; restore the file"):
        load(run)


def test_the_log_and_the_snapshots_of_another_run_are_refused(
    tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]
) -> None:
    run = copy_run_folder(runs[0].run, tmp_path / "run")
    shutil.copy(runs[1].run / "log.jsonl", run / "log.jsonl")
    log = (run / "log.jsonl").read_bytes()
    expected = (
        r"log\.jsonl is of a training with other data or settings \(fingerprint\); restore the file .*, or remove it"
    )
    with pytest.raises(RunError, match=expected):
        train_to_end(runs[0].files, run, runs[0].config)
    with pytest.raises(RunError, match=expected):
        load_with_log(run, "cpu", load_run_log(run))
    assert (run / "log.jsonl").read_bytes() == log
    shutil.copy(runs[0].run / "log.jsonl", run / "log.jsonl")
    for path in sorted((run / "snapshots").iterdir()):
        shutil.copy(runs[1].run / "snapshots" / path.name, path)
    expected = (
        r"snapshots.*\.safetensors is of a training with other data or settings \(fingerprint\); remove this file"
    )
    with pytest.raises(RunError, match=expected):
        read_snapshots(run)
    with pytest.raises(RunError, match=expected):
        train_to_end(runs[0].files, run, runs[0].config)


def test_a_member_of_an_ensemble_that_is_a_link_is_refused(tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]) -> None:
    """A training writes only into its own folder."""
    other = copy_run_folder(runs[0].run, tmp_path / "other")
    state = read_folder_state(other)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "seed-2").symlink_to(other, target_is_directory=True)
    jobs = plan_ensemble(runs[0].files, tmp_path / "runs", runs[0].config, 2)
    with pytest.raises(RunError, match=r"seed-2 is a symbolic link, and a training writes only into its own folder"):
        list(train_ensemble(jobs, tmp_path / "runs", 1))
    assert read_folder_state(other) == state


@pytest.mark.slow
def test_members_of_an_ensemble_are_checked_one_by_one(tmp_path: Path, runs: tuple[TrainedRun, TrainedRun]) -> None:
    jobs = plan_ensemble(runs[0].files, tmp_path / "runs", runs[0].config, 2)
    for _ in train_ensemble(jobs, tmp_path / "runs", 1):
        pass
    expected = predict_outputs(tmp_path / "runs", ["ab"])
    moved = (tmp_path / "runs").rename(tmp_path / "moved")
    assert predict_outputs(moved, ["ab"]) == expected
    shutil.copy(runs[1].run / "vocabulary.json", moved / "seed-2")
    with pytest.raises(RunError, match=r"seed-2.vocabulary\.json and .*seed-2.model\.safetensors are not of the same "):
        load(moved)


def test_a_run_of_another_version_is_loaded_with_one_warning(
    runs: tuple[TrainedRun, TrainedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs[0].run
    with open_tensors(run / "model.safetensors") as stored:
        assert json.loads(stored.metadata["versions"]) == {"pellucid": __version__}
    load(run)  # of the same version: warnings are errors
    monkeypatch.setattr(identity, "__version__", "9.8")
    both = f"with 'pellucid {__version__}', and is used with 'pellucid 9.8'"
    for path, note in ((run, ""), ([run, run, run], "")):
        with pytest.warns(UserWarning) as caught:
            load(path)
        assert [str(warning.message) for warning in caught] == [f"{run} was trained {both}{note}: outputs may differ"]
    with pytest.warns(UserWarning, match="was trained"):
        load_with_log(run, "cpu", load_run_log(run))


def test_members_of_another_version_are_named_in_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, config = write_copy_files(tmp_path), make_small_config({"epochs": 1})
    for seed in (1, 2):
        train_to_end(files, tmp_path / str(seed), override_settings(config, {"seed": seed}))
    monkeypatch.setattr(identity, "__version__", "9.8")
    with pytest.warns(UserWarning) as caught:
        load([tmp_path / "1", tmp_path / "2"])
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith(f"{tmp_path / '1'} was trained with") and "(1 further member differs, too)" in message


def test_a_training_tells_the_version_with_which_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log records the version; a finished run keeps that of its model when the command is given again."""
    files, config = write_copy_files(tmp_path), make_small_config({"epochs": 2})
    events = train_run(files, tmp_path / "run", config)
    for event in events:
        if isinstance(event, ValidationCompleted):
            break
    events.close()
    assert load_run_log(tmp_path / "run").all("started")[0]["versions"] == f"pellucid {__version__}"
    with monkeypatch.context() as patch:
        patch.setattr(identity, "__version__", "9.8")
        built = [event for event in train_to_end(files, tmp_path / "run", config) if isinstance(event, ModelBuilt)]
    note = f"the training began with 'pellucid {__version__}', and continues with 'pellucid 9.8': results may differ"
    assert note in built[0].warnings
    model = (tmp_path / "run" / "model.safetensors").read_bytes()
    built = [event for event in train_to_end(files, tmp_path / "run", config) if isinstance(event, ModelBuilt)]
    assert note not in built[0].warnings and (tmp_path / "run" / "model.safetensors").read_bytes() == model
