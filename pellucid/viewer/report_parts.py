"""Parts of reports: training curves, accuracy and calibration, outputs with their attention, lists of errors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any, NamedTuple

from rapidfuzz.distance import Levenshtein

from pellucid.decoding.trace import Trace
from pellucid.evaluation.assessment import Assessment
from pellucid.evaluation.calibration import Calibration, CalibrationBin
from pellucid.evaluation.confusion import SymbolPair, pair_symbols
from pellucid.evaluation.metrics import GroupAccuracy, ScoredExample, ValidationMetric
from pellucid.reporting.display_text import grapheme_clusters
from pellucid.reporting.figures import accuracy_axis_limits, logged_values, round_up
from pellucid.reporting.terminal import NO_ATTENTION, attention_caption
from pellucid.viewer.examples import edit_operations, page_trace_without_model, positional_edits
from pellucid.viewer.report_schema import (
    ChartLine,
    ChartPoint,
    MarkedText,
    ReportChart,
    ReportCharts,
    ReportExample,
    ReportExamples,
    ReportTable,
)
from pellucid.viewer.schema import EditOperation, PageExample

NO_NETWORK = (
    "A network has no validation yet: outputs are those of its pair n-gram model, without attention weights and "
    "probabilities."
)
"""Caption of tables of outputs, some of which were chosen before the first validation of a network."""
MAX_POINTS = 200
"""Maximum number of points of a training loss; more are averaged over intervals of equal length."""


class RunAccuracies(NamedTuple):
    """Accuracies of one run by position or by length, as a line of a chart."""

    name: str
    """Name of the line."""
    groups: Sequence[GroupAccuracy]


def training_curves(
    log: Sequence[Mapping[str, Any]], validation_metrics: Sequence[ValidationMetric]
) -> list[ReportCharts]:
    """Return charts of the losses and of each validation metric over training samples.

    Args:
        log: Records of the training log.
        validation_metrics: Metrics of the task, most important first; those not in the log have no chart.

    Returns:
        A list of one group of charts; empty if the log has no values.
    """
    training = _limit_points(logged_values(log, "stepped", "loss"))
    validation = logged_values(log, "validated", "loss")
    loss = [_learning_line("training", training, ".3g"), _learning_line("validation", validation, ".3g")]
    chart_lines = [("Loss", "loss", loss)]
    for key, name in validation_metrics:
        metric_line = _learning_line(name, logged_values(log, "validated", key), ".1f", " %")
        chart_lines.append((name[:1].upper() + name[1:], "%", [metric_line]))
    charts = [
        _learning_chart(title, unit, lines)
        for title, unit, lines in chart_lines
        if any(metric_line.points for metric_line in lines)
    ]
    return [ReportCharts("Training curves", "", charts)] if charts else []


def accuracy_charts(positions: Sequence[GroupAccuracy], lengths: Sequence[GroupAccuracy]) -> list[ReportCharts]:
    """Return charts of the accuracy of one run by target position and by source length, each with its table.

    Args:
        positions: Accuracy at each target position, in percent.
        lengths: Accuracy of each source length or range of lengths, in percent.

    Returns:
        A list of one group of charts; empty if both arguments are.
    """
    charts = [
        _accuracy_chart(title, axis, [RunAccuracies("accuracy", groups)])
        for title, axis, groups in (
            ("By target position", "target position", positions),
            ("By source length", "source length", lengths),
        )
        if groups
    ]
    return (
        [ReportCharts("Accuracy", "Share of correct symbols or outputs, with 95 % intervals.", charts)]
        if charts
        else []
    )


def compared_accuracy_charts(runs: Sequence[Assessment]) -> ReportCharts:
    """Return charts of the accuracy by target position and by source length, with a line for each run.

    Intervals are drawn only if there is one run.

    Args:
        runs: Assessments of the runs on the same examples.
    """
    positions = [RunAccuracies(run.name, run.evaluation.positions) for run in runs]
    lengths = [RunAccuracies(run.name, run.evaluation.lengths) for run in runs]
    charts = [
        _accuracy_chart("By target position", "target position", positions),
        _accuracy_chart("By source length", "source length", lengths),
    ]
    return ReportCharts("Accuracy", "Share of correct symbols or outputs.", charts)


def calibration_charts(runs: Sequence[Assessment]) -> list[ReportCharts]:
    """Return three charts of calibration, with a line for each run whose network has a validation.

    They are reliability (share correct over mean probability, in bins), selective accuracy (share correct among the
    most confident), and the share of errors found by a review of the least confident.

    Args:
        runs: Assessments of one run or several on the same examples; reliability has intervals for one run only.

    Returns:
        A list of one group of charts; empty if no network has a validation.
    """
    shown = _shown_calibrations(runs)
    if not shown.calibrations:
        return []
    unit, name = shown.unit, shown.quantity
    if name == "probability":
        name = "probability exp(score)" if unit == "outputs" else "own probability"
    caption = (
        f"Reliability: {unit} grouped by their {name} in ten bins; the calibration error is the mean "
        f"distance from the diagonal. The other charts order {unit} by {shown.quantity}."
    )
    if missing := [run.name for run in runs if run.name not in shown.calibrations]:
        caption += f" Without a validation of the network, so that they have no line: {', '.join(missing)}."
    return [
        ReportCharts(
            "Calibration",
            caption,
            [_reliability_chart(shown), _selective_accuracy_chart(shown), _error_recall_chart(shown)],
        )
    ]


class _ShownCalibrations(NamedTuple):
    """Calibration of each run that the charts show."""

    calibrations: dict[str, Calibration]
    """By the name of the run."""
    unit: str
    """Unit that is right or wrong: outputs or tags."""
    quantity: str
    """Quantity that is compared with the accuracy: confidence or probability."""


def _shown_calibrations(runs: Sequence[Assessment]) -> _ShownCalibrations:
    """Return the calibrations of the confidences if all outputs of all runs have one, else of the probabilities."""
    by_confidence = all(run.ranks_by_confidence for run in runs if run.calibration is not None)
    calibrations = {run.name: run.best_calibration if by_confidence else run.calibration for run in runs}
    shown = {name: calibration for name, calibration in calibrations.items() if calibration is not None}
    if by_confidence:
        return _ShownCalibrations(shown, "outputs", "confidence")
    return _ShownCalibrations(shown, runs[0].unit, "probability")


def _limit_points(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `MAX_POINTS` means over intervals of equal length, to limit the size of the page."""
    size = math.ceil(len(points) / MAX_POINTS) or 1
    intervals = [points[start : start + size] for start in range(0, len(points), size)]
    return [(fmean(x for x, _ in segment), fmean(y for _, y in segment)) for segment in intervals]


