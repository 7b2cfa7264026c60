"""The pictures of the digit lessons: curves and positions, ours beside the authors'."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pellucid.look.axes import short_number
from pellucid.look.figures import MUTED, empty_figure, settled, tidy
from pellucid.recipes.digits.reference import Curve
from pellucid.recipes.digits.study import Outcome

AUTHORS = ("#b4530a", "#8a3ffc", "#0f766e")
"""The authors' curves, dashed; ours are solid."""


class Group(NamedTuple):
    """The runs of one network, a seed each."""

    name: str
    outcomes: Sequence[Outcome]

    @property
    def median(self) -> Outcome:
        """The run whose final accuracy is the median (of an even number, the lower)."""
        return sorted(self.outcomes, key=lambda outcome: outcome.accuracy)[(len(self.outcomes) - 1) // 2]


def curve_figure(groups: Sequence[Group], references: Sequence[Curve], longest: int) -> Figure:
    """Accuracy over samples: every run as a hairline, each group's median run as a line, the authors' runs dashed."""
    figure = empty_figure(7.2, 4.0)
    axes = figure.add_subplot()
    for group, color in zip(groups, colors(len(groups)), strict=True):
        for outcome in group.outcomes:
            strong = outcome is group.median
            xs, ys = [point.samples for point in outcome.curve], [point.symbol_accuracy for point in outcome.curve]
            name = group.name if strong else None
            axes.plot(xs, ys, color=color, linewidth=1.8 if strong else 0.7, alpha=1 if strong else 0.6, label=name)
    for reference, color in zip(references, AUTHORS, strict=False):
        points = reference.until(longest).points
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            "--",
            color=color,
            linewidth=1.3,
            label=f"{reference.name}, as stored",
        )
    _finish(axes, "samples seen")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    return settled(figure)


def position_figure(groups: Sequence[Group], reference: Sequence[float] = (), reference_name: str = "") -> Figure:
    """Accuracy at each target position, counted from 1: the mean of a group's runs, and their range as a band."""
    figure = empty_figure(7.2, 3.6)
    axes = figure.add_subplot()
    for group, color in zip(groups, colors(len(groups)), strict=True):
        runs = np.array([outcome.final.per_position for outcome in group.outcomes])
        places = np.arange(1, runs.shape[1] + 1)
        axes.fill_between(places, runs.min(axis=0), runs.max(axis=0), color=color, alpha=0.15, linewidth=0)
        axes.plot(places, runs.mean(axis=0), "o-", color=color, markersize=3.5, linewidth=1.6, label=group.name)
    if reference:
        places = np.arange(1, len(reference) + 1)
        axes.plot(
            places, reference, "--", color=AUTHORS[0], linewidth=1.3, label=f"{reference_name}, read off its plot"
        )
    _finish(axes, "target position (the last is the end)")
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    return settled(figure)


def colors(count: int) -> list[str]:
    """So many colours that are told apart, the first one the accent."""
    palette = ["#1f5fc0", "#c2410c", "#15803d", "#7c3aed", "#be185d", "#0e7490"]
    return (
        palette[:count]
        if count <= len(palette)
        else [to_hex(colormaps["viridis"](n / (count - 1))) for n in range(count)]
    )


def _finish(axes: Axes, x_title: str) -> None:
    """Axes from nothing to all, and the names of the lines."""
    tidy(axes)
    highest = max(float(np.max(line.get_ydata(), initial=0.1)) for line in axes.lines)
    axes.set_ylim(0.0, min(1.02, 1.25 * highest))
    axes.set_ylabel("symbols right", color=MUTED)
    axes.set_xlabel(x_title, color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)
