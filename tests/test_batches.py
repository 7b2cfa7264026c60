"""Encoding and batching: each example is in one batch, and the lengths in a batch are similar."""

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
from pellucid.data.batches import MIN_POOL_BATCHES, Batch, bucket_by_length, collate
from pellucid.data.encoding import EncodedExamples, Ragged, encode_examples, to_ragged
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers, build_tokenizers
from pellucid.data.vocabulary import EOS, NUM_SPECIAL, PAD, UNK, Vocabularies, Vocabulary, learn_vocabularies

SEQUENCES = st.lists(st.lists(st.integers(1, 99), max_size=5), max_size=8)
PAIRS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=300)
UNITS = st.sampled_from(["examples", "tokens"])
Unit = Literal["examples", "tokens"]
TOKENIZERS = build_tokenizers(DataConfig())
UNNORMALIZED_TOKENIZERS = Tokenizers(*(Tokenizer("characters", "none"),) * 3)


def encode_source(example: Example, tokenizers: Tokenizers, vocabularies: Vocabularies) -> list[int]:
    """Return the encoder input of an example: features, numbered after all source symbols, then the source."""
    features, source = tokenizers.features.split(example.features), tokenizers.source.split(example.source)
    shifted = [len(vocabularies.source) + feature for feature in vocabularies.features.encode(features)]
    return shifted + vocabularies.source.encode(source)


def make_encoded(pairs: list[tuple[int, int]]) -> EncodedExamples:
    """Return encoded examples of these lengths; symbol i of the column is i + 1."""
    return EncodedExamples(*(to_ragged([range(1, length + 1) for length in side]) for side in zip(*pairs, strict=True)))


@given(SEQUENCES)
def test_ragged_sequences_are_concatenated(sequences: list[list[int]]) -> None:
    ragged = to_ragged(sequences)
    assert ragged.lengths.tolist() == [len(sequence) for sequence in sequences]
    assert ragged.num_sequences == len(sequences)
    assert [ragged.values[a:b].tolist() for a, b in pairwise(ragged.offsets)] == sequences
    assert [ragged.row(index) for index in range(len(sequences))] == sequences
    assert ragged.values.tolist() == [value for sequence in sequences for value in sequence]


@given(SEQUENCES, st.data())
def test_padding_equals_a_plain_loop(sequences: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(sequences) - 1), max_size=8)) if sequences else []
    selected = [sequences[row] for row in rows]
    width = max(map(len, selected), default=0)
    ids, lengths = to_ragged(sequences).pad(np.array(rows, dtype=np.int64))
    assert ids.shape == (len(rows), width)
    assert ids.tolist() == [sequence + [PAD] * (width - len(sequence)) for sequence in selected]
    assert lengths.tolist() == [len(sequence) for sequence in selected]
    assert ids.dtype == lengths.dtype == np.int64


def test_a_batch_of_empty_sequences_has_no_column() -> None:
    ids, lengths = to_ragged([[], []]).pad(np.array([1, 0]))
    assert ids.shape == (2, 0)
    assert lengths.tolist() == [0, 0]
    assert to_ragged([]).lengths.tolist() == []


def test_features_precede_the_source_and_their_ids_follow_it() -> None:
    known_vocabularies = make_vocabularies("abc", "xyz", features=["V", "PST"])
    offset = len(known_vocabularies.source)
    expected = [offset + NUM_SPECIAL + 1, offset + UNK, offset + NUM_SPECIAL, NUM_SPECIAL + 2, UNK, NUM_SPECIAL]
    assert encode_source(Example("c?a", "", "PST;NEW;V"), TOKENIZERS, known_vocabularies) == expected
    assert encode_source(Example("c?a", ""), TOKENIZERS, known_vocabularies) == expected[3:]


def test_targets_end_with_eos_and_unknown_symbols_are_unk() -> None:
    encoded = encode_examples(
        [Example("ab", "zx"), Example("c", "?"), Example("a", "")], TOKENIZERS, make_vocabularies("abc", "xyz")
    )
    batch = collate(encoded, np.array([1, 0, 2]))
    assert batch.source.tolist() == [[6, PAD], [4, 5], [4, PAD]]
    assert batch.source_lengths.tolist() == [1, 2, 1]
    assert batch.target.tolist() == [[UNK, EOS, PAD], [6, 4, EOS], [EOS, PAD, PAD]]
    assert batch.target_lengths.tolist() == [2, 3, 1]


