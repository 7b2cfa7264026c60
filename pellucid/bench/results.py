"""Results of measurements, and timers of wall clock and CPU."""

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from pellucid.bench.roofline import MachineRates, StepShape, TimeFloor
from pellucid.config.settings import Precision

NUM_WARMUP_STEPS = 3
"""Updates before the steady state, including the first."""
ScaledSize = Literal["length", "batch", "hidden"]
"""Sizes that a scaling curve varies."""


class ClockReading(NamedTuple):
    """Wall-clock time and CPU time in seconds: a reading of both clocks, or the time between two readings."""

    wall: float
    cpu: float
    """CPU time, summed over all threads of the process."""

    def since(self, earlier: "ClockReading") -> "ClockReading":
        """Return the time from an earlier reading to this one.

        Args:
            earlier: Earlier reading of the same clocks.
        """
        return ClockReading(self.wall - earlier.wall, self.cpu - earlier.cpu)


class StepTiming(NamedTuple):
    """Time of a step in seconds."""

    first: float
    """Wall time of the first step, which also loads or compiles kernels."""
    wall: float
    """Median over repeats of the mean wall time of a step; each repeat has an equal share of the steps."""
    cpu: float
    """Median over repeats of the mean CPU time of a step."""
    fastest: float
    """Minimum over repeats of the mean CPU time of a step."""
    slowest: float
    """Maximum over repeats of the mean CPU time of a step."""
    steps: int
    """Number of timed steps after the warmup."""


def read_clocks() -> ClockReading:
    """Return the current readings; only differences of two readings have a meaning."""
    return ClockReading(time.perf_counter(), time.process_time())


def time_steps(
    step: Callable[[], object], seconds: float, repeats: int, num_warmup_steps: int = NUM_WARMUP_STEPS
) -> StepTiming:
    """Call a function repeatedly, and time its calls after a warmup.

    Args:
        step: Function that does one step.
        seconds: Minimum total duration of the timed steps.
        repeats: Number of repeats into which the timed steps are divided; each has at least one step.
        num_warmup_steps: Number of untimed steps before, including the first one, which is always done.

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
    """Divide steps into repeats of consecutive steps; return medians and extremes of the means of the repeats.

    Args:
        first: Wall time of the first step in seconds, which is passed on.
        steps: Time of each step after the warmup; at least `repeats`.
        repeats: Number of repeats.
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
    """"train", "greedy" or "beam"."""
    case: str
    """Name of the case."""
    cell: str
    """"gru" or "lstm"."""
    threads: int
    """CPU threads."""
    plain: bool
    """Whether plain PyTorch without kernels was requested."""
    precision: Precision
    """Precision of the products of an update."""
    samples_per_cpu_second: float
    """Pairs per second of CPU time of all threads."""
    samples_per_second: float
    """Pairs per second of wall time."""
    tokens_per_second: float
    """Target symbols per second of wall time, including EOS."""
    peak_mib: float
    """Peak memory of the process in MiB."""
    floor_ratio: float
    """CPU time of a step divided by its lower bound."""
    floor_ms: float
    """Lower bound of the time of a step."""
    step_ms: float
    """Median wall time of a step."""
    step_cpu_ms: float
    """Median CPU time of a step."""
    fastest_cpu_ms: float
    """Minimum CPU time over the repeats."""
    slowest_cpu_ms: float
    """Maximum CPU time over the repeats."""
    steps: int
    """Number of timed steps after the warmup."""
    first_call_seconds: float
    """Wall time of the first call beyond that of a later one."""
    first_call: FirstCall
    start_seconds: float | None
    """Wall time from process start to the first update of a training; None if not measured."""
    start_cpu_seconds: float | None
    """CPU time from process start to the first update of a training; None if not measured."""
    operations: float
    """Counted operations of a step."""
    floor: TimeFloor
    """Lower bound of the time of a step, by kind of operation."""
    rates: MachineRates
    """Rates of this machine, from which the lower bound is computed."""
    shape: StepShape
    """Sizes of a step, from which its operations are counted."""


class StageTime(msgspec.Struct, frozen=True):
    """Time of one stage of a training, per batch."""

    name: str
    wall_ms: float
    """Milliseconds of wall time per batch."""
    cpu_ms: float
    """Milliseconds of CPU time per batch."""
    wall_share: float
    """Fraction of the wall time of all stages, 0 to 1."""
    cpu_share: float
    """Fraction of the CPU time of all stages, 0 to 1."""


class StartupTime(msgspec.Struct, frozen=True):
    """Time from process start to the first update of a training, in seconds."""

    seconds: float
    """Wall time."""
    cpu_seconds: float
    """CPU time of all threads."""


class ScalingPoint(NamedTuple):
    """One measurement of a scaling curve, in which one size varies."""

    varied: ScaledSize
    """Name of the size that varies."""
    value: int
    """Its value: rounded mean of the source positions of a row, rows of a batch, or hidden units of the decoder."""
    result: BenchResult
