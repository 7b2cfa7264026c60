"""Files of a run folder that a training writes: at its events, and at its end."""

import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

from pellucid.config.task_settings import uses_pair_ngram
from pellucid.decoding.hypothesis_scorer import allows_pair_ngram_ranking
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import RunError
from pellucid.files import file_exists, remove_file, write_atomic, write_text
from pellucid.run_folder import run_files
from pellucid.run_folder.advice import REMOVE_CORPUS, RESTORE_OR_RENAME, add_advice
from pellucid.run_folder.confidence_file import save_confidence
from pellucid.run_folder.identity import describe_run
from pellucid.run_folder.initialization import refuse_links, write_missing_settings
from pellucid.run_folder.lock import FolderLock
from pellucid.run_folder.log import RunLog, append_log, sync_log
from pellucid.run_folder.model_file import VERSIONS
from pellucid.run_folder.network_file import check_network, encode_network
from pellucid.run_folder.pair_ngram_file import SavedPairNgram, save_pair_ngram
from pellucid.run_folder.predictor_loader import load_with_log
from pellucid.training import snapshots
from pellucid.training.checkpoint import save_training_state
from pellucid.training.confidence_training import fit_predictor_confidence, has_confidence
from pellucid.training.events import (
    ConfidenceFitted,
    Event,
    FileSaved,
    PairNgramFitted,
    PairNgramWeighted,
    ValidationCompleted,
)
from pellucid.training.model_card import build_model_card
from pellucid.training.optimizer import averaged_weights
from pellucid.training.pair_ngram_training import fit_training_pair_ngram, read_pair_ngram, weight_pair_ngram
from pellucid.training.schedule import stop_reason
from pellucid.training.training_records import (
    confidence_record,
    log_record,
    pair_ngram_record,
    progress_fields,
    weight_record,
)
from pellucid.training.training_state import TrainingState

SAVE_SECONDS = 120.0
"""A checkpoint is written at every validation, and at least this often between validations."""


class RunFolderWriter:
    """Writer of a run folder, called with each event of `fit`: log, snapshots, checkpoint, model, card."""

    def __init__(self, state: TrainingState, lock: FolderLock, fingerprint: str, log: RunLog) -> None:
        """Create the writer; nothing is written yet.

        Args:
            state: Training state, read at each write.
            lock: Lock of the run folder.
            fingerprint: Hash of the settings and the data.
            log: Log of the run, to which records are added.
        """
        self.state = state
        self.lock = lock
        self.folder = lock.folder
        self.fingerprint = fingerprint
        self.log = log
        self.saved_at = time.monotonic()

    def save_files(self, event: Event) -> list[FileSaved]:
        """Write the files that an event requires: snapshot and log, then the checkpoint, then the best model.

        A checkpoint is written at each validation, and at an update if the last is older than `SAVE_SECONDS`. The order
        makes a killed training resumable (`_repair_folder`): files before the checkpoint are cut back to it, and files
        after it can be written from it.

        Args:
            event: Event of the training loop.

        Returns:
            An event for the checkpoint and one for the model, where they were written.

        Raises:
            RunError: The run folder was removed, moved or replaced, or a file cannot be written.
            DivergenceError: A number of the checkpoint is not finite.
        """
        with self.lock.replacement_reported(), add_advice(RESTORE_OR_RENAME):
            return self._save_files(event)

    def _save_files(self, event: Event) -> list[FileSaved]:
        """Write the files that an event requires, in order."""
        saved: list[FileSaved] = []
        record = log_record(event, self.fingerprint, self.state)
        if record:
            self.lock.check()
        if isinstance(event, ValidationCompleted):
            write_missing_settings(self.folder, self.state.config, self.state.predictor.vocabularies)
            if self.state.config.training.snapshots:
                self._save_snapshot(event)
        if record:
            append_records(self.lock, self.log, record)
        if isinstance(event, ValidationCompleted) or time.monotonic() - self.saved_at > SAVE_SECONDS:
            saved.append(self.save_checkpoint())
        if isinstance(event, ValidationCompleted) and event.is_best:
            write_atomic(self.folder / run_files.MODEL, encode_best_model(self.state, self.fingerprint))
            saved.append(FileSaved(self.folder / run_files.MODEL, is_best_model=True))
        return saved

    def _save_snapshot(self, event: ValidationCompleted) -> None:
        """Write a snapshot, and thin the earlier ones; refuse a folder that was replaced by a link meanwhile."""
        refuse_links([self.folder / run_files.SNAPSHOTS])
        progress = event.progress
        with averaged_weights(self.state.average):
            number = snapshots.SnapshotNumber(progress.validations, progress.update)
            snapshots.save_snapshot(self.folder, self.state.predictor, event.traces, number, self.fingerprint)
        snapshots.thin_snapshots(self.folder, progress.validations)

    def save_checkpoint(self) -> FileSaved:
        """Write the checkpoint now.

        Raises:
            RunError: The run folder was removed, moved or replaced, or the file cannot be written.
            DivergenceError: A number of the checkpoint is not finite.
        """
        self.lock.check()
        sync_log(self.folder)  # a checkpoint that survives a loss of power has all earlier lines of the log
        save_training_state(self.folder / run_files.CHECKPOINT, self.state, self.fingerprint)
        self.saved_at = time.monotonic()
        return FileSaved(self.folder / run_files.CHECKPOINT, is_best_model=False)


