"""pair_ngram/alignment.py: lattices, expected counts and best paths, compared with all alignments one by one."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.pair_ngram.alignment import GraphoneDistribution, align_pairs, alignable_rows, estimate_graphones
from pellucid.pair_ngram.types import GraphoneKeys, SymbolPairs

Pair = tuple[tuple[int, ...], tuple[int, ...]]
NUMBERING = GraphoneKeys(source_size=3, target_size=2, target_chunk=2)
SOURCES = st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple)
TARGETS = st.lists(st.integers(0, 1), max_size=5).map(tuple)


def to_pairs(examples: Sequence[Pair]) -> SymbolPairs:
    """Return the examples in arrays."""
    columns = list[np.ndarray]()
    for side in (0, 1):
        sequences = [example[side] for example in examples]
        columns.append(np.array([symbol for sequence in sequences for symbol in sequence], np.int64))
        columns.append(np.concatenate([[0], np.cumsum([len(sequence) for sequence in sequences])]).astype(np.int64))
    return SymbolPairs(*columns)


def list_alignments(source: tuple[int, ...], target: tuple[int, ...], width: int) -> Iterator[list[Pair]]:
    """Yield every alignment: one source symbol with up to `width` target symbols, or two source symbols with one."""
    if not source:
        if not target:
            yield []
        return
    sizes = [(1, count) for count in range(width + 1)] + [(2, 1)]
    for height, count in sizes:
        if height <= len(source) and count <= len(target):
            for rest in list_alignments(source[height:], target[count:], width):
                yield [(source[:height], target[:count]), *rest]


def key_of(graphone: Pair, numbering: GraphoneKeys) -> int:
    """Return the key of a graphone by its definition."""
    keys = list[int]()
    for symbols, size in zip(graphone, (numbering.source_size, numbering.target_size), strict=True):
        keys.append(sum((symbol + 1) * int((size + 1) ** place) for place, symbol in enumerate(reversed(symbols))))
    return keys[0] * int((numbering.target_size + 1) ** numbering.target_chunk) + keys[1]


def estimate_by_enumeration(examples: list[Pair], iterations: int) -> dict[int, float]:
    """Estimate the probabilities of graphones by expectation-maximization over lists of all alignments."""
    lists = [
        [
            [key_of(graphone, NUMBERING) for graphone in path]
            for path in list_alignments(example[0], example[1], NUMBERING.target_chunk)
        ]
        for example in examples
    ]
    names = {key for paths in lists for path in paths for key in path}
    probabilities = dict.fromkeys(names, 1 / max(len(names), 1))
    for _ in range(iterations):
        counts = defaultdict[int, float](float)
        for paths in lists:
            weights = [math.prod(probabilities[key] for key in path) for path in paths]
            for path, weight in zip(paths, weights, strict=True):
                for key in path:
                    counts[key] += weight / sum(weights)
        probabilities = {key: count / sum(counts.values()) for key, count in counts.items()}
    return probabilities


@given(st.lists(st.tuples(SOURCES, TARGETS), min_size=1, max_size=4))
def test_probabilities_equal_those_of_all_alignments(examples: list[Pair]) -> None:
    pairs = to_pairs(examples)
    rows = alignable_rows(pairs, NUMBERING.target_chunk)
    assert rows.tolist() == [row for row, (source, target) in enumerate(examples) if len(target) <= 2 * len(source)]
    if not len(rows):
        return
    found = estimate_graphones(pairs, NUMBERING, iterations=3)
    expected = estimate_by_enumeration([examples[row] for row in rows], iterations=3)
    expected = {key: value for key, value in expected.items() if value > 1e-12}
    assert found.keys.tolist() == sorted(expected)
    np.testing.assert_allclose(
        np.exp(found.log_probabilities), [expected[key] for key in sorted(expected)], rtol=1e-9, atol=1e-12
    )


@given(st.lists(st.tuples(SOURCES, TARGETS), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_best_path_has_the_greatest_score_of_all_alignments(examples: list[Pair], seed: int) -> None:
    pairs, random = to_pairs(examples), np.random.default_rng(seed)
    chunks: list[tuple[int, ...]] = [
        (),
        *((symbol,) for symbol in range(2)),
        *((first, second) for first in range(2) for second in range(2)),
    ]
    graphones: list[Pair] = [((symbol,), chunk) for symbol in range(3) for chunk in chunks]
    graphones += [((first, second), (symbol,)) for first in range(3) for second in range(3) for symbol in range(2)]
    keys = np.array(sorted(key_of(graphone, NUMBERING) for graphone in graphones))
    distribution = GraphoneDistribution(keys, np.log(random.dirichlet(np.ones(len(keys)))))
    scores = dict(zip(keys.tolist(), distribution.log_probabilities.tolist(), strict=True))

    def score(path: Sequence[Pair]) -> float:
        """Return the score by its definition."""
        return float(sum(scores[key_of(pair, NUMBERING)] * (len(pair[0]) + len(pair[1])) / 2 for pair in path))

    alignments = align_pairs(pairs, NUMBERING, distribution)
    rows = alignable_rows(pairs, NUMBERING.target_chunk)
    assert len(alignments.offsets) == len(rows) + 1
    for index, row in enumerate(rows):
        path = alignments.graphones[alignments.offsets[index] : alignments.offsets[index + 1]].tolist()
        best = max(list_alignments(examples[row][0], examples[row][1], NUMBERING.target_chunk), key=score)
        by_key = {key_of(graphone, NUMBERING): graphone for graphone in graphones}
        found = [by_key[key] for key in path]
        assert score(found) == pytest.approx(score(best))
        assert tuple(symbol for source, _ in found for symbol in source) == examples[row][0]
        assert tuple(symbol for _, target in found for symbol in target) == examples[row][1]


def test_probabilities_of_long_examples_do_not_underflow() -> None:
    source = tuple(np.random.default_rng(1).integers(0, 3, 2000).tolist())
    pairs = to_pairs([(source, tuple(symbol % 2 for symbol in source))])
    found = estimate_graphones(pairs, NUMBERING, iterations=3)
    assert np.exp(found.log_probabilities).sum() == pytest.approx(1)
    path = align_pairs(pairs, NUMBERING, found)
    assert 1000 <= len(path.graphones) <= 2000


def test_a_sample_stands_for_a_large_set(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [((symbol, (symbol + 1) % 3), (symbol % 2, symbol % 2)) for symbol in range(3)] * 200
    whole = estimate_graphones(to_pairs(examples), NUMBERING)
    monkeypatch.setattr("pellucid.pair_ngram.alignment.MAX_EDGES", 2000)
    sample = estimate_graphones(to_pairs(examples), NUMBERING)
    assert set(sample.keys.tolist()) <= set(whole.keys.tolist())
    best = whole.keys[np.argmax(whole.log_probabilities)]
    assert best in sample.keys
    assert len(align_pairs(to_pairs(examples), NUMBERING, sample).offsets) == 601


def test_keys_that_exceed_63_bits_do_not_fit() -> None:
    assert GraphoneKeys(30_000, 30_000, 2).fits
    assert not GraphoneKeys(30_000, 30_000, 3).fits
