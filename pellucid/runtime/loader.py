"""Loading of predictors from run folders without PyTorch."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pellucid.argument_checks import convert_argument
from pellucid.config.settings import Device
from pellucid.errors import ArgumentError
from pellucid.run_folder.identity import combine_fingerprints
from pellucid.run_folder.run_parts import (
    report_other_versions,
    run_folders,
    with_confidence,
    with_ensemble_parts,
    with_pair_ngram,
)
from pellucid.run_folder.unfinished_training import find_unfinished
from pellucid.runtime.inference import RuntimeNetwork
from pellucid.runtime.predictor import RuntimePredictor, join_predictors
from pellucid.runtime.run_reader import RunArrays, read_run
from pellucid.runtime.support import UnsupportedError

Runs = str | Path | Sequence[str | Path]
"""A run folder, the folder of an ensemble, or several run folders."""


def load(run: Runs, device: Device = "cpu", needs_pair_ngram: bool = True) -> RuntimePredictor:
    """Load the model of a run folder, as `pellucid.load` does, for prediction in NumPy.

    Before the first validation of a training with a pair n-gram model, that model alone ranks outputs.

    A Python warning names each run whose training is unfinished, and the first one that other versions trained.

    Args:
        run: Run folder; or several, or the folder of an ensemble, which are loaded as one ensemble.
        device: "cpu" or "auto", which are the same here.
        needs_pair_ngram: Whether a missing or damaged file of the pair n-gram model is an error; otherwise it is a
            warning, and the model is left out. True by default.

    Returns:
        The predictor. It has the methods of `Predictor` and gives the same traces.

    Raises:
        UnsupportedError: The runtime does not support the device or a setting of a run.
        ArgumentError: `run` is an empty list, or an argument has another type.
        RunError: A run folder is missing, incomplete, damaged or of an older format, or has no model yet; or several
            runs have different tasks or target symbols.
        ConfigError: The saved configuration is not valid.
    """
    predictor = load_without_warnings(run, device, needs_pair_ngram)
    for path in _paths(run):
        for unfinished in find_unfinished(path):
            warnings.warn(str(unfinished), stacklevel=2)
    return predictor


def load_without_warnings(run: Runs, device: Device = "cpu", needs_pair_ngram: bool = True) -> RuntimePredictor:
    """Load a run as `load` does, without the warnings about unfinished trainings.

    Args:
        run: Run folder or run folders, as in `load`.
        device: Device, as in `load`.
        needs_pair_ngram: Whether the pair n-gram model is needed, as in `load`.

    Raises:
        UnsupportedError: As in `load`.
        ArgumentError: As in `load`.
        RunError: As in `load`.
        ConfigError: As in `load`.
    """
    if convert_argument("device", device, Device) == "cuda":
        raise UnsupportedError("the runtime without PyTorch does not support the device 'cuda'")
    paths = _paths(run)
    folders = [folder for path in paths for folder in run_folders(path)]
    # A folder that several links of an ensemble lead to is read once; it counts as several members.
    real_paths = [os.path.realpath(folder) for folder in folders]
    first = dict(zip(reversed(real_paths), reversed(folders), strict=True))
    runs = {
        path: read_run(first[path], needs_validated_model=not needs_pair_ngram) for path in dict.fromkeys(real_paths)
    }
    report_other_versions([(each.config, each.identity) for each in runs.values()], stacklevel=3)
    is_single_run = isinstance(run, str | Path) and folders == paths  # one path, that of a run, not of an ensemble
    if is_single_run:
        return _predictor(runs[real_paths[0]], needs_pair_ngram)
    members = [_predictor(runs[path], needs_pair_ngram) for path in real_paths]
    ensemble = join_predictors(members, [str(folder) for folder in folders])
    if len(paths) == 1 and isinstance(run, str | Path):
        fingerprint = combine_fingerprints(runs[path].identity for path in real_paths)
        ensemble = with_ensemble_parts(replace(ensemble, folder=str(paths[0])), paths[0], fingerprint)
    return ensemble


def _paths(run: Runs) -> list[Path]:
    """Return the given paths, at least one."""
    paths: Path | list[Path] = convert_argument("run", run, str | Path | Sequence[str | Path])
    if not paths:
        raise ArgumentError("run: expected a path or a list of one path at least, got []")
    return paths if isinstance(paths, list) else [paths]


def _predictor(run: RunArrays, needs_pair_ngram: bool) -> RuntimePredictor:
    """Return the predictor of one run, with its pair n-gram model and its fitted confidence."""
    networks = (RuntimeNetwork(run.config, run.network),)
    predictor = RuntimePredictor(run.config, run.vocabularies, networks, name=str(run.folder), folder=str(run.folder))
    predictor = with_pair_ngram(predictor, run.identity, needs_pair_ngram=needs_pair_ngram)
    return with_confidence(predictor, run.identity)
