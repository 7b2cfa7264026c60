"""What the weights of attention say by themselves, and how well they agree with a known alignment.

B examples, T target positions, S source positions. Weights are those of one trace, a row a step. A row that looks
nowhere (without attention, or past the end of a monotonic scan) counts in no statistic. The step that wrote the end
counts in all but monotonicity and distortion, for it continues nothing.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from msgspec import Meta

from pellucid.arguments import PROBABILITY, ROUNDING, argument_error, check_arguments, check_lengths
from pellucid.config.settings import Seed
from pellucid.decoding.trace import Trace
from pellucid.evaluation.metrics import bootstrap_sums

POWER = 6
"""Of the coverage deviation penalty."""
WIDTH = 0.2
"""Of the diagonal."""
TENTHS = 10
Weights = Annotated[Float[np.ndarray, "T S"], PROBABILITY]
"""Attention of one trace: weights from 0 to 1, a row a step."""


class Spans(NamedTuple):
    """The source positions first … stop − 1 that each written symbol comes from, where that is known."""

    first: Int[np.ndarray, "B T"]
    stop: Int[np.ndarray, "B T"]
    known: Bool[np.ndarray, "B T"]


class Agreement(NamedTuple):
    """Attention against the spans, over all symbols whose span is known; both are shares of 1."""

    error: float
    """Symbols whose greatest weight lies outside their span: the alignment error rate of Och & Ney 2003 (section 6) for
    one link a symbol, where every position of the span is possible and none is sure."""
    mass: float
    """Mean weight inside the span."""


@check_arguments
def agreement(weights: Annotated[Float[np.ndarray, "B T S"], PROBABILITY], spans: Spans) -> Agreement:
    """Compare each symbol's weights with its span.

    Raises:
        ArgumentError: No symbol's span is known, there is no source position, or shapes differ.
    """
    if not spans.known.any():
        raise argument_error("spans", "at least one symbol whose span is known", spans)
    if not weights.shape[2]:
        raise argument_error("weights", "at least one source position", weights)
    peak = weights.argmax(axis=2)
    outside = (peak < spans.first) | (peak >= spans.stop)
    sums = np.concatenate([np.zeros((*weights.shape[:2], 1)), weights.cumsum(axis=2, dtype=np.float64)], axis=2)
    first, stop = (np.clip(ends, 0, weights.shape[2])[:, :, None] for ends in (spans.first, spans.stop))
    mass = (np.take_along_axis(sums, stop, 2) - np.take_along_axis(sums, first, 2))[:, :, 0]
    return Agreement(float(outside[spans.known].mean()), float(mass[spans.known].mean()))


@check_arguments
def looking(weights: Weights) -> Float[np.ndarray, "t S"]:
    """The rows that look somewhere, in double precision."""
    rows: Float[np.ndarray, "t S"] = weights[weights.sum(axis=1) > 0].astype(np.float64)
    return rows


def _needed_rows(weights: Float[np.ndarray, "T S"]) -> Float[np.ndarray, "t S"]:
    """The rows that look somewhere, of which a statistic needs one; `ArgumentError` where there is none."""
    rows = looking(weights)
    if not len(rows):
        raise argument_error("weights", "at least one row that looks somewhere", weights)
    return rows


@check_arguments
def row_entropy(weights: Weights) -> Float[np.ndarray, " T"]:
    """H_t = −Σ_s α_ts log₂ α_ts, in bits: 0 for one position, log₂ S for all alike. Shannon 1948."""
    values = weights.astype(np.float64)
    logarithms = np.log2(values, out=np.zeros_like(values), where=values > 0)
    entropies: Float[np.ndarray, " T"] = np.maximum(-(values * logarithms).sum(axis=1), 0)
    return entropies


@check_arguments
def coverage_deviation(weights: Weights) -> float:
    """CDP = 1/S Σ_s ln 1 / (1 + |1 − Σ_t α_ts|⁶): 0 where each position got a weight of one in all, else below.

    Source: Rikters, Fishel & Bojar 2017, with the exponent of their tool (SoftAlignments, functions.py, `getCP`); the
    formula of Rikters & Fishel 2017 has a square in its place.
    """
    missing = np.abs(1 - _needed_rows(weights).sum(axis=0))
    return float(-np.log1p(missing**POWER).mean())


@check_arguments
def absentmindedness_out(weights: Weights) -> float:
    """AP_out = 1/T Σ_t Σ_s α_ts ln α_ts: minus the mean entropy, in nats, of where each output symbol looked.

    Source: as `coverage_deviation`; rows are scaled to sum to one, and 0 · ln 0 is 0.
    """
    rows = _needed_rows(weights)
    return float(-np.log(2) * row_entropy(rows / rows.sum(axis=1, keepdims=True)).mean())


@check_arguments
def absentmindedness_in(weights: Weights) -> float:
    """AP_in: the same of the columns, scaled to sum to one: of which output symbols looked at each position.

    Positions that nobody looked at count as 0.
    """
    columns = _needed_rows(weights).T
    sums = columns.sum(axis=1, keepdims=True)
    scaled = np.divide(columns, sums, out=np.zeros_like(columns), where=sums > 0)
    return float(-np.log(2) * row_entropy(scaled).mean())


@check_arguments
def confidence(weights: Weights) -> float:
    """exp(−0.05 (CDP + AP_out + AP_in)²): 1 where each output symbol looks at one position of its own.

    Source: as `coverage_deviation`, without the tool's penalty for outputs that spell like their source.
    """
    total = coverage_deviation(weights) + absentmindedness_out(weights) + absentmindedness_in(weights)
    return float(np.exp(-0.05 * total**2))


def _check_attention(name: str, trace: Trace) -> None:
    """Raise an `ArgumentError` where a trace's attention is no weights of its steps and source positions."""
    weights = np.asarray(trace.attention)
    fits = weights.shape == (len(trace.target), len(trace.source)) and weights.dtype.kind in "iuf"
    if not fits or (weights.size and not (weights.min() >= 0 and weights.max() <= 1 + ROUNDING)):
        expected = "a trace whose attention has a weight from 0 to 1 for each step and source position"
        raise argument_error(name, expected, trace)


