"""Trace: one decoded output with everything that led to it. Evaluation, reporting and the viewer read only this.

S source positions, T steps, k candidates of a step, N attention heads, L attention hops.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args, get_origin

import numpy as np

from pellucid.argument_checks import convert_argument, replace_surrogates
from pellucid.config.settings import DEFAULT_TASK, TaskName
from pellucid.config.task_settings import TASKS, TaskSettings, get_task_settings
from pellucid.data.vocabulary import EOS, SPECIAL_NAMES, UNK
from pellucid.decoding.search_tree import SearchTree
from pellucid.decoding.trace_schema import (
    DECIMALS,
    MAX_CANDIDATES,
    ROUNDING,
    VERSION,
    Origin,
    TraceRecord,
    check_log_probabilities,
    check_types,
    check_version,
    decode_array,
    decode_field,
    decode_record,
    describe_row_sum,
    encode_array,
    encode_json,
    finite_log_probabilities,
    finite_log_probability,
    float32_array,
    list_array,
    restore_log_probabilities,
    shown_shape,
)
from pellucid.error_messages import choice_message, describe_value
from pellucid.errors import ArgumentError, DataError, count_noun, quote
from pellucid.shapes import Float


class TraceDisplay(NamedTuple):
    """Functions that display a trace. Their first argument is a `Trace`."""

    html: Callable[[Any], str]
    """Return the HTML that a notebook shows."""
    save: Callable[[Any, Path], None]
    """Write the trace to a file, in the format that the file's ending names."""


_registered: list[TraceDisplay] = []


def register_trace_display(display: TraceDisplay) -> None:
    """Register the functions that display traces in notebooks and files, in place of earlier ones.

    The viewer calls it when `pellucid` is imported.

    Args:
        display: Functions that display a trace.
    """
    _registered[:] = [display]


def registered_trace_display() -> TraceDisplay:
    """Return the functions that display traces, as `register_trace_display` got them.

    Raises:
        RuntimeError: No display is registered. Importing `pellucid` registers the viewer's.
    """
    if not _registered:
        raise RuntimeError("no display of traces is registered; register one with register_trace_display")
    return _registered[0]


