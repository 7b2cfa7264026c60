"""Metrics of outputs compared with references: exact match, symbol error rate, accuracy by position and by length.

Percentages range from 0 to 100, fractions from 0 to 1; each comes with its 95 % confidence interval.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta
from rapidfuzz.distance import Levenshtein

from pellucid.argument_checks import LogProbability, argument_error, check_arguments, check_lengths, check_not_empty
from pellucid.config.settings import Seed
from pellucid.errors import InputError, quote
from pellucid.row_file import BLOCK_ROWS, RowFile
from pellucid.shapes import Float, Int

Z95 = 1.959963984540054
"""Quantile 0.975 of the standard normal distribution: 95 % of the mass lies within this many standard deviations."""

RESAMPLES = 1000
CHUNK_COUNTS = 2**20
"""Maximum number of multiplicities that are drawn at a time; more distinct rows are drawn one resample at a time."""
OUTCOME_TYPE = np.dtype([("errors", np.int32), ("length", np.int32), ("source_length", np.int32)])
"""Type of the counts of an output: its errors, the length of its nearest reference, and that of its source."""
NonNegativeCount = Annotated[int, Meta(ge=0, le=2**31)]
Number = Annotated[int, Meta(ge=-(2**31), le=2**31)]
"""A whole number; the bound keeps the sum over all examples within 64 bits."""


def student_quantile(freedom: float) -> float:
    """Return the quantile 0.975 of Student's t distribution.

    Args:
        freedom: Degrees of freedom, above 0.
    """
    from scipy.special import stdtrit  # takes a sixth of a second

    return float(stdtrit(freedom, 0.975))


class ConfidenceInterval(NamedTuple):
    """A 95 % confidence interval, in the unit of the quantity."""

    low: float
    high: float

    @property
    def percent(self) -> "ConfidenceInterval":
        """The interval of a fraction, in percent."""
        return ConfidenceInterval(100 * self.low, 100 * self.high)

    @property
    def complement(self) -> "ConfidenceInterval":
        """The interval of 100 − x, for a percentage x."""
        return ConfidenceInterval(100 - self.high, 100 - self.low)


@check_arguments
def wilson_interval(right: NonNegativeCount, total: NonNegativeCount) -> ConfidenceInterval:
    """Return the Wilson score interval of a fraction p = right / total; (0, 1) if total is 0.

        (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n),    n = total, z = `Z95`

    Unlike p ± z √(p(1 − p)/n), it stays within [0, 1] and has a positive width if all or no answers are correct.

    Args:
        right: Number of correct answers.
        total: Number of answers.

    Raises:
        ArgumentError: A value is not a count, or `right` exceeds `total`.

    References:
        E. B. Wilson (1927), "Probable inference, the law of succession, and statistical inference", Journal of the
            American Statistical Association 22(158), 209-212.
    """
    if right > total:
        raise argument_error("right", f"at most total ({total})", right)
    if total == 0:
        return ConfidenceInterval(0.0, 1.0)
    fraction, shrinkage = right / total, Z95**2 / total
    center = fraction + shrinkage / 2
    half = math.sqrt(shrinkage * (fraction * (1 - fraction) + shrinkage / 4))
    # The ends 0 and 1 are set explicitly, since rounding would give values such as 1e-17.
    low = 0.0 if right == 0 else (center - half) / (1 + shrinkage)
    high = 1.0 if right == total else (center + half) / (1 + shrinkage)
    return ConfidenceInterval(low, high)


@check_arguments
def bootstrap_ratio(
    numerators: Sequence[Number], denominators: Sequence[NonNegativeCount], seed: Seed = 1
) -> ConfidenceInterval:
    """Return the percentile bootstrap interval of Σ numerators / Σ denominators, resampled by example.

    Each of `RESAMPLES` resamples draws n of the n examples with replacement and computes the ratio of its sums; the
    interval is between the 2.5th and the 97.5th percentile. A denominator of 0 counts as 1. A resample with both sums 0
    has no ratio and is left out (no sentence with chunks was drawn, for example); if all are, the interval is (0, 0).
    The result depends on the values and the seed, not on the order of the examples.

    If all examples have equal values, the interval has no width: the sample shows no variance. For few examples the
    interval is too narrow: the interval of a span F1 of 82 % contained the true value in 54 % of samples of 2
    sentences, 79 % of 5, 90 % of 20 and 94 % of 50. For two sentences of which one is correct it ranges from 0 to 100
    %, because each of them alone makes up a quarter of the resamples.

    Args:
        numerators: Numerator of each example.
        denominators: Denominator of each example, at least 0.
        seed: Seed of the bootstrap.

    Raises:
        ArgumentError: There is no example, the arguments differ in length, or a value is not a whole number.

    References:
        M. Bisani and H. Ney (2004), "Bootstrap estimates for confidence intervals in ASR performance evaluation",
            ICASSP.
        B. Efron and R. J. Tibshirani (1993), "An introduction to the bootstrap", chapter 13.
    """
    check_lengths({"numerators": numerators, "denominators": denominators})
    check_not_empty("numerators", numerators, "example")
    return ratio_interval(count_distinct_rows(np.column_stack([numerators, denominators])), seed)


class RowCounts(NamedTuple):
    """The distinct rows of a table in lexicographic order, and how often each occurs.

    Bootstraps draw how often each distinct row occurs, so they need nothing else of the table.
    """

    rows: Int[np.ndarray, "m c"]
    """Distinct rows."""
    counts: Int[np.ndarray, " m"]
    """Number of rows of the table that are equal to each."""

    @property
    def total(self) -> int:
        """Number of rows of the table."""
        return int(self.counts.sum())

    @property
    def sums(self) -> Int[np.ndarray, " c"]:
        """Column sums of the table."""
        sums: Int[np.ndarray, " c"] = self.counts @ self.rows
        return sums


def ratio_interval(table: RowCounts, seed: int = 1) -> ConfidenceInterval:
    """Return the interval of `bootstrap_ratio` for numerators and denominators in the columns of a table.

    Args:
        table: Numerator and denominator of each example; at least one.
        seed: Seed of the bootstrap.
    """
    sums = resample_counts(table, np.random.default_rng(seed))
    valid = sums[sums.any(axis=1)]
    if not len(valid):
        return ConfidenceInterval(0.0, 0.0)
    low, high = np.percentile(valid[:, 0] / np.maximum(valid[:, 1], 1), [2.5, 97.5])
    return ConfidenceInterval(float(low), float(high))


@check_arguments
def resample_sums(
    table: Annotated[Int[np.ndarray, "n c"], Meta(ge=-(2**31), le=2**31)], generator: np.random.Generator
) -> Int[np.ndarray, "r c"]:
    """Return the column sums of `RESAMPLES` bootstrap resamples of the rows.

    Equal rows are interchangeable, so the multiplicities of distinct rows are drawn; the order of rows does not matter.

    Args:
        table: Counts, shape (n, c).
        generator: Random generator, which advances.

    Returns:
        Column sums, shape (r, c).

    Raises:
        ArgumentError: There is no row, or an argument has the wrong type.
    """
    check_not_empty("table", table, "row")
    return resample_counts(count_distinct_rows(table), generator)


def resample_counts(table: RowCounts, generator: np.random.Generator) -> Int[np.ndarray, "r c"]:
    """Return the column sums of `RESAMPLES` bootstrap resamples of the rows of a table (`resample_sums`).

    Args:
        table: Rows of the table; at least one.
        generator: Random generator, which advances.
    """
    rows, counts = table
    total = table.total
    # One call draws many resamples, as many as fit in the memory of a chunk; the numbers drawn do not depend on it.
    chunk = max(1, CHUNK_COUNTS // len(rows))
    sizes = [min(chunk, RESAMPLES - first) for first in range(0, RESAMPLES, chunk)]
    return np.concatenate([generator.multinomial(total, counts / total, size=size) @ rows for size in sizes])


def count_distinct_rows(table: Int[np.ndarray, "n c"]) -> RowCounts:
    """Return the distinct rows of a table.

    Args:
        table: Counts, shape (n, c).
    """
    return count_rows(table[first : first + BLOCK_ROWS] for first in range(0, max(1, len(table)), BLOCK_ROWS))


def count_rows(blocks: Iterable[Int[np.ndarray, "_ c"]]) -> RowCounts:
    """Return the distinct rows of a table in blocks; memory grows with the number of distinct rows only.

    Args:
        blocks: Rows of the table; at least one block.
    """
    parts, num_rows, limit = list[RowCounts](), 0, BLOCK_ROWS
    for block in blocks:
        parts.append(merge_rows(block, np.ones(len(block), np.int64)))
        num_rows += len(parts[-1].rows)
        if num_rows > limit:
            parts = [_join_counts(parts)]
            num_rows = len(parts[0].rows)
            limit = max(BLOCK_ROWS, 2 * num_rows)
    return _join_counts(parts)


def merge_rows(rows: Int[np.ndarray, "n c"], counts: Int[np.ndarray, " n"]) -> RowCounts:
    """Return the distinct rows among some rows.

    Args:
        rows: The rows, of which some may be equal.
        counts: How often each occurs.
    """
    if not len(rows):
        return RowCounts(rows, counts)
    columns = rows.T[::-1]
    order = np.lexsort(columns) if len(columns) else np.arange(len(rows))
    rows = rows[order]
    starts = np.flatnonzero(np.append([True], (rows[1:] != rows[:-1]).any(axis=1)))
    return RowCounts(rows[starts], np.add.reduceat(counts[order], starts))


def _join_counts(parts: Sequence[RowCounts]) -> RowCounts:
    """Return the distinct rows of several tables together."""
    if len(parts) == 1:
        return parts[0]
    return merge_rows(np.concatenate([part.rows for part in parts]), np.concatenate([part.counts for part in parts]))


@check_arguments
def bootstrap_sums(table: Float[np.ndarray, "n c"], seed: Seed = 1) -> Float[np.ndarray, "r c"]:
    """Return the column sums of `RESAMPLES` bootstrap resamples of rows of real numbers. The order of rows matters.

    Args:
        table: Numbers, shape (n, c).
        seed: Seed of the bootstrap.

    Returns:
        Column sums, shape (r, c).

    Raises:
        ArgumentError: There is no row, or an argument has the wrong type.
    """
    check_not_empty("table", table, "row")
    generator, total = np.random.default_rng(seed), len(table)
    shares = np.full(total, 1 / total)
    return np.array([generator.multinomial(total, shares) @ table for _ in range(RESAMPLES)])


MAX_LENGTH_BINS = 10
"""Maximum number of ranges of source lengths."""


class ValidationMetric(NamedTuple):
    """A metric of the validation set in percent, by its key in the log and its display name."""

    key: str
    """Key in the log."""
    name: str
    """Display name."""


class NearestReference(NamedTuple):
    """The reference nearest to an output, and the number of errors of the output against it."""

    errors: int
    """Edit distance; for labels, the number of wrong ones."""
    reference: tuple[str, ...]


class ScoredExample(NamedTuple):
    """The output of one example, and its references, as symbols."""

    output: tuple[str, ...]
    """Output symbols, without EOS."""
    references: tuple[tuple[str, ...], ...]
    """One or more references; a reference may be empty."""
    source_length: NonNegativeCount
    """Number of source symbols, without features."""
    positional: bool = False
    """True if symbols are compared position by position (labels), without insertions, deletions and EOS."""
    log_probabilities: tuple[LogProbability, ...] = ()
    """Log-probability of each tag of `output`; empty for other tasks."""

    @property
    def nearest(self) -> NearestReference:
        """The reference with the fewest errors, the first one if tied; see `errors`.

        Raises:
            InputError: There is no reference.
        """
        if not self.references:
            raise InputError(f"no reference to compare the output {quote(' '.join(self.output))} with")
        distance = hamming_distance if self.positional else edit_distance
        distances = [distance(self.output, reference) for reference in self.references]
        errors = min(distances)
        return NearestReference(errors, self.references[distances.index(errors)])

    @property
    def errors(self) -> int:
        """Edit distance to the nearest reference; for labels, the number of positions at which they differ.

        Raises:
            InputError: There is no reference.
        """
        return self.nearest.errors

    @property
    def reference(self) -> tuple[str, ...]:
        """The nearest reference, the first one if tied.

        Raises:
            InputError: There is no reference.
        """
        return self.nearest.reference

    @property
    def exact(self) -> bool:
        """True if the output equals one of the references."""
        return self.output in self.references


class GroupAccuracy(NamedTuple):
    """Accuracy at one target position or for one range of source lengths."""

    label: str
    """The position, from 1, or the range of lengths: "3", "4–5"."""
    right: int
    """Number of correct symbols, or of correct outputs for a range of lengths."""
    total: int
    """Number of references that reach the position, or of examples of these lengths."""
    low: float
    """Lower end of the 95 % interval, in percent."""
    high: float
    """Upper end of the 95 % interval, in percent."""

    @property
    def percent(self) -> float:
        """Accuracy in percent; NaN for an empty group."""
        return 100 * self.right / self.total if self.total else math.nan


@dataclass(frozen=True)
class Evaluation:
    """Metrics of outputs as sequences of symbols. Rates and intervals are percentages.

    Errors are edit distances to the nearest references; for labels, numbers of wrong labels.
    """

    examples: int
    """Number of examples."""
    exact_match: float
    """Percentage of outputs equal to a reference."""
    exact_match_ci95: ConfidenceInterval
    symbol_error_rate: float
    """Sum of the errors over the sum of the lengths of the nearest references (a sum of 0 counts as 1)."""
    symbol_error_rate_ci95: ConfidenceInterval
    symbols: int
    """Number of symbols of the nearest references."""
    errors: int
    """Sum of the errors."""
    symbol_accuracy: float
    """Percentage of target positions with the correct symbol; EOS counts as a position, except for labels."""
    positions: list[GroupAccuracy]
    """Accuracy by target position, from 1 to the last of the longest reference, EOS included except for labels."""
    lengths: list[GroupAccuracy]
    """Exact match by source length."""

    @property
    def sequence_error_rate(self) -> float:
        """Percentage of outputs that are not exact matches, 100 − exact match.

        Work on pronunciation and transliteration, whose outputs are words, calls it the word error rate (WER). The word
        error rate by edits over the words of texts is `TextScores.word_error_rate`.
        """
        return 100 - self.exact_match

    @property
    def sequence_error_rate_ci95(self) -> ConfidenceInterval:
        """Interval of the sequence error rate."""
        return self.exact_match_ci95.complement

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "examples": self.examples,
            "exact_match": self.exact_match,
            "exact_match_ci95": list(self.exact_match_ci95),
            "sequence_error_rate": self.sequence_error_rate,
            "sequence_error_rate_ci95": list(self.sequence_error_rate_ci95),
            "symbol_error_rate": self.symbol_error_rate,
            "symbol_error_rate_ci95": list(self.symbol_error_rate_ci95),
            "symbols": self.symbols,
            "errors": self.errors,
            "symbol_accuracy": self.symbol_accuracy,
            "positions": [accuracy._asdict() for accuracy in self.positions],
            "lengths": [accuracy._asdict() for accuracy in self.lengths],
        }


@check_arguments
def edit_distance(output: Sequence[str], reference: Sequence[str]) -> int:
    """Return the Levenshtein distance: the minimum number of insertions, deletions and substitutions.

    Args:
        output: Output symbols.
        reference: Reference symbols.

    References:
        V. I. Levenshtein (1966), "Binary codes capable of correcting deletions, insertions, and reversals".
    """
    return Levenshtein.distance(*number_symbols(output, reference))


@check_arguments
def hamming_distance(output: Sequence[str], reference: Sequence[str]) -> int:
    """Return the number of positions at which two sequences differ; positions beyond the shorter one count.

    Args:
        output: Output symbols.
        reference: Reference symbols.
    """
    same = sum(one == other for one, other in zip(output, reference, strict=False))
    return max(len(output), len(reference)) - same


@check_arguments
def number_symbols(one: Sequence[str], other: Sequence[str]) -> tuple[list[int], list[int]]:
    r"""Return two sequences with symbols replaced by numbers.

    Rapidfuzz compares strings by hashes, in which "" and `"\0"` are equal; it compares numbers exactly.

    Args:
        one: The first sequence.
        other: The second sequence.

    Returns:
        Both sequences, with equal numbers for equal symbols.
    """
    numbers: dict[str, int] = {}
    first, second = ([numbers.setdefault(symbol, len(numbers)) for symbol in symbols] for symbols in (one, other))
    return first, second


@check_arguments
def evaluate_examples(scored: Sequence[ScoredExample]) -> Evaluation:
    """Return exact match, error rates, and accuracy by position and by source length of examples.

    Args:
        scored: Outputs with references, at least one.

    Raises:
        InputError: There is no example, or an example has no reference.
    """
    outcomes = OutcomeCounts()
    outcomes.add(scored)
    return outcomes.evaluation()


@check_arguments
def metrics_for_log(evaluation: Evaluation) -> dict[str, float]:
    """Return exact match, symbol error rate and symbol accuracy, in percent, by their keys in the training log.

    Args:
        evaluation: Metrics of the validation set.
    """
    return {
        "exact_match": evaluation.exact_match,
        "symbol_error_rate": evaluation.symbol_error_rate,
        "symbol_accuracy": evaluation.symbol_accuracy,
    }


@check_arguments
def worst_examples(scored: Sequence[ScoredExample], count: NonNegativeCount) -> list[int]:
    """Return the indices of the wrong outputs with the highest error rates (errors over reference length), worst first.

    Ties are ordered by the number of errors, descending, and then by index. Outputs without errors are left out.

    Args:
        scored: Outputs with references.
        count: Maximum number of examples.

    Raises:
        InputError: An example has no reference.
    """
    outcomes = OutcomeCounts()
    outcomes.add(scored)
    return outcomes.worst(count)


class OutcomeCounts:
    """Counts of scored outputs, from which their metrics are computed without the outputs: 12 bytes for each.

    Outputs are added in blocks; the counts do not depend on the sizes of the blocks. Those of many outputs are in a
    temporary file (`RowFile`), which is read in blocks: memory does not grow with the outputs.
    """

    def __init__(self) -> None:
        """Begin without outputs."""
        self._rows = RowFile(OUTCOME_TYPE)
        self._right_positions, self._positions = list[int](), list[int]()

    def __len__(self) -> int:
        """Return the number of outputs."""
        return len(self._rows)

    def add(self, scored: Iterable[ScoredExample]) -> None:
        """Add outputs.

        Args:
            scored: Outputs with references.

        Raises:
            InputError: An output has no reference.
            RunError: A temporary file cannot be written.
        """
        errors, lengths, source_lengths = list[int](), list[int](), list[int]()
        for example in scored:
            example_errors, reference = example.nearest
            errors.append(example_errors)
            lengths.append(len(reference))
            source_lengths.append(example.source_length)
            self._count_positions(example.output, reference, not example.positional)
        self._rows.extend(errors, lengths, source_lengths)

    def extend(self, other: "OutcomeCounts") -> None:
        """Add the outputs of other counts.

        Args:
            other: The counts.
        """
        for block in other.blocks():
            self._rows.extend_rows(block)
        self._reserve_positions(len(other._positions))
        for position, (right, total) in enumerate(zip(other._right_positions, other._positions, strict=True)):
            self._right_positions[position] += right
            self._positions[position] += total

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the counts of all outputs, as rows of `OUTCOME_TYPE`."""
        return self._rows.blocks()

    def take(self, indices: Int[np.ndarray, " m"]) -> np.ndarray:
        """Return the counts of some outputs, as rows of `OUTCOME_TYPE`.

        Args:
            indices: Numbers of the outputs, from 0.
        """
        return self._rows.take(indices)

    def tables(self) -> Iterator[Int[np.ndarray, "_ 3"]]:
        """Yield the outcome table in blocks.

        It has a row for each output: 1 if it is wrong, its errors, and the length of the nearest reference.
        """
        for block in self.blocks():
            yield np.column_stack([block["errors"] > 0, block["errors"], block["length"]])

    @property
    def table(self) -> Int[np.ndarray, "n 3"]:
        """Outcome table of all outputs; see `tables`."""
        return np.concatenate([np.empty((0, 3), np.int32), *self.tables()])

    @property
    def num_wrong(self) -> int:
        """Number of wrong outputs."""
        return sum(int(np.count_nonzero(block["errors"])) for block in self.blocks())

    @property
    def error_counts(self) -> RowCounts:
        """Number of errors of each output (`ScoredExample.errors`), and length of its nearest reference."""
        return count_rows(np.column_stack([block["errors"], block["length"]]) for block in self.blocks())

    def worst(self, count: int) -> list[int]:
        """Return the indices of the wrong outputs with the highest error rates, worst first (`worst_examples`).

        Args:
            count: Maximum number of them.
        """
        worst, outcomes, first = np.empty(0, np.int64), np.empty(0, OUTCOME_TYPE), 0
        for block in self.blocks():
            worst = np.concatenate([worst, np.arange(first, first + len(block))])
            outcomes = np.concatenate([outcomes, block])
            places = worst_errors(outcomes["errors"], outcomes["length"])[:count]
            # In the order of the examples, by which later blocks are ordered among equal ones.
            places.sort()
            worst, outcomes, first = worst[places], outcomes[places], first + len(block)
        indices: list[int] = worst[worst_errors(outcomes["errors"], outcomes["length"])].tolist()
        return indices

    def wrong_by_rate(self) -> Iterator[int]:
        """Yield the wrong outputs in the order of `worst`, by their numbers among the wrong outputs, from 0."""
        # In the order of bytes, a positive number is greater if its complement is less.
        number, ordered = 0, RowFile([("rate", ">u8"), ("errors", ">u4"), ("number", ">u8")])
        for block in self.blocks():
            wrong = block[block["errors"] > 0]
            rates = wrong["errors"] / np.maximum(wrong["length"], 1)
            numbers = np.arange(number, number + len(wrong))
            ordered.extend(~rates.view(np.uint64), ~wrong["errors"].astype(np.uint32), numbers)
            number += len(wrong)
        ordered.sort()
        for ordered_block in ordered.blocks():
            yield from ordered_block["number"].tolist()

    def evaluation(self) -> Evaluation:
        """Return exact match, error rates, and accuracy by position and by source length.

        Raises:
            InputError: There is no output.
        """
        if not len(self):
            raise InputError("no examples to evaluate")
        error_counts = self.error_counts
        num_errors, num_symbols = error_counts.sums.tolist()
        num_exact = int(error_counts.counts[error_counts.rows[:, 0] == 0].sum())
        positions = [
            _group_accuracy(str(position), right, total)
            for position, (right, total) in enumerate(zip(self._right_positions, self._positions, strict=True), start=1)
        ]
        right, total = sum(self._right_positions), sum(self._positions)
        by_length = (np.column_stack([block["source_length"], block["errors"] == 0]) for block in self.blocks())
        return Evaluation(
            examples=len(self),
            exact_match=100 * num_exact / len(self),
            exact_match_ci95=wilson_interval(num_exact, len(self)).percent,
            symbol_error_rate=100 * num_errors / max(1, num_symbols),
            symbol_error_rate_ci95=ratio_interval(error_counts).percent,
            symbols=num_symbols,
            errors=num_errors,
            symbol_accuracy=100 * right / max(total, 1),
            positions=positions,
            lengths=_accuracy_by_length(count_rows(by_length)),
        )

    def _count_positions(self, output: tuple[str, ...], reference: tuple[str, ...], counts_end: bool) -> None:
        """Count the reference positions of an output, and those with the correct symbol.

        A symbol is correct if the output has it at that position. EOS is correct if the output ends there as well.

        Args:
            output: Output.
            reference: Nearest reference.
            counts_end: Whether EOS counts, as the position after the last symbol.
        """
        end = len(reference)
        self._reserve_positions(end + counts_end)
        for position in range(end + counts_end):
            self._positions[position] += 1
        for position, (decoded, expected) in enumerate(zip(output, reference, strict=False)):
            self._right_positions[position] += decoded == expected
        if counts_end:
            self._right_positions[end] += len(output) == end

    def _reserve_positions(self, count: int) -> None:
        """Extend the counts of positions to `count` positions."""
        missing = [0] * (count - len(self._positions))
        self._positions += missing
        self._right_positions += missing


