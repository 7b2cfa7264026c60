"""Run every experiment of a suite with every seed and report: tables, means, report.json and report.html."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pellucid.evaluation.metrics import ConfidenceInterval, Evaluation
from pellucid.evaluation.outcomes import MeanRates, macro_average
from pellucid.evaluation.significance import RunComparison, compare_outcomes
from pellucid.files import write_json
from pellucid.model.network import parameter_count
from pellucid.recipes.experiments import (
    BEAM_SIZE,
    METRIC_LABELS,
    EnsembleRun,
    Experiment,
    ExperimentSuite,
    ExperimentTraining,
    MetricName,
    SplitScores,
    TransductionRun,
    TransductionScores,
    ensemble_name,
    plan_trainings,
    read_pairs,
    score_predictor,
)
from pellucid.recipes.jobs import run_jobs, train_with_progress
from pellucid.recipes.recipe import RecipeRequest
from pellucid.training.run_folder import load, read_log
from pellucid.training.session import TrainingFiles
from pellucid.viewer.report_parts import example_parts
from pellucid.viewer.report_schema import ReportExamples, ReportTable
from pellucid.viewer.reports import Report, run_report, write_report
from pellucid.worker_pool import ProgressCallback


class SettingComparison(NamedTuple):
    """Paired comparison of the runs of one setting with those of a baseline, for one seed."""

    setting: str
    baseline: str
    """Name of the baseline setting."""
    label: str
    num_sets: int
    dev: RunComparison
    test: RunComparison | None
    """None where an experiment has no test set."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; differences are exact match minus the baseline's."""
        values = {"setting": self.setting, "beside": self.baseline, "who": self.label, "sets": self.num_sets}
        return {**values, "dev": self.dev.to_dict(), "test": self.test.to_dict() if self.test else None}


def compare_settings(suite: ExperimentSuite, runs: Sequence[TransductionRun]) -> list[SettingComparison]:
    """Return the comparison of every setting with its baseline, by seed; all sets have equal weight."""
    known = {(run.experiment, run.label): run for run in runs}
    pairs = dict[tuple[str, str, str], list[tuple[TransductionRun, TransductionRun]]]()
    for run in runs:
        experiment = suite.experiment(run.experiment)
        other = known.get((experiment.baseline, run.label))
        if other is not None:
            settings = experiment.setting, suite.experiment(other.experiment).setting
            pairs.setdefault((*settings, run.label), []).append((run, other))
    return [_compare_runs(names, own) for names, own in pairs.items()]


def format_comparisons(suite: ExperimentSuite, comparisons: Sequence[SettingComparison]) -> Iterator[str]:
    """Yield one line per comparison."""
    for each in comparisons:
        sets = f"{each.num_sets} set" + "s" * (each.num_sets > 1)
        values = "; ".join(
            f"{which} {METRIC_LABELS[suite.measure]} {_format_difference(suite.measure, comparison)}"
            for which, comparison in (("test", each.test), ("dev", each.dev))
            if comparison is not None
        )
        yield f"{each.setting} against {each.baseline}, {each.label}, {sets}: {values}"


def comparison_table(suite: ExperimentSuite, comparisons: Sequence[SettingComparison]) -> ReportTable:
    """Return the comparisons as a table of the page."""
    name = METRIC_LABELS[suite.measure]
    caption = (
        f"Difference of {name} between setting and baseline in points, on the same examples with the same seed: mean "
        "over the sets, 95 % interval (paired bootstrap) and p-value (paired permutation test). Both are for one seed "
        "and do not include the variance between seeds."
    )
    heads = ["setting", "against", "of", "sets", f"dev {name}", f"test {name}"]
    rows = [
        [
            each.setting,
            each.baseline,
            each.label,
            f"{each.num_sets}",
            *(_comparison_cell(suite, part) for part in (each.dev, each.test)),
        ]
        for each in comparisons
    ]
    return ReportTable("Comparison of settings", caption, heads, rows)