MAX_RANK = 2**53
"""Largest rank in a trace that is read: the largest integer that all JSON readers represent exactly."""
END, UNKNOWN = SPECIAL_NAMES[EOS], SPECIAL_NAMES[UNK]


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """One source, its output, and the computation of each output symbol.

    T steps: the decoder steps, including EOS if decoding reached it; for other tasks, one for each tag, class or
    position. S source positions, including features, which come first; k candidates per step.

    Read most often: `text` and `output`, source and output as text; `source` and `target`, their symbols; `score`, the
    natural log-probability of the output, and `probability`, exp(score); `log_probabilities`, that of each symbol;
    `attention`, the weights, of shape (T, S); `confidence`, the estimated probability that the output is correct; and
    `finished`. `nbest_probability` is the probability normalized over an n-best list; None for a single output.
    """

    text: str
    """Source text as given."""
    source: tuple[str, ...]
    """The S symbols of the encoder, in order: features, then the source."""
    num_features: int
    """Number of features at the beginning of `source`."""
    unknown: tuple[int, ...]
    """Positions in `source` whose symbol is not in the vocabulary, in ascending order."""
    target: tuple[str, ...]
    """The T output symbols; the last is `END` if decoding reached it, which it does in autoregressive tasks only."""
    output: str
    """Output text, without `END`."""
    finished: bool
    """False if the output was truncated at the maximum length, before `END`; True for labels and empty sources."""
    log_probabilities: Float[np.ndarray, " T"]
    """Log-probability of each output symbol given the source and, in autoregressive tasks, the symbols before it."""
    attention: Float[np.ndarray, "T S"]
    """Attention weights of each step. Rows sum to one; with monotonic attention to at most one; to zero without
    attention and in lexicon entries.

    A tag attends to its own position; that identity matrix is not part of the JSON form.
    """
    top_symbols: tuple[tuple[str, ...], ...]
    """The k most probable symbols of each step, the most probable first."""
    top_log_probabilities: Float[np.ndarray, "T k"]
    """Log-probability of each of them."""
    origin: Origin = "search"
    """Origin of the output: search, sample, given (only scored), lexicon (zero attention), or pair_ngram: ranked by the
    pair n-gram model alone, because the training of the network has not reached its first validation. The score, the
    log-probabilities, the candidates and the attention weights are then those of the hardly trained network."""
    rank: int = 1
    """Rank among the outputs of its source, or number of the sample, from 1."""
    nbest_probability: float | None = None
    """In an n-best list: exp(s) normalized over the list, where s is the score that ranked the output (`search_score`
    if given, else `score`); for a sample from a lexicon, 1 / number of entries; else None."""
    search_score: float | None = None
    """Score that ranked the output, if the settings normalize it by length or by coverage, or if a pair n-gram model
    took part; else None."""
    pair_ngram_score: float | None = None
    """Joint log-probability of source and output by the pair n-gram model; without an alignment of them, that of unseen
    pairs of symbols. None if no such model took part."""
    confidence: float | None = None
    """Estimated probability that the output is correct, fitted on the validation set (`ConfidenceModel`): of the best
    output of a search like that of the fit; else None (`Predictor.no_confidence_reason`)."""
    unknown_target: tuple[int, ...] = ()
    """Positions in a scored `target` whose symbol is not in the vocabulary."""
    forced: tuple[int, ...] = ()
    """Steps, from 0, whose symbol was given by a prefix."""
    forced_attention: tuple[int, ...] = ()
    """Steps, from 0, whose attention weights were given (`ForcedAttention`)."""
    search_tree: SearchTree | None = None
    """Search tree of the beam, if requested."""
    heads: Float[np.ndarray, "N T S"] | None = None
    """Attention weights of each of N heads; `attention` is their mean. None for one head, for ensembles and for lexicon
    entries, to which no model attends."""
    summed_features: tuple[str, ...] = ()
    """Features added to the embedding of every source symbol (encoder.feature_merge = "sum"), without positions."""
    task: TaskName = DEFAULT_TASK
    """Task of the model. Only outputs of autoregressive tasks end with `END`."""
    hop_weights: Float[np.ndarray, "L S"] | None = None
    """Attention weights of each hop of a classifier with several; the last are `attention`."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """Output symbols without `END`."""
        if not (type(self.target) is tuple and type(self.finished) is bool and type(self.task) is str):
            return checked_fields(self).symbols  # a program has set the fields
        ends = self.autoregressive and self.finished and bool(self.target)
        return self.target[:-1] if ends else self.target

    @property
    def autoregressive(self) -> bool:
        """True if the output was decoded symbol by symbol: of the built-in tasks, transduce only."""
        return self._task_settings.autoregressive

    @property
    def per_position(self) -> bool:
        """True if each source position has its own output symbol, as in tag, and attention is an identity matrix."""
        return self._task_settings.per_position

    @property
    def class_first(self) -> bool:
        """True if the output is a class and then a tag of each source position, as in tag-and-classify."""
        return self._task_settings.class_first

    @property
    def _task_settings(self) -> TaskSettings:
        """Settings of the task."""
        task = self.task
        return get_task_settings(task if type(task) is str else convert_argument("trace.task", task, str))

    @property
    def score(self) -> float:
        """Log-probability of the output given the source: the sum over its steps; 0 without steps."""
        _check_array("log_probabilities", self.log_probabilities, (None,))
        return float(self.log_probabilities.sum(dtype=np.float64))

    @property
    def probability(self) -> float:
        """Probability of the output given the source, exp(`score`)."""
        return math.exp(self.score)

    @property
    def has_trained_network(self) -> bool:
        """True unless the pair n-gram model chose the output before the first validation of the network.

        The probabilities and attention weights of the network are then of no use.
        """
        return self.origin != "pair_ngram"

    def to_json(self, compact: bool = False) -> str:
        """Return the trace as one line of JSON (schema `TraceRecord`; fields: docs/guides/decoding.md).

        A lone surrogate, which UTF-8 cannot encode, becomes U+FFFD; all other text is restored by `from_json`.

        Args:
            compact: Write arrays in base64, to the bit; otherwise as lists of numbers, to six decimals. `top` is
                written to six decimals in both.

        Raises:
            ArgumentError: As in `to_record`.
        """
        return encode_json(self.to_record(compact)).decode("utf-8")

    @classmethod
    def from_json(cls, text: str | bytes) -> "Trace":
        """Return the trace that `to_json`, `predict --output-format jsonl`, a saved file or the page wrote.

        Args:
            text: One trace in JSON.

        Raises:
            ArgumentError: The argument is neither text nor bytes.
            DataError: The text is not a trace of this or the former version of the schema, or its fields do not agree.
        """
        return cls._restored(decode_record(text))

    def to_record(self, compact: bool = False) -> TraceRecord:
        """Return the JSON form as a struct.

        Args:
            compact: Write arrays in base64, to the bit; otherwise as lists of numbers, to six decimals. `top` is
                written to six decimals in both.

        Raises:
            ArgumentError: `compact` is not a bool; or a field that a program has set has another type, a value out of
                range, or a shape that does not fit the other fields.
        """
        compact = convert_argument("compact", compact, bool)
        return checked_fields(self)._record(compact)

    def _record(self, compact: bool) -> TraceRecord:
        """Return the JSON form of fields that fit."""
        encode = encode_array if compact else list_array
        has_attention = not self.per_position
        log_probabilities = self.log_probabilities.astype(np.float64)
        return TraceRecord(
            version=VERSION,
            text=self.text,
            output=self.output,
            score=_json_number(
                float((log_probabilities if compact else log_probabilities.round(DECIMALS)).sum()), compact
            ),
            finished=self.finished,
            source=list(self.source),
            num_features=self.num_features,
            unknown=list(self.unknown),
            target=list(self.target),
            log_probabilities=encode(finite_log_probabilities(self.log_probabilities)),
            attention=encode(self.attention if has_attention else np.zeros((0, 0), np.float32)),
            top=self._top(),
            rank=self.rank,
            origin=cast(Origin, sys.intern(self.origin)),  # msgspec omits a default only if it is the same object
            nbest_probability=None if self.nbest_probability is None else _json_number(self.nbest_probability, compact),
            search_score=None if self.search_score is None else _json_number(self.search_score, compact),
            pair_ngram_score=None if self.pair_ngram_score is None else _json_number(self.pair_ngram_score, compact),
            confidence=None if self.confidence is None else _json_number(self.confidence, compact),
            task=sys.intern(self.task),
            heads=None if self.heads is None else encode(self.heads),
            hop_weights=None if self.hop_weights is None else encode(self.hop_weights),
            summed_features=list(self.summed_features),
            unknown_target=list(self.unknown_target),
            forced=list(self.forced),
            forced_attention=list(self.forced_attention),
            search_tree=None if self.search_tree is None else self.search_tree.to_record(compact),
        )

    @classmethod
    def from_record(cls, record: TraceRecord) -> "Trace":
        """Return the trace of a record. `score` is not read: it is the sum of the log-probabilities.

        Args:
            record: The struct that `to_record` returns; for JSON text, use `from_json`.

        Raises:
            ArgumentError: The argument is not a record.
            DataError: The record has another version of the schema, its fields do not agree, or a value is out of
                range.
        """
        return cls._restored(check_types(record))

    @classmethod
    def _restored(cls, record: TraceRecord) -> "Trace":
        """Return the trace of a record whose fields have the right types."""
        T, S = len(record.target), len(record.source)
        _check_record(record)
        if error := _target_error(record.task, record.finished, S - record.num_features, record.target):
            raise DataError(error)
        log_probabilities = decode_field(record, "log_probabilities", (T,))
        symbols, values = _padded_candidates(record)
        return cls(
            text=record.text,
            source=tuple(record.source),
            num_features=record.num_features,
            unknown=tuple(record.unknown),
            target=tuple(record.target),
            output=record.output,
            finished=record.finished,
            log_probabilities=restore_log_probabilities(log_probabilities),
            attention=_decode_attention(record),
            top_symbols=symbols,
            top_log_probabilities=values,
            origin=record.origin,
            rank=record.rank,
            nbest_probability=record.nbest_probability,
            search_score=record.search_score,
            pair_ngram_score=record.pair_ngram_score,
            confidence=record.confidence,
            unknown_target=tuple(record.unknown_target),
            forced=tuple(record.forced),
            forced_attention=tuple(record.forced_attention),
            search_tree=None if record.search_tree is None else SearchTree.from_record(record.search_tree, S),
            heads=_decode_parts(record, "heads", (None, T, S)),
            summed_features=tuple(record.summed_features),
            task=record.task,
            hop_weights=_decode_parts(record, "hop_weights", (None, S)),
        )

    def _top(self) -> list[list[tuple[str, float]]]:
        """Return the candidates of each step that have a probability above 0, with their log-probabilities."""
        values = np.round(self.top_log_probabilities.astype(np.float64), DECIMALS).tolist()
        return [
            [(symbol, value) for symbol, value in zip(symbols, step_values, strict=True) if value > -np.inf]
            for symbols, step_values in zip(self.top_symbols, values, strict=True)
        ]

    def save(self, path: str | Path) -> None:
        """Write the trace to a file, in place of one that exists.

        Args:
            path: File, whose ending selects the format: .html (the page), .svg, .png, .json, or .tex (TikZ).

        Raises:
            ArgumentError: A field does not fit (as in `to_record`), or the path has a wrong type.
            InputError: The ending is not supported, or the file cannot be written.
        """
        registered_trace_display().save(checked_fields(self), convert_argument("path", path, str | Path))

    def _repr_html_(self) -> str:
        """Return the page of this trace in a frame, for a notebook."""
        return registered_trace_display().html(checked_fields(self))

    def __str__(self) -> str:
        """Return the source and its output on one line, with U+FFFD for a lone surrogate, which cannot be printed."""
        return replace_surrogates(f"{self.text} → {self.output}")

    def __getstate__(self) -> list[Any]:
        """Return the fields, for pickle and copies; None represents the identity attention of tags."""
        is_identity = self.per_position and _is_identity_attention(self.attention, self.num_features)
        return [
            None if is_identity and field.name == "attention" else getattr(self, field.name) for field in fields(self)
        ]

    def __setstate__(self, state: list[Any]) -> None:
        """Set the fields of a copy."""
        for field, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)
        if self.attention is None:
            weights = identity_attention(len(self.target), len(self.source), self.num_features)
            object.__setattr__(self, "attention", weights)


def checked_fields(trace: Trace, argument: str = "trace") -> Trace:
    """Return a copy of a trace after checking its fields, since a program may have set them.

    Args:
        trace: Any trace.
        argument: Name of the trace in error messages.

    Returns:
        The trace, in which lists are tuples and subclasses of built-in types are these types.

    Raises:
        ArgumentError: A field has a wrong type, a value out of range, or a shape that does not fit the other fields;
            the message names the first one.
    """
    try:
        return _checked_fields(trace)
    except ArgumentError as error:
        raise ArgumentError(f"{argument}.{error}") from None


def checked_outputs(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces, after checking only source, output and log-probabilities.

    That takes a tenth of the time of `checked_fields`. The other fields are checked only in a trace in which one of
    these does not have exactly its declared type.

    Args:
        traces: Any traces, which error messages call "traces[0]", "traces[1]", ….

    Raises:
        ArgumentError: The message names the first field that does not fit.
    """
    return [
        trace if _has_output_fields(trace) else checked_fields(trace, f"traces[{index}]")
        for index, trace in enumerate(traces)
    ]


