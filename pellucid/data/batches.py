"""Padded batches of near-equal lengths.

Batches depend on the seed and the epoch only. B counts examples, S source positions, T target positions, L positions of
padded sequences, M examples of an epoch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.data.characters import WordCharacters, collate_characters
from pellucid.data.encoding import EncodedExamples, Ragged
from pellucid.data.vocabulary import PAD
from pellucid.shapes import Int

MIN_POOL_BATCHES, MAX_POOL_BATCHES = 128, 1024
"""Limits of the number of batches whose examples are sorted by length together, a quarter of those of an epoch.

With 16, a sixth of the target positions were padding (docs/guides/training.md). A limit lets batches differ from epoch
to epoch also if few examples have equal lengths, and bounds the memory.
"""
CHARACTERS = "characters"
"""Field of `Batch` with the characters of the source words."""


class Batch(NamedTuple):
    """Padded examples that pass through the network together.

    Nothing reads source ids beyond the lengths. Target ids beyond them are PAD, by which losses leave them out.
    """

    source: Int[Tensor, "B S"]
    """Source ids; those of features come first."""
    source_lengths: Int[Tensor, " B"]
    """Number of ids of each source."""
    target: Int[Tensor, "B T"]
    """Target ids, without BOS; EOS is last where targets are sequences."""
    target_lengths: Int[Tensor, " B"]
    characters: WordCharacters | None = None
    """Characters of the source words; None for an encoder that reads none."""

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; copies from the CPU to a GPU are asynchronous, from pinned memory.

        Args:
            device: The device.
        """
        characters = None if self.characters is None else WordCharacters(*_move(self.characters, device))
        source, source_lengths, target, target_lengths = _move(self.tensors(), device)
        return Batch(source, source_lengths, target, target_lengths, characters)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return source, target and their lengths, without characters."""
        return self.source, self.source_lengths, self.target, self.target_lengths

    def shard(self, rank: int, size: int) -> "Batch | None":
        """Return the part whose gradients one of several processes computes: the rows rank, rank + size, …, without
        padding.

        The rows of a batch are sorted by length, so the parts need about equal time.

        Args:
            rank: Number of the process, from 0.
            size: Number of processes.

        Returns:
            The part; None if it has no target position.
        """
        source_lengths, target_lengths = self.source_lengths[rank::size], self.target_lengths[rank::size]
        if not len(source_lengths):
            return None
        longest_source, longest_target = int(source_lengths.max()), int(target_lengths.max())
        target = self.target[rank::size, :longest_target].contiguous()
        if not bool((target != PAD).any()):
            return None
        source = self.source[rank::size, :longest_source].contiguous()
        characters = None
        if self.characters is not None:
            used, words = self.characters.word_rows[rank::size, :longest_source].unique(return_inverse=True)
            characters = WordCharacters(self.characters.ids[used], self.characters.lengths[used], words)
        return Batch(source, source_lengths.contiguous(), target, target_lengths.contiguous(), characters)

    def named_tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name, those of characters with a prefix."""
        named = {name: value for name, value in self._asdict().items() if name != CHARACTERS}
        if self.characters is not None:
            named |= {f"{CHARACTERS}.{name}": value for name, value in self.characters._asdict().items()}
        return named

    @staticmethod
    def from_named_tensors(tensors: Mapping[str, Tensor]) -> "Batch":
        """Return the batch of tensors as `named_tensors` returns them.

        Args:
            tensors: Tensors by name.
        """
        prefix = f"{CHARACTERS}."
        characters = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        fields = {name: value for name, value in tensors.items() if not name.startswith(prefix)}
        return Batch(**fields, characters=WordCharacters(**characters) if characters else None)


def _move(tensors: Iterable[Tensor], device: torch.device) -> list[Tensor]:
    """Return tensors on a device, copied from pinned memory to a GPU."""
    return [
        tensor.to(device)
        if device.type != "cuda" or tensor.is_cuda
        else tensor.pin_memory().to(device, non_blocking=True)
        for tensor in tensors
    ]


