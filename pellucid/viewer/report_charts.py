"""Charts of reports: training curves, accuracy by position and length, calibration."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from pellucid.evaluation.assessment import Assessment
from pellucid.evaluation.calibration import Bin
from pellucid.evaluation.metrics import Accuracy, Followed
from pellucid.look.axes import percent_range, round_up, values
from pellucid.viewer.report_schema import ChartLine, ChartPoint, ReportChart, ReportCharts, ReportTable

MAX_POINTS = 200
"""A training loss of more points is averaged over stretches of equal length."""


class RunAccuracies(NamedTuple):
    """Accuracies of one run, group by group."""

    name: str
    groups: Sequence[Accuracy]


def learning_charts(log: Sequence[Mapping[str, Any]], followed: Sequence[Followed]) -> list[ReportCharts]:
    """Return the loss and each followed score over the examples seen; charts without values are omitted."""
    training = _averaged(values(log, "stepped", "loss"))
    validation = values(log, "validated", "loss")
    loss = [_learning_line("training", training, ".3g"), _learning_line("validation", validation, ".3g")]
    drawn = [("Loss", "loss", loss)]
    for key, name in followed:
        line = _learning_line(name, values(log, "validated", key), ".1f", " %")
        drawn.append((name[:1].upper() + name[1:], "%", [line]))
    charts = [_learning_chart(title, unit, lines) for title, unit, lines in drawn if any(line.points for line in lines)]
    return [ReportCharts("Training curves", "", charts)] if charts else []


def accuracy_charts(positions: Sequence[Accuracy], lengths: Sequence[Accuracy]) -> list[ReportCharts]:
    """Return the accuracy of one run by target position and by source length, each with a table of its numbers."""
    charts = [
        _accuracy_chart(title, axis, [RunAccuracies("accuracy", groups)])
        for title, axis, groups in (
            ("By target position", "target position", positions),
            ("By source length", "source length", lengths),
        )
        if groups
    ]
    return [ReportCharts("Accuracy", "Correct, in per cent, with 95 % intervals.", charts)] if charts else []


def compared_accuracy_charts(runs: Sequence[Assessment]) -> ReportCharts:
    """Return the same charts with a line for each run, without intervals."""
    positions = [RunAccuracies(run.name, run.evaluation.positions) for run in runs]
    lengths = [RunAccuracies(run.name, run.evaluation.lengths) for run in runs]
    charts = [
        _accuracy_chart("By target position", "target position", positions),
        _accuracy_chart("By source length", "source length", lengths),
    ]
    return ReportCharts("Accuracy", "Correct, in per cent.", charts)


def calibration_charts(runs: Sequence[Assessment]) -> ReportCharts:
    """Return reliability, selective accuracy, and errors found by review, of one run or several."""
    unit = runs[0].unit
    own = "probability exp(score)" if unit == "outputs" else "own probability"
    caption = (
        f"Reliability: {unit} grouped by their {own} in ten bins; the calibration error is the mean distance from the "
        f"diagonal. The other charts order {unit} by probability."
    )
    return ReportCharts("Calibration", caption, [_reliability(runs), _most_confident(runs), _review(runs)])


def _averaged(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `MAX_POINTS` means over stretches of equal length, so that no page grows with training."""
    size = math.ceil(len(points) / MAX_POINTS) or 1
    stretches = [points[start : start + size] for start in range(0, len(points), size)]
    return [(fmean(x for x, _ in stretch), fmean(y for _, y in stretch)) for stretch in stretches]


def _learning_line(name: str, points: Sequence[tuple[float, float]], form: str, unit: str = "") -> ChartLine:
    """Return the values of a log as a line."""
    return ChartLine(name, [ChartPoint(x, y, f"{y:{form}}{unit} after {x:,.0f} examples") for x, y in points])


def _learning_chart(title: str, unit: str, lines: Sequence[ChartLine]) -> ReportChart:
    """Return the lines that have values as one chart."""
    known = [line for line in lines if line.points]
    top = round_up(max(point.y for line in known for point in line.points))
    return ReportChart(title, "examples seen", unit, known, 0.0, top)