def _has_output_fields(trace: Trace) -> bool:
    """Return whether the fields of the source and the output have exactly their types and agree with each other."""
    source, target, top = trace.source, trace.target, trace.top_symbols
    if not ({type(source), type(target), type(top)} == {tuple} and {*map(type, top)} <= {tuple}):
        return False
    if {*map(type, chain((trace.text, trace.output, trace.task), source, target, *top))} != {str}:
        return False
    if type(trace.num_features) is not int or type(trace.finished) is not bool:
        return False
    if not (trace.task in TASKS and 0 <= trace.num_features <= len(source) and len(top) == len(target)):
        return False
    values: Any = trace.log_probabilities
    if type(values) is not np.ndarray or values.dtype.kind != "f" or values.shape != (len(target),):
        return False
    return bool((values <= ROUNDING).all())  # false for NaN


def _checked_fields(trace: Trace) -> Trace:
    """Return `checked_fields`; the errors name the field alone."""
    plain = dict[str, Any]()
    for name, kind in _PLAIN_FIELDS.items():
        value = getattr(trace, name)
        plain[name] = value if _has_exact_type(value, kind) else convert_argument(name, value, kind)
    if plain["task"] not in TASKS:
        raise ArgumentError(f"task: {choice_message(TASKS.names(), plain['task'])}")
    T = len(plain["target"])
    S = len(plain["source"])
    top = plain["top_symbols"]
    if len(top) != T or len({*map(len, top)}) > 1:
        raise ArgumentError(f"top_symbols: expected as many symbols for each of {T} steps, the length of target")
    _check_numbers(plain)
    if error := _target_error(plain["task"], plain["finished"], S - plain["num_features"], plain["target"]):
        raise ArgumentError(error)
    _check_log_probabilities("log_probabilities", trace.log_probabilities, (T,))
    _check_log_probabilities("top_log_probabilities", trace.top_log_probabilities, (T, len(top[0]) if T else None))
    _check_array("attention", trace.attention, (T, S))
    if not _is_identity_attention(trace.attention, plain["num_features"]):  # whose T × S weights are not all read
        _check_weights("attention", trace.attention)
    for name, shape in (("heads", (None, T, S)), ("hop_weights", (None, S))):
        if getattr(trace, name) is not None:
            _check_array(name, getattr(trace, name), shape)
            _check_weights(name, getattr(trace, name))
            if not len(getattr(trace, name)):
                raise ArgumentError(_parts_error(name))
    return replace(trace, **plain)


