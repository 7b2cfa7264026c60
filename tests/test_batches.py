"""Examples to ids to padded batches: each example once, similar lengths in a batch."""

from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import EXAMPLES, RANDOM_TOKENIZERS, make_vocabularies

from pellucid.config.settings import DataConfig
from pellucid.data import vocabulary as vocabulary_module
from pellucid.data.batches import (
    POOL_BATCHES,
    Batch,
    EncodedExamples,
    Ragged,
    collate,
    encode_examples,
    sample_batches,
    to_ragged,
)
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers, build_tokenizers
from pellucid.data.vocabulary import EOS, NUM_SPECIAL, PAD, UNK, Vocabularies, Vocabulary, learn_vocabularies

SEQUENCES = st.lists(st.lists(st.integers(1, 99), max_size=5), max_size=8)
PAIRS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=300)
UNITS = st.sampled_from(["examples", "tokens"])
Unit = Literal["examples", "tokens"]
CUT = build_tokenizers(DataConfig())
CUT_AS_IS = Tokenizers(*(Tokenizer("characters", "none"),) * 3)


def encode_source(example: Example, tokenizers: Tokenizers, vocabularies: Vocabularies) -> list[int]:
    """Return the encoder input of an example: features, numbered after all source symbols, then the source."""
    features, source = tokenizers.features.split(example.features), tokenizers.source.split(example.source)
    shifted = [len(vocabularies.source) + feature for feature in vocabularies.features.encode(features)]
    return shifted + vocabularies.source.encode(source)


def encoded_of(pairs: list[tuple[int, int]]) -> EncodedExamples:
    """Return encoded examples of these lengths; symbol i of the column is i + 1."""
    return EncodedExamples(*(to_ragged([range(1, length + 1) for length in side]) for side in zip(*pairs, strict=True)))


@given(SEQUENCES)
def test_ragged_sequences_are_concatenated(sequences: list[list[int]]) -> None:
    laid = to_ragged(sequences)
    assert laid.lengths.tolist() == [len(sequence) for sequence in sequences]
    assert laid.num_sequences == len(sequences)
    assert [laid.values[a:b].tolist() for a, b in pairwise(laid.offsets)] == sequences
    assert laid.values.tolist() == [value for sequence in sequences for value in sequence]


@given(SEQUENCES, st.data())
def test_padding_equals_a_loop(sequences: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(sequences) - 1), max_size=8)) if sequences else []
    chosen = [sequences[row] for row in rows]
    width = max(map(len, chosen), default=0)
    ids, lengths = to_ragged(sequences).pad(np.array(rows, dtype=np.int64))
    assert ids.shape == (len(rows), width)
    assert ids.tolist() == [sequence + [PAD] * (width - len(sequence)) for sequence in chosen]
    assert lengths.tolist() == [len(sequence) for sequence in chosen]
    assert ids.dtype == lengths.dtype == torch.int64


def test_a_batch_of_empty_sequences_has_no_column() -> None:
    ids, lengths = to_ragged([[], []]).pad(np.array([1, 0]))
    assert ids.shape == (2, 0)
    assert lengths.tolist() == [0, 0]
    assert to_ragged([]).lengths.tolist() == []


def test_features_precede_the_source_and_their_ids_follow_it() -> None:
    known = make_vocabularies("abc", "xyz", features=["V", "PST"])
    offset = len(known.source)
    expected = [offset + NUM_SPECIAL + 1, offset + UNK, offset + NUM_SPECIAL, NUM_SPECIAL + 2, UNK, NUM_SPECIAL]
    assert encode_source(Example("c?a", "", "PST;NEW;V"), CUT, known) == expected
    assert encode_source(Example("c?a", ""), CUT, known) == expected[3:]


def test_targets_end_with_eos_and_unknown_symbols_are_unk() -> None:
    encoded = encode_examples(
        [Example("ab", "zx"), Example("c", "?"), Example("a", "")], CUT, make_vocabularies("abc", "xyz")
    )
    batch = collate(encoded, np.array([1, 0, 2]))
    assert batch.source.tolist() == [[6, PAD], [4, 5], [4, PAD]]
    assert batch.source_lengths.tolist() == [1, 2, 1]
    assert batch.target.tolist() == [[UNK, EOS, PAD], [6, 4, EOS], [EOS, PAD, PAD]]
    assert batch.target_lengths.tolist() == [2, 3, 1]


@given(EXAMPLES, EXAMPLES, RANDOM_TOKENIZERS, st.integers(1, 3), st.integers(1, 9))
def test_encoding_a_column_equals_encoding_each_text(
    known: list[Example], examples: list[Example], cut: Tokenizers, min_count: int, texts: int
) -> None:
    learned = learn_vocabularies(known, cut, min_count)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(vocabulary_module, "TEXTS_PER_BLOCK", texts)
        encoded = encode_examples(examples, cut, learned)
    source = to_ragged(encode_source(example, cut, learned) for example in examples)
    target = to_ragged([*learned.target.encode(cut.target.split(example.target)), EOS] for example in examples)
    for column, expected in zip(encoded, (source, target), strict=True):
        for found, wanted in zip(column, expected, strict=True):
            assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize(("symbols", "kind"), [(248, "uint8"), (253, "uint16"), (65528, "uint16"), (65533, "uint32")])
