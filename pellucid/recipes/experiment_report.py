"""Run every experiment of a suite with every seed and report: tables, means, report.json and report.html."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pellucid.evaluation.metrics import Evaluation, Interval
from pellucid.evaluation.outcomes import Mean, mean_of_groups
from pellucid.evaluation.significance import Comparison, compare
from pellucid.files import write_json
from pellucid.model.network import parameter_count
from pellucid.recipes.experiments import (
    BEAM_SIZE,
    METRIC_LABELS,
    EnsembleRun,
    Experiment,
    ExperimentSuite,
    MetricName,
    SplitScores,
    TrainingJob,
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
from pellucid.training.session import Files
from pellucid.viewer.report_parts import drawn_examples
from pellucid.viewer.report_schema import ReportExamples, ReportTable
from pellucid.viewer.reports import Report, report_on, write_report
from pellucid.worker_pool import ProgressCallback


class SettingComparison(NamedTuple):
    """Paired comparison of the runs of one setting with those of a baseline, for one seed."""

    setting: str
    other: str
    """Name of the baseline setting."""
    who: str
    sets: int
    dev: Comparison
    test: Comparison | None
    """None where an experiment has no test set."""

    def told(self) -> dict[str, Any]:
        """Return plain values for JSON; differences are exact match minus the baseline's."""
        values = {"setting": self.setting, "beside": self.other, "who": self.who, "sets": self.sets}
        return {**values, "dev": self.dev.to_dict(), "test": self.test.to_dict() if self.test else None}


def compare_settings(reference: ExperimentSuite, runs: Sequence[TransductionRun]) -> list[SettingComparison]:
    """Return the comparison of every setting with its baseline, by seed; all sets have equal weight."""
    known = {(run.experiment, run.who): run for run in runs}
    pairs = dict[tuple[str, str, str], list[tuple[TransductionRun, TransductionRun]]]()
    for run in runs:
        experiment = reference.experiment(run.experiment)
        other = known.get((experiment.beside, run.who))
        if other is not None:
            settings = experiment.setting, reference.experiment(other.experiment).setting
            pairs.setdefault((*settings, run.who), []).append((run, other))
    return [_compare_runs(names, own) for names, own in pairs.items()]


def format_comparisons(reference: ExperimentSuite, found: Sequence[SettingComparison]) -> Iterator[str]:
    """Yield one line per comparison."""
    for each in found:
        sets = f"{each.sets} set" + "s" * (each.sets > 1)
        told = "; ".join(
            f"{which} {METRIC_LABELS[reference.measure]} {_format_difference(reference.measure, comparison)}"
            for which, comparison in (("test", each.test), ("dev", each.dev))
            if comparison is not None
        )
        yield f"{each.setting} against {each.other}, {each.who}, {sets}: {told}"


def comparison_table(reference: ExperimentSuite, found: Sequence[SettingComparison]) -> ReportTable:
    """Return the comparisons as a table of the page."""
    name = METRIC_LABELS[reference.measure]
    caption = (
        f"What a setting adds to the {name} of the other, in points, on the same examples with the same seed: the mean "
        "over the sets, its 95 % interval (paired bootstrap), and how often chance alone does as much (p, paired "
        "permutations). Neither knows of other seeds."
    )
    heads = ["setting", "against", "of", "sets", f"dev {name}", f"test {name}"]
    rows = [
        [
            each.setting,
            each.other,
            each.who,
            f"{each.sets}",
            *(_comparison_cell(reference, part) for part in (each.dev, each.test)),
        ]
        for each in found
    ]
    return ReportTable("Setting against setting", caption, heads, rows)


def _compare_runs(
    names: tuple[str, str, str], pairs: Sequence[tuple[TransductionRun, TransductionRun]]
) -> SettingComparison:
    """Return the comparison over pairs of runs."""
    dev = [(run.worths.dev, other.worths.dev) for run, other in pairs]
    tests = [(run.worths.test, other.worths.test) for run, other in pairs]
    tested = [(own, other) for own, other in tests if own is not None and other is not None]
    return SettingComparison(
        *names, len(pairs), _compare_scores(dev), _compare_scores(tested) if len(tested) == len(pairs) else None
    )