def collate(encoded: EncodedExamples, rows: Int[np.ndarray, " B"]) -> Batch:
    """Return the padded batch of the chosen examples.

    Args:
        encoded: All examples.
        rows: Indices of the chosen examples, shape (B), from 0.
    """
    characters = character_tensors(encoded.characters, rows)
    return Batch(*pad_tensors(encoded.source, rows), *pad_tensors(encoded.target, rows), characters)


def character_tensors(characters: Ragged | None, rows: Int[np.ndarray, " B"]) -> WordCharacters | None:
    """Return the result of `collate_characters` as tensors; None for no characters.

    Args:
        characters: Characters of all sources.
        rows: Indices of the chosen sources, shape (B).
    """
    return None if characters is None else WordCharacters(*map(torch.from_numpy, collate_characters(characters, rows)))


def pad_tensors(sequences: Ragged, rows: Int[np.ndarray, " B"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, " B"]]:
    """Return the ids and the lengths of `Ragged.pad` as tensors.

    Args:
        sequences: All sequences.
        rows: Indices of the chosen sequences, shape (B).
    """
    ids, lengths = sequences.pad(rows)
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def bucket_by_length(
    encoded: EncodedExamples,
    batch_size: int,
    batch_type: Literal["examples", "tokens"],
    seed: int,
    epoch: int,
    rows: Int[np.ndarray, " M"] | None = None,
) -> list[Int[np.ndarray, " B"]]:
    """Return the rows of each batch of an epoch: every example once, similar lengths within a batch, shuffled order.

    The examples are shuffled, sorted by length within pools of a quarter of the batches, and split;
    then the batches are shuffled. Examples with equal source lengths are sorted by target length, in ascending and
    descending order in turn, so that neighbors of different source lengths have similar target lengths. The order
    depends on (seed, epoch) only, so a resumed run needs only the number of batches that are done.

    Args:
        encoded: All examples.
        batch_size: Maximum size of a batch, in examples or tokens; an example of more tokens is a batch of its own.
        batch_type: Unit of the batch size; "tokens" counts padded source and target positions.
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.
        rows: Indices of the examples of the epoch, which may repeat; None, the default, for all examples.

    Returns:
        The indices of the examples of each batch, in the order of training.
    """
    generator = np.random.default_rng([seed, epoch])
    source, target = encoded.source.lengths, encoded.target.lengths
    order = generator.permutation(len(source)) if rows is None else generator.permutation(rows)
    examples_per_batch = batch_size if batch_type == "examples" else batch_size / (source + target).mean()
    pool = min(max(len(order) // 4, MIN_POOL_BATCHES * examples_per_batch), MAX_POOL_BATCHES * examples_per_batch)
    pool = max(1, round(pool))
    batches: list[Int[np.ndarray, " B"]] = []
    for start in range(0, len(order), pool):
        pooled = order[start : start + pool]
        directions = 1 - 2 * (source[pooled] % 2)  # descending for odd source lengths
        pooled = pooled[np.lexsort((directions * target[pooled], source[pooled]))]
        if batch_type == "examples":
            batches += [pooled[index : index + batch_size] for index in range(0, len(pooled), batch_size)]
        else:
            batches += _split_by_tokens(pooled, source[pooled].tolist(), target[pooled].tolist(), batch_size)
    return [batches[i] for i in generator.permutation(len(batches)).tolist()]


def _split_by_tokens(
    rows: Int[np.ndarray, " M"], source: Sequence[int], target: Sequence[int], tokens: int
) -> list[Int[np.ndarray, " B"]]:
    """Split rows into batches of at most `tokens` padded positions; a longer example is a batch of its own.

    Args:
        rows: Indices of the examples, sorted by source length.
        source: Source length of each row, in ascending order.
        target: Target length of each row.
        tokens: Maximum of padded source and target positions of a batch.
    """
    batches = []
    start = 0
    widest = 0
    for index, (source_length, target_length) in enumerate(zip(source, target, strict=True)):
        widest = max(widest, target_length)
        if index > start and (source_length + widest) * (index + 1 - start) > tokens:
            batches.append(rows[start:index])
            start, widest = index, target_length
    return [*batches, rows[start:]]