def _check_numbers(plain: dict[str, Any]) -> None:
    """Raise `ArgumentError` for a number out of range among the plain fields of a trace."""
    T, S = len(plain["target"]), len(plain["source"])
    if not 0 <= plain["num_features"] <= S:
        raise ArgumentError(
            f"num_features: expected 0 to {S}, the length of source, got {quote(plain['num_features'])}"
        )
    if not 1 <= plain["rank"] <= MAX_RANK:
        raise ArgumentError(f"rank: expected a number from 1 to {MAX_RANK}, got {quote(plain['rank'])}")
    for name, count in (("unknown", S), ("unknown_target", T), ("forced", T), ("forced_attention", T)):
        if error := _index_error(name, plain[name], count):
            raise ArgumentError(error)
    for name in ("nbest_probability", "confidence"):
        if plain[name] is not None and not 0 <= plain[name] <= 1 + ROUNDING:
            raise ArgumentError(f"{name}: expected a number from 0 to 1, got {plain[name]}")


_PLAIN_FIELDS: dict[str, Any] = {
    **{"text": str, "source": tuple[str, ...], "num_features": int, "unknown": tuple[int, ...]},
    **{"target": tuple[str, ...], "output": str, "finished": bool, "top_symbols": tuple[tuple[str, ...], ...]},
    **{"origin": Origin, "rank": int, "nbest_probability": float | None, "search_score": float | None},
    **{"pair_ngram_score": float | None, "confidence": float | None},
    **{"unknown_target": tuple[int, ...], "forced": tuple[int, ...], "forced_attention": tuple[int, ...]},
    **{"search_tree": SearchTree | None, "summed_features": tuple[str, ...], "task": str},
}
"""Fields of a trace that are not arrays, and their types."""


