"""Fit of a finished ensemble: the weight of its pair n-gram model, and its confidence."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pellucid.config.durations import parse_duration
from pellucid.config.settings import Config, Device
from pellucid.data.examples import Example
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.transducer import Transducer
from pellucid.errors import RunError
from pellucid.files import digest_file, remove_file, write_json
from pellucid.run_folder.confidence_file import save_confidence
from pellucid.run_folder.identity import combine_fingerprints, read_identity
from pellucid.run_folder.lock import FolderLock
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.predictor_loader import load, load_members
from pellucid.run_folder.run_files import CONFIDENCE, ENSEMBLE, read_ensemble_record
from pellucid.training.confidence_training import fit_predictor_confidence, has_confidence
from pellucid.training.events import ConfidenceFitted, PairNgramWeighted
from pellucid.training.pair_ngram_training import choose_pair_ngram_weight
from pellucid.training.training_data import TrainingInputs, read_validation_examples

MAX_TIME_FRACTION = 0.05
"""Maximum part of the time limit of a member for the weight, and for the confidence."""


def fit_ensemble(
    files: TrainingInputs, lock: FolderLock, config: Config
) -> Iterator[PairNgramWeighted | ConfidenceFitted]:
    """Choose the weight of the pair n-gram model of a finished ensemble, then fit its confidence, and write both.

    The networks of an ensemble together are better than each of them, so that the pair n-gram model has less to add,
    and their confidences do not hold for its outputs. Nothing is done if the folder holds both for these members.

    Args:
        files: Training and validation data of the members.
        lock: Lock of the folder of the ensemble, which is checked before each write: the fits may take minutes.
        config: Configuration of a member, as it was given to its training: with "auto" for the format of the files.

    Yields:
        `PairNgramWeighted` if a member has a pair n-gram model, whatever its own weight, and `ConfidenceFitted`.

    Raises:
        InputError: The validation set or a member cannot be read, the folder was removed, moved or replaced, or a file
            cannot be written.
    """
    with lock.replacement_reported():
        yield from _fit_members(files, lock, config)


def _fit_members(
    files: TrainingInputs, lock: FolderLock, config: Config
) -> Iterator[PairNgramWeighted | ConfidenceFitted]:
    """Choose the weight of the pair n-gram model of an ensemble, and fit its confidence, unless its folder has them."""
    folder = lock.folder
    record = read_ensemble_record(folder / ENSEMBLE)
    members = [folder / name for name in record.members]
    fingerprint = combine_fingerprints(read_identity(member) for member in members)
    is_weighted = record.fingerprint == fingerprint
    if is_weighted and has_confidence(folder, fingerprint):
        return
    _check_data_files(files, members)
    validation = read_validation_examples(files, config.data, members[0])
    limit = parse_duration("training.time_limit", config.training.time_limit)
    seconds = MAX_TIME_FRACTION * limit or math.inf
    lock.check()
    remove_file(folder / CONFIDENCE)  # of other members or damaged: the ensemble could not be loaded
    # The members may have been trained on the GPUs of a cluster, and this machine may have none.
    device: Device = "auto" if config.device == "cuda" else config.device
    if not is_weighted:
        predictor = load_members(members, device)
        event = _choose_weight(predictor, validation, seconds)
        weight = 0.0 if event is None else event.weight
        lock.check()
        write_json(
            folder / ENSEMBLE, msgspec.structs.replace(record, pair_ngram_weight=weight, fingerprint=fingerprint)
        )
        if event is not None:
            yield event
    fitted = fit_predictor_confidence(load(folder, device), validation, fingerprint, seconds)
    if fitted is not None:
        lock.check()
        save_confidence(folder / CONFIDENCE, fitted.saved)
        yield fitted.event


def _choose_weight(predictor: Predictor, validation: Sequence[Example], seconds: float) -> PairNgramWeighted | None:
    """Return the weight of the pair n-gram model of an ensemble; None if it has no such model."""
    if not isinstance(predictor, Transducer) or predictor.pair_ngram is None:
        return None
    return choose_pair_ngram_weight(predictor, predictor.pair_ngram, validation, seconds)


class _DataRecords(NamedTuple):
    """Records of the data files in the log of a member; a record is empty if the log lacks it."""

    train: dict[str, Any]
    valid: dict[str, Any]


def _data_records(member: Path) -> _DataRecords:
    """Return the first two records of data files in a log: the training and the validation file."""
    records = load_run_log(member).all("read")
    return _DataRecords(*[*records, {}, {}][:2])


def _check_data_files(files: TrainingInputs, members: Sequence[Path]) -> None:
    """Raise `RunError` if members were trained on different files, or if the validation file has changed since."""
    records = [_data_records(member) for member in members]
    keys = ("sha256", "target_sha256")
    for member, member_records in zip(members[1:], records[1:], strict=True):
        for first, other in zip(records[0], member_records, strict=True):
            if any(key in first and key in other and first[key] != other[key] for key in keys):
                raise RunError(
                    f"{member} was trained on another {other['path']} than {members[0]} (SHA-256 in their logs): "
                    "restore the file, remove the folder of the member that was trained on the other one, and run the "
                    "same command again, which trains it"
                )
    for path, key in zip((files.valid, files.valid_target), keys, strict=True):
        digest = digest_file(path) if isinstance(path, Path) else None
        if digest is not None and records[0].valid.get(key) not in (None, digest.sha256):
            raise RunError(
                f"{path} has changed since the members of {members[0].parent} were trained: restore it, and run the "
                "same command again, which fits the ensemble"
            )
