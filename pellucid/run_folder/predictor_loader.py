"""Loading of predictors from run folders."""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import overload

import torch

from pellucid.argument_checks import convert_argument
from pellucid.config.settings import Device
from pellucid.config.task_settings import uses_pair_ngram
from pellucid.config.toml import RESTORE_ADVICE
from pellucid.decoding.pair_ngram_member import PairNgramMember
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import max_output_length
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, ConfigError, RunError, quote
from pellucid.files import file_exists
from pellucid.model.device import check_torch_defaults, find_device, move_to_device, prepare_for_forks
from pellucid.model.footprint import check_memory
from pellucid.run_folder.completion import find_unfinished
from pellucid.run_folder.confidence_file import load_confidence
from pellucid.run_folder.identity import ModelIdentity, mixed_error, read_identity
from pellucid.run_folder.log import RunLog, load_run_log
from pellucid.run_folder.model_file import check_header
from pellucid.run_folder.network_file import load_parameters
from pellucid.run_folder.pair_ngram_file import load_pair_ngram
from pellucid.run_folder.progress import read_progress
from pellucid.run_folder.run_files import (
    CHECKPOINT,
    CONFIDENCE,
    CONFIG,
    ENSEMBLE,
    LOG,
    MODEL,
    PAIR_NGRAM,
    load_run_config,
    load_run_vocabularies,
    member_folders,
)
from pellucid.tasks.registry import build_ensemble, build_meta_network, build_network, get_task


@overload
def load(run: str | Path, device: Device = "cpu") -> Predictor:
    """Load a run folder, or the folder of an ensemble.

    Returns:
        The predictor of the task.
    """