@given(EXAMPLES, EXAMPLES, RANDOM_TOKENIZERS, st.integers(1, 3), st.integers(1, 9))
def test_encoding_a_column_equals_encoding_each_text(
    training_examples: list[Example],
    examples: list[Example],
    tokenizers: Tokenizers,
    min_count: int,
    texts_per_block: int,
) -> None:
    learned = learn_vocabularies(training_examples, tokenizers, min_count)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(vocabulary_module, "TEXTS_PER_BLOCK", texts_per_block)
        encoded = encode_examples(examples, tokenizers, learned)
    source = to_ragged(encode_source(example, tokenizers, learned) for example in examples)
    target = to_ragged([*learned.target.encode(tokenizers.target.split(example.target)), EOS] for example in examples)
    for column, expected in zip(encoded.columns().values(), (source, target), strict=True):
        for actual_values, expected_values in zip(column, expected, strict=True):
            assert actual_values.tolist() == expected_values.tolist()


@pytest.mark.parametrize(("symbols", "kind"), [(248, "uint8"), (253, "uint16"), (65528, "uint16"), (65533, "uint32")])
def test_ids_have_the_smallest_integer_type(symbols: int, kind: str) -> None:
    letters = tuple(map(chr, range(NUM_SPECIAL, NUM_SPECIAL + symbols)))
    large, small = Vocabulary(letters, (1,) * symbols), Vocabulary(("a",), (1,))
    examples = [Example(letters[-1], "a", "a"), Example(letters[0], letters[-1], "a")]
    for example_vocabularies, dtypes in (
        (Vocabularies(large, small, Vocabulary((), ()), 1, 1), (kind, "uint8")),
        (Vocabularies(small, large, Vocabulary((), ()), 1, 1), ("uint8", kind)),
    ):
        encoded = encode_examples(
            [example._replace(features="") for example in examples], UNNORMALIZED_TOKENIZERS, example_vocabularies
        )
        assert (encoded.source.values.dtype.name, encoded.target.values.dtype.name) == dtypes
        source = [example_vocabularies.source.encode([example.source])[0] for example in examples]
        target = [example_vocabularies.target.encode([example.target])[0] for example in examples]
        assert encoded.source.values.tolist() == source
        assert encoded.target.values.tolist() == [target[0], EOS, target[1], EOS]
    with_features = Vocabularies(small, small, large, 1, 1)
    encoded = encode_examples([Example("a", "a", letters[-1])], UNNORMALIZED_TOKENIZERS, with_features)
    assert encoded.source.values.tolist() == [len(small) + len(large) - 1, NUM_SPECIAL]


def test_all_tensors_of_a_batch_move_to_another_device() -> None:
    batch = collate(make_encoded([(2, 1), (1, 3)]), np.array([0, 1])).to(torch.device("meta"))
    assert isinstance(batch, Batch)
    assert {tensor.device.type for tensor in batch.tensors()} == {"meta"}


@given(PAIRS, st.integers(1, 40), UNITS, st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_every_example_is_in_exactly_one_batch_of_an_epoch(
    pairs: list[tuple[int, int]], size: int, unit: Unit, seed: int, epoch: int
) -> None:
    batches = bucket_by_length(make_encoded(pairs), size, unit, seed, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(pairs)))
    assert all(len(rows) for rows in batches)


@given(PAIRS, st.integers(1, 40))
def test_batches_of_examples_are_full_except_the_last_of_each_pool(pairs: list[tuple[int, int]], size: int) -> None:
    sizes = sorted(len(rows) for rows in bucket_by_length(make_encoded(pairs), size, "examples", 1, 0))
    full, rest = divmod(len(pairs), size)
    assert sizes == ([rest] if rest else []) + [size] * full


@settings(deadline=None)
@given(PAIRS, st.integers(1, 200))
def test_batches_of_tokens_stay_within_the_limit(pairs: list[tuple[int, int]], limit: int) -> None:
    encoded = make_encoded(pairs)
    for rows in bucket_by_length(encoded, limit, "tokens", 1, 0):
        batch = collate(encoded, rows)
        assert batch.source.numel() + batch.target.numel() <= limit or len(rows) == 1


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60), st.integers(60, 200))
def test_batches_of_tokens_are_as_large_as_possible(pairs: list[tuple[int, int]], limit: int) -> None:
    """There is one pool, sorted by length: each batch ends where the next example would exceed the limit."""
    expected: list[list[tuple[int, int]]] = [[]]
    for pair in sorted(pairs, key=lambda pair: (pair[0], -pair[1] if pair[0] % 2 else pair[1])):
        joined = [*expected[-1], pair]
        if sum(map(max, zip(*joined, strict=True))) * len(joined) > limit and expected[-1]:
            expected.append([pair])
        else:
            expected[-1] = joined
    actual = [
        sorted(pairs[row] for row in rows) for rows in bucket_by_length(make_encoded(pairs), limit, "tokens", 1, 0)
    ]
    assert sorted(actual) == sorted(map(sorted, expected))