@check_arguments
def jumps(trace: Trace) -> Int[np.ndarray, " t"]:
    """Distortion: from each symbol to the next, how far the greatest weight moves; the end is not counted.

    The first of equal weights counts. Brown et al. 1993, section 4.3, have distortions of hard alignments.

    Raises:
        ArgumentError: This is no trace, or its attention is none of its steps and source positions.
    """
    _check_attention("trace", trace)
    return _jumps(trace)


def _jumps(trace: Trace) -> Int[np.ndarray, " t"]:
    """The same of a trace that is checked."""
    rows = looking(trace.attention[: len(trace.target) - 1] if trace.finished else trace.attention)
    moves: Int[np.ndarray, " t"] = np.diff(rows.argmax(axis=1)) if len(rows) else np.zeros(0, np.int64)
    return moves


@check_arguments
def distortion(traces: Sequence[Trace]) -> dict[int, int]:
    """How often each jump came, from the farthest back to the farthest forward; `ArgumentError` as for `jumps`."""
    _check_each(traces)
    counted = Counter(int(jump) for trace in traces for jump in _jumps(trace))
    return dict(sorted(counted.items()))


@check_arguments
def diagonality(weights: Weights) -> float:
    """1/T Σ_t Σ_s α_ts exp(−(x_s − y_t)² / 2g²), x_s = (s + ½) / S, y_t = (t + ½) / T, g = 0.2: 1 on the diagonal.

    It is one less the guided attention loss of Tachibana et al. 2018 (section 4.1), at the middles of positions. Rows
    count from the first that looks.
    """
    rows = _needed_rows(weights)
    steps, positions = rows.shape
    across = (np.arange(positions) + 0.5) / positions - (np.arange(steps)[:, None] + 0.5) / steps
    return float((rows * np.exp(-(across**2) / (2 * WIDTH**2))).sum(axis=1).mean())


def _check_each(traces: Sequence[Trace]) -> None:
    """Raise an `ArgumentError` where a trace's attention is none of its steps and source positions."""
    for at, trace in enumerate(traces):
        _check_attention(f"traces[{at}]", trace)


@check_arguments
def mean_map(traces: Sequence[Trace]) -> Float[np.ndarray, "10 10"] | None:
    """Mean weights over tenths of the output (rows) by tenths of the source (columns); None where nothing looks.

    A step (a position) stands for its T-th (S-th) part of the whole. A tenth's row is the mean of the steps in it, by
    how much of it each fills; a position's weight goes to the tenths it lies in, in proportion. So rows sum to one.

    Raises:
        ArgumentError: One is no trace, or its attention is none of its steps and source positions.
    """
    _check_each(traces)
    found = []
    for trace in traces:
        rows = looking(trace.attention)
        if rows.size:
            found.append(TENTHS * _overlap(len(rows)).T @ rows @ (_overlap(rows.shape[1]) * rows.shape[1]))
    return np.mean(found, axis=0) if found else None


def _overlap(parts: int) -> Float[np.ndarray, "parts 10"]:
    """How much of the whole each of its parts has in common with each tenth."""
    low, first = np.arange(parts)[:, None] / parts, np.arange(TENTHS) / TENTHS
    shared = np.minimum(low + 1 / parts, first + 1 / TENTHS) - np.maximum(low, first)
    overlap: Float[np.ndarray, "parts 10"] = np.clip(shared, 0, None)
    return overlap


class Statistic(NamedTuple):
    """One number about the attention of a corpus, with its 95 % interval."""

    name: str
    value: float
    unit: str
    low: float
    high: float
    definition: str


Place = Annotated[int, Meta(ge=0, le=2**31)]
Gold = Sequence[tuple[Place, Place]]
"""Of each step the positions [first, stop) that its symbol comes from; (0, 0) where that is not known."""

