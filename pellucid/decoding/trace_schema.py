"""The JSON form of a trace: one versioned schema for `predict --output-format jsonl`, snapshots, the page and files.

TypeScript's types are generated from it. docs/guides/decoding.md documents every field.

T steps (the end symbol's included), S source positions, N heads, L attention hops, M nodes of a search tree, P rows of
its attention weights.
"""

import base64
import math
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from pellucid.argument_checks import convert_argument, replace_surrogates
from pellucid.config.settings import DEFAULT_TASK, TaskName
from pellucid.error_messages import describe_value, escape_json
from pellucid.errors import DataError, abbreviate_reason, quote
from pellucid.shapes import Float

VERSION = 4
"""Version of the schema. A reader of JSON also reads `FORMER_VERSION`, and refuses every other version."""
FORMER_VERSION = 3
FORMER_NAMES = {
    "num_features": "features",
    "summed_features": "added",
    "search_tree": "lattice",
    "nbest_probability": "probability",
}
"""Names of fields in `FORMER_VERSION`, which differs in nothing else."""
DECIMALS = 6
"""Decimals of numbers in lists, and of `top` in both forms."""
LOG_ZERO = -1e9
"""Value written for a log-probability of −∞, which JSON lacks."""
ROUNDING = 1e-3
"""Tolerance for probabilities above 1 and log-probabilities above 0."""
SUM_TOLERANCE = 0.01
"""Amount by which the sum of a row of weights may exceed 1, for weights in half precision. Weights rounded to
`DECIMALS`, as in JSON, may exceed it by half a unit of the last decimal for each position."""
MAX_CANDIDATES = 64
"""Maximum number of candidates per step that a reader accepts: all steps use the memory of the longest list."""
MAX_EMPTY_ROWS = 1024
"""Maximum size of an unknown axis in an array without numbers."""
SCALARS = {str, int, float, bool, type(None)}

NodeStatus = Literal["kept", "ended", "pruned"]
Origin = Literal["search", "sample", "given", "lexicon", "pair_ngram"]


class EncodedArray(msgspec.Struct, frozen=True, kw_only=True):
    """An array in compact form: its shape, and its values, row by row, as little-endian float32 in base64."""

    shape: list[Annotated[int, msgspec.Meta(ge=0)]]
    data: str


Vector = EncodedArray | list[float]
Matrix = EncodedArray | list[list[float]]
Matrices = EncodedArray | list[list[list[float]]]
"""Arrays of one, two and three dimensions. Readers accept both forms; a writer uses one of them throughout."""


class SearchTreeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """JSON form of a search tree, with the fields of `SearchTree` (decoding/search_tree.py)."""

    symbols: list[str]
    parents: list[int]
    log_probabilities: Vector
    scores: Vector
    statuses: list[NodeStatus]
    attention_rows: list[int]
    attention: Matrix
    """P × S."""
    leaf: int


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """JSON form of a trace, with the fields of `Trace` (decoding/trace.py), its version, and `top`.

    A log-probability of −∞ is written as `LOG_ZERO`. Fields with their default are left out.
    """

    version: int
    text: str
    output: str
    score: float
    finished: bool
    source: list[str]
    num_features: int
    unknown: list[int]
    target: list[str]
    log_probabilities: Vector
    """T."""
    attention: Matrix
    """T × S; empty for tags, each of which attends to its own position."""
    top: list[list[tuple[str, float]]]
    """The most probable symbols of each step, with their log-probabilities. Symbols of probability 0 are left out."""
    rank: int
    origin: Origin = "search"
    nbest_probability: float | None = None
    search_score: float | None = None
    pair_ngram_score: float | None = None
    confidence: float | None = None
    task: TaskName = DEFAULT_TASK
    heads: Matrices | None = None
    """N × T × S."""
    hop_weights: Matrix | None = None
    """L × S."""
    summed_features: list[str] = []
    unknown_target: list[int] = []
    forced: list[int] = []
    forced_attention: list[int] = []
    search_tree: SearchTreeRecord | None = None


def encode_array(values: Float[np.ndarray, "..."]) -> EncodedArray:
    """Return the compact form of an array. NaN becomes 0, and ±∞ the largest finite number of that sign.

    Args:
        values: Array of any shape.
    """
    plain = np.nan_to_num(np.asarray(values, np.float32)).astype("<f4")
    return EncodedArray(shape=list(plain.shape), data=base64.b64encode(plain.tobytes()).decode("ascii"))


def list_array(values: Float[np.ndarray, "..."]) -> list[Any]:
    """Return an array as nested lists, rounded to `DECIMALS`. Numbers that are not finite stay; JSON writes null.

    Args:
        values: Array of any shape.
    """
    rounded: list[Any] = np.round(values.astype(np.float64), DECIMALS).tolist()
    return rounded


