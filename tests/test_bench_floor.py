"""The floor: each part over its rate, and the look the longer of computing and reading."""

import msgspec
import pytest
from bench_cases import RATES

from pellucid.bench.roofline import StepWork, compute_floor

WORK = StepWork(
    multiply_adds=3e9,
    bends=1_000,
    energies=2_000,
    exponentials=4_000,
    look_multiply_adds=1e6,
    look_bytes=1_000,
    update_bytes=5_000,
)


def test_each_part_is_its_work_over_its_rate() -> None:
    floor = compute_floor(WORK, RATES)
    parts = (floor.products_ms, floor.bends_ms, floor.look_ms, floor.softmax_ms, floor.update_ms)
    assert parts == pytest.approx((3000, 1, 2 + 1, 4, 5))
    assert floor.total_ms == pytest.approx(sum(parts))


def test_reading_counts_only_where_it_takes_longer_than_computing() -> None:
    slow = msgspec.structs.replace(RATES, row_bytes=1e5)
    assert compute_floor(WORK, slow).look_ms == pytest.approx(10)
    assert compute_floor(WORK, slow).total_ms == pytest.approx(compute_floor(WORK, RATES).total_ms + 7)


def test_no_work_takes_no_time() -> None:
    assert compute_floor(StepWork(0, 0, 0, 0, 0, 0, 0), RATES).total_ms == 0
