"""Scaling curves: time and memory of a step over source length, batch size and network size."""

from collections.abc import Iterator, Sequence

import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from pellucid.bench.cases import DIGITS, BenchRequest
from pellucid.bench.child import run_step_measurement
from pellucid.bench.results import BenchResult, ScaledSize, ScalingPoint
from pellucid.reporting.figures import ACCENT, INK, MUTED, empty_figure, freeze_layout, style_axes

SCALE_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Factors by which one size is multiplied; the other sizes are constant."""
SIZE_TITLES: dict[ScaledSize, str] = {"length": "source length", "batch": "batch size", "hidden": "hidden units"}


def measure_scaling(request: BenchRequest) -> Iterator[ScalingPoint]:
    """Measure a case with its source length, its batch size and its hidden units multiplied by each of `SCALE_FACTORS`.

    Each measurement runs in its own process. The case itself (factor 1) is measured once for all curves.

    Args:
        request: The measurement of the case.

    Yields:
        Each point, curve by curve, in increasing order.

    Raises:
        RunError: A worker process failed.
    """
    base_result = run_step_measurement(request)
    for varied in SIZE_TITLES:
        for factor in SCALE_FACTORS:
            result = base_result if factor == 1.0 else run_step_measurement(scale_request(request, varied, factor))
            yield ScalingPoint(varied, _scaled_value(result, varied), result)


def scale_request(request: BenchRequest, varied: ScaledSize, factor: float) -> BenchRequest:
    """Return a request with one size multiplied by a factor, rounded and at least 1.

    "length" is `DIGITS` times the factor, on source and target side; "hidden" scales attention units too, and its
    number of hidden units stays even.

    Args:
        request: The measurement, which is not changed.
        varied: Size to multiply.
        factor: Positive factor.
    """
    case = request.case
    match varied:
        case "length":
            return msgspec.structs.replace(request, digits=max(1, round(DIGITS * factor)))
        case "batch":
            scaled = msgspec.structs.replace(case, batch=max(1, round(case.batch * factor)))
        case "hidden":
            # The units are divided between two directions, so their number is even.
            hidden, units = 2 * max(1, round(case.hidden * factor / 2)), max(1, round(case.units * factor))
            scaled = msgspec.structs.replace(case, hidden=hidden, units=units)
    return msgspec.structs.replace(request, case=scaled)


def _scaled_value(result: BenchResult, varied: ScaledSize) -> int:
    """Return the actual value of the scaled size."""
    shape = result.shape
    return {"length": round(shape.positions / shape.rows), "batch": shape.rows, "hidden": shape.hidden}[varied]


GIGA = 1e9


def scaling_figure(points: Sequence[ScalingPoint]) -> Figure:
    """Draw scaling curves: CPU time of a step with its lower bound (above) and peak memory (below) over operations.

    Args:
        points: Points of all curves; at least one.

    Returns:
        A figure with one column for each size that varies.
    """
    figure = empty_figure(10.5, 6.2)
    rows = figure.subplots(2, len(SIZE_TITLES), sharex=True, sharey="row", squeeze=False)
    for column, (varied, title) in enumerate(SIZE_TITLES.items()):
        curve = [point for point in points if point.varied == varied]
        _draw_time(rows[0][column], curve)
        _draw_memory(rows[1][column], curve)
        rows[0][column].set_title(title, fontsize=11, loc="left")
    first = points[0].result
    rows[0][0].set_ylabel("CPU time of a step (ms)")
    rows[1][0].set_ylabel("peak memory of the process (MiB)")
    for axes in rows[1]:
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("counted operations of a step (10⁹)")
    rows[0][0].legend(frameon=False, labelcolor="linecolor", fontsize=9)
    threads = f"{first.threads} thread{'s' if first.threads > 1 else ''}"
    figure.suptitle(f"{first.task}, around {first.case} {first.cell.upper()}, {threads}", fontsize=12)
    return freeze_layout(figure)


def _draw_time(axes: Axes, curve: Sequence[ScalingPoint]) -> None:
    """Draw both times on logarithmic axes, where linear scaling is parallel to the lower bound."""
    work = [point.result.operations / GIGA for point in curve]
    axes.loglog(work, [point.result.floor_ms for point in curve], "--", color=MUTED, label="lower bound")
    measured = [point.result.step_cpu_ms for point in curve]
    axes.loglog(work, measured, "o-", color=ACCENT, markersize=4, linewidth=1.8, label="measured")
    _label_points(axes, curve, measured)


def _draw_memory(axes: Axes, curve: Sequence[ScalingPoint]) -> None:
    """Draw peak memory, from zero, over the logarithm of the operations."""
    memory = [point.result.peak_mib for point in curve]
    work = [point.result.operations / GIGA for point in curve]
    axes.semilogx(work, memory, "o-", color=ACCENT, markersize=4, linewidth=1.8)
    _label_points(axes, curve, memory)


def _label_points(axes: Axes, curve: Sequence[ScalingPoint], heights: Sequence[float]) -> None:
    """Label the points and style the axes."""
    for point, height in zip(curve, heights, strict=True):
        position = (point.result.operations / GIGA, height)
        axes.annotate(str(point.value), position, (3, 6), textcoords="offset points", ha="right", size=8, color=INK)
    style_axes(axes)
    axes.margins(0.1, 0.14)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(MUTED)
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