def decode_array(encoded: Vector | Matrix | Matrices, shape: tuple[int | None, ...] | None = None) -> np.ndarray:
    """Return the float32 array of either form.

    Args:
        encoded: The compact form, or nested lists.
        shape: Expected shape; None for any. A size of None means any size, on the first axis only.

    Raises:
        DataError: The data is not an array of numbers, a number is not finite, the shape differs from the expected one,
            or more than `MAX_EMPTY_ROWS` rows hold no number where the number of rows is not given.
    """
    try:
        if isinstance(encoded, EncodedArray):
            values = np.frombuffer(base64.b64decode(encoded.data, validate=True), "<f4").reshape(encoded.shape)
            values = values.astype(np.float32)
        else:
            values = float32_array(encoded)
    except (ValueError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"expected an array of numbers: {abbreviate_reason(error)}") from None
    if not np.isfinite(values).all():
        raise DataError("expected finite numbers")
    rows = values.shape[0] if values.ndim else 0
    if not values.size and (shape is None or None in shape) and rows > MAX_EMPTY_ROWS:
        raise DataError(f"expected at most {MAX_EMPTY_ROWS} rows where none of them holds a number, got {rows}")
    if shape is None or _fits(values.shape, shape):
        return values
    empty = tuple(rows if size is None else size for size in shape)
    if values.size or math.prod(empty) or values.ndim == 0:
        raise DataError(f"expected {shown_shape(shape)} numbers, got {shown_shape(values.shape)}")
    return values.reshape(empty)  # nested lists without numbers lack their inner sizes


def float32_array(numbers: object) -> np.ndarray:
    """Return numbers as a float32 array.

    Args:
        numbers: Nested lists of numbers.

    Raises:
        DataError: A finite number is too large for float32.
        ValueError: The lists differ in length, or an item is not a number.
    """
    values = np.array(numbers, np.float64)
    with np.errstate(over="ignore"):
        converted = values.astype(np.float32)
    if (np.isinf(converted) & ~np.isinf(values)).any():
        raise DataError("expected numbers that float32 can hold")
    return converted


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    """Return whether a shape is as expected; None means any size."""
    sizes = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(expected_size in (None, size) for size, expected_size in sizes)


def shown_shape(shape: tuple[int | None, ...]) -> str:
    """Return a shape as errors name it.

    Args:
        shape: Sizes; None means any size.
    """
    return " × ".join("any number of" if size is None else f"{size}" for size in shape)


