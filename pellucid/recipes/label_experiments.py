"""Experiments of the tasks tag and classify: train with every seed, score, and report."""

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
from pellucid.recipes.experiments import ExperimentSuite, ExperimentTraining, ensemble_name, plan_trainings, read_pairs
from pellucid.recipes.jobs import run_jobs, train_with_progress
from pellucid.recipes.recipe import RecipeRequest
from pellucid.tasks.registry import configured_task
from pellucid.training.run_folder import load, read_log
from pellucid.training.session import TrainingFiles
from pellucid.viewer.report_parts import ExampleOutput
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import NUM_LISTED_ERRORS, Report, write_report
from pellucid.worker_pool import ProgressCallback


class LabelScore(NamedTuple):
    """A score: a percentage or a correlation."""

    value: float
    interval: ConfidenceInterval | None = None
    """95 % interval; None where none is reported."""

    @property
    def text(self) -> str:
        """Return the number with its interval in brackets."""
        if self.interval is None:
            return f"{self.value:.3f}" if -1 <= self.value <= 1 else f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.interval.low:.2f} to {self.interval.high:.2f})"


class LabelPredictions(NamedTuple):
    """Predictions for one set, with their references."""

    examples: Sequence[Example]
    traces: Sequence[Trace]
    scored: Sequence[ScoredExample]
    labelled: LabelMetrics


ScoringFunction = Callable[[LabelPredictions], Mapping[str, LabelScore]]
"""Scores of a recipe by name, the main score first. A module-level function, since worker processes import it."""
ExtraResults = Callable[[LabelPredictions], Mapping[str, Any]]
"""Further results of a recipe as plain values for JSON. A module-level function, for the same reason."""


class LabelScores(NamedTuple):
    """Scores of the predictions for one set."""

    scores: Mapping[str, LabelScore]
    labelled: LabelMetrics
    extra_results: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = {name: score.value for name, score in self.scores.items()}
        intervals = {name: list(score.interval) for name, score in self.scores.items() if score.interval is not None}
        return {**values, "ci95": intervals, "labels": self.labelled.to_dict(), **self.extra_results}


class LabelSplitScores(NamedTuple):
    """Scores on the validation set and on the test set."""

    dev: LabelScores
    test: LabelScores


def predict_labels(predictor: Predictor, examples: Sequence[Example]) -> LabelPredictions:
    """Predict examples and score the predictions by example."""
    use_threads(predictor.config.threads)
    traces = predictor.trace(examples)
    scored = score_traces(traces, [(example.target,) for example in examples], predictor.tokenizers)
    return LabelPredictions(examples, traces, scored, score_labels(scored, traces))


def score_predictions(answers: LabelPredictions, scoring: ScoringFunction, extra_results: ExtraResults) -> LabelScores:
    """Return the recipe's scores of predictions."""
    return LabelScores(scoring(answers), answers.labelled, extra_results(answers))


def no_extra_results(answers: LabelPredictions) -> Mapping[str, Any]:
    """Return no further results."""
    return {}


class LabelRun(NamedTuple):
    """One experiment with one seed, or the ensemble of all seeds, scored."""

    experiment: str
    label: str
    """Seed or size of the ensemble, as text."""
    scores: LabelSplitScores
    config: Config
    parameters: int
    log: Sequence[Mapping[str, Any]] = ()
    """Training log; empty for an ensemble."""
    mistakes: Sequence[ExampleOutput] = ()
    """Worst predictions of the test set, where sources are readable text."""

    @property
    def stopped(self) -> Mapping[str, Any] | None:
        """Return the last record of the log: updates, samples, seconds of training."""
        return next((record for record in reversed(self.log) if record["event"] == "stopped"), None)


class LabelSuite(NamedTuple):
    """Experiments with tags or classes that share a configuration and a report."""

    definition: ExperimentSuite
    """Names, data and experiments; published scores are in `published`."""
    scoring: ScoringFunction
    published: Mapping[str, Mapping[str, float]]
    """Published scores on the test set, by score and system."""
    extra_results: ExtraResults = no_extra_results
    parts: Callable[[Sequence[LabelRun]], Iterable[ReportPart]] = lambda runs: ()
    """Function that returns the recipe's own figures, tables and texts."""
    readable: bool = True
    """Sources are readable text, so that the page lists errors."""
    validation_metrics: Sequence[ValidationMetric] = ()
    """Metrics whose curves are drawn; empty takes those of the task."""


