"""Every experiment with every seed: trained or gone on with side by side, then judged, alone and together."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pellucid.model.network import parameter_count
from pellucid.recipes.following import followed, train_telling
from pellucid.recipes.recipe import Request
from pellucid.recipes.reference.differences import differences
from pellucid.recipes.reference.experiment import Reference, Training, read_pairs, together_name, trainings
from pellucid.recipes.reference.judging import Worth, Worths, judged
from pellucid.recipes.reference.run import Run, Together
from pellucid.recipes.reference.telling import lines_told, row_of_run, row_of_together, write_reports
from pellucid.training.run import load, read_log
from pellucid.training.session import Files
from pellucid.viewer.report import write_report
from pellucid.viewer.run_report import report_on
from pellucid.worker_pool import ProgressCallback


class Job(NamedTuple):
    """One training and its judgement, for a process of its own."""

    training: Training
    candidates: int
    title: str
    introduction: str


def run_reference(reference: Reference, request: Request) -> Iterator[str]:
    """Train and judge what is asked for; a line as each is done, then the means, report.json and report.html."""
    asked = [[_job(reference, each) for each in of_seed] for of_seed in trainings(reference, request)]
    named = [(job.training.name, job) for of_seed in asked for job in of_seed]
    runs, ensembles = [], []
    for run in followed(conduct, named, request):
        yield row_of_run(reference, run)
        runs.append(run)
    if request.seeds > 1:
        members = [(together_name([job.training for job in jobs]), jobs) for jobs in zip(*asked, strict=True)]
        for together in followed(conduct_together, members, request):
            yield row_of_together(reference, together)
            ensembles.append(together)
    found = differences(reference, runs)
    yield from lines_told(reference, runs, ensembles, found)
    yield write_reports(reference, request, runs, ensembles, found)


def conduct(job: Job, tell: ProgressCallback) -> Run:
    """Train on one thread, or go on, or find it finished; and judge. The run folder gets a page of its own."""
    experiment, config, paths, folder = job.training
    train_telling(Files(paths.train, paths.dev), folder, config, tell)
    tell("decoding, to judge it")
    transducer = load(folder)
    judgement, dev = judged(transducer, read_pairs(paths.dev, config), job.candidates)
    test = None
    if paths.test is not None:
        judgement, test = judged(transducer, read_pairs(paths.test, config), job.candidates)
    report = report_on(folder, judgement, job.title, job.introduction)
    write_report(folder / "report.html", report)
    log = read_log(folder)
    stopped = [record for record in log if record["event"] == "stopped"][-1]
    examples = next(record["examples"] for record in log if record["event"] == "read")  # the training file comes first
    return Run(
        experiment=experiment,
        config=config,
        worths=Worths(dev, test),
        stopped=stopped,
        epochs=stopped["samples"] / examples,
        parameters=parameter_count(transducer.network),
        report=report,
    )


def conduct_together(jobs: Sequence[Job], tell: ProgressCallback) -> Together:
    """The runs of one experiment as an ensemble, judged."""
    first = jobs[0].training
    tell("decoding, to judge it")
    transducer = load([job.training.folder for job in jobs])

    def worth(path: Path) -> Worth:
        """On one set."""
        return judged(transducer, read_pairs(path, first.config), jobs[0].candidates)[1]

    test = worth(first.paths.test) if first.paths.test is not None else None
    return Together(first.experiment, len(jobs), Worths(worth(first.paths.dev), test))


def _job(reference: Reference, training: Training) -> Job:
    """A training, and what its page says of it."""
    title = f"{reference.title}: {training.name}"
    return Job(training, reference.candidates, title, reference.introduction)
