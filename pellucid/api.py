"""Training from Python."""

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pellucid.argument_checks import convert_argument
from pellucid.config.presets import gives_size
from pellucid.config.settings import Config
from pellucid.config.toml import build_config, overlay_settings, override_settings, validate_config
from pellucid.config.validation import reject_unused
from pellucid.data.size_choice import build_sized_config
from pellucid.decoding.predictor import Predictor
from pellucid.model.device import check_torch_defaults
from pellucid.reporting.progress import multi_progress, print_event, training_progress
from pellucid.run_folder.initial_run import inherited_settings
from pellucid.run_folder.predictor_loader import load
from pellucid.training.ensemble_training import num_parallel_trainings, plan_ensemble, train_ensemble
from pellucid.training.session import train_run
from pellucid.training.size_measurement import config_within_time
from pellucid.training.training_data import TrainingFiles

PairFiles = str | Path | tuple[str | Path, str | Path]
"""A file of pairs, or a file of sources and a file of targets."""


def train(
    train: PairFiles,
    valid: PairFiles | None,
    run: str | Path,
    config: Config | Mapping[str, Any] | None = None,
    ensemble: int = 1,
    init_from: str | Path | None = None,
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
        train: Training set: a file of pairs, or two parallel files of sources and targets.
        valid: Validation set, in the same form; it selects the best parameters. None holds out a tenth of the sources
            of the training set, at most 2,000, chosen at random.
        run: Run folder; created, or resumed.
        config: A `Config`, or settings nested as in a TOML file: {"size": "small", "data": {"target_symbols":
            "words"}}. Without a size, or without a configuration, the size is "large" for task "transduce" with at
            least 50,000 training pairs, otherwise "base"; with a time limit, a smaller one if that learns more in the
            time.
        ensemble: Number of members, 1 to 1,000. The default, 1, trains a single run without subfolders.
        init_from: Run folder from whose parameters and symbols the training begins (fine-tuning), or folder of an
            ensemble with as many members. Its task, tokenization and network are the defaults of the settings. None,
            the default, is `training.initial_run` of the settings, or else a new network.

    Returns:
        The predictor of the model, or of the ensemble, on the device of the training.

    Raises:
        ArgumentError: An argument has the wrong type.
        ConfigError: A setting is invalid or has no effect, or `ensemble` is out of range.
        DataError: A data file cannot be read.
        RunError: The run folder holds other files or a run with other settings, or is in use; or another thread of
            this process is training; or torch's default type is not float32, its default device is "meta", or it
            computes no gradients; or (`DivergenceError`) a loss, gradient or parameter is not finite.
    """
    started_at = time.monotonic()
    given = convert_argument("config", config, Config | Mapping[str, Any] | None) or {}
    folder: Path = convert_argument("run", run, str | Path)
    size: int = convert_argument("ensemble", ensemble, int)
    source, target = _file_pair("train", train)
    valid_source, valid_target = (None, None) if valid is None else _file_pair("valid", valid)
    files = TrainingFiles(source, valid_source, target, valid_target)
    initial: Path | None = convert_argument("init_from", init_from, str | Path | None)
    given = _over_initial_run(given, initial, folder)
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


def _over_initial_run(
    given: Config | Mapping[str, Any], initial: Path | None, folder: Path
) -> Config | Mapping[str, Any]:
    """Return the settings with their initial run, if there is one; settings that are not given are inherited from it.

    A `Config` is complete, so only its initial run is set.
    """
    if isinstance(given, Config):
        if initial is None:
            return given
        return override_settings(given, {"training": {"initial_run": str(initial)}})
    if initial is not None:
        given = overlay_settings(given, {"training": {"initial_run": str(initial)}})
    training = given.get("training")
    named = training.get("initial_run", "") if isinstance(training, Mapping) else ""
    if not (isinstance(named, str | Path) and str(named)):
        return given
    sized = given if gives_size(given) else {key: value for key, value in given.items() if key != "size"}
    return overlay_settings(inherited_settings(named, folder), sized)


def _train_ensemble(files: TrainingFiles, folder: Path, config: Config, size: int) -> None:
    """Train the members of an ensemble in parallel, and print a line for each validation."""
    training_jobs = plan_ensemble(files, folder, config, size)
    events = train_ensemble(training_jobs, folder, min(size, num_parallel_trainings(0, config)))
    with multi_progress() as progress, closing(events):
        for worker_event in events:
            if worker_event is not None:
                progress.report(worker_event.folder.name, worker_event.event)


def _file_pair(name: str, paths: PairFiles) -> tuple[Path, Path | None]:
    """Return the source file and the target file; None for the latter if the pairs are in one file."""
    converted: Path | tuple[Path, Path] = convert_argument(name, paths, PairFiles)
    return (converted, None) if isinstance(converted, Path) else converted