def _compare_runs(
    names: tuple[str, str, str], pairs: Sequence[tuple[TransductionRun, TransductionRun]]
) -> SettingComparison:
    """Return the comparison over pairs of runs."""
    dev = [(run.scores.dev, other.scores.dev) for run, other in pairs]
    tests = [(run.scores.test, other.scores.test) for run, other in pairs]
    tested = [(own, other) for own, other in tests if own is not None and other is not None]
    return SettingComparison(
        *names, len(pairs), _compare_scores(dev), _compare_scores(tested) if len(tested) == len(pairs) else None
    )


def _compare_scores(scores: Sequence[tuple[TransductionScores, TransductionScores]]) -> RunComparison:
    """Return the comparison over sets of equal weight."""
    return compare_outcomes([own.table for own, _ in scores], [other.table for _, other in scores])


def _comparison_cell(suite: ExperimentSuite, comparison: RunComparison | None) -> str:
    """Return a table cell; a dash without comparison."""
    return _format_difference(suite.measure, comparison) if comparison is not None else "–"


def _format_difference(measure: MetricName, comparison: RunComparison) -> str:
    """Return the difference of the main metric with its interval and p-value."""
    found = comparison.exact_match.complement if measure == "wer" else comparison.exact_match
    low, high = found.ci95
    return f"{found.difference:+z.2f} ({low:+z.2f} to {high:+z.2f}), p {found.p:.3f}"


class MacroAverage(NamedTuple):
    """Mean scores over sets of equal weight."""

    setting: str
    label: str
    """Setting, if any, then the seed or the size of the ensemble."""
    dev: MeanRates
    num_dev_sets: int
    """Number of validation sets."""
    test: MeanRates | None
    num_test_sets: int
    """Number of test sets: those with a published number, if there are any."""
    published: float | None
    """Mean of the published numbers of the same sets."""

    @property
    def mean(self) -> bool:
        """True where a line for this mean is reported: several sets, or no setting."""
        return self.num_dev_sets > 1 or not self.setting

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = {
            "who": self.label,
            "dev_sets": self.num_dev_sets,
            "dev": self.dev.to_dict(),
            "test_sets": self.num_test_sets,
        }
        return {**values, "test": self.test.to_dict() if self.test else None, "published": self.published}


def format_run(suite: ExperimentSuite, run: TransductionRun) -> str:
    """Return the line of a run."""
    trained = f"{run.epochs:.3g} epochs in {run.stopped['seconds']:,.0f} s"
    return f"{_format_scores(suite, run)}; {run.parameters:,} parameters, {trained}"


def format_ensemble(suite: ExperimentSuite, together: EnsembleRun) -> str:
    """Return the line of an ensemble."""
    return _format_scores(suite, together)


def summary_lines(
    suite: ExperimentSuite,
    runs: Sequence[TransductionRun],
    ensembles: Sequence[EnsembleRun],
    comparisons: Sequence[SettingComparison],
) -> Iterator[str]:
    """Yield the means, then the comparisons of settings."""
    yield from _macro_lines(suite, runs, ensembles)
    yield from format_comparisons(suite, comparisons)


def _macro_lines(
    suite: ExperimentSuite, runs: Sequence[TransductionRun], ensembles: Sequence[EnsembleRun]
) -> Iterator[str]:
    """Yield the means of each setting: by seed, over all seeds, and of the ensembles."""
    for macro in macro_averages(suite, runs, ensembles):
        if macro.mean:
            yield _macro_line(suite, macro)
    singles = dict[str, list[MacroAverage]]()
    for macro in macro_averages(suite, runs, []):
        singles.setdefault(macro.setting, []).append(macro)
    for setting, own in singles.items():
        if len(own) > 1 and own[0].mean:
            values = [metric_value(suite.measure, macro.test or macro.dev) for macro in own]
            which = "test" if own[0].test else "dev"
            spread = f"{min(values):.2f} to {max(values):.2f}"
            mean = f"{which} {_metric_label(suite)} {statistics.mean(values):.2f} ({spread})"
            yield f"macro, {f'{setting}, ' if setting else ''}mean of {len(values)} seeds: {mean}"


