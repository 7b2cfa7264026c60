"""Statistics of attention weights, and their agreement with a known alignment.

B examples, T target positions, S source positions. Weights are those of one trace, one row for each decoder step. Rows
without weights (no attention, or beyond the end of a monotonic scan) are left out of all statistics. The step that
produces EOS counts everywhere except in monotonicity and jumps. Every public function raises an `ArgumentError` for an
argument of the wrong type, shape or range.

A row of weights sums to at most one, with a tolerance for rounding (`SUM_TOLERANCE`). It sums to one, except to zero
without weights, and to less than one where some scans of monotonic attention have ended: those of members of an
ensemble, or from forced weights.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from pellucid.argument_checks import PROBABILITY, argument_error, check_arguments, check_lengths
from pellucid.config.settings import Seed
from pellucid.decoding.trace import Trace, checked_fields
from pellucid.decoding.trace_schema import describe_row_sum
from pellucid.errors import ArgumentError
from pellucid.evaluation.metrics import bootstrap_sums
from pellucid.shapes import Bool, Float, Int

COVERAGE_EXPONENT = 6
"""Exponent in the coverage deviation penalty."""
DIAGONAL_WIDTH = 0.2
"""Width g of the diagonal band."""
MAP_SIZE = 10
Weights = Annotated[Float[np.ndarray, "T S"], PROBABILITY]
"""Attention weights of one trace, from 0 to 1, one row per step, which sums to at most 1."""


class AlignmentSpans(NamedTuple):
    """Source positions [first, stop) that each target symbol is aligned with, where they are known."""

    first: Int[np.ndarray, "B T"]
    stop: Int[np.ndarray, "B T"]
    known: Bool[np.ndarray, "B T"]
    """True where the span is known; `first` and `stop` are not read elsewhere, as at padding."""


class AlignmentAgreement(NamedTuple):
    """Agreement of attention weights with a known alignment, over all symbols with a known span, as fractions of 1."""

    error: float
    """Fraction of symbols whose largest weight lies outside their span: the alignment error rate of Och & Ney (2003,
    section 6) for one link per symbol, where every position of the span is a possible link and none is sure."""
    mass: float
    """Mean sum of the weights inside the span."""


@check_arguments
def alignment_agreement(
    weights: Annotated[Float[np.ndarray, "B T S"], PROBABILITY], spans: AlignmentSpans
) -> AlignmentAgreement:
    """Compare attention weights with known spans. The first of equal largest weights counts.

    Args:
        weights: Attention weights, from 0 to 1, shape (B, T, S).
        spans: The spans, shapes (B, T).

    Raises:
        ArgumentError: No span is known, there is no source position, the shapes differ, a weight is out of range, or a
            row sums to more than 1.

    References:
        Och and Ney (2003), "A systematic comparison of various statistical alignment models".
    """
    if not spans.known.any():
        raise argument_error("spans", "at least one symbol whose span is known", spans)
    if not weights.shape[2]:
        raise argument_error("weights", "at least one source position", weights)
    _check_sums("weights", weights)
    peak = weights.argmax(axis=2)
    outside = (peak < spans.first) | (peak >= spans.stop)
    sums = np.concatenate([np.zeros((*weights.shape[:2], 1)), weights.cumsum(axis=2, dtype=np.float64)], axis=2)
    first, stop = (np.clip(ends, 0, weights.shape[2])[:, :, None] for ends in (spans.first, spans.stop))
    mass = (np.take_along_axis(sums, stop, 2) - np.take_along_axis(sums, first, 2))[:, :, 0]
    return AlignmentAgreement(float(outside[spans.known].mean()), float(mass[spans.known].mean()))


@check_arguments
def attending_rows(weights: Weights) -> Float[np.ndarray, "t S"]:
    """Return the rows that have a weight above 0, as float64; the others are left out.

    Args:
        weights: Attention weights, shape (T, S).

    Raises:
        ArgumentError: The value is not an array of weights from 0 to 1, or a row sums to more than 1.
    """
    _check_sums("weights", weights)
    return _attending_rows(weights)


def _attending_rows(weights: Float[np.ndarray, "T S"]) -> Float[np.ndarray, "t S"]:
    """Return `attending_rows` of weights that have been checked."""
    rows: Float[np.ndarray, "t S"] = weights[weights.sum(axis=1) > 0].astype(np.float64)
    return rows


def _check_sums(name: str, weights: Float[np.ndarray, "*T S"]) -> None:
    """Raise `ArgumentError` for the first row of weights that sums to more than 1, except for rounding."""
    if reason := describe_row_sum(weights):
        raise ArgumentError(f"{name}{reason}")


def _nonzero_rows(weights: Float[np.ndarray, "T S"]) -> Float[np.ndarray, "t S"]:
    """Return the rows with nonzero weights; raise `ArgumentError` if there is none."""
    _check_sums("weights", weights)
    rows = _attending_rows(weights)
    if not len(rows):
        raise argument_error("weights", "at least one row with a weight above 0", weights)
    return rows


@check_arguments
def row_entropy(weights: Weights) -> Float[np.ndarray, " T"]:
    """Return the entropy of each row in bits.

        H_t = −Σ_s α_ts log₂ α_ts

    It is 0 for a single position and for a row without weights, and log₂ S for uniform weights. Rows are not scaled.

    Args:
        weights: Attention weights, shape (T, S).

    Raises:
        ArgumentError: The value is not an array of weights from 0 to 1, or a row sums to more than 1.

    References:
        Shannon (1948), "A mathematical theory of communication".
    """
    _check_sums("weights", weights)
    return _row_entropy(weights)


def _row_entropy(weights: Float[np.ndarray, "T S"]) -> Float[np.ndarray, " T"]:
    """Return `row_entropy` of weights that have been checked, or of columns scaled to sum to one."""
    values = weights.astype(np.float64)
    logarithms = np.log2(values, out=np.zeros_like(values), where=values > 0)
    entropies: Float[np.ndarray, " T"] = np.maximum(-(values * logarithms).sum(axis=1), 0) + 0.0  # not −0
    return entropies


@check_arguments
def coverage_deviation(weights: Weights) -> float:
    """Return the coverage deviation penalty (CDP).

        CDP = 1/S Σ_s ln 1 / (1 + |1 − Σ_t α_ts|⁶)

    It is 0 if every position has a total weight of one, else negative.

    Args:
        weights: Attention weights, shape (T, S).

    Raises:
        ArgumentError: No row has a weight above 0, a row sums to more than 1, or the value is not an array of weights
            from 0 to 1.

    References:
        Rikters, Fishel and Bojar (2017), with the exponent of their tool (SoftAlignments, functions.py, `getCP`). The
            formula of Rikters and Fishel (2017) has the exponent 2.
    """
    missing = np.abs(1 - _nonzero_rows(weights).sum(axis=0))
    return float(-np.log1p(missing**COVERAGE_EXPONENT).mean() + 0.0)  # not −0


@check_arguments
def absentmindedness_out(weights: Weights) -> float:
    """Return the output absentmindedness penalty: minus the mean entropy, in nats, of the weights of a decoder step.

    It is at most 0. T is the number of rows with weights.

        AP_out = 1/T Σ_t Σ_s α_ts ln α_ts

    Rows are scaled to sum to one, and 0 · ln 0 is 0.

    Args:
        weights: Attention weights, shape (T, S).

    Raises:
        ArgumentError: No row has a weight above 0, a row sums to more than 1, or the value is not an array of weights
            from 0 to 1.

    References:
        As in `coverage_deviation`.
    """
    rows = _nonzero_rows(weights)
    return float(-np.log(2) * _row_entropy(rows / rows.sum(axis=1, keepdims=True)).mean() + 0.0)  # not −0


@check_arguments
def absentmindedness_in(weights: Weights) -> float:
    """Return the input absentmindedness penalty AP_in: minus the mean entropy of a source position's weights, in nats.

    It is at most 0. Columns are scaled to sum to one; a column without weight counts as 0.

    Args:
        weights: Attention weights, shape (T, S).

    Raises:
        ArgumentError: No row has a weight above 0, a row sums to more than 1, or the value is not an array of weights
            from 0 to 1.

    References:
        As in `coverage_deviation`.
    """
    columns = _nonzero_rows(weights).T
    sums = columns.sum(axis=1, keepdims=True)
    scaled = np.divide(columns, sums, out=np.zeros_like(columns), where=sums > 0)
    return float(-np.log(2) * _row_entropy(scaled).mean() + 0.0)  # not −0


@check_arguments
def attention_confidence(weights: Weights) -> float:
    """Return the attention confidence, exp(−0.05 (CDP + AP_out + AP_in)²).

    It is 1 if every output symbol attends to exactly one position and every position is attended to once; else less.

    Args:
        weights: Attention weights, shape (T, S).

    Raises:
        ArgumentError: No row has a weight above 0, a row sums to more than 1, or the value is not an array of weights
            from 0 to 1.

    References:
        As in `coverage_deviation`, without the tool's penalty for outputs that resemble their source.
    """
    total = coverage_deviation(weights) + absentmindedness_out(weights) + absentmindedness_in(weights)
    return float(np.exp(-0.05 * total**2))


@check_arguments
def attention_jumps(trace: Trace) -> Int[np.ndarray, " t"]:
    """Return the signed change of the most attended source position from each step to the next.

    Steps without attention and the step of EOS are left out. The first of equal weights counts. The result is empty for
    fewer than two steps.

    Args:
        trace: Trace of any task.

    Raises:
        ArgumentError: The value is not a trace, or a field is wrong, such as attention of another shape or a row of it
            that sums to more than 1.

    References:
        Brown et al. (1993), section 4.3, on distortion in hard alignments.
    """
    return _jumps(_checked_trace(trace))


def _jumps(trace: Trace) -> Int[np.ndarray, " t"]:
    """Return `attention_jumps` of a trace that has been checked."""
    rows = _attending_rows(trace.attention[: len(trace.symbols)])
    jumps: Int[np.ndarray, " t"] = np.diff(rows.argmax(axis=1)) if len(rows) else np.zeros(0, np.int64)
    return jumps


@check_arguments
def count_jumps(traces: Sequence[Trace]) -> dict[int, int]:
    """Return the number of occurrences of each jump (`attention_jumps`) in the traces, by the jump in ascending order.

    Args:
        traces: The traces.

    Raises:
        ArgumentError: As in `attention_jumps`.
    """
    traces = _checked_traces(traces)
    counted = Counter(int(jump) for trace in traces for jump in _jumps(trace))
    return dict(sorted(counted.items()))


@check_arguments
def diagonality(weights: Weights) -> float:
    """Return the mean weight near the diagonal; 1 for weights on the diagonal.

        1/T Σ_t Σ_s α_ts exp(−(x_s − y_t)² / 2g²),    x_s = (s + ½) / S,  y_t = (t + ½) / T,  g = 0.2

    It is one minus the guided attention loss, computed at the centers of positions. T is the number of rows with
    weights.

    Args:
        weights: Attention weights, shape (T, S).

    Raises:
        ArgumentError: No row has a weight above 0, a row sums to more than 1, or the value is not an array of weights
            from 0 to 1.

    References:
        Tachibana, Uenoyama and Aihara (2018), section 4.1.
    """
    rows = _nonzero_rows(weights)
    steps, positions = rows.shape
    across = (np.arange(positions) + 0.5) / positions - (np.arange(steps)[:, None] + 0.5) / steps
    return float((rows * np.exp(-(across**2) / (2 * DIAGONAL_WIDTH**2))).sum(axis=1).mean())


def _checked_traces(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces with checked fields, which a program may have set."""
    return [_checked_trace(trace, f"traces[{index}]") for index, trace in enumerate(traces)]


