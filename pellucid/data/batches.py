"""Encoded examples to padded batches: near-equal lengths together, the order a function of seed and epoch alone.

B counts examples, S source positions, T target positions, N all symbols of a column.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pellucid.data.examples import Example
from pellucid.data.symbols import Segmenters
from pellucid.data.vocabulary import EOS, PAD, Vocabularies

POOL = 16
"""Batches whose examples are sorted by length together: few, so that a batch's company changes from epoch to epoch."""


class Ragged(NamedTuple):
    """Sequences of unequal length, end to end: sequence i is values[offsets[i]:offsets[i + 1]]."""

    values: Int[np.ndarray, " N"]
    offsets: Int[np.ndarray, " M1"]

    @property
    def lengths(self) -> Int[np.ndarray, " M"]:
        """The length of each sequence."""
        return np.diff(self.offsets)

    def padded(self, rows: Int[np.ndarray, " B"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, " B"]]:
        """The chosen sequences side by side, PAD after their ends, and their lengths."""
        starts, lengths = self.offsets[rows], self.lengths[rows]
        columns = np.arange(int(lengths.max(initial=0)))
        inside = columns < lengths[:, None]
        positions = np.where(inside, starts[:, None] + columns, 0)
        ids = np.where(inside, self.values[positions] if len(self.values) else 0, PAD)
        return torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(lengths.astype(np.int64))


class Encoded(NamedTuple):
    """All examples of a file as ids."""

    source: Ragged
    target: Ragged


class Batch(NamedTuple):
    """Examples that pass through the network together. Lengths are required; what lies beyond them is never read."""

    source: Int[Tensor, "B S"]
    source_lengths: Int[Tensor, " B"]
    target: Int[Tensor, "B T"]
    """The symbols to write, EOS last."""
    target_lengths: Int[Tensor, " B"]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(*(tensor.to(device) for tensor in self))


def ragged(sequences: Iterable[Sequence[int]]) -> Ragged:
    """Lay sequences end to end."""
    kept = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
    offsets = np.zeros(len(kept) + 1, dtype=np.int64)
    np.cumsum([len(sequence) for sequence in kept], out=offsets[1:])
    return Ragged(np.concatenate(kept) if kept else np.zeros(0, dtype=np.int32), offsets)


def encode_source(example: Example, segmenters: Segmenters, vocabularies: Vocabularies) -> list[int]:
    """The ids the encoder reads: the features, numbered after all source symbols, then the source."""
    features = vocabularies.features.encode(segmenters.features.split(example.features))
    source = vocabularies.source.encode(segmenters.source.split(example.source))
    return [len(vocabularies.source) + feature for feature in features] + source


def encode(examples: Sequence[Example], segmenters: Segmenters, vocabularies: Vocabularies) -> Encoded:
    """Examples as ids, each target closed by EOS."""
    target = vocabularies.target
    return Encoded(
        source=ragged(encode_source(example, segmenters, vocabularies) for example in examples),
        target=ragged([*target.encode(segmenters.target.split(example.target)), EOS] for example in examples),
    )


def assemble(encoded: Encoded, rows: Int[np.ndarray, " B"]) -> Batch:
    """The batch of the chosen examples."""
    return Batch(*encoded.source.padded(rows), *encoded.target.padded(rows))


def plan_batches(
    encoded: Encoded, batch_size: int, batch_by: Literal["examples", "tokens"], seed: int, epoch: int
) -> list[Int[np.ndarray, " B"]]:
    """The rows of each batch of an epoch: every example once, lengths alike within a batch, order shuffled.

    The examples are shuffled, sorted by length within pools of `POOL` batches, cut, and the batches shuffled. Nothing
    but (seed, epoch) decides the order, so a resumed run needs to know only how many batches have passed.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(encoded.source.lengths))
    sizes = encoded.source.lengths + encoded.target.lengths
    pool = POOL * batch_size if batch_by == "examples" else max(1, round(POOL * batch_size / sizes.mean()))
    batches: list[Int[np.ndarray, " B"]] = []
    for start in range(0, len(order), pool):
        rows = order[start : start + pool]
        rows = rows[np.lexsort((encoded.target.lengths[rows], encoded.source.lengths[rows]))]
        if batch_by == "examples":
            batches += [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]
        else:
            batches += _cut_by_tokens(rows, encoded, batch_size)
    return [batches[i] for i in generator.permutation(len(batches))]


def _cut_by_tokens(rows: Int[np.ndarray, " M"], encoded: Encoded, tokens: int) -> list[Int[np.ndarray, " B"]]:
    """Cut so that a batch's padded positions, source and target, stay within `tokens` (one example always fits)."""
    source, target = encoded.source.lengths[rows], encoded.target.lengths[rows]
    batches, start, widest = [], 0, (0, 0)
    for at in range(len(rows)):
        wider = (max(widest[0], int(source[at])), max(widest[1], int(target[at])))
        if at > start and sum(wider) * (at + 1 - start) > tokens:
            batches.append(rows[start:at])
            start, wider = at, (int(source[at]), int(target[at]))
        widest = wider
    return [*batches, rows[start:]]