class LabelJob(NamedTuple):
    """One training and its evaluation, in a worker process."""

    training: ExperimentTraining
    scoring: ScoringFunction
    extra_results: ExtraResults
    readable: bool


def run_experiments(suite: LabelSuite, request: RecipeRequest) -> Iterator[LabelRun]:
    """Train and score each experiment with each seed, then the ensembles."""
    options = suite.scoring, suite.extra_results, suite.readable
    jobs_by_seed = [
        [LabelJob(each, *options) for each in of_seed] for of_seed in plan_trainings(suite.definition, request)
    ]
    yield from run_jobs(
        train_and_score, [(job.training.name, job) for of_seed in jobs_by_seed for job in of_seed], request
    )
    if request.seeds > 1:
        members = [(ensemble_name([job.training for job in jobs]), jobs) for jobs in zip(*jobs_by_seed, strict=True)]
        yield from run_jobs(score_ensemble, members, request)


def train_and_score(job: LabelJob, tell: ProgressCallback) -> LabelRun:
    """Train on one thread and score; resume or reuse an existing run."""
    paths, folder = job.training.paths, job.training.folder
    train_with_progress(TrainingFiles(paths.train, paths.dev), folder, job.training.config, tell)
    tell("predicting for evaluation")
    run = _score_run(job, load(folder), f"seed {job.training.config.seed}")
    return run._replace(log=read_log(folder))


def score_ensemble(jobs: Sequence[LabelJob], tell: ProgressCallback) -> LabelRun:
    """Score the runs of one experiment as an ensemble."""
    tell("predicting for evaluation")
    return _score_run(jobs[0], load([job.training.folder for job in jobs]), f"ensemble of {len(jobs)}")


def _score_run(job: LabelJob, predictor: Predictor, label: str) -> LabelRun:
    """Score a model on the validation set and on the test set."""
    score_set = partial(score_predictions, scoring=job.scoring, extra_results=job.extra_results)
    experiment, config, paths, _ = job.training
    assert paths.test is not None
    dev = score_set(predict_labels(predictor, read_pairs(paths.dev, config)))
    answers = predict_labels(predictor, read_pairs(paths.test, config))
    return LabelRun(
        experiment=experiment,
        label=label,
        scores=LabelSplitScores(dev, score_set(answers)),
        config=config,
        parameters=sum(parameter_count(network) for network in predictor.networks),
        mistakes=_worst_examples(answers) if job.readable else (),
    )


def _worst_examples(answers: LabelPredictions) -> list[ExampleOutput]:
    """Return the worst predictions."""
    return [
        ExampleOutput(answers.traces[at], (answers.examples[at].target,), answers.scored[at])
        for at in worst_examples(answers.scored, NUM_LISTED_ERRORS)
    ]


SETS = ("test", "dev")
MAX_CONFUSION_LABELS = 16
"""Maximum number of labels in a confusion matrix of the page."""


def run_label_suite(suite: LabelSuite, request: RecipeRequest) -> Iterator[str]:
    """Train and score the selected experiments.

    Args:
        suite: The suite of experiments.
        request: The recipe's request.

    Yields:
        A line per run and ensemble, the means over seeds and the path of the report.
    """
    runs = list[LabelRun]()
    for run in run_experiments(suite, request):
        yield format_run(suite, run)
        runs.append(run)
    yield from _mean_lines(runs)
    yield write_reports(suite, request, runs)


def format_run(suite: LabelSuite, run: LabelRun) -> str:
    """Return the line of a run: scores on both sets and published scores."""
    dev, test = (_format_scores(set_scores) for set_scores in run.scores)
    beside = "; ".join(
        f"{name}: {', '.join(f'{system} {value:.2f}' for system, value in systems.items())}"
        for name, systems in suite.published.items()
    )
    line = f"{run.experiment}, {run.label}: test {test}{f' [published: {beside}]' if beside else ''}; dev {dev}"
    stopped = run.stopped
    trained = f", {stopped['samples']:,} samples in {stopped['seconds']:,.0f} s" if stopped else ""
    return f"{line}; {run.parameters:,} parameters{trained}"


