"""Which symbols are taken for which: substitutions, insertions and deletions of outputs against nearest references."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from msgspec import Meta
from rapidfuzz.distance import Levenshtein

from pellucid.arguments import check_arguments
from pellucid.evaluation.metrics import Scored, numbered

MATRIX = 18
"""The matrix shows at most so many symbols, those with the most errors."""

Pair = tuple[str | None, str | None]
"""A wanted and a written symbol; None where there is none: (None, b) is an insertion, (a, None) a deletion."""


class Confusion(NamedTuple):
    """One kind of error and how often it was made."""

    wanted: str | None
    """The reference's symbol; None for an insertion."""
    written: str | None
    """The output's symbol; None for a deletion."""
    times: int
    of: int
    """How often the wanted symbol stands in the nearest references; 0 for an insertion."""

    @property
    def kind(self) -> str:
        """Substitution, insertion or deletion."""
        return "insertion" if self.wanted is None else "deletion" if self.written is None else "substitution"


class Matrix(NamedTuple):
    """Counts of wanted (rows) and written symbols (columns), both in the order of `symbols`; None is "nothing"."""

    symbols: list[str | None]
    counts: list[list[int]]


@dataclass(frozen=True)
class Confusions:
    """All aligned pairs of symbols, the right ones included, with how often each came."""

    pairs: Counter[Pair]

    @property
    def errors(self) -> list[Confusion]:
        """The wrong pairs, most frequent first; among equals by their symbols."""
        wanted: Counter[str | None] = Counter()
        for (symbol, _), count in self.pairs.items():
            wanted[symbol] += count
        wrong = [
            Confusion(*pair, count, wanted[pair[0]] if pair[0] is not None else 0)
            for pair, count in self.pairs.items()
            if pair[0] != pair[1]
        ]
        return sorted(wrong, key=lambda each: (-each.times, *_order(each.wanted), *_order(each.written)))

    @property
    def kinds(self) -> dict[str, int]:
        """How many substitutions, insertions and deletions there are; their sum is the sum of the edit distances."""
        found = {"substitution": 0, "insertion": 0, "deletion": 0}
        for each in self.errors:
            found[each.kind] += each.times
        return found

    @check_arguments
    def matrix(self, most: Annotated[int, Meta(ge=0)] = MATRIX) -> Matrix:
        """The symbols with the most errors, on either side, and None first where anything was inserted or deleted."""
        errors: Counter[str | None] = Counter()
        for each in self.errors:
            errors[each.wanted] += each.times
            errors[each.written] += each.times
        ranked = sorted((symbol for symbol in errors if symbol is not None), key=lambda each: (-errors[each], each))
        symbols: list[str | None] = [None] if None in errors else []
        symbols += sorted(ranked[:most])
        return Matrix(symbols, [[self.pairs[wanted, written] for written in symbols] for wanted in symbols])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; null stands for no symbol."""
        rows = [{**each._asdict(), "kind": each.kind} for each in self.errors]
        return {"kinds": self.kinds, "pairs": rows, "matrix": self.matrix()._asdict()}


@check_arguments
def aligned(output: Sequence[str], reference: Sequence[str]) -> list[Pair]:
    """The (wanted, written) pairs of one alignment with the fewest edits.

    Where several alignments have equally few, which of them it is depends on the two sequences alone.
    Source: Levenshtein (1966); the alignment by R. A. Wagner and M. J. Fischer (1974), "The string-to-string correction
    problem", Journal of the ACM 21(1).
    """
    pairs: list[Pair] = []
    for step in Levenshtein.opcodes(*numbered(reference, output)):
        wanted: Sequence[str | None] = reference[step.src_start : step.src_end]
        written: Sequence[str | None] = output[step.dest_start : step.dest_end]
        match step.tag:
            case "insert":
                wanted = [None] * len(written)
            case "delete":
                written = [None] * len(wanted)
        pairs += zip(wanted, written, strict=True)
    return pairs


@check_arguments
def paired(example: Scored) -> list[Pair]:
    """The (wanted, written) pairs of an output with its nearest reference: place by place, or of an alignment."""
    if example.positional and len(example.output) == len(example.reference):
        return list(zip(example.reference, example.output, strict=True))
    return aligned(example.output, example.reference)


@check_arguments
def confusions(scored: Iterable[Scored]) -> Confusions:
    """The aligned pairs of all examples, each output with its nearest reference."""
    pairs: Counter[Pair] = Counter()
    for example in scored:
        if example.exact:
            pairs.update(zip(example.output, example.output, strict=True))
        else:
            pairs.update(paired(example))
    return Confusions(pairs)


def _order(symbol: str | None) -> tuple[bool, str]:
    """A key by which None stands before every symbol."""
    return symbol is not None, symbol or ""