def _has_exact_type(value: object, kind: Any) -> bool:  # noqa: ANN401
    """Return whether a value has exactly this type, as in every trace that a program has not changed."""
    if value is None:
        return type(None) in get_args(kind)
    if type(value) is not tuple or get_origin(kind) is not tuple:
        return type(value) is kind
    item = get_args(kind)[0]
    items = value
    if get_origin(item) is tuple:
        return all(_has_exact_type(inner, item) for inner in items)
    return {*map(type, items)} <= {item}


def _check_array(name: str, values: object, shape: tuple[int | None, ...]) -> None:
    """Raise `ArgumentError` unless a value is an array of floats of this shape; None means any size."""
    if not issubclass(type(values), np.ndarray) or cast(np.ndarray, values).dtype.kind != "f":
        raise ArgumentError(f"{name}: expected an array of floating-point numbers, got {describe_value(values)}")
    array = cast(np.ndarray, values)
    if len(array.shape) != len(shape) or any(
        expected not in (None, size) for expected, size in zip(shape, array.shape, strict=True)
    ):
        raise ArgumentError(f"{name}: expected {shown_shape(shape)} numbers, got {shown_shape(array.shape)}")


def _check_log_probabilities(name: str, values: object, shape: tuple[int | None, ...]) -> None:
    """Raise `ArgumentError` unless a value is an array of log-probabilities of this shape; −∞ is one."""
    _check_array(name, values, shape)
    array = cast(np.ndarray, values)
    outside = ~((array >= -np.finfo(np.float32).max) & (array <= ROUNDING) | np.isneginf(array))
    if outside.any():
        raise ArgumentError(f"{name}: expected log-probabilities, which are at most 0, got {_first_of(array, outside)}")


