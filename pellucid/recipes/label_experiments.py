"""Experiments of the tasks with tags and classes: train with every seed, score, and report."""

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
from pellucid.evaluation.label_metrics import LabelMetrics, measure_labels
from pellucid.evaluation.metrics import ConfidenceInterval, ScoredExample, ValidationMetric, worst_examples
from pellucid.files import write_json, write_text
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.experiments import (
    ExperimentSuite,
    ExperimentTraining,
    change_settings,
    ensemble_name,
    plan_trainings,
    read_pairs,
)
from pellucid.recipes.jobs import run_jobs, train_with_progress
from pellucid.recipes.recipe import RecipeRequest
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.tasks.registry import get_task
from pellucid.training.training_data import TrainingFiles
from pellucid.viewer.report_parts import ExampleOutput
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import NUM_LISTED_ERRORS, Report, write_report
from pellucid.worker_pool import ProgressCallback

INTERVAL_NOTE = (
    "95 % intervals in parentheses: Wilson's for shares of the examples; for shares of their tags and for F1, a "
    "bootstrap over the examples."
)


class LabelScore(NamedTuple):
    """A score: a percentage or a correlation."""

    value: float
    interval: ConfidenceInterval | None = None
    """95 % interval; None where none is reported."""

    @property
    def text(self) -> str:
        """Return the value with two decimals and its interval in parentheses; without an interval, a value from −1 to 1
        (a correlation) with three decimals.
        """
        if self.interval is None:
            return f"{self.value:.3f}" if -1 <= self.value <= 1 else f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.interval.low:.2f} to {self.interval.high:.2f})"


class LabelPredictions(NamedTuple):
    """Examples of one split, their traces, outputs with references, and label metrics."""

    examples: Sequence[Example]
    traces: Sequence[Trace]
    scored: Sequence[ScoredExample]
    label_metrics: LabelMetrics


ScoringFunction = Callable[[LabelPredictions], Mapping[str, LabelScore]]
"""Function that returns the scores of a recipe by name, the main score first; worker processes import it."""
ExtraResults = Callable[[LabelPredictions], Mapping[str, Any]]
"""Function that returns further results of a recipe as plain values for JSON; worker processes import it."""


class LabelScores(NamedTuple):
    """Scores of the predictions for one set."""

    scores: Mapping[str, LabelScore]
    """Scores of the recipe by name, the main score first."""
    label_metrics: LabelMetrics
    extra_results: Mapping[str, Any]
    """Further results of the recipe, as plain values."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON: the scores by name, their intervals (ci95), the label metrics (labels), and the
        further results.
        """
        values = {name: score.value for name, score in self.scores.items()}
        intervals = {name: list(score.interval) for name, score in self.scores.items() if score.interval is not None}
        return {**values, "ci95": intervals, "labels": self.label_metrics.to_dict(), **self.extra_results}


class LabelSplitScores(NamedTuple):
    """Scores on the validation set and on the test set."""

    dev: LabelScores
    test: LabelScores


def predict_labels(predictor: Predictor, examples: Sequence[Example]) -> LabelPredictions:
    """Predict the tags or classes of examples and compare them with the targets.

    The process then computes with the threads of the predictor's configuration.

    Args:
        predictor: Predictor of a model or an ensemble.
        examples: Sources with their references.

    Returns:
        The predictions with traces, scored outputs and label metrics.
    """
    use_threads(predictor.config.threads)
    traces = predictor.predict_examples(examples)
    scored = score_traces(traces, [(example.target,) for example in examples], predictor.tokenizers)
    counter_class = get_task(predictor.config.task).metrics.labels
    assert counter_class is not None
    return LabelPredictions(examples, traces, scored, measure_labels(counter_class(), scored, traces))


def score_predictions(
    predictions: LabelPredictions, scoring: ScoringFunction, extra_results: ExtraResults
) -> LabelScores:
    """Return the scores of predictions.

    Args:
        predictions: Predictions with their references.
        scoring: Function that returns the scores by name.
        extra_results: Function that returns further results.
    """
    return LabelScores(scoring(predictions), predictions.label_metrics, extra_results(predictions))


