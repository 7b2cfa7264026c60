"""The parts of a predictor that a run folder holds besides its network; no function here needs PyTorch."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from pellucid.config.settings import Config
from pellucid.config.task_settings import uses_pair_ngram
from pellucid.config.toml import RESTORE_ADVICE
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.decoding.base_transducer import BaseTransducer
from pellucid.decoding.length_limits import check_length_limits
from pellucid.decoding.pair_ngram_interpolation import RESUME_ADVICE, InterpolatedPairNgram, untrained_network_error
from pellucid.errors import ConfigError, RunError, quote
from pellucid.files import file_exists
from pellucid.run_folder.advice import RESTORE_OR_REPEAT, check_folder_exists
from pellucid.run_folder.confidence_file import load_confidence
from pellucid.run_folder.identity import ModelIdentity, has_validated_model, mixed_error, read_identity
from pellucid.run_folder.log import RunLog, load_run_log
from pellucid.run_folder.pair_ngram_file import load_pair_ngram
from pellucid.run_folder.progress import read_progress
from pellucid.run_folder.provisional_weight import provisional_weight
from pellucid.run_folder.run_files import (
    CHECKPOINT,
    CONFIDENCE,
    CONFIG,
    ENSEMBLE,
    LOG,
    MODEL,
    PAIR_NGRAM,
    load_run_config,
    member_folders,
    read_ensemble_record,
    read_run_vocabularies,
)
from pellucid.run_folder.unfinished_training import has_unfinished

PredictorT = TypeVar("PredictorT", bound=BasePredictor)
"""Type of the predictor to which a part is added."""


class RunSettings(NamedTuple):
    """Settings and vocabularies of a run folder, and the identity of its model."""

    config: Config
    vocabularies: Vocabularies
    identity: ModelIdentity


def run_folders(path: Path) -> list[Path]:
    """Return a run folder, or those of the members of an ensemble.

    Args:
        path: Run folder, or folder of an ensemble.

    Raises:
        RunError: A member is missing.
    """
    folders = member_folders(path)
    missing = next((folder for folder in folders if folders != [path] and not file_exists(folder)), None)
    if missing is not None:
        raise RunError(
            f"{path / ENSEMBLE} lists {quote(missing.name)}, but there is no folder {missing}; restore the folder from "
            "a copy of the ensemble, or run the training command again, which trains the missing member"
        )
    return folders


def report_other_versions(members: Sequence[tuple[Config, ModelIdentity]], stacklevel: int) -> None:
    """Warn, in one line, of the first run that other versions of Pellucid or of an extension trained.

    Args:
        members: Settings and identity of each run.
        stacklevel: Level of the warning, counted from the caller of this function.
    """
    differences = {identity.folder: identity.other_versions(config) for config, identity in members}
    differing = {folder: text for folder, text in differences.items() if text}
    if differing:
        (folder, text), *others = differing.items()
        members_text = "member differs" if len(others) == 1 else "members differ"
        note = f" ({len(others):,} further {members_text}, too)" if others else ""
        warnings.warn(f"{folder} was trained {text}{note}: outputs may differ", stacklevel=stacklevel + 1)


VocabularyCheck = Callable[[Path, Config, Vocabularies], None]
"""Function that raises `RunError` if the vocabularies of a run folder do not fit its task."""


def read_run_settings(
    folder: Path,
    log: RunLog | None = None,
    check_vocabularies: VocabularyCheck | None = None,
    needs_validated_model: bool = True,
) -> RunSettings:
    """Read settings, vocabularies and identity of a run folder, and check that they are of one run with a model.

    Args:
        folder: Run folder, not the folder of an ensemble.
        log: Log of the run, which is checked as well; None to leave it out.
        check_vocabularies: Check of the vocabularies for the task of the run, which may need PyTorch; None to
            skip it.
        needs_validated_model: Whether a model without a validation is an error. True by default;
            False if the pair n-gram model then predicts alone.

    Raises:
        RunError: The folder is missing, has no model, or holds damaged files or those of another run.
        ConfigError: The settings are not valid.
    """
    check_folder_exists(folder)
    if not folder.is_dir():
        raise RunError(f"{folder} is not a run folder: it is a file")
    if not file_exists(folder / CONFIG):
        raise RunError(f"{folder} is not a run folder: it holds no {CONFIG}")
    if not (has_validated_model(folder) if needs_validated_model else file_exists(folder / MODEL)):
        raise missing_model_error(folder, log)
    config = load_run_config(folder)
    identity = read_identity(folder)
    try:
        vocabularies = read_run_vocabularies(folder, config)
        if check_vocabularies is not None:
            check_vocabularies(folder, config, vocabularies)
    except RunError:
        identity.check_config(config)  # settings of another run are a cause, and named first
        raise
    identity.check_config(config)
    identity.check_vocabularies(vocabularies)
    if log is not None:
        identity.check_log(log)
    try:
        check_length_limits(config.search, vocabularies)
    except ConfigError as error:
        raise ConfigError(f"{folder / CONFIG}: {error}; {RESTORE_ADVICE}") from error
    return RunSettings(config, vocabularies, identity)


def with_confidence(predictor: PredictorT, identity: ModelIdentity) -> PredictorT:
    """Return the predictor with the fitted confidence of its run; unchanged if the run has none.

    A training writes the file at its end, and trainings of earlier versions wrote none.

    Args:
        predictor: Predictor of the run.
        identity: Identity of its model.

    Raises:
        RunError: The file is damaged or of another run.
    """
    path = identity.folder / CONFIDENCE
    if not file_exists(path):
        return predictor
    saved = load_confidence(path)
    identity.check_training(path, saved.fingerprint)
    return replace(predictor, confidence=saved.model)


def with_ensemble_parts(predictor: PredictorT, folder: Path, fingerprint: str) -> PredictorT:
    """Return the ensemble of a folder with the weight of its pair n-gram model and with its confidence.

    A training writes both at its end. Those of other members are not used, and a warning says so; so does one if the
    members are trained, and the weight is not chosen.

    Args:
        predictor: Predictor of the members.
        folder: Folder of the ensemble.
        fingerprint: Hash of the members' models (`combine_fingerprints`).

    Raises:
        RunError: A file is damaged.
    """
    record = read_ensemble_record(folder / ENSEMBLE)
    if not record.fingerprint:  # its training is unfinished, or of an earlier version
        has_weight = isinstance(predictor, BaseTransducer) and predictor.pair_ngram_weight > 0
        if has_weight and not has_unfinished(folder):  # the weights of unfinished members are named with these
            warnings.warn(
                f"{folder}: the weight of the pair n-gram model of the ensemble is not chosen yet, and is the mean of "
                "its members' weights until then; the training command chooses it",
                stacklevel=3,
            )
        return predictor
    if record.fingerprint != fingerprint:
        warnings.warn(
            f"{folder}: its members have changed since their training ended: the pair n-gram model has the mean of "
            "their weights, and outputs have no confidence; run the training command again",
            stacklevel=3,
        )
        return predictor
    if isinstance(predictor, BaseTransducer) and predictor.pair_ngram is not None:
        predictor = replace(predictor, pair_ngram=predictor.pair_ngram._replace(weight=record.pair_ngram_weight))
    path = folder / CONFIDENCE
    saved = load_confidence(path) if file_exists(path) else None
    if saved is None or saved.fingerprint != fingerprint:
        return predictor
    return replace(predictor, confidence=saved.model)


def with_pair_ngram(
    predictor: PredictorT, identity: ModelIdentity, log: RunLog | None = None, needs_pair_ngram: bool = True
) -> PredictorT:
    """Return the predictor with the pair n-gram model of its run, whatever its weight is.

    With the weight 0 it takes no part in searches. Until the training has chosen the weight, it is that of
    `provisional_weight`.

    Args:
        predictor: Predictor of the run.
        identity: Identity of its model.
        log: Log of the run; None to read it if it is needed.
        needs_pair_ngram: Whether a missing or damaged file of the pair n-gram model is an error; otherwise it is a
            warning, and the model is left out. True by default.

    Raises:
        RunError: The file is missing, damaged or of another run.
    """
    folder, config = identity.folder, predictor.config
    path = folder / PAIR_NGRAM
    if not (isinstance(predictor, BaseTransducer) and uses_pair_ngram(config)):
        if file_exists(path):
            reason = "the training of these settings wrote no such file"
            if not config.training.pair_ngram:
                reason = "training.pair_ngram is false (search.pair_ngram = false decodes without the file)"
            raise mixed_error(folder / CONFIG, path, reason)
        return predictor
    try:
        member = _load_pair_ngram_member(predictor, identity, log, needs_pair_ngram)
    except RunError as error:
        if needs_pair_ngram:
            raise
        # One place, so that Python shows the warning once if NumPy and PyTorch load the run.
        warnings.warn(f"the pair n-gram model is left out, and not needed here: {error}", stacklevel=1)
        return predictor
    return predictor if member is None else replace(predictor, pair_ngram=member)


def _load_pair_ngram_member(
    predictor: BaseTransducer, identity: ModelIdentity, log: RunLog | None, needs_pair_ngram: bool
) -> InterpolatedPairNgram | None:
    """Return the pair n-gram model of a run; None if it has none."""
    folder, path = identity.folder, identity.folder / PAIR_NGRAM
    if not file_exists(path):
        if not identity.is_validated:
            raise RunError(f"{path} is missing, and the network of {folder} has no validation yet: {RESTORE_OR_REPEAT}")
        # A folder without a log is a copy for prediction: a training writes the log before the first model.
        if needs_pair_ngram and predictor.config.search.pair_ngram and not file_exists(folder / LOG):
            warnings.warn(
                f"{path} is missing: outputs are ranked by the network alone; copy it too if the training wrote it",
                stacklevel=3,
            )
        if (log or load_run_log(folder)).first("interpolated"):
            raise RunError(f"{path} is missing: restore the file, or run the training command again, which writes it")
        return None
    saved = load_pair_ngram(path, predictor.vocabularies)
    identity.check_training(path, saved.fingerprint)
    weight = provisional_weight(identity, log or load_run_log(folder)) if saved.weight is None else saved.weight
    return InterpolatedPairNgram(saved.model, weight, network_index=0, predicts_alone=not identity.is_validated)


def missing_model_error(folder: Path, log: RunLog | None = None) -> RunError:
    """Return the error for a run folder without a model of a validation: there was none yet, or the model is lost.

    A training killed between the checkpoint and the model of a best validation leaves no model. The training command
    then writes it from the checkpoint.

    Args:
        folder: Run folder.
        log: Log of the run; None to read it if it is needed.
    """
    if file_exists(folder / MODEL):
        return untrained_network_error(str(folder))
    progress = None
    if file_exists(folder / CHECKPOINT):
        with suppress(RunError):  # a damaged checkpoint: the log tells whether there was a model
            progress = read_progress(folder / CHECKPOINT)
    if progress is not None and progress.best_validation_score is not None and progress.best_update == progress.update:
        return RunError(
            f"{folder / MODEL} is missing: run the training command again; it writes the model from the checkpoint"
        )
    never_validated = (
        progress is not None and progress.best_validation_score is None
    )  # the log may be ahead of the checkpoint
    if never_validated or not (log or load_run_log(folder)).first("validated"):
        return RunError(
            f"{folder} holds no model yet: its training has not reached a first validation; {RESUME_ADVICE}"
        )
    advice = "restore the file"
    if not file_exists(folder / CHECKPOINT):
        advice += ", or run the training command again; it trains from the start"
    return RunError(f"{folder / MODEL} is missing, but the log records a validation: {advice}")
