"""Outputs against references: exact match, symbol error rate, and accuracy by target position and source length.

A percentage runs from 0 to 100, a share from 0 to 1, and each stands with its 95 % confidence interval.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from msgspec import Meta
from rapidfuzz.distance import Levenshtein

from pellucid.arguments import LogProbability, argument_error, check_arguments, check_lengths, check_not_empty
from pellucid.config.settings import Seed
from pellucid.errors import InputError, quote

Z95 = 1.959963984540054
"""The standard normal quantile of 0.975: 95 % of the mass lies within so many standard deviations of the mean."""

RESAMPLES = 1000
Count = Annotated[int, Meta(ge=0, le=2**31)]
Number = Annotated[int, Meta(ge=-(2**31), le=2**31)]
"""A whole number of which 64 bits hold the sum over all examples."""


class Interval(NamedTuple):
    """The two ends of a 95 % confidence interval."""

    low: float
    high: float

    @property
    def percent(self) -> "Interval":
        """The interval of the same share as a percentage."""
        return Interval(100 * self.low, 100 * self.high)

    @property
    def rest(self) -> "Interval":
        """Of a percentage's interval, that of what it leaves of 100."""
        return Interval(100 - self.high, 100 - self.low)


@check_arguments
def wilson(right: Count, total: Count) -> Interval:
    """The score interval of a share p = right / total; (0, 1) where nothing was counted.

        (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n),    n = total, z = `Z95`

    It stays within [0, 1] and keeps its width where every answer is right or none is, unlike p ± z √(p(1 − p)/n).
    Source: E. B. Wilson (1927), "Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22(158), 209-212.

    Raises:
        ArgumentError: One is no count, or more are right than there are.
    """
    if right > total:
        raise argument_error("right", f"at most total ({total})", right)
    if total == 0:
        return Interval(0.0, 1.0)
    share, shrinkage = right / total, Z95**2 / total
    centre = share + shrinkage / 2
    half = math.sqrt(shrinkage * (share * (1 - share) + shrinkage / 4))
    # The ends that are known exactly are set: rounding would leave 1e-17 in their place.
    low = 0.0 if right == 0 else (centre - half) / (1 + shrinkage)
    high = 1.0 if right == total else (centre + half) / (1 + shrinkage)
    return Interval(low, high)


@check_arguments
def bootstrap_ratio(numerators: Sequence[Number], denominators: Sequence[Count], seed: Seed = 1) -> Interval:
    """The percentile bootstrap interval of Σ numerators / Σ denominators, resampled by example.

    Each of `RESAMPLES` resamples draws n of the n examples with replacement and forms the ratio r* of its sums; the
    ends are the 2.5th and the 97.5th percentile of r*. A sum of 0 below the line counts as 1; where the one above is 0
    too there is no ratio (a file's few sentences with chunks were not drawn), and the resample is left out. The result
    depends on the values and the seed alone, not on the order of the examples. Where all examples are alike (none has
    an error, or there is only one) no resample differs and the interval has no width: it says that the sample shows no
    spread. Of few examples it is too narrow: that of a span F1 of 82 % had the true one within it in 54 % of samples of
    2 sentences, 79 % of 5, 90 % of 20 and 94 % of 50. It runs from 0 to 100 % for two sentences of which one is right
    and one wrong, since each of them makes up a quarter of the resamples alone.

    Source: M. Bisani and H. Ney (2004), "Bootstrap estimates for confidence intervals in ASR performance evaluation",
    ICASSP; B. Efron and R. J. Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13.

    Raises:
        ArgumentError: There is no example, there are not as many of both, or one is no whole number.
    """
    check_lengths(numerators=numerators, denominators=denominators)
    check_not_empty("numerators", numerators, "example")
    sums = resampled(np.column_stack([numerators, denominators]), np.random.default_rng(seed))
    told = sums[sums.any(axis=1)]
    if not len(told):
        return Interval(0.0, 0.0)
    low, high = np.percentile(told[:, 0] / np.maximum(told[:, 1], 1), [2.5, 97.5])
    return Interval(float(low), float(high))


def resampled(table: Int[np.ndarray, "n c"], generator: np.random.Generator) -> Int[np.ndarray, "r c"]:
    """The column sums of `RESAMPLES` resamples, each of n of the n rows drawn with replacement.

    Equal rows are interchangeable, so drawing how often each distinct row appears is the same draw; the rows' order
    changes nothing.
    """
    rows, counts = np.unique(table, axis=0, return_counts=True)
    total = int(counts.sum())
    return np.array([generator.multinomial(total, counts / total) @ rows for _ in range(RESAMPLES)])