def _check_weights(name: str, weights: Float[np.ndarray, "..."]) -> None:
    """Raise `ArgumentError` unless all weights are numbers from 0 to 1, and rows sum to at most 1, within rounding."""
    outside = ~((weights >= 0) & (weights <= 1 + ROUNDING))
    if outside.any():
        raise ArgumentError(f"{name}: expected weights from 0 to 1, got {_first_of(weights, outside)}")
    if reason := describe_row_sum(weights):
        raise ArgumentError(f"{name}{reason}")


def _target_error(task: TaskName, finished: bool, positions: int, target: Sequence[str]) -> str:
    """Return what is wrong with the number of tags, or with the end of an output; "" if nothing is."""
    settings = get_task_settings(task)
    if settings.class_first and len(target) != positions + bool(positions):
        expected = f"target: expected a class and a tag for each of {count_noun(positions, 'source position')}, got "
        return f"{expected}{count_noun(len(target), 'label')}"
    if settings.per_position and len(target) != positions:
        return f"target: expected a tag for each of {count_noun(positions, 'source position')}, got {len(target)}"
    if not settings.autoregressive and not finished:
        return f"finished: expected true, as in every trace of the task {quote(task)}, got false"
    if settings.autoregressive and finished and (target or positions) and tuple(target[-1:]) != (END,):
        last = quote(target[-1]) if target else "no symbol"
        return f"target: expected {quote(END)} as the last symbol of a finished output, got {last}"
    return ""


def _decode_attention(record: TraceRecord) -> Float[np.ndarray, "T S"]:
    """Return the attention weights of a record, which stores none for tags."""
    steps, positions = len(record.target), len(record.source)
    if not get_task_settings(record.task).per_position:
        return decode_field(record, "attention", (steps, positions))
    try:
        stored = decode_array(record.attention)
    except DataError as error:
        raise DataError(f"attention: {error}") from None
    if stored.size:
        raise DataError("attention: expected no weights, because each tag attends to its own position")
    return identity_attention(steps, positions, record.num_features)


def _decode_parts(record: TraceRecord, name: str, shape: tuple[int | None, ...]) -> np.ndarray | None:
    """Return the weights of each head or hop of a record, or None; `DataError` for an array without any."""
    if getattr(record, name) is None:
        return None
    values = decode_field(record, name, shape)
    if not len(values):
        raise DataError(_parts_error(name))
    return values


def _parts_error(name: str) -> str:
    """Return the message about an array of weights without heads or hops."""
    return f"{name}: expected the weights of at least one {'head' if name == 'heads' else 'hop'}, got none"


def _first_of(values: np.ndarray, mask: np.ndarray) -> str:
    """Return the first selected value and its place, for a message: "nan at [0, 2]"."""
    index = tuple(int(axis[0]) for axis in np.nonzero(mask))
    return f"{values[index]:g} at [{', '.join(map(str, index))}]"


