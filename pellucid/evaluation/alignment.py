"""What the weights of attention say by themselves, and how well they agree with a known alignment.

B examples, T target positions, S source positions. Weights are those of one trace, a row a step. A row that looks
nowhere (without attention, or past the end of a monotonic scan) counts in no statistic. The step that wrote the end
counts in all but monotonicity and distortion, for it continues nothing.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from pellucid.decoding.trace import Trace
from pellucid.evaluation.metrics import bootstrap_sums

COVERAGE_EXPONENT = 6
"""Of the coverage deviation penalty."""
DIAGONAL_WIDTH = 0.2
"""Of the diagonal."""
MAP_SIZE = 10


class AlignmentSpans(NamedTuple):
    """The source positions first … stop − 1 that each written symbol comes from, where that is known."""

    first: Int[np.ndarray, "B T"]
    stop: Int[np.ndarray, "B T"]
    known: Bool[np.ndarray, "B T"]


class AlignmentAgreement(NamedTuple):
    """Attention against the spans, over all symbols whose span is known; both are shares of 1."""

    error: float
    """Symbols whose greatest weight lies outside their span: the alignment error rate of Och & Ney 2003 (section 6) for
    one link a symbol, where every position of the span is possible and none is sure."""
    mass: float
    """Mean weight inside the span."""


def alignment_agreement(weights: Float[np.ndarray, "B T S"], spans: AlignmentSpans) -> AlignmentAgreement:
    """Compare each symbol's weights with its span. `ValueError` where no span is known."""
    if not spans.known.any():
        raise ValueError("no symbol's span is known")
    peak = weights.argmax(axis=2)
    outside = (peak < spans.first) | (peak >= spans.stop)
    sums = np.concatenate([np.zeros((*weights.shape[:2], 1)), weights.cumsum(axis=2, dtype=np.float64)], axis=2)
    first, stop = (np.clip(ends, 0, weights.shape[2])[:, :, None] for ends in (spans.first, spans.stop))
    mass = (np.take_along_axis(sums, stop, 2) - np.take_along_axis(sums, first, 2))[:, :, 0]
    return AlignmentAgreement(float(outside[spans.known].mean()), float(mass[spans.known].mean()))


def attending_rows(weights: Float[np.ndarray, "T S"]) -> Float[np.ndarray, "t S"]:
    """The rows that look somewhere, in double precision."""
    rows: Float[np.ndarray, "t S"] = weights[weights.sum(axis=1) > 0].astype(np.float64)
    return rows


def row_entropy(weights: Float[np.ndarray, "T S"]) -> Float[np.ndarray, " T"]:
    """H_t = −Σ_s α_ts log₂ α_ts, in bits: 0 for one position, log₂ S for all alike. Shannon 1948."""
    values = weights.astype(np.float64)
    logarithms = np.log2(values, out=np.zeros_like(values), where=values > 0)
    entropies: Float[np.ndarray, " T"] = np.maximum(-(values * logarithms).sum(axis=1), 0)
    return entropies


def coverage_deviation(weights: Float[np.ndarray, "T S"]) -> float:
    """CDP = 1/S Σ_s ln 1 / (1 + |1 − Σ_t α_ts|⁶): 0 where each position got a weight of one in all, else below.

    Source: Rikters, Fishel & Bojar 2017, with the exponent of their tool (SoftAlignments, functions.py, `getCP`); the
    formula of Rikters & Fishel 2017 has a square in its place.
    """
    missing = np.abs(1 - attending_rows(weights).sum(axis=0))
    return float(-np.log1p(missing**COVERAGE_EXPONENT).mean())


def absentmindedness_out(weights: Float[np.ndarray, "T S"]) -> float:
    """AP_out = 1/T Σ_t Σ_s α_ts ln α_ts: minus the mean entropy, in nats, of where each output symbol looked.

    Source: as `coverage_deviation`; rows are scaled to sum to one, and 0 · ln 0 is 0.
    """
    rows = attending_rows(weights)
    return float(-np.log(2) * row_entropy(rows / rows.sum(axis=1, keepdims=True)).mean())


def absentmindedness_in(weights: Float[np.ndarray, "T S"]) -> float:
    """AP_in: the same of the columns, scaled to sum to one: of which output symbols looked at each position.

    Positions that nobody looked at count as 0.
    """
    columns = attending_rows(weights).T
    sums = columns.sum(axis=1, keepdims=True)
    scaled = np.divide(columns, sums, out=np.zeros_like(columns), where=sums > 0)
    return float(-np.log(2) * row_entropy(scaled).mean())


def attention_confidence(weights: Float[np.ndarray, "T S"]) -> float:
    """exp(−0.05 (CDP + AP_out + AP_in)²): 1 where each output symbol looks at one position of its own.

    Source: as `coverage_deviation`, without the tool's penalty for outputs that spell like their source.
    """
    total = coverage_deviation(weights) + absentmindedness_out(weights) + absentmindedness_in(weights)
    return float(np.exp(-0.05 * total**2))


def attention_jumps(trace: Trace) -> Int[np.ndarray, " t"]:
    """Distortion: from each symbol to the next, how far the greatest weight moves; the end is not counted.

    The first of equal weights counts. Brown et al. 1993, section 4.3, have distortions of hard alignments.
    """
    rows = attending_rows(trace.attention[: len(trace.target) - 1] if trace.finished else trace.attention)
    moves: Int[np.ndarray, " t"] = np.diff(rows.argmax(axis=1)) if len(rows) else np.zeros(0, np.int64)
    return moves


