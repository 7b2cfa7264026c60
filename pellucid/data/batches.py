"""Encoding of examples as ids, and padded batches of near-equal lengths.

Batches depend on the seed and the epoch only. B counts examples, S source positions, T target positions, N all symbols
of a column.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Integer
from torch import Tensor

from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers
from pellucid.data.vocabulary import EOS, PAD, UNK, Vocabularies, Vocabulary, code_points

POOL_BATCHES = 16
"""Number of batches whose examples are sorted by length together; few, so that batches differ from epoch to epoch."""


class Ragged(NamedTuple):
    """M sequences of ids of unequal length in one array: sequence i is values[offsets[i]:offsets[i + 1]]."""

    values: Integer[np.ndarray, " N"]
    offsets: Int[np.ndarray, " M1"]

    @property
    def lengths(self) -> Int[np.ndarray, " M"]:
        """Length of each sequence."""
        return np.diff(self.offsets)

    @property
    def num_sequences(self) -> int:
        """M, the number of sequences."""
        return len(self.offsets) - 1

    def pad(self, rows: Int[np.ndarray, " B"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, " B"]]:
        """Return the chosen sequences as a padded batch.

        Args:
            rows: Indices of the sequences, shape (B).

        Returns:
            The ids, shape (B, L) with L the maximum length, PAD after the end of each sequence; and the lengths, shape
            (B). Both are int64.
        """
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        columns = np.arange(int(lengths.max(initial=0)))
        # Ids beyond the end of a sequence are overwritten below.
        ids = self.values.take(starts[:, None] + columns, mode="clip").astype(np.int64)
        ids[columns >= lengths[:, None]] = PAD
        return torch.from_numpy(ids), torch.from_numpy(lengths)


class EncodedExamples(NamedTuple):
    """Source and target ids of examples, one sequence of each per example."""

    source: Ragged
    target: Ragged


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

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; copies from the CPU to a GPU are asynchronous, from pinned memory.

        Args:
            device: The device.
        """
        if device.type != "cuda" or self.source.is_cuda:
            return Batch(*(tensor.to(device) for tensor in self))
        return Batch(*(tensor.pin_memory().to(device, non_blocking=True) for tensor in self))


def to_ragged(sequences: Iterable[Sequence[int]]) -> Ragged:
    """Return sequences of ids as one `Ragged` array.

    Args:
        sequences: Sequences of ids.
    """
    arrays = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
    lengths = np.array([len(sequence) for sequence in arrays], dtype=np.int64)
    return Ragged(np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32), _offsets(lengths))


def encode_examples(examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies) -> EncodedExamples:
    """Encode examples whose targets are sequences, with EOS after each target and without extended ids.

    Args:
        examples: The examples.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.

    Returns:
        Source and target ids, in the narrowest unsigned integer types that hold every id. A symbol outside its
        vocabulary is UNK.
    """
    target = _encode_targets(examples, tokenizers, vocabularies)
    ends = Ragged(np.full(target.num_sequences, EOS, dtype=target.values.dtype), np.arange(len(target.offsets)))
    return EncodedExamples(encode_sources(examples, tokenizers, vocabularies), _concatenate_rows(target, ends))


def encode_labels(examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies) -> EncodedExamples:
    """Encode examples whose targets are labels or positions: no EOS, and PAD for targets that are not scored.

    These are the ignored tag and labels that training never saw. No loss counts PAD.

    Args:
        examples: The examples.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.

    Returns:
        Source and target ids of the examples.
    """
    target = _encode_targets(examples, tokenizers, vocabularies)
    target.values[target.values == UNK] = PAD
    return EncodedExamples(encode_sources(examples, tokenizers, vocabularies), target)


def _encode_targets(examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies) -> Ragged:
    """Return the ids of the target symbols alone."""
    _, target_dtype = id_dtypes(vocabularies)
    return encode_column([example.target for example in examples], tokenizers.target, vocabularies.target, target_dtype)


def encode_sources(examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies) -> Ragged:
    """Encode the encoder inputs of examples: the ids of the features, then the ids of the source symbols.

    Feature f of its vocabulary has the id f plus the size of the source vocabulary.

    Args:
        examples: The examples.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.

    Returns:
        One sequence of ids for each example.
    """
    source_dtype, _ = id_dtypes(vocabularies)
    source = encode_column(
        [example.source for example in examples], tokenizers.source, vocabularies.source, source_dtype
    )
    features = encode_column(
        [example.features for example in examples], tokenizers.features, vocabularies.features, source_dtype
    )
    if not len(features.values):
        return source
    return _concatenate_rows(
        features._replace(values=features.values + source_dtype.type(len(vocabularies.source))), source
    )


