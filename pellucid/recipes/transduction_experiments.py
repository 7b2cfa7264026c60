"""Experiments of the task transduce: train with every seed, score, compare settings, and report."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pellucid.config.settings import Config, reads_features
from pellucid.data.examples import Example
from pellucid.decoding.predictor import Predictor
from pellucid.evaluation.assessment import OracleAccuracy, oracle_accuracy, score_traces
from pellucid.evaluation.metrics import ConfidenceInterval, Evaluation, ScoredExample, evaluate_examples
from pellucid.evaluation.outcomes import MeanRates, macro_average, outcome_table
from pellucid.evaluation.significance import RunComparison, compare_outcomes
from pellucid.files import write_json
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.pair_ngram.predictor import PairNgramPredictor, fit_pair_ngram_predictor
from pellucid.recipes.experiments import (
    METRIC_LABELS,
    Experiment,
    ExperimentSuite,
    ExperimentTraining,
    MetricName,
    change_settings,
    ensemble_name,
    plan_trainings,
    read_pairs,
)
from pellucid.recipes.jobs import run_jobs, train_with_progress
from pellucid.recipes.recipe import RecipeRequest
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.shapes import Int
from pellucid.training.training_data import TrainingFiles
from pellucid.viewer.report_parts import example_parts
from pellucid.viewer.report_schema import ReportExamples, ReportTable
from pellucid.viewer.reports import Report, ScoredRun, run_report, write_report
from pellucid.worker_pool import ProgressCallback

BEAM_SIZE = 5
"""Beam size of every reported score; validation during training is greedy."""
REPORTED_RATES = ("examples", "exact_match", "sequence_error_rate", "symbol_error_rate")
"""Fields of an evaluation in report.json, each rate with its interval."""


class TransductionScores(NamedTuple):
    """Scores of the outputs on one set."""

    evaluation: Evaluation
    outcomes: Int[np.ndarray, "n 3"]
    """A row per example (`outcome_table`): 1 if the output is wrong, its errors, and the length of the reference."""
    k_best: list[OracleAccuracy]
    """Accuracy at 1, 2, … `num_candidates`: share of the examples with a correct output among the first k
    hypotheses.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the rates in `REPORTED_RATES` with their intervals, and the k-best accuracies, as plain values."""
        values = self.evaluation.to_dict()
        rates = {key: value for key, value in values.items() if key.removesuffix("_ci95") in REPORTED_RATES}
        return {**rates, "k_best": [accuracy._asdict() for accuracy in self.k_best]}


class SplitScores(NamedTuple):
    """Scores on the validation set and on the test set."""

    dev: TransductionScores
    test: TransductionScores | None
    """None for an experiment without a test set."""


class References(NamedTuple):
    """Examples to decode, and the correct outputs of each."""

    examples: list[Example]
    targets: list[tuple[str, ...]]
    """Correct outputs of each example, at least one."""


def read_references(path: Path, config: Config, groups_references: bool) -> References:
    """Return the examples of a file with their correct outputs.

    Args:
        path: TSV file.
        config: Configuration of the training.
        groups_references: Whether the targets of equal sources are correct outputs of one example.

    Raises:
        DataError: The file cannot be read, has no example or a bad line.
        ConfigError: The configured columns are invalid.
    """
    examples = read_pairs(path, config)
    if not groups_references:
        return References(examples, [(example.target,) for example in examples])
    targets: dict[tuple[str, str], list[str]] = {}
    for example in examples:
        targets.setdefault((example.source, example.features), []).append(example.target)
    grouped = [Example(source, found[0], features) for (source, features), found in targets.items()]
    return References(grouped, [tuple(found) for found in targets.values()])


def score_predictor(
    predictor: Predictor, references: References, num_candidates: int
) -> tuple[ScoredRun, TransductionScores]:
    """Decode examples with a beam of `BEAM_SIZE` and score the outputs.

    The process then computes with the threads of the predictor's configuration.

    Args:
        predictor: Predictor of the trained model.
        references: Sources with their correct outputs.
        num_candidates: Number of hypotheses per source for k-best accuracy; a beam is at least as large.

    Returns:
        The outputs with their references for the page, and the scores.
    """
    use_threads(predictor.config.threads)
    hypotheses = predictor.with_beam(BEAM_SIZE).nbest_examples(references.examples, num_candidates)
    best_traces = [traces[0] for traces in hypotheses]
    scored = score_traces(best_traces, references.targets, predictor.tokenizers)
    evaluation = evaluate_examples(scored)
    scored_hypotheses = [
        score_traces(traces, [targets] * len(traces), predictor.tokenizers)
        for traces, targets in zip(hypotheses, references.targets, strict=True)
    ]
    k_best = oracle_accuracy(scored_hypotheses, num_candidates)
    return ScoredRun(predictor, best_traces, references.targets, scored, evaluation), TransductionScores(
        evaluation, outcome_table(scored), k_best
    )


class BaselineScores(NamedTuple):
    """Scores of the pair n-gram model of the same training pairs."""

    scores: SplitScores
    seconds: float
    """CPU seconds of its fit."""


class TransductionRun(NamedTuple):
    """One experiment with one seed, trained and scored."""

    experiment: str
    config: Config
    scores: SplitScores
    stop_record: dict[str, Any]
    """Last record of the training log: updates, samples and seconds of training."""
    epochs: float
    """Passes over the training set: samples seen per training pair."""
    parameters: int
    """Number of parameters."""
    report: Report
    """Page of the run."""
    pair_ngram: BaselineScores | None = None
    """Scores of a pair n-gram model; None if the pairs have no alignments."""

    @property
    def label(self) -> str:
        """Return the seed as text."""
        return f"seed {self.config.seed}"


class EnsembleRun(NamedTuple):
    """Ensemble of the runs of one experiment, scored."""

    experiment: str
    members: int
    """Number of runs."""
    scores: SplitScores

    @property
    def label(self) -> str:
        """Return the size of the ensemble as text."""
        return f"ensemble of {self.members}"


class SettingComparison(NamedTuple):
    """Paired comparison of the runs of one setting with those of a baseline, for one seed."""

    setting: str
    baseline: str
    """Name of the baseline setting."""
    label: str
    """The seed, as text."""
    num_sets: int
    """Number of pairs of runs, one per data set."""
    dev: RunComparison
    test: RunComparison | None
    """None where an experiment has no test set."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; differences are those of the setting minus the baseline, in points."""
        values = {"setting": self.setting, "baseline": self.baseline, "label": self.label, "sets": self.num_sets}
        return {**values, "dev": self.dev.to_dict(), "test": self.test.to_dict() if self.test else None}


