"""Metrics of outputs compared with references: exact match, symbol error rate, accuracy by position and by length.

Percentages range from 0 to 100, fractions from 0 to 1; each comes with its 95 % confidence interval.
"""

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta
from rapidfuzz.distance import Levenshtein

from pellucid.argument_checks import LogProbability, argument_error, check_arguments, check_lengths, check_not_empty
from pellucid.config.settings import Seed
from pellucid.errors import InputError, quote
from pellucid.shapes import Bool, Float, Int

Z95 = 1.959963984540054
"""Quantile 0.975 of the standard normal distribution: 95 % of the mass lies within this many standard deviations."""

RESAMPLES = 1000
BLOCK_ROWS = 2**18
"""Number of rows that are sorted at a time."""
CHUNK_COUNTS = 2**20
"""Maximum number of multiplicities that are drawn at a time; more distinct rows are drawn one resample at a time."""
Count = Annotated[int, Meta(ge=0, le=2**31)]
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
def wilson_interval(right: Count, total: Count) -> ConfidenceInterval:
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
def bootstrap_ratio(numerators: Sequence[Number], denominators: Sequence[Count], seed: Seed = 1) -> ConfidenceInterval:
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
    return ratio_interval(np.column_stack([numerators, denominators]), seed)


def ratio_interval(table: Int[np.ndarray, "n 2"], seed: int = 1) -> ConfidenceInterval:
    """Return the interval of `bootstrap_ratio` for numerators and denominators in the columns of a table.

    Args:
        table: Numerator and denominator of each example; at least one.
        seed: Seed of the bootstrap.
    """
    sums = resample_sums(table, np.random.default_rng(seed))
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
    rows, counts = count_distinct_rows(table)
    total = int(counts.sum())
    # One call draws many resamples, as many as fit in the memory of a chunk; the numbers drawn do not depend on it.
    chunk = max(1, CHUNK_COUNTS // len(rows))
    sizes = [min(chunk, RESAMPLES - first) for first in range(0, RESAMPLES, chunk)]
    return np.concatenate([generator.multinomial(total, counts / total, size=size) @ rows for size in sizes])


def count_distinct_rows(table: Int[np.ndarray, "n c"]) -> tuple[Int[np.ndarray, "m c"], Int[np.ndarray, " m"]]:
    """Return the distinct rows of a table, sorted, and how often each occurs.

    Rows are sorted in blocks, so that memory does not grow with their number, but with that of the distinct ones.

    Args:
        table: Counts, shape (n, c).
    """
    blocks = [table[first : first + BLOCK_ROWS] for first in range(0, max(1, len(table)), BLOCK_ROWS)]
    parts = [np.unique(block, axis=0, return_counts=True) for block in blocks]
    if len(parts) == 1:
        return parts[0]
    rows, places = np.unique(np.concatenate([part for part, _ in parts]), axis=0, return_inverse=True)
    counts = np.zeros(len(rows), np.int64)
    np.add.at(counts, places.ravel(), np.concatenate([part_counts for _, part_counts in parts]))
    return rows, counts


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
    source_length: Count
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
def worst_examples(scored: Sequence[ScoredExample], count: Count) -> list[int]:
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

    Outputs are added in blocks; the counts do not depend on the sizes of the blocks.
    """

    def __init__(self) -> None:
        """Begin without outputs."""
        self._errors, self._lengths, self._source_lengths = array("i"), array("i"), array("i")
        self._right_positions, self._positions = list[int](), list[int]()

    def __len__(self) -> int:
        """Return the number of outputs."""
        return len(self._errors)

    def add(self, scored: Iterable[ScoredExample]) -> None:
        """Add outputs.

        Args:
            scored: Outputs with references.

        Raises:
            InputError: An output has no reference.
        """
        for example in scored:
            errors, reference = example.nearest
            self._errors.append(errors)
            self._lengths.append(len(reference))
            self._source_lengths.append(example.source_length)
            self._count_positions(example.output, reference, not example.positional)

    def extend(self, other: "OutcomeCounts") -> None:
        """Add the outputs of other counts.

        Args:
            other: The counts.
        """
        self._errors.extend(other._errors)
        self._lengths.extend(other._lengths)
        self._source_lengths.extend(other._source_lengths)
        self._reserve_positions(len(other._positions))
        for position, (right, total) in enumerate(zip(other._right_positions, other._positions, strict=True)):
            self._right_positions[position] += right
            self._positions[position] += total

    @property
    def errors(self) -> Int[np.ndarray, " n"]:
        """Number of errors of each output (`ScoredExample.errors`); 0 for a correct one."""
        return np.asarray(self._errors)

    @property
    def exact(self) -> Bool[np.ndarray, " n"]:
        """True for each output that equals a reference."""
        exact: Bool[np.ndarray, " n"] = self.errors == 0
        return exact

    @property
    def num_wrong(self) -> int:
        """Number of wrong outputs."""
        return int(np.count_nonzero(self.errors))

    @property
    def reference_lengths(self) -> Int[np.ndarray, " n"]:
        """Number of symbols of the nearest reference of each output."""
        return np.asarray(self._lengths)

    @property
    def table(self) -> Int[np.ndarray, "n 3"]:
        """One row for each output: 1 if it is wrong, its errors, and the length of the nearest reference."""
        return np.column_stack([self.errors > 0, self.errors, self.reference_lengths])

    def worst(self, count: int) -> list[int]:
        """Return the indices of the wrong outputs with the highest error rates, worst first (`worst_examples`).

        Args:
            count: Maximum number of them.
        """
        indices: list[int] = worst_errors(self.errors, self.reference_lengths)[:count].tolist()
        return indices

    def wrong_by_rate(self) -> Int[np.ndarray, " m"]:
        """Return the wrong outputs in the order of `worst`, by their numbers among the wrong outputs, from 0."""
        numbers = np.cumsum(~self.exact) - 1
        by_rate: Int[np.ndarray, " m"] = numbers[worst_errors(self.errors, self.reference_lengths)]
        return by_rate

    def evaluation(self) -> Evaluation:
        """Return exact match, error rates, and accuracy by position and by source length.

        Raises:
            InputError: There is no output.
        """
        if not self._errors:
            raise InputError("no examples to evaluate")
        errors, lengths, exact = self.errors, self.reference_lengths, self.exact
        num_exact, num_errors, num_symbols = (int(values.sum()) for values in (exact, errors, lengths))
        positions = [
            _group_accuracy(str(position), right, total)
            for position, (right, total) in enumerate(zip(self._right_positions, self._positions, strict=True), start=1)
        ]
        right, total = sum(self._right_positions), sum(self._positions)
        return Evaluation(
            examples=len(exact),
            exact_match=100 * num_exact / len(exact),
            exact_match_ci95=wilson_interval(num_exact, len(exact)).percent,
            symbol_error_rate=100 * num_errors / max(1, num_symbols),
            symbol_error_rate_ci95=ratio_interval(np.column_stack([errors, lengths])).percent,
            symbols=num_symbols,
            errors=num_errors,
            symbol_accuracy=100 * right / max(total, 1),
            positions=positions,
            lengths=_accuracy_by_length(np.asarray(self._source_lengths), exact),
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


def _accuracy_by_length(lengths: Int[np.ndarray, " n"], exact: Bool[np.ndarray, " n"]) -> list[GroupAccuracy]:
    """Return the exact match by source length, in at most `MAX_LENGTH_BINS` ranges of nearly equal numbers of examples.

    A length belongs to the range that contains the median of its examples when all are sorted by length.
    """
    values, inverse, counts = np.unique(lengths, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - counts / 2
    ranges = (MAX_LENGTH_BINS * middles / len(lengths)).astype(int)
    right = np.bincount(inverse, weights=exact, minlength=len(values))
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