def bootstrap_sums(table: Float[np.ndarray, "n c"], seed: int = 1) -> Float[np.ndarray, "r c"]:
    """As `resampled`, for numbers that are not counts: every row is drawn by itself, so their order matters."""
    generator, total = np.random.default_rng(seed), len(table)
    shares = np.full(total, 1 / total)
    return np.array([generator.multinomial(total, shares) @ table for _ in range(RESAMPLES)])


LENGTH_BINS = 10
"""Accuracy by source length is told for at most so many ranges of lengths."""


class Followed(NamedTuple):
    """A score that is followed through a training, in per cent."""

    key: str
    """Its name in the log."""
    name: str
    """What people call it."""


class Nearest(NamedTuple):
    """The reference an output is measured against, and its edit distance."""

    errors: int
    reference: tuple[str, ...]


class Scored(NamedTuple):
    """One example: what was decoded, and every answer that counts as right."""

    output: tuple[str, ...]
    """Decoded symbols, without the end symbol."""
    references: tuple[tuple[str, ...], ...]
    """One answer or several; an answer may have no symbols."""
    source_length: Count
    """Symbols of the source, features left out."""
    positional: bool = False
    """Whether each symbol answers for its own place (tags, a class): none can be inserted or left out, or be an end."""
    log_probabilities: tuple[LogProbability, ...] = ()
    """ln p of each tag of `output`; of other tasks nothing."""

    @property
    def nearest(self) -> Nearest:
        """The reference with the least edit distance to the output, the first of them at a tie, and that distance."""
        if not self.references:
            raise InputError(f"no reference to compare the output {quote(' '.join(self.output))} with")
        distance = differing if self.positional else edit_distance
        distances = [distance(self.output, reference) for reference in self.references]
        errors = min(distances)
        return Nearest(errors, self.references[distances.index(errors)])

    @property
    def errors(self) -> int:
        """The least edit distance to a reference; of answers place by place, how many are wrong."""
        return self.nearest.errors

    @property
    def reference(self) -> tuple[str, ...]:
        """The nearest reference, the first of them at a tie."""
        return self.nearest.reference

    @property
    def exact(self) -> bool:
        """Whether the output is one of the references."""
        return self.output in self.references


class Accuracy(NamedTuple):
    """The right ones among those of one target position or one range of source lengths."""

    label: str
    """The position, from 1, or the lengths: "3", "4–5"."""
    right: int
    total: int
    low: float
    """The lower end of the 95 % interval, in per cent."""
    high: float
    """Its upper end."""

    @property
    def percent(self) -> float:
        """right / total in per cent; NaN for an empty group."""
        return 100 * self.right / self.total if self.total else math.nan