def _accuracy_chart(title: str, axis: str, runs: Sequence[RunAccuracies]) -> ReportChart:
    """Return the accuracies of all runs as one chart; of one run with intervals and a table."""
    alone = len(runs) == 1
    lines = [
        ChartLine(name, [_accuracy_point(group, at, alone) for at, group in enumerate(groups) if group.total])
        for name, groups in runs
    ]
    low, high = percent_range([group for run in runs for group in run.groups])
    numbers = _accuracy_table(axis, runs[0].groups) if alone else None
    return ReportChart(title, axis, "% correct", lines, low, high, numbers)


def _accuracy_point(group: Accuracy, at: int, interval: bool) -> ChartPoint:
    """Return a group's accuracy, at the middle of its range of positions or lengths."""
    ends = [int(end) for end in group.label.split("–") if end.isdecimal()]
    share = f"{group.label}: {group.percent:.1f} % correct ({group.right} of {group.total}"
    return ChartPoint(
        x=fmean(ends) if ends else at + 1.0,
        y=group.percent,
        label=f"{share}; 95 % interval {group.low:.1f} to {group.high:.1f})",
        low=group.low if interval else None,
        high=group.high if interval else None,
        tick=group.label,
    )


def _accuracy_table(axis: str, groups: Sequence[Accuracy]) -> ReportTable:
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
    """Return a percentage with one decimal, or a dash where there is none."""
    return f"{value:.1f}" if math.isfinite(value) else "–"


def _reliability(runs: Sequence[Assessment]) -> ReportChart:
    """Return the share correct over the mean probability, bin by bin."""
    alone = len(runs) == 1
    lines = [
        ChartLine(run.name, [_bin_point(each, alone) for each in run.calibration.bins if each.total]) for run in runs
    ]
    ends = [ChartPoint(0.0, 0.0, "0 %"), ChartPoint(100.0, 100.0, "100 %")]
    diagonal = ChartLine("perfect calibration", ends, reference=True)
    numbers = _bin_table(runs[0].calibration.bins) if alone else None
    return ReportChart("Reliability", "mean probability, %", "% correct", [*lines, diagonal], 0.0, 100.0, numbers)


def _bin_point(each: Bin, interval: bool) -> ChartPoint:
    """Return a bin's share correct."""
    low, high = each.ci95.percent if interval else (None, None)
    label = f"mean probability {each.confidence:.2f}, {100 * each.accuracy:.1f} % correct of {each.total:,}"
    return ChartPoint(100 * each.confidence, 100 * each.accuracy, label, low, high)


def _bin_table(bins: Sequence[Bin]) -> ReportTable:
    """Return the numbers of the reliability chart."""
    rows = [
        (
            f"{each.low:.1f} – {each.high:.1f}",
            f"{each.right:,}",
            f"{each.total:,}",
            f"{100 * each.accuracy:.1f}" if each.total else "–",
            f"{100 * each.confidence:.1f}" if each.total else "–",
        )
        for each in bins
    ]
    return ReportTable("", "", ("probability", "correct", "of", "% correct", "mean, %"), rows)


def _most_confident(runs: Sequence[Assessment]) -> ReportChart:
    """Return the share correct among the most confident."""
    lines = [
        ChartLine(
            run.name,
            [
                ChartPoint(
                    100 * each.share,
                    100 * each.accuracy,
                    f"{100 * each.accuracy:.1f} % of the most confident {100 * each.share:.0f} % are correct "
                    f"(p ≥ {each.probability:.3f})",
                )
                for each in run.calibration.certain
            ],
        )
        for run in runs
    ]
    lowest = min(point.y for line in lines for point in line.points)
    low = min(80.0, lowest // 10 * 10)
    x_title = f"most confident {runs[0].unit}, %"
    return ReportChart("Selective accuracy", x_title, "% correct", lines, low, 100.0)


def _review(runs: Sequence[Assessment]) -> ReportChart:
    """Return the share of all errors that a review of the least confident finds."""
    lines = [
        ChartLine(
            run.name,
            [
                ChartPoint(
                    100 * (1 - each.share),
                    100 * each.caught,
                    f"reviewing the least confident {100 * (1 - each.share):.0f} % finds {100 * each.caught:.0f} % of "
                    "the errors",
                )
                for each in reversed(run.calibration.certain)
            ],
        )
        for run in runs
    ]
    ends = [ChartPoint(0.0, 0.0, "0 %"), ChartPoint(100.0, 100.0, "100 %")]
    random = ChartLine("random order", ends, reference=True)
    x_title = f"least confident {runs[0].unit}, %"
    return ReportChart("Errors found by review", x_title, "% found", [*lines, random], 0.0, 100.0)
