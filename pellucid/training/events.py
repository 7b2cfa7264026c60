"""Events of a training, and its progress."""

import math
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from pellucid.config.settings import DEFAULT_TASK, Task
from pellucid.decoding.trace import Trace

LOSS_WINDOW = 50
"""Number of updates over which the logged training loss is averaged."""


Number = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e12)]
LossSum = Annotated[float, Meta(ge=-1e39, le=1e41)]
Factor = Annotated[float, Meta(ge=0.0, le=1.0)]


class Progress(msgspec.Struct, frozen=True):
    """Progress of a training. With the parameters and the optimizer state it determines everything that follows."""

    epoch: Number = 0
    batch: Number = 0
    """Number of batches done in this epoch."""
    update: Number = 0
    samples: Number = 0
    seconds: Seconds = 0.0
    loss_sum: LossSum = 0.0
    """Sum of the training losses since the last multiple of `LOSS_WINDOW` updates."""
    validations: Number = 0
    """Number of validations done."""
    best_update: Number = 0
    best: tuple[float, float, float] | None = None
    """Rank of the best validation so far; see `rank`."""
    stale: Number = 0
    """Number of validations since the best."""
    plateau_factor: Factor = 1.0
    finished: str = ""
    """Reason for the end of the training; empty while it runs."""

    @property
    def training_loss(self) -> float:
        """Mean training loss of the updates in the current window."""
        return self.loss_sum / ((self.update - 1) % LOSS_WINDOW + 1) if self.update else math.nan


class TrainingStarted(NamedTuple):
    """A training started or resumed."""

    progress: Progress
    epochs: float
    updates: int
    """Approximate maximum number of updates."""


class UpdateCompleted(NamedTuple):
    """One parameter update was done."""

    progress: Progress
    passed: float
    """Fraction of the maximum training length."""
    loss: float
    learning_rate: float
    gradient_norm: float


class ValidationCompleted(NamedTuple):
    """The validation set was decoded and evaluated."""

    progress: Progress
    metrics: dict[str, float]
    best: bool
    traces: list[Trace]
    task: Task = DEFAULT_TASK


class TrainingStopped(NamedTuple):
    """The training finished."""

    progress: Progress


Event = TrainingStarted | UpdateCompleted | ValidationCompleted | TrainingStopped
