"""Measurements around a case: time and memory of a step as the source gets longer, the batch or the network larger."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from pellucid.bench.cases import DIGITS, Asked
from pellucid.bench.child import measured_briefly
from pellucid.bench.results import Measured
from pellucid.reporting.figures import ACCENT, INK, MUTED, empty_figure, freeze_layout, style_axes

Varied = Literal["length", "batch", "hidden"]
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Of each size, the others staying as they are."""
TITLES: dict[Varied, str] = {"length": "source length", "batch": "batch size", "hidden": "hidden units"}


class Point(NamedTuple):
    """One measurement of a curve."""

    varied: Varied
    value: int
    """Source positions of a mean row, rows, or hidden units."""
    measured: Measured


def points(asked: Asked) -> Iterator[Point]:
    """All curves around a case, one measurement after the other; the case itself is measured once."""
    middle = measured_briefly(asked)
    for varied in TITLES:
        for factor in FACTORS:
            result = middle if factor == 1.0 else measured_briefly(varied_by(asked, varied, factor))
            yield Point(varied, _value(result, varied), result)


def varied_by(asked: Asked, varied: Varied, factor: float) -> Asked:
    """The same with one size changed. Longer numbers are longer on both sides; attention's units go with the hidden."""
    case = asked.case
    match varied:
        case "length":
            return msgspec.structs.replace(asked, digits=max(1, round(DIGITS * factor)))
        case "batch":
            changed = msgspec.structs.replace(case, batch=max(1, round(case.batch * factor)))
        case "hidden":
            # Two directions share the units: an even number.
            hidden, units = 2 * max(1, round(case.hidden * factor / 2)), max(1, round(case.units * factor))
            changed = msgspec.structs.replace(case, hidden=hidden, units=units)
    return msgspec.structs.replace(asked, case=changed)


def _value(result: Measured, varied: Varied) -> int:
    """The size that was varied, as it came out."""
    shape = result.shape
    return {"length": round(shape.positions / shape.rows), "batch": shape.rows, "hidden": shape.hidden}[varied]


GIGA = 1e9


def scaling_figure(curves: Sequence[Point]) -> Figure:
    """Above, time of a step and its floor; below, peak memory; against the counted work, one column a size."""
    figure = empty_figure(10.5, 6.2)
    rows = figure.subplots(2, len(TITLES), sharex=True, sharey="row", squeeze=False)
    for column, (varied, title) in enumerate(TITLES.items()):
        own = [point for point in curves if point.varied == varied]
        _draw_time(rows[0][column], own)
        _draw_memory(rows[1][column], own)
        rows[0][column].set_title(title, fontsize=11, loc="left")
    first = curves[0].measured
    rows[0][0].set_ylabel("processor time of a step (ms)")
    rows[1][0].set_ylabel("peak memory of the process (MiB)")
    for axes in rows[1]:
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("counted operations of a step (10⁹)")
    rows[0][0].legend(frameon=False, labelcolor="linecolor", fontsize=9)
    threads = f"{first.threads} thread{'s' if first.threads > 1 else ''}"
    figure.suptitle(f"{first.task}, around {first.case} {first.cell.upper()}, {threads}", fontsize=12)
    return freeze_layout(figure)


def _draw_time(axes: Axes, curve: Sequence[Point]) -> None:
    """Both times on logarithmic scales: twice the work in twice the time is parallel to the floor."""
    work = [point.measured.operations / GIGA for point in curve]
    axes.loglog(work, [point.measured.floor_ms for point in curve], "--", color=MUTED, label="floor")
    measured = [point.measured.step_cpu_ms for point in curve]
    axes.loglog(work, measured, "o-", color=ACCENT, markersize=4, linewidth=1.8, label="measured")
    _finish(axes, curve, measured)


def _draw_memory(axes: Axes, curve: Sequence[Point]) -> None:
    """Peak memory, from zero, over the logarithm of the work."""
    memory = [point.measured.peak_mib for point in curve]
    work = [point.measured.operations / GIGA for point in curve]
    axes.semilogx(work, memory, "o-", color=ACCENT, markersize=4, linewidth=1.8)
    _finish(axes, curve, memory)


def _finish(axes: Axes, curve: Sequence[Point], heights: Sequence[float]) -> None:
    """Each point named by its size, and quiet axes."""
    for point, height in zip(curve, heights, strict=True):
        place = (point.measured.operations / GIGA, height)
        axes.annotate(str(point.value), place, (3, 6), textcoords="offset points", ha="right", size=8, color=INK)
    style_axes(axes)
    axes.margins(0.1, 0.14)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(MUTED)
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
