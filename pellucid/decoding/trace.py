"""Trace: everything one decoding did. Evaluation, pictures and pages read this and nothing else."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float

from pellucid.arguments import convert_argument
from pellucid.config.settings import DEFAULT_TASK, Task
from pellucid.data.vocabulary import EOS, SPECIAL_NAMES, UNK
from pellucid.decoding.search_tree import Lattice
from pellucid.decoding.trace_schema import (
    DECIMALS,
    MAX_CANDIDATES,
    ROUNDING,
    VERSION,
    Origin,
    TraceRecord,
    check_log_probabilities,
    check_types,
    decode_field,
    decode_record,
    encode_array,
    encode_json,
    finite_log_probabilities,
    finite_log_probability,
    float32_array,
    list_array,
    restore_log_probabilities,
)
from pellucid.error_messages import choice_message
from pellucid.errors import DataError, quote
from pellucid.tasks.task_settings import get_task_settings, is_task, task_names


class TraceDisplay(NamedTuple):
    """Functions that display a trace. The argument is a `Trace`, which this module does not import."""

    html: Callable[[Any], str]
    """Return the HTML that a notebook shows."""
    save: Callable[[Any, Path], None]
    """Write the trace to a file, in the format that the file's ending names."""


_registered: list[TraceDisplay] = []


def register_trace_display(display: TraceDisplay) -> None:
    """Display traces with these functions from now on."""
    _registered[:] = [display]


def registered_trace_display() -> TraceDisplay:
    """Return the functions that display traces.

    Raises:
        RuntimeError: No display is registered. Importing `pellucid` registers the viewer's.
    """
    if not _registered:
        raise RuntimeError("no display of traces is registered; register one with register_trace_display")
    return _registered[0]