def macro_averages(
    suite: ExperimentSuite, runs: Sequence[TransductionRun], ensembles: Sequence[EnsembleRun]
) -> list[MacroAverage]:
    """Return the means over the experiments of each setting, by seed and of the ensembles."""
    own: dict[tuple[str, str], list[TransductionRun | EnsembleRun]] = {}
    every: list[TransductionRun | EnsembleRun] = [*runs, *ensembles]
    for each in every:
        own.setdefault((suite.experiment(each.experiment).setting, each.label), []).append(each)
    return [_macro_average(suite, named, group) for named, group in own.items()]


def write_reports(
    suite: ExperimentSuite,
    request: RecipeRequest,
    runs: Sequence[TransductionRun],
    ensembles: Sequence[EnsembleRun],
    comparisons: Sequence[SettingComparison],
) -> str:
    """Write report.json and report.html.

    Args:
        suite: The suite of experiments.
        request: The recipe's request.
        runs: Scored runs; the page shows examples and attention of the first one.
        ensembles: Scored ensembles.
        comparisons: Comparisons of settings.

    Returns:
        The line that names the report.
    """
    means = macro_averages(suite, runs, ensembles)
    names = list(dict.fromkeys(run.experiment for run in runs))
    numbers = {
        **{"name": suite.name, "title": suite.title, "measure": suite.measure, "beam": BEAM_SIZE},
        **{"seeds": request.seeds, "samples": request.samples},
        "experiments": [_experiment_json(suite.experiment(name), runs, ensembles) for name in names],
        "macro": [macro.to_json() for macro in means],
        "differences": [each.to_json() for each in comparisons],
    }
    write_json(request.out / "report.json", numbers)
    write_report(request.out / "report.html", _report_page(suite, runs, ensembles, means, comparisons))
    return f"report: {request.out / 'report.html'}"


def metric_value(measure: MetricName, scores: Evaluation | MeanRates) -> float:
    """Return the main score in percent."""
    value: float = getattr(scores, measure)
    return value


def _format_interval(measure: MetricName, scores: Evaluation | MeanRates) -> str:
    """Return the 95 % interval of the main score."""
    interval: ConfidenceInterval = getattr(scores, f"{measure}_ci95")
    return f"{interval.low:.2f} to {interval.high:.2f}"


def _metric_label(suite: ExperimentSuite) -> str:
    """Return the displayed name of the main score."""
    return METRIC_LABELS[suite.measure]


def _format_scores(suite: ExperimentSuite, run: TransductionRun | EnsembleRun) -> str:
    """Return experiment, seed, scores on both sets, and published scores."""
    dev, test = run.scores
    parts = [_format_split(suite, "dev", dev)]
    if test is not None:
        published = [f"{system} {value:.2f}" for system, value in suite.experiment(run.experiment).published.items()]
        beside = f" [published: {', '.join(published)}]" if published else ""
        parts.insert(0, _format_split(suite, "test", test) + beside)
    return f"{run.experiment}, {run.label}: {'; '.join(parts)}"


def _format_split(suite: ExperimentSuite, which: str, set_scores: TransductionScores) -> str:
    """Return the scores on one set."""
    evaluation, measure = set_scores.evaluation, suite.measure
    among = "".join(f", {each.k}-best {each.accuracy:.2f}" for each in set_scores.k_best[1:])
    value, interval = metric_value(measure, evaluation), _format_interval(measure, evaluation)
    return f"{which} {_metric_label(suite)} {value:.2f} ({interval}){among}, SER {evaluation.symbol_error_rate:.2f}"


def _macro_average(
    suite: ExperimentSuite, named: tuple[str, str], group: Sequence[TransductionRun | EnsembleRun]
) -> MacroAverage:
    """Return the means over a group of runs or ensembles."""
    setting, who = named
    dev = macro_average([each.scores.dev.table for each in group])
    tested = [(suite.experiment(each.experiment), each.scores.test) for each in group if each.scores.test]
    compared = [(experiment, set_scores) for experiment, set_scores in tested if experiment.published]
    numbers = [next(iter(experiment.published.values())) for experiment, _ in compared]
    used = compared or tested
    return MacroAverage(
        setting=setting,
        label=f"{setting}, {who}" if setting else who,
        dev=dev,
        num_dev_sets=len(group),
        test=macro_average([set_scores.table for _, set_scores in used]) if used else None,
        num_test_sets=len(used),
        published=statistics.mean(numbers) if numbers else None,
    )


