"""Events of a training, and its progress."""

import math
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from pellucid.config.settings import DEFAULT_TASK, TaskName
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
    """Index of the current epoch, from 0. It grows with the first batch of the next epoch."""
    batch: Number = 0
    """Number of batches done in this epoch."""
    update: Number = 0
    """Number of parameter updates so far."""
    samples: Number = 0
    """Number of training examples so far; an example counts once per epoch."""
    seconds: Seconds = 0.0
    """Seconds of all updates and validations, without reading data, compiling kernels and writing files."""
    loss_sum: LossSum = 0.0
    """Sum of the training losses of the updates in the current window of `LOSS_WINDOW`; see `training_loss`."""
    validations: Number = 0
    """Number of validations done."""
    best_update: Number = 0
    """Number of updates at the best validation; 0 before the first one."""
    best: tuple[float, float, float] | None = None
    """Rank of the best validation so far, as `loop.validation_rank` returns it; None before the first one."""
    stale: Number = 0
    """Number of validations since the best one."""
    plateau_factor: Factor = 1.0
    """Factor of the learning rate in the plateau schedule; 1 in the others."""
    finished: str = ""
    """Reason for the end of the training; empty until it has ended."""

    @property
    def training_loss(self) -> float:
        """Mean training loss of the 1 to `LOSS_WINDOW` updates in the current window; NaN before the first update."""
        return self.loss_sum / ((self.update - 1) % LOSS_WINDOW + 1) if self.update else math.nan


class TrainingStarted(NamedTuple):
    """A training started or resumed."""

    progress: Progress
    epochs: float
    """Maximum number of epochs."""
    updates: int
    """Maximum number of updates; approximate if batches are measured in tokens."""


class UpdateCompleted(NamedTuple):
    """One parameter update was done."""

    progress: Progress
    """Progress after the update."""
    passed: float
    """Fraction of the maximum training length at the middle of the update, 0 to 1, for the schedules."""
    loss: float
    """Training loss of the batch."""
    learning_rate: float
    gradient_norm: float
    """Norm of all gradients after clipping by value and before clipping by norm."""


class ValidationCompleted(NamedTuple):
    """The validation set was decoded and evaluated."""

    progress: Progress
    """Progress after the validation."""
    metrics: dict[str, float]
    """Validation metrics by their keys in the log: rates in percent, and the loss."""
    best: bool
    """True if this validation is better than all before it."""
    traces: list[Trace]
    """Traces of the validation examples in order; empty in events that a worker process sends."""
    task: TaskName = DEFAULT_TASK


class PairNgramFitted(NamedTuple):
    """A pair n-gram model was fitted to the training examples, or read from the run folder."""

    examples: int
    """Number of examples to which it was fitted."""
    available: int
    """Number of training examples. Those beyond a limit of size, without an alignment, or with unknown symbols are left
    out."""
    exact_match: float
    """Percentage of validation sources whose best output, by this model alone, is correct."""


class PairNgramWeighted(NamedTuple):
    """The weight of the pair n-gram model in predictions was chosen."""

    weight: float
    """Weight of its scores, 0 to 1; 0 if the network alone is at least as good."""
    exact_match: float
    """Percentage of validation sources whose best output, by both models, is correct."""
    network_exact_match: float
    """The same by the network alone, with the same search."""
    sources: int
    """Number of different validation sources."""


class TrainingStopped(NamedTuple):
    """The training reached its end, by maximum length or early stopping. An interruption has no such event."""

    progress: Progress


Event = TrainingStarted | UpdateCompleted | ValidationCompleted | TrainingStopped
