"""What measurements tell; light, so that the process which asks for them stays small."""

from typing import Literal

import msgspec

from pellucid.bench.floor import Floor, Rates
from pellucid.bench.work import Shape

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
    """Target symbols learnt or written a second on the wall, the end's included where there is one."""
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
