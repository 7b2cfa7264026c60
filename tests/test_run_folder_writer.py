"""training/run_folder_writer.py: files that a training writes, and folders that are replaced meanwhile."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from trained_runs import (
    DataFiles,
    copy_run_folder,
    copy_task_run,
    list_run_files,
    make_small_config,
    read_folder_state,
    train_to_end,
    write_copy_files,
)

from pellucid.config.settings import Config
from pellucid.errors import RunError
from pellucid.files import make_folder, open_regular_file, remove_file, write_atomic
from pellucid.run_folder.lock import lock_run_folder
from pellucid.training import checkpoint, run_folder_writer, session, snapshots
from pellucid.training.events import (
    FileSaved,
    ModelBuilt,
    PairNgramFitted,
    RunEvent,
)
from pellucid.training.session import train_run


@pytest.mark.parametrize("replaced", [False, True])
def test_a_training_writes_nothing_after_its_folder_is_removed_or_replaced(tmp_path: Path, replaced: bool) -> None:
    files, folder = write_copy_files(tmp_path), tmp_path / "run"
    events = session.train_run(files, folder, make_small_config({"epochs": 6}))
    for event in events:
        if isinstance(event, FileSaved):
            break
    folder.rename(tmp_path / "moved")
    if replaced:
        train_to_end(files, folder, make_small_config({"epochs": 1}, dropout=0.3))
    before = read_folder_state(folder) if replaced else None
    with pytest.raises(RunError, match=r"run was removed, moved or replaced during training; nothing more is written"):
        list(events)
    assert (read_folder_state(folder) if folder.exists() else None) == before


def replace_during(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, folder: Path) -> None:  # noqa: ANN401
    """Let a function of a module move a folder away, and put a copy at its place, after its work."""
    function = getattr(module, name)

    def work_and_replace(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        result = function(*arguments, **named)
        folder.rename(folder.with_name("moved"))
        shutil.copytree(folder.with_name("moved"), folder)
        return result

    monkeypatch.setattr(module, name, work_and_replace)


def assert_training_leaves_folder_alone(tmp_path: Path, config: Config) -> None:
    """Assert that a training whose folder is replaced ends with an error, and changes nothing in the new folder."""
    files, folder = write_copy_files(tmp_path), tmp_path / "run"
    with pytest.raises(RunError, match=r"run was removed, moved or replaced during training; nothing more is written"):
        list(session.train_run(files, folder, config))
    assert read_folder_state(folder) == read_folder_state(tmp_path / "moved")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (session, "load_pretrained"),
        (run_folder_writer, "fit_training_pair_ngram"),
        (run_folder_writer, "weight_pair_ngram"),
        (run_folder_writer, "fit_predictor_confidence"),
    ],
)
def test_a_folder_replaced_during_a_fit_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    """Regression test: the fits take minutes, and their files were written into the folder at the path."""
    replace_during(monkeypatch, module, name, tmp_path / "run")
    assert_training_leaves_folder_alone(tmp_path, make_small_config({"epochs": 1, "pair_ngram": True}))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (run_folder_writer, "refuse_links"),
        (snapshots, "step_distributions"),
        (run_folder_writer, "sync_log"),
        (checkpoint, "encode_tensors"),
        (run_folder_writer, "save_training_state"),
        (run_folder_writer, "encode_best_model"),
    ],
)
def test_a_folder_replaced_between_two_writes_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    """Regression test: not each write followed a check, so that another run at the path lost its model."""
    replace_during(monkeypatch, module, name, tmp_path / "run")
    assert_training_leaves_folder_alone(tmp_path, make_small_config({"epochs": 1}))


def test_a_guarded_folder_is_checked_before_each_change(tmp_path: Path) -> None:
    other, run = tmp_path / "other", tmp_path / "run"
    other.mkdir()
    (other / "model.safetensors").write_bytes(b"other")
    with lock_run_folder(run):
        (run / "inner").mkdir()
        run.rename(tmp_path / "moved")
        other.rename(run)
        before = read_folder_state(run)
        changes: list[Callable[[Path], object]] = [
            lambda path: write_atomic(path, b"new"),
            remove_file,
            lambda path: open_regular_file(path, mode="ab"),
            lambda path: make_folder(path.with_name("new")),
            lambda path: make_folder(path.with_name("new") / "inner"),
        ]
        for change in changes:
            with pytest.raises(RunError, match="was removed, moved or replaced during training"):
                change(run / "model.safetensors")
        assert read_folder_state(run) == before
    write_atomic(run / "model.safetensors", b"new")  # no longer guarded


def test_a_finished_run_that_is_replaced_during_a_fit_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: a missing confidence is fitted again, and was written into the folder at the path."""
    task = copy_task_run()
    folder = copy_run_folder(task.run, tmp_path / "run")
    (folder / "confidence.json").unlink()
    replace_during(monkeypatch, run_folder_writer, "fit_predictor_confidence", folder)
    with pytest.raises(RunError, match=r"run was removed, moved or replaced during training; nothing more is written"):
        list(session.train_run(task.files, folder, task.config))
    assert read_folder_state(folder) == read_folder_state(tmp_path / "moved")


def train_until_saved(files: DataFiles, folder: Path) -> Iterator[RunEvent]:
    """Train until the first checkpoint, and return the remaining events."""
    events = session.train_run(files, folder, make_small_config({"epochs": 4, "pair_ngram": True}))
    assert any(isinstance(event, FileSaved) for event in events)
    return events


