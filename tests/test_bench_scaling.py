"""Measurements around a case: which sizes are varied, and how."""

import msgspec
import pytest
from bench_cases import GRU, measured

from pellucid.bench import scaling
from pellucid.bench.cases import CASES, BenchCase, BenchRequest
from pellucid.bench.results import BenchResult
from pellucid.bench.scaling import SCALE_FACTORS, SIZE_TITLES, measure_scaling, scale_request

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
