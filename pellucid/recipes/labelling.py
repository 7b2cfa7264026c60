"""What the recipes of tags and classes share: experiments with every seed, their scores and report."""

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from pellucid.config.settings import Config
from pellucid.config.toml import to_toml
from pellucid.data.examples import Example
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.label_metrics import LabelMetrics, score_labels
from pellucid.evaluation.metrics import ConfidenceInterval, ScoredExample, ValidationMetric, worst_examples
from pellucid.files import write_json, write_text
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.experiments import Reference, Training, read_pairs, together_name, trainings
from pellucid.recipes.following import followed, train_telling
from pellucid.recipes.recipe import Request
from pellucid.tasks.registry import configured_task
from pellucid.training.run_folder import load, read_log
from pellucid.training.session import Files
from pellucid.viewer.report_parts import ExampleOutput
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import NUM_LISTED_ERRORS, Report, write_report
from pellucid.worker_pool import ProgressCallback


class Score(NamedTuple):
    """One number: a percentage, or a correlation."""

    value: float
    interval: ConfidenceInterval | None = None
    """At 95 %; None where none is told."""

    @property
    def text(self) -> str:
        """The number, and its interval in brackets."""
        if self.interval is None:
            return f"{self.value:.3f}" if -1 <= self.value <= 1 else f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.interval.low:.2f} to {self.interval.high:.2f})"


class Answers(NamedTuple):
    """What came out on one set."""

    examples: Sequence[Example]
    traces: Sequence[Trace]
    scored: Sequence[ScoredExample]
    labelled: LabelMetrics


Scoring = Callable[[Answers], Mapping[str, Score]]
"""The scores of a recipe by name, the one that is compared first. A function of a module: it goes to other processes"""
Further = Callable[[Answers], Mapping[str, Any]]
"""What a recipe wants to know beside scores, as plain values for JSON; the same."""


class Worth(NamedTuple):
    """What answers on one set are worth."""

    scores: Mapping[str, Score]
    labelled: LabelMetrics
    further: Mapping[str, Any]

    def told(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {name: score.value for name, score in self.scores.items()}
        intervals = {name: list(score.interval) for name, score in self.scores.items() if score.interval is not None}
        return {**values, "ci95": intervals, "labels": self.labelled.to_dict(), **self.further}


class Worths(NamedTuple):
    """The development set's and the test set's."""

    dev: Worth
    test: Worth


def answered(transducer: Predictor, examples: Sequence[Example]) -> Answers:
    """Answer examples, and hold the answers against their targets."""
    use_threads(transducer.config.threads)
    traces = transducer.trace(examples)
    scored = score_traces(traces, [(example.target,) for example in examples], transducer.tokenizers)
    return Answers(examples, traces, scored, score_labels(scored, traces))


def worth_of(answers: Answers, scoring: Scoring, further: Further) -> Worth:
    """The scores of answers."""
    return Worth(scoring(answers), answers.labelled, further(answers))


def nothing_further(answers: Answers) -> Mapping[str, Any]:
    """For recipes that ask for scores alone."""
    return {}


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
    validation_metrics: Sequence[ValidationMetric] = ()
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
        for at in worst_examples(answers.scored, NUM_LISTED_ERRORS)
    ]


SETS = ("test", "dev")
LABELS = 16
"""A confusion of more labels is left out of the page."""


def run_labelling(labelling: Labelling, request: Request) -> Iterator[str]:
    """Train and judge what is asked for; a line as each is done, then the mean over seeds, and where the report is."""
    runs = list[Run]()
    for run in runs_of(labelling, request):
        yield row_of(labelling, run)
        runs.append(run)
    yield from _means(runs)
    yield write_reports(labelling, request, runs)


def row_of(labelling: Labelling, run: Run) -> str:
    """One line of a run: its scores on both sets, and what is published."""
    dev, test = (_scores(worth) for worth in run.worths)
    beside = "; ".join(
        f"{name}: {', '.join(f'{system} {value:.2f}' for system, value in systems.items())}"
        for name, systems in labelling.published.items()
    )
    told = f"{run.experiment}, {run.who}: test {test}{f' [published: {beside}]' if beside else ''}; dev {dev}"
    stopped = run.stopped
    trained = f", {stopped['samples']:,} samples in {stopped['seconds']:,.0f} s" if stopped else ""
    return f"{told}; {run.parameters:,} parameters{trained}"


