"""training/size_measurement.py: the size that a time limit allows, and the size of a started run."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trained_runs import digits_run, write_pairs

import pellucid
from pellucid.config.presets import LARGE_DATA
from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.examples import Example, read_examples
from pellucid.data.size_choice import size_for_file
from pellucid.errors import ConfigError, DataError, RunError
from pellucid.reporting.progress import training_progress
from pellucid.run_folder.run_files import saved_size
from pellucid.training import size_measurement
from pellucid.training.events import GIVEN_SIZE, Event, SizeChosen, SizeMeasurementSkipped, UpdateCompleted
from pellucid.training.loop import fit
from pellucid.training.preparation import prepare_data
from pellucid.training.size_measurement import (
    SIZES,
    MeasuredSize,
    MeasurementData,
    SizeSpeed,
    TrainingLength,
    choose_config_for_time_limit,
    choose_size,
    measure_and_choose_size,
    measure_speed,
)
from pellucid.training.training_data import TrainingFiles, encode_texts, read_files
from pellucid.training.training_state import TrainingState


def config_builder(settings: Mapping[str, Any], time_limit: str = "200s", epochs: float = 0) -> Any:  # noqa: ANN401
    """Return the function that adds a size to settings with a time limit."""
    training = {"time_limit": time_limit, "epochs": epochs}
    return lambda size: build_config({**settings, "training": training, "size": size}, "test")


LENGTH = TrainingLength(examples_per_epoch=1000, updates_per_epoch=100.0, max_epochs=60.0)


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ([SizeSpeed("large", 50.0, 1000.0)], MeasuredSize("large", 50.0, None)),  # 5,000 updates
        ([SizeSpeed("large", 49.0, 1000.0), SizeSpeed("base", 70.0, 990.0)], MeasuredSize("base", 69.3, "large")),
        (
            [SizeSpeed("large", 1.0, 100.0), SizeSpeed("base", 2.0, 0.0), SizeSpeed("small", 3.0, -5.0)],
            MeasuredSize("small", 0.0, "base"),
        ),
    ],
)
def test_largest_size_that_makes_enough_updates_is_chosen(speeds: Sequence[SizeSpeed], expected: MeasuredSize) -> None:
    faster = iter([*speeds, SizeSpeed("tiny", 1e9, 1e9)])
    chosen = choose_size(speeds, LENGTH)
    assert chosen._replace(epochs=0.0) == expected._replace(epochs=0.0)
    assert chosen.epochs == pytest.approx(expected.epochs)
    if expected.epochs:
        assert choose_size(faster, LENGTH) == chosen and len(list(faster)) == 1, "no further size is measured"


def test_a_training_of_few_updates_needs_the_time_of_all_of_them() -> None:
    short = LENGTH._replace(max_epochs=20.0)
    assert (LENGTH.needed_epochs, short.needed_epochs) == (50, 20)
    speeds = [SizeSpeed("large", 30.0, 1000.0), SizeSpeed("base", 60.0, 1000.0)]
    assert choose_size(speeds, short).size == "large" and choose_size(speeds, LENGTH).size == "base"


def test_the_time_of_reading_and_measuring_is_not_left_for_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the measured updates, and the second reading, by the training, were not subtracted."""
    clock, seconds = 0.0, list[float]()

    def _read(files: TrainingFiles, config: Config) -> MeasurementData:
        """Read for seven seconds."""
        nonlocal clock
        clock += 7
        return read_measured_data(files, config)

    def _measure(*_: object) -> float:
        """Measure for five seconds."""
        nonlocal clock
        clock += 5
        return 1e-9

    def _choose(speeds: Iterable[SizeSpeed], length: TrainingLength) -> MeasuredSize:
        """Record the seconds that are left."""
        found = list(speeds)
        seconds.extend(speed.seconds_left for speed in found)
        return choose_size(found, length)

    read_measured_data = size_measurement._read_measurement_data
    for name, function in (("_read_measurement_data", _read), ("measure_speed", _measure), ("choose_size", _choose)):
        monkeypatch.setattr(size_measurement, name, function)
    monkeypatch.setattr(size_measurement, "time", SimpleNamespace(monotonic=lambda: clock))
    monkeypatch.setattr(size_measurement, "compilation_seconds", lambda _: 0.0)
    chosen = measure_and_choose_size(digits_run().files, config_builder({}))
    assert (chosen.size, chosen.next_larger_size) == ("small", "base")
    assert chosen.estimated_updates == (("base", 1), ("small", 1)), "every measured size is recorded"
    usable = (1 - size_measurement.RESERVED_FRACTION) * 200
    assert seconds == pytest.approx([usable - 14 - 5, usable - 14 - 10])