class _ComparedSettings(NamedTuple):
    """Names of a setting and of its baseline, and the seed, as text."""

    setting: str
    baseline: str
    label: str


def compare_settings(suite: ExperimentSuite, runs: Sequence[TransductionRun]) -> list[SettingComparison]:
    """Return the paired comparison of every setting with its baseline, by seed; all data sets have equal weight.

    Args:
        suite: The suite of experiments.
        runs: Scored runs; a run without a baseline, or without the run of its baseline with the same seed, is left out.
    """
    runs_by_key = {(run.experiment, run.label): run for run in runs}
    groups = dict[_ComparedSettings, list[tuple[TransductionRun, TransductionRun]]]()
    for run in runs:
        experiment = suite.experiment(run.experiment)
        baseline_run = runs_by_key.get((experiment.baseline, run.label))
        if baseline_run is not None:
            baseline = suite.experiment(baseline_run.experiment).settings_name
            settings = _ComparedSettings(experiment.settings_name, baseline, run.label)
            groups.setdefault(settings, []).append((run, baseline_run))
    return [_compare_runs(settings, pairs) for settings, pairs in groups.items()]


def format_comparisons(suite: ExperimentSuite, comparisons: Sequence[SettingComparison]) -> Iterator[str]:
    """Yield one line per comparison, with the difference of the main metric on test and validation sets.

    Args:
        suite: The suite of experiments.
        comparisons: Comparisons of settings.
    """
    for comparison in comparisons:
        sets = f"{comparison.num_sets} set" + "s" * (comparison.num_sets > 1)
        values = "; ".join(
            f"{split} {METRIC_LABELS[suite.metric]} {_format_difference(suite.metric, runs)}"
            for split, runs in (("test", comparison.test), ("dev", comparison.dev))
            if runs is not None
        )
        yield f"{comparison.setting} against {comparison.baseline}, {comparison.label}, {sets}: {values}"


