"""Reports of runs, evaluations and comparisons, each one offline page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.config.toml import to_toml
from pellucid.data.examples import Example
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.evaluation.assessment import Assessment, ComparedAssessment, GroupComparison, SeedRates, score_traces
from pellucid.evaluation.confusion import SymbolConfusions
from pellucid.evaluation.metrics import (
    ConfidenceInterval,
    Evaluation,
    GroupAccuracy,
    ScoredExample,
    ValidationMetric,
    evaluate_examples,
    worst_examples,
)
from pellucid.evaluation.outcomes import MeanRates
from pellucid.evaluation.significance import RateDifference
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS, GroupScores
from pellucid.files import follow_links, write_text
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.reporting.tables import (
    SEED_INTERVAL_NOTE,
    count_label,
    format_p_value,
    format_symbol,
    rate_cells,
    run_permutation_note,
    score_columns,
    score_rows,
    seed_rows,
)
from pellucid.run_folder.log import read_log
from pellucid.tasks.registry import get_task
from pellucid.version import __version__
from pellucid.viewer.pages import export_page
from pellucid.viewer.report_parts import (
    ExampleOutput,
    accuracy_charts,
    calibration_charts,
    compared_accuracy_charts,
    disagreement_parts,
    error_parts,
    example_output,
    example_parts,
    training_curves,
)
from pellucid.viewer.report_schema import (
    REPORT_FORMAT,
    ReportConfusions,
    ReportDocument,
    ReportExamples,
    ReportPart,
    ReportSettings,
    ReportTable,
    ReportText,
    SummaryValue,
)
from pellucid.viewer.schema import ConfusionCount


@dataclass(frozen=True, eq=False)
class Report:
    """Content of a report, from which `write_report` writes a page. Sections without content are left out."""

    title: str
    introduction: str = ""
    """Paragraphs of plain text, with an empty line between."""
    summary: Sequence[tuple[str, str]] = ()
    """Pairs of label and value; parentheses at the end of a value become a note below it."""
    log: Sequence[Mapping[str, Any]] = ()
    """Records of the training log."""
    validation_metrics: Sequence[ValidationMetric] = ERROR_RATE_METRICS.validation_metrics
    """Metrics of the log that are drawn."""
    positions: Sequence[GroupAccuracy] = ()
    """Accuracy at each target position."""
    lengths: Sequence[GroupAccuracy] = ()
    """Accuracy for each source length or range of lengths."""
    examples: Sequence[ExampleOutput] = ()
    """Outputs whose attention is drawn."""
    errors: Sequence[ExampleOutput] = ()
    """Outputs in the list of errors."""
    config_toml: str = ""
    """Settings as TOML."""
    parts: Sequence[ReportPart] = ()
    """Further sections, before the settings."""


def write_report(path: Path, report: Report) -> None:
    """Write a report as one self-contained HTML file.

    Args:
        path: Output file.
        report: Content.

    Raises:
        RunError: The file cannot be written.
    """
    write_text(follow_links(path), export_page(report_document(report)))


def report_document(report: Report) -> ReportDocument:
    """Return a report in the schema of the page: curves, accuracy, attention, errors, further sections, settings.

    Args:
        report: Content.
    """
    settings = [ReportSettings("Settings", report.config_toml.strip())] if report.config_toml.strip() else []
    parts: list[ReportPart] = [
        *training_curves(report.log, report.validation_metrics),
        *accuracy_charts(report.positions, report.lengths),
        *example_parts("Attention", report.examples),
        *error_parts(report.errors),
        *report.parts,
        *settings,
    ]
    return ReportDocument(
        format=REPORT_FORMAT,
        version=__version__,
        title=report.title,
        introduction=report.introduction,
        summary=[_summary_value(label, value) for label, value in report.summary],
        parts=parts,
        tasks={name: get_task(name).view for name in _tasks(parts)},
    )


def _tasks(parts: Sequence[ReportPart]) -> list[str]:
    """Return the tasks of all outputs that are shown."""
    examples = (example for part in parts if isinstance(part, ReportExamples) for example in part.examples)
    return sorted({trace.task for example in examples for item in example.outputs for trace in item.traces})


def _summary_value(label: str, value_text: str) -> SummaryValue:
    """Return a summary value; a trailing parenthesis becomes its note."""
    value, parenthesis, note = value_text.partition(" (")
    if not parenthesis or not note.endswith(")"):
        return SummaryValue(label, value_text)
    return SummaryValue(label, value, note[:-1])


NUM_DRAWN_EXAMPLES = 6
NUM_LISTED_ERRORS = 25


class ScoredRun(NamedTuple):
    """Outputs of a run, with references and scores, for `run_report`."""

    predictor: Predictor
    traces: list[Trace]
    """Best output of each example, in order."""
    references: list[tuple[str, ...]]
    """References of each example."""
    scored: list[ScoredExample]
    """Symbols and errors of each output."""
    evaluation: Evaluation
    """Metrics over all examples."""


def score_run(predictor: Predictor, examples: Sequence[Example]) -> ScoredRun:
    """Decode examples and score each output against the target of its example.

    The number of threads of the model's configuration is set for the whole process.

    Args:
        predictor: Model.
        examples: Examples with targets.
    """
    use_threads(predictor.config.threads)
    traces = predictor.predict_examples(examples)
    references: list[tuple[str, ...]] = [(example.target,) for example in examples]
    scored = score_traces(traces, references, predictor.tokenizers)
    return ScoredRun(predictor, traces, references, scored, evaluate_examples(scored))


def run_report(folder: Path, scored_run: ScoredRun, title: str, introduction: str) -> Report:
    """Return the report of a run: scores, training curves, accuracies, attention weights, errors, settings.

    Args:
        folder: Run folder, whose log is read.
        scored_run: Outputs with scores, from `score_run`.
        title: Title of the report.
        introduction: First paragraphs; a sentence on the drawn outputs follows.

    Raises:
        RunError: The log cannot be read.
    """
    log = read_log(folder)
    wrong = worst_examples(scored_run.scored, NUM_LISTED_ERRORS)
    worst = wrong[:2]
    right = [index for index, scored in enumerate(scored_run.scored) if scored.exact][: NUM_DRAWN_EXAMPLES - len(worst)]
    parts = (
        ["the first correct output" if len(right) == 1 else f"the first {len(right)} correct outputs"] if right else []
    )
    parts += ["the worst error" if len(worst) == 1 else "the two worst errors"] if worst else []
    drawn_note = f"Attention weights are drawn for {' and '.join(parts)}."
    stopped = [record for record in log if record["event"] == "stopped"]
    return Report(
        title=title,
        introduction=f"{introduction}\n\n{drawn_note}",
        summary=_summary(scored_run, stopped[-1] if stopped else None),
        log=log,
        validation_metrics=get_task(scored_run.predictor.config.task).metrics.validation_metrics,
        positions=scored_run.evaluation.positions,
        lengths=scored_run.evaluation.lengths,
        examples=[_output(scored_run, index) for index in right + worst],
        errors=[_output(scored_run, index) for index in wrong],
        config_toml=to_toml(scored_run.predictor.config),
    )


def _output(scored_run: ScoredRun, index: int) -> ExampleOutput:
    """Return one output with its references."""
    unscored = scored_run.predictor.tokenizers.target.ignored_tag
    return ExampleOutput(
        scored_run.traces[index], scored_run.references[index], scored_run.scored[index], ignored_tag=unscored
    )


def _summary(scored_run: ScoredRun, stopped: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return the main scores."""
    evaluation, config = scored_run.evaluation, scored_run.predictor.config
    rows = [
        ("exact match", _with_interval(evaluation.exact_match, evaluation.exact_match_ci95)),
        ("symbol error rate", _with_interval(evaluation.symbol_error_rate, evaluation.symbol_error_rate_ci95)),
        ("symbol accuracy", f"{evaluation.symbol_accuracy:.3f} % (by position, including the end symbol)"),
        ("examples", f"{evaluation.examples:,}"),
        ("parameters", f"{parameter_count(scored_run.predictor.network):,}"),
        ("seed", f"{config.seed}"),
    ]
    if stopped:
        rows.append(("training", f"{stopped['seconds']:,.0f} s ({stopped['samples']:,} samples)"))
    return rows


