"""Where the time of a training goes: every moment in one stage, and every stage seen."""

import time

import msgspec
import pytest
from bench_cases import small

from pellucid.bench.measurement import OTHER, STAGES, StageClock, profile_training, stage_shares
from pellucid.bench.results import ClockReading


def test_every_moment_counts_for_one_stage() -> None:
    began = time.perf_counter()
    clock = StageClock()
    for stage in (STAGES[0], STAGES[1], STAGES[0]):
        clock.enter(stage)
        time.sleep(0.02)
    clock.enter(OTHER)
    passed = time.perf_counter() - began
    assert clock.spent[STAGES[0]].wall >= 0.04 and clock.spent[STAGES[1]].wall >= 0.02
    assert sum(tick.wall for tick in clock.spent.values()) <= passed
    assert sum(tick.wall for tick in clock.spent.values()) == pytest.approx(passed, abs=0.01)


def test_a_function_counts_for_its_stage_and_what_follows_for_the_next() -> None:
    def wait(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    clock = StageClock()
    slow = clock.within(STAGES[0], STAGES[1], wait)
    assert slow(0.02) == 0.02 and clock.stage == STAGES[1]
    assert clock.spent[STAGES[0]].wall >= 0.02 > clock.spent[STAGES[1]].wall


def test_times_are_a_batch_and_shares_of_all() -> None:
    spent = {stage: (ClockReading(0.0, 0.0), 1) for stage in STAGES}
    told = stage_shares({**spent, STAGES[0]: (ClockReading(3.0, 1.0), 10), STAGES[2]: (ClockReading(0.5, 0.3), 5)})
    assert [stage.name for stage in told] == list(STAGES)
    assert (told[0].wall_ms, told[0].cpu_ms) == pytest.approx((300.0, 100.0))
    assert (told[0].wall_share, told[2].wall_share, told[2].cpu_share) == pytest.approx((0.75, 0.25, 0.375))


@pytest.mark.parametrize("plain", [False, True])
def test_a_training_passes_through_all_stages_and_shares_sum_to_one(plain: bool) -> None:
    stages = profile_training(msgspec.structs.replace(small(seconds=0.2), plain=plain))
    assert [stage.name for stage in stages] == list(STAGES)
    assert all(stage.wall_ms > 0 for stage in stages), stages
    assert sum(stage.wall_share for stage in stages) == pytest.approx(1)
    assert sum(stage.cpu_share for stage in stages) == pytest.approx(1)
    assert all(stage.wall_share < 0.7 for stage in stages)
