"""training/size_measurement.py: the size that a time limit allows, and the size of a started run."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trained_runs import digits_run, write_pairs

import pellucid
from pellucid.config.settings import Config, Size
from pellucid.config.toml import build_config
from pellucid.data.examples import Example, read_examples
from pellucid.errors import ConfigError, DataError, RunError
from pellucid.reporting.progress import training_progress
from pellucid.run_folder.run_files import saved_size
from pellucid.training import size_measurement
from pellucid.training.events import Event, SizeChosen, SizeMeasurementSkipped, UpdateCompleted
from pellucid.training.loop import TrainingState, fit
from pellucid.training.preparation import prepare_data
from pellucid.training.size_measurement import SIZES, MeasuredData, choose_size, config_within_time, measure_speed
from pellucid.training.training_data import TrainingFiles, encode_texts


def config_builder(settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 (a function)
    """Return the function that adds a size to settings with a time limit."""
    return lambda size: build_config({**settings, "training": {"time_limit": "100s"}, "size": size}, "test")


@pytest.mark.parametrize(
    ("speeds", "expected", "too_slow"),
    [
        ({"base": 1e9, "large": 1e9}, "large", None),
        ({"base": 1e9, "large": 1e-9}, "base", "large"),
        ({"small": 1e9, "base": 1e-9, "large": 1e-9}, "small", "base"),
        ({"small": 1e-9, "base": 1e-9, "large": 1e-9}, "small", "base"),
    ],
)
def test_largest_size_that_makes_enough_updates_is_chosen(
    monkeypatch: pytest.MonkeyPatch, speeds: Mapping[Size, float], expected: Size, too_slow: Size | None
) -> None:
    monkeypatch.setattr(size_measurement, "default_size", lambda *_: "large")
    monkeypatch.setattr(size_measurement, "measure_speed", lambda _, config, *__: speeds[config.size])
    measured = choose_size(digits_run().files, config_builder({}))
    assert measured.size == expected and measured.too_slow == too_slow
    assert measured.needed_updates <= size_measurement.MIN_UPDATES and measured.batch_size.endswith(" examples")


def test_speed_is_that_of_updates() -> None:
    config: Config = config_builder({})("tiny")
    examples = read_examples(digits_run().files.train, config.data).examples[:50]
    measured = MeasuredData(50, *encode_texts(examples, config), examples[:1])
    assert 10 < measure_speed(measured, config, 50, 100.0) < 1e7


@pytest.mark.parametrize(("seconds", "num_updates", "rate"), [(1e3, 14, 10), (65.0, 4, 10), (45.0, 2, 4), (0.0, 1, 4)])
def test_the_time_bounds_the_measured_updates(
    monkeypatch: pytest.MonkeyPatch, seconds: float, num_updates: int, rate: int
) -> None:
    """Regression test: 14 updates of each size were measured, however long they took. The first two are slower."""
    config: Config = build_config({"size": "tiny", "training": {"batch_size": 100}}, "test")
    examples = read_examples(digits_run().files.train, config.data).examples[:100]
    measured, num_done, clock = MeasuredData(100, *encode_texts(examples, config), examples[:1]), 0, 0.0

    def fit_slowly(state: TrainingState) -> Iterator[Event]:
        nonlocal num_done, clock
        for event in fit(state):
            if isinstance(event, UpdateCompleted):
                num_done, clock = num_done + 1, clock + (10 if num_done >= 2 else 25)
            yield event

    monkeypatch.setattr(size_measurement, "fit", fit_slowly)
    monkeypatch.setattr(size_measurement, "time", SimpleNamespace(perf_counter=lambda: clock))
    assert measure_speed(measured, config, 100, seconds) == rate and num_done == num_updates


def test_prepared_data_is_measured_without_its_texts(tmp_path: Path) -> None:
    files = digits_run().files
    list(prepare_data(files, tmp_path / "prepared", build_config({}, "test")))
    assert choose_size(TrainingFiles(tmp_path / "prepared", None), config_builder({})).size in SIZES


@pytest.mark.parametrize("is_prepared", [False, True])
def test_examples_of_the_whole_file_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_prepared: bool
) -> None:
    """Regression test: of a file sorted by length, the shortest ones were measured."""
    monkeypatch.setattr(size_measurement, "MEASURED_EXAMPLES", 4)
    path = write_pairs(tmp_path / "train.tsv", [Example("a" * length, "b") for length in range(1, 11)])
    valid = write_pairs(tmp_path / "dev.tsv", [Example("aa", "c")])
    files, config = TrainingFiles(path, valid), build_config({"data": {"source_symbols": "characters"}}, "test")
    if is_prepared:
        list(prepare_data(files, tmp_path / "prepared", config))
        files = TrainingFiles(tmp_path / "prepared", None)
    measured = size_measurement._read_measured_data(files, config)
    assert measured.num_examples == 10 and measured.encoded.source.lengths.tolist() == [1, 3, 6, 8]


@pytest.mark.parametrize(("batch_type", "expected"), [("examples", "small"), ("tokens", "base")])
def test_updates_are_counted_by_the_batches_of_the_setting(
    monkeypatch: pytest.MonkeyPatch, batch_type: str, expected: Size
) -> None:
    """Regression test: batches of 40 tokens, which have few pairs, were counted as batches of 40 pairs."""
    training = {"time_limit": "100s", "batch_type": batch_type, "batch_size": 40, "epochs": 200.0}
    monkeypatch.setattr(size_measurement, "default_size", lambda *_: "base")
    monkeypatch.setattr(size_measurement, "MIN_UPDATES", 300)
    monkeypatch.setattr(size_measurement, "measure_speed", lambda *_: 60.0)  # 17 epochs of 300 pairs
    measured = choose_size(digits_run().files, lambda size: build_config({"size": size, "training": training}, "test"))
    assert measured.size == expected and measured.max_epochs == 200


@pytest.mark.parametrize(("augmentation", "factor"), [("none", 1), ("copy", 3)])
def test_synthetic_examples_are_part_of_an_epoch(
    monkeypatch: pytest.MonkeyPatch, augmentation: str, factor: int
) -> None:
    files, counts = digits_run().files, list[int]()

    def _measure_speed(measured: MeasuredData, config: Config, count: int, seconds: float) -> float:
        """Return the speed at which the unaugmented examples take ten seconds."""
        assert seconds == pytest.approx(size_measurement.MEASURED_SHARE * 3600)
        counts.append(count // measured.num_examples)
        return measured.num_examples / 10

    monkeypatch.setattr(size_measurement, "measure_speed", _measure_speed)
    training = {"augmentation": augmentation, "augmentation_ratio": 2.0, "time_limit": "1h", "epochs": 1}
    measured = choose_size(files, lambda size: build_config({"size": size, "training": training}, "test"))
    assert counts == [factor]
    assert measured.epochs == pytest.approx((1 - size_measurement.RESERVED_SHARE) * 3600 / 10 / factor, rel=0.05)


def test_a_network_that_does_not_fit_in_memory_is_refused() -> None:
    settings = {"encoder": {"hidden_size": 2**18}, "decoder": {"hidden_size": 2**19}}
    with pytest.raises(ConfigError, match="of memory to train"):
        choose_size(digits_run().files, config_builder(settings))


def test_a_measurement_needs_gradients(tmp_path: Path) -> None:
    with training_progress() as reporter, torch.no_grad(), pytest.raises(RunError, match="gradients"):
        config_within_time(tmp_path / "run", digits_run().files, config_builder({}), reporter.report)


def test_size_of_a_started_run_is_kept(tmp_path: Path) -> None:
    run = digits_run()
    assert saved_size(run.run) == run.config.size and saved_size(tmp_path) is None
    assert saved_size(tmp_path / "missing") is None
    config = config_within_time(run.run, run.files, config_builder({}), lambda event: pytest.fail(str(event)))
    assert config.size == run.config.size


def test_a_pipe_is_not_read_for_a_measurement(tmp_path: Path) -> None:
    """Regression test: the training found the pipe empty, or waited for ever."""
    pipe, events = tmp_path / "pipe", list[object]()
    os.mkfifo(pipe)
    files = TrainingFiles(pipe, digits_run().files.valid)
    assert config_within_time(tmp_path / "run", files, config_builder({}), events.append).size == "base"
    files = TrainingFiles(digits_run().files.train, None, pipe)
    assert config_within_time(tmp_path / "run", files, config_builder({}), events.append).size == "base"
    assert events == [SizeMeasurementSkipped("base", pipe)] * 2


@pytest.mark.parametrize("num_members", [0, 2])
def test_a_foreign_folder_is_refused_before_the_measurement(tmp_path: Path, num_members: int) -> None:
    """Regression test: it was refused after the measurement, for which kernels may have been compiled for minutes."""
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    arguments = (tmp_path, digits_run().files, config_builder({}), lambda event: pytest.fail(str(event)), num_members)
    with pytest.raises(RunError, match="is not empty and holds no"):
        config_within_time(*arguments)


def test_a_started_ensemble_without_settings_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seed-1").mkdir()
    measured = SizeChosen("small", "100s", 1.0, 1.0, 20.0, "32 examples", None, 20.0)
    monkeypatch.setattr(size_measurement, "choose_size", lambda *_: measured)
    events = list[object]()
    arguments = (tmp_path, digits_run().files, config_builder({}), events.append, 2, False)
    assert config_within_time(*arguments).size == "small"
    assert events == [measured._replace(is_alone=False)]


def test_vocabularies_of_the_measurement_are_those_of_all_examples(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Regression test: with words as targets, the output layer of the measured network was too small."""
    monkeypatch.setattr(size_measurement, "MEASURED_EXAMPLES", 4)
    path = write_pairs(tmp_path / "train.tsv", [Example("ab"[number % 2], f"word{number}") for number in range(10)])
    config = build_config({"data": {"target_symbols": "words"}}, "test")
    measured = size_measurement._read_measured_data(TrainingFiles(path, None), config)
    assert len(measured.vocabularies.target.symbols) == 10 and measured.encoded.target.num_sequences == 4


