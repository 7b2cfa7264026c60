"""The Python face of training."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pellucid.arguments import convert_argument
from pellucid.config.settings import Config
from pellucid.config.toml import build_config, validate_config
from pellucid.config.validation import reject_unused
from pellucid.decoding.predictor import Predictor
from pellucid.reporting.progress import multi_progress, training_progress
from pellucid.training.ensemble_training import jobs_at_once, plan_ensemble, train_ensemble
from pellucid.training.run_folder import load
from pellucid.training.session import Files, train_run

PairFiles = str | Path | tuple[str | Path, str | Path]
"""A file of pairs, or two parallel files."""


def train(
    train: PairFiles,
    valid: PairFiles,
    run: str | Path,
    config: Config | Mapping[str, Any] | None = None,
    ensemble: int = 1,
) -> Predictor:
    """Train on a file of pairs (or two parallel files), keep everything in the folder `run`, return the best model.

    `config` is a `Config`, or settings as in a TOML file: {"size": "small", "data": {"target_symbols": "words"}}. A run
    that was interrupted goes on; a finished one is loaded. Errors are `InputError`s with a message for people.

    `ensemble` runs that differ in their seed alone are trained side by side, each in a folder of its own in `run`, and
    are returned as one. They train in processes of their own: a script calls this under `if __name__ == "__main__":`.
    """
    given = convert_argument("config", config, Config | Mapping[str, Any] | None)
    settings = validate_config(given) if isinstance(given, Config) else build_config(given or {}, origin="config")
    reject_unused(settings)
    folder: Path = convert_argument("run", run, str | Path)
    size: int = convert_argument("ensemble", ensemble, int)
    (source, target), (valid_source, valid_target) = _file_pair("train", train), _file_pair("valid", valid)
    files = Files(source, valid_source, target, valid_target)
    if size != 1:
        _train_ensemble(files, folder, settings, size)
        return load(folder, settings.device)
    with training_progress() as teller:
        for event in train_run(files, folder, settings):
            teller.report(event)
    return load(folder, settings.device)


def _train_ensemble(files: Files, folder: Path, config: Config, size: int) -> None:
    """Runs of several seeds, side by side; a line for each validation."""
    trainings = plan_ensemble(files, folder, config, size)
    events = train_ensemble(trainings, folder, min(size, jobs_at_once(0, config)))
    with multi_progress() as seen, closing(events):
        for heard in events:
            if heard is not None:
                seen.report(heard.folder.name, heard.event)


def _file_pair(name: str, paths: PairFiles) -> tuple[Path, Path | None]:
    """One file, or a source and a target file."""
    found: Path | tuple[Path, Path] = convert_argument(name, paths, PairFiles)
    return (found, None) if isinstance(found, Path) else found