def _macro_line(suite: ExperimentSuite, macro: MacroAverage) -> str:
    """Return the line of a mean."""
    measure, parts = suite.measure, list[str]()
    if macro.test is not None:
        beside = f" [published: {macro.published:.2f}]" if macro.published is not None else ""
        sets = f"{macro.num_test_sets} test set" + "s" * (macro.num_test_sets > 1)
        value, interval = metric_value(measure, macro.test), _format_interval(measure, macro.test)
        parts.append(f"{_metric_label(suite)} {value:.2f} ({interval}) over {sets}{beside}")
    sets = f"{macro.num_dev_sets} dev set" + "s" * (macro.num_dev_sets > 1)
    parts.append(f"{metric_value(measure, macro.dev):.2f} ({_format_interval(measure, macro.dev)}) over {sets}")
    return f"macro, {macro.label}: {'; '.join(parts)}"


def _experiment_json(
    experiment: Experiment, runs: Sequence[TransductionRun], ensembles: Sequence[EnsembleRun]
) -> dict[str, Any]:
    """Return all numbers of one experiment."""
    own = [run for run in runs if run.experiment == experiment.name]
    ensemble = [each for each in ensembles if each.experiment == experiment.name]
    values: dict[str, Any] = {"name": experiment.name, "published": dict(experiment.published)}
    values["runs"] = [_run_json(run) for run in own]
    values["ensemble"] = {"members": ensemble[0].members, **_scores_json(ensemble[0].scores)} if ensemble else None
    return values


def _run_json(run: TransductionRun) -> dict[str, Any]:
    """Return all numbers of one run."""
    counted = {"seconds": run.stopped["seconds"], "updates": run.stopped["update"], "samples": run.stopped["samples"]}
    settings = {"epochs": run.epochs, "parameters": run.parameters, "config": msgspec.to_builtins(run.config)}
    return {"seed": run.config.seed, **_scores_json(run.scores), **counted, **settings}


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
    every: list[TransductionRun | EnsembleRun] = [*runs, *ensembles]
    rows = [row for each in every for row in _table_rows(suite, each)]
    candidates = [f"{k}-best" for k in range(2, suite.candidates + 1)]
    heads = ["experiment", "of", "set", _metric_label(suite), "95 %", *candidates, "SER", "seconds", "published"]
    lines = [f"{_macro_line(suite, macro)}." for macro in means if macro.mean]
    beside = [comparison_table(suite, comparisons)] if comparisons else []
    first = runs[0]
    introduction = f"{suite.introduction}\n\nExamples below: {first.experiment}, {first.label}."
    summary = [_summary_entry(suite, macro) for macro in means]
    return replace(
        first.report,
        title=suite.title,
        introduction=introduction,
        summary=summary,
        log=(),
        parts=[ReportTable("All runs", " ".join(lines), heads, rows), *beside, *_attention_examples(suite, runs)],
    )


def _attention_examples(suite: ExperimentSuite, runs: Sequence[TransductionRun]) -> Iterator[ReportExamples]:
    """Yield decoded examples with attention for the first run of every further experiment."""
    firsts = dict[str, TransductionRun]()
    for run in runs:
        firsts.setdefault(run.experiment, run)
    for name, run in firsts.items():
        if suite.show_all_attention and name != runs[0].experiment:
            yield from example_parts(f"Attention: {name}, {run.label}", run.report.examples)


def _summary_entry(suite: ExperimentSuite, macro: MacroAverage) -> tuple[str, str]:
    """Return a headline number: the mean of one seed or of the ensembles."""
    scores, which = (macro.test, "test") if macro.test else (macro.dev, "dev")
    beside = f"; published {macro.published:.2f}" if macro.published is not None else ""
    value = f"{metric_value(suite.measure, scores):.2f} %"
    return f"{'macro ' if macro.mean else ''}{which} {_metric_label(suite)}", f"{value} ({macro.label}{beside})"