def _with_interval(value: float, interval: ConfidenceInterval) -> str:
    """Return a percentage with its 95 % interval."""
    return f"{value:.2f} % (95 %: {interval.low:.2f} to {interval.high:.2f})"


MAX_CONFUSIONS = 400
"""Maximum number of confusions in the report of one run."""
MAX_COMPARED_CONFUSIONS = 20
"""Maximum number of confusions in the report of a comparison."""
SIGNIFICANCE_LEVEL = 0.05
"""Differences with a smaller p are reported as significant."""
ALIGNMENT_NOTE = "Counted on the minimum edit alignment of each output with its nearest reference; – is no symbol."


def evaluation_report(assessment: Assessment, file: str, counts: Mapping[str, int], max_errors: int) -> Report:
    """Return the report that `pellucid evaluate` writes for one run on a file.

    Args:
        assessment: Assessment of the run.
        file: Path of the file, which may contain the placeholder {} of several groups.
        counts: Number of lines of each kind by its key, such as "bad_lines"; zeros and "lines" are left out.
        max_errors: Maximum number of listed errors, worst first.
    """
    evaluation = assessment.evaluation
    errors = [example_output(assessment, index) for index in assessment.worst_examples(max_errors)]
    return Report(
        title=f"{assessment.name} on {file.rsplit('/', 1)[-1]}",
        introduction=f"{evaluation.examples:,} examples of {file}, decoded and scored.",
        summary=_evaluation_summary(assessment, counts),
        parts=[
            *_group_tables([assessment]),
            *accuracy_charts(evaluation.positions, evaluation.lengths),
            *_confusion_parts(assessment.confusions),
            *calibration_charts([assessment]),
            *error_parts(errors, assessment.counts.best.count_wrong() - len(errors)),
        ],
    )


