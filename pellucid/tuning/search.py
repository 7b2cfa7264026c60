"""The search: trials side by side, each a training in a process of its own; a generator of what happens.

study.journal   the study, as Optuna keeps it
space.txt       what is searched
trials/0000 …   the run folder of each trial; only the best one's keeps its model
best.toml       the best configuration, for `pellucid train --config`
trials.json     every trial that has ended
report.html     the same for people
"""

import hashlib
import json
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from pellucid.config.settings import Config
from pellucid.config.toml import flatten_config
from pellucid.errors import ConfigError, DataError, DivergenceError, RunError
from pellucid.files import remove_file, unexpected_files, wrap_os_errors, write_text
from pellucid.kernels.dispatch import will_compile
from pellucid.training import run_folder as run
from pellucid.training.ensemble_training import Training, run_job, shutdown
from pellucid.training.loop import Stepped, Validated, derived_epochs
from pellucid.training.session import Files, RunEvent
from pellucid.training.training_data import Read, read_files, resolve_data
from pellucid.tuning.report import write_results
from pellucid.tuning.space import Space, Value, configured, described, start
from pellucid.tuning.study import JOURNAL, Asked, Ended, Pruning, Study, Terms
from pellucid.worker_pool import JobEvent, JobFailure, JobResult, ProgressMessage, WorkerDiedError, WorkerPool

OWN = (JOURNAL, "space.txt", "trials", "best.toml", "trials.json", "report.html")
NOTHING_COMES = 3
"""Trials that fail one after the other, with none that has not, before the search gives up."""


class Request(NamedTuple):
    """What a search is asked to do."""

    files: Files
    out: Path
    config: Config
    space: Space
    trials: int
    """Trials of the study in all, those of earlier calls included."""
    seconds: float
    """After so long trials under way are stopped, to go on at the next call; 0 for no end."""
    at_once: int
    pruning: Pruning


class Opened(NamedTuple):
    """The study is there, new or gone on with."""

    space: list[str]
    ended: int
    unfinished: int
    again: int
    """Trials that failed before and are tried again."""


class Begun(NamedTuple):
    """A trial begins, or goes on."""

    number: int
    values: dict[str, Value]


class Moved(NamedTuple):
    """An event of a trial's training."""

    number: int
    event: RunEvent


class Over(NamedTuple):
    """The search is over, or its time."""

    study: Study
    unfinished: int


TuneEvent = Opened | Begun | Moved | Ended | Over


def prepared(config: Config, files: Files) -> tuple[Config, tuple[Read, Read]]:
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


def tune(request: Request) -> Generator[TuneEvent | None]:
    """Search, or go on with a search; now and then nothing is yielded (`None`).

    Whoever closes the generator stops all trials, which save what they have reached: the next call goes on with them.
    Errors: `RunError` for a folder that is foreign, in use, or holds another study.
    """
    _check_own(request.out)
    with run.locked(request.out, OWN):
        search = Search(request)
        yield Opened(described(request.space), len(search.study.ended()), len(search.waiting), search.again)
        with WorkerPool[Training](run_job, 1 if will_compile() else request.at_once) as search.pool:
            try:
                yield from search.events()
            except BaseException:
                shutdown(search.pool)
                raise
        yield Over(search.study, len(search.study.open))


class Search:
    """A search under way."""

    pool: WorkerPool[Training]

    def __init__(self, request: Request) -> None:
        """Open the study, and bring its folder up to what the journal tells."""
        config = request.config
        each = config.training.epochs / config.training.eval_interval
        terms = Terms(request.space, config.training.metric, config.seed, request.pruning, int(each))
        self.request = request
        self.study = Study(request.out, terms)
        self.pruned: dict[int, str] = {}
        """Why trials that are asked to end are hopeless."""
        self.judged: dict[int, int] = {}
        """How many validations of each trial have been heard of."""
        self.until = time.monotonic() + request.seconds if request.seconds else float("inf")
        different = self.study.agree(_terms(request))
        if different:
            raise RunError(f"{request.out} holds a study with other {' and '.join(different)}; name a new folder")
        self.study.begin_with(start(config, request.space))
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
            while self.in_time and self.pool.free_workers:
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

    def begin(self, asked: Asked) -> Iterator[TuneEvent]:
        """Give a trial to a process, unless its settings contradict each other."""
        try:
            config = self.config(asked.values)
        except ConfigError as error:
            yield self.ended(asked.number, "failed", str(error))
            return
        yield Begun(asked.number, asked.values)
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
                yield Moved(number, event)
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
        return configured(self.request.config, self.request.space, values, "a trial")

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

    def ended(self, number: int, state: Literal["finished", "pruned", "failed"], why: str) -> Ended:
        """Note what came of a trial, and write the results."""
        best = [record for record in self.validations(number) if record["best"]][-1:]
        seconds = [record["seconds"] for record in run.read_log(self.folder(number)) if "seconds" in record]
        score = best[0][self.request.config.training.metric] if best else None
        values = self.study.values(number)
        self.study.end(Ended(number, state, score, why, max(seconds, default=0.0), values))
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
                        remove_file(self.folder(trial.number) / name)
        config = self.config(best.values) if best else None
        write_results(self.request.out, self.request.config.training.metric, self.study, config)

    def give_up(self) -> None:
        """End a search in which nothing but failing has been seen."""
        ended = self.study.ended()
        self.hopeless = len(ended) >= NOTHING_COMES and all(trial.state == "failed" for trial in ended)


def _terms(request: Request) -> dict[str, Any]:
    """What is the same for all trials of a study, by names that a person knows it by."""
    digest = hashlib.sha256()
    for path in filter(None, request.files):
        with wrap_os_errors("read", path), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    searched = {each.key for each in (*request.space.searched, *request.space.linked)}
    kept = {key: value for key, value in flatten_config(request.config).items() if key not in searched}
    settings = json.loads(json.dumps(kept))  # as the study gives them back: lists, no tuples
    return {"data": digest.hexdigest(), "settings": settings, "space": described(request.space)}


def _check_own(folder: Path) -> None:
    """Refuse a folder that holds other things than a study."""
    foreign = [] if (folder / JOURNAL).exists() else unexpected_files(folder, OWN)
    if foreign:
        raise RunError(f"{folder} is not empty and holds no study ({', '.join(foreign[:3])}); name a new folder")