def _table_rows(suite: ExperimentSuite, run: TransductionRun | EnsembleRun) -> Iterator[list[str]]:
    """Yield a table row for each set."""
    seconds = f"{run.stopped['seconds']:,.0f}" if isinstance(run, TransductionRun) else "–"
    for which, set_scores in zip(("dev", "test"), run.scores, strict=True):
        if set_scores is None:
            continue
        published = suite.experiment(run.experiment).published if which == "test" else {}
        beside = ", ".join(f"{system} {value:.2f}" for system, value in published.items()) or "–"
        value, interval = (
            metric_value(suite.measure, set_scores.evaluation),
            _format_interval(suite.measure, set_scores.evaluation),
        )
        among = [f"{each.accuracy:.2f}" for each in set_scores.k_best[1:]]
        error = f"{set_scores.evaluation.symbol_error_rate:.2f}"
        yield [run.experiment, run.label, which, f"{value:.2f}", interval, *among, error, seconds, beside]


class TransductionJob(NamedTuple):
    """One training and its evaluation, in a worker process."""

    training: ExperimentTraining
    candidates: int
    title: str
    introduction: str


def run_suite(suite: ExperimentSuite, request: RecipeRequest) -> Iterator[str]:
    """Train and score the selected experiments.

    Args:
        suite: The suite of experiments.
        request: The recipe's request.

    Yields:
        A line per run, then a line per ensemble, the means, the comparisons and the path of the report.
    """
    jobs_by_seed = [[_plan_job(suite, each) for each in of_seed] for of_seed in plan_trainings(suite, request)]
    named = [(job.training.name, job) for of_seed in jobs_by_seed for job in of_seed]
    runs, ensembles = [], []
    for run in run_jobs(train_and_score, named, request):
        yield format_run(suite, run)
        runs.append(run)
    if request.seeds > 1:
        members = [(ensemble_name([job.training for job in jobs]), jobs) for jobs in zip(*jobs_by_seed, strict=True)]
        for together in run_jobs(score_ensemble, members, request):
            yield format_ensemble(suite, together)
            ensembles.append(together)
    comparisons = compare_settings(suite, runs)
    yield from summary_lines(suite, runs, ensembles, comparisons)
    yield write_reports(suite, request, runs, ensembles, comparisons)


def train_and_score(job: TransductionJob, tell: ProgressCallback) -> TransductionRun:
    """Train on one thread, score, and write the page of the run; resume or reuse an existing run."""
    experiment, config, paths, folder = job.training
    train_with_progress(TrainingFiles(paths.train, paths.dev), folder, config, tell)
    tell("decoding for evaluation")
    predictor = load(folder)
    judgement, dev = score_predictor(predictor, read_pairs(paths.dev, config), job.candidates)
    test = None
    if paths.test is not None:
        judgement, test = score_predictor(predictor, read_pairs(paths.test, config), job.candidates)
    report = run_report(folder, judgement, job.title, job.introduction)
    write_report(folder / "report.html", report)
    log = read_log(folder)
    stopped = [record for record in log if record["event"] == "stopped"][-1]
    examples = next(record["examples"] for record in log if record["event"] == "read")  # the training file comes first
    return TransductionRun(
        experiment=experiment,
        config=config,
        scores=SplitScores(dev, test),
        stopped=stopped,
        epochs=stopped["samples"] / examples,
        parameters=parameter_count(predictor.network),
        report=report,
    )


def score_ensemble(jobs: Sequence[TransductionJob], tell: ProgressCallback) -> EnsembleRun:
    """Score the runs of one experiment as an ensemble."""
    first = jobs[0].training
    tell("decoding for evaluation")
    predictor = load([job.training.folder for job in jobs])

    def score_set(path: Path) -> TransductionScores:
        """On one set."""
        return score_predictor(predictor, read_pairs(path, first.config), jobs[0].candidates)[1]

    test = score_set(first.paths.test) if first.paths.test is not None else None
    return EnsembleRun(first.experiment, len(jobs), SplitScores(score_set(first.paths.dev), test))


def _plan_job(suite: ExperimentSuite, training: ExperimentTraining) -> TransductionJob:
    """Return the job of a training with title and introduction of its page."""
    title = f"{suite.title}: {training.name}"
    return TransductionJob(training, suite.candidates, title, suite.introduction)
