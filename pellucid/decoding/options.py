"""What may be asked of the outputs of a search beside its settings, and its ids."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from pellucid.arguments import CheckedFields
from pellucid.data.copies import ids_with_copies
from pellucid.data.tokenizers import Segmenter
from pellucid.data.vocabulary import Vocabulary
from pellucid.decoding.constraints import Constraints, Lexicon
from pellucid.decoding.streaming import Prefix
from pellucid.errors import LONGEST_WORD, InputError, nearest, quote

AttentionWeight = Annotated[float, Meta(ge=0.0)]
"""Weight of a source position before the weights of a step are scaled to a sum of 1."""


@dataclass(frozen=True)
class Painted(CheckedFields):
    """A row of attention that a person gives; `ArgumentError` for what is no such row."""

    step: int
    """From 0: the symbol whose look it is."""
    weights: tuple[AttentionWeight, ...]
    """One number of 0 or more for each of S source positions; they are scaled to sum to one.

    Features that stand before the source are positions; those of `encoder.features = "sum"` are not.
    """


@dataclass(frozen=True)
class Options(CheckedFields):
    """What is asked of all outputs; nothing, as it stands. `ArgumentError` for a field of another type."""

    prefix: str = ""
    """A text that every output begins with."""
    forbidden: tuple[str, ...] = ()
    """Symbols that no output holds."""
    required: tuple[str, ...] = ()
    """Symbols that every output holds, where its greatest length has room for them."""
    lexicon: Lexicon | None = None
    """Where sources are looked up before the model is asked."""
    lattice: bool = False
    """Whether each trace holds everything that the beam considered."""
    painted: tuple[Painted, ...] = ()
    """Rows that replace attention at some steps of every hypothesis."""
    masked: tuple[int, ...] = ()
    """Source positions, from 0 and features included, that attention does not see: their weight is zero."""

    @property
    def guiding(self) -> "Options":
        """What of this concerns attention alone."""
        return Options(painted=self.painted, masked=self.masked)


NO_OPTIONS = Options()
LISTED = 10
"""Symbols that a hint lists."""


Sources = Sequence[tuple[Sequence[str], int]]
"""What is read of each source: its symbols, and how many of them, from the first, are features."""


def prefixes_of(options: Options, sources: int, prefixes: Sequence[Prefix] | None) -> Sequence[Prefix]:
    """What each output begins with."""
    return [options.prefix] * sources if prefixes is None else prefixes


def constraints_of(
    options: Options,
    prefixes: Sequence[Prefix],
    segmenter: Segmenter,
    vocabulary: Vocabulary,
    sources: Sources | None = None,
    first: int | None = None,
) -> Constraints:
    """The options in ids; `prefixes` are those of each source.

    Where each source was given its own, `first` is the number of the first source, from 0: an error names the source.
    `sources` are given where a model copies from them: then a prefix may hold symbols of its source that the vocabulary
    lacks. `InputError` names a symbol that the model cannot write, and one that is asked for and forbidden.
    """
    more = "; what the model can only copy can stand in a prefix alone" if sources is not None else ""
    forbidden = _ids(options.forbidden, vocabulary, "forbidden", more)
    required = list(dict.fromkeys(_ids(options.required, vocabulary, "required", more)))
    symbols = [tuple(segmenter.split(each) if isinstance(each, str) else each) for each in prefixes]
    names = ["prefix" if first is None else f"prefix of source {first + at}" for at in range(1, len(symbols) + 1)]
    where = dict(zip(reversed(symbols), reversed(names), strict=True))  # an error names the first source of a prefix
    if sources is None:
        known = {each: tuple(_ids(each, vocabulary, what)) for each, what in reversed(where.items())}
        told = [known[each] for each in symbols]
    else:
        given = zip(symbols, sources, names, strict=True)
        told = [_copied(each, vocabulary, read, what) for each, read, what in given]
    begun = dict(zip(reversed(told), reversed(names), strict=True))
    for what, ids in [("required", required), *((what, ids) for ids, what in reversed(begun.items()))]:
        both = [vocabulary.symbol(each, ()) for each in ids if each in forbidden]
        if both:
            raise InputError(f"{what}: the symbol {quote(both[0])} is forbidden")
    return Constraints(np.array(forbidden, np.int64), np.array(required, np.int64), tuple(told) if any(told) else ())


def _copied(
    symbols: Sequence[str], vocabulary: Vocabulary, read: tuple[Sequence[str], int], what: str
) -> tuple[int, ...]:
    """The ids of a prefix, of which some are places of its source; none for a source without symbols."""
    source, features = read
    if len(source) > features:
        _ids([each for each in symbols if each not in source[features:]], vocabulary, what)
    return tuple(ids_with_copies(symbols, vocabulary, read)) if len(source) > features else ()


def _ids(symbols: Iterable[str], vocabulary: Vocabulary, what: str, more: str = "") -> list[int]:
    """The ids of symbols, each of which the model must know."""
    for symbol in symbols:
        if symbol not in vocabulary.ids:
            raise InputError(
                f"{what}: the model never writes the symbol {quote(symbol)}, which is not in its training targets"
                f"{more or _near(symbol, vocabulary.symbols)}"
            )
    return vocabulary.encode(list(symbols))


def _near(symbol: str, known: Sequence[str]) -> str:
    """A hint: the symbols that look alike, those of the same letter, or some of those that there are."""
    bare = _bare(symbol) if len(symbol) <= LONGEST_WORD else ""
    alike = [each for each in known if bare and _bare(each) == bare]
    if alike:
        return f"; did you mean {' or '.join(map(quote, alike[:LISTED]))}?"
    hint = nearest(symbol, known) if len(symbol) > 1 else ""
    more = f", … ({len(known):,} symbols)" if len(known) > LISTED else ""
    return hint or f"; it writes {', '.join(map(quote, known[:LISTED]))}{more}"


def _bare(symbol: str) -> str:
    """A symbol without its marks and its case: é, E and e are the same letter."""
    apart = unicodedata.normalize("NFKD", symbol).casefold()
    return "".join(each for each in apart if not unicodedata.combining(each)) or apart