def encode_best_model(state: TrainingState, fingerprint: str, versions: str = "") -> bytes:
    """Return the model file of a training state at its best validation.

    Args:
        state: Training state.
        fingerprint: Hash of the settings and the data.
        versions: Versions of the packages that made the model; empty, the default, for those installed.
    """
    run = describe_run(state.config, state.predictor.vocabularies, fingerprint, state.progress.best_update)
    if versions:
        run[VERSIONS] = versions
    with averaged_weights(state.average):
        return encode_network(state.predictor.network, run)


def fit_or_read_pair_ngram(
    state: TrainingState, lock: FolderLock, log: RunLog, fingerprint: str
) -> Generator[PairNgramFitted, None, SavedPairNgram | None]:
    """Return the pair n-gram model of a run: read it if the run has one, else fit and write it.

    Before the first validation, the untrained network is written, too, as the model of the run: outputs are then those
    of the pair n-gram model. `state.has_pair_ngram` is set to False if no model can be fitted.

    Args:
        state: Training state.
        lock: Lock of the run folder.
        log: Log of the run.
        fingerprint: Hash of the settings and the data.

    Yields:
        The event of the fit, if there is one.

    Returns:
        The model, fitted now or before; None if the settings exclude one, or none could be fitted.

    Raises:
        RunError: The run folder was removed, moved or replaced, or a file cannot be written.
    """
    folder, logged = lock.folder, log.first("pair_ngram")
    if logged is not None and not logged["examples"]:
        state.has_pair_ngram = False
        return None
    if not uses_pair_ngram(state.config):
        return None
    saved = read_pair_ngram(state, folder, fingerprint)
    if saved is not None:
        _write_first_model(state, lock, fingerprint)
        return saved
    model, event = fit_training_pair_ngram(state)
    _append_once(lock, log, pair_ngram_record(event))
    state.has_pair_ngram = model is not None
    if model is not None:
        # The file follows the record: if a killed training lacks the file, the model is fitted again.
        saved = SavedPairNgram(model, None, fingerprint)
        save_pair_ngram(folder / run_files.PAIR_NGRAM, saved)
        _write_first_model(state, lock, fingerprint)
    yield event
    return saved


def _write_first_model(state: TrainingState, lock: FolderLock, fingerprint: str) -> None:
    """Write the network of a training without a validation as its model, unless there is one.

    With it, the pair n-gram model predicts alone (`provisional_weight`). If the search settings leave the ranking to
    the network alone, there is no model before the first validation. The checkpoint is written first, because no
    training resumes in a folder with a model and without a checkpoint.
    """
    folder, network = lock.folder, state.predictor.network
    if state.progress.best_validation_score is not None or not allows_pair_ngram_ranking(state.config.search):
        return
    with suppress(RunError):
        check_network(folder / run_files.MODEL, network)
        return
    lock.check()
    if not file_exists(folder / run_files.CHECKPOINT):
        sync_log(folder)
        save_training_state(folder / run_files.CHECKPOINT, state, fingerprint)
    run = describe_run(
        state.config, state.predictor.vocabularies, fingerprint, state.progress.best_update, is_validated=False
    )
    write_atomic(folder / run_files.MODEL, encode_network(network, run))