def test_speed_is_that_of_updates() -> None:
    config: Config = config_builder({})("tiny")
    examples = read_examples(digits_run().files.train, config.data).examples[:50]
    measured = MeasurementData(50, 50, *encode_texts(examples, config), examples[:1])
    assert 10 < measure_speed(measured, config, 50, 100.0) < 1e7


@pytest.mark.parametrize(("seconds", "num_updates", "rate"), [(1e3, 14, 10), (65.0, 4, 10), (45.0, 2, 4), (0.0, 1, 4)])
def test_the_time_bounds_the_measured_updates(
    monkeypatch: pytest.MonkeyPatch, seconds: float, num_updates: int, rate: int
) -> None:
    """Regression test: 14 updates of each size were measured, however long they took. The first two are slower."""
    config: Config = build_config({"size": "tiny", "training": {"batch_size": 100}}, "test")
    examples = read_examples(digits_run().files.train, config.data).examples[:100]
    measured, num_done, clock = MeasurementData(100, 100, *encode_texts(examples, config), examples[:1]), 0, 0.0

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
    assert measure_and_choose_size(TrainingFiles(tmp_path / "prepared", None), config_builder({})).size in SIZES


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
    measured = size_measurement._read_measurement_data(files, config)
    assert measured.num_examples == 10 and measured.encoded.source.lengths.tolist() == [1, 3, 6, 8]


def test_updates_are_counted_by_the_batches_of_the_setting() -> None:
    """Regression test: batches of 40 tokens, which have few pairs, were counted as batches of 40 pairs."""
    updates = []
    for batch_type in ("examples", "tokens"):
        config: Config = build_config({"training": {"batch_type": batch_type, "batch_size": 40}}, "test")
        measured = size_measurement._read_measurement_data(digits_run().files, config)
        updates.append(size_measurement._training_length(measured, config).updates_per_epoch)
    assert updates[0] == -(-measured.num_examples // 40) and updates[1] > 2 * updates[0]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 300),
        ({"augmentation": "copy", "augmentation_ratio": 2.0}, 900),
        ({"mix_in": "old.tsv", "mix_in_fraction": 0.5}, 600),
        ({"augmentation": "copy", "augmentation_ratio": 2.0, "mix_in": "old.tsv", "mix_in_fraction": 0.25}, 1200),
    ],
)
def test_synthetic_and_earlier_examples_are_part_of_an_epoch(settings: Mapping[str, Any], expected: int) -> None:
    """Regression test: the earlier ones were not counted, so that twice as many epochs were announced."""
    config: Config = build_config({"training": {**settings, "epochs": 7}}, "test")
    examples = read_examples(digits_run().files.train, config.data).examples[:10]
    measured = MeasurementData(300, 300, *encode_texts(examples, config), examples[:1])
    length = size_measurement._training_length(measured, config)
    assert (length.examples_per_epoch, length.max_epochs) == (expected, 7)
    assert length.updates_per_epoch == 2 * expected / 10  # two batches of 8 and of 2 examples


def test_examples_that_are_held_out_are_not_measured() -> None:
    """Regression test: they were counted as training examples."""
    files, config = digits_run().files, build_config({}, "test")
    measured = size_measurement._read_measurement_data(TrainingFiles(files.train, None), config)
    data = read_files(TrainingFiles(files.train, None), config.data, None)
    assert data.validation_examples and measured.num_examples == len(data.training_examples)


def test_a_network_that_does_not_fit_in_memory_is_refused() -> None:
    settings = {"encoder": {"hidden_size": 2**18}, "decoder": {"hidden_size": 2**19}}
    with pytest.raises(ConfigError, match="of memory to train"):
        measure_and_choose_size(digits_run().files, config_builder(settings))


def test_a_measurement_needs_gradients(tmp_path: Path) -> None:
    with training_progress() as reporter, torch.no_grad(), pytest.raises(RunError, match="gradients"):
        choose_config_for_time_limit(tmp_path / "run", digits_run().files, config_builder({}), reporter.report)


def test_size_of_a_started_run_is_kept(tmp_path: Path) -> None:
    run = digits_run()
    assert saved_size(run.run) == run.config.size and saved_size(tmp_path) is None
    assert saved_size(tmp_path / "missing") is None
    sized = choose_config_for_time_limit(run.run, run.files, config_builder({}), lambda event: pytest.fail(str(event)))
    assert sized.config.size == run.config.size and sized.origin == GIVEN_SIZE