def _checked_trace(trace: Trace, name: str = "trace") -> Trace:
    """Return the trace with checked fields."""
    return checked_fields(trace, name)


@check_arguments
def mean_attention_map(traces: Sequence[Trace]) -> Float[np.ndarray, "10 10"] | None:
    """Return the mean weights over ten intervals of the output (rows) and ten of the source (columns).

    Each of T steps covers 1/T of the output, each of S positions 1/S of the source. A row of the map averages the steps
    in its interval by their overlap with it; the weight of a position is distributed over the intervals by overlap.
    Rows therefore sum to one. Steps and traces without weights are left out, and every other trace counts equally.

    Args:
        traces: The traces.

    Returns:
        The map, shape (10, 10); None if no trace has attention weights.

    Raises:
        ArgumentError: As in `attention_jumps`.
    """
    traces = _checked_traces(traces)
    maps = []
    for trace in traces:
        rows = _attending_rows(trace.attention)
        if rows.size:
            maps.append(
                MAP_SIZE * _tenth_overlaps(len(rows)).T @ rows @ (_tenth_overlaps(rows.shape[1]) * rows.shape[1])
            )
    return np.mean(maps, axis=0) if maps else None


def _tenth_overlaps(parts: int) -> Float[np.ndarray, "parts 10"]:
    """Return the overlap of each of `parts` equal parts of the unit interval with each tenth of it."""
    low, first = np.arange(parts)[:, None] / parts, np.arange(MAP_SIZE) / MAP_SIZE
    shared = np.minimum(low + 1 / parts, first + 1 / MAP_SIZE) - np.maximum(low, first)
    overlap: Float[np.ndarray, "parts 10"] = np.clip(shared, 0, None)
    return overlap


