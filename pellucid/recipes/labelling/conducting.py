"""Every experiment with every seed: trained or gone on with, then judged, alone and together."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pellucid.config import Config
from pellucid.evaluation.metrics import Followed, worst
from pellucid.model.network import parameter_count
from pellucid.recipes.following import followed, train_telling
from pellucid.recipes.labelling.judging import Answers, Further, Scoring, Worths, answered, nothing_further, worth_of
from pellucid.recipes.recipe import Request
from pellucid.recipes.reference.experiment import Reference, Training, read_pairs, together_name, trainings
from pellucid.search.predictor import Predictor
from pellucid.training.run import load, read_log
from pellucid.training.session import Files
from pellucid.viewer.report_examples import ExampleOutput
from pellucid.viewer.report_schema import ReportPart
from pellucid.viewer.run_report import MISTAKES
from pellucid.worker_pool import ProgressCallback


class Run(NamedTuple):
    """One experiment with one seed, or with all seeds as an ensemble."""

    experiment: str
    who: str
    """Its seed, or how many they are together."""
    worths: Worths
    config: Config
    parameters: int
    log: Sequence[Mapping[str, Any]] = ()
    """Of the training; none for an ensemble."""
    mistakes: Sequence[ExampleOutput] = ()
    """The worst of the test set, for texts that can be read."""

    @property
    def stopped(self) -> Mapping[str, Any] | None:
        """The last record of the log: updates, samples, seconds of training."""
        return next((record for record in reversed(self.log) if record["event"] == "stopped"), None)


class Labelling(NamedTuple):
    """Experiments with tags or classes, under one configuration, told of together."""

    reference: Reference
    """Its name, its data, its experiments; what is published stands in `published` instead."""
    scoring: Scoring
    published: Mapping[str, Mapping[str, float]]
    """What others reached on the test set, by score and system."""
    further: Further = nothing_further
    parts: Callable[[Sequence[Run]], Iterable[ReportPart]] = lambda runs: ()
    """Pictures, tables and texts of the page that are the recipe's own."""
    readable: bool = True
    """Whether a source is a text that can be shown in a table of mistakes."""
    followed: Sequence[Followed] = ()
    """The scores whose curves are drawn, by the names of those who know the task; those of any such task if empty."""


class Job(NamedTuple):
    """One training and its judgement, for a process of its own."""

    training: Training
    scoring: Scoring
    further: Further
    readable: bool


def runs_of(labelling: Labelling, request: Request) -> Iterator[Run]:
    """Train and judge what is asked for: each experiment with each seed, then the ensembles of the seeds."""
    how = labelling.scoring, labelling.further, labelling.readable
    asked = [[Job(each, *how) for each in of_seed] for of_seed in trainings(labelling.reference, request)]
    yield from followed(conduct, [(job.training.name, job) for of_seed in asked for job in of_seed], request)
    if request.seeds > 1:
        members = [(together_name([job.training for job in jobs]), jobs) for jobs in zip(*asked, strict=True)]
        yield from followed(conduct_together, members, request)


def conduct(job: Job, tell: ProgressCallback) -> Run:
    """Train on one thread, or go on, or find it finished; and judge."""
    paths, folder = job.training.paths, job.training.folder
    train_telling(Files(paths.train, paths.dev), folder, job.training.config, tell)
    tell("answering, to judge it")
    run = _judged(job, load(folder), f"seed {job.training.config.seed}")
    return run._replace(log=read_log(folder))


def conduct_together(jobs: Sequence[Job], tell: ProgressCallback) -> Run:
    """The runs of one experiment as an ensemble, judged."""
    tell("answering, to judge it")
    return _judged(jobs[0], load([job.training.folder for job in jobs]), f"ensemble of {len(jobs)}")


def _judged(job: Job, transducer: Predictor, who: str) -> Run:
    """What answers on both sets are worth."""
    worth = partial(worth_of, scoring=job.scoring, further=job.further)
    experiment, config, paths, _ = job.training
    assert paths.test is not None
    dev = worth(answered(transducer, read_pairs(paths.dev, config)))
    answers = answered(transducer, read_pairs(paths.test, config))
    return Run(
        experiment=experiment,
        who=who,
        worths=Worths(dev, worth(answers)),
        config=config,
        parameters=sum(parameter_count(network) for network in transducer.networks),
        mistakes=_mistakes(answers) if job.readable else (),
    )


def _mistakes(answers: Answers) -> list[ExampleOutput]:
    """The worst answers."""
    return [
        ExampleOutput(answers.traces[at], (answers.examples[at].target,), answers.scored[at])
        for at in worst(answers.scored, MISTAKES)
    ]