def id_dtypes(vocabularies: Vocabularies) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the narrowest unsigned integer types for encoder ids, features included, and for target ids.

    Args:
        vocabularies: The vocabularies of the run.
    """
    source_dtype, target_dtype = (np.min_scalar_type(count - 1) for count in count_ids(vocabularies, has_features=True))
    return source_dtype, target_dtype


def count_ids(vocabularies: Vocabularies, has_features: bool) -> tuple[int, int]:
    """Return the number of encoder ids and of target ids, special ids included.

    Args:
        vocabularies: The vocabularies of the run.
        has_features: Whether the encoder reads features as well; their ids then count.
    """
    return len(vocabularies.source) + (len(vocabularies.features) if has_features else 0), len(vocabularies.target)


def encode_column(texts: Sequence[str], tokenizer: Tokenizer, vocabulary: Vocabulary, dtype: np.dtype[Any]) -> Ragged:
    """Encode one column of texts as ids, UNK for symbols that the vocabulary lacks.

    Args:
        texts: One text for each example.
        tokenizer: The tokenizer of the column.
        vocabulary: The vocabulary of the column.
        dtype: Integer type of the ids.

    Returns:
        One sequence of ids for each text.
    """
    if not any(texts):
        return Ragged(np.zeros(0, dtype=dtype), np.zeros(len(texts) + 1, dtype=np.int64))
    if tokenizer.kind != "characters":
        lengths: list[int] = []
        values = vocabulary.encode_array(tokenizer.split_all(texts, lengths)).astype(dtype)
        return Ragged(values, _offsets(np.array(lengths)))
    texts = [tokenizer.normalize(text) for text in texts]
    offsets = _offsets(np.fromiter(map(len, texts), np.int64, len(texts)))
    values, start = np.empty(offsets[-1], dtype=dtype), 0
    for points in code_points(texts):
        values[start : start + len(points)] = vocabulary.encode_points(points)
        start += len(points)
    return Ragged(values, offsets)


def _offsets(lengths: Int[np.ndarray, " M"]) -> Int[np.ndarray, " M1"]:
    """Return the offsets of concatenated sequences with these lengths, the total length last."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _concatenate_rows(first: Ragged, second: Ragged) -> Ragged:
    """Concatenate sequence i of the first with sequence i of the second, for every i."""
    lengths = np.stack([first.lengths, second.lengths], axis=1)
    in_first = np.repeat(np.tile([True, False], len(lengths)), lengths.ravel())
    values = np.empty(len(in_first), dtype=first.values.dtype)
    values[in_first] = first.values
    values[~in_first] = second.values
    return Ragged(values, first.offsets + second.offsets)


def collate(encoded: EncodedExamples, rows: Int[np.ndarray, " B"]) -> Batch:
    """Return the padded batch of the chosen examples.

    Args:
        encoded: All examples.
        rows: Indices of the chosen examples, shape (B), from 0.
    """
    return Batch(*encoded.source.pad(rows), *encoded.target.pad(rows))


def bucket_by_length(
    encoded: EncodedExamples, batch_size: int, batch_type: Literal["examples", "tokens"], seed: int, epoch: int
) -> list[Int[np.ndarray, " B"]]:
    """Return the rows of each batch of an epoch: every example once, similar lengths within a batch, shuffled order.

    The examples are shuffled, sorted by length within pools of `POOL_BATCHES` batches, and split; then the batches are
    shuffled. The order depends on (seed, epoch) only, so a resumed run needs only the number of batches that are done.

    Args:
        encoded: All examples.
        batch_size: Maximum size of a batch, in examples or tokens; an example of more tokens is a batch of its own.
        batch_type: Unit of the batch size; "tokens" counts padded source and target positions.
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.

    Returns:
        The indices of the examples of each batch, in the order of training.
    """
    generator = np.random.default_rng([seed, epoch])
    source, target = encoded.source.lengths, encoded.target.lengths
    order = generator.permutation(len(source))
    pool = POOL_BATCHES * batch_size
    if batch_type == "tokens":
        pool = max(1, round(pool / (source + target).mean()))
    batches: list[Int[np.ndarray, " B"]] = []
    for start in range(0, len(order), pool):
        rows = order[start : start + pool]
        rows = rows[np.lexsort((target[rows], source[rows]))]
        if batch_type == "examples":
            batches += [rows[index : index + batch_size] for index in range(0, len(rows), batch_size)]
        else:
            batches += _split_by_tokens(rows, source[rows].tolist(), target[rows].tolist(), batch_size)
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
    batches, start, widest = [], 0, 0
    for index, (source_length, target_length) in enumerate(zip(source, target, strict=True)):
        widest = max(widest, target_length)
        if index > start and (source_length + widest) * (index + 1 - start) > tokens:
            batches.append(rows[start:index])
            start, widest = index, target_length
    return [*batches, rows[start:]]
