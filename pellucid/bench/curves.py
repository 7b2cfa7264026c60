"""The curves of a case as one figure: time and memory against the counted work."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from pellucid.bench.scaling import TITLES, Point
from pellucid.look.figures import ACCENT, INK, MUTED, empty_figure, settled, tidy

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
    return settled(figure)


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
    tidy(axes)
    axes.margins(0.1, 0.14)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(MUTED)
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