def worst_errors(errors: Int[np.ndarray, " n"], lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
    """Return the indices of the wrong outputs, those with the highest error rates first (`worst_examples`).

    Args:
        errors: Number of errors of each output.
        lengths: Number of symbols of the nearest reference of each output.
    """
    wrong = np.flatnonzero(errors)
    rates = errors[wrong] / np.maximum(lengths[wrong], 1)
    return wrong[np.lexsort((-errors[wrong], -rates))]


def exclusively_right(errors: Int[np.ndarray, " n"], other_errors: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
    """Return the indices of examples that are correct in one run and wrong in another, most errors first.

    Args:
        errors: Number of errors of each output of the first run.
        other_errors: Those of the other run, on the same examples.
    """
    rows = np.flatnonzero((errors == 0) & (other_errors > 0))
    return rows[np.argsort(-other_errors[rows], kind="stable")]


def first_exclusively_right(outcomes: OutcomeCounts, other: OutcomeCounts, count: int) -> list[int]:
    """Return the first indices of `exclusively_right`.

    Args:
        outcomes: Outcomes of the first run.
        other: Those of the other run, on the same examples.
        count: Maximum number of indices.
    """
    found, found_errors, first = np.empty(0, np.int64), np.empty(0, np.int32), 0
    for block, other_block in zip(outcomes.blocks(), other.blocks(), strict=True):
        places = exclusively_right(block["errors"], other_block["errors"])[:count]
        found = np.concatenate([found, first + places])
        found_errors = np.concatenate([found_errors, other_block["errors"][places]])
        # Stable, so that earlier examples precede later ones with as many errors.
        kept = np.argsort(-found_errors, kind="stable")[:count]
        found, found_errors, first = found[kept], found_errors[kept], first + len(block)
    indices: list[int] = found.tolist()
    return indices


def _accuracy_by_length(examples: RowCounts) -> list[GroupAccuracy]:
    """Return the exact match by source length, in at most `MAX_LENGTH_BINS` ranges of nearly equal numbers of examples.

    A length belongs to the range that contains the median of its examples when all are sorted by length.

    Args:
        examples: Source length of each example, and 1 if its output is correct, else 0.
    """
    values, places = np.unique(examples.rows[:, 0], return_inverse=True)
    counts, right = (
        np.bincount(places, weights=weights, minlength=len(values)).astype(np.int64)
        for weights in (examples.counts, examples.counts * examples.rows[:, 1])
    )
    middles = np.cumsum(counts) - counts / 2
    ranges = (MAX_LENGTH_BINS * middles / examples.total).astype(int)
    result = []
    for number in np.unique(ranges):
        inside = ranges == number
        low, high = values[inside].min(), values[inside].max()
        label = str(low) if low == high else f"{low}–{high}"
        result.append(_group_accuracy(label, int(right[inside].sum()), int(counts[inside].sum())))
    return result


def _group_accuracy(label: str, right: int, total: int) -> GroupAccuracy:
    """Return an accuracy with its Wilson interval."""
    return GroupAccuracy(label, right, total, *wilson_interval(right, total).percent)


class CorpusScore(NamedTuple):
    """A corpus-level score, and the sacrebleu signature that states how it was computed."""

    score: float
    signature: str


@dataclass(frozen=True)
class TextScores:
    """Metrics of outputs as texts. Rates and intervals are percentages."""

    word_error_rate: float
    """Word error rate as in speech recognition: sum of the edit distances over words, over the words of the references.
    """
    word_error_rate_ci95: ConfidenceInterval
    words: int
    """Number of words of the nearest references."""
    character_error_rate: float
    """Sum of the edit distances over characters, spaces included, over the characters of the references."""
    character_error_rate_ci95: ConfidenceInterval
    bleu: CorpusScore
    """Corpus BLEU, 0 to 100."""
    chrf: CorpusScore
    """Corpus chrF2, 0 to 100."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "word_error_rate": self.word_error_rate,
            "word_error_rate_ci95": list(self.word_error_rate_ci95),
            "words": self.words,
            "character_error_rate": self.character_error_rate,
            "character_error_rate_ci95": list(self.character_error_rate_ci95),
            "bleu": self.bleu._asdict(),
            "chrf": self.chrf._asdict(),
        }


@check_arguments
def score_texts(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> TextScores:
    """Return word error rate, character error rate, BLEU and chrF of texts.

    Error rates use the nearest reference in words or in characters, the first one if tied. Words are separated by white
    space as in the NIST scoring of speech recognition (sclite), without normalization. A total length of 0 counts as 1.

    Args:
        outputs: Output texts, at least one.
        references: Reference texts of each output, at least one.

    Raises:
        ArgumentError: The arguments differ in length, one has a wrong type, there is no output, or an output has no
            reference.
    """
    _check_texts(outputs, references)
    pairs = list(zip(outputs, references, strict=True))
    words = [_nearest_reference(output.split(), [text.split() for text in texts]) for output, texts in pairs]
    characters = [_nearest_reference(output, texts) for output, texts in pairs]
    return TextScores(
        *_error_rate(words),
        sum(length for _, length in words),
        *_error_rate(characters),
        bleu=bleu(outputs, references),
        chrf=chrf(outputs, references),
    )


def _check_texts(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise `ArgumentError` if there is no output, or an output has no reference."""
    check_lengths({"outputs": outputs, "references": references})
    check_not_empty("outputs", outputs, "output")
    for index, texts in enumerate(references):
        check_not_empty(f"references[{index}]", texts, "reference")


@check_arguments
def bleu(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> CorpusScore:
    """Return corpus BLEU, 0 to 100: the geometric mean of clipped 1- to 4-gram precisions times the brevity penalty.

    Computed by sacrebleu with its defaults (13a tokenization, case-sensitive, exponential smoothing).

    Args:
        outputs: Output texts, at least one.
        references: Reference texts of each output, at least one.

    Raises:
        ArgumentError: As in `score_texts`.

    References:
        K. Papineni, S. Roukos, T. Ward and W.-J. Zhu (2002), "BLEU: a method for automatic evaluation of machine
            translation", ACL.
        M. Post (2018), "A call for clarity in reporting BLEU scores", WMT.
    """
    from sacrebleu.metrics.bleu import BLEU  # the import takes half a second, and only texts need it

    return _corpus_score(BLEU(), outputs, references)


@check_arguments
def chrf(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> CorpusScore:
    """Return corpus chrF2, 0 to 100: the F2 of character 1- to 6-grams, by sacrebleu with its defaults.

    Args:
        outputs: Output texts, at least one.
        references: Reference texts of each output, at least one.

    Raises:
        ArgumentError: As in `score_texts`.

    References:
        M. Popović (2015), "chrF: character n-gram F-score for automatic MT evaluation", WMT.
    """
    from sacrebleu.metrics.chrf import CHRF

    return _corpus_score(CHRF(), outputs, references)


def _corpus_score(
    metric: Any,  # noqa: ANN401 (a metric of sacrebleu, which is imported late)
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
) -> CorpusScore:
    """Return the score of all outputs by a metric of sacrebleu, with its signature."""
    _check_texts(outputs, references)
    score = metric.corpus_score(list(outputs), _sacrebleu_references(references)).score
    return CorpusScore(float(score), str(metric.get_signature()))


def _sacrebleu_references(references: Sequence[Sequence[str]]) -> Any:  # noqa: ANN401 (None is taken, but not in sacrebleu's types)
    """Return references in the format of sacrebleu: the first of every example, then the second, …; None if missing."""
    max_references = max(map(len, references))
    return [[texts[index] if index < len(texts) else None for texts in references] for index in range(max_references)]


def _nearest_reference(output: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return the smallest edit distance to a reference, and the length of that reference."""
    candidates = [(edit_distance(output, reference), len(reference)) for reference in references]
    return min(candidates, key=lambda pair: pair[0])


def _error_rate(pairs: Sequence[tuple[int, int]]) -> tuple[float, ConfidenceInterval]:
    """Return Σ errors / Σ lengths in percent, with its bootstrap interval over examples."""
    errors, lengths = [error for error, _ in pairs], [length for _, length in pairs]
    return 100 * sum(errors) / max(1, sum(lengths)), bootstrap_ratio(errors, lengths).percent
