"""Events of the training loop."""

from typing import NamedTuple

from pellucid.config.settings import DEFAULT_TASK, TaskName
from pellucid.decoding.trace import Trace
from pellucid.run_folder.progress import Progress


class TrainingStarted(NamedTuple):
    """A training started or resumed."""

    progress: Progress
    epochs: float
    """Maximum number of epochs."""
    updates: int
    """Maximum number of updates; approximate if batches are measured in tokens."""
    seconds_left: float | None = None
    """Seconds until the time limit; None without one."""


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
