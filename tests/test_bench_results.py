"""Timing of steps: medians over repeats, without the warmup steps."""

import time

import pytest

from pellucid.bench.results import NUM_WARMUP_STEPS, ClockReading, summarize_steps, time_steps


def test_result_is_the_median_of_repeats_of_consecutive_steps() -> None:
    steps = [ClockReading(wall, cpu) for wall, cpu in [(1, 1), (3, 1), (10, 4), (10, 6), (2, 2), (4, 2)]]
    timing = summarize_steps(7.0, steps, 3)
    assert timing == (7.0, 3.0, 2.0, 1.0, 5.0, 6)


def test_steps_are_timed_on_both_clocks_after_the_warmup_steps() -> None:
    calls: list[int] = []

    def step() -> None:
        calls.append(1)
        time.sleep(0.1 if len(calls) == 1 else 0.01)

    timing = time_steps(step, 0.01, 4)
    assert timing.steps >= 4 and len(calls) == NUM_WARMUP_STEPS + timing.steps
    assert timing.first >= 0.1 > timing.wall >= 0.01
    assert 0 <= timing.fastest <= timing.cpu <= timing.slowest


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_every_step_belongs_to_a_repeat(repeats: int) -> None:
    timing = summarize_steps(0.0, [ClockReading(2.0, 2.0)] * 7, repeats)
    assert (timing.wall, timing.cpu, timing.steps) == (2.0, 2.0, 7)