def write_reports(suite: LabelSuite, request: RecipeRequest, runs: Sequence[LabelRun]) -> str:
    """Write report.json, report.html and the recipe's figures as SVG files; return the line that names the report."""
    definition = suite.definition
    names = list(dict.fromkeys(run.experiment for run in runs))
    published = {name: dict(systems) for name, systems in suite.published.items()}
    numbers = {
        **{"name": definition.name, "title": definition.title, "published": published},
        **{"seeds": request.seeds, "samples": request.samples},
        "experiments": [
            {"name": name, "runs": [_run_json(run) for run in runs if run.experiment == name]} for name in names
        ],
    }
    write_json(request.out / "report.json", numbers)
    own = list(suite.parts(runs))
    write_report(request.out / "report.html", _report_page(suite, runs, own))
    for part in own:
        if isinstance(part, ReportFigure):
            write_text(request.out / f"{re.sub(r'[^a-z0-9]+', '-', part.title.lower())}.svg", part.svg)
    return f"report: {request.out / 'report.html'}"


def confusion_table(run: LabelRun) -> ReportTable | None:
    """Return the confusion matrix with recall, or None where there are too many labels."""
    labelled = run.scores.test.labelled
    if not 1 < len(labelled.labels) <= MAX_CONFUSION_LABELS:
        return None
    rows = [
        [label, *(f"{count:,}" for count in counts), f"{100 * counts[at] / max(sum(counts), 1):.1f} %"]
        for at, (label, counts) in enumerate(zip(labelled.labels, labelled.confusion, strict=True))
    ]
    caption = f"{run.experiment}, {run.label}, test set: rows are labels, columns predictions."
    return ReportTable("Confusion matrix", caption, ["label", *labelled.labels, "right"], rows)


def _format_scores(set_scores: LabelScores) -> str:
    """Return all scores on one set."""
    return ", ".join(f"{name} {score.text}" for name, score in set_scores.scores.items())


def _mean_lines(runs: Sequence[LabelRun]) -> Iterator[str]:
    """Yield mean and range of the test scores of each experiment with several seeds."""
    for name in dict.fromkeys(run.experiment for run in runs):
        own = [run.scores.test.scores for run in runs if run.experiment == name and run.log]
        if len(own) > 1:
            parts = []
            for score in own[0]:
                values = [scores[score].value for scores in own]
                parts.append(f"{score} {statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})")
            yield f"{name}, mean of {len(own)} seeds: test {', '.join(parts)}"


def _run_json(run: LabelRun) -> dict[str, Any]:
    """Return all numbers of one run."""
    values: dict[str, Any] = {"who": run.label, "test": run.scores.test.to_json(), "dev": run.scores.dev.to_json()}
    values["parameters"] = run.parameters
    if run.stopped:
        counted = {name: run.stopped[key] for name, key in (("seconds",) * 2, ("updates", "update"), ("samples",) * 2)}
        values |= {"seed": run.config.seed, **counted, "config": msgspec.to_builtins(run.config)}
    return values


def _report_page(suite: LabelSuite, runs: Sequence[LabelRun], own: Sequence[ReportPart]) -> Report:
    """Return the page: all runs; curves, errors and settings of the first run; the recipe's own parts."""
    first, definition = runs[0], suite.definition
    heads = ["experiment", "of", "set", *first.scores.test.scores, "parameters", "seconds"]
    rows = [row for run in runs for row in _table_rows(run)]
    published = [
        [name, system, f"{value:.2f}"] for name, own in suite.published.items() for system, value in own.items()
    ]
    parts = [ReportTable("All runs", "In brackets: 95 % intervals.", heads, rows)]
    if published:
        parts.append(ReportTable("Published", "On the same test set.", ["score", "system", "value"], published))
    tables = filter(None, map(confusion_table, runs))
    return Report(
        title=definition.title,
        introduction=f"{definition.introduction}\n\nCurves, errors, settings: {first.experiment}, {first.label}.",
        summary=[(f"test {name}", score.text) for name, score in first.scores.test.scores.items()],
        log=first.log,
        validation_metrics=suite.validation_metrics or configured_task(first.config).metrics.validation_metrics,
        errors=first.mistakes,
        config_toml=to_toml(first.config),
        parts=[*parts, *own, *tables],
    )


def _table_rows(run: LabelRun) -> Iterator[list[str]]:
    """Yield a table row for each set."""
    seconds = f"{run.stopped['seconds']:,.0f}" if run.stopped else "–"
    for which, set_scores in zip(SETS, (run.scores.test, run.scores.dev), strict=True):
        scores = [score.text for score in set_scores.scores.values()]
        yield [run.experiment, run.label, which, *scores, f"{run.parameters:,}", seconds]