def no_extra_results(predictions: LabelPredictions) -> Mapping[str, Any]:
    """Return an empty mapping: no further results.

    Args:
        predictions: Ignored.
    """
    return {}


class LabelRun(NamedTuple):
    """One experiment with one seed, or the ensemble of all seeds, scored."""

    experiment: str
    """Name of the experiment."""
    label: str
    """Seed or size of the ensemble, as text: "seed 1", "ensemble of 5"."""
    scores: LabelSplitScores
    config: Config
    """Configuration of the run; of an ensemble, that of its first member."""
    parameters: int
    """Number of parameters, of an ensemble over all members."""
    log: Sequence[Mapping[str, Any]] = ()
    """Training log; empty for an ensemble."""
    worst_examples: Sequence[ExampleOutput] = ()
    """Worst predictions of the test set, where sources are readable text."""

    @property
    def stop_record(self) -> Mapping[str, Any] | None:
        """Return the last "stopped" record of the log: updates, samples and seconds of the training; None for an
        ensemble, which has no log.
        """
        return next((record for record in reversed(self.log) if record["event"] == "stopped"), None)


class LabelSuite(NamedTuple):
    """Experiments with tags or classes that share a configuration and a report."""

    experiments: ExperimentSuite
    """Names, data and experiments; their own `published` and `metric` are not used."""
    scoring: ScoringFunction
    """Function that returns the scores of the report."""
    published: Mapping[str, Mapping[str, float]]
    """Published scores on the test set, by score and system."""
    extra_results: ExtraResults = no_extra_results
    """Function that returns further results for report.json."""
    report_parts: Callable[[Sequence[LabelRun]], Iterable[ReportPart]] = lambda runs: ()
    """Function that returns additional figures, tables and texts of the page."""
    has_text_sources: bool = True
    """Sources are readable text, so the page lists the worst examples."""
    validation_metrics: Sequence[ValidationMetric] = ()
    """Metrics whose curves are drawn; empty takes those of the task."""


class LabelJob(NamedTuple):
    """One training and its evaluation, in a worker process."""

    training: ExperimentTraining
    scoring: ScoringFunction
    extra_results: ExtraResults
    has_text_sources: bool


def run_experiments(suite: LabelSuite, request: RecipeRequest) -> Iterator[LabelRun]:
    """Train and score each selected experiment with each seed, then score the ensemble of the seeds of each.

    Args:
        suite: The suite of experiments.
        request: The recipe's request.

    Yields:
        Each scored run, then, with several seeds, each scored ensemble.

    Raises:
        InputError: As in `plan_trainings` and `run_jobs`.
    """
    jobs_by_seed = [
        [LabelJob(training, suite.scoring, suite.extra_results, suite.has_text_sources) for training in group]
        for group in plan_trainings(suite.experiments, request)
    ]
    yield from run_jobs(train_and_score, [(job.training.name, job) for jobs in jobs_by_seed for job in jobs], request)
    if request.seeds > 1:
        members = [(ensemble_name([job.training for job in jobs]), jobs) for jobs in zip(*jobs_by_seed, strict=True)]
        yield from run_jobs(score_trained_ensemble, members, request)


def train_and_score(job: LabelJob, on_progress: ProgressCallback) -> LabelRun:
    """Train a run, or resume or reuse an existing one, and score it on both sets; runs in a worker process.

    Args:
        job: The training and its evaluation; it must have a test set.
        on_progress: Progress callback.

    Returns:
        The run with its scores and its training log.
    """
    paths, folder = job.training.paths, job.training.folder
    train_with_progress(TrainingFiles(paths.train, paths.dev), folder, job.training.config, on_progress)
    on_progress("predicting for evaluation")
    run = _score_run(job, load(folder), f"seed {job.training.config.seed}")
    return run._replace(log=read_log(folder))


def score_trained_ensemble(members: Sequence[LabelJob], on_progress: ProgressCallback) -> LabelRun:
    """Load the trained runs of one experiment, and score them as an ensemble.

    Args:
        members: Jobs of the members, one per seed; all are trained.
        on_progress: Progress callback.

    Returns:
        The ensemble with its scores.
    """
    on_progress("predicting for evaluation")
    return _score_run(members[0], load([job.training.folder for job in members]), f"ensemble of {len(members)}")