@dataclass(frozen=True)
class Evaluation:
    """What a set of outputs is worth. Rates are percentages."""

    examples: int
    exact_match: float
    """Share of outputs equal to a reference."""
    exact_match_ci95: Interval
    symbol_error_rate: float
    """Edit distances to the nearest references, summed, over the lengths of these, summed (a sum of 0 counts as 1)."""
    symbol_error_rate_ci95: Interval
    symbols: int
    """Symbols of the nearest references."""
    errors: int
    """Edit distances, summed."""
    symbol_accuracy: float
    """Share of target positions with the right symbol; where outputs end, the end symbol's position is one of them."""
    positions: list[Accuracy]
    """The same by target position, from 1 to the one after the longest reference's last symbol."""
    lengths: list[Accuracy]
    """Exact match by source length."""

    @property
    def wer(self) -> float:
        """Word error rate, as pronunciation lexicons report it: the share of outputs that are not exact matches.

        The rate by edits over the words of a text, which has the same name elsewhere, is `TextScores.word_edit_rate`.
        """
        return 100 - self.exact_match

    @property
    def wer_ci95(self) -> Interval:
        """Its interval: that of the exact match, turned round."""
        return self.exact_match_ci95.rest

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as plain values for JSON."""
        return {
            "examples": self.examples,
            "exact_match": self.exact_match,
            "exact_match_ci95": list(self.exact_match_ci95),
            "wer": self.wer,
            "wer_ci95": list(self.wer_ci95),
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
    """Fewest symbols to insert, delete or replace that turn one sequence into the other.

    Source: V. I. Levenshtein (1966), "Binary codes capable of correcting deletions, insertions, and reversals".
    """
    return Levenshtein.distance(*numbered(output, reference))


@check_arguments
def differing(output: Sequence[str], reference: Sequence[str]) -> int:
    """At how many places two sequences differ (Hamming distance); what one has beyond the other differs."""
    same = sum(one == other for one, other in zip(output, reference, strict=False))
    return max(len(output), len(reference)) - same


def numbered(one: Sequence[str], other: Sequence[str]) -> tuple[list[int], list[int]]:
    """Two sequences with a number for each distinct symbol.

    Rapidfuzz tells strings apart by their hash, in which "" and "\\0" are one; numbers it tells apart exactly.
    """
    numbers: dict[str, int] = {}
    first, second = ([numbers.setdefault(symbol, len(numbers)) for symbol in symbols] for symbols in (one, other))
    return first, second


@check_arguments
def evaluate(scored: Sequence[Scored]) -> Evaluation:
    """Every score of these examples. `InputError` where there are none, or one has no reference."""
    if not scored:
        raise InputError("no examples to evaluate")
    nearest = [example.nearest for example in scored]
    exact = [example.exact for example in scored]
    errors, lengths = [near.errors for near in nearest], [len(near.reference) for near in nearest]
    references = [near.reference for near in nearest]
    positions = _by_position(
        [example.output for example in scored], references, [not each.positional for each in scored]
    )
    right, total = sum(accuracy.right for accuracy in positions), sum(accuracy.total for accuracy in positions)
    return Evaluation(
        examples=len(scored),
        exact_match=100 * sum(exact) / len(scored),
        exact_match_ci95=wilson(sum(exact), len(scored)).percent,
        symbol_error_rate=100 * sum(errors) / max(1, sum(lengths)),
        symbol_error_rate_ci95=bootstrap_ratio(errors, lengths).percent,
        symbols=sum(lengths),
        errors=sum(errors),
        symbol_accuracy=100 * right / max(total, 1),
        positions=positions,
        lengths=_by_length([example.source_length for example in scored], exact),
    )


@check_arguments
def metrics_for_log(evaluation: Evaluation) -> dict[str, float]:
    """The scores that training follows, by name."""
    return {
        "exact_match": evaluation.exact_match,
        "symbol_error_rate": evaluation.symbol_error_rate,
        "symbol_accuracy": evaluation.symbol_accuracy,
    }


@check_arguments
def worst(scored: Sequence[Scored], count: Count) -> list[int]:
    """Indices of at most `count` examples with errors, the most errors for the reference's length first.

    Among equals those with more errors come first, and then those that stand first.
    """
    nearest = [example.nearest for example in scored]
    wrong = [index for index, near in enumerate(nearest) if near.errors]
    rates = {index: nearest[index].errors / max(1, len(nearest[index].reference)) for index in wrong}
    return sorted(wrong, key=lambda index: (-rates[index], -nearest[index].errors))[:count]


def _by_position(
    outputs: Iterable[tuple[str, ...]], references: Sequence[tuple[str, ...]], ended: Sequence[bool]
) -> list[Accuracy]:
    """Accuracy by position of the reference; of `ended` ones the end symbol stands at the position after the last.

    A symbol is right where the output has the same one at the same position, the end where the output ends there too.
    """
    total = [0] * max(len(reference) + ends for reference, ends in zip(references, ended, strict=True))
    right = [0] * len(total)
    for output, reference, ends in zip(outputs, references, ended, strict=True):
        end = len(reference)
        for position in range(end + ends):
            total[position] += 1
        for position, (decoded, wanted) in enumerate(zip(output, reference, strict=False)):
            right[position] += decoded == wanted
        if ends:
            right[end] += len(output) == end
    return [
        _accuracy(str(position), *counts) for position, counts in enumerate(zip(right, total, strict=True), start=1)
    ]


def _by_length(lengths: Sequence[int], exact: Sequence[bool]) -> list[Accuracy]:
    """Exact match by source length, in at most `LENGTH_BINS` ranges of nearly as many examples each.

    A length belongs to the range in which the middle one of its examples falls when all are sorted by length.
    """
    values, inverse, counts = np.unique(np.asarray(lengths), return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - counts / 2
    ranges = (LENGTH_BINS * middles / len(lengths)).astype(int)
    right = np.bincount(inverse, weights=np.asarray(exact), minlength=len(values))
    result = []
    for number in np.unique(ranges):
        inside = ranges == number
        low, high = values[inside].min(), values[inside].max()
        label = str(low) if low == high else f"{low}–{high}"
        result.append(_accuracy(label, int(right[inside].sum()), int(counts[inside].sum())))
    return result


def _accuracy(label: str, right: int, total: int) -> Accuracy:
    """A count of right ones with the interval of its share."""
    return Accuracy(label, right, total, *wilson(right, total).percent)


class Corpus(NamedTuple):
    """A score of all outputs together, and the signature that says exactly how it was computed."""

    score: float
    signature: str


@dataclass(frozen=True)
class TextScores:
    """What outputs are worth as texts. Rates are percentages."""

    word_edit_rate: float
    """Word error rate as speech recognition has it: edit distances over words, summed, over words of references."""
    word_edit_rate_ci95: Interval
    words: int
    """Words of the nearest references."""
    character_error_rate: float
    """The same over characters, spaces included."""
    character_error_rate_ci95: Interval
    bleu: Corpus
    chrf: Corpus

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "word_edit_rate": self.word_edit_rate,
            "word_edit_rate_ci95": list(self.word_edit_rate_ci95),
            "words": self.words,
            "character_error_rate": self.character_error_rate,
            "character_error_rate_ci95": list(self.character_error_rate_ci95),
            "bleu": self.bleu._asdict(),
            "chrf": self.chrf._asdict(),
        }


@check_arguments
def text_scores(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> TextScores:
    """Every score of these texts; `InputError` where there is none, or one has no reference.

    Error rates go by the reference nearest in words, or in characters, the first at a tie; words are what white space
    parts, as in the NIST scoring of speech (sclite), without any normalization. A sum of lengths of 0 counts as 1.
    """
    _check_texts(outputs, references)
    pairs = list(zip(outputs, references, strict=True))
    words = [_nearest(output.split(), [text.split() for text in own]) for output, own in pairs]
    characters = [_nearest(output, own) for output, own in pairs]
    return TextScores(
        *_rate(words),
        sum(length for _, length in words),
        *_rate(characters),
        bleu=bleu(outputs, references),
        chrf=chrf(outputs, references),
    )


def _check_texts(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise an `InputError` where there is no text, or one has no reference."""
    check_lengths(outputs=outputs, references=references)
    if not outputs or not all(references):
        raise InputError("texts are scored against references: there is none")


