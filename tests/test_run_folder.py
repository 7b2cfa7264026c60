"""The run folder: what can be loaded, and the error messages for other folders."""

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
from pellucid.training import run_folder as run_module
from pellucid.training.events import Progress, UpdateCompleted, ValidationCompleted
from pellucid.training.run_folder import append_log, cut_log, has_run, in_use, load, lock_run_folder, read_log
from pellucid.training.session import train_run

SOURCES = [example.source for example in spelled_digits(30, 1, 3, seed=7)]


def message(folder: Path) -> str:
    """What loading a folder must say."""
    with pytest.raises(InputError) as caught:
        load(folder)
    return str(caught.value)


def test_a_loaded_model_predicts_what_it_did_when_saved() -> None:
    one, other = load(digits_run().run), pellucid.load(str(digits_run().run))
    for trace, again in zip(one.predict(SOURCES), other.predict(SOURCES), strict=True):
        assert trace.output == again.output
        assert trace.log_probabilities.tobytes() == again.log_probabilities.tobytes()
        assert trace.attention.tobytes() == again.attention.tobytes()
    assert sum(trace.finished for trace in one.predict(SOURCES)) > 20


def test_a_moved_run_is_the_same_run(tmp_path: Path) -> None:
    moved = copy_run_folder(digits_run().run, tmp_path / "elsewhere" / "run")
    outputs = [trace.output for trace in load(moved).predict(SOURCES)]
    assert outputs == [trace.output for trace in load(digits_run().run).predict(SOURCES)]


def test_the_model_alone_needs_neither_log_nor_checkpoint_nor_card(tmp_path: Path) -> None:
    moved = copy_run_folder(digits_run().run, tmp_path / "run")
    for name in ("log.jsonl", "training.safetensors", "card.md"):
        (moved / name).unlink()
    assert load(moved).predict(["nine"])[0].output


def test_other_folders_and_files_are_refused(tmp_path: Path) -> None:
    assert message(tmp_path / "none") == f"{tmp_path / 'none'} is not a run folder: there is no such folder"
    (tmp_path / "file").write_text("x")
    assert message(tmp_path / "file") == f"{tmp_path / 'file'} is not a run folder: it is a file"
    (tmp_path / "empty").mkdir()
    assert message(tmp_path / "empty") == f"{tmp_path / 'empty'} is not a run folder: it holds no config.toml"
    assert not has_run(tmp_path / "empty") and has_run(digits_run().run)


def test_a_run_without_a_validation_has_no_model_yet(tmp_path: Path) -> None:
    folder = copy_run_folder(copy_task_run().run, tmp_path / "run")
    for name in ("model.safetensors", "training.safetensors", "log.jsonl"):
        (folder / name).unlink()
    assert message(folder) == f"{folder} holds no model yet: its training has not reached a first validation"


def test_a_log_ahead_of_the_checkpoint_does_not_claim_a_model(tmp_path: Path) -> None:
    """A training killed between the log and the checkpoint of its first validation, after an earlier checkpoint."""
    files, _, config = copy_task_run()
    training = train_run(files, tmp_path / "run", config)
    next(event for event in training if isinstance(event, UpdateCompleted))
    training.close()
    shutil.copy(copy_task_run().run / "log.jsonl", tmp_path / "run")
    assert message(tmp_path / "run").endswith("run holds no model yet: its training has not reached a first validation")


@pytest.mark.parametrize("left", ["nothing", "a link to nowhere"])
def test_a_model_that_the_training_command_writes_from_the_checkpoint(tmp_path: Path, left: str) -> None:
    """The state of a training killed between its checkpoint and its model."""
    files, whole, config = copy_task_run()
    folder = copy_run_folder(whole, tmp_path / "run")
    (folder / "model.safetensors").unlink()
    if left != "nothing":
        (folder / "model.safetensors").symlink_to(tmp_path / "nowhere")
    assert message(folder) == (
        f"{folder / 'model.safetensors'} is missing: give the training command again; it writes the model from the "
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
    assert message(model.parent) == f"{model} is missing, but the log records a validation: restore the file"
    with pytest.raises(RunError, match=r"cannot read .*model\.safetensors"):
        train_to_end(files, model.parent, config)


def test_a_run_with_its_log_alone_can_be_trained_again(tmp_path: Path) -> None:
    files, whole, config = copy_task_run()
    folder = copy_run_folder(whole, tmp_path / "run")
    for name in ("model.safetensors", "training.safetensors"):
        (folder / name).unlink()
    assert message(folder) == (
        f"{folder / 'model.safetensors'} is missing, but the log records a validation: restore the file, or give the "
        "training command again; it trains from the start"
    )
    train_to_end(files, folder, config)
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def garble(path: Path) -> None:
    path.write_bytes(b"\x00\xff\xfe garbage \n" * 9)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [cut, garble, empty, replace_by_a_folder])
