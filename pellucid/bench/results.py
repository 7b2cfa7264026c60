"""Results of measurements, the machine, and timers of wall clock and processor."""

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from pellucid.bench.roofline import Floor, Rates, Shape

SKIPPED = 3
"""Updates before the state counts as steady, the first included."""


class Tick(NamedTuple):
    """Seconds on either clock."""

    wall: float
    cpu: float
    """Of all threads of this process together."""

    def since(self, earlier: "Tick") -> "Tick":
        """What has passed between two ticks."""
        return Tick(self.wall - earlier.wall, self.cpu - earlier.cpu)


class Timing(NamedTuple):
    """The seconds of a step."""

    first: float
    """Of the first step on the wall, all that it had to load included."""
    wall: float
    cpu: float
    """Medians over the repeats, each of which is a mean over its share of the steps."""
    fastest: float
    slowest: float
    """The extremes of the repeats, in processor seconds."""
    steps: int
    """Steps in the steady state."""


def now() -> Tick:
    """Both clocks."""
    return Tick(time.perf_counter(), time.process_time())


def timed(step: Callable[[], object], seconds: float, repeats: int, skipped: int = SKIPPED) -> Timing:
    """Take a step again and again for so many seconds, at least once a repeat, after those that are skipped."""
    first = _one(step)
    for _ in range(skipped - 1):
        step()
    steps: list[Tick] = []
    began = time.perf_counter()
    while len(steps) < repeats or time.perf_counter() - began < seconds:
        steps.append(_one(step))
    return summary(first.wall, steps, repeats)


def summary(first: float, steps: Sequence[Tick], repeats: int) -> Timing:
    """Medians over repeats, each a run of consecutive steps."""
    ends = [len(steps) * repeat // repeats for repeat in range(repeats + 1)]
    runs = [steps[start:end] for start, end in pairwise(ends)]
    wall = [statistics.mean(step.wall for step in run) for run in runs]
    cpu = [statistics.mean(step.cpu for step in run) for run in runs]
    return Timing(first, statistics.median(wall), statistics.median(cpu), min(cpu), max(cpu), len(steps))


def _one(step: Callable[[], object]) -> Tick:
    """How long one step takes."""
    began = now()
    step()
    return now().since(began)


FirstCall = Literal["loaded", "compiled", "plain"]
"""What the first call did with kernels: took them from the disk, compiled them, or did without."""


class Measured(msgspec.Struct, frozen=True):
    """What came out. A step is one update of training, or one batch decoded."""

    task: str
    case: str
    cell: str
    threads: int
    plain: bool
    samples_per_cpu_second: float
    samples_per_second: float
    tokens_per_second: float
    """Target symbols learned or written a second on the wall, the end's included where there is one."""
    peak_mib: float
    floor_ratio: float
    """Processor time of a step over the floor."""
    floor_ms: float
    step_ms: float
    """On the wall."""
    step_cpu_ms: float
    fastest_cpu_ms: float
    slowest_cpu_ms: float
    """The extremes of the repeats."""
    steps: int
    """Steps in the steady state."""
    first_call_seconds: float
    """What the first step took on the wall beyond any other."""
    first_call: FirstCall
    start_seconds: float | None
    """From the start of the process to the first update, for training, on the wall."""
    start_cpu_seconds: float | None
    operations: float
    """The counted work of a step."""
    floor: Floor
    rates: Rates
    shape: Shape


class Stage(msgspec.Struct, frozen=True):
    """One stage of a training: milliseconds a batch, and shares of all stages."""

    name: str
    wall_ms: float
    cpu_ms: float
    wall_share: float
    cpu_share: float


class Start(msgspec.Struct, frozen=True):
    """How long a process took from its start to its first update."""

    seconds: float
    """On the wall."""
    cpu_seconds: float
