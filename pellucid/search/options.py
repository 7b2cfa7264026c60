"""What may be asked of the outputs of a search beside its settings, and its ids."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pellucid.data.symbols import Segmenter
from pellucid.data.vocabulary import Vocabulary
from pellucid.errors import InputError, nearest
from pellucid.search.constraints import Constraints
from pellucid.search.lexicon import Lexicon


class Painted(NamedTuple):
    """A row of attention that a person gives."""

    step: int
    """From 0: the symbol whose look it is."""
    weights: tuple[float, ...]
    """One number of 0 or more for each of S source positions, features included; they are scaled to sum to one."""


class Options(NamedTuple):
    """What is asked of all outputs; nothing, as it stands."""

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

    @property
    def guides(self) -> bool:
        """Whether there is such, which no kernel of a whole search knows of."""
        return bool(self.painted or self.masked)


NO_OPTIONS = Options()
LISTED = 10
"""Symbols that a hint lists."""


def constraints_of(
    options: Options, prefixes: Sequence[str | Sequence[str]], segmenter: Segmenter, vocabulary: Vocabulary
) -> Constraints:
    """The options in ids; `prefixes` are those of each source, as texts or as symbols.

    `InputError` names a symbol that the model cannot write, and one that is asked for and forbidden.
    """
    forbidden = _ids(options.forbidden, vocabulary, "forbidden")
    required = list(dict.fromkeys(_ids(options.required, vocabulary, "required")))
    symbols = [tuple(segmenter.split(each) if isinstance(each, str) else each) for each in prefixes]
    told = {each: tuple(_ids(each, vocabulary, "prefix")) for each in dict.fromkeys(symbols)}
    for what, ids in [("required", required), *(("prefix", each) for each in told.values())]:
        both = [vocabulary.symbol(each, ()) for each in ids if each in forbidden]
        if both:
            raise InputError(f"{what}: the symbol {both[0]!r} is forbidden")
    begun = tuple(told[each] for each in symbols) if any(told.values()) else ()
    return Constraints(np.array(forbidden, np.int64), np.array(required, np.int64), begun)


def _ids(symbols: Iterable[str], vocabulary: Vocabulary, what: str) -> list[int]:
    """The ids of symbols, each of which the model must know."""
    for symbol in symbols:
        if symbol not in vocabulary.ids:
            raise InputError(
                f"{what}: the model never writes the symbol {symbol!r}, which is not in its training targets"
                f"{_near(symbol, vocabulary.symbols)}"
            )
    return vocabulary.encode(list(symbols))


def _near(symbol: str, known: Sequence[str]) -> str:
    """A hint: the symbols that look alike, those of the same letter, or some of those that there are."""
    alike = [each for each in known if _bare(each) == _bare(symbol)]
    if alike:
        return f"; did you mean {' or '.join(map(repr, alike[:LISTED]))}?"
    hint = nearest(symbol, known) if len(symbol) > 1 else ""
    more = f", … ({len(known):,} symbols)" if len(known) > LISTED else ""
    return hint or f"; it writes {', '.join(map(repr, known[:LISTED]))}{more}"


def _bare(symbol: str) -> str:
    """A symbol without its marks and its case: é, E and e are the same letter."""
    apart = unicodedata.normalize("NFKD", symbol).casefold()
    return "".join(each for each in apart if not unicodedata.combining(each)) or apart