@overload
def load(run: list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu") -> Predictor:
    """Load several run folders as one ensemble.

    Returns:
        The ensemble.
    """


def load(run: str | Path | list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu") -> Predictor:
    """Load the model of a run folder, with the parameters of its best validation so far.

    A Python warning names each run whose training is unfinished, and the first one that other versions trained.

    Args:
        run: Run folder; or several, or the folder of an ensemble, which are loaded as one ensemble.
        device: Device to load to ("auto" is a GPU if there is one); independent of the device of the training.

    Returns:
        The predictor of the task, with its network in evaluation mode. A list of one run folder is an ensemble of one.

    Raises:
        ArgumentError: `run` is an empty list, or an argument has another type.
        RunError: The run folder is missing, incomplete, damaged or of an older format, or has no model yet; or several
            runs have different tasks or target symbols; or torch's default type is not float32, or its default device
            is "meta".
        ConfigError: The device is not available, the saved configuration is not valid, or memory does not suffice.
    """
    paths: Path | list[Path] = convert_argument("run", run, str | Path | Sequence[str | Path])
    predictor = load_unwarned(run, device)
    for path in paths if isinstance(paths, list) else [paths]:
        for unfinished in find_unfinished(path):
            warnings.warn(str(unfinished), stacklevel=2)
    return predictor


def load_unwarned(
    run: str | Path | list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu"
) -> Predictor:
    """Load a run as `load` does, without the warnings about unfinished trainings.

    Args:
        run: Run folder or run folders, as in `load`.
        device: Device to load to, as in `load`.

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
    folders = [folder for path in (paths if isinstance(paths, list) else [paths]) for folder in _run_folders(path)]
    with _loading_to(device) as torch_device:
        is_single_run = [paths] == folders  # one path, that of a run, not of an ensemble
        if is_single_run:
            predictor, identity = _load(folders[0], torch_device)
            _report_other_versions([(predictor, identity)])
            return predictor
        # A folder that several links of an ensemble lead to is loaded once; it counts as several members.
        places = [os.path.realpath(folder) for folder in folders]
        first = dict(zip(reversed(places), reversed(folders), strict=True))
        loaded = {place: _load(first[place], torch_device) for place in dict.fromkeys(places)}
        _report_other_versions(list(loaded.values()))
        return build_ensemble([loaded[place][0] for place in places], [str(folder) for folder in folders])


def load_logged(run: Path, device: Device, log: RunLog) -> Predictor:
    """Load one run folder whose log has been read, as `load_unwarned` does.

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
        predictor, identity = _load(run, torch_device, log)
    _report_other_versions([(predictor, identity)])
    return predictor


def _report_other_versions(members: Sequence[tuple[Predictor, ModelIdentity]]) -> None:
    """Warn, in one line, of the first run that other versions of Pellucid or of an extension trained."""
    differences = {identity.folder: identity.other_versions(member.config) for member, identity in members}
    differing = {folder: text for folder, text in differences.items() if text}
    if differing:
        (folder, text), *others = differing.items()
        members_text = "member differs" if len(others) == 1 else "members differ"
        note = f" ({len(others):,} further {members_text}, too)" if others else ""
        warnings.warn(f"{folder} was trained {text}{note}: outputs may differ", stacklevel=3)


def _run_folders(path: Path) -> list[Path]:
    """Return a run folder, or those of the members of an ensemble; `RunError` if a member is missing."""
    folders = member_folders(path)
    missing = next((folder for folder in folders if folders != [path] and not file_exists(folder)), None)
    if missing is not None:
        raise RunError(
            f"{path / ENSEMBLE} lists {quote(missing.name)}, but there is no folder {missing}; restore the folder from "
            "a copy of the ensemble, or give the training command again, which trains the missing member"
        )
    return folders


@contextmanager
def _loading_to(device: Device) -> Iterator[torch.device]:
    """Yield the device, after checking torch's defaults, for a block that creates the tensors of a predictor."""
    torch_device = find_device(device)
    check_torch_defaults()
    with torch.inference_mode(False):  # tensors that are created in inference mode have no gradients, for attribution
        yield torch_device


def _load(folder: Path, device: torch.device, log: RunLog | None = None) -> tuple[Predictor, ModelIdentity]:
    """Return the predictor and the identity of one run folder; its log is read if it is needed and not given."""
    if not file_exists(folder):
        raise RunError(f"{folder} is not a run folder: there is no such folder")
    if not folder.is_dir():
        raise RunError(f"{folder} is not a run folder: it is a file")
    if not file_exists(folder / CONFIG):
        raise RunError(f"{folder} is not a run folder: it holds no {CONFIG}")
    if not file_exists(folder / MODEL):
        raise missing_model_error(folder, log)
    config = load_run_config(folder)
    identity = read_identity(folder)
    try:
        vocabularies = load_run_vocabularies(folder, config)
    except RunError:
        identity.check_config(config)  # settings of another run are a cause, and named first
        raise
    identity.check_config(config)
    identity.check_vocabularies(vocabularies)
    if log is not None:
        identity.check_log(log)
    try:
        max_output_length(config.search, vocabularies)  # checks the limits
    except ConfigError as error:
        raise ConfigError(f"{folder / CONFIG}: {error}; {RESTORE_ADVICE}") from error
    # The header of the model and the memory are checked before parameters are allocated.
    meta_network = build_meta_network(config, vocabularies)
    check_header(folder / MODEL, meta_network.state_dict())
    check_memory(config, meta_network, "load", device)
    network = build_network(config, vocabularies)
    load_parameters(folder / MODEL, network)
    move_to_device(network, device)
    predictor = get_task(config.task).build_predictor(config, vocabularies, network.eval(), str(folder))
    return _with_confidence(_with_pair_ngram(predictor, identity, log), identity), identity


def _with_confidence(predictor: Predictor, identity: ModelIdentity) -> Predictor:
    """Return the predictor with the fitted confidence of its run; unchanged if the run has none.

    A training writes the file at its end, and trainings of earlier versions wrote none.
    """
    path = identity.folder / CONFIDENCE
    if not file_exists(path):
        return predictor
    saved = load_confidence(path)
    identity.check_training(path, saved.fingerprint)
    return replace(predictor, confidence=saved.model)


def _with_pair_ngram(predictor: Predictor, identity: ModelIdentity, log: RunLog | None) -> Predictor:
    """Return the predictor with the pair n-gram model of its run, if its weight has been chosen and is above 0."""
    folder, config = identity.folder, predictor.config
    path = folder / PAIR_NGRAM
    if not (isinstance(predictor, Transducer) and uses_pair_ngram(config)):
        if file_exists(path):
            reason = "the training of these settings wrote no such file"
            if not config.training.pair_ngram:
                reason = "training.pair_ngram is false (search.pair_ngram = false decodes without the file)"
            raise mixed_error(folder / CONFIG, path, reason)
        return predictor
    if not file_exists(path):
        # A folder without a log is a copy for prediction: a training writes the log before the first model.
        if config.search.pair_ngram and not file_exists(folder / LOG):
            warnings.warn(
                f"{path} is missing: outputs are ranked by the network alone; copy it too if the training wrote it",
                stacklevel=2,
            )
        if (log or load_run_log(folder)).first("interpolated"):
            raise RunError(f"{path} is missing: restore the file, or give the training command again, which writes it")
        return predictor
    saved = load_pair_ngram(path, predictor.vocabularies)
    identity.check_training(path, saved.fingerprint)
    member = PairNgramMember(saved.model, saved.weight) if saved.weight else None
    return replace(predictor, pair_ngram=member)


def missing_model_error(folder: Path, log: RunLog | None = None) -> RunError:
    """Return the error for a run folder without a model: no validation yet, or a model that is lost.

    A training killed between the checkpoint and the model of a best validation leaves no model. The training command
    then writes it from the checkpoint.

    Args:
        folder: Run folder.
        log: Log of the run; None to read it if it is needed.
    """
    progress = None
    if file_exists(folder / CHECKPOINT):
        with suppress(RunError):  # a damaged checkpoint: the log tells whether there was a model
            progress = read_progress(folder / CHECKPOINT)
    if progress is not None and progress.best is not None and progress.best_update == progress.update:
        return RunError(
            f"{folder / MODEL} is missing: give the training command again; it writes the model from the checkpoint"
        )
    never_validated = progress is not None and progress.best is None  # the log may be ahead of the checkpoint
    if never_validated or not (log or load_run_log(folder)).first("validated"):
        return RunError(f"{folder} holds no model yet: its training has not reached a first validation")
    advice = "restore the file"
    if not file_exists(folder / CHECKPOINT):
        advice += ", or give the training command again; it trains from the start"
    return RunError(f"{folder / MODEL} is missing, but the log records a validation: {advice}")
