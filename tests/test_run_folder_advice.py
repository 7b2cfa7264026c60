"""A message about a file of a run names the file and the field, and says what to do."""

import errno
import json
import math
import os
import re
import shutil
import socket
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w
from task_cases import task_run
from trained_runs import TrainedRun, copy_run_folder, copy_task_run, make_small_config, train_to_end, write_copy_files

from pellucid.config.toml import flatten_config
from pellucid.errors import ConfigError, InputError, RunError
from pellucid.files import read_bytes
from pellucid.run_folder import log as log_module
from pellucid.run_folder.advice import add_advice
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.run_files import load_run_config, member_folders
from pellucid.training.session import train_run
from pellucid.training.snapshots import read_snapshots

ADVICE = ("restore the file", "restore it", "remove this file", "run the training command again", "restore the run's ")
WRONG_VALUES: tuple[object, ...] = ("", "x" * 5000, "a\0b", -1, -1.5, 0, 2**62, [1, 2], ["a"], True, math.nan, {"a": 1})


def error_message(operation: Callable[[], object]) -> str:
    """Return the message of the InputError that the operation raises."""
    with pytest.raises(InputError) as caught:
        operation()
    return str(caught.value)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a copy of a finished run."""
    return copy_run_folder(copy_task_run().run, tmp_path / "run")


@pytest.mark.parametrize("key", flatten_config(make_small_config()))
def test_a_wrong_setting_of_a_run_is_refused_with_file_key_and_advice(run: Path, key: str) -> None:
    path, num_refused = run / "config.toml", 0
    original = path.read_text("utf-8")
    for value in WRONG_VALUES:
        settings = tomllib.loads(original)
        section, _, name = key.rpartition(".")
        (settings[section] if section else settings)[name] = value
        path.write_text(tomli_w.dumps(settings), "utf-8")
        try:
            load_run_config(run)
        except ConfigError as error:
            message = str(error)
            assert message.startswith(f"{path}: ") and key in message and len(message) < 1000, (value, message)
            assert message.endswith("; correct the file, or restore it from a copy of the run"), (value, message)
            num_refused += 1
    assert num_refused >= 3


@pytest.mark.parametrize("key", ["source_column", "target_column", "features_column"])
@pytest.mark.parametrize("column", ["", "0", "9" * 30])
def test_a_wrong_column_of_a_run_is_refused_when_it_is_loaded(run: Path, key: str, column: str) -> None:
    path = run / "config.toml"
    settings = tomllib.loads(path.read_text("utf-8"))
    settings["data"][key] = column
    path.write_text(tomli_w.dumps(settings), "utf-8")
    if key == "features_column" and not column:
        load(run)
    else:
        message = error_message(lambda: load(run))
        assert message.startswith(f"{path}: data.{key}: expected a name or a number from 1")
        assert message.endswith("; correct the file, or restore it from a copy of the run")


def cut(path: Path) -> None:
    """Remove the second half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_last_bit(path: Path) -> None:
    """Change the last bit of a file."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def rename_field(path: Path) -> None:
    """Give a field of a JSON file another name."""
    content = json.loads(path.read_text("utf-8"))
    content["other"] = content.pop(next(iter(content)))
    path.write_text(json.dumps(content), "utf-8")


def make_pipe(path: Path) -> None:
    """Replace a file by a named pipe."""
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": cut,
    "other bytes": lambda path: path.write_bytes(b"\xff" * 100),
    "a pipe": make_pipe,
    "a changed bit": flip_last_bit,
    "another field": rename_field,
}
FILES = {
    "config.toml": ("empty", "cut", "other bytes", "a pipe"),
    "vocabulary.json": ("missing", "empty", "cut", "other bytes", "a pipe", "another field"),
    "model.safetensors": ("missing", "empty", "cut", "other bytes", "a pipe", "a changed bit"),
    "training.safetensors": ("empty", "cut", "other bytes", "a pipe", "a changed bit"),
    "pair_ngram.safetensors": ("missing", "empty", "cut", "other bytes", "a pipe", "a changed bit"),
    "ensemble.json": ("empty", "cut", "other bytes", "a pipe", "another field"),
    "log.jsonl": ("a pipe",),
    "snapshot": ("empty", "cut", "other bytes", "a pipe", "a changed bit"),
}
"""Damages of each file of a run that are errors. A damaged line of the log is skipped."""
CASES = [(name, damage) for name, damages in FILES.items() for damage in damages]


@pytest.fixture(scope="module")
def pair_ngram_run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """Return a finished run with a pair n-gram model."""
    folder = tmp_path_factory.mktemp("pair_ngram")
    files, config = write_copy_files(folder), make_small_config({"epochs": 2, "pair_ngram": True})
    train_to_end(files, folder / "run", config)
    return TrainedRun(files, folder / "run", config)


def read_run(run: Path, name: str, trained: TrainedRun) -> object:
    """Read a file of a run by the command that needs it."""
    readers: dict[str, Callable[[], object]] = {
        "training.safetensors": lambda: list(train_run(trained.files, run, trained.config)),
        "ensemble.json": lambda: member_folders(run),
        "log.jsonl": lambda: load_run_log(run),
        "snapshot": lambda: read_snapshots(run),
    }
    return readers.get(name, lambda: load(run))()


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_a_damaged_file_of_a_run_is_refused_with_its_name_and_advice(
    tmp_path: Path, pair_ngram_run: TrainedRun, name: str, damage: str
) -> None:
    run = copy_run_folder(pair_ngram_run.run, tmp_path / "run")
    path = run / name if name != "snapshot" else sorted((run / "snapshots").iterdir())[0]
    if name == "ensemble.json":
        path.write_text('{"members": ["seed-1"]}', "utf-8")
    DAMAGES[damage](path)
    message = error_message(lambda: read_run(run, name, pair_ngram_run))
    assert str(path) in message and "\n" not in message and len(message) < 1000
    assert any(advice in message for advice in ADVICE), message


def test_a_log_above_the_size_limit_is_refused_with_advice(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_LOG_SIZE", 10)
    message = error_message(lambda: load_run_log(run))
    assert message == (
        f"{run / 'log.jsonl'} is too large: it has more than 10 bytes; restore the file from a copy of the run, or "
        "remove it: the model can be used without its history"
    )
    (run / "log.jsonl").unlink()
    load(run)


def test_advice_is_given_once_and_not_about_permissions(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^a; restore the file$"), add_advice("train"), add_advice("restore the file"):
        raise RunError("a")
    with pytest.raises(RunError, match=r"no such file or directory; train$"), add_advice("train"):
        read_bytes(tmp_path / "a")
    with pytest.raises(RunError, match=r"^a$"), add_advice("train"):
        raise RunError("a") from PermissionError()
    with pytest.raises(RunError, match=r"^a; train$"), add_advice("train"):
        raise RunError("a") from OSError(errno.EIO, "input/output error")


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary.json", "log.jsonl", "ensemble.json", "snapshot"])
@pytest.mark.parametrize("kind", ["folder", "socket", "link to itself"])
def test_another_kind_of_file_is_refused_with_advice(
    tmp_path: Path, pair_ngram_run: TrainedRun, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copy_run_folder(pair_ngram_run.run, tmp_path / "run")
    path = run / name if name != "snapshot" else sorted((run / "snapshots").iterdir())[0]
    path.unlink(missing_ok=True)
    monkeypatch.chdir(path.parent)  # the path of a socket is short
    if kind == "folder":
        path.mkdir()
    elif kind == "link to itself":
        path.symlink_to(path.name)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    message = error_message(lambda: read_run(run, name, pair_ngram_run))
    assert str(path) in message and any(advice in message for advice in (*ADVICE, "remove it")), message


@pytest.mark.parametrize("name", [".lock", "card.md"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_file_of_a_training_of_another_kind_is_refused_with_advice(
    tmp_path: Path, pair_ngram_run: TrainedRun, name: str, make: Callable[[Path], object]
) -> None:
    run = copy_run_folder(pair_ngram_run.run, tmp_path / "run")
    (run / name).unlink(missing_ok=True)
    make(run / name)
    message = error_message(lambda: list(train_run(pair_ngram_run.files, run, pair_ngram_run.config)))
    advice = r"; remove it: |; rename or remove what is there$|: rename it, or name another run folder$"
    assert str(run / name) in message and re.search(advice, message) and "no such device" not in message, message


def test_a_missing_member_is_refused_with_the_list_and_advice(run: Path, tmp_path: Path) -> None:
    (tmp_path / "ensemble.json").write_text('{"members": ["run", "missing"]}', "utf-8")
    assert error_message(lambda: load(tmp_path)) == (
        f"{tmp_path / 'ensemble.json'} lists 'missing', but there is no folder {tmp_path / 'missing'}; restore the "
        "folder from a copy of the ensemble, or run the training command again, which trains the missing member"
    )


def test_a_vocabulary_of_another_task_is_refused_with_advice(tmp_path: Path) -> None:
    run = copy_run_folder(task_run("point").run, tmp_path / "run")
    shutil.copy(task_run("tag").run / "vocabulary.json", run / "vocabulary.json")
    message = error_message(lambda: load(run))
    assert str(run / "vocabulary.json") in message and any(advice in message for advice in ADVICE)
