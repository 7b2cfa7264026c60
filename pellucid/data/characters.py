"""Characters of source words: their vocabulary, their ids, and the distinct words of a batch.

B counts examples, N a selection of them, S source positions, W distinct words of a batch, C ids of a word: its
characters between BOS and EOS.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.data.encoding import Ragged
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers
from pellucid.data.vocabulary import BOS, EOS, PAD, Vocabulary, build_vocabulary
from pellucid.shapes import Int

MAX_WORD_CHARACTERS = 40
"""Maximum number of characters that are read of a word; of a longer word the first and the last half of this number."""
MIN_WORDS = 2
"""Minimum number of training words with a character. A character of one word only is encoded as UNK, so that the vector
of UNK is trained."""


class WordCharacters(NamedTuple):
    """Characters of the distinct words of a batch, and the word at each source position; arrays or tensors."""

    ids: Int[Any, "W C"]
    """Ids of the characters of each word, between BOS and EOS; PAD after them."""
    lengths: Int[Any, " W"]
    """Number of ids of each word, BOS and EOS included, at least 2."""
    word_rows: Int[Any, "B S"]
    """Row of the word at each source position; features are a word without characters. Not read beyond a source."""

    def index_select(self, rows: Sequence[int] | Int[Any, " N"]) -> "WordCharacters":
        """Return the words of some sources; all distinct words of the batch are kept.

        Args:
            rows: Row of each source, as a list, an array or a tensor; a source may be repeated.
        """
        return self._replace(word_rows=self.word_rows[rows])


def learn_characters(examples: Sequence[Example], tokenizer: Tokenizer) -> Vocabulary:
    """Return the characters of the words of training sources, with the number of distinct words that have each.

    A character that only one word has is left out, so that the unknown character is trained. Characters in the middle
    of a long word, which are not encoded, do not count.

    Args:
        examples: The training examples.
        tokenizer: The tokenizer of sources.
    """
    words = {_truncate_word(word) for example in examples for word in tokenizer.split(example.source)}
    return build_vocabulary(("".join(dict.fromkeys(word)) for word in words), MIN_WORDS)


def encode_characters(examples: Sequence[Example], tokenizers: Tokenizers, characters: Vocabulary) -> Ragged:
    """Encode the characters of all words of each source, one word after the other.

    Args:
        examples: The examples.
        tokenizers: The tokenizers of the run.
        characters: The vocabulary of characters.

    Returns:
        One sequence for each example: BOS, the characters and EOS of each feature, which has no characters, and of each
        word, in the narrowest unsigned integer type that holds every id.
    """
    spellings = dict[str, bytes]()
    dtype = np.min_scalar_type(len(characters) - 1)
    no_word = np.array([BOS, EOS], dtype).tobytes()
    parts = list[bytes]()
    sizes = np.zeros(len(examples) + 1, np.int64)
    for row, example in enumerate(examples, start=1):
        features = tokenizers.features.split(example.features) if example.features else []
        spelled = [no_word] * len(features)
        for word in tokenizers.source.split(example.source):
            spelling = spellings.get(word)
            if spelling is None:
                ids = [BOS, *characters.encode(_truncate_word(word)), EOS]
                spelling = spellings[word] = np.array(ids, dtype).tobytes()
            spelled.append(spelling)
        parts += spelled
        sizes[row] = sum(map(len, spelled)) // dtype.itemsize
    return Ragged(np.frombuffer(b"".join(parts), dtype), np.cumsum(sizes))


def _truncate_word(word: str) -> str:
    """Return the first and the last characters of a word, at most `MAX_WORD_CHARACTERS`, which are read."""
    half = MAX_WORD_CHARACTERS // 2
    return word if len(word) <= MAX_WORD_CHARACTERS else word[:half] + word[-half:]


def collate_characters(characters: Ragged, rows: Int[np.ndarray, " B"]) -> WordCharacters:
    """Return the distinct words of some sources, and the word at each of their positions.

    Args:
        characters: Characters of all sources (`encode_characters`), of which none is empty.
        rows: Indices of the chosen sources, shape (B), from 0.
    """
    padded, sizes = characters.pad(rows)
    ids = padded[np.arange(padded.shape[1]) < sizes[:, None]]
    begins = np.flatnonzero(ids == BOS)
    lengths = np.flatnonzero(ids == EOS) - begins + 1
    columns = np.arange(int(lengths.max(initial=0)))
    occurrences = ids.take(begins[:, None] + columns, mode="clip").astype(characters.values.dtype)
    occurrences[columns >= lengths[:, None]] = PAD
    # Rows are compared as bytes, which is faster than `np.unique(axis=0)`.
    row_type = np.dtype((np.void, occurrences.itemsize * len(columns)))
    _, first, index = np.unique(occurrences.view(row_type).ravel(), return_index=True, return_inverse=True)
    num_words = (padded == BOS).sum(axis=1)
    words = np.zeros((len(rows), int(num_words.max(initial=0))), np.int64)
    words[np.arange(words.shape[1]) < num_words[:, None]] = index.ravel()
    return WordCharacters(occurrences[first].astype(np.int64), lengths[first], words)