def comparison_table(suite: ExperimentSuite, comparisons: Sequence[SettingComparison]) -> ReportTable:
    """Return the comparisons as a table of the page.

    Args:
        suite: The suite of experiments.
        comparisons: Comparisons of settings.
    """
    name = METRIC_LABELS[suite.metric]
    caption = (
        f"Difference of {name} between setting and baseline in points, on the same examples with the same seed: mean "
        "over the sets, 95 % interval (paired bootstrap) and p-value (paired permutation test). Both are for one seed "
        "and do not include the variance between seeds."
    )
    heads = ["setting", "baseline", "seed or ensemble", "sets", f"dev {name}", f"test {name}"]
    rows = [
        [
            comparison.setting,
            comparison.baseline,
            comparison.label,
            f"{comparison.num_sets}",
            *(_comparison_cell(suite, runs) for runs in (comparison.dev, comparison.test)),
        ]
        for comparison in comparisons
    ]
    return ReportTable("Comparison of settings", caption, heads, rows)


def _compare_runs(
    settings: _ComparedSettings, pairs: Sequence[tuple[TransductionRun, TransductionRun]]
) -> SettingComparison:
    """Return the comparison over pairs of runs."""
    dev = [(run.scores.dev, baseline.scores.dev) for run, baseline in pairs]
    test = [
        (run.scores.test, baseline.scores.test)
        for run, baseline in pairs
        if run.scores.test is not None and baseline.scores.test is not None
    ]
    return SettingComparison(
        setting=settings.setting,
        baseline=settings.baseline,
        label=settings.label,
        num_sets=len(pairs),
        dev=_compare_scores(dev),
        test=_compare_scores(test) if len(test) == len(pairs) else None,
    )


def _compare_scores(scores: Sequence[tuple[TransductionScores, TransductionScores]]) -> RunComparison:
    """Return the comparison over sets of equal weight."""
    return compare_outcomes([run.outcomes for run, _ in scores], [baseline.outcomes for _, baseline in scores])


def _comparison_cell(suite: ExperimentSuite, comparison: RunComparison | None) -> str:
    """Return a table cell; a dash without comparison."""
    return _format_difference(suite.metric, comparison) if comparison is not None else "–"


def _format_difference(metric: MetricName, comparison: RunComparison) -> str:
    """Return the difference of the main metric with its interval and p-value."""
    difference = comparison.exact_match.complement if metric == "sequence_error_rate" else comparison.exact_match
    low, high = difference.ci95
    return f"{difference.difference:+z.2f} ({low:+z.2f} to {high:+z.2f}), p {difference.p:.3f}"


class MacroAverage(NamedTuple):
    """Mean scores over data sets of equal weight, for one setting and one seed or the ensembles."""

    setting: str
    """Name of the setting; empty if the suite has one setting only."""
    label: str
    """Setting, if any, then the seed or the size of the ensemble."""
    dev: MeanRates
    num_dev_sets: int
    """Number of validation sets."""
    test: MeanRates | None
    num_test_sets: int
    """Number of test sets: those with a published number, if there are any."""
    published: float | None
    """Mean of the main published number of the same test sets; None if there is none."""

    @property
    def is_reported(self) -> bool:
        """Return True if a line reports this mean: it covers several validation sets, or has no setting."""
        return self.num_dev_sets > 1 or not self.setting

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = {
            "label": self.label,
            "dev_sets": self.num_dev_sets,
            "dev": self.dev.to_dict(),
            "test_sets": self.num_test_sets,
        }
        return {**values, "test": self.test.to_dict() if self.test else None, "published": self.published}


def format_run(suite: ExperimentSuite, run: TransductionRun) -> str:
    """Return the line of a run: scores and published scores, parameters, epochs and seconds.

    Args:
        suite: The suite of experiments.
        run: A scored run.
    """
    training = f"{run.epochs:.3g} epochs in {run.stop_record['seconds']:,.0f} s"
    return f"{_format_scores(suite, run)}; {run.parameters:,} parameters, {training}{_format_baseline(suite, run)}"


