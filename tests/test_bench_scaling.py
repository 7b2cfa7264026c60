"""Measurements around a case: which sizes are varied, and how."""

import msgspec
import pytest
from bench_cases import GRU, measured

from pellucid.bench import scaling
from pellucid.bench.cases import CASES, Asked, Case
from pellucid.bench.results import Measured
from pellucid.bench.scaling import FACTORS, TITLES, points, varied_by

MIDDLE = Asked("train", "tiny", CASES["tiny"], "gru")


def test_one_size_is_varied_and_the_others_stay() -> None:
    assert varied_by(MIDDLE, "length", 2.0) == msgspec.structs.replace(MIDDLE, digits=40)
    assert varied_by(MIDDLE, "batch", 0.5).case == Case(10, 10, 20, 50)
    assert varied_by(MIDDLE, "hidden", 4.0).case == Case(40, 10, 80, 100)


@pytest.mark.parametrize("factor", FACTORS)
def test_both_directions_have_whole_units(factor: float) -> None:
    case = varied_by(MIDDLE, "hidden", factor).case
    assert case.hidden % 2 == 0 and case.hidden > 0 and case.units > 0


def test_the_case_itself_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Asked] = []

    def pretend(one: Asked) -> Measured:
        asked.append(one)
        return measured(1e9, 5.0, 200.0, msgspec.structs.replace(GRU, rows=one.case.batch, hidden=one.case.hidden))

    monkeypatch.setattr(scaling, "measured_briefly", pretend)
    found = list(points(MIDDLE))
    assert asked.count(MIDDLE) == 1 and len(asked) == 1 + len(TITLES) * (len(FACTORS) - 1)
    assert [point.varied for point in found] == [varied for varied in TITLES for _ in FACTORS]
    assert [point.value for point in found if point.varied == "batch"] == [25, 50, 100, 200, 400]
    assert [point.value for point in found if point.varied == "hidden"] == [2, 4, 10, 20, 40]
