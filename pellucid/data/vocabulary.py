"""Symbols to ids and back, learnt from the training file and kept as JSON."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pellucid.data.examples import Example
from pellucid.data.symbols import Segmenters
from pellucid.errors import RunError
from pellucid.files import read_bytes, write_atomic

PAD, BOS, EOS, UNK = range(4)
SPECIAL = 4
"""How many ids come before the first symbol. The special ids have no spelling, so no data can collide with them."""


class Vocabulary(msgspec.Struct, frozen=True, dict=True):
    """The symbols of one column, commonest first. Ids 0 to 3 are PAD, BOS, EOS, UNK; symbol i has id i + 4."""

    symbols: tuple[str, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse what no counting gives, wherever it was read."""
        if len(self.counts) != len(self.symbols) or len(set(self.symbols)) != len(self.symbols):
            raise ValueError("each symbol stands once, and has one count")

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each symbol."""
        return {symbol: position + SPECIAL for position, symbol in enumerate(self.symbols)}

    def __len__(self) -> int:
        """V, the special ids included."""
        return SPECIAL + len(self.symbols)

    def encode(self, symbols: Iterable[str]) -> list[int]:
        """The ids of symbols; UNK for those not held here."""
        ids = self.ids
        return [ids.get(symbol, UNK) for symbol in symbols]

    def symbol(self, identity: int, otherwise: Sequence[str]) -> str:
        """The symbol of an id; `otherwise` spells the four special ones."""
        return self.symbols[identity - SPECIAL] if identity >= SPECIAL else otherwise[identity]


class Vocabularies(msgspec.Struct, frozen=True):
    """What the training file taught before training began."""

    source: Vocabulary
    target: Vocabulary
    features: Vocabulary
    longest_source: Annotated[int, Meta(ge=0)]
    longest_target: Annotated[int, Meta(ge=0)]
    format: Literal[1] = 1

    def save(self, path: Path) -> None:
        """Write as JSON, readable by eye and by any other program."""
        write_atomic(path, msgspec.json.format(msgspec.json.encode(self), indent=1))


def load_vocabularies(path: Path) -> Vocabularies:
    """The vocabularies of a run; `RunError` where the file is missing or is not one."""
    try:
        return msgspec.json.decode(read_bytes(path), type=Vocabularies)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{path} is not a vocabulary: {error}") from error


def count_symbols(sequences: Iterable[Sequence[str]], minimum_count: int) -> Vocabulary:
    """The vocabulary of all symbols seen at least `minimum_count` times: commonest first, then by code point."""
    counts: Counter[str] = Counter()
    for symbols in sequences:
        counts.update(symbols)
    kept = sorted((s for s, n in counts.items() if n >= minimum_count), key=lambda symbol: (-counts[symbol], symbol))
    return Vocabulary(tuple(kept), tuple(counts[symbol] for symbol in kept))


def learn_vocabularies(examples: Sequence[Example], segmenters: Segmenters, minimum_count: int) -> Vocabularies:
    """Count the symbols of training examples, each column apart; no other file ever adds a symbol."""
    return Vocabularies(
        source=count_symbols((segmenters.source.split(e.source) for e in examples), minimum_count),
        target=count_symbols((segmenters.target.split(e.target) for e in examples), minimum_count),
        features=count_symbols((segmenters.features.split(e.features) for e in examples), minimum_count),
        longest_source=max(len(segmenters.source.split(e.source)) for e in examples),
        longest_target=max(len(segmenters.target.split(e.target)) for e in examples),
    )