MAX_RANK = 2**53
"""Of a trace that is read: a number that JSON readers hold exactly."""
END, UNKNOWN = SPECIAL_NAMES[EOS], SPECIAL_NAMES[UNK]


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """One source, its output, and how each output symbol came to be.

    T counts the steps, the end symbol's included where decoding reached it; S counts the source positions, the features
    (which are read first) included; k is how many candidates a step keeps.
    """

    text: str
    """The source as it was given."""
    source: tuple[str, ...]
    """S symbols the encoder read, in its order: the features, then the source."""
    features: int
    """How many of them, from the first, are features."""
    unknown: tuple[int, ...]
    """Positions in `source` whose symbol the model has never seen."""
    target: tuple[str, ...]
    """T symbols decoded, the last one `END` where decoding finished."""
    output: str
    """The decoded text, without `END`."""
    finished: bool
    """Whether `END` was decoded; if not, the output was cut at the greatest length."""
    log_probabilities: Float[np.ndarray, " T"]
    """ln p of each decoded symbol, given the source and the symbols before it."""
    attention: Float[np.ndarray, "T S"]
    """Weights: row t is where the decoder looked to write symbol t. Rows sum to one (to zero without attention).

    Each tag looks at its own position: that identity is not part of the JSON form.
    """
    top_symbols: tuple[tuple[str, ...], ...]
    """The k likeliest symbols of each step, likeliest first."""
    top_log_probabilities: Float[np.ndarray, "T k"]
    """ln p of each of them."""
    origin: Origin = "search"
    """Found by search, drawn at random, given and only scored, or looked up in a table (then nothing was looked at)."""
    rank: int = 1
    """Its place among the outputs of its source, or its number among the samples."""
    probability: float | None = None
    """Its share of the probability of all outputs in its list; None where no list was asked for."""
    search_score: float | None = None
    """What search ranked it by, where that was not `score`."""
    unknown_target: tuple[int, ...] = ()
    """Positions in `target`, of a given output, whose symbol the model has never seen."""
    forced: tuple[int, ...] = ()
    """Steps of a search whose symbol was given, not chosen: those of a prefix."""
    painted: tuple[int, ...] = ()
    """Steps whose attention was given, not computed."""
    lattice: Lattice | None = None
    """Everything that the beam considered, where that was asked for."""
    heads: Float[np.ndarray, "N T S"] | None = None
    """Weights of each of N heads, of which `attention` is the mean; None where the model has one, or there are several
    models."""
    added: tuple[str, ...] = ()
    """Features that were added to the vector of every source symbol (encoder.features = "sum"): no positions."""
    task: Task = DEFAULT_TASK
    """What the model does. Only outputs of autoregressive tasks have an end symbol."""
    looks: Float[np.ndarray, "L S"] | None = None
    """Of a class that was told after several looks, the weights of each, the last of which are `attention`."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """What was written or answered, without the end."""
        ends = self.autoregressive and self.finished and bool(self.target)
        return self.target[:-1] if ends else self.target

    @property
    def autoregressive(self) -> bool:
        """Whether the output was written symbol by symbol."""
        return get_task_settings(self.task).autoregressive

    @property
    def per_position(self) -> bool:
        """Whether each source position has its own output symbol, and attention is an identity."""
        return get_task_settings(self.task).per_position

    @property
    def score(self) -> float:
        """ln p of the whole output given the source: the sum over its steps."""
        return float(self.log_probabilities.sum(dtype=np.float64))

    def to_json(self, compact: bool = False) -> str:
        """Return the trace as one line of JSON (the schema of `TraceRecord`; docs/using.md documents its fields).

        Args:
            compact: Write arrays in base64, to the bit; otherwise as lists of numbers, to six decimals. `top` is
                written to six decimals in both.
        """
        return encode_json(self.to_record(compact)).decode("utf-8")

    @classmethod
    def from_json(cls, text: str | bytes) -> "Trace":
        """Return the trace that `to_json`, `predict --format jsonl`, a saved file or the page wrote.

        Raises:
            ArgumentError: The argument is neither text nor bytes.
            DataError: The text is not a trace of this version of the schema.
        """
        return cls._restored(decode_record(text))

    def to_record(self, compact: bool = False) -> TraceRecord:
        """Return the JSON form as a struct; `compact` as for `to_json`."""
        compact = convert_argument("compact", compact, bool)
        write, attends = encode_array if compact else list_array, not self.per_position
        likely = self.log_probabilities.astype(np.float64)
        return TraceRecord(
            version=VERSION,
            text=self.text,
            output=self.output,
            score=_written(float((likely if compact else likely.round(DECIMALS)).sum()), compact),
            finished=self.finished,
            source=list(self.source),
            features=self.features,
            unknown=list(self.unknown),
            target=list(self.target),
            log_probabilities=write(finite_log_probabilities(self.log_probabilities)),
            attention=write(self.attention if attends else np.zeros((0, 0), np.float32)),
            top=self._top(),
            rank=self.rank,
            origin=cast(Origin, sys.intern(self.origin)),  # a default is left out where it is the same object
            probability=None if self.probability is None else _written(self.probability, compact),
            search_score=None if self.search_score is None else _written(self.search_score, compact),
            task=sys.intern(self.task),
            heads=None if self.heads is None else write(self.heads),
            looks=None if self.looks is None else write(self.looks),
            added=list(self.added),
            unknown_target=list(self.unknown_target),
            forced=list(self.forced),
            painted=list(self.painted),
            lattice=None if self.lattice is None else self.lattice.to_record(compact),
        )

    @classmethod
    def from_record(cls, record: TraceRecord) -> "Trace":
        """Return the trace of a record. `score` is not read: it is the sum of the log-probabilities.

        Raises:
            ArgumentError: The argument is no record.
            DataError: The record is of another version of the schema, or its fields do not belong together.
        """
        return cls._restored(check_types(record))

    @classmethod
    def _restored(cls, record: TraceRecord) -> "Trace":
        """Return the trace of a record whose fields have the right types."""
        T, S = len(record.target), len(record.source)
        _check(record)
        likely = decode_field(record, "log_probabilities", (T,))
        own_places = get_task_settings(record.task).per_position
        symbols, values = _candidates(record)
        return cls(
            text=record.text,
            source=tuple(record.source),
            features=record.features,
            unknown=tuple(record.unknown),
            target=tuple(record.target),
            output=record.output,
            finished=record.finished,
            log_probabilities=restore_log_probabilities(likely),
            attention=(
                own_positions(T, S, record.features) if own_places else decode_field(record, "attention", (T, S))
            ),
            top_symbols=symbols,
            top_log_probabilities=values,
            origin=record.origin,
            rank=record.rank,
            probability=record.probability,
            search_score=record.search_score,
            unknown_target=tuple(record.unknown_target),
            forced=tuple(record.forced),
            painted=tuple(record.painted),
            lattice=None if record.lattice is None else Lattice.from_record(record.lattice, S),
            heads=None if record.heads is None else decode_field(record, "heads", (None, T, S)),
            added=tuple(record.added),
            task=record.task,
            looks=None if record.looks is None else decode_field(record, "looks", (None, S)),
        )

    def _top(self) -> list[list[tuple[str, float]]]:
        """Return the candidates of each step that have a probability above 0, with their log-probabilities."""
        values = np.round(self.top_log_probabilities.astype(np.float64), DECIMALS).tolist()
        return [
            [(symbol, value) for symbol, value in zip(symbols, own, strict=True) if value > -np.inf]
            for symbols, own in zip(self.top_symbols, values, strict=True)
        ]

    def save(self, path: str | Path) -> None:
        """Write it as what the name ends with: .html (the page), .svg, .png, .json, or .tex (TikZ).

        `InputError` for another ending, and where the system refuses.
        """
        registered_trace_display().save(self, convert_argument("path", path, str | Path))

    def _repr_html_(self) -> str:
        """Return the page of this trace in a frame, for a notebook."""
        return registered_trace_display().html(self)

    def __str__(self) -> str:
        """The source and its output, on one line."""
        return f"{self.text} → {self.output}"


def own_positions(steps: int, positions: int, features: int) -> Float[np.ndarray, "T S"]:
    """Return the weights of tags, each of which looks at its own position: an identity in T + S numbers of memory."""
    diagonal = np.zeros(max(steps + positions - 1, 0), np.float32)
    if not steps or not positions:
        return np.zeros((steps, positions), np.float32)
    if features < positions:
        diagonal[steps - 1 + features] = 1
    return np.lib.stride_tricks.sliding_window_view(diagonal, positions)[::-1]


def _written(value: float, compact: bool) -> float:
    """Return a number as JSON holds it, rounded in the form with lists."""
    finite = finite_log_probability(value)
    return finite if compact else round(finite, DECIMALS)


def _check(record: TraceRecord) -> None:
    """Raise a `DataError` where a record is of another version, or its fields do not belong together."""
    if record.version != VERSION:
        raise DataError(f"the trace has version {quote(record.version)} of the schema; expected version {VERSION}")
    if not is_task(record.task):
        raise DataError(f"task: {choice_message(task_names(), record.task)}")
    steps, positions = len(record.target), len(record.source)
    if not 0 <= record.features <= positions:
        raise DataError(f"features: expected 0 to {positions}, the length of source, got {quote(record.features)}")
    if len(record.top) != steps:
        raise DataError(f"top: expected candidates of {steps} steps, the length of target, got {len(record.top)}")
    if not 0 <= record.rank <= MAX_RANK:
        raise DataError(f"rank: expected a number from 0 to {MAX_RANK}, got {quote(record.rank)}")
    if record.probability is not None and not 0 <= record.probability <= 1 + ROUNDING:
        raise DataError(f"probability: expected a number from 0 to 1, got {record.probability}")
    if record.search_score is not None and not math.isfinite(record.search_score):
        raise DataError(f"search_score: expected a finite number, got {record.search_score}")
    for name, places, count in (
        ("unknown", record.unknown, positions),
        ("unknown_target", record.unknown_target, steps),
        ("forced", record.forced, steps),
        ("painted", record.painted, steps),
    ):
        if not all(0 <= place < count for place in places):
            raise DataError(f"{name}: expected numbers from 0 to {count - 1}")


def _candidates(record: TraceRecord) -> tuple[tuple[tuple[str, ...], ...], Float[np.ndarray, "T k"]]:
    """Return the symbols and log-probabilities of `top`, as many for every step: ("", −∞) where one has fewer."""
    count = max((len(step) for step in record.top), default=0)
    if count > MAX_CANDIDATES:
        raise DataError(f"top: expected at most {MAX_CANDIDATES} candidates of a step, got {count}")
    padded = [[*step, *[("", -np.inf)] * (count - len(step))] for step in record.top]
    try:
        values = float32_array([[value for _, value in step] for step in padded])
        check_log_probabilities(values)
    except DataError as error:
        raise DataError(f"top: {error}") from None
    return tuple(tuple(symbol for symbol, _ in step) for step in padded), values.reshape(len(padded), count)
