"""Scaling curves: points and figure."""

import msgspec
import numpy as np
import pytest
from bench_cases import GRU, measured
from matplotlib.lines import Line2D

from pellucid.bench import scaling
from pellucid.bench.cases import CASES, BenchCase, BenchRequest
from pellucid.bench.results import BenchResult
from pellucid.bench.scaling import (
    SCALE_FACTORS,
    SIZE_TITLES,
    ScalingPoint,
    measure_scaling,
    scale_request,
    scaling_figure,
)
from pellucid.reporting.figures import to_png

MIDDLE = BenchRequest("train", "tiny", CASES["tiny"], "gru")


def test_one_size_is_varied_and_the_others_stay() -> None:
    assert scale_request(MIDDLE, "length", 2.0) == msgspec.structs.replace(MIDDLE, digits=40)
    assert scale_request(MIDDLE, "batch", 0.5).case == BenchCase(10, 10, 20, 50)
    assert scale_request(MIDDLE, "hidden", 4.0).case == BenchCase(40, 10, 80, 100)


@pytest.mark.parametrize("factor", SCALE_FACTORS)
def test_both_directions_have_whole_units(factor: float) -> None:
    case = scale_request(MIDDLE, "hidden", factor).case
    assert case.hidden % 2 == 0 and case.hidden > 0 and case.units > 0


def test_the_case_itself_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[BenchRequest] = []

    def pretend(one: BenchRequest) -> BenchResult:
        asked.append(one)
        return measured(1e9, 5.0, 200.0, msgspec.structs.replace(GRU, rows=one.case.batch, hidden=one.case.hidden))

    monkeypatch.setattr(scaling, "run_step_measurement", pretend)
    found = list(measure_scaling(MIDDLE))
    assert asked.count(MIDDLE) == 1 and len(asked) == 1 + len(SIZE_TITLES) * (len(SCALE_FACTORS) - 1)
    assert [point.varied for point in found] == [varied for varied in SIZE_TITLES for _ in SCALE_FACTORS]
    assert [point.value for point in found if point.varied == "batch"] == [25, 50, 100, 200, 400]
    assert [point.value for point in found if point.varied == "hidden"] == [2, 4, 10, 20, 40]


CURVES = [
    ScalingPoint(varied, size, measured(size * 1e7, float(size), 100.0 + size))
    for varied in SIZE_TITLES
    for size in (10, 40, 160)
]


def heights(line: Line2D) -> list[float]:
    """The values of a curve."""
    values: list[float] = np.asarray(line.get_ydata()).tolist()
    return values


def test_axes_are_labelled_and_columns_titled() -> None:
    axes = scaling_figure(CURVES).axes
    assert len(axes) == 6
    assert [one.get_title(loc="left") for one in axes[:3]] == list(SIZE_TITLES.values())
    assert "ms" in axes[0].get_ylabel() and "MiB" in axes[3].get_ylabel()
    assert all("operations" in one.get_xlabel() for one in axes[3:])


def test_time_and_lower_bound_share_axes_above_memory() -> None:
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