def _learning_line(name: str, points: Sequence[tuple[float, float]], form: str, unit: str = "") -> ChartLine:
    """Return the values of a log as a line."""
    return ChartLine(name, [ChartPoint(x, y, f"{y:{form}}{unit} after {x:,.0f} samples") for x, y in points])


def _learning_chart(title: str, unit: str, lines: Sequence[ChartLine]) -> ReportChart:
    """Return the lines that have values as one chart."""
    nonempty = [line for line in lines if line.points]
    top = round_up(max(point.y for line in nonempty for point in line.points))
    return ReportChart(title, "training samples", unit, nonempty, 0.0, top)


def _accuracy_chart(title: str, axis: str, runs: Sequence[RunAccuracies]) -> ReportChart:
    """Return the accuracies of all runs as one chart; of one run with intervals and a table."""
    is_single = len(runs) == 1
    lines = [
        ChartLine(name, [_accuracy_point(group, index, is_single) for index, group in enumerate(groups) if group.total])
        for name, groups in runs
    ]
    low, high = accuracy_axis_limits([group for run in runs for group in run.groups])
    numbers = _accuracy_table(axis, runs[0].groups) if is_single else None
    return ReportChart(title, axis, "% correct", lines, low, high, numbers)


def _accuracy_point(group: GroupAccuracy, index: int, interval: bool) -> ChartPoint:
    """Return a group's accuracy, at the middle of its range of positions or lengths."""
    ends = [int(end) for end in group.label.split("–") if end.isdecimal()]
    share = f"{group.label}: {group.percent:.1f} % correct ({group.right} of {group.total}"
    return ChartPoint(
        x=fmean(ends) if ends else index + 1.0,
        y=group.percent,
        label=f"{share}; 95 % interval {group.low:.1f} to {group.high:.1f})",
        low=group.low if interval else None,
        high=group.high if interval else None,
        tick=group.label,
    )