def test_ids_have_the_narrowest_type(symbols: int, kind: str) -> None:
    letters = tuple(map(chr, range(NUM_SPECIAL, NUM_SPECIAL + symbols)))
    many, few = Vocabulary(letters, (1,) * symbols), Vocabulary(("a",), (1,))
    examples = [Example(letters[-1], "a", "a"), Example(letters[0], letters[-1], "a")]
    for known, sides in (
        (Vocabularies(many, few, Vocabulary((), ()), 1, 1), (kind, "uint8")),
        (Vocabularies(few, many, Vocabulary((), ()), 1, 1), ("uint8", kind)),
    ):
        encoded = encode_examples([example._replace(features="") for example in examples], CUT_AS_IS, known)
        assert (encoded.source.values.dtype.name, encoded.target.values.dtype.name) == sides
        source = [known.source.encode([example.source])[0] for example in examples]
        target = [known.target.encode([example.target])[0] for example in examples]
        assert encoded.source.values.tolist() == source
        assert encoded.target.values.tolist() == [target[0], EOS, target[1], EOS]
    features = Vocabularies(few, few, many, 1, 1)
    encoded = encode_examples([Example("a", "a", letters[-1])], CUT_AS_IS, features)
    assert encoded.source.values.tolist() == [len(few) + len(many) - 1, NUM_SPECIAL]


def test_all_tensors_of_a_batch_move_to_another_device() -> None:
    batch = collate(encoded_of([(2, 1), (1, 3)]), np.array([0, 1])).to(torch.device("meta"))
    assert isinstance(batch, Batch)
    assert {tensor.device.type for tensor in batch} == {"meta"}


@given(PAIRS, st.integers(1, 40), UNITS, st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_every_example_is_in_exactly_one_batch_of_an_epoch(
    pairs: list[tuple[int, int]], size: int, unit: Unit, seed: int, epoch: int
) -> None:
    batches = sample_batches(encoded_of(pairs), size, unit, seed, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(pairs)))
    assert all(len(rows) for rows in batches)


@given(PAIRS, st.integers(1, 40))
def test_batches_of_examples_are_full_except_the_last_of_each_pool(pairs: list[tuple[int, int]], size: int) -> None:
    sizes = sorted(len(rows) for rows in sample_batches(encoded_of(pairs), size, "examples", 1, 0))
    full, rest = divmod(len(pairs), size)
    assert sizes == ([rest] if rest else []) + [size] * full


@settings(deadline=None)
@given(PAIRS, st.integers(1, 200))
def test_batches_of_tokens_stay_within_the_limit(pairs: list[tuple[int, int]], limit: int) -> None:
    encoded = encoded_of(pairs)
    for rows in sample_batches(encoded, limit, "tokens", 1, 0):
        batch = collate(encoded, rows)
        assert batch.source.numel() + batch.target.numel() <= limit or len(rows) == 1


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60), st.integers(60, 200))
def test_batches_of_tokens_are_as_large_as_possible(pairs: list[tuple[int, int]], limit: int) -> None:
    """There is one pool, sorted by length: each batch ends where the next example would exceed the limit."""
    expected: list[list[tuple[int, int]]] = [[]]
    for pair in sorted(pairs):
        joined = [*expected[-1], pair]
        if sum(map(max, zip(*joined, strict=True))) * len(joined) > limit and expected[-1]:
            expected.append([pair])
        else:
            expected[-1] = joined
    found = [sorted(pairs[row] for row in rows) for rows in sample_batches(encoded_of(pairs), limit, "tokens", 1, 0)]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("unit", ["examples", "tokens"])
def test_lengths_within_a_batch_are_similar(unit: Unit) -> None:
    lengths = np.random.default_rng(1).integers(1, 31, size=(POOL_BATCHES * 8, 2)).tolist()
    encoded = encoded_of([(source, target) for source, target in lengths])
    size = 8 if unit == "examples" else 8 * 40
    batches = sample_batches(encoded, size, unit, 1, 0)
    spans = sorted((encoded.source.lengths[rows].min(), encoded.source.lengths[rows].max()) for rows in batches)
    assert all(longest <= shortest for (_, longest), (shortest, _) in pairwise(spans))
    cells = sum(collate(encoded, rows).source.numel() for rows in batches)
    assert cells <= 1.1 * encoded.source.lengths.sum()


@pytest.mark.parametrize("unit", ["examples", "tokens"])
def test_the_order_is_a_function_of_seed_and_epoch(unit: Unit) -> None:
    lengths = np.random.default_rng(1).integers(1, 31, size=(600, 2)).tolist()
    encoded = encoded_of([(source, target) for source, target in lengths])
    size = 4 if unit == "examples" else 4 * 31  # several pools: within one, only equal lengths could be exchanged

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in sample_batches(encoded, size, unit, seed, epoch)]

    one = plan(1, 0)
    np.random.seed(3)
    torch.manual_seed(3)
    assert plan(1, 0) == one
    for other in (plan(1, 1), plan(2, 0), plan(0, 1)):
        assert other != one
        assert sorted(map(sorted, other)) != sorted(map(sorted, one))


def test_short_and_long_batches_are_shuffled() -> None:
    encoded = encoded_of([(length, 1) for length in range(1, 201)])
    means = [encoded.source.lengths[rows].mean() for rows in sample_batches(encoded, 4, "examples", 1, 0)]
    assert means != sorted(means)
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.5


def test_ragged_values_keep_the_ids_exactly() -> None:
    assert to_ragged([[2**31 - 1], [0]]).pad(np.array([0]))[0].tolist() == [[2**31 - 1]]
    assert isinstance(to_ragged([[1]]), Ragged)
