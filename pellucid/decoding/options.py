"""Options of decoding: constraints on outputs, given attention weights, and the search tree."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from pellucid.argument_checks import CheckedFields
from pellucid.config.settings import SearchConfig
from pellucid.data.extended_vocabulary import EncoderInput, extended_ids
from pellucid.data.tokenizers import Tokenizer
from pellucid.data.vocabulary import Vocabulary
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.lexicon import Lexicon
from pellucid.decoding.streaming import Prefix
from pellucid.errors import MAX_WORD_LENGTH, ConstraintError, quote, suggest
from pellucid.kernels.backend import Properties, present_fields, settings_of

AttentionWeight = Annotated[float, Meta(ge=0.0)]
"""Unnormalized weight of a source position; the weights of a step are scaled to sum to 1."""


@dataclass(frozen=True)
class ForcedAttention(CheckedFields):
    """Given attention weights of one step, which replace the model's.

    Whether they fit a source is checked in decoding (`forced_weights`).

    Raises:
        ArgumentError: A field has a wrong type, or a weight is negative or not finite.
    """

    step: int
    """Decoder step, from 0."""
    weights: tuple[AttentionWeight, ...]
    """One nonnegative number per source position, including features. Decoding scales them to sum to one."""


@dataclass(frozen=True)
class DecodingOptions(CheckedFields):
    """Options for all outputs of a predictor. The default has no effect.

    Whether symbols and positions exist is checked in decoding.

    Raises:
        ArgumentError: A field has a wrong type.
    """

    prefix: str = ""
    """Text with which every output begins."""
    forbidden: tuple[str, ...] = ()
    """Symbols that no output contains."""
    required: tuple[str, ...] = ()
    """Symbols that every output contains if its maximum length has room for them."""
    lexicon: Lexicon | None = None
    """Lexicon; a source in it gets its entries there that satisfy the constraints, and the model is not run."""
    search_tree: bool = False
    """Add the search tree of the beam to each trace."""
    forced_attention: tuple[ForcedAttention, ...] = ()
    """Attention weights that replace the model's at some steps of every hypothesis."""
    masked_positions: tuple[int, ...] = ()
    """Source positions, from 0 and including features, that attention ignores: their weight is zero."""

    @property
    def attention_options(self) -> "DecodingOptions":
        """Return only the options that change attention."""
        return DecodingOptions(forced_attention=self.forced_attention, masked_positions=self.masked_positions)

    @property
    def changes_attention(self) -> bool:
        """True if an option changes attention."""
        return self.attention_options != NO_OPTIONS


NO_OPTIONS = DecodingOptions()


def search_properties(
    search: SearchConfig, options: DecodingOptions, constraints: Constraints, is_ensemble: bool = False
) -> Properties:
    """Return every setting of a search, and which options and constraints are present.

    Args:
        search: Search settings.
        options: Options of the predictor.
        constraints: Constraints of the sources.
        is_ensemble: True if several networks decode together.
    """
    present = (*present_fields("options", options), *present_fields("constraints", constraints))
    return (*settings_of("search", search), *present, ("predictor.is_ensemble", is_ensemble))


MAX_HINT_CANDIDATES = 10_000
"""Maximum number of symbols of the vocabulary in which variants of a letter are looked for."""
MAX_HINT_SYMBOLS = 10
"""Maximum number of symbols listed in a hint."""