@pytest.mark.parametrize("unit", ["examples", "tokens"])
def test_lengths_within_a_batch_are_similar(unit: Unit) -> None:
    lengths = np.random.default_rng(1).integers(1, 31, size=(MIN_POOL_BATCHES * 8, 2)).tolist()
    encoded = make_encoded([(source, target) for source, target in lengths])
    size = 8 if unit == "examples" else 8 * 40
    batches = bucket_by_length(encoded, size, unit, 1, 0)
    spans = sorted((encoded.source.lengths[rows].min(), encoded.source.lengths[rows].max()) for rows in batches)
    assert all(longest <= shortest for (_, longest), (shortest, _) in pairwise(spans))
    collated = [collate(encoded, rows) for rows in batches]
    assert sum(batch.source.numel() for batch in collated) <= 1.03 * encoded.source.lengths.sum()
    assert sum(batch.target.numel() for batch in collated) <= 1.25 * encoded.target.lengths.sum()


def test_less_than_a_twentieth_of_the_positions_is_padding() -> None:
    """20,000 pairs with the lengths of words and their pronunciations, in batches of 64."""
    generator = np.random.default_rng(1)
    source = np.clip(generator.normal(7.5, 2.0, 20_000).round(), 1, 20).astype(int)
    target = np.clip((source * generator.normal(0.85, 0.12, 20_000)).round(), 1, 20).astype(int) + 1
    encoded = make_encoded(list(zip(source.tolist(), target.tolist(), strict=True)))
    batches = bucket_by_length(encoded, 64, "examples", 1, 0)
    for lengths in (encoded.source.lengths, encoded.target.lengths):
        cells = sum(len(rows) * int(lengths[rows].max()) for rows in batches)
        assert cells - lengths.sum() < 0.05 * cells


@pytest.mark.parametrize("unit", ["examples", "tokens"])
def test_a_pool_is_a_quarter_of_many_batches_and_of_limited_size(unit: Unit) -> None:
    """The source lengths of the examples differ, so a batch spans fewer of them the larger its pool is."""
    for count, pool in ((400, 128), (2_000, 500), (8_000, 1_024)):
        encoded = make_encoded([(length, 1) for length in range(1, count * 2 + 1)])
        size = 2 if unit == "examples" else round(2 * (encoded.source.lengths + encoded.target.lengths).mean())
        batches = bucket_by_length(encoded, size, unit, 1, 0)
        span = np.mean([np.ptp(encoded.source.lengths[rows]) for rows in batches if len(rows) == 2])
        assert span == pytest.approx(count / pool, rel=0.25), (count, pool)


@pytest.mark.parametrize("unit", ["examples", "tokens"])
def test_batch_order_depends_only_on_seed_and_epoch(unit: Unit) -> None:
    lengths = np.random.default_rng(1).integers(1, 31, size=(600, 2)).tolist()
    encoded = make_encoded([(source, target) for source, target in lengths])
    size = 4 if unit == "examples" else 4 * 31  # several pools: within one, only equal lengths could be exchanged

    def batch_rows(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in bucket_by_length(encoded, size, unit, seed, epoch)]

    expected = batch_rows(1, 0)
    np.random.seed(3)
    torch.manual_seed(3)
    assert batch_rows(1, 0) == expected
    for other in (batch_rows(1, 1), batch_rows(2, 0), batch_rows(0, 1)):
        assert other != expected
        assert sorted(map(sorted, other)) != sorted(map(sorted, expected))


def test_short_and_long_batches_are_shuffled() -> None:
    encoded = make_encoded([(length, 1) for length in range(1, 201)])
    means = [encoded.source.lengths[rows].mean() for rows in bucket_by_length(encoded, 4, "examples", 1, 0)]
    assert means != sorted(means)
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.5


def test_ragged_values_keep_the_ids_exactly() -> None:
    assert to_ragged([[2**31 - 1], [0]]).pad(np.array([0]))[0].tolist() == [[2**31 - 1]]
    assert isinstance(to_ragged([[1]]), Ragged)