def _format_baseline(suite: ExperimentSuite, run: TransductionRun) -> str:
    """Return the scores of the pair n-gram model, after a semicolon; "" if there is none."""
    if run.pair_ngram is None:
        return ""
    dev, test = run.pair_ngram.scores
    splits = [("test", test)] * (test is not None) + [("dev", dev)]
    values = [f"{split} {metric_value(suite.metric, scores.evaluation):.2f}" for split, scores in splits if scores]
    return f"; pair n-gram: {_metric_label(suite)} {', '.join(values)}, in {run.pair_ngram.seconds:.1f} CPU s"


def format_ensemble(suite: ExperimentSuite, ensemble: EnsembleRun) -> str:
    """Return the line of an ensemble: its scores and published scores.

    Args:
        suite: The suite of experiments.
        ensemble: A scored ensemble.
    """
    return _format_scores(suite, ensemble)


def summary_lines(
    suite: ExperimentSuite,
    runs: Sequence[TransductionRun],
    ensembles: Sequence[EnsembleRun],
    comparisons: Sequence[SettingComparison],
) -> Iterator[str]:
    """Yield the lines of the means over data sets, then those of the comparisons of settings.

    Args:
        suite: The suite of experiments.
        runs: Scored runs.
        ensembles: Scored ensembles.
        comparisons: Comparisons of settings.
    """
    yield from _macro_lines(suite, runs, ensembles)
    yield from format_comparisons(suite, comparisons)


def _macro_lines(
    suite: ExperimentSuite, runs: Sequence[TransductionRun], ensembles: Sequence[EnsembleRun]
) -> Iterator[str]:
    """Yield the means of each setting: by seed, over all seeds, and of the ensembles."""
    for macro in macro_averages(suite, runs, ensembles):
        if macro.is_reported:
            yield _macro_line(suite, macro)
    averages_by_setting = dict[str, list[MacroAverage]]()
    for macro in macro_averages(suite, runs, []):
        averages_by_setting.setdefault(macro.setting, []).append(macro)
    for setting, averages in averages_by_setting.items():
        if len(averages) > 1 and averages[0].is_reported:
            values = [metric_value(suite.metric, macro.test or macro.dev) for macro in averages]
            split = "test" if averages[0].test else "dev"
            value_range = f"{min(values):.2f} to {max(values):.2f}"
            mean = f"{split} {_metric_label(suite)} {statistics.mean(values):.2f} ({value_range})"
            yield f"macro, {f'{setting}, ' if setting else ''}mean of {len(values)} seeds: {mean}"


def macro_averages(
    suite: ExperimentSuite, runs: Sequence[TransductionRun], ensembles: Sequence[EnsembleRun]
) -> list[MacroAverage]:
    """Return the means over the experiments of each setting: one per seed, and one for the ensembles.

    Test means cover the sets with a published number if there are any, else all test sets.

    Args:
        suite: The suite of experiments.
        runs: Scored runs.
        ensembles: Scored ensembles.
    """
    groups: dict[tuple[str, str], list[TransductionRun | EnsembleRun]] = {}
    scored_runs: list[TransductionRun | EnsembleRun] = [*runs, *ensembles]
    for run in scored_runs:
        groups.setdefault((suite.experiment(run.experiment).settings_name, run.label), []).append(run)
    return [_macro_average(suite, setting, label, group) for (setting, label), group in groups.items()]


def write_reports(
    suite: ExperimentSuite,
    request: RecipeRequest,
    runs: Sequence[TransductionRun],
    ensembles: Sequence[EnsembleRun],
    comparisons: Sequence[SettingComparison],
) -> str:
    """Write report.json and report.html to the output folder.

    Args:
        suite: The suite of experiments.
        request: The recipe's request.
        runs: Scored runs; the page shows examples and attention of the first one.
        ensembles: Scored ensembles.
        comparisons: Comparisons of settings.

    Returns:
        The line that names the report.

    Raises:
        RunError: A file cannot be written.
    """
    means = macro_averages(suite, runs, ensembles)
    names = list(dict.fromkeys(run.experiment for run in runs))
    numbers = {
        **{"name": suite.name, "title": suite.title, "metric": suite.metric, "beam": BEAM_SIZE},
        **{"seeds": request.seeds, "samples": request.samples},
        "experiments": [_experiment_json(suite.experiment(name), runs, ensembles) for name in names],
        "macro": [macro.to_json() for macro in means],
        "differences": [comparison.to_json() for comparison in comparisons],
    }
    write_json(request.out / "report.json", numbers)
    write_report(request.out / "report.html", _report_page(suite, runs, ensembles, means, comparisons))
    return f"report: {request.out / 'report.html'}"