@pytest.mark.parametrize("name", ["config.toml", "vocabulary.json", "model.safetensors"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, spoil: Callable[[Path], None]) -> None:
    folder = copy_run_folder(copy_task_run().run, tmp_path / "run")
    spoil(folder / name)
    if (name, spoil) == ("config.toml", cut):
        (folder / name).write_text("size = [")
    assert str(folder / name) in message(folder)


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    folder = copy_run_folder(copy_task_run().run, tmp_path / "run")
    (folder / "vocabulary.json").unlink()
    assert message(folder) == f"cannot read {folder / 'vocabulary.json'}: no such file or directory"


@pytest.mark.parametrize("content", ["[]", "{}", '{"source": 3}', '"\\ud800"', "nul"])
def test_json_without_a_vocabulary_is_refused(tmp_path: Path, content: str) -> None:
    folder = copy_run_folder(copy_task_run().run, tmp_path / "run")
    (folder / "vocabulary.json").write_text(content)
    assert message(folder).startswith(f"{folder / 'vocabulary.json'} is not a vocabulary: ")


def test_a_model_of_other_sizes_is_refused(tmp_path: Path) -> None:
    folder = copy_run_folder(copy_task_run().run, tmp_path / "run")
    settings = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(settings.replace("\nsize = 8\n", "\nsize = 9\n"))
    assert message(folder).startswith(f"{folder / 'model.safetensors'} does not fit the run's configuration")
    shutil.copy(digits_run().run / "vocabulary.json", folder)
    assert "model.safetensors" in message(folder)


def test_the_lock_is_held_once_and_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from pellucid.training.run_folder import lock_run_folder\n"
        "with lock_run_folder(Path(sys.argv[1])):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, "run"], stdout=subprocess.PIPE, cwd=tmp_path) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"locked\n"
        with (
            pytest.raises(RunError, match=r"run is in use: another training is writing to it"),
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


def test_a_lock_removed_by_another_training_does_not_count(tmp_path: Path) -> None:
    """Of two trainings that open the same file, the first removes it: the second must not write beside a third."""
    with lock_run_folder(tmp_path / "run"):
        opened = (tmp_path / "run" / ".lock").open("ab")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    with pytest.MonkeyPatch.context() as patched, pytest.raises(RunError, match="has just ended there"):
        patched.setattr(run_module, "open_regular_file", lambda path, mode: opened)
        with lock_run_folder(tmp_path / "run"):
            pass


def test_an_error_inside_the_lock_is_raised_unchanged(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="the network is slow"), lock_run_folder(tmp_path):
        raise TimeoutError("the network is slow")


def test_the_log_is_cut_back_to_the_checkpoint_and_continued(tmp_path: Path) -> None:
    counted = {"samples": 1, "epoch": 0, "seconds": 0.5}
    lines = [{"event": "stepped", "update": update, **counted, "loss": 1.5, "word": "naïve"} for update in (1, 2, 3)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"upda', "utf-8")
    assert read_log(tmp_path) == lines
    cut_log(tmp_path, Progress(update=2))
    assert read_log(tmp_path) == lines[:2]
    append_log(tmp_path, {"event": "stopped", "update": 2, **counted, "reason": "→"})
    assert [record["event"] for record in read_log(tmp_path)] == ["stepped", "stepped", "stopped"]
    assert (tmp_path / "log.jsonl").read_text("utf-8").splitlines()[-1] == json.dumps(
        {"event": "stopped", "update": 2, **counted, "reason": "→"}, ensure_ascii=False
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
    cut_log(tmp_path, Progress(update=9))


def test_no_log_is_an_empty_log(tmp_path: Path) -> None:
    assert read_log(tmp_path) == []


def test_the_saved_settings_contain_every_key() -> None:
    text = (copy_task_run().run / "config.toml").read_text("utf-8")
    assert all(f"[{name}]" in text for name in ("data", "encoder", "attention", "decoder", "training", "search"))
    keys = [line for line in text.splitlines() if " = " in line and not line.startswith("#")]
    assert len(keys) == f"\n{text}".count("\n# ") == len(flatten_config(copy_task_run().config))
