"""Every experiment with every seed: trained or gone on with side by side, then judged, alone and together."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pellucid.config import Config
from pellucid.look.judgement import report_on
from pellucid.look.report import write_report
from pellucid.model.network import parameter_count
from pellucid.processes import Tell
from pellucid.recipes.following import followed
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.recipes.reference.experiment import Experiment, Paths, Reference, prepared, read_pairs
from pellucid.recipes.reference.judging import Worth, Worths, judged
from pellucid.recipes.reference.telling import (
    Run,
    Together,
    lines_of_macros,
    row_of_run,
    row_of_together,
    write_reports,
)
from pellucid.training.members import sparingly
from pellucid.training.run import load, read_log
from pellucid.training.session import Files, train_run


class Job(NamedTuple):
    """One experiment with one seed, for a process of its own."""

    experiment: str
    config: Config
    paths: Paths
    folder: Path
    candidates: int
    title: str
    introduction: str


def run_reference(reference: Reference, request: Request) -> Iterator[str]:
    """Train and judge what is asked for; a line as each is done, then the means, report.json and report.html."""
    experiments = prepared(reference, request)
    seeds = range(1, request.seeds + 1)
    jobs = [_job(reference, each, paths, (seed, request.out)) for seed in seeds for each, paths in experiments]
    runs, ensembles = [], []
    for each, paths in experiments:
        if request.seen is not None and paths.cut:
            request.seen.say(f"{each.name}: {paths.cut}")
    for run in followed(conduct, [(f"{job.experiment}, seed {job.config.seed}", job) for job in jobs], request):
        yield row_of_run(reference, run)
        runs.append(run)
    if request.seeds > 1:
        members = [[job for job in jobs if job.experiment == each.name] for each, _ in experiments]
        named = [(f"{jobs[0].experiment}, ensemble of {len(jobs)}", jobs) for jobs in members]
        for together in followed(conduct_together, named, request):
            yield row_of_together(reference, together)
            ensembles.append(together)
    yield from lines_of_macros(reference, runs, ensembles)
    yield write_reports(reference, request, runs, ensembles)


def conduct(job: Job, tell: Tell) -> Run:
    """Train on one thread, or go on, or find it finished; and judge. The run folder gets a page of its own."""
    for _, told in sparingly(train_run(Files(job.paths.train, job.paths.dev), job.folder, job.config)):
        if told is not None:
            tell(told)
    tell("decoding, to judge it")
    transducer = load(job.folder)
    judgement, dev = judged(transducer, read_pairs(job.paths.dev, job.config), job.candidates)
    test = None
    if job.paths.test is not None:
        judgement, test = judged(transducer, read_pairs(job.paths.test, job.config), job.candidates)
    report = report_on(job.folder, judgement, job.title, job.introduction)
    write_report(job.folder / "report.html", report)
    log = read_log(job.folder)
    stopped = [record for record in log if record["event"] == "stopped"][-1]
    examples = next(record["examples"] for record in log if record["event"] == "read")  # the training file comes first
    return Run(
        experiment=job.experiment,
        config=job.config,
        worths=Worths(dev, test),
        stopped=stopped,
        epochs=stopped["samples"] / examples,
        parameters=parameter_count(transducer.network),
        report=report,
    )


def conduct_together(jobs: Sequence[Job], tell: Tell) -> Together:
    """The runs of one experiment as an ensemble, judged."""
    first = jobs[0]
    tell("decoding, to judge it")
    transducer = load([job.folder for job in jobs])

    def worth(path: Path) -> Worth:
        """On one set."""
        return judged(transducer, read_pairs(path, first.config), first.candidates)[1]

    test = worth(first.paths.test) if first.paths.test is not None else None
    return Together(first.experiment, len(jobs), Worths(worth(first.paths.dev), test))


def _job(reference: Reference, experiment: Experiment, paths: Paths, at: tuple[int, Path]) -> Job:
    """One experiment with a seed, in a folder of its own below the one given."""
    seed, out = at
    config = recipe_config(reference.name, _with_seed(experiment.settings, seed))
    if paths.cut and not config.training.epochs:
        training = msgspec.structs.replace(config.training, epochs=paths.passes)
        config = msgspec.structs.replace(config, training=training)
    return Job(
        experiment=experiment.name,
        config=config,
        paths=paths,
        folder=out / "runs" / f"{experiment.name}-seed-{seed}",
        candidates=reference.candidates,
        title=f"{reference.title}: {experiment.name}, seed {seed}",
        introduction=reference.introduction,
    )


def _with_seed(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Settings, and the seed."""
    return {**settings, "seed": seed}
