"""Characters of words: vocabulary, ids, and the distinct words of a batch, compared with loops over texts."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.config.settings import DataConfig
from pellucid.data.batches import collate
from pellucid.data.characters import (
    MAX_WORD_CHARACTERS,
    WordCharacters,
    collate_characters,
    encode_characters,
    learn_characters,
)
from pellucid.data.corpus import EncodedCorpus, ReadingReport, map_corpus, write_corpus
from pellucid.data.encoding import encode_examples
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import BOS, EOS, UNK, Vocabulary, learn_vocabularies, load_vocabularies
from pellucid.errors import RunError

TOKENIZERS = build_tokenizers(DataConfig(source_symbols="words", features_column="3"))
WORDS = st.text(st.sampled_from("abcdé"), min_size=1, max_size=MAX_WORD_CHARACTERS + 3)
SOURCES = st.lists(st.builds(" ".join, st.lists(WORDS, min_size=1, max_size=6)), min_size=1, max_size=6)


def spell(word: str, vocabulary: Vocabulary) -> list[int]:
    """Return the ids of a word, by its definition."""
    if len(word) > MAX_WORD_CHARACTERS:
        word = word[: MAX_WORD_CHARACTERS // 2] + word[-(MAX_WORD_CHARACTERS // 2) :]
    return [BOS, *(vocabulary.ids.get(character, UNK) for character in word), EOS]


def words_of(characters: WordCharacters, row: int, size: int) -> list[list[int]]:
    """Return the ids of the word at each of the first positions of a source."""
    words = characters.word_rows[row, :size]
    return [characters.ids[word, : characters.lengths[word]].tolist() for word in words]


def test_characters_of_one_word_only_are_left_out() -> None:
    examples = [Example("ab abb", "x"), Example("ab cc", "x"), Example("cd d", "x")]
    vocabulary = learn_characters(examples, TOKENIZERS.source)
    assert (vocabulary.symbols, vocabulary.counts) == (("a", "b", "c", "d"), (2, 2, 2, 2))
    assert learn_characters(examples[1:2], TOKENIZERS.source).symbols == ()


def test_characters_that_are_not_encoded_are_left_out() -> None:
    """The row of a character in the middle of long words only would never be trained."""
    half = MAX_WORD_CHARACTERS // 2
    examples = [Example(letter * half + "é" + letter * half, "x") for letter in "ab"] + [Example("ab ba", "y")]
    vocabulary = learn_characters(examples, TOKENIZERS.source)
    encoded = encode_characters(examples, TOKENIZERS, vocabulary)
    assert vocabulary.symbols == ("a", "b") and set(vocabulary.ids.values()) <= set(encoded.values.tolist())


@given(SOURCES, st.lists(st.sampled_from(["", "V", "V;PST"]), min_size=6, max_size=6))
def test_batches_hold_the_characters_of_every_word(sources: list[str], features: list[str]) -> None:
    examples = [Example(*pair) for pair in zip(sources, "x" * len(sources), features, strict=False)]
    vocabulary = Vocabulary(("a", "c", "é"), (1, 1, 1))
    encoded = encode_characters(examples, TOKENIZERS, vocabulary)
    rows = np.array([*range(len(examples)), 0])
    batch = collate_characters(encoded, rows)
    source, lengths = encode_examples(examples, TOKENIZERS, learn_vocabularies(examples, TOKENIZERS, 1)).source.pad(
        rows
    )
    assert batch.word_rows.shape == source.shape
    for position, row in enumerate(rows.tolist()):
        num_features = len(TOKENIZERS.features.split(features[row]))
        expected = [[BOS, EOS]] * num_features + [spell(word, vocabulary) for word in sources[row].split()]
        assert words_of(batch, position, int(lengths[position])) == expected
    assert (
        len({tuple(ids) for ids in batch.ids.tolist()}) == len(batch.ids) <= sum(map(len, map(str.split, sources))) + 1
    )
    taken = batch.index_select([len(examples)])
    assert words_of(taken, 0, int(lengths[0])) == words_of(batch, 0, int(lengths[0]))


def test_ids_have_the_narrowest_type() -> None:
    many = Vocabulary(tuple(map(chr, range(100, 400))), (1,) * 300)
    for vocabulary, dtype in ((Vocabulary(("a",), (1,)), "uint8"), (many, "uint16")):
        encoded = encode_characters([Example("aż b", "x"), Example("ż", "x")], TOKENIZERS, vocabulary)
        assert encoded.values.dtype.name == dtype
        assert words_of(collate_characters(encoded, np.array([1])), 0, 1) == [spell("ż", vocabulary)]


def test_characters_are_a_column_of_the_corpus(tmp_path: Path) -> None:
    examples = [Example("ab abc", "x"), Example("abc", "y")]
    vocabularies = learn_vocabularies(examples, TOKENIZERS, 1)
    characters = learn_characters(examples, TOKENIZERS.source)
    vocabularies = msgspec.structs.replace(vocabularies, characters=characters)
    encoded = encode_examples(examples, TOKENIZERS, vocabularies)
    encoded = encoded._replace(characters=encode_characters(examples, TOKENIZERS, characters))
    corpus = EncodedCorpus("key", ReadingReport((), 0, 0), vocabularies, encoded)
    write_corpus(tmp_path / "corpus.arrow", corpus)
    mapped = map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)
    assert mapped.vocabularies == vocabularies and mapped.encoded.characters is not None
    one, other = (collate(each, np.array([1, 0])).characters for each in (encoded, mapped.encoded))
    assert one is not None and other is not None
    assert all(left.equal(right) for left, right in zip(one, other, strict=True))


def test_saved_characters_are_single_characters(tmp_path: Path) -> None:
    examples = [Example("ab", "x")]
    vocabularies = learn_vocabularies(examples, TOKENIZERS, 1)
    vocabularies = msgspec.structs.replace(vocabularies, characters=Vocabulary(("ab",), (1,)))
    vocabularies.save(tmp_path / "vocabulary.json")
    with pytest.raises(RunError, match=r"vocabulary\.json: characters\.symbols: 'ab' is not one character"):
        load_vocabularies(tmp_path / "vocabulary.json", DataConfig(source_symbols="words"))
