"""Encoded examples to padded batches: near-equal lengths together, the order a function of seed and epoch alone.

B counts examples, S source positions, T target positions, N all symbols of a column.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Integer
from torch import Tensor

from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers
from pellucid.data.vocabulary import EOS, PAD, Vocabularies, Vocabulary, code_points

POOL_BATCHES = 16
"""Batches whose examples are sorted by length together: few, so that a batch's company changes from epoch to epoch."""


class Ragged(NamedTuple):
    """Sequences of unequal length, end to end: sequence i is values[offsets[i]:offsets[i + 1]]."""

    values: Integer[np.ndarray, " N"]
    offsets: Int[np.ndarray, " M1"]

    @property
    def lengths(self) -> Int[np.ndarray, " M"]:
        """The length of each sequence."""
        return np.diff(self.offsets)

    @property
    def num_sequences(self) -> int:
        """M, how many sequences there are."""
        return len(self.offsets) - 1

    def pad(self, rows: Int[np.ndarray, " B"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, " B"]]:
        """The chosen sequences side by side, PAD after their ends, and their lengths."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        columns = np.arange(int(lengths.max(initial=0)))
        # What is read beyond the end of a sequence, or of all of them, is overwritten.
        ids = self.values.take(starts[:, None] + columns, mode="clip").astype(np.int64)
        ids[columns >= lengths[:, None]] = PAD
        return torch.from_numpy(ids), torch.from_numpy(lengths)


class EncodedExamples(NamedTuple):
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
        """The same batch on another device; a GPU fetches it while the host goes on."""
        if device.type != "cuda" or self.source.is_cuda:
            return Batch(*(tensor.to(device) for tensor in self))
        return Batch(*(tensor.pin_memory().to(device, non_blocking=True) for tensor in self))


def to_ragged(sequences: Iterable[Sequence[int]]) -> Ragged:
    """Lay sequences end to end."""
    kept = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
    lengths = np.array([len(sequence) for sequence in kept], dtype=np.int64)
    return Ragged(np.concatenate(kept) if kept else np.zeros(0, dtype=np.int32), _offsets(lengths))


def encode_examples(examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies) -> EncodedExamples:
    """Examples as ids, each target closed by EOS.

    Ids have the narrowest type that holds whatever there may be: a byte each where symbols are few.
    """
    _, written = id_dtypes(vocabularies)
    target = encode_column([example.target for example in examples], tokenizers.target, vocabularies.target, written)
    ends = Ragged(np.full(target.num_sequences, EOS, dtype=written), np.arange(len(target.offsets)))
    return EncodedExamples(encode_sources(examples, tokenizers, vocabularies), _concatenate_rows(target, ends))


def encode_sources(examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies) -> Ragged:
    """What the encoder reads of examples, as ids: the features, numbered after all source symbols, then the source."""
    read, _ = id_dtypes(vocabularies)
    source = encode_column([example.source for example in examples], tokenizers.source, vocabularies.source, read)
    features = encode_column(
        [example.features for example in examples], tokenizers.features, vocabularies.features, read
    )
    if not len(features.values):
        return source
    return _concatenate_rows(features._replace(values=features.values + read.type(len(vocabularies.source))), source)


def id_dtypes(vocabularies: Vocabularies) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The narrowest types that hold the ids to read and to write."""
    read, written = (np.min_scalar_type(count - 1) for count in count_ids(vocabularies, tagged=True))
    return read, written


def count_ids(vocabularies: Vocabularies, tagged: bool) -> tuple[int, int]:
    """How many ids there are to read, with those of features where sources are `tagged` with them, and to write."""
    return len(vocabularies.source) + (len(vocabularies.features) if tagged else 0), len(vocabularies.target)


def encode_column(texts: Sequence[str], tokenizer: Tokenizer, vocabulary: Vocabulary, kind: np.dtype[Any]) -> Ragged:
    """The ids of a column of texts. Characters are looked up in an array, other symbols in a dictionary."""
    if not any(texts):
        return Ragged(np.zeros(0, dtype=kind), np.zeros(len(texts) + 1, dtype=np.int64))
    if tokenizer.kind != "characters":
        lengths: list[int] = []
        values = vocabulary.encode_array(tokenizer.split_all(texts, lengths)).astype(kind)
        return Ragged(values, _offsets(np.array(lengths)))
    texts = [tokenizer.normalize(text) for text in texts]
    offsets = _offsets(np.fromiter(map(len, texts), np.int64, len(texts)))
    values, start = np.empty(offsets[-1], dtype=kind), 0
    for points in code_points(texts):
        values[start : start + len(points)] = vocabulary.encode_points(points)
        start += len(points)
    return Ragged(values, offsets)


def _offsets(lengths: Int[np.ndarray, " M"]) -> Int[np.ndarray, " M1"]:
    """Where sequences of these lengths begin when they lie end to end, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _concatenate_rows(first: Ragged, second: Ragged) -> Ragged:
    """Sequence i of the one followed by sequence i of the other."""
    lengths = np.stack([first.lengths, second.lengths], axis=1)
    in_first = np.repeat(np.tile([True, False], len(lengths)), lengths.ravel())
    values = np.empty(len(in_first), dtype=first.values.dtype)
    values[in_first] = first.values
    values[~in_first] = second.values
    return Ragged(values, first.offsets + second.offsets)


def collate(encoded: EncodedExamples, rows: Int[np.ndarray, " B"]) -> Batch:
    """The batch of the chosen examples."""
    return Batch(*encoded.source.pad(rows), *encoded.target.pad(rows))


def sample_batches(
    encoded: EncodedExamples, batch_size: int, batch_type: Literal["examples", "tokens"], seed: int, epoch: int
) -> list[Int[np.ndarray, " B"]]:
    """The rows of each batch of an epoch: every example once, lengths alike within a batch, order shuffled.

    The examples are shuffled, sorted by length within pools of `POOL_BATCHES` batches, cut, and the batches shuffled. Nothing
    but (seed, epoch) decides the order, so a resumed run needs to know only how many batches have passed.
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
            batches += [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]
        else:
            batches += _split_by_tokens(rows, source[rows].tolist(), target[rows].tolist(), batch_size)
    return [batches[i] for i in generator.permutation(len(batches)).tolist()]


def _split_by_tokens(
    rows: Int[np.ndarray, " M"], source: Sequence[int], target: Sequence[int], tokens: int
) -> list[Int[np.ndarray, " B"]]:
    """Cut so that a batch's padded positions stay within `tokens` (one example always fits).

    `source` is each row's source length, never falling, and `target` its target length.
    """
    batches, start, widest = [], 0, 0
    for at, (length, wider) in enumerate(zip(source, target, strict=True)):
        widest = max(widest, wider)
        if at > start and (length + widest) * (at + 1 - start) > tokens:
            batches.append(rows[start:at])
            start, widest = at, wider
    return [*batches, rows[start:]]
