"""Symbol confusions: substitutions, insertions and deletions of outputs compared with the nearest references."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple

from msgspec import Meta
from rapidfuzz.distance import Levenshtein

from pellucid.argument_checks import check_arguments
from pellucid.evaluation.metrics import ScoredExample, number_symbols

MAX_MATRIX_SYMBOLS = 18
"""Maximum number of symbols in the confusion matrix; those with the most errors are shown."""

SymbolPair = tuple[str | None, str | None]
"""Reference symbol and output symbol; (None, b) is an insertion, (a, None) a deletion."""


@dataclass(frozen=True)
class SymbolConfusion:
    """One pair of different symbols, reference and output, with its number of occurrences."""

    expected: str | None
    """Reference symbol; None for an insertion."""
    predicted: str | None
    """Output symbol; None for a deletion."""
    count: int
    """Number of occurrences."""
    num_expected: int
    """Number of occurrences of the reference symbol in the nearest references; 0 for an insertion."""

    @property
    def kind(self) -> str:
        """ "substitution", "insertion" or "deletion"."""
        return "insertion" if self.expected is None else "deletion" if self.predicted is None else "substitution"


class ConfusionMatrix(NamedTuple):
    """Counts of reference symbols (rows) and output symbols (columns), in the order of `symbols`; None is no symbol."""

    symbols: list[str | None]
    """Symbols in alphabetical order; None, if present, is first."""
    counts: list[list[int]]


@dataclass(frozen=True)
class SymbolConfusions:
    """Counts of aligned symbol pairs, correct pairs included."""

    pairs: Counter[SymbolPair]
    """Number of occurrences of each (reference, output) pair."""

    @property
    def errors(self) -> list[SymbolConfusion]:
        """Pairs of different symbols, most frequent first, then in the order of their symbols."""
        reference_counts: Counter[str | None] = Counter()
        for (symbol, _), count in self.pairs.items():
            reference_counts[symbol] += count
        wrong = [
            SymbolConfusion(expected, predicted, count, reference_counts[expected] if expected is not None else 0)
            for (expected, predicted), count in self.pairs.items()
            if expected != predicted
        ]
        return sorted(wrong, key=lambda error: (-error.count, *_sort_key(error.expected), *_sort_key(error.predicted)))

    @property
    def kinds(self) -> dict[str, int]:
        """Number of "substitution", "insertion" and "deletion"; their sum is the sum of the edit distances."""
        counts = {"substitution": 0, "insertion": 0, "deletion": 0}
        for confusion in self.errors:
            counts[confusion.kind] += confusion.count
        return counts

    @check_arguments
    def matrix(self, max_symbols: Annotated[int, Meta(ge=0)] = MAX_MATRIX_SYMBOLS) -> ConfusionMatrix:
        """Return the confusion matrix of the symbols with the most errors, as reference or as output.

        Args:
            max_symbols: Maximum number of symbols; None is added to them if there are insertions or deletions.
        """
        errors: Counter[str | None] = Counter()
        for confusion in self.errors:
            errors[confusion.expected] += confusion.count
            errors[confusion.predicted] += confusion.count
        named = (symbol for symbol in errors if symbol is not None)
        ranked = sorted(named, key=lambda symbol: (-errors[symbol], symbol))
        symbols: list[str | None] = [None] if None in errors else []
        symbols += sorted(ranked[:max_symbols])
        counts = [[self.pairs[reference, output] for output in symbols] for reference in symbols]
        return ConfusionMatrix(symbols, counts)

    def to_dict(self) -> dict[str, Any]:
        """Return kinds, pairs of different symbols and the matrix as plain values for JSON; null is no symbol."""
        rows = [{**asdict(error), "kind": error.kind} for error in self.errors]
        return {"kinds": self.kinds, "pairs": rows, "matrix": self.matrix()._asdict()}


@check_arguments
def align_symbols(output: Sequence[str], reference: Sequence[str]) -> list[SymbolPair]:
    """Return the (reference, output) symbol pairs of an alignment with the minimum number of edits.

    Among alignments with equally few edits, the choice depends on the two sequences only.

    Args:
        output: Output symbols.
        reference: Reference symbols.

    References:
        V. I. Levenshtein (1966), "Binary codes capable of correcting deletions, insertions, and reversals".
        R. A. Wagner and M. J. Fischer (1974), "The string-to-string correction problem", Journal of the ACM 21(1).
    """
    pairs: list[SymbolPair] = []
    for step in Levenshtein.opcodes(*number_symbols(reference, output)):
        expected: Sequence[str | None] = reference[step.src_start : step.src_end]
        actual: Sequence[str | None] = output[step.dest_start : step.dest_end]
        match step.tag:
            case "insert":
                expected = [None] * len(actual)
            case "delete":
                actual = [None] * len(expected)
        pairs += zip(expected, actual, strict=True)
    return pairs


@check_arguments
def pair_symbols(example: ScoredExample) -> list[SymbolPair]:
    """Return the (reference, output) symbol pairs of an example and its nearest reference.

    Labels are paired by position if both have the same length; all else is aligned (`align_symbols`).

    Args:
        example: Output with its references.

    Raises:
        InputError: The example has no reference.
    """
    if example.positional and len(example.output) == len(example.reference):
        return list(zip(example.reference, example.output, strict=True))
    return align_symbols(example.output, example.reference)


@check_arguments
def count_confusions(scored: Iterable[ScoredExample]) -> SymbolConfusions:
    """Count the aligned symbol pairs of examples, each output aligned with its nearest reference.

    Args:
        scored: Outputs with references.

    Raises:
        InputError: An example has no reference.
    """
    pairs: Counter[SymbolPair] = Counter()
    add_confusions(pairs, scored)
    return SymbolConfusions(pairs)


def add_confusions(pairs: Counter[SymbolPair], scored: Iterable[ScoredExample]) -> None:
    """Count the aligned symbol pairs of further examples.

    Args:
        pairs: Number of occurrences of each (reference, output) pair, which grows.
        scored: Outputs with references.

    Raises:
        InputError: An example has no reference.
    """
    for example in scored:
        if example.exact:
            pairs.update(zip(example.output, example.output, strict=True))
        else:
            pairs.update(pair_symbols(example))


def _sort_key(symbol: str | None) -> tuple[bool, str]:
    """Return a sort key with None before all symbols."""
    return symbol is not None, symbol or ""
