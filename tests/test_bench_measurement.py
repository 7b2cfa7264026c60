"""Measurements of a step and of the stages of a training."""

import time

import msgspec
import pytest
from bench_cases import make_small_request

from pellucid.bench.cases import BATCHES_PER_CALL, TASKS, BenchTask
from pellucid.bench.measurement import (
    OTHER,
    STAGES,
    StageClock,
    bench_examples,
    build_training_state,
    encode_bench_examples,
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
    result = measure_case(make_small_request(task, cell))
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


def test_shape_is_that_of_the_data_and_the_network() -> None:
    shape = measure_case(make_small_request("train")).shape
    assert (shape.rows, shape.steps, shape.hidden, shape.direction, shape.units) == (4, 4.0, 6, 3, 5)
    assert 4 * 9 < shape.positions < 4 * 20 and shape.gates == 3


@pytest.mark.parametrize("task", TASKS[1:])
def test_outputs_have_the_requested_number_of_symbols(task: BenchTask) -> None:
    shape = measure_case(make_small_request(task)).shape
    assert 3.0 <= shape.steps <= 4.0
    assert shape.beam == (5 if task == "beam" else 1)


def test_plain_pytorch_is_measured_on_request() -> None:
    result = measure_case(msgspec.structs.replace(make_small_request("train"), plain=True))
    assert result.plain and result.first_call == "plain"


def test_training_passes_epochs_without_validation() -> None:
    request = make_small_request()
    examples = bench_examples(request, 10)
    events = iterate_updates(build_training_state(request, *encode_bench_examples(request, examples), examples))
    updates = [next(events).progress for _ in range(7)]
    assert [progress.update for progress in updates] == list(range(1, 8))
    assert updates[-1].epoch == 2 and updates[-1].validations == 0


def test_startup_time_ends_with_the_first_update() -> None:
    start = measure_startup(make_small_request(), time.time() - 100)
    assert 100 < start.seconds < 160 and start.cpu_seconds > 0


def test_all_time_is_attributed_to_one_stage() -> None:
    started = time.perf_counter()
    clock = StageClock()
    for stage in (STAGES[0], STAGES[1], STAGES[0]):
        clock.enter(stage)
        time.sleep(0.02)
    clock.enter(OTHER)
    elapsed = time.perf_counter() - started
    assert clock.spent[STAGES[0]].wall >= 0.04 and clock.spent[STAGES[1]].wall >= 0.02
    assert sum(tick.wall for tick in clock.spent.values()) <= elapsed
    assert sum(tick.wall for tick in clock.spent.values()) == pytest.approx(elapsed, abs=0.01)


def test_timed_function_counts_for_its_stage_and_later_time_for_the_next() -> None:
    def wait(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    clock = StageClock()
    timed_wait = clock.time_function(STAGES[0], STAGES[1], wait)
    assert timed_wait(0.02) == 0.02 and clock.stage == STAGES[1]
    assert clock.spent[STAGES[0]].wall >= 0.02 > clock.spent[STAGES[1]].wall


def test_stage_times_are_per_batch_with_shares_of_the_total() -> None:
    times = {stage: (ClockReading(0.0, 0.0), 1) for stage in STAGES}
    stages = stage_shares({**times, STAGES[0]: (ClockReading(3.0, 1.0), 10), STAGES[2]: (ClockReading(0.5, 0.3), 5)})
    assert [stage.name for stage in stages] == list(STAGES)
    assert (stages[0].wall_ms, stages[0].cpu_ms) == pytest.approx((300.0, 100.0))
    assert (stages[0].wall_share, stages[2].wall_share, stages[2].cpu_share) == pytest.approx((0.75, 0.25, 0.375))


@pytest.mark.parametrize("plain", [False, True])
def test_training_has_all_stages_and_shares_sum_to_one(plain: bool) -> None:
    stages = profile_training(msgspec.structs.replace(make_small_request(seconds=0.2), plain=plain))
    assert [stage.name for stage in stages] == list(STAGES)
    assert all(stage.wall_ms > 0 for stage in stages), stages
    assert sum(stage.wall_share for stage in stages) == pytest.approx(1)
    assert sum(stage.cpu_share for stage in stages) == pytest.approx(1)
    assert all(stage.wall_share < 0.7 for stage in stages)
