"""The progress of a training, which its checkpoint stores in the header."""

import math
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pellucid.error_messages import translate_expectation
from pellucid.errors import RunError, abbreviate_reason
from pellucid.run_folder.advice import RESTORE_OR_RENAME, add_advice
from pellucid.run_folder.tensor_file import TensorFile, check_format, open_tensors

LOSS_WINDOW = 50
"""Number of updates over which the logged training loss is averaged."""
StopCause = Literal["", "epochs", "patience", "perfect", "time_limit"]
"""Cause of the end of a training: the maximum number of epochs, early stopping (`training.patience`, or
`training.perfect_patience` with a perfect metric), or the time limit; empty if it has not ended."""
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
    """Number of updates at the best validation; 0 before the first one, and for the parameters of an initial run."""
    best_validation_score: tuple[float, float, float] | None = None
    """Score of the best validation so far (`training.loop.validation_score`); None before the first one."""
    validations_since_best: Number = 0
    """Number of validations since the best one."""
    in_last_part: bool = False
    """Whether the last part of the training has begun, whose validations alone count for the best one."""
    plateau_factor: Factor = 1.0
    """Factor of the learning rate in the plateau schedule; 1 in the others."""
    overhead_seconds: Seconds = 0.0
    """Seconds outside updates and validations: reading data, fitting the pair n-gram model, writing files, but not
    compiling kernels. Recorded only with a time limit, of which they are a part."""
    preparation_seconds: Seconds = 0.0
    """Value of `overhead_seconds` at the first update, where the learning rate schedule begins."""
    validation_seconds: Seconds = 0.0
    """Seconds of the last validation; recorded only with a time limit."""
    expected_epochs: Seconds = 0.0
    """Number of epochs for which a time limit is enough, as estimated before the training; 0 without an estimate.

    The interval of the validations is derived from it."""
    stop_cause: StopCause = ""
    """Cause of the end of the training; empty until it has ended. `training.schedule.stop_reason` describes it."""

    @property
    def is_finished(self) -> bool:
        """True if the training has ended."""
        return self.stop_cause != ""

    @property
    def training_loss(self) -> float:
        """Mean training loss of the 1 to `LOSS_WINDOW` updates in the current window; NaN before the first update."""
        return self.loss_sum / ((self.update - 1) % LOSS_WINDOW + 1) if self.update else math.nan


CHECKPOINT_FORMAT = 5
"""Format version of checkpoints."""


def read_progress(path: Path) -> Progress:
    """Return the progress in the header of a checkpoint.

    Args:
        path: Checkpoint file.

    Raises:
        RunError: It is not a checkpoint of this version.
    """
    with add_advice(RESTORE_OR_RENAME), open_tensors(path) as stored:
        check_format(stored, CHECKPOINT_FORMAT)
        return decode_progress(stored)


def decode_progress(stored: TensorFile) -> Progress:
    """Return the progress in the header of an open checkpoint.

    Args:
        stored: The checkpoint.

    Raises:
        RunError: The progress is missing or not valid.
    """
    path, content = stored.path, stored.metadata.get("progress", "")
    try:
        return msgspec.json.decode(content, type=Progress)
    except msgspec.ValidationError as error:
        expectation, _, field_path = abbreviate_reason(error).partition(" - at `$.")
        field = f"progress.{field_path.rstrip('`')}" if field_path else "progress"
        raise RunError(
            f"{path} is not a checkpoint of this version of Pellucid: {field}: {translate_expectation(expectation)}"
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:  # RecursionError: lists nested too deeply
        content = abbreviate_reason(error)
        raise RunError(f"{path} is not a checkpoint of this version of Pellucid: progress: {content}") from error
