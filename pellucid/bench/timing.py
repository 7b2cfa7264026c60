"""Steps timed by the clock on the wall and by the processor's."""

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

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
