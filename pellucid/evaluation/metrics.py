"""Outputs against references: exact match, symbol error rate, and accuracy by target position and source length.

A percentage runs from 0 to 100, a share from 0 to 1, and each stands with its 95 % confidence interval.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from pellucid.errors import InputError, quote
from pellucid.evaluation.intervals import Interval, bootstrap_ratio, wilson

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
    source_length: int
    """Symbols of the source, features left out."""
    positional: bool = False
    """Whether each symbol answers for its own place (tags, a class): none can be inserted or left out, or be an end."""
    log_probabilities: tuple[float, ...] = ()
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


def edit_distance(output: Sequence[str], reference: Sequence[str]) -> int:
    """Fewest symbols to insert, delete or replace that turn one sequence into the other.

    Source: V. I. Levenshtein (1966), "Binary codes capable of correcting deletions, insertions, and reversals".
    """
    return Levenshtein.distance(*numbered(output, reference))


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


def metrics_for_log(evaluation: Evaluation) -> dict[str, float]:
    """The scores that training follows, by name."""
    return {
        "exact_match": evaluation.exact_match,
        "symbol_error_rate": evaluation.symbol_error_rate,
        "symbol_accuracy": evaluation.symbol_accuracy,
    }


def worst(scored: Sequence[Scored], count: int) -> list[int]:
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
