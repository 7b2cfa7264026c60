"""Text to symbols and back: characters, words, separators, and subwords by byte-pair encoding."""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from pellucid.config.settings import DataConfig, Normalization
from pellucid.errors import ConfigError, quote, suggest

WORD_PATTERN = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s"
"""No piece goes beyond a word, a number or signs, with the space before it; together these are all of a text."""
UNKNOWN_PIECE = ""
"""What the library calls a character that the training file lacks; no piece is empty."""


class SubwordModel(msgspec.Struct, frozen=True, dict=True):
    """Byte-pair encoding (Sennrich et al. 2016): the characters, and which two neighbours become one, in this order.

    A piece is a part of the text as it stands, with the space before it, so that the pieces end to end are the text.
    """

    alphabet: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    rare: tuple[str, ...] = ()
    """Pieces that stand too rarely by themselves for a model to learn them: they are taken apart again (ibid.)."""

    def __post_init__(self) -> None:
        """Refuse what no training gives, wherever it was read."""
        known = set(self.alphabet)
        if any(len(character) != 1 for character in known):
            raise ValueError("the alphabet of subwords is single characters")
        for first, second in self.merges:
            if first not in known or second not in known:
                raise ValueError("subwords are merged of those that came before")
            known.add(first + second)

    def split(self, text: str) -> list[str]:
        """The pieces of a text; a character that the training file lacks is one by itself."""
        # The library takes no lone surrogates: one that is read as "?" keeps its place.
        encoded = self._tokenizer.encode(text.encode("utf-8", "replace").decode("utf-8"))
        pieces = [text[start:stop] for start, stop in encoded.offsets]
        return [part for piece in pieces for part in self._split_rare(piece)] if self.rare else pieces

    def _split_rare(self, piece: str) -> Iterator[str]:
        """A piece, or, of a rare one, the parts that it was merged of."""
        if piece in self._rare_parts:
            for part in self._rare_parts[piece]:
                yield from self._split_rare(part)
        else:
            yield piece

    @cached_property
    def _rare_parts(self) -> dict[str, tuple[str, str]]:
        """The parts of each rare piece."""
        rare = set(self.rare)
        return {"".join(parts): parts for parts in reversed(self.merges) if "".join(parts) in rare}

    @cached_property
    def _tokenizer(self) -> Any:  # noqa: ANN401 (the library has no types, and may not be there)
        """The library's tokenizer, which splits some hundred times as fast as Python."""
        names = dict.fromkeys([UNKNOWN_PIECE, *self.alphabet, *map("".join, self.merges)])
        numbered = {piece: number for number, piece in enumerate(names)}
        return _build_library_tokenizer(_import_tokenizers(), numbered, list(self.merges))


class SubwordModels(msgspec.Struct, frozen=True):
    """The subwords of either side; none where it is cut in another way."""

    source: SubwordModel | None = None
    target: SubwordModel | None = None


NO_SUBWORDS = SubwordModels()


