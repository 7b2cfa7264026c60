"""What a training tells: where it stands, and what has just happened."""

import math
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from pellucid.config.settings import DEFAULT_TASK, Task
from pellucid.decoding.trace import Trace

LOSS_WINDOW = 50
"""Updates over which the training loss is averaged for the log."""


Number = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e12)]
LossSum = Annotated[float, Meta(ge=-1e39, le=1e41)]
Factor = Annotated[float, Meta(ge=0.0, le=1.0)]


class Progress(msgspec.Struct, frozen=True):
    """Where a training stands. With the parameters and the optimiser's moments it decides everything that follows."""

    epoch: Number = 0
    batch: Number = 0
    """Batches passed in this epoch."""
    update: Number = 0
    samples: Number = 0
    seconds: Seconds = 0.0
    loss_sum: LossSum = 0.0
    """Training losses of the updates since the last multiple of `LOSS_WINDOW`, summed."""
    validations: Number = 0
    """Validations that were due by now and made."""
    best_update: Number = 0
    best: tuple[float, float, float] | None = None
    """The best validation so far, as `rank` tells it."""
    stale: Number = 0
    """Validations since the best."""
    plateau_factor: Factor = 1.0
    finished: str = ""
    """Why training ended; empty while it has not."""

    @property
    def training_loss(self) -> float:
        """The mean training loss of the updates in the present window."""
        return self.loss_sum / ((self.update - 1) % LOSS_WINDOW + 1) if self.update else math.nan


class Started(NamedTuple):
    """Training begins, or goes on."""

    progress: Progress
    epochs: float
    updates: int
    """How many updates the longest training has, about."""


class Stepped(NamedTuple):
    """One update was made."""

    progress: Progress
    passed: float
    """Share of the longest training."""
    loss: float
    learning_rate: float
    gradient_norm: float


class Validated(NamedTuple):
    """The development examples were decoded and scored."""

    progress: Progress
    metrics: dict[str, float]
    best: bool
    traces: list[Trace]
    task: Task = DEFAULT_TASK


class Stopped(NamedTuple):
    """Training is over."""

    progress: Progress


Event = Started | Stepped | Validated | Stopped
