"""Hyperparameter search: parallel trials, each a training in its own process; a generator of events.

Several processes may work on one search, in a folder that they share, or each in its own folder with a database.

study.journal   the study in Optuna's journal format; without it,
study.id        identifier of the study in a database
space.txt       the search space
trials/0000 …   the run folder of each trial; only the best trial keeps its model
best.toml       the best configuration, for `pellucid train --config`
trials.json     every finished, pruned or failed trial
report.html     the same data as a page
"""

import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from pellucid.config.settings import Config
from pellucid.config.toml import flatten_config
from pellucid.data.prepared_data import read_description
from pellucid.errors import ConfigError, DataError, DivergenceError, FolderInUseError, OutOfMemoryError, RunError
from pellucid.files import (
    FileDigest,
    file_exists,
    open_regular_file,
    read_bytes,
    remove_file,
    remove_temporaries,
    unexpected_files,
    wrap_os_errors,
    write_text,
)
from pellucid.run_folder.initialization import refuse_inputs, refuse_links
from pellucid.run_folder.lock import in_use, lock_run_folder, share_run_folder
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.run_files import CHECKPOINT, CORPUS, LOCK, MODEL, SNAPSHOTS
from pellucid.training.data_file_check import DataFileCheck
from pellucid.training.ensemble_training import TrainingJob, num_first_trainings, run_job, shutdown
from pellucid.training.events import FileRead, RunEvent, UpdateCompleted, ValidationCompleted
from pellucid.training.snapshots import remove_run_temporaries
from pellucid.training.training_data import (
    TrainingFiles,
    input_paths,
    prepared_folder,
    read_training_data,
    resolve_auto_settings,
)
from pellucid.training.training_length import derived_epochs
from pellucid.tuning.journal import JOURNAL, STUDY_FILES, STUDY_ID
from pellucid.tuning.processes import PROCESSES
from pellucid.tuning.results import write_results
from pellucid.tuning.space import SearchSpace, Value, apply_values, describe_space, initial_values
from pellucid.tuning.storage import JOURNAL_LOCK, FolderStorage, StudyStorage, StudyUnreachableError
from pellucid.tuning.study import (
    EndedTrial,
    PruneDecision,
    Pruning,
    StudyResults,
    StudySettings,
    SuggestedTrial,
    TrialLostError,
    TuningStudy,
)
from pellucid.worker_pool import (
    EVENT_TIMEOUT,
    JobEvent,
    JobFailure,
    JobPool,
    JobResult,
    ProgressMessage,
    WorkerDiedError,
    open_pool,
)

TRIAL_ERRORS = (DivergenceError, OutOfMemoryError, WorkerDiedError)
"""Errors after which a trial has failed, and the search goes on."""
MAX_INITIAL_FAILURES = 3
"""Number of failed trials, without any other, after which the search stops."""
SYNC_SECONDS = 2.0
"""Seconds after which a process without a trial to start looks again for trials that others have left."""
UNREACHABLE_SECONDS = 600.0
"""Seconds for which a search tries to reach the storage of its study again, while its trials train."""
RETRY_SECONDS = 1.0
"""Pause between two of these attempts."""
Result = TypeVar("Result")


class StudyRequest(NamedTuple):
    """Arguments of a search."""

    files: TrainingFiles
    """Training and validation files."""
    out: Path
    """Folder of the search."""
    config: Config
    """Settings of the first trial, and of all settings that are not searched; as `resolve_config` returns it."""
    space: SearchSpace
    trials: int
    """Total number of trials of all processes, including those of earlier calls; a repeated trial counts once."""
    seconds: float
    """Time limit, after which running trials are stopped and resumed by the next call; 0 for none."""
    max_parallel: int
    """Maximum number of trials trained in parallel; 0 for as many as a cluster has CPUs for."""
    pruning: Pruning
    shared: bool = False
    """Whether several processes work in the folder."""
    storage: StudyStorage | None = None
    """Storage of the study, for any number of processes; None for the journal of the folder."""


class StudyOpened(NamedTuple):
    """The study is opened, new or existing."""

    space: list[str]
    """Search space, one line per setting."""
    num_ended: int
    """Number of ended trials of earlier calls, without those that are repeated."""
    num_unfinished: int
    """Number of interrupted trials, which are resumed."""
    num_retried: int
    """Number of failed trials that are tried again."""
    num_elsewhere: int
    """Number of trials that other processes run."""


