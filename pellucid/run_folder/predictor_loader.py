"""Loading of predictors from run folders."""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, overload

import torch

from pellucid.argument_checks import convert_argument
from pellucid.config.settings import Config, Device
from pellucid.decoding.predictor import Predictor
from pellucid.errors import ArgumentError
from pellucid.model.device import check_torch_defaults, find_device, move_to_device, prepare_for_forks
from pellucid.model.footprint import check_memory
from pellucid.run_folder.identity import ModelIdentity, combine_fingerprints
from pellucid.run_folder.log import RunLog
from pellucid.run_folder.model_file import check_header
from pellucid.run_folder.network_file import load_parameters
from pellucid.run_folder.run_files import MODEL, check_task_vocabularies
from pellucid.run_folder.run_parts import (
    read_run_settings,
    report_other_versions,
    run_folders,
    with_confidence,
    with_ensemble_parts,
    with_pair_ngram,
)
from pellucid.run_folder.unfinished_training import find_unfinished
from pellucid.tasks.registry import build_ensemble, build_meta_network, build_network, get_task


class LoadRequirements(NamedTuple):
    """Parts of a run without which it cannot be loaded."""

    pair_ngram: bool = True
    """Whether a missing or damaged pair n-gram model is an error, and not a warning."""
    validated_model: bool = True
    """Whether a model without a validation is an error."""


@overload
def load(run: str | Path, device: Device = "cpu", needs_pair_ngram: bool = True) -> Predictor:
    """Load a run folder, or the folder of an ensemble.

    Returns:
        The predictor of the task.
    """


@overload
def load(
    run: list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu", needs_pair_ngram: bool = True
) -> Predictor:
    """Load several run folders as one ensemble.

    Returns:
        The ensemble.
    """


def load(
    run: str | Path | list[str] | list[Path] | tuple[str | Path, ...],
    device: Device = "cpu",
    needs_pair_ngram: bool = True,
) -> Predictor:
    """Load the model of a run folder, with the parameters of its best validation so far.

    Before the first validation of a training with a pair n-gram model, the network is hardly trained, and the pair
    n-gram model alone ranks outputs.

    A Python warning names each run whose training is unfinished, and the first one that other versions trained.

    Args:
        run: Run folder; or several, or the folder of an ensemble, which are loaded as one ensemble.
        device: Device to load to ("auto" is a GPU if there is one); independent of the device of the training.
        needs_pair_ngram: Whether a missing or damaged file of the pair n-gram model is an error; otherwise it is a
            warning, and the model is left out. True by default.

    Returns:
        The predictor of the task, with its network in evaluation mode. A list of one run folder is an ensemble of one.

    Raises:
        ArgumentError: `run` is an empty list, or an argument has another type.
        RunError: The run folder is missing, incomplete, damaged or of an older format, or has no model yet; or several
            runs have different tasks or target symbols; or torch's default type is not float32, or its default device
            is "meta".
        ConfigError: The device is not available, the saved configuration is not valid, or there is not enough memory.
    """
    paths: Path | list[Path] = convert_argument("run", run, str | Path | Sequence[str | Path])
    predictor = load_without_warnings(run, device, needs_pair_ngram)
    for path in paths if isinstance(paths, list) else [paths]:
        for unfinished in find_unfinished(path):
            warnings.warn(str(unfinished), stacklevel=2)
    return predictor