def metric_value(metric: MetricName, scores: Evaluation | MeanRates) -> float:
    """Return the value of a metric in percent.

    Args:
        metric: Name of the metric.
        scores: Scores on one set, or means over sets.
    """
    value: float = getattr(scores, metric)
    return value


def _format_interval(metric: MetricName, scores: Evaluation | MeanRates) -> str:
    """Return the 95 % interval of the main score."""
    interval: ConfidenceInterval = getattr(scores, f"{metric}_ci95")
    return f"{interval.low:.2f} to {interval.high:.2f}"


def _interval_note(has_means: bool) -> str:
    """Return the methods of the intervals in the report."""
    means = "; those of means are by a bootstrap over the examples of each set (percentiles)" if has_means else ""
    return f"Intervals of a set are Wilson's{means}. They do not include the variance between seeds."


def _metric_label(suite: ExperimentSuite) -> str:
    """Return the displayed name of the main score."""
    return METRIC_LABELS[suite.metric]


def _format_scores(suite: ExperimentSuite, run: TransductionRun | EnsembleRun) -> str:
    """Return experiment, seed, scores on both sets, and published scores."""
    dev, test = run.scores
    parts = [_format_split(suite, "dev", dev)]
    if test is not None:
        published = [f"{system} {value:.2f}" for system, value in suite.experiment(run.experiment).published.items()]
        comparison = f" [published: {', '.join(published)}]" if published else ""
        parts.insert(0, _format_split(suite, "test", test) + comparison)
    return f"{run.experiment}, {run.label}: {'; '.join(parts)}"


def _format_split(suite: ExperimentSuite, split: str, set_scores: TransductionScores) -> str:
    """Return the scores on one set."""
    evaluation, metric = set_scores.evaluation, suite.metric
    k_best = "".join(f", {accuracy.k}-best {accuracy.accuracy:.2f}" for accuracy in set_scores.k_best[1:])
    value, interval = metric_value(metric, evaluation), _format_interval(metric, evaluation)
    symbol_errors = f"symbol error rate {evaluation.symbol_error_rate:.2f}"
    return f"{split} {_metric_label(suite)} {value:.2f} ({interval}){k_best}, {symbol_errors}"


def _macro_average(
    suite: ExperimentSuite, setting: str, label: str, group: Sequence[TransductionRun | EnsembleRun]
) -> MacroAverage:
    """Return the means over a group of runs or ensembles."""
    dev = macro_average([run.scores.dev.outcomes for run in group])
    tested = [(suite.experiment(run.experiment), run.scores.test) for run in group if run.scores.test]
    published = [(experiment, set_scores) for experiment, set_scores in tested if experiment.published]
    published_values = [next(iter(experiment.published.values())) for experiment, _ in published]
    averaged = published or tested
    return MacroAverage(
        setting=setting,
        label=f"{setting}, {label}" if setting else label,
        dev=dev,
        num_dev_sets=len(group),
        test=macro_average([set_scores.outcomes for _, set_scores in averaged]) if averaged else None,
        num_test_sets=len(averaged),
        published=statistics.mean(published_values) if published_values else None,
    )


def _macro_line(suite: ExperimentSuite, macro: MacroAverage) -> str:
    """Return the line of a mean."""
    metric, parts = suite.metric, list[str]()
    if macro.test is not None:
        published = f" [published: {macro.published:.2f}]" if macro.published is not None else ""
        sets = f"{macro.num_test_sets} test set" + "s" * (macro.num_test_sets > 1)
        value, interval = metric_value(metric, macro.test), _format_interval(metric, macro.test)
        parts.append(f"{_metric_label(suite)} {value:.2f} ({interval}) over {sets}{published}")
    sets = f"{macro.num_dev_sets} dev set" + "s" * (macro.num_dev_sets > 1)
    parts.append(f"{metric_value(metric, macro.dev):.2f} ({_format_interval(metric, macro.dev)}) over {sets}")
    return f"macro, {macro.label}: {'; '.join(parts)}"


