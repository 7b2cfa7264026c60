"""What may be asked of the outputs of a search beside its settings, and its ids."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pellucid.data.symbols import Segmenter
from pellucid.data.vocabulary import Vocabulary
from pellucid.errors import InputError, nearest
from pellucid.search.constraints import Constraints
from pellucid.search.lexicon import Lexicon


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


NO_OPTIONS = Options()


def constraints_of(
    options: Options, prefixes: Sequence[str], segmenter: Segmenter, vocabulary: Vocabulary
) -> Constraints:
    """The options in ids; `prefixes` are those of each source (none: `options.prefix` for all, if that is not empty).

    `InputError` names a symbol that the model cannot write, and one that is asked for and forbidden.
    """
    forbidden = _ids(options.forbidden, vocabulary, "forbidden")
    required = list(dict.fromkeys(_ids(options.required, vocabulary, "required")))
    told = {text: tuple(_ids(segmenter.split(text), vocabulary, "prefix")) for text in dict.fromkeys(prefixes)}
    for what, ids in [("required", required), *(("prefix", each) for each in told.values())]:
        both = [vocabulary.symbol(each, ()) for each in ids if each in forbidden]
        if both:
            raise InputError(f"{what}: the symbol {both[0]!r} is forbidden")
    begun = tuple(told[text] for text in prefixes) if any(told.values()) else ()
    return Constraints(np.array(forbidden, np.int64), np.array(required, np.int64), begun)


def _ids(symbols: Iterable[str], vocabulary: Vocabulary, what: str) -> list[int]:
    """The ids of symbols, each of which the model must know."""
    for symbol in symbols:
        if symbol not in vocabulary.ids:
            raise InputError(
                f"{what}: the model never writes the symbol {symbol!r}, which is not in its training targets"
                f"{nearest(symbol, vocabulary.symbols) if len(symbol) > 1 else ''}"
            )
    return vocabulary.encode(list(symbols))