def test_a_pipe_is_not_read_for_a_measurement(tmp_path: Path) -> None:
    """Regression test: the training found the pipe empty, or waited for ever."""
    pipe, events = tmp_path / "pipe", list[object]()
    os.mkfifo(pipe)
    files = TrainingFiles(pipe, digits_run().files.valid)
    assert (
        choose_config_for_time_limit(tmp_path / "run", files, config_builder({}), events.append).config.size == "base"
    )
    files = TrainingFiles(digits_run().files.train, None, pipe)
    assert (
        choose_config_for_time_limit(tmp_path / "run", files, config_builder({}), events.append).config.size == "base"
    )
    assert events == [SizeMeasurementSkipped("base", pipe)] * 2


@pytest.mark.parametrize("num_members", [0, 2])
def test_a_foreign_folder_is_refused_before_the_measurement(tmp_path: Path, num_members: int) -> None:
    """Regression test: it was refused after the measurement, for which kernels may have been compiled for minutes."""
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    arguments = (tmp_path, digits_run().files, config_builder({}), lambda event: pytest.fail(str(event)), num_members)
    with pytest.raises(RunError, match="is not empty and holds no"):
        choose_config_for_time_limit(*arguments)


def test_a_started_ensemble_without_settings_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seed-1").mkdir()
    measured = SizeChosen("small", "100s", 1.0, 1.0, 20.0, "32 examples", None, 20.0)
    monkeypatch.setattr(size_measurement, "measure_and_choose_size", lambda *_: measured)
    events = list[object]()
    arguments = (tmp_path, digits_run().files, config_builder({}), events.append, 2, False)
    sized = choose_config_for_time_limit(*arguments)
    chosen = sized.origin.measured
    assert sized.config.size == "small" and events == [chosen] == [measured._replace(has_one_process=False)]


def test_vocabularies_of_the_measurement_are_those_of_all_examples(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Regression test: with words as targets, the output layer of the measured network was too small."""
    monkeypatch.setattr(size_measurement, "MEASURED_EXAMPLES", 4)
    path = write_pairs(tmp_path / "train.tsv", [Example("ab"[number % 2], f"word{number}") for number in range(10)])
    config = build_config({"data": {"target_symbols": "words"}}, "test")
    valid = write_pairs(tmp_path / "dev.tsv", [Example("aa", "word0")])
    measured = size_measurement._read_measurement_data(TrainingFiles(path, valid), config)
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
            measure_and_choose_size(files, config_builder({}), events.append)
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


def record_measured_sizes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the measurement by a very fast one; return the list of the sizes that are measured then."""
    sizes = list[str]()

    def _measure(measured: MeasurementData, config: Config, count: int, seconds: float) -> float:
        """Record the size."""
        sizes.append(config.size)
        return 1e9

    monkeypatch.setattr(size_measurement, "measure_speed", _measure)
    return sizes


def test_pairs_are_not_counted_before_the_measurement_reads_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Regression test: with a time limit, up to 5,000 pairs were read twice more to count them."""
    monkeypatch.setattr("pellucid.data.size_choice.size_for_file", lambda *_: pytest.fail("pairs were counted"))
    record_measured_sizes(monkeypatch)
    train = write_pairs(tmp_path / "train.tsv", [Example("ab"[number % 2] * number, "b") for number in range(1, 9)])
    training = {"time_limit": "1h", "epochs": 0.5, "pair_ngram": False}
    pellucid.train(train, None, tmp_path / "run", {"training": training}, progress=False)
    assert saved_size(tmp_path / "run") == "base"


def write_large_file(folder: Path) -> Path:
    """Write a training file of as many pairs as the size `large` needs by default."""
    train = folder / "train.tsv"
    train.write_text("".join(f"{number}\t{number}\n" for number in range(LARGE_DATA)), "utf-8")
    return train


def test_held_out_pairs_count_for_the_largest_size_that_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Regression test: with a time limit, the pairs were counted without those that are held out, and without, with."""
    sizes, train = record_measured_sizes(monkeypatch), write_large_file(tmp_path)
    measure_and_choose_size(TrainingFiles(train, None), config_builder({}))
    assert sizes == [size_for_file(train, config_builder({})("tiny").data, "transduce")] == ["large"]


@pytest.mark.parametrize(
    ("time_limit", "epochs", "largest"), [("119s", 0, "base"), ("2m", 0, "large"), ("119s", 1, "large")]
)
def test_large_is_not_measured_for_a_short_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, time_limit: str, epochs: float, largest: str
) -> None:
    """Regression test: the choice took 18 seconds of a minute, a third of them for a size that is never chosen then.

    All of its epochs may be few updates, however short the time.
    """
    sizes, train = record_measured_sizes(monkeypatch), write_large_file(tmp_path)
    chosen = measure_and_choose_size(TrainingFiles(train, None), config_builder({}, time_limit, epochs))
    assert sizes == [largest] == [chosen.size] and chosen.next_larger_size is None