def train_subwords(texts: Sequence[str], max_subwords: int, min_count: int = 1) -> SubwordModel:
    """At most so many subwords of texts, all their characters among them; those that stand less than `least` are rare.

    A piece that stands only within longer ones is rare as well: no model would ever see it.
    """
    library = _import_tokenizers()
    tokenizer = _build_library_tokenizer(library, None, None)
    trainer = library.trainers.BpeTrainer(
        vocab_size=max_subwords, min_frequency=2, show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator((text.encode("utf-8", "replace").decode("utf-8") for text in texts), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    alphabet = sorted(piece for piece in model["vocab"] if len(piece) == 1)
    plain = SubwordModel(tuple(alphabet), tuple((first, second) for first, second in model["merges"]))
    counts = Counter(piece for text in texts for piece in plain.split(text))
    rare = {piece for piece in map("".join, plain.merges) if counts[piece] < min_count}
    return SubwordModel(plain.alphabet, plain.merges, tuple(sorted(rare)))


def _build_library_tokenizer(
    library: ModuleType, numbered: dict[str, int] | None, merges: list[tuple[str, str]] | None
) -> Any:  # noqa: ANN401
    """Words apart, then pieces; nothing is normalized, nothing left out."""
    tokenizer = library.Tokenizer(library.models.BPE(numbered, merges, unk_token=UNKNOWN_PIECE if numbered else None))
    tokenizer.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(WORD_PATTERN), behavior="isolated")
    return tokenizer


def _import_tokenizers() -> ModuleType:
    """The package tokenizers; `ConfigError` where it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise ConfigError("subwords need the package tokenizers: pip install 'pellucid[subwords]'") from None
    module: ModuleType = tokenizers
    return module


UNSPLIT_KINDS = ("whole", "position")
"""Kinds that cut nothing."""
TOKENIZER_KINDS = ("characters", "words", "subwords", *UNSPLIT_KINDS)


class Tokenizer(NamedTuple):
    """How the text of one side is cut into symbols.

    `kind` is "characters" (code points), "words" (parts between white space), "subwords", "whole" or "position" (the
    text is one symbol: any, or a number) or a separator. A separator cuts at each place where it stands, so that `join`
    gives back the very text `split` was given; so do subwords.
    """

    kind: str
    normalization: Normalization
    subwords: SubwordModel | None = None
    """Those that were learned; before that, where they are asked for, characters stand for them."""
    ignored_tag: str = ""
    """The symbol of positions that are neither trained nor scored; empty for none."""

    def split(self, text: str) -> list[str]:
        """The symbols of a text, in its order; none for an empty text."""
        text = self.normalize(text)
        if self.subwords is not None:
            return self.subwords.split(text)
        if self.kind in ("characters", "subwords"):
            return list(text)
        if self.kind == "words":
            return text.split()
        if self.kind in UNSPLIT_KINDS:
            return [text] if text else []
        return text.split(self.kind) if text else []

    def count(self, text: str) -> int:
        """How many symbols a text has: the length of `split`, without a list of them where none is needed."""
        if self.subwords is None and self.kind in ("characters", "subwords"):
            return len(self.normalize(text))
        return len(self.split(text))

    def can_produce(self, symbol: str) -> bool:
        """Return whether a cut of some text can give this symbol; parts between separators may be empty."""
        if self.kind == "characters":
            return len(symbol) == 1
        if self.kind == "words":
            return symbol.split() == [symbol]
        if self.kind in TOKENIZER_KINDS:
            return symbol != ""
        return self.kind not in symbol

    def normalize(self, text: str) -> str:
        """The text in the Unicode form of its side."""
        if self.normalization == "none" or text.isascii():
            return text
        return unicodedata.normalize("NFC" if self.normalization == "nfc" else "NFD", text)

    def split_all(self, texts: Sequence[str], lengths: list[int]) -> Iterator[str]:
        """The symbols of many texts end to end; how many each text has is added to `lengths`.

        No list of symbols outlives its text: many small lists at once would keep the garbage collector at work.
        """

        def each() -> Iterator[list[str]]:
            for text in texts:
                symbols = self.split(text)
                lengths.append(len(symbols))
                yield symbols

        return chain.from_iterable(each())

    def join(self, symbols: Sequence[str]) -> str:
        """The text of symbols: the inverse of `split`, but for the width of white space between words."""
        if self.kind in ("characters", "subwords"):
            return "".join(symbols)
        if self.kind in UNSPLIT_KINDS:
            return "\t".join(symbols)  # of which there is one
        return (" " if self.kind == "words" else self.kind).join(symbols)


class Tokenizers(NamedTuple):
    """The tokenizers of the three columns."""

    source: Tokenizer
    target: Tokenizer
    features: Tokenizer


def build_tokenizers(config: DataConfig, pieces: SubwordModels = NO_SUBWORDS) -> Tokenizers:
    """The tokenizers a configuration describes, with subwords that were learned; `ConfigError` for a kind that is none.

    Features are never cut into subwords.
    """
    if config.features_symbols == "subwords":
        raise ConfigError("data.features_symbols: features are characters, words or parts between separators")
    source = _build_tokenizer("data.source_symbols", config.source_symbols, config.source_normalization)
    target = _build_tokenizer("data.target_symbols", config.target_symbols, config.target_normalization)
    return Tokenizers(
        source=source._replace(subwords=pieces.source),
        target=target._replace(subwords=pieces.target, ignored_tag=config.ignored_tag),
        features=_build_tokenizer("data.features_symbols", config.features_symbols, config.source_normalization),
    )


def _build_tokenizer(key: str, kind: str, normalization: Normalization) -> Tokenizer:
    """A segmenter, once its kind is known to be meant: a misspelt "charcters" must not become a separator."""
    if not kind:
        raise ConfigError(f"{key}: expected characters, words, subwords or a separator, got an empty string")
    if kind not in TOKENIZER_KINDS and len(kind) > 1 and kind.isalpha():
        raise ConfigError(
            f"{key}: expected characters, words, subwords or a separator, got {quote(kind)}{suggest(kind, TOKENIZER_KINDS)}"
        )
    if kind == "position" and key != "data.target_symbols":
        raise ConfigError(f"{key}: expected characters, words or a separator, got 'position', which only a target is")
    return Tokenizer(kind, normalization)