def finish_run_folder(
    state: TrainingState, lock: FolderLock, log: RunLog, fingerprint: str
) -> Iterator[PairNgramFitted | PairNgramWeighted | ConfidenceFitted]:
    """Write the files of a finished run, unless they exist: end of the log, pair n-gram model, confidence and card.

    Settings, vocabularies and a pair n-gram model that were removed or damaged during the training are written anew.
    The file of the training data is removed. The fits take up to minutes, so that the folder is checked after each.

    Args:
        state: Training state, whose training has ended.
        lock: Lock of the run folder.
        log: Log of the run.
        fingerprint: Hash of the settings and the data.

    Yields:
        The event of each fit.

    Raises:
        RunError: The run folder was removed, moved or replaced, its model cannot be read, or a file cannot be written.
    """
    folder = lock.folder
    lock.check()
    write_missing_settings(folder, state.config, state.predictor.vocabularies)
    pair_ngram = yield from fit_or_read_pair_ngram(state, lock, log, fingerprint)
    reason = stop_reason(state.progress, state.config.training)
    _append_once(lock, log, {"event": "stopped", **progress_fields(state.progress), "reason": reason})
    yield from _fit_weight_and_confidence(state, lock, log, fingerprint, pair_ngram)
    lock.check()
    if not file_exists(folder / run_files.CARD):
        write_text(folder / run_files.CARD, build_model_card(state, log))
    try:
        with add_advice(REMOVE_CORPUS):
            remove_file(folder / run_files.CORPUS)  # needed only to resume, and possibly larger than all other files
    except RunError as error:
        if not isinstance(error.__cause__, PermissionError):  # Windows removes no file that is mapped into memory
            raise


def _fit_weight_and_confidence(
    state: TrainingState, lock: FolderLock, log: RunLog, fingerprint: str, pair_ngram: SavedPairNgram | None
) -> Iterator[PairNgramWeighted | ConfidenceFitted]:
    """Choose the weight of the pair n-gram model, and fit the confidence, unless the run has them.

    Both are determined by outputs of the model of the best validation, which is read once.
    """
    folder, validation = lock.folder, state.validation_examples
    lacks_confidence = not has_confidence(folder, fingerprint)
    if lacks_confidence:
        remove_file(folder / run_files.CONFIDENCE)  # a damaged or foreign file, with which the model cannot be loaded
    lacks_weight = pair_ngram is not None and pair_ngram.weight is None
    if not (lacks_weight or lacks_confidence):
        return
    seconds = state.time_limit - state.progress.seconds - state.progress.overhead_seconds
    started_at, predictor = time.monotonic(), load_with_log(folder, state.config.device, log)
    if pair_ngram is not None and lacks_weight:
        weighted = weight_pair_ngram(require_transducer(predictor, "predictor"), pair_ngram, validation, seconds / 2)
        _append_once(lock, log, weight_record(weighted.event))
        save_pair_ngram(folder / run_files.PAIR_NGRAM, weighted.saved)
        predictor = weighted.predictor
        yield weighted.event
    seconds -= time.monotonic() - started_at
    fitted = fit_predictor_confidence(predictor, validation, fingerprint, seconds) if lacks_confidence else None
    if fitted is not None:
        _append_once(lock, log, confidence_record(fitted.event))
        save_confidence(folder / run_files.CONFIDENCE, fitted.saved)
        yield fitted.event


def append_records(lock: FolderLock, log: RunLog, *records: dict[str, Any]) -> None:
    """Append records to the log file of a run, and to the log that was read from it, after a check of the folder.

    Args:
        lock: Lock of the run folder.
        log: Log that was read.
        *records: The records.

    Raises:
        RunError: The run folder was removed, moved or replaced, or the file cannot be written.
    """
    lock.check()
    append_log(lock.folder, *records)
    for record in records:
        log.add(record)


def _append_once(lock: FolderLock, log: RunLog, record: dict[str, Any]) -> None:
    """Append a record to the log, unless the log has one of its kind: a lost file may be written again.

    It is flushed to disk, because the file that is written next is never without its record. The folder is checked in
    any case, because the file is written into it.
    """
    lock.check()
    if log.first(record["event"]) is None:
        append_records(lock, log, record)
        sync_log(lock.folder)