class TrialStarted(NamedTuple):
    """A trial starts or resumes."""

    number: int
    """Number of the trial, from 0."""
    values: dict[str, Value]
    """Values of the searched settings, by key."""


class TrialProgress(NamedTuple):
    """An event of a trial's training."""

    number: int
    """Number of the trial."""
    event: RunEvent


class TrialLost(NamedTuple):
    """A trial is stopped here: another process has taken it, because this one did not reach the database."""

    number: int
    """Number of the trial."""


class TrialsAwaited(NamedTuple):
    """No trial is left to start; this process waits for those of others, and takes the trial of one that dies."""

    num_trials: int
    """Number of the trials that others run."""


class StudyUnreachable(NamedTuple):
    """The storage of the study does not answer; this process tries again for `UNREACHABLE_SECONDS`."""

    reason: str


class StudyFinished(NamedTuple):
    """The search ends: by the number of trials, by the time limit, or because its first trials have all failed."""

    results: StudyResults
    num_unfinished: int
    """Number of trials that were interrupted at the end and that no process runs; the next call resumes them."""
    num_elsewhere: int
    """Number of trials that other processes run."""


TrialEvent = TrialStarted | TrialProgress | EndedTrial | TrialLost
TuneEvent = StudyOpened | TrialEvent | TrialsAwaited | StudyUnreachable | StudyFinished


def resolve_config(config: Config, files: TrainingFiles) -> tuple[Config, tuple[FileRead, FileRead]]:
    """Read the files, and return the configuration with their format, the number of epochs and the validation interval
    in place of "auto" and 0.

    Args:
        config: Configuration at which the search starts.
        files: Training and validation files.

    Returns:
        The completed configuration, and the events of reading both files.

    Raises:
        DataError: A file cannot be read, or cannot be read again by each trial (a pipe); or as in `read_files`.
        ConfigError: The configured columns are not valid.
    """
    for path in filter(None, files):
        if path.exists() and not path.is_file() and prepared_folder(files) is None:
            raise DataError(f"{path} is not a regular file: each trial has to read it again")
    data = resolve_auto_settings(files, config.data)
    file_reads = read_training_data(files, msgspec.structs.replace(config, data=data), config.data).file_events
    epochs = config.training.epochs or round(derived_epochs(file_reads[0].num_examples))
    # Pruning compares the validations of trials, so there is one after each epoch.
    eval_interval = config.training.eval_interval or 1.0
    training_config = msgspec.structs.replace(config.training, epochs=float(epochs), eval_interval=eval_interval)
    return msgspec.structs.replace(config, data=data, training=training_config), file_reads


def tune(request: StudyRequest) -> Generator[TuneEvent | None]:
    """Run or resume a search: train trials in parallel processes, prune bad ones, and write the results after each.

    Closing the generator stops all trials; they save their state, and the next call resumes them.

    Args:
        request: Arguments of the search.

    Yields:
        `StudyOpened`, then events of the trials, and last `StudyFinished`; None after each poll of the workers, at
        least every 0.2 seconds.

    Raises:
        RunError: The folder has other content, is in use, holds a study of other data, settings or search space, or
            cannot be written; or a file that the trials read would be replaced.
        InputError: A trial's training fails for another reason than divergence, settings that contradict each other,
            lack of memory or a killed process.
        WorkerError: A worker process raised an unexpected error.
    """
    refuse_inputs(request.out, STUDY_FILES, input_paths(request.files, request.config))
    _check_folder(request.out, request.storage is not None)
    with _locked_folder(request):
        storage = request.storage or FolderStorage(request.out, request.shared)
        try:
            yield from _run_search(HyperparameterSearch(request, storage))
        finally:
            with suppress(RunError):  # what this process leaves is taken from it later
                storage.close()


@contextmanager
def _locked_folder(request: StudyRequest) -> Iterator[None]:
    """Hold the lock of the folder in the block: alone, or together with other processes."""
    is_shared = request.shared or request.storage is not None
    with ExitStack() as stack:
        try:
            stack.enter_context(
                share_run_folder(request.out, "the search")
                if is_shared
                else lock_run_folder(request.out, STUDY_FILES, "the search")
            )
        except FolderInUseError as error:
            if is_shared:
                raise FolderInUseError(
                    f"{request.out} is in use by a command without --shared: stop it, and give --shared to all commands"
                ) from error
            raise FolderInUseError(
                f"{request.out} is in use: another command searches there; to search with several, give --shared to all"
            ) from error
        yield


