"""An interrupted training, by a closed generator or a killed process, ends with the same result bit for bit."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from trained_runs import (
    assert_runs_identical,
    comparable_log_records,
    comparable_run_contents,
    copy_task_run,
    make_copy_examples,
    make_small_config,
    read_tensors,
    train_to_end,
    write_copy_files,
    write_pairs,
)

from pellucid.config.settings import Cell, Config
from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.kernels.microkernel import HAS_BFLOAT16
from pellucid.run_folder.predictor_loader import load, load_without_warnings
from pellucid.training import corpus_cache, run_folder_writer
from pellucid.training import session as session_module
from pellucid.training.events import (
    ModelBuilt,
    RunEvent,
    TrainingStarted,
    TrainingStopped,
    UpdateCompleted,
    ValidationCompleted,
)
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles

Stop = Callable[[RunEvent], bool]


def train_until(files: TrainingFiles, folder: Path, config: Config, stop: Stop) -> RunEvent:
    """Train until an event, close the generator as the interrupted command does, and return the event."""
    torch.set_num_threads(1)
    events = train_run(files, folder, config)
    for event in events:
        if stop(event):
            events.close()
            return event
    raise AssertionError("the training ended before the event")


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
    """The stops are at the start, in mid-epoch, before and at validations, and at the ends of epochs and training."""
    training = {"epochs": 13, "eval_interval": 1.7, "metric": "loss"}
    config = make_small_config(
        {**training, "lr_schedule": schedule, "batch_type": batch_type, "batch_size": size}, dropout=0.4
    )
    files = write_copy_files(tmp_path)
    events = train_to_end(files, tmp_path / "uninterrupted", config)
    validations = [event.progress.update for event in events if isinstance(event, ValidationCompleted)]
    updates = events[-1].progress.update if isinstance(events[-1], TrainingStopped) else validations[-1]
    assert updates > 60 and "stepped" in {
        record["event"] for record in comparable_log_records(tmp_path / "uninterrupted")
    }
    stops = [
        *(at_update(0, TrainingStarted), at_update(1), at_update(7), at_update(validations[1])),
        *(
            at_update(validations[1], ValidationCompleted),
            at_update(validations[2], ValidationCompleted),
            at_update(52),
        ),
        *(at_update(updates), at_update(updates, ValidationCompleted)),
    ]
    for stop in stops:
        train_until(files, tmp_path / "interrupted", config, stop)
    train_to_end(files, tmp_path / "interrupted", config)
    assert_runs_identical(tmp_path / "uninterrupted", tmp_path / "interrupted")


TRAINING_SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "coverage": {"training": {"coverage_loss": 1.0}},
    "sampling": {"training": {"scheduled_sampling": "inverse-sigmoid", "sampling_probability": 0.5}},
    "consistency": {"training": {"rdrop_alpha": 1.0}},
    "sampled softmax": {"training": {"sampled_softmax": 6}},
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


@pytest.mark.slow
@pytest.mark.parametrize("settings", TRAINING_SETTINGS.values(), ids=TRAINING_SETTINGS)
def test_every_kind_of_training_resumes_bit_for_bit(tmp_path: Path, settings: dict[str, dict[str, Any]]) -> None:
    """The stops are in mid-epoch, before a validation and at a validation."""
    base = msgspec.to_builtins(make_small_config({"epochs": 4, "eval_interval": 0.7}, dropout=0.3))
    config = build_config(
        {key: {**base[key], **settings[key]} for key in settings} | _other_settings(base, settings), "test"
    )
    files = write_copy_files(tmp_path)
    uninterrupted = train_to_end(files, tmp_path / "uninterrupted", config)
    validation = [event.progress.update for event in uninterrupted if isinstance(event, ValidationCompleted)][1]
    stops = [
        at_update(1),
        at_update(4),
        at_update(validation),
        at_update(validation, ValidationCompleted),
        at_update(validation + 2),
    ]
    for stop in stops:
        train_until(files, tmp_path / "interrupted", config, stop)
    train_to_end(files, tmp_path / "interrupted", config)
    assert_runs_identical(tmp_path / "uninterrupted", tmp_path / "interrupted")
    load(tmp_path / "interrupted").predict(["abc"])


@pytest.mark.slow
@pytest.mark.skipif(not HAS_BFLOAT16, reason="needs avx512_bf16")
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_training_in_bfloat16_resumes_bit_for_bit(tmp_path: Path, cell: Cell) -> None:
    """The parameters, the moments and the validations are in float32; another precision is another training."""
    config = make_small_config({"epochs": 3, "eval_interval": 0.7}, dropout=0.3)
    encoder, decoder = (msgspec.structs.replace(part, cell=cell) for part in (config.encoder, config.decoder))
    config = msgspec.structs.replace(config, encoder=encoder, decoder=decoder, precision="bf16")
    files = write_copy_files(tmp_path)
    train_to_end(files, tmp_path / "uninterrupted", config)
    for stop in (at_update(1), at_update(5), at_update(9)):
        train_until(files, tmp_path / "interrupted", config, stop)
    train_to_end(files, tmp_path / "interrupted", config)
    assert_runs_identical(tmp_path / "uninterrupted", tmp_path / "interrupted")
    parameters, _ = read_tensors(tmp_path / "interrupted" / "model.safetensors")
    assert all(tensor.startswith(b"torch.float32 ") for tensor in parameters.values())
    float32 = msgspec.structs.replace(config, precision="float32")
    train_to_end(files, tmp_path / "float32", float32)
    others, _ = read_tensors(tmp_path / "float32" / "model.safetensors")
    assert parameters != others


def _other_settings(base: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in base.items() if key not in settings}


def copy_run_after_each_event(run: Path, events: Iterator[RunEvent], destination: Path) -> Iterator[Path]:
    """Yield a copy of the run folder after each event, as a process killed there leaves it."""
    for number, _ in enumerate(events):
        if run.exists():
            yield Path(shutil.copytree(run, destination / str(number)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("save_seconds", "interval", "min_corpus_symbols"),
    [(1000.0, 3, 1 << 20), (-1.0, 5, 1 << 20), (1000.0, 3, 0)],
    ids=["saved at validations", "saved at every update", "with a corpus"],
)
def test_a_process_killed_at_any_event_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_seconds: float, interval: int, min_corpus_symbols: int
) -> None:
    """The examples are read again or mapped from a corpus file; the uninterrupted run had them in memory."""
    files, uninterrupted, config = copy_task_run()
    monkeypatch.setattr(run_folder_writer, "SAVE_SECONDS", save_seconds)
    monkeypatch.setattr(corpus_cache, "MIN_CORPUS_SYMBOLS", min_corpus_symbols)
    events = train_run(files, tmp_path / "run", config)
    copied_runs = list(copy_run_after_each_event(tmp_path / "run", events, tmp_path / "left"))
    assert len(copied_runs) > 20 and any((folder / "corpus.arrow").exists() for folder in copied_runs) == (
        not min_corpus_symbols
    )
    for folder in copied_runs[::interval]:
        train_to_end(files, folder, config)
        assert_runs_identical(uninterrupted, folder)
        logged = [
            (record["event"], record.get("path"), record.get("update")) for record in comparable_log_records(folder)
        ]
        assert len(logged) == len(set(logged)), folder.name


def test_a_log_line_cut_by_a_crash_is_removed(tmp_path: Path) -> None:
    files, uninterrupted, config = copy_task_run()
    train_until(files, tmp_path / "run", config, at_update(9))
    with open(tmp_path / "run" / "log.jsonl", "a", encoding="utf-8") as file:
        file.write('{"event": "validated", "update": 10, "loss": 1.0}\n{"event": "vali')
    train_to_end(files, tmp_path / "run", config)
    assert_runs_identical(uninterrupted, tmp_path / "run")


def test_closing_at_the_best_validation_saves_its_model(tmp_path: Path) -> None:
    files, _, config = copy_task_run()
    for _ in range(3):
        event = train_until(files, tmp_path / "run", config, lambda event: isinstance(event, ValidationCompleted))
        assert isinstance(event, ValidationCompleted)
        model, (state, notes) = (
            read_tensors(tmp_path / "run" / f"{name}.safetensors") for name in ("model", "training")
        )
        assert msgspec.json.decode(notes["progress"])["update"] == event.progress.update
        if event.is_best:
            parameters = {n.removeprefix("network."): v for n, v in state.items() if n.startswith("network.")}
            predictor = load_without_warnings(tmp_path / "run").with_beam(1)  # as in validation
            outputs = [trace.output for trace in predictor.predict_examples(make_copy_examples(10, seed=2))]
            assert model[0] == parameters and outputs == [trace.output for trace in event.traces]


def test_a_run_without_a_checkpoint_accepts_other_data(tmp_path: Path) -> None:
    config = copy_task_run().config
    train_until(copy_task_run().files, tmp_path / "run", config, lambda event: isinstance(event, ModelBuilt))
    examples = [Example("xyz"[: 1 + n % 3], "zyxw"[n % 4]) for n in range(20)]
    files = TrainingFiles(
        write_pairs(tmp_path / "a.tsv", examples[:15]), write_pairs(tmp_path / "b.tsv", examples[12:])
    )
    train_to_end(files, tmp_path / "run", config)
    train_to_end(files, tmp_path / "fresh", config)
    assert_runs_identical(tmp_path / "run", tmp_path / "fresh")
    assert load(tmp_path / "run").predict(["x"])[0].unknown == ()


def test_an_interrupted_start_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(path: Path, text: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("pellucid.run_folder.initialization.write_text", interrupt)
        train_to_end(copy_task_run().files, tmp_path / "run", copy_task_run().config)
    assert not (tmp_path / "run" / "vocabulary.json").exists() and not (tmp_path / "run" / "config.toml").exists()
    train_to_end(copy_task_run().files, tmp_path / "run", copy_task_run().config)
    assert_runs_identical(copy_task_run().run, tmp_path / "run")


def test_equal_seeds_give_equal_runs_and_other_seeds_do_not(tmp_path: Path) -> None:
    for name, seed in (("again", 1), ("other", 2)):
        train_to_end(copy_task_run().files, tmp_path / name, msgspec.structs.replace(copy_task_run().config, seed=seed))
    assert_runs_identical(copy_task_run().run, tmp_path / "again")
    assert (
        comparable_run_contents(copy_task_run().run)["moments"]
        != comparable_run_contents(tmp_path / "other")["moments"]
    )


def test_kernels_are_loaded_before_a_resumed_training_validates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels and PyTorch round differently, and the undisturbed training validates with kernels."""
    files, _, config = copy_task_run()
    folder, order = tmp_path / "run", list[str]()
    first_validation = train_until(files, tmp_path / "undisturbed", config, is_validation)
    assert isinstance(first_validation, ValidationCompleted)
    train_until(files, folder, config, at_update(first_validation.progress.update))
    monkeypatch.setattr(session_module, "load_kernels", lambda: order.append("kernels are loaded"))
    for event in train_run(files, folder, config):
        order += ["validation"] * is_validation(event) + ["update"] * isinstance(event, UpdateCompleted)
    assert order[:2] == ["kernels are loaded", "validation"] and order.count("kernels are loaded") == 1
    assert len(list(train_run(files, folder, config))) > 0 and order.count("kernels are loaded") == 1


def is_validation(event: RunEvent) -> bool:
    return isinstance(event, ValidationCompleted)