def _score_run(job: LabelJob, predictor: Predictor, label: str) -> LabelRun:
    """Score a model on the validation set and on the test set."""
    score_set = partial(score_predictions, scoring=job.scoring, extra_results=job.extra_results)
    experiment, config, paths, _ = job.training
    assert paths.test is not None
    dev = score_set(predict_labels(predictor, read_pairs(paths.dev, config)))
    predictions = predict_labels(predictor, read_pairs(paths.test, config))
    return LabelRun(
        experiment=experiment,
        label=label,
        scores=LabelSplitScores(dev, score_set(predictions)),
        config=config,
        parameters=sum(parameter_count(network) for network in predictor.networks),
        worst_examples=_worst_examples(predictions) if job.has_text_sources else (),
    )


def _worst_examples(predictions: LabelPredictions) -> list[ExampleOutput]:
    """Return the worst predictions."""
    return [
        ExampleOutput(predictions.traces[index], (predictions.examples[index].target,), predictions.scored[index])
        for index in worst_examples(predictions.scored, NUM_LISTED_ERRORS)
    ]


MAX_CONFUSION_LABELS = 16
"""Maximum number of labels in a confusion matrix of the page."""


def run_label_suite(suite: LabelSuite, request: RecipeRequest) -> Iterator[str]:
    """Train and score the selected experiments and their ensembles, and write the report.

    Args:
        suite: The suite of experiments.
        request: The recipe's request.

    Yields:
        A line per run and ensemble, the means over seeds (with several) and the path of the report.

    Raises:
        InputError: As in `plan_trainings` and `run_jobs`.
        RunError: The report cannot be written.
    """
    runs = list[LabelRun]()
    suite = suite._replace(experiments=change_settings(suite.experiments, request))
    for run in run_experiments(suite, request):
        yield format_run(suite, run)
        runs.append(run)
    yield from _mean_lines(runs)
    yield write_reports(suite, request, runs)


def format_run(suite: LabelSuite, run: LabelRun) -> str:
    """Return the line of a run: scores on both sets, published scores, number of parameters, and of a single run
    samples and seconds of the training.

    Args:
        suite: The suite of experiments.
        run: A scored run or ensemble.
    """
    dev, test = (_format_scores(set_scores) for set_scores in run.scores)
    published = "; ".join(
        f"{name}: {', '.join(f'{system} {value:.2f}' for system, value in systems.items())}"
        for name, systems in suite.published.items()
    )
    line = f"{run.experiment}, {run.label}: test {test}{f' [published: {published}]' if published else ''}; dev {dev}"
    record = run.stop_record
    training = f", {record['samples']:,} samples in {record['seconds']:,.0f} s" if record else ""
    return f"{line}; {run.parameters:,} parameters{training}"


def write_reports(suite: LabelSuite, request: RecipeRequest, runs: Sequence[LabelRun]) -> str:
    """Write report.json, report.html and the additional figures as SVG files to the output folder.

    Args:
        suite: The suite of experiments.
        request: The recipe's request.
        runs: Scored runs and ensembles; the page shows curves and errors of the first one.

    Returns:
        The line that names the report.

    Raises:
        RunError: A file cannot be written.
    """
    experiments = suite.experiments
    names = list(dict.fromkeys(run.experiment for run in runs))
    published = {name: dict(systems) for name, systems in suite.published.items()}
    numbers = {
        **{"name": experiments.name, "title": experiments.title, "published": published},
        **{"seeds": request.seeds, "samples": request.samples},
        "experiments": [
            {"name": name, "runs": [_run_json(run) for run in runs if run.experiment == name]} for name in names
        ],
    }
    write_json(request.out / "report.json", numbers)
    parts = list(suite.report_parts(runs))
    write_report(request.out / "report.html", _report_page(suite, runs, parts))
    for part in parts:
        if isinstance(part, ReportFigure):
            write_text(request.out / f"{re.sub(r'[^a-z0-9]+', '-', part.title.lower())}.svg", part.svg)
    return f"report: {request.out / 'report.html'}"


