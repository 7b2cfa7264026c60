"""Records of the training log, one JSON object per line."""

import math
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pellucid.files import parse_json

RecordedCount = Annotated[int, Meta(ge=0, le=2**53)]
"""A number that every reader of JSON represents exactly."""
Percentage = Annotated[float, Meta(ge=0.0, le=100.0)]
Number = Annotated[int, Meta(ge=-(2**53), le=2**53)] | float
OptionalFloat = float | UnsetType
Value = Number | str | bool | None | list[str]
"""Value of a key; records are not nested."""
MAX_KEYS = 100
"""Maximum number of keys of a record."""


class RecordWithoutProgress(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Base of log records of events outside the training loop.

    They hold no numbers of updates, validations, samples or seconds.
    """

    update: None = None
    validation: None = None
    samples: None = None
    seconds: None = None


class CompilingRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="compiling"):
    """Kernels are about to be compiled."""


class SizeChosenRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="size_chosen"):
    """The size of a training was chosen: by the number of pairs, or for a time limit by the speed of a few updates."""

    size: str
    time_limit: str = ""
    """Empty for a size that was chosen by the number of pairs."""
    pairs: RecordedCount | None = None
    """Number of pairs that has determined the size, held-out pairs included; None for a time limit."""
    held_out: RecordedCount | None = None
    """Number of those that are held out for validation."""
    batch_size: str
    """Size of a batch with its unit: "32 examples"."""
    updates_small: RecordedCount | None = None
    """Estimated number of updates of the size `small`; None if it was not measured."""
    updates_base: RecordedCount | None = None
    updates_large: RecordedCount | None = None
    reason: str = ""
    """Why this size was chosen, or for a time limit no larger one; empty if the time is enough for the largest."""


class ReadRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="read"):
    """The training or the validation file was read."""

    path: str
    examples: RecordedCount
    """Number of examples read."""
    blank_lines: RecordedCount
    """Number of blank lines, which are skipped."""
    bad_lines: list[str]
    """Description of each bad line, which is skipped, or of the first ones."""
    num_bad_lines: RecordedCount | None = None
    """Number of bad lines; None if all are described."""
    target: str | None = None
    """Separate file of the targets; None if `path` holds pairs."""
    size: RecordedCount | None = None
    """Size of `path` in bytes; None if it was no regular file."""
    sha256: str | None = None
    """SHA-256 of the bytes of `path` in hexadecimal, without which no later command opens the file."""
    target_size: RecordedCount | None = None
    target_sha256: str | None = None
    shared: RecordedCount = 0
    """Number of validation examples that are training examples, too."""


class AugmentedRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="augmented"):
    """Synthetic pairs were added to the training examples."""

    examples: RecordedCount
    """Number of pairs in the file."""
    made: RecordedCount
    """Number of synthetic pairs."""
    kind: str = ""
    """Kind of augmentation: "copy" or "hallucinate"."""


class MixedInRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="mixed_in"):
    """Earlier training pairs were read, some of which are drawn for each epoch."""

    path: str
    examples: RecordedCount
    """Number of pairs in the file."""
    per_epoch: RecordedCount
    """Number of them that are drawn for each epoch."""
    new_examples: RecordedCount
    """Number of other training examples."""
    bad_lines: RecordedCount
    """Number of lines that were skipped."""
    sha256: str | None = None
    """SHA-256 of the file in hexadecimal; None if it was no regular file."""


class InitializedRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="initialized"):
    """The network received the parameters of an initial run."""

    run: str
    """Folder of the initial run."""
    sha256: str
    """SHA-256 of its model file in hexadecimal."""
    new_source: RecordedCount
    """Number of source symbols that the initial run lacks."""
    new_target: RecordedCount
    """Number of target symbols that the initial run lacks."""
    new_features: RecordedCount
    """Number of features that the initial run lacks."""
    new_characters: RecordedCount = 0
    """Number of characters of source words that the initial run lacks."""


class PairNgramRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="pair_ngram"):
    """A pair n-gram model was fitted to the training examples, before the first update, or none could be fitted."""

    examples: RecordedCount
    """Number of examples to which it was fitted; 0 if there is no model, and then it is not fitted again."""
    exact_match: Percentage
    """Percentage of validation sources whose best output, by this model alone, is correct; 0 without sources."""
    sources: RecordedCount | None = None
    """Number of these different sources; None in logs of earlier versions."""


class PairNgramWeightRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="interpolated"):
    """The interpolation weight of the pair n-gram model in predictions was chosen, at the end of the training.

    The tag is that of stored logs.
    """

    weight: Annotated[float, Meta(ge=0.0, le=1.0)]
    """Interpolation weight of its scores, 0 to 1."""
    exact_match: Percentage
    """Percentage of validation sources whose best output, by the interpolated score, is correct."""
    network_exact_match: Percentage
    """Percentage of correct outputs if the network alone ranks the candidates."""
    pair_ngram_exact_match: Percentage | None = None
    """Percentage of correct outputs if the pair n-gram model alone ranks the candidates; None in logs of earlier
    versions."""
    sources: RecordedCount
    """Number of different validation sources."""
    in_predictions: bool = True
    """Whether the search settings of the run use the weight."""


class ConfidenceRecord(RecordWithoutProgress, frozen=True, kw_only=True, tag="confidence"):
    """The confidence of outputs was fitted, at the end of the training."""

    examples: RecordedCount
    """Number of validation pairs to which it was fitted."""
    exact_match: Percentage
    """Percentage of them whose output is correct."""
    probability_error: Percentage
    """Expected calibration error of the probabilities of these outputs, in percent."""
    confidence_error: Percentage
    """Expected calibration error of the confidences, which were fitted to these outputs, in percent."""


class ProgressRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Base of log records that hold the updates, samples, epochs and seconds so far."""

    update: RecordedCount
    samples: RecordedCount
    epoch: RecordedCount
    """Number of epochs before that of the last update: 0 in the first epoch, also at its end. The lines of a training
    and its card count epochs from 1."""
    seconds: float
    """Seconds of updates and validations so far."""
    validation: RecordedCount | UnsetType = UNSET
    """Number of validations so far; only with a validation."""


class StartedRecord(ProgressRecord, frozen=True, kw_only=True, tag="started"):
    """A training started or resumed."""

    epochs: OptionalFloat = UNSET
    """Maximum number of epochs."""
    updates: RecordedCount | UnsetType = UNSET
    """Approximate maximum number of updates."""
    batch_size: RecordedCount | UnsetType = UNSET
    """Batch size, which is derived from the data if the settings have none."""
    time: str | UnsetType = UNSET
    """Local time with its offset from UTC: 2026-01-31T12:00:00+0100."""
    fingerprint: str | UnsetType = UNSET
    """Hash of the settings and the data of the training."""
    versions: str | UnsetType = UNSET
    """Versions of Pellucid and of the packages of its extensions: "pellucid 0.1.0, my-attention 1"."""
    commit: str | UnsetType = UNSET
    """Commit of the clone that Pellucid ran from; only in a clone."""
    python: str | UnsetType = UNSET
    """Version of Python."""
    torch: str | UnsetType = UNSET
    """Version of PyTorch."""
    numba: str | UnsetType = UNSET
    """Version of Numba."""
    processor: str | UnsetType = UNSET
    """Model of the processor."""
    gpu: str | UnsetType = UNSET
    """Model of the GPU; only for a training on one."""
    threads: RecordedCount | UnsetType = UNSET
    """Number of threads of PyTorch."""


class SteppedRecord(ProgressRecord, frozen=True, kw_only=True, tag="stepped"):
    """A window of 50 updates (`LOSS_WINDOW`) was done."""

    loss: float
    """Mean training loss of the window."""
    learning_rate: OptionalFloat = UNSET
    """Learning rate of the last update."""
    gradient_norm: OptionalFloat = UNSET
    """Gradient norm of the last update, before clipping by norm."""


class ValidatedRecord(ProgressRecord, frozen=True, kw_only=True, tag="validated"):
    """The validation set was decoded and evaluated."""

    exact_match: float
    """Percentage of exactly correct outputs."""
    symbol_error_rate: float
    """Percentage, which may exceed 100."""
    symbol_accuracy: float
    """Percentage."""
    loss: float
    """Validation loss: cross-entropy per target symbol."""
    best: bool
    """True if this validation is better than all before it."""
    span_f1: OptionalFloat = UNSET
    """F1 of labeled spans in percent, for BIO tags."""
    training_loss: OptionalFloat = UNSET
    """Mean training loss of the updates in the current window."""


class StoppedRecord(ProgressRecord, frozen=True, kw_only=True, tag="stopped"):
    """The training reached its end."""

    reason: str = ""
    """Reason of the end, as a clause (`training.schedule.stop_reason`)."""


LogRecord = (
    CompilingRecord
    | SizeChosenRecord
    | ReadRecord
    | AugmentedRecord
    | MixedInRecord
    | InitializedRecord
    | PairNgramRecord
    | PairNgramWeightRecord
    | ConfidenceRecord
    | StartedRecord
    | SteppedRecord
    | ValidatedRecord
    | StoppedRecord
)


_VALUES, _RECORD = msgspec.json.Decoder(dict[str, Value]), msgspec.json.Decoder(LogRecord)


def parse_record(line: str) -> dict[str, Any] | None:
    """Return the record of a line as a dict, or None for a damaged line.

    A line is damaged if it is not a JSON object, its "event" is unknown, a field of the event is missing or has another
    type, a value is nested (other than a list of str), a number is not finite, or it has more than `MAX_KEYS` keys.
    Other keys are kept, and keys with the value null are dropped.

    Args:
        line: Line of a training log.
    """
    try:
        try:
            record = _VALUES.decode(line)
            _RECORD.decode(line)
        except msgspec.DecodeError:  # decoders are fast, but refuse the surrogates of undecodable file names
            record = msgspec.convert(parse_json(line), dict[str, Value])
            msgspec.convert(record, LogRecord)
        # A line with one colon per key has no key twice; others, such as a line with a time, are parsed again for that.
        if line.count(":") != len(record):
            parse_json(line)
    except ValueError:
        return None
    if len(record) > MAX_KEYS or not all(
        [math.isfinite(value) for value in record.values() if isinstance(value, float)]
    ):
        return None
    return {key: value for key, value in record.items() if value is not None} if None in record.values() else record