def count_jumps(traces: Sequence[Trace]) -> dict[int, int]:
    """How often each jump came, from the farthest back to the farthest forward."""
    counted = Counter(int(jump) for trace in traces for jump in attention_jumps(trace))
    return dict(sorted(counted.items()))


def diagonality(weights: Float[np.ndarray, "T S"]) -> float:
    """1/T Σ_t Σ_s α_ts exp(−(x_s − y_t)² / 2g²), x_s = (s + ½) / S, y_t = (t + ½) / T, g = 0.2: 1 on the diagonal.

    It is one less the guided attention loss of Tachibana et al. 2018 (section 4.1), at the middles of positions. Rows
    count from the first that looks.
    """
    rows = attending_rows(weights)
    steps, positions = rows.shape
    across = (np.arange(positions) + 0.5) / positions - (np.arange(steps)[:, None] + 0.5) / steps
    return float((rows * np.exp(-(across**2) / (2 * DIAGONAL_WIDTH**2))).sum(axis=1).mean())


def mean_attention_map(traces: Sequence[Trace]) -> Float[np.ndarray, "10 10"] | None:
    """Mean weights over tenths of the output (rows) by tenths of the source (columns); None where nothing looks.

    A step (a position) stands for its T-th (S-th) part of the whole. A tenth's row is the mean of the steps in it, by
    how much of it each fills; a position's weight goes to the tenths it lies in, in proportion. So rows sum to one.
    """
    found = []
    for trace in traces:
        rows = attending_rows(trace.attention)
        if rows.size:
            found.append(
                MAP_SIZE * _tenth_overlaps(len(rows)).T @ rows @ (_tenth_overlaps(rows.shape[1]) * rows.shape[1])
            )
    return np.mean(found, axis=0) if found else None


def _tenth_overlaps(parts: int) -> Float[np.ndarray, "parts 10"]:
    """How much of the whole each of its parts has in common with each tenth."""
    low, first = np.arange(parts)[:, None] / parts, np.arange(MAP_SIZE) / MAP_SIZE
    shared = np.minimum(low + 1 / parts, first + 1 / MAP_SIZE) - np.maximum(low, first)
    overlap: Float[np.ndarray, "parts 10"] = np.clip(shared, 0, None)
    return overlap


class AttentionStatistic(NamedTuple):
    """One number about the attention of a corpus, with its 95 % interval."""

    name: str
    value: float
    unit: str
    low: float
    high: float
    definition: str


GoldSpans = Sequence[tuple[int, int]]
"""Of each step the positions [first, stop) that its symbol comes from; (0, 0) where that is not known."""

STATISTICS = (
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


def trace_statistics(trace: Trace, gold: GoldSpans | None = None) -> Float[np.ndarray, "9 2"]:
    """One trace's part of each statistic of `STATISTICS`: what is summed, and over how many; 0 over 0 where it has none."""
    weights = trace.attention
    entropies, moves = row_entropy(attending_rows(weights)), attention_jumps(trace)
    if not entropies.size:
        return np.zeros((len(STATISTICS), 2))
    relative = (entropies.sum() / np.log2(weights.shape[1]), len(entropies)) if weights.shape[1] > 1 else (0.0, 0)
    return np.array(
        [
            (entropies.sum(), len(entropies)),
            relative,
            *(
                (each(weights), 1)
                for each in (coverage_deviation, absentmindedness_out, absentmindedness_in, attention_confidence)
            ),
            ((moves >= 0).sum(), len(moves)),
            (diagonality(weights), 1),
            _alignment_errors(weights, gold or ()),
        ],
        dtype=np.float64,
    )


def _alignment_errors(weights: Float[np.ndarray, "T S"], gold: GoldSpans) -> tuple[int, int]:
    """Steps that look outside where they should, and steps for which that is known."""
    known = [t for t, (first, stop) in enumerate(gold[: len(weights)]) if stop > first]
    return sum(not gold[t][0] <= int(weights[t].argmax()) < gold[t][1] for t in known), len(known)


def summarize_attention(
    traces: Sequence[Trace], gold: Sequence[GoldSpans | None] | None = None, seed: int = 1
) -> list[AttentionStatistic]:
    """Each statistic of `STATISTICS` that the traces have, with the interval of 1,000 bootstrap resamples of the traces.

    A ratio of sums is resampled as one (Bisani & Ney 2004). The result depends on the order of the traces and the seed.
    """
    spans = gold if gold is not None else [None] * len(traces)
    pairs = [trace_statistics(trace, own) for trace, own in zip(traces, spans, strict=True)]
    table = np.array(pairs).reshape(len(traces), 2 * len(STATISTICS))
    if not table.any():
        return []
    drawn = bootstrap_sums(table, seed).reshape(-1, len(STATISTICS), 2)
    found = []
    for at, ((name, unit, definition), (sums, counts)) in enumerate(
        zip(STATISTICS, table.sum(axis=0).reshape(-1, 2).tolist(), strict=True)
    ):
        if counts:
            ratios = drawn[drawn[:, at, 1] > 0, at]
            low, high = np.percentile(ratios[:, 0] / ratios[:, 1], [2.5, 97.5]).tolist()
            found.append(AttentionStatistic(name, sums / counts, unit, low, high, definition))
    return found