def test_bad_validation_sets_are_refused_before_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: they were refused after it."""
    monkeypatch.setattr(size_measurement, "load_kernels", lambda: pytest.fail("the measurement began"))
    monkeypatch.setattr(size_measurement, "measure_speed", lambda *_: pytest.fail("the measurement began"))
    single = write_pairs(tmp_path / "single.tsv", [Example("a", "b"), Example("a", "c")])
    same = write_pairs(tmp_path / "same.tsv", [Example("a", "c"), Example("a", "b")])
    events = list[object]()
    for files, message in (
        (TrainingFiles(single, None), "has a single source"),
        (TrainingFiles(single, same), "holds the same examples as"),
        (TrainingFiles(single, tmp_path / "missing.tsv"), r"missing\.tsv"),
    ):
        with pytest.raises(DataError, match=message):
            choose_size(files, config_builder({}), events.append)
    assert not events


@pytest.mark.slow
def test_a_measurement_does_not_change_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a long time limit the epochs decide the learning rate, so both trainings have the same bits."""
    training = {"epochs": 0.5, "batch_size": 10, "time_limit": "10h", "pair_ngram": False}
    files = digits_run().files
    for name, sizes in (("measured", {}), ("given", {"size": "base"})):
        pellucid.train(files.train, files.valid, tmp_path / name, {**sizes, "training": training})
        assert ("size base: " in capsys.readouterr().err) == (name == "measured")
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("measured", "given")]
    assert models[0] == models[1]
