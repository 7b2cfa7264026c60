"""Hyperparameter search: parallel trials, each a training in its own process; a generator of events.

study.journal   the study, as Optuna keeps it
space.txt       the search space
trials/0000 …   the run folder of each trial; only the best trial keeps its model
best.toml       the best configuration, for `pellucid train --config`
trials.json     every finished, pruned or failed trial
report.html     the same as a page
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

from pellucid.config.toml import flattened
from pellucid.errors import ConfigError, DataError, DivergenceError, RunError
from pellucid.files import refusals, remove, strangers
from pellucid.kernels.dispatch import will_compile
from pellucid.training import run_folder as run
from pellucid.training.ensemble_training import Training, run_job, shutdown
from pellucid.training.loop import Stepped, Validated, derived_epochs
from pellucid.training.session import Files, RunEvent
from pellucid.training.training_data import Read, read_files, resolve_data
from pellucid.tuning.space import SearchSpace, Value, apply_values, described, initial_values
from pellucid.tuning.study import JOURNAL, EndedTrial, Pruning, StudyTerms, SuggestedTrial, TuningStudy
from pellucid.worker_pool import JobEvent, JobFailure, JobResult, ProgressMessage, WorkerDiedError, WorkerPool

METRIC_UNITS = {"exact_match": " %", "symbol_error_rate": " %", "symbol_accuracy": " %", "loss": ""}
INTRODUCTION = """Each trial trained with settings of its own and was judged on the development pairs by its best
validation. A difference of a point or two between the first trials may be chance: the best of many is the luckiest too,
and the development pairs that chose it say too much good of it. Judge it on pairs that neither training nor search has
seen."""


def write_results(folder: Path, metric: Metric, study: "TuningStudy", best: Config | None) -> None:
    """Write trials.json, report.html, and best.toml where a trial has finished."""
    ended, weights = study.ended(), study.importances()
    trials = [trial._asdict() for trial in rank_trials(ended, metric)]
    write_json(folder / "trials.json", {"metric": metric, "importances": weights, "trials": trials})
    if best is not None:
        write_text(folder / "best.toml", to_toml(best))
    summary = [(name, str(sum(trial.state == name for trial in ended))) for name in ("finished", "pruned", "failed")]
    heads = ["trial", "state", metric.replace("_", " "), "seconds", *searched_keys(ended)]
    parts = [
        ReportTable(
            "Trials",
            "The best first; then those that were pruned, and those that failed.",
            heads,
            trial_rows(ended, metric),
        )
    ]
    if weights:
        caption = "How much each decides whether a trial is among the best (PED-ANOVA); the shares sum to 100 %."
        shares = [(key, f"{100 * weight:.0f} %") for key, weight in weights.items()]
        parts.append(ReportTable("Settings that matter", caption, ["setting", "share"], shares))
    config = to_toml(best) if best is not None else ""
    page = Report("Trials of a search", INTRODUCTION, summary=summary, parts=parts, config_toml=config)
    write_report(folder / "report.html", page)


def rank_trials(ended: Sequence["EndedTrial"], metric: Metric) -> list["EndedTrial"]:
    """Finished trials, the best first; then pruned ones; then failed ones."""
    sign = -1.0 if metric in ("exact_match", "symbol_accuracy") else 1.0
    order = ("finished", "pruned", "failed")
    return sorted(ended, key=lambda trial: (order.index(trial.state), sign * (trial.score or 0.0), trial.number))


def searched_keys(ended: Sequence["EndedTrial"]) -> list[str]:
    """The settings that were searched."""
    return list(dict.fromkeys(key for trial in ended for key in trial.values))


def trial_rows(ended: Sequence["EndedTrial"], metric: Metric) -> list[list[str]]:
    """One row a trial: number, state, score, seconds and every value."""
    return [
        [
            str(trial.number),
            f"{trial.state}: {trial.why}" if trial.why else trial.state,
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
    """A score with its unit."""
    if score is None:
        return "-"
    return f"{score:.3f}" if metric == "loss" else f"{score:.2f}{METRIC_UNITS[metric]}"


STUDY_FILES = (JOURNAL, "space.txt", "trials", "best.toml", "trials.json", "report.html")
MAX_INITIAL_FAILURES = 3
"""Trials that fail one after the other, with none that has not, before the search gives up."""


class StudyRequest(NamedTuple):
    """What a search is asked to do."""

    files: Files
    out: Path
    config: Config
    space: SearchSpace
    trials: int
    """Trials of the study in all, those of earlier calls included."""
    seconds: float
    """After so long trials under way are stopped, to go on at the next call; 0 for no end."""
    at_once: int
    pruning: Pruning


class StudyOpened(NamedTuple):
    """The study is there, new or gone on with."""

    space: list[str]
    ended: int
    unfinished: int
    again: int
    """Trials that failed before and are tried again."""


class TrialStarted(NamedTuple):
    """A trial begins, or goes on."""

    number: int
    values: dict[str, Value]


class TrialProgress(NamedTuple):
    """An event of a trial's training."""

    number: int
    event: RunEvent


