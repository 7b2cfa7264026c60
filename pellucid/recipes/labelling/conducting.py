"""Every experiment with every seed: trained or gone on with, then judged, alone and together."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.config import Config
from pellucid.evaluation.metrics import worst
from pellucid.look.judgement import MISTAKES
from pellucid.look.report import Part, Shown
from pellucid.model.network import parameter_count
from pellucid.processes import in_parallel
from pellucid.recipes.labelling.judging import Answers, Further, Scoring, Worths, answered, nothing_further, worth_of
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.recipes.reference.experiment import Experiment, Paths, Reference, prepared, read_pairs
from pellucid.search.transducer import Transducer
from pellucid.training.run import load, read_log
from pellucid.training.session import Files, train_run


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
    mistakes: Sequence[Shown] = ()
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
    parts: Callable[[Sequence[Run]], Iterable[Part]] = lambda runs: ()
    """Pictures, tables and texts of the page that are the recipe's own."""
    readable: bool = True
    """Whether a source is a text that can be shown in a table of mistakes."""


class Job(NamedTuple):
    """One experiment with one seed, for a process of its own."""

    experiment: str
    config: Config
    paths: Paths
    folder: Path
    scoring: Scoring
    further: Further
    readable: bool


def runs_of(labelling: Labelling, request: Request) -> Iterator[Run]:
    """Train and judge what is asked for: each experiment with each seed, then the ensembles of the seeds."""
    experiments = prepared(labelling.reference, request)
    seeds = range(1, request.seeds + 1)
    jobs = [_job(labelling, each, paths, (seed, request.out)) for seed in seeds for each, paths in experiments]
    yield from in_parallel(conduct, jobs)
    if request.seeds > 1:
        members = [[job for job in jobs if job.experiment == each.name] for each, _ in experiments]
        yield from in_parallel(conduct_together, members)


def conduct(job: Job) -> Run:
    """Train on one thread, or go on, or find it finished; and judge."""
    for _ in train_run(Files(job.paths.train, job.paths.dev), job.folder, job.config):
        pass
    run = _judged(job, load(job.folder), f"seed {job.config.seed}")
    return run._replace(log=read_log(job.folder))


def conduct_together(jobs: Sequence[Job]) -> Run:
    """The runs of one experiment as an ensemble, judged."""
    return _judged(jobs[0], load([job.folder for job in jobs]), f"ensemble of {len(jobs)}")


def _judged(job: Job, transducer: Transducer, who: str) -> Run:
    """What answers on both sets are worth."""
    worth = partial(worth_of, scoring=job.scoring, further=job.further)
    test_path = job.paths.test
    assert test_path is not None
    dev = worth(answered(transducer, read_pairs(job.paths.dev, job.config)))
    answers = answered(transducer, read_pairs(test_path, job.config))
    return Run(
        experiment=job.experiment,
        who=who,
        worths=Worths(dev, worth(answers)),
        config=job.config,
        parameters=sum(parameter_count(network) for network in transducer.networks),
        mistakes=_mistakes(answers) if job.readable else (),
    )


def _mistakes(answers: Answers) -> list[Shown]:
    """The worst answers."""
    return [
        Shown(answers.traces[at], (answers.examples[at].target,), answers.scored[at].errors)
        for at in worst(answers.scored, MISTAKES)
    ]


def _job(labelling: Labelling, experiment: Experiment, paths: Paths, at: tuple[int, Path]) -> Job:
    """One experiment with a seed, in a folder of its own below the one given."""
    seed, out = at
    config = recipe_config(labelling.reference.name, {**experiment.settings, "seed": seed})
    return Job(
        experiment=experiment.name,
        config=config,
        paths=paths,
        folder=out / "runs" / f"{experiment.name}-seed-{seed}",
        scoring=labelling.scoring,
        further=labelling.further,
        readable=labelling.readable,
    )
