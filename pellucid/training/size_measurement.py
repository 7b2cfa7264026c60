"""The size of a network for a training with a time limit, from the speed of a few updates on this machine."""

import time
from collections.abc import Callable, Sequence
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
from pellucid.training.events import SizeChosen, SizeMeasurementSkipped, SizeMeasurementStarted, UpdateCompleted
from pellucid.training.loop import derived_batch_size, derived_epochs, fit
from pellucid.training.session import build_checked_network, build_state, one_training_thread
from pellucid.training.training_data import (
    TrainingInputs,
    check_validation_set,
    find_stream,
    input_paths,
    learn_symbols,
    prepared_folder,
    read_prepared_data,
    read_training_examples,
    resolve_auto_settings,
)
from pellucid.training.validation_sample import sample_evenly

SIZES: tuple[Size, ...] = ("small", "base", "large")
"""Sizes that a time limit may choose, from the fastest."""
MIN_UPDATES = 5_000
"""Number of updates that the time should suffice for; with fewer, a smaller size is better (docs/ablations.md)."""
MEASURED_EXAMPLES = 20_000
"""Maximum number of training examples that are measured, and from which subwords are learned."""
UNMEASURED_UPDATES = 2
"""Number of first updates, which allocate memory and are slower."""
MEASURED_UPDATES = 12
"""Number of updates whose time is measured."""
MEASURED_SHARE = 0.05
"""Part of a time limit after which the measured updates of a size end, before they are `MEASURED_UPDATES`."""
RESERVED_SHARE = 0.15
"""Part of a time limit that is not spent on updates: reading, validations and the pair n-gram model."""


def config_within_time(
    folder: Path,
    files: TrainingInputs,
    build_config: Callable[[Size], Config],
    report: Callable[[SizeMeasurementStarted | SizeChosen | SizeMeasurementSkipped], None],
    num_members: int = 0,
    is_alone: bool = True,
) -> Config:
    """Return the configuration of a training with a time limit and without a given size.

    Args:
        folder: Run folder, or folder of an ensemble. The size of a started run is kept.
        files: Training data. If a file cannot be read twice, such as a pipe, no speed is measured, and the size is the
            default of a small file.
        build_config: Function that returns the configuration of a size, with its time limit.
        report: Function that displays the begin of the measurement and the chosen size; it is not called for a started
            run.
        num_members: Number of members of an ensemble; 0, the default, for a single run.
        is_alone: False if several processes train at once, or on other machines, so that the speed of one process here
            is not that of the training; True by default.

    Raises:
        DataError: The training file cannot be read or holds no example, or a line is bad.
        ConfigError: A setting is invalid, or memory does not suffice.
        RunError: The folder holds other files; another thread of this process is training; or torch's default type is
            not float32, its default device is "meta", or it computes no gradients.
        DivergenceError: A loss or gradient is not finite.
    """
    saved = saved_size(folder)
    if saved is not None:
        return build_config(saved)
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
        return config
    with one_training_thread():
        measured = choose_size(files, build_config, report)
    report(measured._replace(is_alone=is_alone))
    return build_config(measured.size)


def choose_size(
    files: TrainingInputs,
    build_config: Callable[[Size], Config],
    report: Callable[[SizeMeasurementStarted], None] = lambda event: None,
) -> SizeChosen:
    """Return the largest size, at most the default one, for whose updates the time limit suffices.

    These are `MIN_UPDATES` updates, or all updates of a training without a limit if they are fewer. If the time
    suffices for no size, it is the smallest of `SIZES`. A few updates of a size are measured, beginning with the
    largest size, until the time suffices for one.

    Args:
        files: Training data.
        build_config: Function that returns the configuration of a size, with its time limit.
        report: Function that displays the begin of the measurement; by default, nothing is displayed.

    Raises:
        DataError: The training file cannot be read or holds no example, or a line is bad.
        ConfigError: A setting is invalid, or memory does not suffice.
    """
    started_at, config = time.monotonic(), build_config(default_size())
    measured = _read_measured_data(files, config)
    time_limit = config.training.time_limit
    use_threads(config.threads)
    use_determinism(config)
    uses_cpu = find_device(config.device).type == "cpu"
    report(SizeMeasurementStarted(time_limit, measured.num_examples, uses_cpu and will_compile()))
    if uses_cpu and not are_kernels_disabled():
        load_kernels()  # compiles them on a new machine, which is no part of the speed
    elapsed = time.monotonic() - started_at - compilation_seconds(started_at)
    limit = parse_duration("training.time_limit", time_limit)
    usable = (1 - RESERVED_SHARE) * limit - elapsed
    training, count = config.training, measured.num_examples
    if training.augmentation != "none":
        count += round(count * training.augmentation_ratio)
    max_epochs = training.epochs or derived_epochs(count)
    updates_per_epoch = _updates_per_epoch(measured, config, count)
    needed_epochs = min(max_epochs, MIN_UPDATES / updates_per_epoch)
    too_slow: Size | None = None
    sizes = SIZES[: SIZES.index(default_size(measured.num_examples, config.task)) + 1]
    for size in reversed(sizes):
        speed = measure_speed(measured, build_config(size), count, MEASURED_SHARE * limit)
        epochs = max(0.0, usable) * speed / count
        if epochs >= needed_epochs or size == sizes[0]:
            break
        too_slow = size
    batch_size = f"{training.batch_size or derived_batch_size(count):,} {training.batch_type}"
    needed_updates = needed_epochs * updates_per_epoch
    return SizeChosen(size, time_limit, epochs, max_epochs, updates_per_epoch, batch_size, too_slow, needed_updates)