class StudyFinished(NamedTuple):
    """The search is over, or its time."""

    study: TuningStudy
    unfinished: int


TuneEvent = StudyOpened | TrialStarted | TrialProgress | EndedTrial | StudyFinished


def prepare_config(config: Config, files: Files) -> tuple[Config, tuple[Read, Read]]:
    """The configuration with its format and its number of epochs, which the search starts from; the files are read.

    `DataError` for what cannot be read, or cannot be read again by each trial.
    """
    for path in filter(None, files):
        if path.exists() and not path.is_file():
            raise DataError(f"{path} is no file: each trial has to read it again")
    data = resolve_data(files, config.data)
    reads = read_files(files, config.data, Path("/nonexistent")).reads
    epochs = config.training.epochs or round(derived_epochs(reads[0].examples))
    training = msgspec.structs.replace(config.training, epochs=float(epochs))
    return msgspec.structs.replace(config, data=data, training=training), reads


def tune(request: StudyRequest) -> Generator[TuneEvent | None]:
    """Search, or go on with a search; now and then nothing is yielded (`None`).

    Whoever closes the generator stops all trials, which save what they have reached: the next call goes on with them.
    Errors: `RunError` for a folder that is foreign, in use, or holds another study.
    """
    _check_folder(request.out)
    with run.locked(request.out, STUDY_FILES):
        search = HyperparameterSearch(request)
        yield StudyOpened(described(request.space), len(search.study.ended()), len(search.waiting), search.again)
        with WorkerPool[Training](run_job, 1 if will_compile() else request.at_once) as search.pool:
            try:
                yield from search.events()
            except BaseException:
                shutdown(search.pool)
                raise
        yield StudyFinished(search.study, len(search.study.open))


