"""Run folders are loaded, and other folders are refused with error messages."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from trained_runs import copy_run_folder, copy_task_run, digits_run, train_to_end

import pellucid
from pellucid.config.toml import flatten_config
from pellucid.data.synthetic import spelled_digits
from pellucid.errors import InputError, RunError
from pellucid.run_folder import lock
from pellucid.run_folder.lock import in_use, lock_run_folder
from pellucid.run_folder.log import append_log, read_log, truncate_log
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.progress import Progress
from pellucid.run_folder.run_files import has_run
from pellucid.training.events import UpdateCompleted, ValidationCompleted
from pellucid.training.session import train_run

ADVICE = "; if it was interrupted, its training command resumes it"
"""Ending of the error before the first validation."""
SOURCES = [example.source for example in spelled_digits(30, 1, 3, seed=7)]


def load_error(folder: Path) -> str:
    """Return the error message of loading a folder."""
    with pytest.raises(InputError) as caught:
        load(folder)
    return str(caught.value)


def test_a_prediction_imports_no_training_code() -> None:
    """A fresh process loads a run and decodes in Python and on the command line."""
    program = (
        "import sys, pellucid\n"
        "from pellucid.cli import main\n"
        f"run = {str(copy_task_run().run)!r}\n"
        "pellucid.load(run).predict(['a'])\n"
        "pellucid.load([run, run]).predict(['a'])\n"
        f"assert main(['predict', run, {str(copy_task_run().files.valid)!r}]) == 0\n"
        "print(*(name for name in sys.modules if name.startswith('pellucid.training')), file=sys.stderr)\n"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stderr.split() == []
    assert len(completed.stdout.splitlines()) == len(copy_task_run().files.valid.read_text("utf-8").splitlines())


def test_a_model_loaded_twice_gives_identical_predictions() -> None:
    one, other = load(digits_run().run), pellucid.load(str(digits_run().run))
    for trace, again in zip(one.predict(SOURCES), other.predict(SOURCES), strict=True):
        assert trace.output == again.output
        assert trace.log_probabilities.tobytes() == again.log_probabilities.tobytes()
        assert trace.attention.tobytes() == again.attention.tobytes()
    assert sum(trace.finished for trace in one.predict(SOURCES)) > 20


def test_a_moved_run_gives_the_same_outputs(tmp_path: Path) -> None:
    moved = copy_run_folder(digits_run().run, tmp_path / "elsewhere" / "run")
    outputs = [trace.output for trace in load(moved).predict(SOURCES)]
    assert outputs == [trace.output for trace in load(digits_run().run).predict(SOURCES)]


def test_a_model_is_loaded_without_log_checkpoint_and_card(tmp_path: Path) -> None:
    moved = copy_run_folder(digits_run().run, tmp_path / "run")
    for name in ("log.jsonl", "training.safetensors", "card.md"):
        (moved / name).unlink()
    assert load(moved).predict(["nine"])[0].output


def test_other_folders_and_files_are_refused(tmp_path: Path) -> None:
    missing = f"{tmp_path / 'none'} is not a run folder: there is no such folder"
    assert load_error(tmp_path / "none") == f"{missing}; name the folder that was given to pellucid train --run"
    (tmp_path / "nona").mkdir()
    assert load_error(tmp_path / "none") == f"{missing}; did you mean 'nona'?"
    (tmp_path / "file").write_text("x")
    assert load_error(tmp_path / "file") == f"{tmp_path / 'file'} is not a run folder: it is a file"
    (tmp_path / "empty").mkdir()
    assert load_error(tmp_path / "empty") == f"{tmp_path / 'empty'} is not a run folder: it holds no config.toml"
    assert not has_run(tmp_path / "empty") and has_run(digits_run().run)


def test_a_run_without_a_validation_has_no_model_yet(tmp_path: Path) -> None:
    folder = copy_run_folder(copy_task_run().run, tmp_path / "run")
    for name in ("model.safetensors", "training.safetensors", "log.jsonl"):
        (folder / name).unlink()
    assert load_error(folder) == f"{folder} holds no model yet: its training has not reached a first validation{ADVICE}"


def test_a_log_ahead_of_the_checkpoint_does_not_claim_a_model(tmp_path: Path) -> None:
    """The training was killed after it logged its first validation and before it saved the checkpoint."""
    files, _, config = copy_task_run()
    training = train_run(files, tmp_path / "run", config)
    next(event for event in training if isinstance(event, UpdateCompleted))
    training.close()
    shutil.copy(copy_task_run().run / "log.jsonl", tmp_path / "run")
    assert load_error(tmp_path / "run").endswith(
        f"run holds no model yet: its training has not reached a first validation{ADVICE}"
    )


@pytest.mark.parametrize("remains", ["nothing", "a link to nowhere"])
def test_a_missing_model_is_written_from_the_checkpoint(tmp_path: Path, remains: str) -> None:
    """The training was killed after it saved its checkpoint and before it saved its model."""
    files, whole, config = copy_task_run()
    folder = copy_run_folder(whole, tmp_path / "run")
    (folder / "model.safetensors").unlink()
    if remains != "nothing":
        (folder / "model.safetensors").symlink_to(tmp_path / "nowhere")
    assert load_error(folder) == (
        f"{folder / 'model.safetensors'} is missing: run the training command again; it writes the model from the "
        "checkpoint"
    )
    train_to_end(files, folder, config)
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_model_of_an_earlier_validation_must_be_restored(tmp_path: Path) -> None:
    files, _, config = copy_task_run()
    training = train_run(files, tmp_path / "run", config)
    next(event for event in training if isinstance(event, ValidationCompleted))
    next(event for event in training if isinstance(event, UpdateCompleted))
    training.close()
    model = tmp_path / "run" / "model.safetensors"
    model.unlink()
    assert load_error(model.parent) == f"{model} is missing, but the log records a validation: restore the file"
    with pytest.raises(RunError, match=r"cannot read .*model\.safetensors"):
        train_to_end(files, model.parent, config)


def test_a_run_with_only_its_log_can_be_trained_again(tmp_path: Path) -> None:
    files, whole, config = copy_task_run()
    folder = copy_run_folder(whole, tmp_path / "run")
    for name in ("model.safetensors", "training.safetensors"):
        (folder / name).unlink()
    assert load_error(folder) == (
        f"{folder / 'model.safetensors'} is missing, but the log records a validation: restore the file, or run the "
        "training command again; it trains from the start"
    )
    train_to_end(files, folder, config)
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def truncate_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def overwrite_with_garbage(path: Path) -> None:
    path.write_bytes(b"\x00\xff\xfe garbage \n" * 9)


def empty_file(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [truncate_file, overwrite_with_garbage, empty_file, replace_by_folder])
@pytest.mark.parametrize("name", ["config.toml", "vocabulary.json", "model.safetensors"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    folder = copy_run_folder(copy_task_run().run, tmp_path / "run")
    damage(folder / name)
    if (name, damage) == ("config.toml", truncate_file):
        (folder / name).write_text("size = [")
    assert str(folder / name) in load_error(folder)


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    folder = copy_run_folder(copy_task_run().run, tmp_path / "run")
    (folder / "vocabulary.json").unlink()
    assert load_error(folder) == (
        f"cannot read {folder / 'vocabulary.json'}: no such file or directory; "
        "restore the file from a copy of the run, or train the model again"
    )


@pytest.mark.parametrize("content", ["[]", "{}", '{"source": 3}', '"\\ud800"', "nul"])
def test_json_without_a_vocabulary_is_refused(tmp_path: Path, content: str) -> None:
    folder = copy_run_folder(copy_task_run().run, tmp_path / "run")
    (folder / "vocabulary.json").write_text(content)
    assert load_error(folder).startswith(f"{folder / 'vocabulary.json'} is not a vocabulary: ")


def test_a_model_of_other_sizes_is_refused(tmp_path: Path) -> None:
    folder = copy_run_folder(copy_task_run().run, tmp_path / "run")
    settings = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(settings.replace("\nsize = 8\n", "\nsize = 9\n"))
    files = f"{folder / 'config.toml'} and {folder / 'model.safetensors'}"
    assert load_error(folder).startswith(f"{files} are not of the same run: attention.size is 9, and 8 in the model; ")
    shutil.copy(digits_run().run / "vocabulary.json", folder)
    assert "model.safetensors" in load_error(folder)


def test_the_lock_is_held_once_and_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from pellucid.run_folder.lock import lock_run_folder\n"
        "with lock_run_folder(Path(sys.argv[1])):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, "run"], stdout=subprocess.PIPE, cwd=tmp_path) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"locked\n"
        with (
            pytest.raises(RunError, match=r"run is in use: another process is writing to it"),
            lock_run_folder(tmp_path / "run"),
        ):
            pass
        assert in_use(tmp_path / "run")
        holder.kill()
    assert not in_use(tmp_path / "run") and not in_use(tmp_path / "none")
    for _ in range(2):
        with lock_run_folder(tmp_path / "run"):
            pass


def test_a_lock_file_of_another_program_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("pid 17")
    with lock_run_folder(tmp_path):
        pass
    assert (tmp_path / ".lock").read_text() == "pid 17"


def test_a_lock_removed_by_another_training_is_refused(tmp_path: Path) -> None:
    """Two trainings open the lock file and the first removes it; the second must not hold a removed lock."""
    with lock_run_folder(tmp_path / "run"):
        opened = (tmp_path / "run" / ".lock").open("ab")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    with pytest.MonkeyPatch.context() as patched, pytest.raises(RunError, match="has just ended there"):
        patched.setattr(lock, "open_regular_file", lambda path, mode: opened)
        with lock_run_folder(tmp_path / "run"):
            pass


def test_an_error_inside_the_lock_is_raised_unchanged(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="the network is slow"), lock_run_folder(tmp_path):
        raise TimeoutError("the network is slow")


def test_the_log_is_cut_back_to_the_checkpoint_and_continued(tmp_path: Path) -> None:
    counts = {"samples": 1, "epoch": 0, "seconds": 0.5}
    lines = [{"event": "stepped", "update": update, **counts, "loss": 1.5, "word": "naïve"} for update in (1, 2, 3)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"upda', "utf-8")
    assert read_log(tmp_path) == lines
    truncate_log(tmp_path, Progress(update=2), "")
    assert read_log(tmp_path) == lines[:2]
    append_log(tmp_path, {"event": "stopped", "update": 2, **counts, "reason": "→"})
    assert [record["event"] for record in read_log(tmp_path)] == ["stepped", "stepped", "stopped"]
    assert (tmp_path / "log.jsonl").read_text("utf-8").splitlines()[-1] == json.dumps(
        {"event": "stopped", "update": 2, **counts, "reason": "→"}, ensure_ascii=False
    )


@pytest.mark.parametrize(
    "line",
    [
        *("5", "[1, 2]", "null", "{}", '{"event": "validated"}', '{"event": "sung", "update": 1}'),
        '{"event": "stepped", "update": "a", "samples": 1, "epoch": 0, "seconds": 1, "loss": 1}',
        '{"event": "stopped", "update": 7}',
    ],
)
def test_an_invalid_log_line_is_skipped(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_text(f"{line}\n", "utf-8")
    assert read_log(tmp_path) == []
    truncate_log(tmp_path, Progress(update=9), "")


def test_a_missing_log_is_read_as_empty(tmp_path: Path) -> None:
    assert read_log(tmp_path) == []


def test_the_saved_settings_contain_every_key() -> None:
    text = (copy_task_run().run / "config.toml").read_text("utf-8")
    assert all(f"[{name}]" in text for name in ("data", "encoder", "attention", "decoder", "training", "search"))
    keys = [line for line in text.splitlines() if " = " in line and not line.startswith("#")]
    assert len(keys) == f"\n{text}".count("\n# ") == len(flatten_config(copy_task_run().config))