class MeasuredData(NamedTuple):
    """Number of all training examples, and evenly spaced ones in ids: a file may be sorted."""

    num_examples: int
    vocabularies: Vocabularies
    encoded: EncodedExamples
    validation_examples: Sequence[Example]
    """An example; the measured trainings do not validate."""


def _read_measured_data(files: TrainingInputs, config: Config) -> MeasuredData:
    """Return the data of the measurement, from files of pairs, tables in memory or prepared data."""
    prepared = prepared_folder(files)
    if prepared is None:
        reading, groups = read_training_examples(files, config.data)
        examples = reading.examples
        check_validation_set(files, examples, groups, config.data)
        measured = sample_evenly(examples, MEASURED_EXAMPLES)
        # The size of the vocabularies decides the speed. That of subwords is a setting, and they take long to learn.
        has_subwords = "subwords" in (config.data.source_symbols, config.data.target_symbols)
        tokenizers, vocabularies = learn_symbols(measured if has_subwords else examples, config)
        encoded = encode_for_task(measured, tokenizers, vocabularies, config)
        return MeasuredData(len(examples), vocabularies, encoded, examples[:1])
    resolved = resolve_auto_settings(files, config.data)
    data = read_prepared_data(prepared, msgspec.structs.replace(config, data=resolved))
    assert data.corpus is not None
    encoded = data.corpus.encoded
    count = encoded.source.num_sequences
    rows = np.array(sample_evenly(range(count), MEASURED_EXAMPLES))
    chosen = EncodedExamples(encoded.source.take(rows), encoded.target.take(rows))
    return MeasuredData(count, data.corpus.vocabularies, chosen, data.validation_examples[:1])


def _updates_per_epoch(measured: MeasuredData, config: Config, count: int) -> float:
    """Return the number of updates of an epoch of `count` examples, from the batches of the measured ones."""
    training, encoded = config.training, measured.encoded
    batch_size = training.batch_size or derived_batch_size(count)
    batches = bucket_by_length(encoded, batch_size, training.batch_type, config.seed, 0)
    return len(batches) * count / encoded.source.num_sequences


def measure_speed(measured: MeasuredData, config: Config, count: int, seconds: float) -> float:
    """Return the number of training examples per second, from a few updates of a new network.

    If the seconds do not suffice for all of these updates, the speed is that of those until then, at least one. The
    first ones are slower, so that a size may seem too slow, but none too fast.

    Args:
        measured: Training examples in ids.
        config: Configuration. Its time limit, length and validations have no effect.
        count: Number of training examples with synthetic ones, from which the batch size is derived.
        seconds: Time after which no further update begins.

    Raises:
        ConfigError: A setting is invalid, or memory does not suffice.
        DivergenceError: A loss or gradient is not finite.
    """
    training = msgspec.structs.replace(
        config.training,
        batch_size=config.training.batch_size or derived_batch_size(count),
        time_limit="",
        epochs=1e6,
        eval_interval=1e6,
    )
    config = msgspec.structs.replace(config, training=training)
    _, vocabularies, encoded, validation_examples = measured
    network = build_checked_network(config, vocabularies)
    state = build_state(network, config, vocabularies, encoded, validation_examples, "")
    with closing(fit(state)) as events:
        updates = (event for event in events if isinstance(event, UpdateCompleted))
        begins = [(time.perf_counter(), state.progress.samples)]
        for _ in range(UNMEASURED_UPDATES + MEASURED_UPDATES):
            next(updates)
            begins.append((time.perf_counter(), state.progress.samples))
            if begins[-1][0] - begins[0][0] > seconds:
                break
    first = begins[UNMEASURED_UPDATES if len(begins) > UNMEASURED_UPDATES + 1 else 0]
    return (begins[-1][1] - first[1]) / (begins[-1][0] - first[0])
