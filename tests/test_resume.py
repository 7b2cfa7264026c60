"""Interruptions, by a closed generator or a killed process, change no bit of the result of a training."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from trained_runs import (
    assert_same_outcome,
    copies,
    copies_run,
    copy_files,
    outcome,
    records,
    small_config,
    tensors,
    train_to_end,
    write_pairs,
)

from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.training import session as session_module
from pellucid.training import training_data as reading
from pellucid.training.events import TrainingStarted, TrainingStopped, UpdateCompleted, ValidationCompleted
from pellucid.training.run_folder import load
from pellucid.training.session import ModelBuilt, RunEvent, train_run
from pellucid.training.training_data import TrainingFiles

Stop = Callable[[RunEvent], bool]


def train_until(files: TrainingFiles, folder: Path, config: Config, stop: Stop) -> RunEvent:
    """Listen until an event, then close the generator as an interrupted command line does; that event."""
    torch.set_num_threads(1)
    events = train_run(files, folder, config)
    for event in events:
        if stop(event):
            events.close()
            return event
    raise AssertionError("training came to its end before")


def at_update(number: int, kind: type[RunEvent] = UpdateCompleted) -> Stop:
    return lambda event: isinstance(event, kind) and event.progress.update == number  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("schedule", "batch_type", "size"),
    [
        ("constant", "tokens", 40),
        ("cosine", "examples", 8),
        ("inverse-square-root", "tokens", 40),
        ("plateau", "examples", 8),
    ],
)
def test_interruptions_at_any_update_change_no_bit(tmp_path: Path, schedule: str, batch_type: str, size: int) -> None:
    """After the first update, in mid-epoch, right before a validation, at one, at the end of an epoch, at the end."""
    every = {"epochs": 13, "eval_interval": 1.7, "metric": "loss"}
    config = small_config({**every, "lr_schedule": schedule, "batch_type": batch_type, "batch_size": size}, dropout=0.4)
    files = copy_files(tmp_path)
    straight = train_to_end(files, tmp_path / "straight", config)
    validations = [event.progress.update for event in straight if isinstance(event, ValidationCompleted)]
    updates = straight[-1].progress.update if isinstance(straight[-1], TrainingStopped) else validations[-1]
    assert updates > 60 and "stepped" in {record["event"] for record in records(tmp_path / "straight")}
    places = [
        *(at_update(0, TrainingStarted), at_update(1), at_update(7), at_update(validations[1])),
        *(
            at_update(validations[1], ValidationCompleted),
            at_update(validations[2], ValidationCompleted),
            at_update(52),
        ),
        *(at_update(updates), at_update(updates, ValidationCompleted)),
    ]
    for place in places:
        train_until(files, tmp_path / "broken", config, place)
    train_to_end(files, tmp_path / "broken", config)
    assert_same_outcome(tmp_path / "straight", tmp_path / "broken")


MORE: dict[str, dict[str, dict[str, Any]]] = {
    "coverage": {"training": {"coverage_loss": 1.0}},
    "sampling": {"training": {"scheduled_sampling": "inverse-sigmoid", "sampling_probability": 0.5}},
    "consistency": {"training": {"rdrop_alpha": 1.0}},
    "moving average": {"training": {"weight_averaging": "ema", "ema_decay": 0.9}},
    "mean of the last": {"training": {"weight_averaging": "last", "averaged_checkpoints": 2}},
    "copies": {"training": {"augmentation": "copy"}},
    "copying": {"decoder": {"pointer_generator": True}, "data": {"min_count": 15}},
    "all": {
        "training": {
            **{"coverage_loss": 0.5, "scheduled_sampling": "linear", "rdrop_alpha": 1.0, "weight_averaging": "ema"},
            **{"augmentation": "copy", "augmentation_ratio": 1.5},
        },
        "decoder": {"pointer_generator": True},
        "data": {"min_count": 20},
    },
}


@pytest.mark.parametrize("settings", MORE.values(), ids=MORE)
def test_every_kind_of_training_resumes_bit_for_bit(tmp_path: Path, settings: dict[str, dict[str, Any]]) -> None:
    """Stopped in mid-epoch, before a validation and at one, each way of training ends as though it never was."""
    base = msgspec.to_builtins(small_config({"epochs": 4, "eval_interval": 0.7}, dropout=0.3))
    config = build_config(
        {key: {**base[key], **settings[key]} for key in settings} | _without_keys(base, settings), "test"
    )
    files = copy_files(tmp_path)
    straight = train_to_end(files, tmp_path / "straight", config)
    validation = [event.progress.update for event in straight if isinstance(event, ValidationCompleted)][1]
    places = [
        at_update(1),
        at_update(4),
        at_update(validation),
        at_update(validation, ValidationCompleted),
        at_update(validation + 2),
    ]
    for place in places:
        train_until(files, tmp_path / "broken", config, place)
    train_to_end(files, tmp_path / "broken", config)
    assert_same_outcome(tmp_path / "straight", tmp_path / "broken")
    load(tmp_path / "broken").predict(["abc"])


def _without_keys(base: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in base.items() if key not in settings}


def copy_states(run: Path, events: Iterator[RunEvent], copies_in: Path) -> Iterator[Path]:
    """A copy of the run folder after each event: what a process killed there leaves behind."""
    for number, _ in enumerate(events):
        if run.exists():
            yield Path(shutil.copytree(run, copies_in / str(number)))


@pytest.mark.parametrize(
    ("save_seconds", "skipped", "worth"),
    [(1000.0, 3, 1 << 20), (-1.0, 5, 1 << 20), (1000.0, 3, 0)],
    ids=["saved at validations", "saved at every update", "with a corpus"],
)
def test_a_process_killed_at_any_event_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_seconds: float, skipped: int, worth: int
) -> None:
    """Whether the examples are read again or mapped, the run that was never interrupted had them in memory."""
    files, straight, config = copies_run()
    monkeypatch.setattr(session_module, "SAVE_SECONDS", save_seconds)
    monkeypatch.setattr(reading, "MIN_CORPUS_SYMBOLS", worth)
    events = train_run(files, tmp_path / "run", config)
    left = list(copy_states(tmp_path / "run", events, tmp_path / "left"))
    assert len(left) > 20 and any((folder / "corpus.arrow").exists() for folder in left) == (not worth)
    for folder in left[::skipped]:
        train_to_end(files, folder, config)
        assert_same_outcome(straight, folder)
        said = [(record["event"], record.get("path"), record.get("update")) for record in records(folder)]
        assert len(said) == len(set(said)), folder.name


def test_a_log_line_cut_by_a_crash_is_forgotten(tmp_path: Path) -> None:
    files, straight, config = copies_run()
    train_until(files, tmp_path / "run", config, at_update(9))
    with open(tmp_path / "run" / "log.jsonl", "a", encoding="utf-8") as file:
        file.write('{"event": "validated", "update": 10, "loss": 1.0}\n{"event": "vali')
    train_to_end(files, tmp_path / "run", config)
    assert_same_outcome(straight, tmp_path / "run")


def test_closing_at_the_best_validation_keeps_its_model(tmp_path: Path) -> None:
    files, _, config = copies_run()
    for _ in range(3):
        event = train_until(files, tmp_path / "run", config, lambda event: isinstance(event, ValidationCompleted))
        assert isinstance(event, ValidationCompleted)
        model, (state, notes) = (tensors(tmp_path / "run" / f"{name}.safetensors") for name in ("model", "training"))
        assert msgspec.json.decode(notes["progress"])["update"] == event.progress.update
        if event.best:
            parameters = {n.removeprefix("network."): v for n, v in state.items() if n.startswith("network.")}
            outputs = [trace.output for trace in load(tmp_path / "run").trace(copies(10, seed=2))]
            assert model[0] == parameters and outputs == [trace.output for trace in event.traces]


def test_a_run_without_a_checkpoint_accepts_other_data(tmp_path: Path) -> None:
    config = copies_run().config
    train_until(copies_run().files, tmp_path / "run", config, lambda event: isinstance(event, ModelBuilt))
    examples = [Example("xyz"[: 1 + n % 3], "zyxw"[n % 4]) for n in range(20)]
    files = TrainingFiles(
        write_pairs(tmp_path / "a.tsv", examples[:15]), write_pairs(tmp_path / "b.tsv", examples[12:])
    )
    train_to_end(files, tmp_path / "run", config)
    train_to_end(files, tmp_path / "fresh", config)
    assert_same_outcome(tmp_path / "run", tmp_path / "fresh")
    assert load(tmp_path / "run").predict(["x"])[0].unknown == ()


def test_an_interrupted_start_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(path: Path, text: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("pellucid.training.run_folder.write_text", interrupt)
        train_to_end(copies_run().files, tmp_path / "run", copies_run().config)
    assert (tmp_path / "run" / "vocabulary.json").exists() and not (tmp_path / "run" / "config.toml").exists()
    train_to_end(copies_run().files, tmp_path / "run", copies_run().config)
    assert_same_outcome(copies_run().run, tmp_path / "run")


def test_two_seeds_differ_and_one_seed_does_not(tmp_path: Path) -> None:
    for name, seed in (("again", 1), ("other", 2)):
        train_to_end(copies_run().files, tmp_path / name, msgspec.structs.replace(copies_run().config, seed=seed))
    assert_same_outcome(copies_run().run, tmp_path / "again")
    assert outcome(copies_run().run)["moments"] != outcome(tmp_path / "other")["moments"]
