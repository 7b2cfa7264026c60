"""Transducer: a trained network with all it needs to turn texts into Traces."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from pellucid.config import Config
from pellucid.data.batches import Ragged, encode_sources
from pellucid.data.copies import sources_with_copies
from pellucid.data.examples import Example
from pellucid.data.symbols import Segmenters, segmenters
from pellucid.data.vocabulary import EOS, UNK, Vocabularies
from pellucid.errors import DataError
from pellucid.kernels.choice import for_answers
from pellucid.model.network import Network
from pellucid.search.beam import beam
from pellucid.search.decoded import Decoded, Limits
from pellucid.search.greedy import greedy
from pellucid.search.trace import END, UNKNOWN, Trace
from pellucid.toml import checked

SPECIAL_NAMES = ("⟨pad⟩", "⟨begin⟩", END, UNKNOWN)
"""How the four special ids are shown. They are names for people: no text is ever parsed for them."""


@dataclass(frozen=True)
class Transducer:
    """Texts in, Traces out: a network, its vocabularies, and the configuration it was trained with."""

    config: Config
    vocabularies: Vocabularies
    network: Network

    @cached_property
    def segmenters(self) -> Segmenters:
        """How each column's text is cut into symbols."""
        return segmenters(self.config.data)

    @property
    def maximum_length(self) -> int:
        """The greatest output length, in symbols: as set, or half as much again as the longest training target."""
        search = self.config.search
        derived = max(math.ceil(1.5 * self.vocabularies.longest_target) + 10, search.minimum_length)
        return search.maximum_length or derived

    @cached_property
    def _names(self) -> np.ndarray:
        """How each target id is shown."""
        target = self.vocabularies.target
        return np.array([target.symbol(identity, SPECIAL_NAMES) for identity in range(len(target))], dtype=object)

    def with_beam(self, width: int) -> "Transducer":
        """The same, searching with so many hypotheses; 1 is greedy. `ConfigError` for what is no width."""
        search = msgspec.structs.replace(self.config.search, beam_width=width)
        return replace(self, config=checked(msgspec.structs.replace(self.config, search=search)))

    def predict(self, sources: Sequence[str], features: Sequence[str] | None = None) -> list[Trace]:
        """Decode each source, with its features where the model was trained with them.

        One Trace a source, in their order. An empty source gives an empty output. `DataError` for a source longer than
        `data.maximum_length` or for features that do not match the sources in number.
        """
        if isinstance(sources, str):
            raise DataError("expected a list of sources, got one text: predict([text])")
        if features is not None and len(features) != len(sources):
            raise DataError(f"expected one features text for each of {len(sources)} sources, got {len(features)}")
        tags = features if features is not None else [""] * len(sources)
        return self.trace([Example(source, "", tag) for source, tag in zip(sources, tags, strict=True)])

    def trace(self, examples: Iterable[Example]) -> list[Trace]:
        """Decode examples (their targets are not looked at): near-equal lengths together, results in their order."""
        given = list(examples)
        read = [self._read(example, number) for number, example in enumerate(given, start=1)]
        plain = sources = encode_sources(given, self.segmenters, self.vocabularies)
        if self.config.decoder.copying:
            sources = sources_with_copies(plain, given, self.segmenters, self.vocabularies)
        order = [row for row in np.argsort(sources.lengths, kind="stable").tolist() if read[row].source]
        decoded: dict[int, Decoded] = {}
        device = next(self.network.parameters()).device
        with evaluating(self.network), for_answers(len(order) * self.config.search.beam_width, device):
            for start in range(0, len(order), self.config.search.batch_size):
                rows = order[start : start + self.config.search.batch_size]
                decoded.update(zip(rows, self._decode(sources, rows), strict=True))
        unknown = self._unknown(plain)
        return [self._trace(each, decoded.get(row), tuple(unknown.get(row, ()))) for row, each in enumerate(read)]

    def _read(self, example: Example, number: int) -> "_Read":
        """The symbols that the encoder reads of one example: none where its source has none."""
        source, limit = self.segmenters.source.split(example.source), self.config.data.maximum_length
        if len(source) > limit:
            raise DataError(f"source {number} has {len(source)} symbols; data.maximum_length is {limit}")
        if example.features and not self.config.data.features_column:
            raise DataError(f"source {number} has features, but the model was trained without (data.features_column)")
        if not source:
            return _Read(example.source, (), 0)
        features = self.segmenters.features.split(example.features) if example.features else []
        return _Read(example.source, (*features, *source), len(features))

    def _unknown(self, sources: Ragged) -> dict[int, list[int]]:
        """The positions of the symbols that were never seen, of the sources that have such."""
        places = np.flatnonzero(np.isin(sources.values, (UNK, len(self.vocabularies.source) + UNK)))
        rows = np.searchsorted(sources.offsets, places, side="right") - 1
        found: dict[int, list[int]] = {}
        for row, position in zip(rows.tolist(), (places - sources.offsets[rows]).tolist(), strict=True):
            found.setdefault(row, []).append(position)
        return found

    def _decode(self, sources: Ragged, rows: list[int]) -> list[Decoded]:
        """One batch through the network, in evaluation mode."""
        device = next(self.network.parameters()).device
        source, lengths = sources.padded(np.array(rows))
        limits = Limits(self.config.search.minimum_length, self.maximum_length)
        given = (self.network, source.to(device), lengths.to(device), limits)
        if self.config.search.beam_width == 1:
            return greedy(*given)
        return [outputs[0] for outputs in beam(*given, self.config.search.beam_width)]

    def _trace(self, read: "_Read", decoded: Decoded | None, unknown: tuple[int, ...]) -> Trace:
        """Ids back to symbols."""
        found = decoded if decoded is not None else _nothing()
        finished = bool(len(found.ids)) and int(found.ids[-1]) == EOS
        names = self._names
        if self.config.decoder.copying:  # V + p is the symbol at source position p
            names = np.concatenate([names, np.array(read.source, dtype=object)])
        symbols = tuple(names[found.ids].tolist())
        return Trace(
            text=read.text,
            source=read.source,
            features=read.features,
            unknown=unknown if read.source else (),
            target=symbols,
            output=self.segmenters.target.join(symbols[:-1] if finished else symbols),
            finished=finished or not read.source,
            log_probabilities=found.log_probabilities,
            attention=found.weights,
            top_symbols=tuple(map(tuple, names[found.top_ids].tolist())),
            top_log_probabilities=found.top_log_probabilities,
        )


@contextmanager
def evaluating(network: Network) -> Iterator[None]:
    """Within, the network is in evaluation mode; afterwards in the one it was in. Most often there is nothing to do."""
    if not network.training:
        yield
        return
    network.eval()
    try:
        yield
    finally:
        network.train()


class _Read(NamedTuple):
    """One source as the encoder reads it: its symbols, of which the first are features."""

    text: str
    source: tuple[str, ...]
    features: int


def _nothing() -> Decoded:
    """The decoding of an empty source: no step was taken."""
    return Decoded(
        ids=np.zeros(0, dtype=np.int64),
        log_probabilities=np.zeros(0, dtype=np.float32),
        weights=np.zeros((0, 0), dtype=np.float32),
        top_ids=np.zeros((0, 0), dtype=np.int64),
        top_log_probabilities=np.zeros((0, 0), dtype=np.float32),
    )