def identity_attention(steps: int, positions: int, features: int) -> Float[np.ndarray, "T S"]:
    """Return the attention weights of tags: tag t has weight 1 at position `features` + t.

    Without features this is an identity matrix. It is a read-only view of T + S − 1 numbers.

    Args:
        steps: T, the number of tags.
        positions: S, the number of source positions.
        features: Number of features at the beginning of the source.
    """
    diagonal = np.zeros(max(steps + positions - 1, 0), np.float32)
    if not steps or not positions:
        return np.zeros((steps, positions), np.float32)
    if features < positions:
        diagonal[steps - 1 + features] = 1
    return np.lib.stride_tricks.sliding_window_view(diagonal, positions)[::-1]


def _is_identity_attention(weights: Float[np.ndarray, "T S"], features: int) -> bool:
    """Return whether weights are those of `identity_attention`, stored in T + S numbers of memory."""
    number = weights.itemsize
    if weights.dtype != np.float32 or weights.ndim != 2 or weights.strides != (-number, number) or not weights.size:
        return False
    steps, positions = weights.shape
    expected = identity_attention(steps, positions, features)  # the first row and column determine all values
    return np.array_equal(weights[0], expected[0]) and np.array_equal(weights[:, 0], expected[:, 0])


def _json_number(value: float, compact: bool) -> float:
    """Return a number for JSON, rounded unless arrays are compact."""
    finite = finite_log_probability(value)
    return finite if compact else round(finite, DECIMALS)


def _check_record(record: TraceRecord) -> None:
    """Check the version of a record, and that its fields agree; `DataError` otherwise."""
    check_version(record.version)
    if record.task not in TASKS:
        raise DataError(f"task: {choice_message(TASKS.names(), record.task)}")
    steps, positions = len(record.target), len(record.source)
    if not 0 <= record.num_features <= positions:
        expected = f"num_features: expected 0 to {positions}, the length of source"
        raise DataError(f"{expected}, got {quote(record.num_features)}")
    if len(record.top) != steps:
        raise DataError(f"top: expected candidates of {steps} steps, the length of target, got {len(record.top)}")
    if not 1 <= record.rank <= MAX_RANK:
        raise DataError(f"rank: expected a number from 1 to {MAX_RANK}, got {quote(record.rank)}")
    _check_scores(record)
    for name, indices, count in (
        ("unknown", record.unknown, positions),
        ("unknown_target", record.unknown_target, steps),
        ("forced", record.forced, steps),
        ("forced_attention", record.forced_attention, steps),
    ):
        if error := _index_error(name, indices, count):
            raise DataError(error)


def _index_error(name: str, indices: Sequence[int], count: int) -> str:
    """Return what is wrong with positions or steps, of which there are `count`; "" if nothing is."""
    if not all(0 <= index < count for index in indices):
        return f"{name}: expected numbers from 0 to {count - 1}"
    for one, other in pairwise(indices):
        if one >= other:
            return f"{name}: expected each number once, in ascending order, got {other} after {one}"
    return ""


def _check_scores(record: TraceRecord) -> None:
    """Check the scores of a record; `DataError` for the first that is not finite or out of range."""
    if not -math.inf < record.score <= ROUNDING * max(1, len(record.target)):  # false for NaN
        raise DataError(f"score: expected the sum of the log-probabilities, which is at most 0, got {record.score}")
    for name, value in (("nbest_probability", record.nbest_probability), ("confidence", record.confidence)):
        if value is not None and not 0 <= value <= 1 + ROUNDING:
            raise DataError(f"{name}: expected a number from 0 to 1, got {value}")
    for name, score in (("search_score", record.search_score), ("pair_ngram_score", record.pair_ngram_score)):
        if not math.isfinite(score or 0.0):
            raise DataError(f"{name}: expected a finite number, got {score}")


def _padded_candidates(record: TraceRecord) -> tuple[tuple[tuple[str, ...], ...], Float[np.ndarray, "T k"]]:
    """Return the symbols and log-probabilities of `top`, padded to equal numbers per step with ("", −∞)."""
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