def _experiment_json(
    experiment: Experiment, runs: Sequence[TransductionRun], ensembles: Sequence[EnsembleRun]
) -> dict[str, Any]:
    """Return all numbers of one experiment."""
    values: dict[str, Any] = {"name": experiment.name, "published": dict(experiment.published)}
    values["runs"] = [_run_json(run) for run in runs if run.experiment == experiment.name]
    ensemble = next((ensemble for ensemble in ensembles if ensemble.experiment == experiment.name), None)
    values["ensemble"] = {"members": ensemble.members, **_scores_json(ensemble.scores)} if ensemble else None
    return values


def _run_json(run: TransductionRun) -> dict[str, Any]:
    """Return all numbers of one run."""
    record = run.stop_record
    training = {"seconds": record["seconds"], "updates": record["update"], "samples": record["samples"]}
    settings = {"epochs": run.epochs, "parameters": run.parameters, "config": msgspec.to_builtins(run.config)}
    baseline = run.pair_ngram and {**_scores_json(run.pair_ngram.scores), "cpu_seconds": run.pair_ngram.seconds}
    return {"seed": run.config.seed, **_scores_json(run.scores), **training, **settings, "pair_ngram": baseline}


def _scores_json(scores: SplitScores) -> dict[str, Any]:
    """Return the scores on both sets."""
    return {"dev": scores.dev.to_json(), "test": scores.test.to_json() if scores.test is not None else None}


def _report_page(
    suite: ExperimentSuite,
    runs: Sequence[TransductionRun],
    ensembles: Sequence[EnsembleRun],
    means: Sequence[MacroAverage],
    comparisons: Sequence[SettingComparison],
) -> Report:
    """Return the page: all scores with published ones, examples and errors of the first run."""
    scored_runs: list[TransductionRun | EnsembleRun] = [*runs, *ensembles]
    rows = [row for run in scored_runs for row in _table_rows(suite, run)]
    first_runs = {run.experiment: run for run in reversed(runs)}  # the baseline does not depend on the seed
    rows += [row for run in reversed(first_runs.values()) for row in _baseline_rows(suite, run)]
    k_best = [f"{k}-best" for k in range(2, suite.num_candidates + 1)]
    heads = [
        "experiment",
        "seed or ensemble",
        "set",
        _metric_label(suite),
        "95 % interval",
        *k_best,
        "symbol error rate",
    ]
    lines = [f"{_macro_line(suite, macro)}." for macro in means if macro.is_reported]
    lines.append(_interval_note(has_means=bool(lines)))
    comparison_tables = [comparison_table(suite, comparisons)] if comparisons else []
    first = runs[0]
    introduction = f"{suite.introduction}\n\nExamples below: {first.experiment}, {first.label}."
    summary = [_summary_entry(suite, macro) for macro in means]
    return replace(
        first.report,
        title=suite.title,
        introduction=introduction,
        summary=summary,
        log=(),
        parts=[
            ReportTable("All runs", " ".join(lines), [*heads, "seconds", "published"], rows),
            *comparison_tables,
            *_attention_examples(suite, runs),
        ],
    )


def _attention_examples(suite: ExperimentSuite, runs: Sequence[TransductionRun]) -> Iterator[ReportExamples]:
    """Yield decoded examples with attention for the first run of every further experiment."""
    first_runs = dict[str, TransductionRun]()
    for run in runs:
        first_runs.setdefault(run.experiment, run)
    for name, run in first_runs.items():
        if suite.show_all_attention and name != runs[0].experiment:
            yield from example_parts(f"Attention: {name}, {run.label}", run.report.examples)


def _summary_entry(suite: ExperimentSuite, macro: MacroAverage) -> tuple[str, str]:
    """Return a headline number: the mean of one seed or of the ensembles."""
    scores, split = (macro.test, "test") if macro.test else (macro.dev, "dev")
    published = f"; published {macro.published:.2f}" if macro.published is not None else ""
    value = f"{metric_value(suite.metric, scores):.2f} %"
    return (
        f"{'macro ' if macro.is_reported else ''}{split} {_metric_label(suite)}",
        f"{value} ({macro.label}{published})",
    )