def load_without_warnings(
    run: str | Path | list[str] | list[Path] | tuple[str | Path, ...],
    device: Device = "cpu",
    needs_pair_ngram: bool = True,
    needs_validated_model: bool = False,
) -> Predictor:
    """Load a run as `load` does, without the warnings about unfinished trainings.

    Args:
        run: Run folder or run folders, as in `load`.
        device: Device to load to, as in `load`.
        needs_pair_ngram: Whether the pair n-gram model is needed, as in `load`.
        needs_validated_model: Whether a model without a validation is an error, as it is without the pair n-gram model.
            False by default.

    Raises:
        ArgumentError: As in `load`.
        RunError: As in `load`.
        ConfigError: As in `load`.
    """
    prepare_for_forks()
    paths: Path | list[Path] = convert_argument("run", run, str | Path | Sequence[str | Path])
    if not paths:
        raise ArgumentError("run: expected a path or a list of one path at least, got []")
    device = convert_argument("device", device, Device)
    folders = [folder for path in (paths if isinstance(paths, list) else [paths]) for folder in run_folders(path)]
    requirements = LoadRequirements(needs_pair_ngram, needs_validated_model or not needs_pair_ngram)
    with _loading_to(device) as torch_device:
        is_single_run = [paths] == folders  # one path, that of a run, not of an ensemble
        if is_single_run:
            predictor, identity = _load(folders[0], torch_device, requirements)
            report_other_versions([(predictor.config, identity)], stacklevel=3)
            return predictor
        ensemble, members = _load_members(folders, torch_device, requirements)
        report_other_versions(members, stacklevel=3)
        if not isinstance(paths, list):
            ensemble = replace(ensemble, folder=str(paths))
            ensemble = with_ensemble_parts(ensemble, paths, combine_fingerprints(identity for _, identity in members))
        return ensemble


def load_members(folders: Sequence[Path], device: Device) -> Predictor:
    """Load run folders as one ensemble, which has a pair n-gram model if any member has one.

    Args:
        folders: Run folders.
        device: Device to load to, as in `load`.

    Raises:
        RunError: As in `load`.
        ConfigError: As in `load`.
    """
    prepare_for_forks()
    with _loading_to(device) as torch_device:
        return _load_members(folders, torch_device, LoadRequirements())[0]


def _load_members(
    folders: Sequence[Path], device: torch.device, requirements: LoadRequirements
) -> tuple[Predictor, list[tuple[Config, ModelIdentity]]]:
    """Return the ensemble of run folders, and settings and identity of each.

    A folder that several links of an ensemble lead to is loaded once; it counts as several members.
    """
    places = [os.path.realpath(folder) for folder in folders]
    first = dict(zip(reversed(places), reversed(folders), strict=True))
    loaded = {place: _load(first[place], device, requirements) for place in dict.fromkeys(places)}
    ensemble = build_ensemble([loaded[place][0] for place in places], [str(folder) for folder in folders])
    return ensemble, [(loaded[place][0].config, loaded[place][1]) for place in places]


def load_with_log(run: Path, device: Device, log: RunLog) -> Predictor:
    """Load one run folder whose log has been read, as `load_without_warnings` does; a model of a validation is needed.

    Args:
        run: Run folder, not the folder of an ensemble.
        device: Device to load to, as in `load`.
        log: Log of the run.

    Raises:
        RunError: As in `load`.
        ConfigError: As in `load`.
    """
    prepare_for_forks()
    with _loading_to(device) as torch_device:
        predictor, identity = _load(run, torch_device, LoadRequirements(), log)
    report_other_versions([(predictor.config, identity)], stacklevel=3)
    return predictor


@contextmanager
def _loading_to(device: Device) -> Iterator[torch.device]:
    """Yield the device, after checking torch's defaults, for a block that creates the tensors of a predictor."""
    torch_device = find_device(device)
    check_torch_defaults()
    with torch.inference_mode(False):  # tensors that are created in inference mode have no gradients, for attribution
        yield torch_device


def _load(
    folder: Path, device: torch.device, requirements: LoadRequirements, log: RunLog | None = None
) -> tuple[Predictor, ModelIdentity]:
    """Return the predictor and the identity of one run folder; its log is read if it is needed and not given."""
    config, vocabularies, identity = read_run_settings(
        folder, log, check_task_vocabularies, requirements.validated_model
    )
    # The header of the model and the memory are checked before parameters are allocated.
    meta_network = build_meta_network(config, vocabularies)
    with identity.explain_misfit(config):
        check_header(folder / MODEL, meta_network.state_dict())
    check_memory(config, meta_network, "load", device)
    network = build_network(config, vocabularies)
    load_parameters(folder / MODEL, network)
    move_to_device(network, device)
    predictor = get_task(config.task).build_predictor(config, vocabularies, network.eval(), str(folder))
    predictor = replace(predictor, folder=str(folder))
    predictor = with_pair_ngram(predictor, identity, log, requirements.pair_ngram)
    return with_confidence(predictor, identity), identity