def decode_field(record: TraceRecord | SearchTreeRecord, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """Return an array of a record; errors name the field.

    Args:
        record: JSON form of a trace or of its search tree.
        name: Name of the field.
        shape: Expected shape; None means any size, on the first axis only.

    Raises:
        DataError: The field is not an array of this shape, or holds a log-probability above 0 (`log_probabilities`,
            `scores`); or (any other field) a weight outside 0 to 1, or a row of weights that sums to more than 1.
    """
    try:
        values = decode_array(getattr(record, name), shape)
        if name == "log_probabilities":
            check_log_probabilities(values)
        elif name == "scores":  # each is a sum of at most len(values) log-probabilities
            check_log_probabilities(values / max(1, len(values)))
        elif values.size and not (values.min() >= 0 and values.max() <= 1 + ROUNDING):
            raise DataError("expected weights from 0 to 1")
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    if name not in ("log_probabilities", "scores") and (reason := describe_row_sum(values)):
        raise DataError(f"{name}{reason}")
    return values


def describe_row_sum(weights: Float[np.ndarray, "*T S"]) -> str:
    """Return the index and the sum of the first row of weights that sums to more than 1, except for rounding.

    Rows may sum to less: those of members of an ensemble whose scans of monotonic attention have ended, for example.

    Args:
        weights: Attention weights, one row for each step.

    Returns:
        The end of a message, which follows the name of the array; "" if there is no such row.
    """
    sums = np.asarray(weights.sum(axis=-1, dtype=np.float64))
    above = sums > 1 + SUM_TOLERANCE + weights.shape[-1] * 0.5 * 10**-DECIMALS
    if not above.any():
        return ""
    index = tuple(int(axis[0]) for axis in np.nonzero(above))
    return (
        f"[{', '.join(map(str, index))}]: expected a row of weights that sums to at most 1, got a sum of "
        f"{sums[index]:.4g}; divide the row by its sum"
    )


def check_log_probabilities(values: Float[np.ndarray, "..."]) -> None:
    """Check that log-probabilities are at most 0, within `ROUNDING`.

    Args:
        values: Log-probabilities.

    Raises:
        DataError: One is above `ROUNDING` or NaN.
    """
    if values.size and not values.max() <= ROUNDING:
        raise DataError("expected log-probabilities, which are at most 0")


def finite_log_probability(value: float) -> float:
    """Return a log-probability for JSON: `LOG_ZERO` for −∞, and 0 for NaN and +∞.

    Args:
        value: Log-probability.
    """
    return value if math.isfinite(value) else (LOG_ZERO if value < 0 else 0.0)


def finite_log_probabilities(values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Return log-probabilities with `LOG_ZERO` in place of −∞.

    Args:
        values: Log-probabilities.
    """
    return np.where(np.isneginf(values), np.float32(LOG_ZERO), values)


def restore_log_probabilities(values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Return log-probabilities with −∞ in place of `LOG_ZERO` and lower numbers.

    Args:
        values: Log-probabilities.
    """
    return np.where(values <= LOG_ZERO, np.float32(-np.inf), values)


class _VersionRecord(msgspec.Struct, frozen=True):
    """The version in the JSON form of a trace, of any version."""

    version: int


def _copy_default(field: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 (as `msgspec.field`)
    """Return a field of another struct with the same default, or without one."""
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.field() if field.required else msgspec.field(default=field.default)


_FormerTraceRecord = msgspec.defstruct(
    "_FormerTraceRecord",
    [
        (FORMER_NAMES.get(field.name, field.name), field.type, _copy_default(field))
        for field in msgspec.structs.fields(TraceRecord)
    ],
    frozen=True,
    kw_only=True,
)
"""JSON form of a trace in `FORMER_VERSION`."""


def decode_record(text: str | bytes) -> TraceRecord:
    """Return the record in JSON text. Unknown fields are ignored, since the page adds some.

    A record of `FORMER_VERSION` gets the names of the present version. The version and the types of the fields are
    checked; `Trace.from_record` checks the rest.

    Args:
        text: One trace in JSON.

    Raises:
        ArgumentError: The argument is neither text nor bytes.
        DataError: The text is not JSON, the record has another version, or a field is missing or has another type.
    """
    text = convert_argument("text", text, str | bytes)
    try:
        version = msgspec.json.decode(text, type=_VersionRecord).version
        if version != FORMER_VERSION:
            check_version(version, f"{VERSION} or {FORMER_VERSION}")
            return msgspec.json.decode(text, type=TraceRecord)
        record: Any = msgspec.json.decode(text, type=_FormerTraceRecord)
        values = {name: getattr(record, FORMER_NAMES.get(name, name)) for name in TraceRecord.__struct_fields__}
        return TraceRecord(**{**values, "version": VERSION})
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _not_a_trace(abbreviate_reason(error)) from None


def check_version(version: int, expected: str = f"{VERSION}") -> None:
    """Check that the version of a record is that of the schema.

    Args:
        version: The version.
        expected: Versions that the caller reads, for the message; that of the schema by default.

    Raises:
        DataError: It is another version.
    """
    if version != VERSION:
        raise DataError(f"the trace has version {quote(version)} of the schema; expected version {expected}")


def check_types(record: TraceRecord) -> TraceRecord:
    """Return a copy of a record that a program has made, after checking its values against the types of the fields.

    Args:
        record: JSON form of a trace.

    Raises:
        ArgumentError: The argument is not a record.
        DataError: A field has another type.
    """
    converted: TraceRecord = convert_argument("record", record, TraceRecord)
    try:
        for name in TraceRecord.__struct_fields__:
            _check_plain(name, getattr(converted, name))
        return msgspec.convert(msgspec.to_builtins(converted), TraceRecord)
    except DataError:
        raise
    except Exception as error:  # values of unknown types may raise anything
        raise _not_a_trace(abbreviate_reason(error)) from None


def _not_a_trace(reason: str) -> DataError:
    """Return the error for data that is not a trace."""
    return DataError(f"this is not a trace of schema version {VERSION}: {reason}")


def _check_plain(name: str, value: object) -> None:
    """Check that a value keeps its type in JSON; `DataError` names the field for bytes, a set or a date."""
    if isinstance(value, list | tuple):
        if not set(map(type, value)) <= SCALARS:
            for item in value:
                _check_plain(name, item)
    elif isinstance(value, EncodedArray | SearchTreeRecord):
        for inner in value.__struct_fields__:
            _check_plain(f"{name}.{inner}", getattr(value, inner))
    elif type(value) not in SCALARS and not isinstance(value, str | int | float):
        raise _not_a_trace(f"{name}: expected a value that JSON has, got {describe_value(value)}")


def encode_json(value: object) -> bytes:
    """Return structs and plain values as JSON in UTF-8, on one line, with control characters escaped.

    A lone surrogate, which UTF-8 cannot encode, becomes U+FFFD.

    Args:
        value: Structs, lists, dicts and plain values.
    """
    try:
        content = msgspec.json.encode(value)
    except UnicodeEncodeError:
        content = msgspec.json.encode(_replace_surrogates(msgspec.to_builtins(value)))
    return escape_json(content.decode("utf-8")).encode("utf-8")


def _replace_surrogates(value: object) -> object:
    """Return plain values with U+FFFD in place of lone surrogates, which file names and JSON may contain."""
    match value:
        case str():
            return replace_surrogates(value)
        case list() | tuple():
            return [_replace_surrogates(item) for item in value]
        case dict():
            return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
        case _:
            return value
