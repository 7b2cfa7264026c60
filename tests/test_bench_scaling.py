"""Scaling curves: points and figure."""

import msgspec
import numpy as np
import pytest
from bench_cases import GRU_SHAPE, make_fake_result
from matplotlib.lines import Line2D

from pellucid.bench import scaling
from pellucid.bench.cases import CASES, BenchCase, BenchRequest
from pellucid.bench.results import BenchResult, ScalingPoint
from pellucid.bench.scaling import (
    SCALE_FACTORS,
    SIZE_TITLES,
    measure_scaling,
    scale_request,
    scaling_figure,
)
from pellucid.reporting.figures import to_png

BASE_REQUEST = BenchRequest("train", "tiny", CASES["tiny"], "gru")


def test_only_the_varied_size_changes() -> None:
    assert scale_request(BASE_REQUEST, "length", 2.0) == msgspec.structs.replace(BASE_REQUEST, digits=40)
    assert scale_request(BASE_REQUEST, "batch", 0.5).case == BenchCase(10, 10, 20, 50)
    assert scale_request(BASE_REQUEST, "hidden", 4.0).case == BenchCase(40, 10, 80, 100)


@pytest.mark.parametrize("factor", SCALE_FACTORS)
def test_hidden_units_are_even(factor: float) -> None:
    case = scale_request(BASE_REQUEST, "hidden", factor).case
    assert case.hidden % 2 == 0 and case.hidden > 0 and case.units > 0


def test_base_case_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[BenchRequest] = []

    def record_request(request: BenchRequest) -> BenchResult:
        requests.append(request)
        shape = msgspec.structs.replace(GRU_SHAPE, rows=request.case.batch, hidden=request.case.hidden)
        return make_fake_result(1e9, 5.0, 200.0, shape)

    monkeypatch.setattr(scaling, "run_step_measurement", record_request)
    points = list(measure_scaling(BASE_REQUEST))
    assert requests.count(BASE_REQUEST) == 1 and len(requests) == 1 + len(SIZE_TITLES) * (len(SCALE_FACTORS) - 1)
    assert [point.varied for point in points] == [varied for varied in SIZE_TITLES for _ in SCALE_FACTORS]
    assert [point.value for point in points if point.varied == "batch"] == [25, 50, 100, 200, 400]
    assert [point.value for point in points if point.varied == "hidden"] == [2, 4, 10, 20, 40]


POINTS = [
    ScalingPoint(varied, size, make_fake_result(size * 1e7, float(size), 100.0 + size))
    for varied in SIZE_TITLES
    for size in (10, 40, 160)
]


def heights(line: Line2D) -> list[float]:
    """Return the values of a curve."""
    values: list[float] = np.asarray(line.get_ydata()).tolist()
    return values


def test_axes_are_labeled_and_columns_titled() -> None:
    axes = scaling_figure(POINTS).axes
    assert len(axes) == 6
    assert [panel.get_title(loc="left") for panel in axes[:3]] == list(SIZE_TITLES.values())
    assert "ms" in axes[0].get_ylabel() and "MiB" in axes[3].get_ylabel()
    assert all("operations" in panel.get_xlabel() for panel in axes[3:])


def test_time_and_lower_bound_share_axes_above_memory() -> None:
    axes = scaling_figure(POINTS).axes
    floor, time = axes[1].get_lines()
    assert (heights(time), heights(floor)) == ([10, 40, 160], [5, 20, 80])
    (memory,) = axes[4].get_lines()
    assert heights(memory) == [110, 140, 260] and axes[4].get_ylim()[0] == 0
    assert np.asarray(memory.get_xdata()).tolist() == [0.1, 0.4, 1.6]
    assert [text.get_text() for text in axes[4].texts] == ["10", "40", "160"]
    assert {panel.get_xscale() for panel in axes} == {"log"}


def test_axes_cover_all_points_and_the_figure_is_reproducible() -> None:
    for axes in (figure := scaling_figure(POINTS)).axes:
        for line in axes.get_lines():
            low, high = axes.get_ylim()
            assert low <= min(heights(line)) and max(heights(line)) <= high
    assert to_png(figure) == to_png(scaling_figure(POINTS))
