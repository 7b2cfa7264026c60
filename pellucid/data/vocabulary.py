"""Symbols to ids and back, learned from the training file and kept as JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from jaxtyping import Int, UInt
from msgspec import Meta

from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.data.tokenizers import KINDS, NO_PIECES, Pieces, Segmenter, Segmenters, learn_subwords, segmenters
from pellucid.errors import DataError, RunError, abbreviate_reason, quote
from pellucid.files import decode_json, read_bytes, write_atomic

PAD, BOS, EOS, UNK = range(4)
SPECIAL = 4
"""How many ids come before the first symbol. No symbol has an id below it."""
SPECIAL_NAMES = ("⟨pad⟩", "⟨begin⟩", "⟨end⟩", "⟨unknown⟩")
"""How the four special ids are shown to people. No text is parsed for them, and no symbol has such a name."""
MAX_SYMBOL = 2**16
"""Characters of a symbol, at most."""
TEXTS = 1 << 13
"""Texts that become code points at once: the work between blocks is nothing, and one stays in the cache."""

Length = Annotated[int, Meta(ge=0, le=2**20)]
"""In symbols; data.max_length allows no longer text."""


class Vocabulary(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """The symbols of one column, commonest first. Ids 0 to 3 are PAD, BOS, EOS, UNK; symbol i has id i + 4."""

    symbols: tuple[str, ...]
    counts: tuple[Annotated[int, Meta(ge=0, le=2**53)], ...]

    def __post_init__(self) -> None:
        """Refuse what no counting gives, wherever it was read."""
        if len(self.counts) != len(self.symbols) or len(set(self.symbols)) != len(self.symbols):
            raise ValueError("each symbol stands once, and has one count")
        reserved = set(SPECIAL_NAMES).intersection(self.symbols)
        if reserved:
            raise ValueError(f"{min(reserved)} is the name of a special symbol, and cannot be a symbol of the data")
        longest = max(self.symbols, key=len, default="")
        if len(longest) > MAX_SYMBOL:
            raise ValueError(
                f"the symbol {quote(longest)} has {len(longest):,} characters: a symbol has at most {MAX_SYMBOL:,}"
            )

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each symbol."""
        return {symbol: position + SPECIAL for position, symbol in enumerate(self.symbols)}

    def __len__(self) -> int:
        """V, the special ids included."""
        return SPECIAL + len(self.symbols)

    def encode(self, symbols: Iterable[str]) -> list[int]:
        """The ids of symbols; UNK for those not held here."""
        return list(map(self.ids.get, symbols, repeat(UNK)))

    def encode_array(self, symbols: Iterable[str]) -> Int[np.ndarray, " N"]:
        """`encode`, into an array."""
        return np.fromiter(map(self.ids.get, symbols, repeat(UNK)), dtype=np.int32)

    def encode_points(self, points: UInt[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
        """The ids of symbols that are characters, given as code points."""
        return np.take(self._id_of_point, points, mode="clip")

    @cached_property
    def _id_of_point(self) -> Int[np.ndarray, " P"]:
        """The id of each code point as far as the last one held here, and of those beyond."""
        known = {ord(symbol): identity for symbol, identity in self.ids.items() if len(symbol) == 1}
        table = np.full(max(known, default=-1) + 2, UNK, dtype=np.int32)
        table[list(known)] = list(known.values())
        return table

    def symbol(self, identity: int, otherwise: Sequence[str]) -> str:
        """The symbol of an id; `otherwise` spells the four special ones."""
        return self.symbols[identity - SPECIAL] if identity >= SPECIAL else otherwise[identity]


class Vocabularies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the training file taught before training began."""

    source: Vocabulary
    target: Vocabulary
    features: Vocabulary
    longest_source: Length
    longest_target: Length
    format: Literal[1] = 1
    pieces: Pieces = NO_PIECES
    """Subwords, where a side is cut into them."""
    columns: Annotated[int, Meta(ge=0)] = 0
    """How many columns the training file has; 0 where it is no TSV or CSV file."""

    def save(self, path: Path) -> None:
        """Write as JSON, readable by eye and by any other program."""
        write_atomic(path, msgspec.json.format(msgspec.json.encode(self), indent=1))


def load_vocabularies(path: Path, config: DataConfig) -> Vocabularies:
    """Return the vocabularies of a run.

    Args:
        path: The file.
        config: How the run cuts texts into symbols.

    Raises:
        RunError: The file is missing or no vocabulary, it holds a symbol that the run cuts no text into, or it tells of
            a text that is longer than the run allows.
    """
    content = read_bytes(path)
    try:
        vocabularies = decode_json(content, Vocabularies)
    except ValueError as error:
        raise RunError(f"{path} is not a vocabulary: {abbreviate_reason(error)}") from error
    for name in ("longest_source", "longest_target"):
        if getattr(vocabularies, name) > config.max_length:
            raise RunError(
                f"{path}: {name}: expected at most {config.max_length} (data.max_length of the run), got "
                f"{getattr(vocabularies, name)}"
            )
    cuts = segmenters(config, vocabularies.pieces)
    for name in Segmenters._fields:
        kept: Vocabulary = getattr(vocabularies, name)
        cut: Segmenter = getattr(cuts, name)
        foreign = next((symbol for symbol in kept.symbols if not cut.can_give(symbol)), None)
        if foreign is not None:
            kind = cut.kind if cut.kind in KINDS else f"parts between {quote(cut.kind)}"
            raise RunError(f"{path}: {name}.symbols: {quote(foreign)} is no symbol where symbols are {kind}")
    return vocabularies


def code_points(texts: Sequence[str]) -> Iterator[UInt[np.ndarray, " N"]]:
    """The characters of all texts end to end, as numbers, a block of texts at a time."""
    for start in range(0, len(texts), TEXTS):
        joined = "".join(texts[start : start + TEXTS])
        yield np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.dtype("<u4"))


def count_symbols(sequences: Iterable[Sequence[str]], min_count: int) -> Vocabulary:
    """The vocabulary of all symbols seen at least `min_count` times: commonest first, then by code point."""
    return _ranked(Counter(chain.from_iterable(sequences)), min_count)


def learn_segmenters(examples: Sequence[Example], config: DataConfig) -> Segmenters:
    """How texts are cut: as the configuration says, and into the subwords that the training examples teach."""
    plain, limits = segmenters(config), (config.subword_vocab_size, config.min_count)
    source, target = (
        learn_subwords([cut.normalized(text) for text in texts], *limits) if cut.kind == "subwords" else None
        for cut, texts in (
            (plain.source, (example.source for example in examples)),
            (plain.target, (example.target for example in examples)),
        )
    )
    return segmenters(config, Pieces(source, target))


def learn_vocabularies(examples: Sequence[Example], segmenters: Segmenters, min_count: int) -> Vocabularies:
    """Count the symbols of training examples, each column apart; no other file ever adds a symbol."""
    source, longest_source = _counted([example.source for example in examples], segmenters.source)
    target, longest_target = _counted([example.target for example in examples], segmenters.target)
    features, _ = _counted([example.features for example in examples], segmenters.features)
    return Vocabularies(
        source=_ranked(source, min_count),
        target=_ranked(target, min_count),
        features=_ranked(features, min_count),
        longest_source=longest_source,
        longest_target=longest_target,
        pieces=Pieces(segmenters.source.subwords, segmenters.target.subwords),
    )


def without(vocabulary: Vocabulary, symbol: str) -> Vocabulary:
    """The vocabulary less one symbol, if it holds that."""
    kept = [(each, count) for each, count in zip(vocabulary.symbols, vocabulary.counts, strict=True) if each != symbol]
    return Vocabulary(tuple(each for each, _ in kept), tuple(count for _, count in kept))


def _ranked(counts: Counter[str], min_count: int) -> Vocabulary:
    """Counts as a vocabulary."""
    kept = sorted((s for s, n in counts.items() if n >= min_count), key=lambda symbol: (-counts[symbol], symbol))
    try:
        return Vocabulary(tuple(kept), tuple(counts[symbol] for symbol in kept))
    except ValueError as error:
        raise DataError(f"the training data: {abbreviate_reason(error)}") from error


def _counted(texts: Sequence[str], segmenter: Segmenter) -> tuple[Counter[str], int]:
    """How often each symbol stands in a column, and the length of its longest text."""
    if not any(texts):
        return Counter(), 0
    if segmenter.kind != "characters":
        lengths: list[int] = []
        return Counter(segmenter.symbols(texts, lengths)), max(lengths)
    counts: Counter[str] = Counter()
    texts = [segmenter.normalized(text) for text in texts]
    for points in code_points(texts):
        times = np.bincount(points)
        seen = np.flatnonzero(times)
        counts.update(dict(zip(map(chr, seen.tolist()), times[seen].tolist(), strict=True)))
    return counts, max(map(len, texts))
