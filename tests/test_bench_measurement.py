"""Measurements of a step and of the stages of a training."""

import time

import msgspec
import pytest
from bench_cases import small

from pellucid.bench.cases import BATCHES_PER_CALL, TASKS, BenchTask
from pellucid.bench.measurement import (
    OTHER,
    STAGES,
    StageClock,
    bench_examples,
    build_session,
    encode_pairs,
    iterate_updates,
    measure_case,
    measure_startup,
    profile_training,
    stage_shares,
)
from pellucid.bench.results import ClockReading
from pellucid.bench.roofline import search_work, training_work
from pellucid.config.settings import Cell


@pytest.mark.parametrize(("task", "cell"), [("train", "lstm"), ("greedy", "gru"), ("beam", "lstm")])
def test_numbers_of_a_measurement_agree(task: BenchTask, cell: Cell) -> None:
    result = measure_case(small(task, cell))
    rows, shape = 4, result.shape
    assert (result.task, result.cell, result.threads, result.plain) == (task, cell, 1, False)
    assert result.samples_per_second == pytest.approx(1000 * rows / result.step_ms)
    assert result.samples_per_cpu_second == pytest.approx(1000 * rows / result.step_cpu_ms)
    assert result.tokens_per_second == pytest.approx(result.samples_per_second * shape.steps)
    assert result.floor_ratio == pytest.approx(result.step_cpu_ms / result.floor_ms)
    assert result.floor_ms == pytest.approx(result.floor.total_ms) and result.floor_ratio > 1
    assert result.fastest_cpu_ms <= result.step_cpu_ms <= result.slowest_cpu_ms
    assert result.operations == (training_work if task == "train" else search_work)(shape).operations
    assert result.peak_mib > 50 and result.first_call_seconds >= 0 and result.start_seconds is None
    assert result.steps >= 2 * (1 if task == "train" else BATCHES_PER_CALL)


def test_the_shape_is_that_of_the_data_and_the_network() -> None:
    shape = measure_case(small("train")).shape
    assert (shape.rows, shape.steps, shape.hidden, shape.direction, shape.units) == (4, 4.0, 6, 3, 5)
    assert 4 * 9 < shape.positions < 4 * 20 and shape.gates == 3


@pytest.mark.parametrize("task", TASKS[1:])
def test_every_output_has_as_many_symbols_as_were_asked_for(task: BenchTask) -> None:
    shape = measure_case(small(task)).shape
    assert 3.0 <= shape.steps <= 4.0
    assert shape.beam == (5 if task == "beam" else 1)


def test_plain_pytorch_is_measured_on_request() -> None:
    result = measure_case(msgspec.structs.replace(small("train"), plain=True))
    assert result.plain and result.first_call == "plain"


def test_a_training_goes_on_through_its_epochs_without_a_validation() -> None:
    asked = small()
    examples = bench_examples(asked, 10)
    events = iterate_updates(build_session(asked, encode_pairs(asked, examples), examples))
    passed = [next(events).progress for _ in range(7)]
    assert [progress.update for progress in passed] == list(range(1, 8))
    assert passed[-1].epoch == 2 and passed[-1].validations == 0


def test_the_start_ends_with_the_first_update() -> None:
    start = measure_startup(small(), time.time() - 100)
    assert 100 < start.seconds < 160 and start.cpu_seconds > 0


def test_all_time_is_charged_to_one_stage() -> None:
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
