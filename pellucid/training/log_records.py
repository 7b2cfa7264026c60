"""Records of the training log, one JSON object per line."""

import math
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pellucid.files import parse_json

Count = Annotated[int, Meta(ge=0, le=2**53)]
Number = Annotated[int, Meta(ge=-(2**53), le=2**53)] | float
OptionalFloat = float | UnsetType
Value = Number | str | bool | None | list[str]
"""Value of a key; records are not nested."""


class RecordWithoutProgress(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Base of log records that hold no updates, samples, epochs or seconds."""

    update: None = None
    samples: None = None
    seconds: None = None


class CompilingRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="compiling"):
    """Kernels are about to be compiled."""


class ReadRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="read"):
    """A data file was read."""

    path: str
    examples: Count
    blank_lines: Count
    bad_lines: list[str]
    target: str | None = None


class AugmentedRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="augmented"):
    """Synthetic pairs were added."""

    examples: Count
    made: Count
    kind: str = ""


class ProgressRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Base of log records that hold the updates, samples, epochs and seconds so far."""

    update: Count
    samples: Count
    epoch: Count
    seconds: float


class StartedRecord(ProgressRecord, frozen=True, kw_only=True, tag="started"):
    """A training started or resumed."""

    epochs: OptionalFloat = UNSET
    updates: Count | UnsetType = UNSET
    time: str | UnsetType = UNSET


class SteppedRecord(ProgressRecord, frozen=True, kw_only=True, tag="stepped"):
    """Some updates were done; the loss is their mean."""

    loss: float
    learning_rate: OptionalFloat = UNSET
    gradient_norm: OptionalFloat = UNSET


class ValidatedRecord(ProgressRecord, frozen=True, kw_only=True, tag="validated"):
    """The validation set was decoded and evaluated."""

    exact_match: float
    symbol_error_rate: float
    symbol_accuracy: float
    loss: float
    best: bool
    span_f1: OptionalFloat = UNSET
    training_loss: OptionalFloat = UNSET


class StoppedRecord(ProgressRecord, frozen=True, kw_only=True, tag="stopped"):
    """The training finished."""

    reason: str = ""


LogRecord = (
    CompilingRecord | ReadRecord | AugmentedRecord | StartedRecord | SteppedRecord | ValidatedRecord | StoppedRecord
)


def parse_record(line: str) -> dict[str, Any] | None:
    """Return the record of a line, or None for a damaged line.

    Unknown keys with plain values are kept, and nulls are dropped. Every number is finite.

    Args:
        line: Line of a training log.
    """
    try:
        record = msgspec.convert(parse_json(line), dict[str, Value])
        msgspec.convert(record, LogRecord)
    except ValueError:
        return None
    if not all(math.isfinite(value) for value in record.values() if isinstance(value, float)):
        return None
    return {key: value for key, value in record.items() if value is not None}