def build_constraints(
    options: DecodingOptions,
    prefixes: Sequence[Prefix],
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    sources: Sequence[EncoderInput] | None = None,
    first: int | None = None,
) -> Constraints:
    """Return the options as constraints in ids.

    Args:
        options: Options for all outputs; `prefix` is not read.
        prefixes: Prefix of each source's output; `options.prefix` for all, unless each source has its own.
        tokenizer: Tokenizer of targets.
        vocabulary: Target vocabulary.
        sources: Sources of a model that copies, whose prefixes may contain symbols of the source outside the
            vocabulary; an empty source has no prefix. None for a model that does not copy.
        first: Number of the first source, from 0, if each source has its own prefix: errors then name the source. None
            if all have the same.

    Raises:
        ConstraintError: A forbidden or required symbol, or a symbol of a prefix that cannot be copied, is not in the
            vocabulary; or a forbidden symbol is required or in a prefix.
    """
    hint = "; a symbol that the model can only copy is allowed in a prefix only" if sources is not None else ""
    forbidden = _ids(options.forbidden, vocabulary, "forbidden", hint)
    required = list(dict.fromkeys(_ids(options.required, vocabulary, "required", hint)))
    symbols = [tuple(tokenizer.split(prefix) if isinstance(prefix, str) else prefix) for prefix in prefixes]
    names = [
        "prefix" if first is None else f"prefix of source {first + number}" for number in range(1, len(symbols) + 1)
    ]
    first_names = dict(zip(reversed(symbols), reversed(names), strict=True))  # errors name a prefix's first source
    if sources is None:
        known = {prefix: tuple(_ids(prefix, vocabulary, name)) for prefix, name in reversed(first_names.items())}
        prefix_ids = [known[prefix] for prefix in symbols]
    else:
        named = zip(symbols, sources, names, strict=True)
        prefix_ids = [_ids_with_copies(prefix, vocabulary, source, name) for prefix, source, name in named]
    names_of_ids = dict(zip(reversed(prefix_ids), reversed(names), strict=True))
    for name, ids in [("required", required), *((name, ids) for ids, name in reversed(names_of_ids.items()))]:
        both = [vocabulary.symbol(symbol_id, ()) for symbol_id in ids if symbol_id in forbidden]
        if both:
            raise ConstraintError(f"{name}: the symbol {quote(both[0])} is forbidden")
    return Constraints(
        np.array(forbidden, np.int64), np.array(required, np.int64), tuple(prefix_ids) if any(prefix_ids) else ()
    )


def _ids_with_copies(
    symbols: Sequence[str], vocabulary: Vocabulary, encoder_input: EncoderInput, name: str
) -> tuple[int, ...]:
    """Return the ids of a prefix, which may contain copies of source symbols; empty for an empty source."""
    source = encoder_input.symbols[encoder_input.num_features :]
    if not source:
        return ()
    _ids([symbol for symbol in symbols if symbol not in source], vocabulary, name)
    return tuple(extended_ids(symbols, vocabulary, encoder_input))


def _ids(symbols: Iterable[str], vocabulary: Vocabulary, name: str, hint: str = "") -> list[int]:
    """Return the ids of symbols, all of which must be in the vocabulary."""
    for symbol in symbols:
        if symbol not in vocabulary.ids:
            raise ConstraintError(
                f"{name}: the model never writes the symbol {quote(symbol)}, which is not in its training targets"
                f"{hint or _symbol_hint(symbol, vocabulary.symbols)}"
            )
    return vocabulary.encode(list(symbols))


def _symbol_hint(symbol: str, symbols: Sequence[str]) -> str:
    """Return a hint that lists similar symbols, variants of the same letter, or some symbols of the vocabulary."""
    bare = _base_letter(symbol) if len(symbol) <= MAX_WORD_LENGTH else ""
    candidates = [candidate for candidate in symbols[:MAX_HINT_CANDIDATES] if len(candidate) <= MAX_WORD_LENGTH]
    variants = [candidate for candidate in candidates if bare and _base_letter(candidate) == bare]
    if variants:
        return f"; did you mean {' or '.join(map(quote, variants[:MAX_HINT_SYMBOLS]))}?"
    hint = suggest(symbol, candidates) if len(symbol) > 1 else ""
    more = f", … ({len(symbols):,} symbols)" if len(symbols) > MAX_HINT_SYMBOLS else ""
    return hint or f"; it writes {', '.join(map(quote, symbols[:MAX_HINT_SYMBOLS]))}{more}"


def _base_letter(symbol: str) -> str:
    """Return a symbol without accents and case: é, E and e are equal."""
    decomposed = unicodedata.normalize("NFKD", symbol).casefold()
    return "".join(character for character in decomposed if not unicodedata.combining(character)) or decomposed