def _accuracy_table(axis: str, groups: Sequence[GroupAccuracy]) -> ReportTable:
    """Return the numbers of a chart of accuracies."""
    rows = [
        (
            group.label,
            f"{group.right}",
            f"{group.total}",
            _percent(group.percent),
            f"{_percent(group.low)} – {_percent(group.high)}",
        )
        for group in groups
    ]
    return ReportTable("", "", (axis, "correct", "of", "% correct", "95 % interval"), rows)


def _percent(value: float) -> str:
    """Return a percentage with one decimal, or a dash for NaN."""
    return f"{value:.1f}" if math.isfinite(value) else "–"


def _reliability_chart(shown: _ShownCalibrations) -> ReportChart:
    """Return the share correct over the mean probability or confidence, bin by bin."""
    is_single = len(shown.calibrations) == 1
    lines = [
        ChartLine(name, [_bin_point(bin, is_single, shown.quantity) for bin in calibration.bins if bin.total])
        for name, calibration in shown.calibrations.items()
    ]
    ends = [ChartPoint(0.0, 0.0, "0 %"), ChartPoint(100.0, 100.0, "100 %")]
    diagonal = ChartLine("perfect calibration", ends, reference=True)
    numbers = _bin_table(next(iter(shown.calibrations.values())).bins, shown.quantity) if is_single else None
    return ReportChart("Reliability", f"mean {shown.quantity}, %", "% correct", [*lines, diagonal], 0.0, 100.0, numbers)


def _bin_point(bin: CalibrationBin, interval: bool, quantity: str) -> ChartPoint:
    """Return a bin's share correct."""
    low, high = bin.ci95.percent if interval else (None, None)
    label = f"mean {quantity} {bin.mean_probability:.2f}, {100 * bin.accuracy:.1f} % correct of {bin.total:,}"
    return ChartPoint(100 * bin.mean_probability, 100 * bin.accuracy, label, low, high)


def _bin_table(bins: Sequence[CalibrationBin], quantity: str) -> ReportTable:
    """Return the numbers of the reliability chart."""
    rows = [
        (
            f"{bin.low:.1f} – {bin.high:.1f}",
            f"{bin.right:,}",
            f"{bin.total:,}",
            f"{100 * bin.accuracy:.1f}" if bin.total else "–",
            f"{100 * bin.mean_probability:.1f}" if bin.total else "–",
        )
        for bin in bins
    ]
    return ReportTable("", "", (quantity, "correct", "of", "% correct", "mean, %"), rows)


