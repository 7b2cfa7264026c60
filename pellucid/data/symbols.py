"""Text to symbols and back: characters, words, subwords, or parts between separators, in one Unicode form."""

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from pellucid.config import DataConfig, Normalisation
from pellucid.data.subwords import NO_PIECES, Pieces, Subwords
from pellucid.errors import ConfigError, nearest, quote

WHOLE = ("whole", "position")
"""Kinds that cut nothing."""
KINDS = ("characters", "words", "subwords", *WHOLE)


class Segmenter(NamedTuple):
    """How the text of one side is cut into symbols.

    `kind` is "characters" (code points), "words" (parts between white space), "subwords", "whole" or "position" (the
    text is one symbol: any, or a number) or a separator. A separator cuts at each place where it stands, so that `join`
    gives back the very text `split` was given; so do subwords.
    """

    kind: str
    normalisation: Normalisation
    subwords: Subwords | None = None
    """Those that were learnt; before that, where they are asked for, characters stand for them."""
    unscored: str = ""
    """The symbol of positions that are neither trained nor scored; empty for none."""

    def split(self, text: str) -> list[str]:
        """The symbols of a text, in its order; none for an empty text."""
        text = self.normalised(text)
        if self.subwords is not None:
            return self.subwords.split(text)
        if self.kind in ("characters", "subwords"):
            return list(text)
        if self.kind == "words":
            return text.split()
        if self.kind in WHOLE:
            return [text] if text else []
        return text.split(self.kind) if text else []

    def count(self, text: str) -> int:
        """How many symbols a text has: the length of `split`, without a list of them where none is needed."""
        if self.subwords is None and self.kind in ("characters", "subwords"):
            return len(self.normalised(text))
        return len(self.split(text))

    def can_give(self, symbol: str) -> bool:
        """Return whether a cut of some text can give this symbol; parts between separators may be empty."""
        if self.kind == "characters":
            return len(symbol) == 1
        if self.kind == "words":
            return symbol.split() == [symbol]
        if self.kind in KINDS:
            return symbol != ""
        return self.kind not in symbol

    def normalised(self, text: str) -> str:
        """The text in the Unicode form of its side."""
        if self.normalisation == "none" or text.isascii():
            return text
        return unicodedata.normalize("NFC" if self.normalisation == "nfc" else "NFD", text)

    def symbols(self, texts: Sequence[str], lengths: list[int]) -> Iterator[str]:
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
        if self.kind in WHOLE:
            return "\t".join(symbols)  # of which there is one
        return (" " if self.kind == "words" else self.kind).join(symbols)


class Segmenters(NamedTuple):
    """The segmenters of the three columns."""

    source: Segmenter
    target: Segmenter
    features: Segmenter


def segmenters(config: DataConfig, pieces: Pieces = NO_PIECES) -> Segmenters:
    """The segmenters a configuration describes, with subwords that were learnt; `ConfigError` for a kind that is none.

    Features are never cut into subwords.
    """
    if config.features_symbols == "subwords":
        raise ConfigError("data.features_symbols: features are characters, words or parts between separators")
    source = _segmenter("data.source_symbols", config.source_symbols, config.source_normalisation)
    target = _segmenter("data.target_symbols", config.target_symbols, config.target_normalisation)
    return Segmenters(
        source=source._replace(subwords=pieces.source),
        target=target._replace(subwords=pieces.target, unscored=config.unscored),
        features=_segmenter("data.features_symbols", config.features_symbols, config.source_normalisation),
    )


def _segmenter(key: str, kind: str, normalisation: Normalisation) -> Segmenter:
    """A segmenter, once its kind is known to be meant: a misspelt "charcters" must not become a separator."""
    if not kind:
        raise ConfigError(f"{key}: expected characters, words, subwords or a separator, got an empty string")
    if kind not in KINDS and len(kind) > 1 and kind.isalpha():
        raise ConfigError(
            f"{key}: expected characters, words, subwords or a separator, got {quote(kind)}{nearest(kind, KINDS)}"
        )
    if kind == "position" and key != "data.target_symbols":
        raise ConfigError(f"{key}: expected characters, words or a separator, got 'position', which only a target is")
    return Segmenter(kind, normalisation)
