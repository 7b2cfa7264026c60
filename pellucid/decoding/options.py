"""Options of decoding: constraints on outputs, given attention weights, and the search tree."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from pellucid.arguments import CheckedFields
from pellucid.data.extended_vocabulary import extended_ids
from pellucid.data.tokenizers import Tokenizer
from pellucid.data.vocabulary import Vocabulary
from pellucid.decoding.constraints import Constraints, Lexicon
from pellucid.decoding.streaming import Prefix
from pellucid.errors import MAX_WORD_LENGTH, ConstraintError, quote, suggest

AttentionWeight = Annotated[float, Meta(ge=0.0)]
"""Unnormalized weight of a source position; the weights of a step are scaled to sum to 1."""


@dataclass(frozen=True)
class ForcedAttention(CheckedFields):
    """Given attention weights of one step.

    Raises:
        ArgumentError: A field has a wrong type or value.
    """

    step: int
    """Decoder step, from 0."""
    weights: tuple[AttentionWeight, ...]
    """One nonnegative number per source position, including features. They are scaled to sum to one."""


@dataclass(frozen=True)
class DecodingOptions(CheckedFields):
    """Options for all outputs of a predictor. The default has no effect.

    Raises:
        ArgumentError: A field has a wrong type.
    """

    prefix: str = ""
    """Prefix of every output."""
    forbidden: tuple[str, ...] = ()
    """Symbols that no output contains."""
    required: tuple[str, ...] = ()
    """Symbols that every output contains if its maximum length has room for them."""
    lexicon: Lexicon | None = None
    """Lexicon that is consulted before the model."""
    lattice: bool = False
    """Add the search tree of the beam to each trace."""
    painted: tuple[ForcedAttention, ...] = ()
    """Attention weights that replace the model's at some steps of every hypothesis."""
    masked: tuple[int, ...] = ()
    """Source positions, from 0 and including features, that attention ignores: their weight is zero."""

    @property
    def guiding(self) -> "DecodingOptions":
        """Return only the options that change attention."""
        return DecodingOptions(painted=self.painted, masked=self.masked)


NO_OPTIONS = DecodingOptions()
LISTED = 10
"""Maximum number of symbols listed in a hint."""


Sources = Sequence[tuple[Sequence[str], int]]
"""Symbols of each source, and the number of features at their beginning."""


def resolve_prefixes(options: DecodingOptions, sources: int, prefixes: Sequence[Prefix] | None) -> Sequence[Prefix]:
    """Return the prefix of each output."""
    return [options.prefix] * sources if prefixes is None else prefixes


def build_constraints(
    options: DecodingOptions,
    prefixes: Sequence[Prefix],
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    sources: Sources | None = None,
    first: int | None = None,
) -> Constraints:
    """Return the options as constraints in ids.

    Args:
        options: Options for all outputs.
        prefixes: Prefix of each source's output.
        segmenter: Tokenizer of targets.
        vocabulary: Target vocabulary.
        sources: Sources of a model that copies. Then a prefix may contain symbols of its source outside the vocabulary.
        first: Number of the first source, from 0, where each source has its own prefix; errors name the source.

    Raises:
        InputError: A symbol is not in the vocabulary, or both required and forbidden.
    """
    more = "; what the model can only copy can stand in a prefix alone" if sources is not None else ""
    forbidden = _ids(options.forbidden, vocabulary, "forbidden", more)
    required = list(dict.fromkeys(_ids(options.required, vocabulary, "required", more)))
    symbols = [tuple(tokenizer.split(each) if isinstance(each, str) else each) for each in prefixes]
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
            raise ConstraintError(f"{what}: the symbol {quote(both[0])} is forbidden")
    return Constraints(np.array(forbidden, np.int64), np.array(required, np.int64), tuple(told) if any(told) else ())


def _copied(
    symbols: Sequence[str], vocabulary: Vocabulary, read: tuple[Sequence[str], int], what: str
) -> tuple[int, ...]:
    """Return the ids of a prefix, which may contain copies of source symbols; empty for an empty source."""
    source, features = read
    if len(source) > features:
        _ids([each for each in symbols if each not in source[features:]], vocabulary, what)
    return tuple(extended_ids(symbols, vocabulary, read)) if len(source) > features else ()


def _ids(symbols: Iterable[str], vocabulary: Vocabulary, what: str, more: str = "") -> list[int]:
    """Return the ids of symbols, all of which must be in the vocabulary."""
    for symbol in symbols:
        if symbol not in vocabulary.ids:
            raise ConstraintError(
                f"{what}: the model never writes the symbol {quote(symbol)}, which is not in its training targets"
                f"{more or _near(symbol, vocabulary.symbols)}"
            )
    return vocabulary.encode(list(symbols))


def _near(symbol: str, known: Sequence[str]) -> str:
    """Return a hint that lists similar symbols, variants of the same letter, or some symbols of the vocabulary."""
    bare = _bare(symbol) if len(symbol) <= MAX_WORD_LENGTH else ""
    alike = [each for each in known if bare and _bare(each) == bare]
    if alike:
        return f"; did you mean {' or '.join(map(quote, alike[:LISTED]))}?"
    hint = suggest(symbol, known) if len(symbol) > 1 else ""
    more = f", … ({len(known):,} symbols)" if len(known) > LISTED else ""
    return hint or f"; it writes {', '.join(map(quote, known[:LISTED]))}{more}"


def _bare(symbol: str) -> str:
    """Return a symbol without accents and case: é, E and e are equal."""
    apart = unicodedata.normalize("NFKD", symbol).casefold()
    return "".join(each for each in apart if not unicodedata.combining(each)) or apart
