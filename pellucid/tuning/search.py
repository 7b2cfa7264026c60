"""Hyperparameter search: parallel trials, each a training in its own process; a generator of events.

study.journal   the study in Optuna's journal format
space.txt       the search space
trials/0000 …   the run folder of each trial; only the best trial keeps its model
best.toml       the best configuration, for `pellucid train --config`
trials.json     every finished, pruned or failed trial
report.html     the same data as a page
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.config.settings import Config, Metric
from pellucid.config.toml import to_toml
from pellucid.files import write_json, write_text
from pellucid.viewer.report_schema import ReportTable
from pellucid.viewer.reports import Report, write_report

if TYPE_CHECKING:
    from pellucid.tuning.study import EndedTrial, TuningStudy
import hashlib
import json
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from pellucid.config.toml import flatten_config
from pellucid.errors import ConfigError, DataError, DivergenceError, OutOfMemoryError, RunError
from pellucid.files import file_exists, open_regular_file, remove_file, unexpected_files, wrap_os_errors
from pellucid.kernels.dispatch import will_compile
from pellucid.run_folder.initialization import refuse_links
from pellucid.run_folder.lock import in_use, lock_run_folder
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.run_files import CHECKPOINT, CORPUS, LOCK, MODEL, SNAPSHOTS
from pellucid.training.ensemble_training import TrainingJob, run_job, shutdown
from pellucid.training.events import FileRead, RunEvent, UpdateCompleted, ValidationCompleted
from pellucid.training.loop import derived_epochs
from pellucid.training.snapshots import remove_run_temporaries
from pellucid.training.training_data import (
    TrainingFiles,
    prepared_folder,
    read_training_data,
    resolve_auto_settings,
)
from pellucid.tuning.journal import JOURNAL
from pellucid.tuning.space import SearchSpace, Value, apply_values, describe_space, initial_values
from pellucid.tuning.study import EndedTrial, PruneDecision, Pruning, StudySettings, SuggestedTrial, TuningStudy
from pellucid.worker_pool import JobEvent, JobFailure, JobResult, ProgressMessage, WorkerDiedError, WorkerPool

METRIC_UNITS = {"exact_match": " %", "symbol_error_rate": " %", "symbol_accuracy": " %", "loss": ""}
INTRODUCTION = """\
Each trial trains with its own settings; its score is that of its best validation. A difference of a point or two
between the first trials may be chance. The score of the best trial on the validation set is biased, because the same
set selected the trial. Evaluate it on a test set that neither training nor search has used."""


def write_results(folder: Path, metric: Metric, study: "TuningStudy", best: Config | None) -> None:
    """Write trials.json and report.html; write best.toml if a trial has finished.

    Args:
        folder: Folder of the search.
        metric: Metric by which trials are ranked.
        study: The study.
        best: Configuration of the best finished trial; None if no trial has finished.

    Raises:
        RunError: A file cannot be written.
    """
    ended, weights = study.ended_trials(), study.importances()
    trials = [trial._asdict() for trial in rank_trials(ended, metric)]
    write_json(folder / "trials.json", {"metric": metric, "importances": weights, "trials": trials})
    if best is not None:
        write_text(folder / "best.toml", to_toml(best))
    summary = [(name, str(sum(trial.state == name for trial in ended))) for name in ("finished", "pruned", "failed")]
    heads = ["trial", "state", metric.replace("_", " "), "seconds", *searched_keys(ended)]
    parts = [
        ReportTable(
            "Trials",
            "Finished trials, the best first; then pruned and failed ones.",
            heads,
            trial_rows(ended, metric),
        )
    ]
    if weights:
        caption = "Importance of each setting for the best trials (PED-ANOVA); the shares sum to 100 %."
        shares = [(key, f"{100 * weight:.0f} %") for key, weight in weights.items()]
        parts.append(ReportTable("Importance of settings", caption, ["setting", "share"], shares))
    config = to_toml(best) if best is not None else ""
    page = Report("Hyperparameter search", INTRODUCTION, summary=summary, parts=parts, config_toml=config)
    write_report(folder / "report.html", page)


def rank_trials(ended: Sequence["EndedTrial"], metric: Metric) -> list["EndedTrial"]:
    """Return finished trials, then pruned ones, then failed ones; in each group the best score first, then by number.

    A missing score counts as 0.

    Args:
        ended: Ended trials.
        metric: Metric of the scores; lower is better for the loss and the symbol error rate.
    """
    sign = -1.0 if metric in ("exact_match", "symbol_accuracy") else 1.0
    order = ("finished", "pruned", "failed")
    return sorted(ended, key=lambda trial: (order.index(trial.state), sign * (trial.score or 0.0), trial.number))


def searched_keys(ended: Sequence["EndedTrial"]) -> list[str]:
    """Return the full keys of the searched settings that occur in any trial, such as "training.learning_rate".

    Args:
        ended: Ended trials; without any there are no keys.
    """
    return list(dict.fromkeys(key for trial in ended for key in trial.values))


def trial_rows(ended: Sequence["EndedTrial"], metric: Metric) -> list[list[str]]:
    """Return a table row per trial: number, state with its reason, score, seconds of training, and all values.

    Args:
        ended: Ended trials.
        metric: Metric of the scores.

    Returns:
        Rows of texts in the order of `rank_trials`; the values are in the order of `searched_keys`.
    """
    return [
        [
            str(trial.number),
            f"{trial.state}: {trial.reason}" if trial.reason else trial.state,
            format_score(trial.score, metric),
            f"{trial.seconds:,.0f}",
            *(
                f"{value:g}" if isinstance(value := trial.values.get(key, ""), float) else str(value)
                for key in searched_keys(ended)
            ),
        ]
        for trial in rank_trials(ended, metric)
    ]


def format_score(score: float | None, metric: Metric) -> str:
    """Return a score as text: a rate with two decimals and " %", a loss with three decimals.

    Args:
        score: The score; None is shown as "-".
        metric: Metric of the score.
    """
    if score is None:
        return "-"
    return f"{score:.3f}" if metric == "loss" else f"{score:.2f}{METRIC_UNITS[metric]}"


STUDY_FILES = (JOURNAL, "space.txt", "trials", "best.toml", "trials.json", "report.html")
TRIAL_ERRORS = (DivergenceError, OutOfMemoryError, WorkerDiedError)
"""Errors after which a trial has failed, and the search goes on."""
MAX_INITIAL_FAILURES = 3
"""Number of failed trials, without any other, after which the search stops."""


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
    """Total number of trials, including those of earlier calls; a repeated trial counts once."""
    seconds: float
    """Time limit, after which running trials are stopped and resumed by the next call; 0 for none."""
    max_parallel: int
    """Maximum number of trials trained in parallel."""
    pruning: Pruning


class StudyOpened(NamedTuple):
    """The study is opened, new or existing."""

    space: list[str]
    """Search space, one line per setting."""
    ended: int
    """Number of ended trials of earlier calls, without those that are repeated."""
    unfinished: int
    """Number of interrupted trials, which are resumed."""
    num_retried: int
    """Number of failed trials that are tried again."""


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


class StudyFinished(NamedTuple):
    """The search ends: by the number of trials, by the time limit, or because its first trials have all failed."""

    study: TuningStudy
    unfinished: int
    """Number of trials that were interrupted at the end; the next call resumes them."""


TuneEvent = StudyOpened | TrialStarted | TrialProgress | EndedTrial | StudyFinished


def resolve_config(config: Config, files: TrainingFiles) -> tuple[Config, tuple[FileRead, FileRead]]:
    """Read the files, and return the configuration with their format and the number of epochs in place of "auto" and 0.

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
            raise DataError(f"{path} is no regular file: each trial has to read it again")
    data = resolve_auto_settings(files, config.data)
    file_reads = read_training_data(files, msgspec.structs.replace(config, data=data), config.data).reads
    epochs = config.training.epochs or round(derived_epochs(file_reads[0].examples))
    training_config = msgspec.structs.replace(config.training, epochs=float(epochs))
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
            cannot be written.
        InputError: A trial's training fails for another reason than divergence, settings that contradict each other,
            lack of memory or a killed process.
        WorkerError: A worker process met a bug.
    """
    _check_folder(request.out)
    with lock_run_folder(request.out, STUDY_FILES):
        search = HyperparameterSearch(request)
        search.remove_temporaries()
        yield StudyOpened(
            describe_space(request.space), len(search.study.ended_trials()), len(search.waiting), search.num_retried
        )
        with WorkerPool[TrainingJob](run_job, 1 if will_compile() else request.max_parallel) as search.pool:
            try:
                yield from search.events()
            except BaseException:
                shutdown(search.pool)
                raise
        search.remove_temporaries()
        yield StudyFinished(search.study, len(search.study.open))


class HyperparameterSearch:
    """A search in progress: its study, and the state of its trials in this process. `tune` runs it."""

    pool: WorkerPool[TrainingJob]
    """Worker processes, which `tune` sets."""

    def __init__(self, request: StudyRequest) -> None:
        """Open or create the study, enqueue trials that are resumed or repeated, and write the results so far.

        Args:
            request: Arguments of the search.

        Raises:
            RunError: The folder holds a study of other data, settings or search space, its journal is damaged, or a
                file cannot be read or written.
        """
        config = request.config
        num_validations = config.training.epochs / config.training.eval_interval
        settings = StudySettings(
            request.space, config.training.metric, config.seed, request.pruning, int(num_validations)
        )
        self.request = request
        self.study = TuningStudy(request.out, settings)
        self.pruned: dict[int, PruneDecision] = {}
        """Decision to prune, by running trial."""
        self.deadline = time.monotonic() + request.seconds if request.seconds else float("inf")
        changed = self.study.check_description(_study_description(request))
        if changed:
            raise RunError(f"{request.out} holds a study with other {' and '.join(changed)}; name a new folder")
        self.study.enqueue_first(initial_values(config, request.space))
        self.waiting = self.study.unfinished_trials()
        self.num_retried = self.study.retry_failed()
        self.failing = False
        """True after `MAX_INITIAL_FAILURES` failures without success."""
        write_text(request.out / "space.txt", "\n".join(describe_space(request.space)) + "\n")
        self.update_results()

    @property
    def can_continue(self) -> bool:
        """True until the time limit, unless the first `MAX_INITIAL_FAILURES` trials have all failed."""
        return not self.failing and time.monotonic() < self.deadline

    def events(self) -> Iterator[TuneEvent | None]:
        """Run the trials; yield their events until all have ended, or have stopped at the time limit.

        Yields:
            Events of the trials, and None after each poll of the workers.
        """
        while True:
            while self.can_continue and self.pool.free_workers:
                if not self.waiting and self.study.num_started >= self.request.trials:
                    break
                yield from self.start_trial(self.waiting.pop(0) if self.waiting else self.study.ask())
            if not self.pool.busy:
                return
            for event in self.pool.events():
                yield from self.handle_event(event)
            if not self.can_continue:
                self.pool.request_stop()
            yield None

    def start_trial(self, suggested: SuggestedTrial) -> Iterator[TuneEvent]:
        """Submit a trial to a worker process; a trial whose settings contradict each other ends as failed.

        Args:
            suggested: The trial, new or resumed.

        Yields:
            A `TrialStarted`, and the `EndedTrial` of a trial that was to be pruned before an interruption; or the
            failed `EndedTrial`.
        """
        try:
            config = self.config(suggested.values)
        except ConfigError as error:
            yield self.end_trial(suggested.number, "failed", str(error), 0)
            return
        yield TrialStarted(suggested.number, suggested.values)
        # The journal may lack the last validations, and the end of a trial that was to be pruned.
        for validation, record in enumerate(self.read_validations(suggested.number), 1):
            if self.record_validation(suggested.number, validation, record):
                yield self.end_pruned(suggested.number)
                return
        self.pool.submit(suggested.number, TrainingJob(self.request.files, self.folder(suggested.number), config))

    def handle_event(self, job_event: JobEvent) -> Iterator[TuneEvent]:
        """Record an event of a trial's worker process: a validation, or the end of the trial.

        Args:
            job_event: The event.

        Yields:
            A `TrialProgress`, or the `EndedTrial`; nothing for a trial that was interrupted.

        Raises:
            InputError: The training failed for another reason than divergence, lack of memory or a killed process.
            WorkerError: The worker process met a bug.
        """
        match job_event:
            case ProgressMessage(number, event):
                if isinstance(event, UpdateCompleted):  # one trial has compiled the kernels for all
                    self.pool.max_workers = self.request.max_parallel
                if isinstance(event, ValidationCompleted) and number not in self.pruned:
                    self.record_validation(number, event.progress.validations, event.metrics)
                yield TrialProgress(number, event)
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

    def record_validation(self, number: int, validation: int, metrics: Mapping[str, float]) -> bool:
        """Record a validation in the journal, and return whether the trial is to be pruned; if it runs, it is stopped.

        Args:
            number: Number of the trial.
            validation: Number of the validation, from 1.
            metrics: Metrics of the validation, by their keys in the log.
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
        decision = self.pruned.pop(number)
        return self.end_trial(number, "pruned", decision.reason, decision.validation)

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
        self.study.record_end(EndedTrial(number, state, score, reason, max(seconds, default=0.0), values))
        ended = next(trial for trial in self.study.ended_trials() if trial.number == number)
        self.update_results()
        return ended

    def update_results(self) -> None:
        """Write the results, and remove models, checkpoints and corpora of all ended trials except the best.

        Raises:
            RunError: A file cannot be written or removed.
        """
        best, ended = self.study.best_trial(), self.study.ended_trials()
        refuse_links([self.folder(trial.number) for trial in ended])
        for trial in ended:
            if best is None or trial.number != best.number:
                for name in (MODEL, CHECKPOINT, CORPUS):
                    if (self.folder(trial.number) / name).exists():
                        remove_file(self.folder(trial.number) / name)
        config = self.config(best.values) if best else None
        write_results(self.request.out, self.request.config.training.metric, self.study, config)

    def remove_temporaries(self) -> None:
        """Remove temporary files of killed processes from the folders of all trials; no trial may be running.

        A killed trial is tried again under a new number, so no training opens its folder again.

        Raises:
            RunError: A folder of a trial, or its folder of snapshots, is a symbolic link, or a file cannot be removed.
        """
        for folder in map(self.folder, range(self.study.num_trials)):
            refuse_links([folder, folder / SNAPSHOTS])
            if not in_use(folder):
                remove_run_temporaries(folder)

    def check_failures(self) -> None:
        """Stop the search if at least `MAX_INITIAL_FAILURES` trials have ended and all of them have failed."""
        ended = self.study.ended_trials()
        self.failing = len(ended) >= MAX_INITIAL_FAILURES and all(trial.state == "failed" for trial in ended)


