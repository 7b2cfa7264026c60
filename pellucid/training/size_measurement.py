"""The size of a network for a training with a time limit, from the speed of a few updates on this machine."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from pellucid.config.durations import parse_duration
from pellucid.config.presets import default_size
from pellucid.config.settings import Config, Size
from pellucid.data.batches import bucket_by_length
from pellucid.data.encoding import EncodedExamples
from pellucid.data.examples import Example
from pellucid.data.prepared_data import read_description
from pellucid.data.vocabulary import Vocabularies
from pellucid.kernels.dispatch import are_kernels_disabled, will_compile
from pellucid.kernels.kernel_loader import compilation_seconds, load_kernels
from pellucid.model.device import (
    check_gradients,
    check_precision,
    check_torch_defaults,
    find_device,
    use_determinism,
    use_threads,
)
from pellucid.run_folder.initialization import check_training_folder
from pellucid.run_folder.run_files import saved_size
from pellucid.tasks.registry import encode_for_task
from pellucid.training.ensemble_training import check_ensemble_folder, plan_ensemble
from pellucid.training.events import (
    DEFAULT_SIZE,
    GIVEN_SIZE,
    SizeChosen,
    SizeMeasurementSkipped,
    SizeMeasurementStarted,
    SizeOrigin,
    UpdateCompleted,
)
from pellucid.training.loop import fit
from pellucid.training.session import build_checked_network, build_state
from pellucid.training.training_data import (
    TrainingInputs,
    find_stream,
    input_paths,
    learn_symbols,
    prepared_folder,
    read_prepared_data,
    read_training_examples,
    resolve_auto_settings,
    split_checked_examples,
)
from pellucid.training.training_length import derived_batch_size, derived_epochs, examples_per_epoch, max_updates
from pellucid.training.training_lock import one_training_thread
from pellucid.training.validation_sample import sample_evenly

SIZES: tuple[Size, ...] = ("small", "base", "large")
"""Sizes that a time limit may choose, from the fastest."""
MIN_UPDATES = 5_000
"""Minimum number of updates for which a size is chosen: with fewer, a smaller network is more accurate
(docs/ablations.md)."""
MEASURED_EXAMPLES = 20_000
"""Maximum number of training examples that are measured, and from which subwords are learned."""
UNMEASURED_UPDATES = 2
"""Number of first updates, which allocate memory and are slower."""
MEASURED_UPDATES = 12
"""Number of updates whose time is measured."""
MEASURED_FRACTION = 0.05
"""Part of a time limit after which the measured updates of a size end, before they are `MEASURED_UPDATES`."""
SHORT_LIMIT = 120.0
"""Seconds of a time limit below which `large` is not measured on a CPU, which hardly makes `MIN_UPDATES` then."""
RESERVED_FRACTION = 0.15
"""Part of a time limit that is not spent on updates: reading, validations and the pair n-gram model."""


class SizedConfig(NamedTuple):
    """Configuration of a training with a time limit, and how its size was chosen."""

    config: Config
    origin: SizeOrigin
    """`DEFAULT_SIZE` if no speed was measured, because the training file cannot be read twice; `GIVEN_SIZE` if the run
    was started before."""


def choose_config_for_time_limit(
    folder: Path,
    files: TrainingInputs,
    build_config: Callable[[Size], Config],
    report: Callable[[SizeMeasurementStarted | SizeChosen | SizeMeasurementSkipped], None],
    num_members: int = 0,
    has_one_process: bool = True,
) -> SizedConfig:
    """Return the configuration of a training with a time limit and without a given size.

    Args:
        folder: Run folder, or folder of an ensemble. The size of a started run is kept.
        files: Training data. If a file cannot be read twice, such as a pipe, no speed is measured, and the size is the
            default of a small file.
        build_config: Function that returns the configuration of a size, with its time limit.
        report: Function that displays the start of the measurement and the chosen size; it is not called for a started
            run.
        num_members: Number of members of an ensemble; 0, the default, for a single run.
        has_one_process: False if several processes train at once, or on other machines, so that the speed of one
            process here is not that of the training; True by default.

    Raises:
        DataError: The training file cannot be read or holds no example, or a line is bad.
        ConfigError: A setting is invalid, or there is not enough memory.
        RunError: The folder holds other files; another thread of this process is training; or torch's default type is
            not float32, its default device is "meta", or it computes no gradients.
        DivergenceError: A loss or gradient is not finite.
    """
    saved = saved_size(folder)
    if saved is not None:
        return SizedConfig(build_config(saved), GIVEN_SIZE)
    check_torch_defaults()
    check_gradients()
    config = build_config(default_size())
    check_precision(find_device(config.device), config.precision)
    if num_members:
        members = plan_ensemble(files, folder, config, num_members)
        check_ensemble_folder(folder, [member.folder.name for member in members])
    else:
        check_training_folder(folder, input_paths(files, config))
    stream = find_stream([files.train, files.train_target])
    if stream is not None:
        report(SizeMeasurementSkipped(config.size, stream))
        return SizedConfig(config, DEFAULT_SIZE)
    with one_training_thread():
        chosen = measure_and_choose_size(files, build_config, report)._replace(has_one_process=has_one_process)
    report(chosen)
    return SizedConfig(build_config(chosen.size), SizeOrigin(measured=chosen))


def measure_and_choose_size(
    files: TrainingInputs,
    build_config: Callable[[Size], Config],
    report: Callable[[SizeMeasurementStarted], None] = lambda event: None,
) -> SizeChosen:
    """Return the size that `choose_size` chooses for a time limit, from a few measured updates of each size.

    Args:
        files: Training data.
        build_config: Function that returns the configuration of a size, with its time limit.
        report: Function that displays the start of the measurement; by default, nothing is displayed.

    Raises:
        DataError: The training file cannot be read or holds no example, or a line is bad.
        ConfigError: A setting is invalid, or there is not enough memory.
    """
    started_at, config = time.monotonic(), build_config(default_size())
    data = _read_measurement_data(files, config)
    reading_seconds = time.monotonic() - started_at
    time_limit, length = config.training.time_limit, _training_length(data, config)
    limit = parse_duration("training.time_limit", time_limit)
    use_threads(config.threads)
    use_determinism(config)
    uses_cpu = find_device(config.device).type == "cpu"
    report(SizeMeasurementStarted(time_limit, data.num_examples, uses_cpu and will_compile()))
    if uses_cpu and not are_kernels_disabled():
        load_kernels()  # compiles them on a new machine, which is not part of the speed

    largest = default_size(data.num_pairs, config.task)
    if largest == "large" and uses_cpu and limit < SHORT_LIMIT and length.needed_epochs < length.max_epochs:
        largest = "base"
    speeds = list[SizeSpeed]()

    def measure_speeds() -> Iterator[SizeSpeed]:
        for size in reversed(SIZES[: SIZES.index(largest) + 1]):
            rate = measure_speed(data, build_config(size), length.examples_per_epoch, MEASURED_FRACTION * limit)
            elapsed = time.monotonic() - started_at - compilation_seconds(started_at)
            # The training will read the files again.
            speeds.append(SizeSpeed(size, rate, (1 - RESERVED_FRACTION) * limit - elapsed - reading_seconds))
            yield speeds[-1]

    choice = choose_size(measure_speeds(), length)
    batch_size = f"{_batch_size(config, length.examples_per_epoch):,} {config.training.batch_type}"
    return SizeChosen(
        choice.size,
        time_limit,
        choice.epochs,
        length.max_epochs,
        length.updates_per_epoch,
        batch_size,
        choice.next_larger_size,
        length.needed_epochs * length.updates_per_epoch,
        estimated_updates=tuple((speed.size, estimate_updates(speed, length)) for speed in speeds),
        # No size is measured after the chosen one.
        updates_per_second=speeds[-1].examples_per_second / length.examples_per_epoch * length.updates_per_epoch,
    )


class TrainingLength(NamedTuple):
    """Length of a training without a time limit."""

    examples_per_epoch: int
    """Number of training examples of an epoch, synthetic and earlier ones included."""
    updates_per_epoch: float
    """Estimated number of updates of an epoch."""
    max_epochs: float
    """Maximum number of epochs."""

    @property
    def needed_epochs(self) -> float:
        """Number of epochs for which the time of a size should be enough: `MIN_UPDATES` updates, or all if they are
        fewer."""
        return min(self.max_epochs, MIN_UPDATES / self.updates_per_epoch)


class SizeSpeed(NamedTuple):
    """Speed of the training of a size."""

    size: Size
    examples_per_second: float
    """Number of training examples per second."""
    seconds_left: float
    """Seconds of the time limit that are left for updates; negative if it has passed."""


class MeasuredSize(NamedTuple):
    """Size for whose training the time is enough, by its measured speed."""

    size: Size
    epochs: float
    """Estimated number of epochs for which the time is enough; it may exceed the maximum."""
    next_larger_size: Size | None
    """The size before it, for which the time is not enough; None if it is the first."""


def estimate_epochs(speed: SizeSpeed, length: TrainingLength) -> float:
    """Return t·v / n, the epochs that a training of n examples per epoch makes in t seconds at v examples per second.

    Args:
        speed: Speed of a size, and the seconds that are left.
        length: Length of the training without a time limit.
    """
    return max(0.0, speed.seconds_left) * speed.examples_per_second / length.examples_per_epoch


def estimate_updates(speed: SizeSpeed, length: TrainingLength) -> int:
    """Return the number of updates that a training makes in the seconds that are left, or of all its epochs if fewer.

    Args:
        speed: Speed of a size, and the seconds that are left.
        length: Length of the training without a time limit.
    """
    return max_updates(min(length.max_epochs, estimate_epochs(speed, length)), length.updates_per_epoch)


def choose_size(speeds: Iterable[SizeSpeed], length: TrainingLength) -> MeasuredSize:
    """Return the first size for which the time is enough, else the last.

    The time is enough if it allows at least `length.needed_epochs` (`estimate_epochs`).

    Args:
        speeds: Speeds from the largest size to the smallest, at least one. No further one is taken, and may be
            measured, once the time is enough for a size.
        length: Length of the training without a time limit.
    """
    choice: MeasuredSize | None = None
    for speed in speeds:
        epochs = estimate_epochs(speed, length)
        choice = MeasuredSize(speed.size, epochs, None if choice is None else choice.size)
        if epochs >= length.needed_epochs:
            break
    assert choice is not None, "expected at least one size"
    return choice


class MeasurementData(NamedTuple):
    """Data of the measurement: a sample of the training examples, evenly spaced because a file may be sorted."""

    num_pairs: int
    """Number of pairs by which a default size is chosen, those that are held out for validation included."""
    num_examples: int
    """Number of all training examples, not of the sample."""
    vocabularies: Vocabularies
    encoded: EncodedExamples
    """Training examples of the sample in ids."""
    validation_examples: Sequence[Example]
    """One example, since `fit` needs a validation set; it is never decoded."""


def _read_measurement_data(files: TrainingInputs, config: Config) -> MeasurementData:
    """Return the data of the measurement, from files of pairs, tables in memory or prepared data."""
    prepared = prepared_folder(files)
    if prepared is None:
        reading, groups = read_training_examples(files, config.data)
        examples = split_checked_examples(files, reading.examples, groups, config.data)
        sample = sample_evenly(examples, MEASURED_EXAMPLES)
        # The speed depends on the vocabulary sizes. Subword vocabularies have a configured size and are slow to learn,
        # so a sample suffices.
        has_subwords = "subwords" in (config.data.source_symbols, config.data.target_symbols)
        tokenizers, vocabularies = learn_symbols(sample if has_subwords else examples, config)
        encoded = encode_for_task(sample, tokenizers, vocabularies, config)
        return MeasurementData(len(reading.examples), len(examples), vocabularies, encoded, examples[:1])
    resolved = resolve_auto_settings(files, config.data)
    data = read_prepared_data(prepared, msgspec.structs.replace(config, data=resolved))
    assert data.corpus is not None
    encoded = data.corpus.encoded
    count = encoded.source.num_sequences
    rows = np.array(sample_evenly(range(count), MEASURED_EXAMPLES))
    sampled = EncodedExamples(encoded.source.take(rows), encoded.target.take(rows))
    num_pairs = read_description(prepared).num_pairs
    return MeasurementData(num_pairs, count, data.corpus.vocabularies, sampled, data.validation_examples[:1])


def _training_length(data: MeasurementData, config: Config) -> TrainingLength:
    """Return the length of a training without a time limit; its updates are counted by the batches of the measured
    examples."""
    training, encoded, count = config.training, data.encoded, data.num_examples
    if training.augmentation != "none":
        count += round(count * training.augmentation_ratio)
    count = examples_per_epoch(count, training)
    batches = bucket_by_length(encoded, _batch_size(config, count), training.batch_type, config.seed, 0)
    updates = len(batches) * count / encoded.source.num_sequences
    return TrainingLength(count, updates, training.epochs or derived_epochs(count))


def _batch_size(config: Config, count: int) -> int:
    """Return the batch size of a training with `count` examples per epoch."""
    return config.training.batch_size or derived_batch_size(count)


def measure_speed(data: MeasurementData, config: Config, count: int, seconds: float) -> float:
    """Return the number of training examples per second, from a few updates of a new network.

    If the seconds are not enough for all of these updates, the speed is that of those until then, at least one. The
    first updates are slower, so the measured speed may be too low, never too high.

    Args:
        data: Training examples in ids.
        config: Configuration. Its time limit, length and validations have no effect.
        count: Number of training examples of an epoch, from which the batch size is derived.
        seconds: Time after which no further update begins.

    Raises:
        ConfigError: A setting is invalid, or there is not enough memory.
        DivergenceError: A loss or gradient is not finite.
    """
    training = msgspec.structs.replace(
        config.training,
        batch_size=_batch_size(config, count),
        time_limit="",
        epochs=1e6,
        eval_interval=1e6,
    )
    config = msgspec.structs.replace(config, training=training)
    network = build_checked_network(config, data.vocabularies)
    state = build_state(network, config, data.vocabularies, data.encoded, data.validation_examples, "")
    with closing(fit(state)) as events:
        updates = (event for event in events if isinstance(event, UpdateCompleted))
        timestamps = [(time.perf_counter(), state.progress.samples)]
        for _ in range(UNMEASURED_UPDATES + MEASURED_UPDATES):
            next(updates)
            timestamps.append((time.perf_counter(), state.progress.samples))
            if timestamps[-1][0] - timestamps[0][0] > seconds:
                break
    first = timestamps[UNMEASURED_UPDATES if len(timestamps) > UNMEASURED_UPDATES + 1 else 0]
    return (timestamps[-1][1] - first[1]) / (timestamps[-1][0] - first[0])