@check_arguments
def bleu(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Corpus:
    """Corpus BLEU, 0 to 100: the geometric mean of clipped 1- to 4-gram precisions times the brevity penalty.

    By sacrebleu with its defaults (tokens by 13a, case kept, exponential smoothing). Sources: K. Papineni, S. Roukos,
    T. Ward and W.-J. Zhu (2002), "BLEU: a method for automatic evaluation of machine translation", ACL; M. Post (2018),
    "A call for clarity in reporting BLEU scores", WMT.
    """
    from sacrebleu.metrics.bleu import BLEU  # half a second to import, and only texts need it

    _check_texts(outputs, references)
    metric = BLEU()
    score = metric.corpus_score(list(outputs), _streams(references)).score
    return Corpus(float(score), str(metric.get_signature()))


@check_arguments
def chrf(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Corpus:
    """Corpus chrF2, 0 to 100: the F2 of 1- to 6-grams of characters, by sacrebleu with its defaults.

    Source: M. Popović (2015), "chrF: character n-gram F-score for automatic MT evaluation", WMT.
    """
    from sacrebleu.metrics.chrf import CHRF

    _check_texts(outputs, references)
    metric = CHRF()
    score = metric.corpus_score(list(outputs), _streams(references)).score
    return Corpus(float(score), str(metric.get_signature()))


def _streams(references: Sequence[Sequence[str]]) -> Any:  # noqa: ANN401 (None is taken, but not in sacrebleu's types)
    """References as sacrebleu takes them: the first of every example, then the second, …; None where there is none."""
    most = max(map(len, references))
    return [[own[at] if at < len(own) else None for own in references] for at in range(most)]


def _nearest(output: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[int, int]:
    """The least edit distance to a reference, and that reference's length."""
    found = [(edit_distance(output, reference), len(reference)) for reference in references]
    return min(found, key=lambda pair: pair[0])


def _rate(pairs: Sequence[tuple[int, int]]) -> tuple[float, Interval]:
    """Σ errors / Σ lengths in per cent, with its bootstrap interval over examples."""
    errors, lengths = [error for error, _ in pairs], [length for _, length in pairs]
    return 100 * sum(errors) / max(1, sum(lengths)), bootstrap_ratio(errors, lengths).percent