def _selective_accuracy_chart(shown: _ShownCalibrations) -> ReportChart:
    """Return the share correct among the most confident."""
    lines = [
        ChartLine(
            name,
            [
                ChartPoint(
                    100 * point.coverage,
                    100 * point.accuracy,
                    f"{100 * point.accuracy:.1f} % of the most confident {100 * point.coverage:.0f} % are correct "
                    f"({'p' if shown.quantity == 'probability' else shown.quantity} ≥ {point.threshold:.3f})",
                )
                for point in calibration.coverage_points
            ],
        )
        for name, calibration in shown.calibrations.items()
    ]
    lowest = min(point.y for line in lines for point in line.points)
    low = min(80.0, lowest // 10 * 10)
    x_title = f"most confident {shown.unit}, %"
    return ReportChart("Selective accuracy", x_title, "% correct", lines, low, 100.0)


def _error_recall_chart(shown: _ShownCalibrations) -> ReportChart:
    """Return the share of all errors that a review of the least confident finds."""
    lines = [
        ChartLine(
            name,
            [
                ChartPoint(
                    100 * (1 - point.coverage),
                    100 * point.error_recall,
                    f"reviewing the least confident {100 * (1 - point.coverage):.0f} % finds "
                    f"{100 * point.error_recall:.0f} % of the errors",
                )
                for point in reversed(calibration.coverage_points)
            ],
        )
        for name, calibration in shown.calibrations.items()
    ]
    ends = [ChartPoint(0.0, 0.0, "0 %"), ChartPoint(100.0, 100.0, "100 %")]
    random = ChartLine("random order", ends, reference=True)
    x_title = f"least confident {shown.unit}, %"
    return ReportChart("Errors found by review", x_title, "% found", [*lines, random], 0.0, 100.0)


@dataclass(frozen=True, eq=False)
class ExampleOutput:
    """Output to show in a report, with its references."""

    trace: Trace
    references: tuple[str, ...]
    """Outputs that count as correct; empty if unknown."""
    scored: ScoredExample | None = None
    """Symbols of output and references, with errors; if None, characters or words of the texts are compared."""
    others: Sequence[Trace] = ()
    """Further outputs for the same source."""
    group: str = ""
    """Name of the group of the example; empty without groups."""
    ignored_tag: str = ""
    """Tag at positions that are not scored."""

    @property
    def correct(self) -> bool:
        """True if the output has no errors, or, if it is not scored, equals one of the references."""
        if self.scored is not None:
            return self.scored.errors == 0
        return self.trace.output in self.references


def example_parts(title: str, outputs: Sequence[ExampleOutput]) -> list[ReportExamples]:
    """Return a section of a report that draws outputs with their attention weights or tags.

    Args:
        title: Title of the section.
        outputs: The outputs.

    Returns:
        A list of one section; empty without outputs.
    """
    if not outputs:
        return []
    attending = [output.trace for output in outputs if output.trace.attention.any()]
    caption = attention_caption(attending[0]) if attending else NO_ATTENTION
    return [ReportExamples(title, caption, [_report_example(output) for output in outputs], listed=False)]


def error_parts(outputs: Sequence[ExampleOutput], omitted: int = 0) -> list[ReportExamples | ReportTable]:
    """Return a section of a report that lists wrong outputs: collapsed, or as a table if they have no attention weights
    of a trained network.

    Args:
        outputs: Wrong outputs in order, worst first.
        omitted: Number of further wrong outputs, for the caption.

    Returns:
        A list of one section; empty without outputs.
    """
    if not outputs:
        return []
    total = len(outputs) + omitted
    caption = f"The {len(outputs):,} worst of {total:,} (--worst)." if omitted else ""
    if not all(output.trace.has_trained_network for output in outputs):
        rows = [(output.trace.text, output.trace.output, " | ".join(output.references)) for output in outputs]
        return [ReportTable("Errors", f"{NO_NETWORK} {caption}".strip(), ("source", "output", "expected"), rows)]
    return [ReportExamples("Errors", caption, [_report_example(output) for output in outputs], listed=True)]


def disagreement_parts(
    correct: Assessment, wrong: Assessment, indices: Sequence[int], omitted: int
) -> list[ReportExamples | ReportTable]:
    """Return a section of a report that lists examples which are correct in one run and wrong in another.

    It is a table if outputs have no attention weights of a trained network.

    Args:
        correct: Assessment of the run that is correct.
        wrong: Assessment of the run that is wrong, on the same examples.
        indices: Indices of the examples, in order.
        omitted: Number of further such examples, for the caption.

    Returns:
        A list of one section; empty without indices.
    """
    if not indices:
        return []
    caption = f"The first {len(indices):,} of {len(indices) + omitted:,}." if omitted else ""
    title = f"{correct.name} correct, {wrong.name} wrong"
    pairs = [(example_output(correct, index), example_output(wrong, index)) for index in indices]
    if not all(output.trace.has_trained_network for pair in pairs for output in pair):
        rows = [(one.trace.text, one.trace.output, other.trace.output) for one, other in pairs]
        return [ReportTable(title, f"{NO_NETWORK} {caption}".strip(), ("source", correct.name, wrong.name), rows)]
    examples = []
    for first, second_output in pairs:
        second = _report_example(second_output)
        examples.append(
            ReportExample(
                outputs=[_page_example(first), *second.outputs],
                output=second.output,
                expected=[(first.trace.output, False)],
                edits=second.edits,
                errors=second.errors,
                group=second.group,
            )
        )
    return [ReportExamples(title, caption, examples, True, (correct.name, wrong.name))]


def example_output(assessment: Assessment, index: int) -> ExampleOutput:
    """Return one example of an assessment, with its references and all of its outputs, best first.

    Args:
        assessment: The assessment.
        index: Index of the example, from 0.
    """
    output = assessment.outputs[index]
    return ExampleOutput(
        trace=output.trace,
        references=output.references,
        scored=output.scored,
        others=output.traces[1:],
        group=output.group,
        ignored_tag=assessment.ignored_tag,
    )


def compare_texts(output: ExampleOutput) -> tuple[MarkedText, MarkedText, int | None]:
    """Mark the differences of an output and its nearest reference.

    The texts are compared by words if the symbols of the output are words or subwords, and else by characters.

    Args:
        output: The output.

    Returns:
        The pieces of the output and of the reference, each with whether it differs; and the number of errors of the
        scored symbols, or the edit distance of the compared words or characters if the output is not scored. Without a
        reference, the whole output unmarked, [] and None.
    """
    separator = " " if _writes_words(output) else ""
    text, *references = (_split_text(variant, separator) for variant in (output.trace.output, *output.references))
    if not references:
        return [(output.trace.output, False)], [], None
    nearest = min(references, key=lambda reference: Levenshtein.distance(text, reference))
    steps = [step for step in Levenshtein.opcodes(text, nearest) if step.tag != "equal"]
    distance = Levenshtein.distance(text, nearest) if output.scored is None else output.scored.errors
    marked_output = _mark_spans(text, [(step.src_start, step.src_end) for step in steps], separator)
    return (
        marked_output,
        _mark_spans(nearest, [(step.dest_start, step.dest_end) for step in steps], separator),
        distance,
    )


def split_tags(text: str, trace: Trace) -> list[str]:
    """Return the tags of a reference, or class and tags, split by the separator that a trace has in its output.

    Args:
        text: Tags of a reference as text.
        trace: Trace of a tagger for the same source; with fewer than two tags, the text is not split.
    """
    n = len(trace.target)
    if n < 2:
        return [text]
    first, separator_length = len(trace.target[0]), (len(trace.output) - sum(map(len, trace.target))) // (n - 1)
    separator = trace.output[first : first + separator_length]
    return text.split(separator if separator.strip() else None) if separator else list(text)


def _report_example(output: ExampleOutput) -> ReportExample:
    """Return an output in the schema of reports."""
    text, reference, distance = compare_texts(output)
    pairs: Iterable[SymbolPair] = pair_symbols(output.scored) if output.scored is not None else ()
    return ReportExample(
        outputs=[_page_example(output)],
        output=text,
        expected=reference,
        edits=distance,
        errors=[pair for pair in pairs if pair[0] != pair[1]],
        group=output.group,
    )


def _page_example(output: ExampleOutput) -> PageExample:
    """Return an output, and further ones of the same source, in the schema of the page."""
    trace, scored = output.trace, output.scored
    return PageExample(
        text=trace.text,
        features=list(trace.source[: trace.num_features]),
        traces=[page_trace_without_model(output_trace) for output_trace in (trace, *output.others)],
        references=list(output.references),
        edits=_edits(output),
        errors=None if scored is None else scored.errors,
        exact=output.correct if output.references else None,
    )


def _edits(output: ExampleOutput) -> list[EditOperation]:
    """Return the alignment of an output with its reference; empty if its steps are not the compared symbols."""
    trace, scored = output.trace, output.scored
    if not output.references:
        return []
    if trace.per_position or trace.class_first:
        return positional_edits(trace, split_tags(output.references[0], trace), output.ignored_tag)
    if scored is None or scored.output != trace.symbols:
        return []
    return edit_operations(scored.output, scored.reference)


def _writes_words(output: ExampleOutput) -> bool:
    """Return whether the symbols of the output are words or subwords."""
    symbols, text = output.trace.symbols, output.trace.output
    if not any(" " in candidate for candidate in (text, *output.references)):
        return False
    return text == " ".join(symbols) or any(len(grapheme_clusters(symbol)) > 1 for symbol in symbols)


def _split_text(text: str, separator: str) -> list[str]:
    """Return the words, or the characters, of a text."""
    return text.split(separator) if separator and text else list(grapheme_clusters(text))


def _mark_spans(pieces: Sequence[str], spans: Sequence[tuple[int, int]], separator: str) -> MarkedText:
    """Return the pieces of a text, each with whether it is within a span."""
    marked_indices = {index for start, stop in spans for index in range(start, stop)}
    marked = list[tuple[str, bool]]()
    for differs, indices in groupby(range(len(pieces)), lambda index: index in marked_indices):
        if marked and separator:
            marked.append((separator, False))
        marked.append((separator.join(pieces[index] for index in indices), differs))
    return marked
