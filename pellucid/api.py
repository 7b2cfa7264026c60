"""Training from Python."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from pellucid.argument_checks import convert_argument
from pellucid.config.presets import gives_size
from pellucid.config.settings import Config, DataConfig
from pellucid.config.toml import build_config, validate_config
from pellucid.config.validation import reject_unused
from pellucid.data.examples import training_columns
from pellucid.data.in_memory import InMemoryTable, read_table
from pellucid.data.size_choice import build_sized_config
from pellucid.decoding.predictor import Predictor
from pellucid.model.device import check_torch_defaults
from pellucid.reporting.progress import multi_progress, print_event, training_progress
from pellucid.run_folder.predictor_loader import load
from pellucid.training.ensemble_training import num_parallel_trainings, plan_ensemble, train_ensemble
from pellucid.training.session import train_run
from pellucid.training.size_measurement import config_within_time
from pellucid.training.training_data import TrainingSets


@runtime_checkable
class SupportsArrow(Protocol):
    """Object with the Arrow PyCapsule interface, such as a data frame of pandas or polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of an Arrow stream.

        Args:
            requested_schema: Capsule of the schema that the caller prefers; None for the schema of the object.
        """


PairFiles = str | Path | tuple[str | Path, str | Path]
"""A file of pairs, or a file of sources and a file of targets."""
Pairs = PairFiles | Iterable[Any] | SupportsArrow
"""Files of pairs; or pairs in memory: a list or iterable, a data frame, an Arrow table, or a dataset."""


def train(
    train: Pairs,
    valid: Pairs | None,
    run: str | Path,
    config: Config | Mapping[str, Any] | None = None,
    ensemble: int = 1,
) -> Predictor:
    """Train a model, save it in a run folder, and return a predictor with the parameters of the best validation.

    An interrupted run is resumed; a finished run of the same settings and data is loaded. Progress is printed on
    standard error. The members of an ensemble have the seeds `seed`, `seed` + 1, ...; they train in parallel, each in a
    subfolder of `run` and in a process of its own, so a script must call this function under
    `if __name__ == "__main__":`.

    Only one thread of a process may train at a time, because threads share torch's random number generator: start
    parallel trainings in processes. While a training runs, other threads may predict, but must not load models or draw
    random numbers from torch.

    Args:
        train: Training set: a file of pairs, or two parallel files of sources and targets; or a list or iterable of
            pairs or dicts, a data frame of pandas or polars, an Arrow table, or a dataset of Hugging Face. Columns are
            selected by `data.source_column` and `data.target_column`; by default they are the first two.
        valid: Validation set, in any of these forms; it selects the best parameters. None holds out a tenth of the
            sources of the training set, at most 2,000, chosen at random; or groups of `data.group_column`. A validation
            set in memory, or one that is held out, is stored in the run folder.
        run: Run folder; created, or resumed.
        config: A `Config`, or settings nested as in a TOML file: {"size": "small", "data": {"target_symbols":
            "words"}}. Without a size, or without a configuration, the size is "large" for task "transduce" with at
            least 50,000 training pairs, otherwise "base"; with a time limit, a smaller one if that learns more in the
            time.
        ensemble: Number of members, 1 to 1,000. The default, 1, trains a single run without subfolders.

    Returns:
        The predictor of the model, or of the ensemble, on the device of the training.

    Raises:
        ArgumentError: An argument has the wrong type.
        ConfigError: A setting is invalid or has no effect, or `ensemble` is out of range.
        DataError: A data file cannot be read; or a row is bad, unless bad rows are skipped (`data.on_bad_line`).
        RunError: The run folder holds other files or a run with other settings, or is in use; or another thread of
            this process is training; or torch's default type is not float32, its default device is "meta", or it
            computes no gradients; or (`DivergenceError`) a loss, gradient or parameter is not finite.
    """
    started_at = time.monotonic()
    given = convert_argument("config", config, Config | Mapping[str, Any] | None) or {}
    folder: Path = convert_argument("run", run, str | Path)
    size: int = convert_argument("ensemble", ensemble, int)
    data = given.data if isinstance(given, Config) else build_config(given, "config").data
    source, target = _read_argument("train", train, "training", data)
    valid_source, valid_target = (None, None) if valid is None else _read_argument("valid", valid, "validation", data)
    files = TrainingSets(source, valid_source, target, valid_target)
    settings = validate_config(given) if isinstance(given, Config) else build_sized_config(given, "config", source)
    reject_unused(settings)
    check_torch_defaults()
    if settings.training.time_limit and not isinstance(given, Config) and not gives_size(given):
        settings = config_within_time(
            folder, files, lambda size: build_config({**given, "size": size}, "config"), print_event
        )
    if size != 1:
        _train_ensemble(files, folder, settings, size)
        return load(folder, settings.device)
    with training_progress() as reporter:
        for event in train_run(files, folder, settings, started_at):
            reporter.report(event)
    return load(folder, settings.device)


def _train_ensemble(files: TrainingSets, folder: Path, config: Config, size: int) -> None:
    """Train the members of an ensemble in parallel, and print a line for each validation."""
    training_jobs = plan_ensemble(files, folder, config, size)
    events = train_ensemble(training_jobs, folder, min(size, num_parallel_trainings(0, config)))
    with multi_progress() as progress, closing(events):
        for worker_event in events:
            if worker_event is not None:
                progress.report(worker_event.folder.name, worker_event.event)


def _read_argument(name: str, pairs: Pairs, purpose: str, data: DataConfig) -> tuple[Path | InMemoryTable, Path | None]:
    """Return the pairs as a file or a table, and the file of targets if the pairs are two parallel files."""
    if isinstance(pairs, str | os.PathLike) or _are_paths(pairs):
        converted: Path | tuple[Path, Path] = convert_argument(name, pairs, PairFiles)
        return (converted, None) if isinstance(converted, Path) else converted
    return read_table(name, pairs, purpose, training_columns(data)), None


def _are_paths(pairs: object) -> bool:
    """Return whether an argument is a tuple or list of two paths, those of parallel files."""
    is_pair = isinstance(pairs, tuple | list) and len(pairs) == 2
    return is_pair and all(isinstance(path, str | os.PathLike) for path in cast(Sequence[object], pairs))