TOLD = (
    ("entropy", "bits", "Mean over steps of −Σ α log₂ α (Shannon 1948)."),
    ("relative entropy", "share", "Mean over steps of the entropy over log₂ S; sources of one position are left out."),
    (
        "coverage deviation",
        "",
        "Mean over outputs of CDP, the mean of −ln(1 + |1 − Σ|⁶) over positions read Σ times in all "
        "(Rikters et al. 2017): 0 where each is read once.",
    ),
    ("absentmindedness, output", "nats", "Mean over outputs of AP_out (Rikters et al. 2017): minus the rows' entropy."),
    (
        "absentmindedness, input",
        "nats",
        "Mean over outputs of AP_in (Rikters et al. 2017): minus the columns' entropy.",
    ),
    ("confidence", "share", "Mean over outputs of exp(−0.05 (CDP + AP_out + AP_in)²) (Rikters et al. 2017)."),
    (
        "monotonicity",
        "share",
        "Share of steps, the end's left out, whose greatest weight lies where the last one's did or after it.",
    ),
    ("diagonality", "share", "Mean over outputs of the weight near the diagonal (Tachibana et al. 2018, g = 0.2)."),
    (
        "alignment error",
        "share",
        "Share of symbols whose greatest weight lies outside the positions they come from (Och & Ney 2003).",
    ),
)
"""Name, unit and definition of each number of a summary, in this order."""


@check_arguments
def counted(trace: Trace, gold: Gold | None = None) -> Float[np.ndarray, "9 2"]:
    """One trace's part of each statistic of `TOLD`: what is summed, and over how many; 0 over 0 where it has none.

    Raises:
        ArgumentError: This is no trace, its attention is none of its steps and source positions, or a gold span does
            not lie in its source.
    """
    _check_attention("trace", trace)
    _check_gold("gold", trace, gold)
    return _counted(trace, gold)


def _check_gold(name: str, trace: Trace, gold: Gold | None) -> None:
    """Raise an `ArgumentError` where the positions that symbols come from are none of the source."""
    for step, (first, stop) in enumerate(gold or ()):
        if not first <= stop <= len(trace.source):
            expected = f"source positions (first, stop) with first <= stop <= {len(trace.source)}"
            raise argument_error(f"{name}[{step}]", expected, (first, stop))


def _counted(trace: Trace, gold: Gold | None) -> Float[np.ndarray, "9 2"]:
    """The same of a trace that is checked."""
    weights = trace.attention
    entropies, moves = row_entropy(looking(weights)), _jumps(trace)
    if not entropies.size:
        return np.zeros((len(TOLD), 2))
    relative = (entropies.sum() / np.log2(weights.shape[1]), len(entropies)) if weights.shape[1] > 1 else (0.0, 0)
    return np.array(
        [
            (entropies.sum(), len(entropies)),
            relative,
            *(
                (each(weights), 1)
                for each in (coverage_deviation, absentmindedness_out, absentmindedness_in, confidence)
            ),
            ((moves >= 0).sum(), len(moves)),
            (diagonality(weights), 1),
            _missed(weights, gold or ()),
        ],
        dtype=np.float64,
    )


def _missed(weights: Float[np.ndarray, "T S"], gold: Gold) -> tuple[int, int]:
    """Steps that look outside where they should, and steps for which that is known."""
    known = [t for t, (first, stop) in enumerate(gold[: len(weights)]) if stop > first]
    return sum(not gold[t][0] <= int(weights[t].argmax()) < gold[t][1] for t in known), len(known)


@check_arguments
def summary(traces: Sequence[Trace], gold: Sequence[Gold | None] | None = None, seed: Seed = 1) -> list[Statistic]:
    """Each statistic of `TOLD` that the traces have, with the interval of 1,000 bootstrap resamples of the traces.

    A ratio of sums is resampled as one (Bisani & Ney 2004). The result depends on the order of the traces and the seed.

    Args:
        traces: Any number; where none has attention, the list of statistics is empty.
        gold: Of each trace the true positions of each step, or None.
        seed: That of the resamples.

    Raises:
        ArgumentError: One is no trace, its attention is none of its steps and source positions, there are not as many
            gold alignments as traces, or one does not lie in its source.
    """
    spans: Sequence[Gold | None] = gold if gold is not None else [None] * len(traces)
    check_lengths(traces=traces, gold=spans)
    _check_each(traces)
    for at, (trace, own) in enumerate(zip(traces, spans, strict=True)):
        _check_gold(f"gold[{at}]", trace, own)
    pairs = [_counted(trace, own) for trace, own in zip(traces, spans, strict=True)]
    table = np.array(pairs).reshape(len(traces), 2 * len(TOLD))
    if not table.any():
        return []
    drawn = bootstrap_sums(table, seed).reshape(-1, len(TOLD), 2)
    found = []
    for at, ((name, unit, definition), (sums, counts)) in enumerate(
        zip(TOLD, table.sum(axis=0).reshape(-1, 2).tolist(), strict=True)
    ):
        if counts:
            ratios = drawn[drawn[:, at, 1] > 0, at]
            low, high = np.percentile(ratios[:, 0] / ratios[:, 1], [2.5, 97.5]).tolist()
            found.append(Statistic(name, sums / counts, unit, low, high, definition))
    return found