def confusion_table(run: LabelRun) -> ReportTable | None:
    """Return the confusion matrix on the test set with the recall of each label; None if there is one label, or more
    than `MAX_CONFUSION_LABELS`.

    Args:
        run: A scored run or ensemble.
    """
    metrics = run.scores.test.label_metrics
    metrics = metrics.parts.get("class_", metrics)
    if not 1 < len(metrics.labels) <= MAX_CONFUSION_LABELS:
        return None
    rows = [
        [label, *(f"{count:,}" for count in counts), f"{100 * counts[index] / max(sum(counts), 1):.1f} %"]
        for index, (label, counts) in enumerate(zip(metrics.labels, metrics.confusion, strict=True))
    ]
    caption = f"{run.experiment}, {run.label}, test set. A row is a true label, a column a predicted label."
    return ReportTable("Confusion matrix", caption, ["label", *metrics.labels, "recall"], rows)


def _format_scores(set_scores: LabelScores) -> str:
    """Return all scores on one set."""
    return ", ".join(f"{name} {score.text}" for name, score in set_scores.scores.items())


def _mean_lines(runs: Sequence[LabelRun]) -> Iterator[str]:
    """Yield mean and range of the test scores of each experiment with several seeds."""
    for name in dict.fromkeys(run.experiment for run in runs):
        by_seed = [run.scores.test.scores for run in runs if run.experiment == name and run.log]
        if len(by_seed) > 1:
            parts = []
            for score in by_seed[0]:
                values = [scores[score].value for scores in by_seed]
                parts.append(f"{score} {statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})")
            yield f"{name}, mean of {len(by_seed)} seeds: test {', '.join(parts)}"


def _run_json(run: LabelRun) -> dict[str, Any]:
    """Return all numbers of one run."""
    values: dict[str, Any] = {"label": run.label, "test": run.scores.test.to_json(), "dev": run.scores.dev.to_json()}
    values["parameters"] = run.parameters
    record = run.stop_record
    if record:
        values |= {"seed": run.config.seed, "seconds": record["seconds"], "updates": record["update"]}
        values |= {"samples": record["samples"], "config": msgspec.to_builtins(run.config)}
    return values


def _report_page(suite: LabelSuite, runs: Sequence[LabelRun], additional_parts: Sequence[ReportPart]) -> Report:
    """Return the page: all runs; curves, errors and settings of the first run; the additional parts of the recipe."""
    first, experiments = runs[0], suite.experiments
    heads = ["experiment", "seed or ensemble", "set", *first.scores.test.scores, "parameters", "seconds"]
    rows = [row for run in runs for row in _table_rows(run)]
    published = [
        [name, system, f"{value:.2f}"] for name, systems in suite.published.items() for system, value in systems.items()
    ]
    parts = [ReportTable("All runs", INTERVAL_NOTE, heads, rows)]
    if published:
        parts.append(
            ReportTable("Published", "Published scores on the same test set.", ["score", "system", "value"], published)
        )
    tables = filter(None, map(confusion_table, runs))
    return Report(
        title=experiments.title,
        introduction=f"{experiments.introduction}\n\nCurves, errors, settings: {first.experiment}, {first.label}.",
        summary=[(f"test {name}", score.text) for name, score in first.scores.test.scores.items()],
        log=first.log,
        validation_metrics=suite.validation_metrics or get_task(first.config.task).metrics.validation_metrics,
        errors=first.worst_examples,
        config_toml=to_toml(first.config),
        parts=[*parts, *additional_parts, *tables],
    )


def _table_rows(run: LabelRun) -> Iterator[list[str]]:
    """Yield a table row for each set."""
    seconds = f"{run.stop_record['seconds']:,.0f}" if run.stop_record else "–"
    for split, set_scores in (("test", run.scores.test), ("dev", run.scores.dev)):
        scores = [score.text for score in set_scores.scores.values()]
        yield [run.experiment, run.label, split, *scores, f"{run.parameters:,}", seconds]