def comparison_report(
    runs: Sequence[Assessment],
    comparisons: Sequence[ComparedAssessment],
    seed_rates: Sequence[SeedRates],
    group_comparisons: Sequence[GroupComparison],
    file: str,
    max_examples: int,
) -> Report:
    """Return the report that `pellucid evaluate` writes for several runs on a file: the first against each other run.

    Args:
        runs: Assessments of the runs on the same examples; at least two.
        comparisons: Comparisons of the first run with other runs.
        seed_rates: Rates of each group of runs that differ in their seeds only.
        group_comparisons: Comparisons of the mean of such a group with other groups.
        file: Path of the file, which may contain the placeholder {} of several groups.
        max_examples: Maximum number of examples in each list.
    """
    first = runs[0]
    pairs = [
        pair
        for other, comparison in comparisons
        for pair in ((first, other, comparison.only_a), (other, first, comparison.only_b))
    ]
    return Report(
        title=" and ".join(run.name for run in runs),
        introduction=f"{first.evaluation.examples:,} examples of {file}, decoded and scored with each run.",
        summary=_comparison_summary(runs, comparisons),
        parts=[
            _score_table(runs),
            *_seed_tables(seed_rates),
            *_group_comparison_tables(group_comparisons),
            *(_significance_parts(runs, comparisons) if comparisons else ()),
            *_group_tables(runs),
            compared_accuracy_charts(runs),
            *_compared_confusions(runs),
            *calibration_charts(runs),
            *(part for correct, wrong, total in pairs for part in _disagreements(correct, wrong, total, max_examples)),
        ],
    )