def _run_search(search: "HyperparameterSearch") -> Iterator[TuneEvent | None]:
    """Run a search that is open; yield its events."""
    search.remove_temporaries()
    num_elsewhere = len(search.study.running_elsewhere())
    unfinished = search.study.num_running - num_elsewhere
    space = describe_space(search.request.space)
    yield StudyOpened(space, len(search.study.ended_trials()), unfinished, search.num_retried, num_elsewhere)
    with open_pool(run_job, num_first_trainings(search.request.max_parallel)) as search.pool:
        try:
            yield from search.events()
        except BaseException:
            shutdown(search.pool)
            with suppress(RunError):
                search.study.release_trials(list(search.study.own_trials))
            raise
    yield search.finish()


class HyperparameterSearch:
    """A search in progress: its study, and the state of its trials in this process. `tune` runs it."""

    pool: JobPool
    """Pool of the trials' trainings, which `tune` sets."""

    def __init__(self, request: StudyRequest, storage: StudyStorage) -> None:
        """Open or create the study, enqueue trials that are resumed or repeated, and write the results so far.

        Args:
            request: Arguments of the search.
            storage: Storage of the study.

        Raises:
            RunError: The storage holds a study of other data, settings or search space, or is damaged; the folder holds
                trials of another study; or a file cannot be read or written.
        """
        config = request.config
        num_validations = config.training.epochs / config.training.eval_interval
        settings = StudySettings(
            request.space, config.training.metric, config.seed, request.pruning, int(num_validations)
        )
        self.request = request
        self.pruned: dict[int, PruneDecision] = {}
        """Decision to prune, by running trial."""
        self.lost: set[int] = set()
        """Trials that other processes have taken, and whose trainings are stopping here."""
        self.deadline = time.monotonic() + request.seconds if request.seconds else float("inf")
        self.has_failed = False
        """True after `MAX_INITIAL_FAILURES` failures without success."""
        self.num_awaited = 0
        """Number of running trials of others when no trial was left to start."""
        self.next_claim = 0.0
        """Time from which this process looks for a trial to start."""
        self.data_check = DataFileCheck(request.files, config)
        """Contents of the data files, which must stay the same for all trials."""
        description = _study_description(request, dict(self.data_check.digests))
        with storage.locked():
            self.study = TuningStudy(storage, settings)
            changed = self.study.check_description(description)
            if changed:
                raise RunError(f"{storage.title} holds a study with other {' and '.join(changed)}; {storage.new_study}")
            if storage.study_id:
                _check_study_id(request.out, storage.study_id)
            self.study.enqueue_first(initial_values(config, request.space))
            self.num_retried = self.study.retry_failed()
            write_text(request.out / "space.txt", "\n".join(describe_space(request.space)) + "\n")
            self.update_results()

    @property
    def can_continue(self) -> bool:
        """True until the time limit, unless the first `MAX_INITIAL_FAILURES` trials have all failed."""
        return not self.has_failed and time.monotonic() < self.deadline

    def events(self) -> Iterator[TuneEvent | None]:
        """Run the trials; yield their events until all have ended, or have stopped at the time limit.

        Yields:
            Events of the trials, and None after each poll of the workers.

        Raises:
            RunError: A data file was changed since the start.
        """
        is_waiting = False
        while True:
            yield from self.start_trials()
            if not self.pool.busy and not (self.can_continue and self.num_awaited):
                self.data_check.check()
                return
            if not self.pool.busy and not is_waiting:
                yield TrialsAwaited(self.num_awaited)
            is_waiting = not self.pool.busy
            if is_waiting:
                time.sleep(EVENT_TIMEOUT)
            for event in self.pool.events() if self.pool.busy else ():
                yield from (yield from self._retry_while_unreachable(partial(self.handle_event, event)))
            if not self.can_continue:
                self.pool.request_stop()
            self.study.storage.touch()
            yield None

    def start_trials(self) -> Iterator[TuneEvent | None]:
        """Start trials while workers are free, and trials are left that no process runs.

        Yields:
            Events of the trials.
        """
        while self.can_continue and self.pool.free_workers and time.monotonic() >= self.next_claim:
            suggested = yield from self._retry_while_unreachable(self.claim_trial)
            if suggested is not None:
                yield from (yield from self._retry_while_unreachable(partial(self.start_trial, suggested)))

    def claim_trial(self) -> SuggestedTrial | None:
        """Return a trial to start here, which is then this process's; None if there is none now."""
        suggested = self.study.claim_trial(self.request.trials, self.is_busy)
        if suggested is None:
            self.num_awaited = self.study.num_running - len(self.study.own_trials)
            self.next_claim = time.monotonic() + SYNC_SECONDS
        return suggested

    def is_busy(self, number: int) -> bool:
        """Return whether a training writes to the folder of a trial, such as that of a process that was just killed.

        Args:
            number: Number of the trial.
        """
        return number in self.pool.busy or in_use(self.folder(number))

    def _retry_while_unreachable(self, operation: Callable[[], Result]) -> Generator[TuneEvent | None, None, Result]:
        """Return the result of an operation on the study, which is repeated while the storage does not answer."""
        give_up_at = time.monotonic() + UNREACHABLE_SECONDS
        is_reported = False
        while True:
            try:
                return operation()
            except StudyUnreachableError as error:
                if time.monotonic() > give_up_at:
                    raise
                yield None if is_reported else StudyUnreachable(str(error))
                is_reported = True
                time.sleep(RETRY_SECONDS)

    def start_trial(self, suggested: SuggestedTrial) -> list[TrialEvent]:
        """Submit a trial to a worker process; a trial whose settings contradict each other ends as failed.

        Args:
            suggested: The trial, new or resumed.

        Returns:
            A `TrialStarted`, and the `EndedTrial` of a trial that was to be pruned before an interruption; or the
            failed `EndedTrial`; or a `TrialLost`.
        """
        number = suggested.number
        started = TrialStarted(number, suggested.values)
        try:
            config = self.config(suggested.values)
            # The study may lack the last validations, and the end of a trial that was to be pruned.
            for validation, record in enumerate(self.read_validations(number), 1):
                if self.record_validation(number, validation, record):
                    return [started, self.end_pruned(number)]
        except ConfigError as error:
            return [self.end_trial(number, "failed", str(error), 0)]
        except TrialLostError:
            return [self.drop_trial(number)]
        self.data_check.check()
        job = TrainingJob(self.request.files, self.folder(number), config, digests=self.data_check.digests)
        self.pool.submit(number, job)
        return [started]

    def handle_event(self, job_event: JobEvent) -> list[TrialEvent]:
        """Record an event of a trial's worker process: a validation, or the end of the trial.

        Args:
            job_event: The event.

        Returns:
            A `TrialProgress`, the `EndedTrial`, or a `TrialLost`; nothing for a trial that was interrupted.

        Raises:
            InputError: The training failed for another reason than divergence, lack of memory or a killed process.
            WorkerError: The worker process raised an unexpected error.
        """
        number = job_event.job
        if number in self.lost:
            if not isinstance(job_event, ProgressMessage):
                self.lost.remove(number)
            return []
        try:
            if isinstance(job_event, ProgressMessage):
                return [self.handle_progress(number, job_event.content)]
            self.next_claim = 0.0
            return list(self.handle_end(job_event))
        except TrialLostError:
            return [self.drop_trial(number)]

    def handle_progress(self, number: int, event: RunEvent) -> TrialProgress:
        """Record a validation, and return the event of the training.

        Args:
            number: Number of the trial.
            event: Event of its training.
        """
        if isinstance(event, UpdateCompleted):  # one trial has compiled the kernels for all
            self.pool.max_workers = self.request.max_parallel
        if isinstance(event, ValidationCompleted) and number not in self.pruned:
            self.record_validation(number, event.progress.validations, event.metrics)
        return TrialProgress(number, event)

    def handle_end(self, job_event: JobResult | JobFailure) -> Iterator[EndedTrial]:
        """Record the end of a trial whose training has ended, unless it was interrupted.

        Args:
            job_event: Last event of the training.

        Yields:
            The ended trial.

        Raises:
            InputError: As in `handle_event`.
        """
        match job_event:
            case JobFailure(number, FolderInUseError()):  # a worker of a killed process still writes there
                self.study.release_trials([number])
            case JobResult(number) if number in self.pruned:
                yield self.end_pruned(number)
            case JobFailure(number, error) if number in self.pruned and isinstance(error, TRIAL_ERRORS):
                yield self.end_pruned(number)
            case JobResult(number, is_complete):
                if is_complete:
                    yield self.end_trial(number, "finished", "")
            case JobFailure(number, error):
                if not isinstance(error, TRIAL_ERRORS):
                    raise error
                yield self.end_trial(number, "failed", str(error))
                self.check_failures()

    def drop_trial(self, number: int) -> TrialLost:
        """Stop the training of a trial that another process has taken.

        Args:
            number: Number of the trial.
        """
        self.study.drop_trial(number)
        self.pruned.pop(number, None)
        if number in self.pool.busy:
            self.lost.add(number)
            self.pool.request_stop([number])
        return TrialLost(number)

    def finish(self) -> StudyFinished:
        """Write the results of all processes, leave interrupted trials to any process, and remove temporary files.

        Returns:
            The last event of the search.

        Raises:
            RunError: A file cannot be written or removed.
        """
        with self.study.storage.locked():
            self.study.release_trials(list(self.study.own_trials))
            self.update_results()
            self.remove_temporaries()
            num_elsewhere = len(self.study.running_elsewhere())
            return StudyFinished(self.study.results(), self.study.num_running - num_elsewhere, num_elsewhere)

    def folder(self, number: int) -> Path:
        """Return the path of a trial's run folder, such as trials/0012; the folder need not exist.

        Args:
            number: Number of the trial.
        """
        return self.request.out / "trials" / f"{number:04d}"

    def config(self, values: dict[str, Value]) -> Config:
        """Return the configuration of a trial; linked settings follow the searched ones.

        Args:
            values: Values of the searched settings, by key.

        Raises:
            ConfigError: The settings contradict each other.
        """
        return apply_values(self.request.config, self.request.space, values, "a trial")

    def read_validations(self, number: int) -> list[dict[str, Any]]:
        """Return the validations in the log of a trial's run folder.

        Args:
            number: Number of the trial.

        Returns:
            Log records, oldest first; none if the trial has no log.

        Raises:
            RunError: The log cannot be read.
        """
        return load_run_log(self.folder(number)).all("validated")

    def record_validation(self, number: int, validation: int, metrics: Mapping[str, Any]) -> bool:
        """Record a validation in the journal, and return whether the trial is to be pruned; if it runs, it is stopped.

        Args:
            number: Number of the trial.
            validation: Number of the validation, from 1.
            metrics: Metrics of the validation by their keys in the log, or the record of the log.
        """
        decision = self.study.report(number, validation, metrics[self.request.config.training.metric])
        if decision is not None:
            self.pruned[number] = decision
            if number in self.pool.busy:
                self.pool.request_stop([number])
        return decision is not None

    def end_pruned(self, number: int) -> EndedTrial:
        """End a trial that is to be pruned; later validations than the decisive one do not count.

        Args:
            number: Number of a trial in `pruned`.

        Returns:
            The ended trial.

        Raises:
            RunError: As in `end_trial`.
        """
        decision = self.pruned[number]
        ended = self.end_trial(number, "pruned", decision.reason, decision.validation)
        del self.pruned[number]
        return ended

    def end_trial(
        self,
        number: int,
        state: Literal["finished", "pruned", "failed"],
        reason: str,
        num_validations: int | None = None,
    ) -> EndedTrial:
        """Record the end of a trial in the journal, write the results, and remove models that are no longer the best.

        Args:
            number: Number of the trial.
            state: Final state.
            reason: Reason of pruning or failure; "" for a finished trial.
            num_validations: Number of first validations that count, of which the best gives the score; None for all.

        Returns:
            The ended trial, with the score of its best validation and its values.

        Raises:
            RunError: A file cannot be read, written or removed.
        """
        log = load_run_log(self.folder(number))
        best = [record for record in log.all("validated")[:num_validations] if record["best"]][-1:]
        last = [] if log.last_progress is None else [log.last_progress]
        seconds = [record["seconds"] for record in (*log.records, *last) if "seconds" in record]
        score = best[0][self.request.config.training.metric] if best else None
        values = self.study.trial_values(number)
        with self.study.storage.locked():
            self.study.record_end(EndedTrial(number, state, score, reason, max(seconds, default=0.0), values))
            self.update_results()
            return next(trial for trial in self.study.ended_trials() if trial.number == number)

    def update_results(self) -> None:
        """Write the results, and remove models, checkpoints and corpora of all ended trials except the best.

        The lock of the study is held meanwhile, so that the files of a trial that another process ends now stay.

        Raises:
            RunError: A file cannot be written or removed.
        """
        with self.study.storage.locked():
            results = self.study.results()
            refuse_links([self.folder(trial.number) for trial in results.ended])
            for trial in results.ended:
                if results.best is None or trial.number != results.best.number:
                    for name in (MODEL, CHECKPOINT, CORPUS):
                        if (self.folder(trial.number) / name).exists():
                            remove_file(self.folder(trial.number) / name)
            config = self.config(results.best.values) if results.best else None
            write_results(self.request.out, self.request.config.training.metric, results, config)

    def remove_temporaries(self) -> None:
        """Remove temporary files of killed processes from the folder and from those of trials that no process runs.

        No trial of this process may be running. A killed trial is tried again under a new number, so no training opens
        its folder again. The files of the search itself are written under the lock of the study.

        Raises:
            RunError: A folder of a trial, or its folder of snapshots, is a symbolic link, or a file cannot be removed.
        """
        with self.study.storage.locked():
            remove_temporaries(self.request.out, STUDY_FILES.__contains__)
            elsewhere = self.study.running_elsewhere()
            for number in range(self.study.num_trials):
                folder = self.folder(number)
                refuse_links([folder, folder / SNAPSHOTS])
                if number not in elsewhere and not in_use(folder):
                    remove_run_temporaries(folder)

    def check_failures(self) -> None:
        """Stop the search if at least `MAX_INITIAL_FAILURES` trials have ended and all of them have failed."""
        ended = self.study.ended_trials()
        self.has_failed = len(ended) >= MAX_INITIAL_FAILURES and all(trial.state == "failed" for trial in ended)


