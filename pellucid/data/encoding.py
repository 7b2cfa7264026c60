"""Encoding of examples as ids: sequences of unequal length in one array.

B counts examples, M sequences, N all symbols of a column, L positions of padded sequences.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers
from pellucid.data.vocabulary import EOS, PAD, UNK, Vocabularies, Vocabulary, code_points
from pellucid.shapes import Bool, Int, Integer


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

    def take(self, rows: Int[np.ndarray, " B"]) -> "Ragged":
        """Return the chosen sequences, in the order of their indices.

        Args:
            rows: Indices of the sequences, shape (B).
        """
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        offsets = _offsets(lengths)
        places = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(self.values[places], offsets)

    def row(self, index: int) -> list[int]:
        """Return the ids of one sequence.

        Args:
            index: Index of the sequence.
        """
        ids: list[int] = self.values[self.offsets[index] : self.offsets[index + 1]].tolist()
        return ids

    def pad(self, rows: Int[np.ndarray, " B"]) -> tuple[Int[np.ndarray, "B L"], Int[np.ndarray, " B"]]:
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
        return ids, lengths


class EncodedExamples(NamedTuple):
    """Source and target ids of examples, one sequence of each per example."""

    source: Ragged
    target: Ragged
    characters: Ragged | None = None
    """Characters of the words of each source (data/characters.py); None for an encoder that reads none."""

    def columns(self) -> dict[str, Ragged]:
        """Return the columns that the examples have, by name."""
        return {name: column for name, column in self._asdict().items() if column is not None}


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


def encode_classes_and_tags(
    examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies
) -> EncodedExamples:
    """Encode examples whose targets are a class and tags, as `encode_labels` does.

    A class that is only a tag in training is PAD, too, and so is a tag that is only a class.

    Args:
        examples: The examples.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.

    Returns:
        Source and target ids of the examples; the first target id of each is its class.
    """
    encoded = encode_labels(examples, tokenizers, vocabularies)
    values = encoded.target.values
    is_first = np.zeros(len(encoded.target.values), dtype=bool)
    is_first[encoded.target.offsets[:-1][encoded.target.lengths > 0]] = True
    is_class, is_tag = label_masks(vocabularies)
    values[~np.where(is_first, is_class[values], is_tag[values])] = PAD
    return encoded


def label_masks(vocabularies: Vocabularies) -> tuple[Bool[np.ndarray, " V"], Bool[np.ndarray, " V"]]:
    """Return which target ids are classes, and which are tags.

    Args:
        vocabularies: The vocabularies of a run whose targets are a class and tags.
    """
    masks = np.zeros((2, len(vocabularies.target)), dtype=bool)
    for mask, labels in zip(masks, (vocabularies.classes, vocabularies.tags), strict=True):
        mask[vocabularies.target.encode(labels)] = True
    return masks[0], masks[1]


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
    values = np.empty(offsets[-1], dtype=dtype)
    start = 0
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