def _study_description(request: StudyRequest) -> dict[str, Any]:
    """Return what all trials of a study share: a hash of the data files, the fixed settings and the search space."""
    digest = hashlib.sha256()
    mix_in = request.config.training.mix_in
    for path in filter(None, [*request.files, Path(mix_in) if mix_in else None]):
        with wrap_os_errors("read", path), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    searched = {dimension.key for dimension in (*request.space.searched, *request.space.linked)}
    fixed = {key: value for key, value in flatten_config(request.config).items() if key not in searched}
    settings = json.loads(json.dumps(fixed))  # as stored in the study: lists instead of tuples
    return {"data": digest.hexdigest(), "settings": settings, "space": describe_space(request.space)}


def _check_folder(folder: Path) -> None:
    """Raise `RunError` if a folder holds anything but a study, or a link or special file where a search writes."""
    trials = folder / "trials"
    refuse_links([folder / LOCK, folder / JOURNAL, trials])
    if trials.is_dir():
        with wrap_os_errors("read", trials):
            refuse_links(sorted(trials.iterdir()))
    has_journal = file_exists(folder / JOURNAL)
    if has_journal:
        open_regular_file(folder / JOURNAL).close()  # refuses a named pipe, a device or a folder
    foreign = [] if has_journal else unexpected_files(folder, STUDY_FILES)
    if foreign:
        raise RunError(f"{folder} is not empty and holds no study ({', '.join(foreign[:3])}); name a new folder")