def _evaluation_summary(assessment: Assessment, counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the scores of a run, the mean over groups first, and the line counts of the file."""
    rows = [(name, f"{value} ({note})" if note else value) for name, value, note in score_rows(assessment)]
    if assessment.mean:
        first = assessment.metrics.rates(assessment.mean)[0]
        low, high = first.interval
        rows.insert(0, (f"mean {first.name}", f"{first.value:.2f} % (95 %: {low:.2f} to {high:.2f})"))
    counted = [(count_label(name), f"{count:,}") for name, count in counts.items() if count and name != "lines"]
    return [*rows, ("examples", f"{assessment.evaluation.examples:,}"), *counted]


def _comparison_summary(runs: Sequence[Assessment], comparisons: Sequence[ComparedAssessment]) -> list[tuple[str, str]]:
    """Return the exact match of each run, and the differences from the first."""
    scope = "mean over groups" if runs[0].mean else "all examples"
    name = runs[0].metrics.exact_match_name
    rows = [(f"{name}, {run.name}", f"{_exact_match(run):.2f} % ({scope})") for run in runs]
    for run, comparison in comparisons:
        difference = comparison.exact_match
        interval = f"95 %: {difference.ci95.low:+z.2f} to {difference.ci95.high:+z.2f}, p {_p_relation(difference.p)}"
        rows.append((f"difference from {run.name}", f"{difference.difference:+z.2f} points ({interval})"))
    return rows


def _exact_match(run: Assessment) -> float:
    """Return the exact match of a run: the mean over groups, if there are groups."""
    return run.mean.exact_match if run.mean else run.evaluation.exact_match


def _p_relation(p: float) -> str:
    """Return a p-value with its relation sign: "= 0.0312"."""
    shown = format_p_value(p)
    return shown if shown.startswith("<") else f"= {shown}"


def _group_tables(runs: Sequence[Assessment]) -> Iterator[ReportTable]:
    """Yield a table with a row for each group and their unweighted mean; none if there is one group."""
    mean, several, metrics = runs[0].mean, len(runs) > 1, runs[0].metrics
    if mean is None:
        return
    first, *others = (f"{rate.name}, %" for rate in metrics.rates(mean))
    headings = ["group", "examples"]

    def cells_of(row: GroupScores | MeanRates) -> list[str]:
        """Return the rates of a run in one group, or their means.

        Args:
            row: Scores of a group, or means over groups.
        """
        return rate_cells(metrics.rates(row), several)

    for run in runs:
        run_headings = [first, *([] if several else ["95 % interval"]), *others]
        headings += [f"{run.name}: {heading}" if several else heading for heading in run_headings]
    rows = [
        [group_rows[0].group, f"{group_rows[0].examples:,}", *(cell for row in group_rows for cell in cells_of(row))]
        for group_rows in zip(*(run.groups for run in runs), strict=True)
    ]
    means = [cell for run in runs if run.mean for cell in cells_of(run.mean)]
    rows.append(["mean", f"{len(runs[0].groups)} groups", *means])
    definition = "Sequence error rate: share of wrong outputs. " if metrics.has_error_rates else ""
    yield ReportTable("By group", f"{definition}The mean is unweighted.", headings, rows, total=True)


def _confusion_parts(confusions: SymbolConfusions) -> Iterator[ReportPart]:
    """Yield the confusions, and how often their symbols were predicted correctly; nothing without errors."""
    errors = confusions.errors
    if not errors:
        return
    kinds = ", ".join(f"{count:,} {kind}{'' if count == 1 else 's'}" for kind, count in confusions.kinds.items())
    involved = {
        symbol for confusion in errors for symbol in (confusion.expected, confusion.predicted) if symbol is not None
    }
    yield ReportConfusions(
        title="Confusions",
        caption=f"{kinds}. {ALIGNMENT_NOTE}",
        errors=[
            ConfusionCount(
                expected=confusion.expected,
                predicted=confusion.predicted,
                count=confusion.count,
                num_expected=confusion.num_expected,
                example_indices=[],
            )
            for confusion in errors[:MAX_CONFUSIONS]
        ],
        omitted=max(0, len(errors) - MAX_CONFUSIONS),
        correct={symbol: confusions.pairs[symbol, symbol] for symbol in sorted(involved)},
    )


def _score_table(runs: Sequence[Assessment]) -> ReportTable:
    """Return a table with a row for each score and a column for each run."""
    rows = [[name, *values] for name, values in score_columns(runs).items()]
    return ReportTable("Scores", "", ["over all examples", *(run.name for run in runs)], rows)


def _seed_tables(groups: Sequence[SeedRates]) -> list[ReportTable]:
    """Return a table of mean and standard deviation for each group of runs that differ in their seeds only."""
    headings = ("mean", "95 % interval", "standard deviation, points", "lowest", "highest")
    caption = f"All settings of these runs are equal except for the seed. Notes: {SEED_INTERVAL_NOTE}."
    return [
        ReportTable("Scores", caption, (", ".join(group.runs), *headings), seed_rows(group.rates)) for group in groups
    ]


def _group_comparison_tables(comparisons: Sequence[GroupComparison]) -> list[ReportTable]:
    """Return a table of the differences of means for each comparison of two groups of runs."""
    headings = ("difference of the means, points", "95 % interval", "p")
    caption = "Interval: bootstrap over examples and seeds"
    return [
        ReportTable(
            "Significance",
            f"{caption}; {run_permutation_note(comparison)}.",
            (f"{', '.join(comparison.a)} − {', '.join(comparison.b)}", *headings),
            [
                [
                    comparison.names[key],
                    f"{row.difference:+z.2f}",
                    f"{row.ci95.low:+z.2f} to {row.ci95.high:+z.2f}",
                    "–" if row.p is None else format_p_value(row.p),
                ]
                for key, row in comparison.differences.items()
            ],
        )
        for comparison in comparisons
    ]


def _significance_parts(runs: Sequence[Assessment], comparisons: Sequence[ComparedAssessment]) -> Iterator[ReportPart]:
    """Yield the differences with their significance tests, and the counts of paired outcomes."""
    first, title, rows, sentences = runs[0], "Significance", [], []
    for run, comparison in comparisons:
        for key, name in comparison.metrics.compared_rates:
            difference = comparison.differences[key]
            interval = f"{difference.ci95.low:+z.2f} to {difference.ci95.high:+z.2f}"
            cells = (
                f"{difference.difference:+z.2f}",
                interval,
                format_p_value(difference.p),
                f"{100 * difference.a_better:.1f} %",
            )
            rows.append([f"{name}, {first.name} − {run.name}", *cells])
            is_error_rate = key == "symbol_error_rate"
            sentences.append(_verdict(name, difference, is_error_rate, first.name, run.name))
    scope = "Rates are means over groups" if first.mean else "Rates are over all examples"
    several = " The p-values are not corrected for multiple comparisons." if len(runs) > 2 else ""
    caption = (
        f"{scope}. Interval and “better in”: paired bootstrap, 1,000 resamples (Koehn 2004). p: two-sided approximate "
        f"randomization, 10,000 permutations. Both account for the sampling of examples, not for the variance between "
        f"seeds.{several}"
    )
    headings = ("score", "difference, points", "95 % interval", "p", f"{first.name} better in")
    yield ReportTable(title, caption, headings, rows)
    yield ReportText(title, "\n\n".join(sentences))
    counts = [
        [
            run.name,
            *(f"{count:,}" for count in (difference.both, difference.only_a, difference.only_b, difference.neither)),
        ]
        for run, difference in comparisons
    ]
    yield ReportTable(title, "", ("correct", "both", f"only {first.name}", "only this run", "neither"), counts)


def _verdict(name: str, difference: RateDifference, is_error_rate: bool, first: str, other: str) -> str:
    """Return a sentence that reports whether a difference is significant."""
    if difference.p >= SIGNIFICANCE_LEVEL:
        return f"In {name}, {first} and {other} do not differ significantly (p {_p_relation(difference.p)})."
    better = (difference.difference > 0) != is_error_rate
    comparison = "better" if better else "worse"
    return f"In {name}, {first} is significantly {comparison} than {other} (p {_p_relation(difference.p)})."


def _compared_confusions(runs: Sequence[Assessment]) -> Iterator[ReportTable]:
    """Yield the most frequent symbol errors of all runs, with their count in each run."""
    counts_by_run = [
        {(error.expected, error.predicted): error.count for error in run.confusions.errors} for run in runs
    ]
    labels = {pair: " → ".join(map(format_symbol, pair)) for counts in counts_by_run for pair in counts}
    ranked = sorted(labels, key=lambda pair: (-sum(counts.get(pair, 0) for counts in counts_by_run), labels[pair]))
    rows = [
        [labels[pair], *(f"{counts.get(pair, 0):,}" for counts in counts_by_run)]
        for pair in ranked[:MAX_COMPARED_CONFUSIONS]
    ]
    if rows:
        headings = ["expected → predicted", *(run.name for run in runs)]
        yield ReportTable("Confusions", "– is no symbol: an insertion or a deletion.", headings, rows)


def _disagreements(correct: Assessment, wrong: Assessment, total: int, max_examples: int) -> Sequence[ReportPart]:
    """Return the first of all examples that are correct in one run only."""
    indices = correct.exclusively_right(wrong, max_examples)
    return disagreement_parts(correct, wrong, indices, total - len(indices))