class AttentionStatistic(NamedTuple):
    """One statistic of the attention of a corpus, with its 95 % confidence interval."""

    name: str
    """Name in `STATISTICS`."""
    value: float
    unit: str
    """Unit: "bits", "nats", "fraction" (of 1), or "" if there is none."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    definition: str
    """One sentence that defines the statistic."""


Position = Annotated[int, Meta(ge=0, le=2**31)]
GoldSpans = Sequence[tuple[Position, Position]]
"""Source positions [first, stop) that each target symbol is aligned with; (0, 0) if unknown."""

STATISTICS = (
    ("entropy", "bits", "Mean over steps of −Σ α log₂ α (Shannon 1948)."),
    (
        "relative entropy",
        "fraction",
        "Mean over steps of the entropy over log₂ S; sources of one position are left out.",
    ),
    (
        "coverage deviation",
        "",
        "Mean over outputs of CDP, the mean of −ln(1 + |1 − Σ|⁶) over positions with total weight Σ "
        "(Rikters et al. 2017): 0 if each total is 1.",
    ),
    ("absentmindedness, output", "nats", "Mean over outputs of AP_out (Rikters et al. 2017): minus the rows' entropy."),
    (
        "absentmindedness, input",
        "nats",
        "Mean over outputs of AP_in (Rikters et al. 2017): minus the columns' entropy.",
    ),
    (
        "alignment score",
        "",
        "Mean over outputs of exp(−0.05 (CDP + AP_out + AP_in)²), from 0 to 1 (Rikters et al. 2017, as “confidence”). "
        "Not the confidence of an output: it says nothing about its correctness.",
    ),
    (
        "monotonicity",
        "fraction",
        "Share of steps, without EOS, whose largest weight is at the position of the previous step's or after it.",
    ),
    ("diagonality", "fraction", "Mean over outputs of the weight near the diagonal (Tachibana et al. 2018, g = 0.2)."),
    (
        "alignment error",
        "fraction",
        "Share of symbols whose largest weight is outside their gold span (Och & Ney 2003).",
    ),
)
"""Name, unit and definition of each statistic of `summarize_attention`."""


@check_arguments
def trace_statistics(trace: Trace, gold: GoldSpans | None = None) -> Float[np.ndarray, "9 2"]:
    """Return the contribution of one trace to each of `STATISTICS`: sum and count, both 0 if it has none.

    Args:
        trace: Trace of any task.
        gold: Known span of each target symbol, for as many steps as are known; None if there is none. Spans beyond the
            last step are ignored.

    Returns:
        Sums (first column) and counts, shape (9, 2); the statistic of a corpus is the ratio of their totals.

    Raises:
        ArgumentError: As in `attention_jumps`, or a gold span exceeds the source.
    """
    trace = _checked_trace(trace)
    _check_gold("gold", trace, gold)
    return _sums_and_counts(trace, gold)


def _check_gold(name: str, trace: Trace, gold: GoldSpans | None) -> None:
    """Raise `ArgumentError` for a gold span that exceeds the source."""
    for step, (first, stop) in enumerate(gold or ()):
        if not first <= stop <= len(trace.source):
            expected = f"source positions (first, stop) with first <= stop <= {len(trace.source)}"
            raise argument_error(f"{name}[{step}]", expected, (first, stop))


def _sums_and_counts(trace: Trace, gold: GoldSpans | None) -> Float[np.ndarray, "9 2"]:
    """Return `trace_statistics` of a trace that has been checked."""
    weights = trace.attention
    entropies, jumps = _row_entropy(_attending_rows(weights)), _jumps(trace)
    if not entropies.size:
        return np.zeros((len(STATISTICS), 2))
    relative = (entropies.sum() / np.log2(weights.shape[1]), len(entropies)) if weights.shape[1] > 1 else (0.0, 0)
    return np.array(
        [
            (entropies.sum(), len(entropies)),
            relative,
            *(
                (statistic(weights), 1)
                for statistic in (coverage_deviation, absentmindedness_out, absentmindedness_in, attention_confidence)
            ),
            ((jumps >= 0).sum(), len(jumps)),
            (diagonality(weights), 1),
            _alignment_errors(weights, gold or ()),
        ],
        dtype=np.float64,
    )


def _alignment_errors(weights: Float[np.ndarray, "T S"], gold: GoldSpans) -> tuple[int, int]:
    """Return the number of steps whose largest weight lies outside the gold span, and the number of known spans."""
    known = [t for t, (first, stop) in enumerate(gold[: len(weights)]) if stop > first]
    return sum(not gold[t][0] <= int(weights[t].argmax()) < gold[t][1] for t in known), len(known)


@check_arguments
def summarize_attention(
    traces: Sequence[Trace], gold: Sequence[GoldSpans | None] | None = None, seed: Seed = 1
) -> list[AttentionStatistic]:
    """Return the attention statistics of traces with confidence intervals from 1,000 bootstrap resamples.

    A ratio of sums is resampled as a ratio (Bisani and Ney 2004). The result depends on the order of the traces and the
    seed.

    Args:
        traces: The traces.
        gold: Known spans of each trace, or None for a trace without; None if there are none at all.
        seed: Seed of the bootstrap.

    Returns:
        Those of `STATISTICS` that at least one trace has, in their order; empty without attention weights.

    Raises:
        ArgumentError: As in `trace_statistics`, or there are not as many gold alignments as traces.
    """
    spans: Sequence[GoldSpans | None] = gold if gold is not None else [None] * len(traces)
    check_lengths({"traces": traces, "gold": spans})
    traces = _checked_traces(traces)
    for index, (trace, trace_spans) in enumerate(zip(traces, spans, strict=True)):
        _check_gold(f"gold[{index}]", trace, trace_spans)
    pairs = [_sums_and_counts(trace, trace_spans) for trace, trace_spans in zip(traces, spans, strict=True)]
    table = np.array(pairs).reshape(len(traces), 2 * len(STATISTICS))
    if not table.any():
        return []
    resamples = bootstrap_sums(table, seed).reshape(-1, len(STATISTICS), 2)
    statistics = []
    for row, ((name, unit, definition), (sums, counts)) in enumerate(
        zip(STATISTICS, table.sum(axis=0).reshape(-1, 2).tolist(), strict=True)
    ):
        if counts:
            ratios = resamples[resamples[:, row, 1] > 0, row]
            low, high = np.percentile(ratios[:, 0] / ratios[:, 1], [2.5, 97.5]).tolist()
            statistics.append(AttentionStatistic(name, sums / counts, unit, low, high, definition))
    return statistics