def _table_rows(suite: ExperimentSuite, run: TransductionRun | EnsembleRun) -> Iterator[list[str]]:
    """Yield a table row for each set."""
    seconds = f"{run.stop_record['seconds']:,.0f}" if isinstance(run, TransductionRun) else "–"
    for split, set_scores in zip(("dev", "test"), run.scores, strict=True):
        if set_scores is None:
            continue
        published = suite.experiment(run.experiment).published if split == "test" else {}
        published_text = ", ".join(f"{system} {value:.2f}" for system, value in published.items()) or "–"
        yield _table_row(suite, (run.experiment, run.label, split), set_scores, (seconds, published_text))


def _table_row(
    suite: ExperimentSuite, names: tuple[str, str, str], scores: TransductionScores, ending: tuple[str, str]
) -> list[str]:
    """Return a table row: experiment, system and set; the scores; seconds and published scores."""
    k_best = [f"{accuracy.accuracy:.2f}" for accuracy in scores.k_best[1:]]
    value, interval = metric_value(suite.metric, scores.evaluation), _format_interval(suite.metric, scores.evaluation)
    return [*names, f"{value:.2f}", interval, *k_best, f"{scores.evaluation.symbol_error_rate:.2f}", *ending]


def _baseline_rows(suite: ExperimentSuite, run: TransductionRun) -> Iterator[list[str]]:
    """Yield a table row for each set that the pair n-gram model is scored on."""
    if run.pair_ngram is not None:
        for split, set_scores in zip(("dev", "test"), run.pair_ngram.scores, strict=True):
            if set_scores is not None:
                seconds = f"{run.pair_ngram.seconds:,.1f}"
                yield _table_row(suite, (run.experiment, "pair n-gram", split), set_scores, (seconds, "–"))


class TransductionJob(NamedTuple):
    """One training and its evaluation, in a worker process."""

    training: ExperimentTraining
    num_candidates: int
    title: str
    introduction: str
    groups_references: bool = False
    """The targets of equal sources are correct outputs of one example."""

    def read(self, path: Path) -> References:
        """Return the examples of a file with their correct outputs.

        Args:
            path: Validation or test file of the training.

        Raises:
            DataError: The file cannot be read, has no example or a bad line.
        """
        return read_references(path, self.training.config, self.groups_references)


def run_suite(suite: ExperimentSuite, request: RecipeRequest) -> Iterator[str]:
    """Train and score the selected experiments and their ensembles, and write the report.

    Args:
        suite: The suite of experiments.
        request: The recipe's request.

    Yields:
        A line per run, then (with several seeds) a line per ensemble, the means, the comparisons and the path of the
        report.

    Raises:
        InputError: As in `plan_trainings` and `run_jobs`.
        RunError: The report cannot be written.
    """
    suite = change_settings(suite, request)
    jobs_by_seed = [[_plan_job(suite, training) for training in group] for group in plan_trainings(suite, request)]
    named_jobs = [(job.training.name, job) for jobs in jobs_by_seed for job in jobs]
    runs, ensembles = [], []
    for run in run_jobs(train_and_score, named_jobs, request):
        yield format_run(suite, run)
        runs.append(run)
    if request.seeds > 1:
        members = [(ensemble_name([job.training for job in jobs]), jobs) for jobs in zip(*jobs_by_seed, strict=True)]
        for ensemble in run_jobs(score_trained_ensemble, members, request):
            yield format_ensemble(suite, ensemble)
            ensembles.append(ensemble)
    comparisons = compare_settings(suite, runs)
    yield from summary_lines(suite, runs, ensembles, comparisons)
    yield write_reports(suite, request, runs, ensembles, comparisons)


