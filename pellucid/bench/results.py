"""Results of measurements, and timers of wall clock and CPU."""

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from pellucid.bench.roofline import MachineRates, StepShape, TimeFloor

NUM_WARMUP_STEPS = 3
"""Updates before the steady state, including the first."""


class ClockReading(NamedTuple):
    """Seconds of wall clock and CPU."""

    wall: float
    cpu: float
    """CPU time, summed over all threads of the process."""

    def since(self, earlier: "ClockReading") -> "ClockReading":
        """Return the time between two readings.

        Args:
            earlier: Earlier reading of the clocks.
        """
        return ClockReading(self.wall - earlier.wall, self.cpu - earlier.cpu)


class StepTiming(NamedTuple):
    """Time of a step in seconds."""

    first: float
    """Wall time of the first step, including loading."""
    wall: float
    """Median wall time over repeats; a repeat is the mean over its share of the steps."""
    cpu: float
    """Median CPU time over repeats."""
    fastest: float
    """Minimum CPU time of a repeat."""
    slowest: float
    """Maximum CPU time of a repeat."""
    steps: int
    """Number of steps in the steady state."""


def read_clocks() -> ClockReading:
    """Return both clocks."""
    return ClockReading(time.perf_counter(), time.process_time())


def time_steps(
    step: Callable[[], object], seconds: float, repeats: int, num_warmup_steps: int = NUM_WARMUP_STEPS
) -> StepTiming:
    """Time a step in the steady state.

    Args:
        step: Function that takes the step.
        seconds: Minimum duration of the steady state.
        repeats: Number of repeats; each has at least one step.
        num_warmup_steps: Steps before the steady state, including the first.

    Returns:
        Medians and extremes over the repeats.
    """
    first = _time_step(step)
    for _ in range(num_warmup_steps - 1):
        step()
    steps: list[ClockReading] = []
    started = time.perf_counter()
    while len(steps) < repeats or time.perf_counter() - started < seconds:
        steps.append(_time_step(step))
    return summarize_steps(first.wall, steps, repeats)


def summarize_steps(first: float, steps: Sequence[ClockReading], repeats: int) -> StepTiming:
    """Return medians and extremes over repeats of consecutive steps.

    Args:
        first: Wall time of the first step in seconds.
        steps: Times of the steps in the steady state.
        repeats: Number of repeats, among which the steps are divided.
    """
    ends = [len(steps) * repeat // repeats for repeat in range(repeats + 1)]
    runs = [steps[start:end] for start, end in pairwise(ends)]
    wall = [statistics.mean(step.wall for step in run) for run in runs]
    cpu = [statistics.mean(step.cpu for step in run) for run in runs]
    return StepTiming(first, statistics.median(wall), statistics.median(cpu), min(cpu), max(cpu), len(steps))


def _time_step(step: Callable[[], object]) -> ClockReading:
    """Return the time of one step."""
    started = read_clocks()
    step()
    return read_clocks().since(started)


FirstCall = Literal["loaded", "compiled", "plain"]
"""Kernels at the first call: loaded from disk, compiled, or not used."""


class BenchResult(msgspec.Struct, frozen=True):
    """Result of a measurement; a step is one training update or one decoded batch."""

    task: str
    case: str
    cell: str
    threads: int
    plain: bool
    samples_per_cpu_second: float
    samples_per_second: float
    tokens_per_second: float
    """Target symbols per wall second, including end symbols."""
    peak_mib: float
    floor_ratio: float
    """CPU time of a step divided by its lower bound."""
    floor_ms: float
    step_ms: float
    """Wall time."""
    step_cpu_ms: float
    fastest_cpu_ms: float
    """Minimum of the repeats."""
    slowest_cpu_ms: float
    """Maximum of the repeats."""
    steps: int
    """Number of steps in the steady state."""
    first_call_seconds: float
    """Additional wall time of the first step."""
    first_call: FirstCall
    start_seconds: float | None
    """Wall time from process start to the first update of a training."""
    start_cpu_seconds: float | None
    operations: float
    """Counted operations of a step."""
    floor: TimeFloor
    rates: MachineRates
    shape: StepShape


class StageTime(msgspec.Struct, frozen=True):
    """A stage of a training: milliseconds per batch and shares of the total."""

    name: str
    wall_ms: float
    cpu_ms: float
    wall_share: float
    cpu_share: float


class StartupTime(msgspec.Struct, frozen=True):
    """Time from process start to the first update."""

    seconds: float
    """Wall time."""
    cpu_seconds: float