class HyperparameterSearch:
    """A search under way."""

    pool: WorkerPool[Training]

    def __init__(self, request: StudyRequest) -> None:
        """Open the study, and bring its folder up to what the journal tells."""
        config = request.config
        each = config.training.epochs / config.training.eval_interval
        terms = StudyTerms(request.space, config.training.metric, config.seed, request.pruning, int(each))
        self.request = request
        self.study = TuningStudy(request.out, terms)
        self.pruned: dict[int, str] = {}
        """Why trials that are asked to end are hopeless."""
        self.judged: dict[int, int] = {}
        """How many validations of each trial have been heard of."""
        self.until = time.monotonic() + request.seconds if request.seconds else float("inf")
        different = self.study.agree(_study_terms(request))
        if different:
            raise RunError(f"{request.out} holds a study with other {' and '.join(different)}; name a new folder")
        self.study.begin_with(initial_values(config, request.space))
        self.waiting = self.study.unfinished()
        self.again = self.study.try_again()
        self.hopeless = False
        """Whether enough has been seen, and all of it failed."""
        write_text(request.out / "space.txt", "\n".join(described(request.space)) + "\n")
        self.keep()

    @property
    def in_time(self) -> bool:
        """Whether there is time left, and hope."""
        return not self.hopeless and time.monotonic() < self.until

    def events(self) -> Iterator[TuneEvent | None]:
        """Everything until no trial is left, or no time."""
        while True:
            while self.in_time and self.pool.free:
                if not self.waiting and self.study.asked >= self.request.trials:
                    break
                yield from self.begin(self.waiting.pop(0) if self.waiting else self.study.ask())
            if not self.pool.busy:
                return
            for event in self.pool.events():
                yield from self.heard(event)
            if not self.in_time:
                self.pool.request_stop()
            yield None

    def begin(self, asked: SuggestedTrial) -> Iterator[TuneEvent]:
        """Give a trial to a process, unless its settings contradict each other."""
        try:
            config = self.config(asked.values)
        except ConfigError as error:
            yield self.ended(asked.number, "failed", str(error))
            return
        yield TrialStarted(asked.number, asked.values)
        for record in self.validations(asked.number):  # the journal may have missed the last one
            self.judge(asked.number, record)
        self.pool.submit(asked.number, Training(self.request.files, self.folder(asked.number), config))

    def heard(self, job_event: JobEvent) -> Iterator[TuneEvent]:
        """What an event of a trial leads to."""
        match job_event:
            case ProgressMessage(number, event):
                if isinstance(event, Stepped):  # kernels are there, compiled by one and not by each
                    self.pool.max_workers = self.request.at_once
                if isinstance(event, Validated) and number not in self.pruned:
                    self.judge(number, event.metrics)
                yield TrialProgress(number, event)
            case JobResult(number, whole):
                if number in self.pruned:
                    yield self.ended(number, "pruned", self.pruned.pop(number))
                elif whole:
                    yield self.ended(number, "finished", "")
            case JobFailure(number, error):
                if not isinstance(error, DivergenceError | WorkerDiedError):
                    raise error
                yield self.ended(number, "failed", str(error))
                self.give_up()

    def folder(self, number: int) -> Path:
        """The run folder of a trial."""
        return self.request.out / "trials" / f"{number:04d}"

    def config(self, values: dict[str, Value]) -> Config:
        """The configuration of a trial."""
        return apply_values(self.request.config, self.request.space, values, "a trial")

    def validations(self, number: int) -> list[dict[str, Any]]:
        """What a trial's log tells of its validations."""
        return [record for record in run.read_log(self.folder(number)) if record["event"] == "validated"]

    def judge(self, number: int, metrics: Mapping[str, float]) -> None:
        """Note a validation, and ask a hopeless trial to end."""
        self.judged[number] = self.judged.get(number, 0) + 1
        why = self.study.report(number, self.judged[number], metrics[self.request.config.training.metric])
        if why and number not in self.pruned:
            self.pruned[number] = why
            if number in self.pool.busy:
                self.pool.request_stop([number])

    def ended(self, number: int, state: Literal["finished", "pruned", "failed"], why: str) -> EndedTrial:
        """Note what came of a trial, and write the results."""
        best = [record for record in self.validations(number) if record["best"]][-1:]
        seconds = [record["seconds"] for record in run.read_log(self.folder(number)) if "seconds" in record]
        score = best[0][self.request.config.training.metric] if best else None
        values = self.study.values(number)
        self.study.end(EndedTrial(number, state, score, why, max(seconds, default=0.0), values))
        ended = next(trial for trial in self.study.ended() if trial.number == number)
        self.keep()
        return ended

    def keep(self) -> None:
        """Write the results, and remove the models of all trials that have ended but the best."""
        best, ended = self.study.best(), self.study.ended()
        for trial in ended:
            if best is None or trial.number != best.number:
                for name in (run.MODEL, run.TRAINING, run.CORPUS):
                    if (self.folder(trial.number) / name).exists():
                        remove(self.folder(trial.number) / name)
        config = self.config(best.values) if best else None
        write_results(self.request.out, self.request.config.training.metric, self.study, config)

    def give_up(self) -> None:
        """End a search in which nothing but failing has been seen."""
        ended = self.study.ended()
        self.hopeless = len(ended) >= MAX_INITIAL_FAILURES and all(trial.state == "failed" for trial in ended)


def _study_terms(request: StudyRequest) -> dict[str, Any]:
    """What is the same for all trials of a study, by names that a person knows it by."""
    digest = hashlib.sha256()
    for path in filter(None, request.files):
        with refusals("read", path), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    searched = {each.key for each in (*request.space.searched, *request.space.linked)}
    kept = {key: value for key, value in flattened(request.config).items() if key not in searched}
    settings = json.loads(json.dumps(kept))  # as the study gives them back: lists, no tuples
    return {"data": digest.hexdigest(), "settings": settings, "space": described(request.space)}


def _check_folder(folder: Path) -> None:
    """Refuse a folder that holds other things than a study."""
    foreign = [] if (folder / JOURNAL).exists() else strangers(folder, STUDY_FILES)
    if foreign:
        raise RunError(f"{folder} is not empty and holds no study ({', '.join(foreign[:3])}); name a new folder")