def train_and_score(job: TransductionJob, on_progress: ProgressCallback) -> TransductionRun:
    """Train a run, or resume or reuse an existing one, score it, and write its page (report.html in its folder).

    Runs in a worker process.

    Args:
        job: The training and its evaluation.
        on_progress: Progress callback.

    Returns:
        The run with its scores and its page, which shows the test set or, without one, the validation set.
    """
    experiment, config, paths, folder = job.training
    train_with_progress(TrainingFiles(paths.train, paths.dev), folder, config, on_progress)
    on_progress("decoding for evaluation")
    predictor = load(folder)
    scored_run, dev = score_predictor(predictor, job.read(paths.dev), job.num_candidates)
    test = None
    if paths.test is not None:
        scored_run, test = score_predictor(predictor, job.read(paths.test), job.num_candidates)
    report = run_report(folder, scored_run, job.title, job.introduction)
    write_report(folder / "report.html", report)
    log = read_log(folder)
    stop_record = [record for record in log if record["event"] == "stopped"][-1]
    num_examples = next(
        record["examples"] for record in log if record["event"] == "read"
    )  # the training file is read first
    on_progress("pair n-gram model")
    return TransductionRun(
        experiment=experiment,
        config=config,
        scores=SplitScores(dev, test),
        pair_ngram=score_pair_ngram(predictor, job),
        stop_record=stop_record,
        epochs=stop_record["samples"] / num_examples,
        parameters=parameter_count(predictor.network),
        report=report,
    )


def score_pair_ngram(predictor: Predictor, job: TransductionJob) -> BaselineScores | None:
    """Fit a pair n-gram model to the training pairs and score it.

    Args:
        predictor: Predictor of a run, for its tokenizers, vocabularies and data settings.
        job: The training and its evaluation.

    Returns:
        The scores; None if the pairs have no alignments, or features, which the model does not read.
    """
    if reads_features(predictor.config.data):
        return None
    started, paths = time.process_time(), job.training.paths
    examples = read_pairs(paths.train, predictor.config)
    model = fit_pair_ngram_predictor(examples, predictor.tokenizers, predictor.vocabularies)
    seconds = time.process_time() - started
    if model is None:
        return None
    dev = _score_outputs(model, job.read(paths.dev), job.num_candidates)
    test = None
    if paths.test is not None:
        test = _score_outputs(model, job.read(paths.test), job.num_candidates)
    return BaselineScores(SplitScores(dev, test), seconds)


def _score_outputs(model: PairNgramPredictor, references: References, num_candidates: int) -> TransductionScores:
    """Return the scores of a pair n-gram model."""
    lists = decode_with_pair_ngram(model, references.examples, references.targets, num_candidates)
    scored = [outputs[0] for outputs in lists]
    return TransductionScores(evaluate_examples(scored), outcome_table(scored), oracle_accuracy(lists, num_candidates))


def decode_with_pair_ngram(
    model: PairNgramPredictor, examples: Sequence[Example], targets: Sequence[Sequence[str]], count: int
) -> list[list[ScoredExample]]:
    """Return the most probable outputs of a pair n-gram model, the best first, with the references as symbols.

    Args:
        model: The model.
        examples: Examples, whose targets are ignored.
        targets: References of each example, as texts.
        count: Maximum number of outputs of each example.
    """
    source, target = model.tokenizers.source, model.tokenizers.target
    return [
        [
            ScoredExample(output, tuple(tuple(target.split(text)) for text in texts), len(source.split(example.source)))
            for output in outputs
        ]
        for example, texts, outputs in zip(examples, targets, model.nbest(examples, count), strict=True)
    ]


def score_trained_ensemble(members: Sequence[TransductionJob], on_progress: ProgressCallback) -> EnsembleRun:
    """Load the trained runs of one experiment, and score them as an ensemble.

    Args:
        members: Jobs of the members, one per seed; all are trained.
        on_progress: Progress callback.

    Returns:
        The ensemble with its scores.
    """
    first = members[0].training
    on_progress("decoding for evaluation")
    predictor = load([job.training.folder for job in members])

    def _score_file(path: Path) -> TransductionScores:
        """Return the scores on the examples of a file."""
        return score_predictor(predictor, members[0].read(path), members[0].num_candidates)[1]

    test = _score_file(first.paths.test) if first.paths.test is not None else None
    return EnsembleRun(first.experiment, len(members), SplitScores(_score_file(first.paths.dev), test))


def _plan_job(suite: ExperimentSuite, training: ExperimentTraining) -> TransductionJob:
    """Return the job of a training with title and introduction of its page."""
    title = f"{suite.title}: {training.name}"
    return TransductionJob(training, suite.num_candidates, title, suite.introduction, suite.groups_references)
