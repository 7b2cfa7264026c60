"""The figure of the curves: every axis named, every point there."""

import numpy as np
from bench_cases import measured
from matplotlib.lines import Line2D

from pellucid.bench.scaling import TITLES, Point, scaling_figure
from pellucid.reporting.figures import to_png

CURVES = [
    Point(varied, size, measured(size * 1e7, float(size), 100.0 + size)) for varied in TITLES for size in (10, 40, 160)
]


def heights(line: Line2D) -> list[float]:
    """The values of a curve."""
    values: list[float] = np.asarray(line.get_ydata()).tolist()
    return values


def test_axes_are_labelled_and_columns_titled() -> None:
    axes = scaling_figure(CURVES).axes
    assert len(axes) == 6
    assert [one.get_title(loc="left") for one in axes[:3]] == list(TITLES.values())
    assert "ms" in axes[0].get_ylabel() and "MiB" in axes[3].get_ylabel()
    assert all("operations" in one.get_xlabel() for one in axes[3:])


def test_time_stands_beside_its_floor_and_memory_below() -> None:
    axes = scaling_figure(CURVES).axes
    floor, time = axes[1].get_lines()
    assert (heights(time), heights(floor)) == ([10, 40, 160], [5, 20, 80])
    (memory,) = axes[4].get_lines()
    assert heights(memory) == [110, 140, 260] and axes[4].get_ylim()[0] == 0
    assert np.asarray(memory.get_xdata()).tolist() == [0.1, 0.4, 1.6]
    assert [text.get_text() for text in axes[4].texts] == ["10", "40", "160"]
    assert {one.get_xscale() for one in axes} == {"log"}


def test_no_point_is_cut_off_and_the_picture_is_the_same_each_time() -> None:
    for one in (figure := scaling_figure(CURVES)).axes:
        for line in one.get_lines():
            low, high = one.get_ylim()
            assert low <= min(heights(line)) and max(heights(line)) <= high
    assert to_png(figure) == to_png(scaling_figure(CURVES))