def _compare_scores(worths: Sequence[tuple[TransductionScores, TransductionScores]]) -> Comparison:
    """Return the comparison over sets of equal weight."""
    return compare([own.table for own, _ in worths], [other.table for _, other in worths])


def _comparison_cell(reference: ExperimentSuite, comparison: Comparison | None) -> str:
    """Return a table cell; a dash without comparison."""
    return _format_difference(reference.measure, comparison) if comparison is not None else "–"


def _format_difference(measure: MetricName, comparison: Comparison) -> str:
    """Return the difference of the main metric with its interval and p-value."""
    found = comparison.exact_match.rest if measure == "wer" else comparison.exact_match
    low, high = found.ci95
    return f"{found.difference:+z.2f} ({low:+z.2f} to {high:+z.2f}), p {found.p:.3f}"


class MacroAverage(NamedTuple):
    """Mean scores over sets of equal weight."""

    setting: str
    who: str
    """Setting, if any, then the seed or the size of the ensemble."""
    dev: Mean
    developed: int
    """Number of validation sets."""
    test: Mean | None
    tested: int
    """Number of test sets: those with a published number, if there are any."""
    published: float | None
    """Mean of the published numbers of the same sets."""

    @property
    def mean(self) -> bool:
        """True where a line for this mean is reported: several sets, or no setting."""
        return self.developed > 1 or not self.setting

    def told(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = {"who": self.who, "dev_sets": self.developed, "dev": self.dev.to_dict(), "test_sets": self.tested}
        return {**values, "test": self.test.to_dict() if self.test else None, "published": self.published}


def format_run(reference: ExperimentSuite, run: TransductionRun) -> str:
    """Return the line of a run."""
    trained = f"{run.epochs:.3g} epochs in {run.stopped['seconds']:,.0f} s"
    return f"{_format_scores(reference, run)}; {run.parameters:,} parameters, {trained}"


def format_ensemble(reference: ExperimentSuite, together: EnsembleRun) -> str:
    """Return the line of an ensemble."""
    return _format_scores(reference, together)


def summary_lines(
    reference: ExperimentSuite,
    runs: Sequence[TransductionRun],
    ensembles: Sequence[EnsembleRun],
    found: Sequence[SettingComparison],
) -> Iterator[str]:
    """Yield the means, then the comparisons of settings."""
    yield from _macro_lines(reference, runs, ensembles)
    yield from format_comparisons(reference, found)


def _macro_lines(
    reference: ExperimentSuite, runs: Sequence[TransductionRun], ensembles: Sequence[EnsembleRun]
) -> Iterator[str]:
    """Yield the means of each setting: by seed, over all seeds, and of the ensembles."""
    for macro in macro_averages(reference, runs, ensembles):
        if macro.mean:
            yield _macro_line(reference, macro)
    singles = dict[str, list[MacroAverage]]()
    for macro in macro_averages(reference, runs, []):
        singles.setdefault(macro.setting, []).append(macro)
    for setting, own in singles.items():
        if len(own) > 1 and own[0].mean:
            values = [metric_value(reference.measure, macro.test or macro.dev) for macro in own]
            which = "test" if own[0].test else "dev"
            spread = f"{min(values):.2f} to {max(values):.2f}"
            mean = f"{which} {_metric_label(reference)} {statistics.mean(values):.2f} ({spread})"
            yield f"macro, {f'{setting}, ' if setting else ''}mean of {len(values)} seeds: {mean}"


def macro_averages(
    reference: ExperimentSuite, runs: Sequence[TransductionRun], ensembles: Sequence[EnsembleRun]
) -> list[MacroAverage]:
    """Return the means over the experiments of each setting, by seed and of the ensembles."""
    own: dict[tuple[str, str], list[TransductionRun | EnsembleRun]] = {}
    every: list[TransductionRun | EnsembleRun] = [*runs, *ensembles]
    for each in every:
        own.setdefault((reference.experiment(each.experiment).setting, each.who), []).append(each)
    return [_macro_average(reference, named, group) for named, group in own.items()]


def write_reports(
    reference: ExperimentSuite,
    request: RecipeRequest,
    runs: Sequence[TransductionRun],
    ensembles: Sequence[EnsembleRun],
    found: Sequence[SettingComparison],
) -> str:
    """Write report.json and report.html.

    Args:
        reference: The suite of experiments.
        request: The recipe's request.
        runs: Scored runs; the page shows examples and attention of the first one.
        ensembles: Scored ensembles.
        found: Comparisons of settings.

    Returns:
        The line that names the report.
    """
    means = macro_averages(reference, runs, ensembles)
    names = list(dict.fromkeys(run.experiment for run in runs))
    numbers = {
        **{"name": reference.name, "title": reference.title, "measure": reference.measure, "beam": BEAM_SIZE},
        **{"seeds": request.seeds, "samples": request.samples},
        "experiments": [_experiment_json(reference.experiment(name), runs, ensembles) for name in names],
        "macro": [macro.told() for macro in means],
        "differences": [each.told() for each in found],
    }
    write_json(request.out / "report.json", numbers)
    write_report(request.out / "report.html", _report_page(reference, runs, ensembles, means, found))
    return f"report: {request.out / 'report.html'}"


def metric_value(measure: MetricName, scores: Evaluation | Mean) -> float:
    """Return the main score in percent."""
    value: float = getattr(scores, measure)
    return value


def _format_interval(measure: MetricName, scores: Evaluation | Mean) -> str:
    """Return the 95 % interval of the main score."""
    interval: Interval = getattr(scores, f"{measure}_ci95")
    return f"{interval.low:.2f} to {interval.high:.2f}"


def _metric_label(reference: ExperimentSuite) -> str:
    """Return the displayed name of the main score."""
    return METRIC_LABELS[reference.measure]


def _format_scores(reference: ExperimentSuite, told: TransductionRun | EnsembleRun) -> str:
    """Return experiment, seed, scores on both sets, and published scores."""
    dev, test = told.worths
    parts = [_format_split(reference, "dev", dev)]
    if test is not None:
        published = [
            f"{system} {value:.2f}" for system, value in reference.experiment(told.experiment).published.items()
        ]
        beside = f" [published: {', '.join(published)}]" if published else ""
        parts.insert(0, _format_split(reference, "test", test) + beside)
    return f"{told.experiment}, {told.who}: {'; '.join(parts)}"


def _format_split(reference: ExperimentSuite, which: str, worth: TransductionScores) -> str:
    """Return the scores on one set."""
    evaluation, measure = worth.evaluation, reference.measure
    among = "".join(f", {each.k}-best {each.accuracy:.2f}" for each in worth.among[1:])
    value, interval = metric_value(measure, evaluation), _format_interval(measure, evaluation)
    return f"{which} {_metric_label(reference)} {value:.2f} ({interval}){among}, SER {evaluation.symbol_error_rate:.2f}"


def _macro_average(
    reference: ExperimentSuite, named: tuple[str, str], group: Sequence[TransductionRun | EnsembleRun]
) -> MacroAverage:
    """Return the means over a group of runs or ensembles."""
    setting, who = named
    dev = mean_of_groups([each.worths.dev.table for each in group])
    tested = [(reference.experiment(each.experiment), each.worths.test) for each in group if each.worths.test]
    compared = [(experiment, worth) for experiment, worth in tested if experiment.published]
    numbers = [next(iter(experiment.published.values())) for experiment, _ in compared]
    used = compared or tested
    return MacroAverage(
        setting=setting,
        who=f"{setting}, {who}" if setting else who,
        dev=dev,
        developed=len(group),
        test=mean_of_groups([worth.table for _, worth in used]) if used else None,
        tested=len(used),
        published=statistics.mean(numbers) if numbers else None,
    )


def _macro_line(reference: ExperimentSuite, macro: MacroAverage) -> str:
    """Return the line of a mean."""
    measure, parts = reference.measure, list[str]()
    if macro.test is not None:
        beside = f" [published: {macro.published:.2f}]" if macro.published is not None else ""
        sets = f"{macro.tested} test set" + "s" * (macro.tested > 1)
        value, interval = metric_value(measure, macro.test), _format_interval(measure, macro.test)
        parts.append(f"{_metric_label(reference)} {value:.2f} ({interval}) over {sets}{beside}")
    sets = f"{macro.developed} dev set" + "s" * (macro.developed > 1)
    parts.append(f"{metric_value(measure, macro.dev):.2f} ({_format_interval(measure, macro.dev)}) over {sets}")
    return f"macro, {macro.who}: {'; '.join(parts)}"


def _experiment_json(
    experiment: Experiment, runs: Sequence[TransductionRun], ensembles: Sequence[EnsembleRun]
) -> dict[str, Any]:
    """Return all numbers of one experiment."""
    own = [run for run in runs if run.experiment == experiment.name]
    together = [each for each in ensembles if each.experiment == experiment.name]
    told: dict[str, Any] = {"name": experiment.name, "published": dict(experiment.published)}
    told["runs"] = [_run_json(run) for run in own]
    told["ensemble"] = {"members": together[0].members, **_scores_json(together[0].worths)} if together else None
    return told


def _run_json(run: TransductionRun) -> dict[str, Any]:
    """Return all numbers of one run."""
    counted = {"seconds": run.stopped["seconds"], "updates": run.stopped["update"], "samples": run.stopped["samples"]}
    settings = {"epochs": run.epochs, "parameters": run.parameters, "config": msgspec.to_builtins(run.config)}
    return {"seed": run.config.seed, **_scores_json(run.worths), **counted, **settings}


def _scores_json(worths: SplitScores) -> dict[str, Any]:
    """Return the scores on both sets."""
    return {"dev": worths.dev.told(), "test": worths.test.told() if worths.test is not None else None}


def _report_page(
    reference: ExperimentSuite,
    runs: Sequence[TransductionRun],
    ensembles: Sequence[EnsembleRun],
    means: Sequence[MacroAverage],
    found: Sequence[SettingComparison],
) -> Report:
    """Return the page: all scores with published ones, examples and errors of the first run."""
    every: list[TransductionRun | EnsembleRun] = [*runs, *ensembles]
    rows = [row for each in every for row in _table_rows(reference, each)]
    candidates = [f"{k}-best" for k in range(2, reference.candidates + 1)]
    heads = ["experiment", "of", "set", _metric_label(reference), "95 %", *candidates, "SER", "seconds", "published"]
    lines = [f"{_macro_line(reference, macro)}." for macro in means if macro.mean]
    beside = [comparison_table(reference, found)] if found else []
    first = runs[0]
    introduction = f"{reference.introduction}\n\nDrawn below: {first.experiment}, {first.who}."
    summary = [_summary_entry(reference, macro) for macro in means]
    return replace(
        first.report,
        title=reference.title,
        introduction=introduction,
        summary=summary,
        log=(),
        parts=[ReportTable("All runs", " ".join(lines), heads, rows), *beside, *_attention_examples(reference, runs)],
    )


def _attention_examples(reference: ExperimentSuite, runs: Sequence[TransductionRun]) -> Iterator[ReportExamples]:
    """Yield decoded examples with attention for the first run of every further experiment."""
    firsts = dict[str, TransductionRun]()
    for run in runs:
        firsts.setdefault(run.experiment, run)
    for name, run in firsts.items():
        if reference.drawn and name != runs[0].experiment:
            yield from drawn_examples(f"Attention: {name}, {run.who}", run.report.examples)


def _summary_entry(reference: ExperimentSuite, macro: MacroAverage) -> tuple[str, str]:
    """Return a headline number: the mean of one seed or of the ensembles."""
    scores, which = (macro.test, "test") if macro.test else (macro.dev, "dev")
    beside = f"; published {macro.published:.2f}" if macro.published is not None else ""
    value = f"{metric_value(reference.measure, scores):.2f} %"
    return f"{'macro ' if macro.mean else ''}{which} {_metric_label(reference)}", f"{value} ({macro.who}{beside})"


def _table_rows(reference: ExperimentSuite, told: TransductionRun | EnsembleRun) -> Iterator[list[str]]:
    """Yield a table row for each set."""
    seconds = f"{told.stopped['seconds']:,.0f}" if isinstance(told, TransductionRun) else "–"
    for which, worth in zip(("dev", "test"), told.worths, strict=True):
        if worth is None:
            continue
        published = reference.experiment(told.experiment).published if which == "test" else {}
        beside = ", ".join(f"{system} {value:.2f}" for system, value in published.items()) or "–"
        value, interval = (
            metric_value(reference.measure, worth.evaluation),
            _format_interval(reference.measure, worth.evaluation),
        )
        among = [f"{each.accuracy:.2f}" for each in worth.among[1:]]
        error = f"{worth.evaluation.symbol_error_rate:.2f}"
        yield [told.experiment, told.who, which, f"{value:.2f}", interval, *among, error, seconds, beside]


class TransductionJob(NamedTuple):
    """One training and its evaluation, in a worker process."""

    training: TrainingJob
    candidates: int
    title: str
    introduction: str


def run_suite(reference: ExperimentSuite, request: RecipeRequest) -> Iterator[str]:
    """Train and score the selected experiments.

    Args:
        reference: The suite of experiments.
        request: The recipe's request.

    Yields:
        A line per run, then a line per ensemble, the means, the comparisons and the path of the report.
    """
    asked = [[_plan_job(reference, each) for each in of_seed] for of_seed in plan_trainings(reference, request)]
    named = [(job.training.name, job) for of_seed in asked for job in of_seed]
    runs, ensembles = [], []
    for run in run_jobs(train_and_score, named, request):
        yield format_run(reference, run)
        runs.append(run)
    if request.seeds > 1:
        members = [(ensemble_name([job.training for job in jobs]), jobs) for jobs in zip(*asked, strict=True)]
        for together in run_jobs(score_ensemble, members, request):
            yield format_ensemble(reference, together)
            ensembles.append(together)
    found = compare_settings(reference, runs)
    yield from summary_lines(reference, runs, ensembles, found)
    yield write_reports(reference, request, runs, ensembles, found)


def train_and_score(job: TransductionJob, tell: ProgressCallback) -> TransductionRun:
    """Train on one thread, score, and write the page of the run; resume or reuse an existing run."""
    experiment, config, paths, folder = job.training
    train_with_progress(Files(paths.train, paths.dev), folder, config, tell)
    tell("decoding, to judge it")
    transducer = load(folder)
    judgement, dev = score_predictor(transducer, read_pairs(paths.dev, config), job.candidates)
    test = None
    if paths.test is not None:
        judgement, test = score_predictor(transducer, read_pairs(paths.test, config), job.candidates)
    report = report_on(folder, judgement, job.title, job.introduction)
    write_report(folder / "report.html", report)
    log = read_log(folder)
    stopped = [record for record in log if record["event"] == "stopped"][-1]
    examples = next(record["examples"] for record in log if record["event"] == "read")  # the training file comes first
    return TransductionRun(
        experiment=experiment,
        config=config,
        worths=SplitScores(dev, test),
        stopped=stopped,
        epochs=stopped["samples"] / examples,
        parameters=parameter_count(transducer.network),
        report=report,
    )


def score_ensemble(jobs: Sequence[TransductionJob], tell: ProgressCallback) -> EnsembleRun:
    """Score the runs of one experiment as an ensemble."""
    first = jobs[0].training
    tell("decoding, to judge it")
    transducer = load([job.training.folder for job in jobs])

    def worth(path: Path) -> TransductionScores:
        """On one set."""
        return score_predictor(transducer, read_pairs(path, first.config), jobs[0].candidates)[1]

    test = worth(first.paths.test) if first.paths.test is not None else None
    return EnsembleRun(first.experiment, len(jobs), SplitScores(worth(first.paths.dev), test))


def _plan_job(reference: ExperimentSuite, training: TrainingJob) -> TransductionJob:
    """Return the job of a training with title and introduction of its page."""
    title = f"{reference.title}: {training.name}"
    return TransductionJob(training, reference.candidates, title, reference.introduction)