def _study_description(request: StudyRequest, known_digests: Mapping[str, FileDigest]) -> dict[str, Any]:
    """Return what all trials of a study share: a hash of the data files, the fixed settings and the search space."""
    digest = hashlib.sha256()
    prepared = prepared_folder(request.files)
    if prepared is not None:
        digest.update(read_description(prepared).key.encode("utf-8"))
    mix_in = request.config.training.mix_in
    for path in filter(None, [*(request.files if prepared is None else ()), Path(mix_in) if mix_in else None]):
        if known := known_digests.get(str(path)):
            digest.update(bytes.fromhex(known.sha256))
            continue
        with wrap_os_errors("read", path), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    searched = {dimension.key for dimension in (*request.space.searched, *request.space.linked)}
    fixed = {key: value for key, value in flatten_config(request.config).items() if key not in searched}
    settings = json.loads(json.dumps(fixed))  # as stored in the study: lists instead of tuples
    return {"data": digest.hexdigest(), "settings": settings, "space": describe_space(request.space)}


def _check_folder(folder: Path, uses_database: bool) -> None:
    """Raise `RunError` if a folder holds anything but a study, or a link or special file where a search writes."""
    trials = folder / "trials"
    refuse_links([folder / name for name in (LOCK, JOURNAL, JOURNAL_LOCK, PROCESSES, STUDY_ID)] + [trials])
    if trials.is_dir():
        with wrap_os_errors("read", trials):
            refuse_links(sorted(trials.iterdir()))
    has_journal = file_exists(folder / JOURNAL)
    if has_journal:
        open_regular_file(folder / JOURNAL).close()  # refuses a named pipe, a device or a folder
    has_study_id = file_exists(folder / STUDY_ID)
    foreign = [] if has_journal else unexpected_files(folder, STUDY_FILES if has_study_id else ())
    if has_study_id:
        if not uses_database:
            raise RunError(f"{folder} holds the trials of a study in a database: give --storage, or name a new folder")
    elif uses_database and (has_journal or trials.is_dir()):
        raise RunError(f"{folder} holds the trials of a study without --storage; name a new folder")
    if foreign:
        raise RunError(f"{folder} is not empty and holds no study ({', '.join(foreign[:3])}); name a new folder")


def _check_study_id(folder: Path, study_id: str) -> None:
    """Write the identifier of a study in a database to a new folder; raise `RunError` for one of another study."""
    path = folder / STUDY_ID
    if not file_exists(path):
        write_text(path, study_id + "\n")
    elif read_bytes(path).decode("utf-8", "replace").strip() != study_id:
        raise RunError(f"{folder} holds the trials of another study of a database; name a new folder")