def write_reports(labelling: Labelling, request: Request, runs: Sequence[Run]) -> str:
    """Write report.json, report.html, and the recipe's own pictures as files too; the line that says where."""
    reference = labelling.reference
    names = list(dict.fromkeys(run.experiment for run in runs))
    published = {name: dict(systems) for name, systems in labelling.published.items()}
    numbers = {
        **{"name": reference.name, "title": reference.title, "published": published},
        **{"seeds": request.seeds, "samples": request.samples},
        "experiments": [
            {"name": name, "runs": [_told(run) for run in runs if run.experiment == name]} for name in names
        ],
    }
    write_json(request.out / "report.json", numbers)
    own = list(labelling.parts(runs))
    write_report(request.out / "report.html", _page(labelling, runs, own))
    for part in own:
        if isinstance(part, ReportFigure):
            write_text(request.out / f"{re.sub(r'[^a-z0-9]+', '-', part.title.lower())}.svg", part.svg)
    return f"report: {request.out / 'report.html'}"


def confusion_table(run: Run) -> ReportTable | None:
    """How often each label was answered with each, and the share right; None where there are too many labels."""
    labelled = run.worths.test.labelled
    if not 1 < len(labelled.labels) <= LABELS:
        return None
    rows = [
        [label, *(f"{count:,}" for count in counts), f"{100 * counts[at] / max(sum(counts), 1):.1f} %"]
        for at, (label, counts) in enumerate(zip(labelled.labels, labelled.confusion, strict=True))
    ]
    caption = f"{run.experiment}, {run.who}, test set: what was wanted down, what was answered across."
    return ReportTable("What is taken for what", caption, ["wanted", *labelled.labels, "right"], rows)


def _scores(worth: Worth) -> str:
    """All scores on one set."""
    return ", ".join(f"{name} {score.text}" for name, score in worth.scores.items())


def _means(runs: Sequence[Run]) -> Iterator[str]:
    """For each experiment of several seeds, the mean of its test scores, and from where to where they go."""
    for name in dict.fromkeys(run.experiment for run in runs):
        own = [run.worths.test.scores for run in runs if run.experiment == name and run.log]
        if len(own) > 1:
            parts = []
            for score in own[0]:
                values = [scores[score].value for scores in own]
                parts.append(f"{score} {statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})")
            yield f"{name}, mean of {len(own)} seeds: test {', '.join(parts)}"


def _told(run: Run) -> dict[str, Any]:
    """All numbers of one run."""
    told: dict[str, Any] = {"who": run.who, "test": run.worths.test.told(), "dev": run.worths.dev.told()}
    told["parameters"] = run.parameters
    if run.stopped:
        counted = {name: run.stopped[key] for name, key in (("seconds",) * 2, ("updates", "update"), ("samples",) * 2)}
        told |= {"seed": run.config.seed, **counted, "config": msgspec.to_builtins(run.config)}
    return told


def _page(labelling: Labelling, runs: Sequence[Run], own: Sequence[ReportPart]) -> Report:
    """The table of all runs; curves, mistakes and settings of the first one; what is the recipe's own."""
    first, reference = runs[0], labelling.reference
    heads = ["experiment", "of", "set", *first.worths.test.scores, "parameters", "seconds"]
    rows = [row for run in runs for row in _cells(run)]
    published = [
        [name, system, f"{value:.2f}"] for name, own in labelling.published.items() for system, value in own.items()
    ]
    parts = [ReportTable("All runs", "In brackets: 95 % intervals.", heads, rows)]
    if published:
        parts.append(ReportTable("Published", "On the same test set.", ["score", "system", "value"], published))
    tables = filter(None, map(confusion_table, runs))
    return Report(
        title=reference.title,
        introduction=f"{reference.introduction}\n\nCurves, mistakes, settings: {first.experiment}, {first.who}.",
        summary=[(f"test {name}", score.text) for name, score in first.worths.test.scores.items()],
        log=first.log,
        validation_metrics=labelling.validation_metrics or configured_task(first.config).metrics.validation_metrics,
        mistakes=first.mistakes,
        config_toml=to_toml(first.config),
        parts=[*parts, *own, *tables],
    )


def _cells(run: Run) -> Iterator[list[str]]:
    """A row of the table for each set."""
    seconds = f"{run.stopped['seconds']:,.0f}" if run.stopped else "–"
    for which, worth in zip(SETS, (run.worths.test, run.worths.dev), strict=True):
        scores = [score.text for score in worth.scores.values()]
        yield [run.experiment, run.who, which, *scores, f"{run.parameters:,}", seconds]