@pytest.mark.skipif(os.name == "nt", reason="symbolic links require a privilege")
@pytest.mark.parametrize("name", ["snapshots", "log.jsonl"])
def test_a_link_made_during_the_training_is_refused(tmp_path: Path, name: str) -> None:
    """Regression test: snapshots were written through the link."""
    events = train_until_saved(write_copy_files(tmp_path), tmp_path / "run")
    (tmp_path / "run" / name).rename(tmp_path / "moved")
    other = tmp_path / "other"
    if name == "snapshots":
        other.mkdir()
    else:
        other.touch()
    (tmp_path / "run" / name).symlink_to(other)
    with pytest.raises(RunError) as caught:
        list(events)
    assert str(tmp_path / "run" / name) in str(caught.value) and "another run folder" in str(caught.value)
    assert list(other.iterdir()) == [] if name == "snapshots" else other.read_bytes() == b""


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["config.toml", "vocabulary.json", "pair_ngram.safetensors", "damaged pair n-gram"])
def test_files_lost_during_the_training_are_written_anew(tmp_path: Path, damage: str) -> None:
    """Regression test: the training ended with an error, or with a damaged run."""
    files = write_copy_files(tmp_path)
    list(train_until_saved(files, tmp_path / "expected"))
    events = train_until_saved(files, tmp_path / "run")
    if damage == "damaged pair n-gram":
        (tmp_path / "run" / "pair_ngram.safetensors").write_bytes(b"x")
    else:
        (tmp_path / "run" / damage).unlink()
    remaining = list(events)
    assert any(isinstance(event, PairNgramFitted) for event in remaining) == ("pair" in damage)
    assert list_run_files(tmp_path / "run") == list_run_files(tmp_path / "expected")
    for name in ("config.toml", "vocabulary.json", "pair_ngram.safetensors", "model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes()


def replace_folder(path: Path, replacement: str) -> None:
    """Move a folder away and put something else in its place."""
    path.rename(path.with_name("moved"))
    if replacement == "file":
        path.touch()
    elif replacement == "link to itself":
        path.symlink_to(path)


@pytest.mark.skipif(os.name == "nt", reason="symbolic links require a privilege")
@pytest.mark.parametrize("first_event", [ModelBuilt, FileSaved])
@pytest.mark.parametrize("replaced", ["run", "parent"])
@pytest.mark.parametrize("replacement", ["file", "link to itself", "nothing"])
def test_a_folder_replaced_by_a_file_is_reported_as_replaced(
    tmp_path: Path, first_event: type, replaced: str, replacement: str
) -> None:
    files, parent = write_copy_files(tmp_path / "data"), tmp_path / "parent"
    events = session.train_run(files, parent / "run", make_small_config({"epochs": 6}))
    assert any(isinstance(event, first_event) for event in events)
    replace_folder(parent / "run" if replaced == "run" else parent, replacement)
    with pytest.raises(RunError) as caught:
        list(events)
    assert str(caught.value) == (
        f"{parent / 'run'} was removed, moved or replaced during training; nothing more is written to it"
    )


def test_a_folder_replaced_during_a_write_is_reported_as_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check before the write finds nothing; the error of the write would name a file in the old folder."""
    files, run = write_copy_files(tmp_path), tmp_path / "run"
    save_snapshot = snapshots.save_snapshot

    def move_and_save(*arguments: Any) -> None:  # noqa: ANN401
        replace_folder(run, "file")
        save_snapshot(*arguments)

    monkeypatch.setattr(snapshots, "save_snapshot", move_and_save)
    with pytest.raises(RunError, match=r"run was removed, moved or replaced during training; nothing more is written"):
        list(train_run(files, run, make_small_config({"epochs": 2})))
    assert run.read_bytes() == b""


def test_the_log_is_flushed_before_each_file_that_relies_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that survives a loss of power has all earlier lines of the log; so has each file at the end."""
    log, names, sizes = tmp_path / "run" / "log.jsonl", list[str](), {"flushed": 0}
    sync, replace = os.fsync, os.replace

    def record_sync(descriptor: int) -> None:
        sync(descriptor)
        if log.exists() and os.path.samestat(os.fstat(descriptor), log.stat()):
            sizes["flushed"] = log.stat().st_size

    def check_log(source: Path, target: Path) -> None:
        names.append(Path(target).name)
        if log.exists():
            assert sizes["flushed"] == log.stat().st_size or Path(target).parent.name == "snapshots", names[-1]
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", check_log)
    config = make_small_config({"epochs": 2, "pair_ngram": True})
    list(train_run(write_copy_files(tmp_path), tmp_path / "run", config))
    assert {"training.safetensors", "model.safetensors", "pair_ngram.safetensors", "confidence.json"} <= {*names}
    assert sizes["flushed"] == log.stat().st_size


@pytest.mark.parametrize("code", ["EACCES", "EPERM", "ESTALE", "ENOTDIR", "ELOOP"])
def test_a_lock_that_is_out_of_reach_is_reported_as_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def raise_os_error(path: Path) -> os.stat_result:
        raise OSError(getattr(errno, error_name), "no access", str(path))

    error_name = code
    with lock_run_folder(tmp_path / "run") as lock:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "stat", raise_os_error)
            with pytest.raises(RunError, match="run was removed, moved or replaced during training"):
                lock.check()
            error_name = "EIO"
            with pytest.raises(RunError, match=r"^cannot read .*run/\.lock: no access$"):
                lock.check()
        lock.check()
