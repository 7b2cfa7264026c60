"""Training from files to a run folder: its content, and refusals that leave it unchanged."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from trained_runs import (
    RUN_FILES,
    contents,
    copies,
    copies_run,
    copy_files,
    own_files,
    small_config,
    tensors,
    train_to_end,
    write_pairs,
)

from pellucid.config.settings import Config
from pellucid.config.toml import load_config
from pellucid.data.examples import Example
from pellucid.errors import DataError, RunError
from pellucid.training import session
from pellucid.training.events import TrainingStarted, TrainingStopped, UpdateCompleted
from pellucid.training.run_folder import lock_run_folder, read_log
from pellucid.training.session import FileSaved, ModelBuilt
from pellucid.training.training_data import FileRead, TrainingFiles


def refusal(files: TrainingFiles, folder: Path, config: Config, kind: type[Exception] = RunError) -> str:
    with pytest.raises(kind) as caught:
        train_to_end(files, folder, config)
    return str(caught.value)


def test_a_run_holds_its_files_and_no_pickle() -> None:
    assert own_files(copies_run().run) == RUN_FILES
    for name, (content, _) in contents(copies_run().run).items():
        assert b"\x80\x04" not in content[:2] and not content.startswith(b"PK"), name
        if name.endswith(".safetensors"):
            assert tensors(copies_run().run / name)[0]
        else:
            content.decode("utf-8")


def test_the_saved_settings_are_those_given() -> None:
    """But for the format and the header, which may have been found out by then."""
    saved = load_config(copies_run().run / "config.toml")
    found = {"input_format": saved.data.input_format, "header": saved.data.header}
    assert found == {"input_format": "tsv", "header": False}
    given = msgspec.structs.replace(copies_run().config.data, **found)
    assert saved == msgspec.structs.replace(copies_run().config, data=given)


def test_the_log_announces_the_compilation_of_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str]()
    monkeypatch.setattr(session, "will_compile", lambda: True)
    monkeypatch.setattr(
        session, "is_numba_available", lambda: told.extend(each["event"] for each in read_log(tmp_path / "run"))
    )
    train_to_end(copy_files(tmp_path), tmp_path / "run", small_config({"epochs": 1}))
    assert told == ["compiling"]
    assert [each["event"] for each in read_log(tmp_path / "run")][:4] == ["compiling", "read", "read", "started"]


def test_the_order_of_events(tmp_path: Path) -> None:
    files = copy_files(tmp_path)
    events = train_to_end(files, tmp_path / "run", small_config({"epochs": 2}))
    assert [type(event) for event in events[:4]] == [FileRead, FileRead, ModelBuilt, TrainingStarted]
    assert [event.examples for event in events if isinstance(event, FileRead)] == [40, 10]
    assert [event.resumed for event in events if isinstance(event, ModelBuilt)] == [False]
    assert sum(isinstance(event, UpdateCompleted) for event in events) == 10
    saved = [event for event in events if isinstance(event, FileSaved)]
    assert {event.path.name for event in saved} == {"model.safetensors", "training.safetensors"}


def test_a_finished_run_stays_unchanged() -> None:
    before = contents(copies_run().run)
    events = train_to_end(copies_run().files, copies_run().run, copies_run().config)
    assert [type(event) for event in events] == [FileRead, FileRead, ModelBuilt, TrainingStopped]
    assert contents(copies_run().run) == before


def test_a_run_of_another_configuration_is_refused_with_the_differences() -> None:
    before = contents(copies_run().run)
    other = small_config({"epochs": 4, "eval_interval": 0.5}, dropout=0.3)
    assert refusal(copies_run().files, copies_run().run, other).splitlines() == [
        f"{copies_run().run} holds a run with a different configuration:",
        "  encoder.dropout: 0.4 in the run, 0.3 now",
        "  decoder.dropout: 0.4 in the run, 0.3 now",
        "  training.epochs: 3.0 in the run, 4.0 now",
        "name another run folder",
    ]
    assert contents(copies_run().run) == before


def replace_letters(examples: Sequence[Example]) -> list[Example]:
    """The same pairs, every letter of the targets replaced by another: other symbols, hardly other ids."""
    return [Example(e.source, e.target.translate(str.maketrans("abcd", "bcda"))) for e in examples]


@pytest.mark.parametrize(
    ("training", "development"),
    [
        (copies(41, seed=1), copies(10, seed=2)),
        (list(reversed(copies(40, seed=1))), copies(10, seed=2)),
        (copies(40, seed=1), copies(9, seed=2)),
        (replace_letters(copies(40, seed=1)), copies(10, seed=2)),
    ],
    ids=["one more", "another order", "other development data", "other symbols"],
)
def test_a_run_of_other_data_is_refused(tmp_path: Path, training: list[Example], development: list[Example]) -> None:
    before = contents(copies_run().run)
    files = TrainingFiles(write_pairs(tmp_path / "a.tsv", training), write_pairs(tmp_path / "b.tsv", development))
    assert "is of a training on other data" in refusal(files, copies_run().run, copies_run().config)
    assert contents(copies_run().run) == before


def test_a_model_without_its_training_state_is_not_overwritten(tmp_path: Path) -> None:
    shutil.copytree(copies_run().run, tmp_path / "run")
    (tmp_path / "run" / "training.safetensors").unlink()
    before = contents(tmp_path / "run")
    assert str(tmp_path / "run") in refusal(copies_run().files, tmp_path / "run", copies_run().config)
    assert contents(tmp_path / "run") == before


def test_a_folder_with_other_files_is_refused_and_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("hello")
    assert refusal(copies_run().files, folder, copies_run().config) == (
        f"{folder} is not empty and holds no run (chapter.tex); name a new folder"
    )
    assert [path.name for path in folder.iterdir()] == ["chapter.tex"]


def test_two_trainings_at_once_are_refused() -> None:
    with lock_run_folder(copies_run().run):
        assert refusal(copies_run().files, copies_run().run, copies_run().config) == (
            f"{copies_run().run} is in use: another training is writing to it"
        )
    train_to_end(copies_run().files, copies_run().run, copies_run().config)


@pytest.mark.parametrize("copied", [False, True])
def test_development_data_that_is_the_training_data_is_refused(tmp_path: Path, copied: bool) -> None:
    train = write_pairs(tmp_path / "train.tsv", copies(20, seed=1))
    dev = write_pairs(tmp_path / "dev.tsv", list(reversed(copies(20, seed=1)))) if copied else train
    message = refusal(TrainingFiles(train, dev), tmp_path / "run", small_config(), DataError)
    assert message.startswith(f"{dev} holds the same examples as {train}")
    assert not (tmp_path / "run" / "config.toml").exists()


def test_the_files_read_are_reported(tmp_path: Path) -> None:
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text("a\ta\n\nab\tab\nbad line\nb\tb\n\n")
    dev.write_text("a\ta\nc\tc\n")
    config = small_config({"epochs": 1}, data={"on_bad_line": "skip"})
    first, second = [
        e for e in train_to_end(TrainingFiles(train, dev), tmp_path / "run", config) if isinstance(e, FileRead)
    ]
    assert (first.path, first.examples, first.blank, first.note) == (train, 3, 2, "")
    assert [str(bad) for bad in first.bad] == [f"{train}:4: expected 2 columns, got 1 (tabs separate columns)"]
    assert second.note == f"1 of 2 examples are also in {train}"


def test_training_imports_no_compiler_of_graphs(tmp_path: Path) -> None:
    """torch.optim and torch.manual_seed would import one, which takes longer than a small training."""
    write_pairs(tmp_path / "train.tsv", copies(8, seed=1))
    write_pairs(tmp_path / "dev.tsv", copies(4, seed=2))
    program = """
import sys
from pathlib import Path
from pellucid.config.toml import build_config
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles
config = build_config({"size": "tiny", "training": {"epochs": 1}}, origin="test")
events = list(train_run(TrainingFiles(Path("train.tsv"), Path("dev.tsv")), Path("run"), config))
print(len(events), "torch._dynamo" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PELLUCID_PLAIN": "1"}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    events, imported = run.stdout.split()
    assert int(events) > 3 and imported == "False"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_training_whose_folder_is_gone_writes_nothing_into_another(tmp_path: Path, replaced: bool) -> None:
    files, folder = copy_files(tmp_path), tmp_path / "run"
    events = session.train_run(files, folder, small_config({"epochs": 6}))
    for event in events:
        if isinstance(event, FileSaved):
            break
    folder.rename(tmp_path / "moved")
    if replaced:
        train_to_end(files, folder, small_config({"epochs": 1}, dropout=0.3))
    before = contents(folder) if replaced else None
    with pytest.raises(RunError, match=r"run was removed, moved or replaced during training; nothing more is written"):
        list(events)
    assert (contents(folder) if folder.exists() else None) == before
