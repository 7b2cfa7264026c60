"""alignment/lattice.py: lattices, expected counts and best paths, compared with all alignments one by one."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.alignment import lattice, types
from pellucid.alignment.lattice import (
    GraphoneDistribution,
    align_pairs,
    alignable_rows,
    estimate_graphones,
    list_edges,
)
from pellucid.alignment.pair_aligner import align_symbols
from pellucid.alignment.types import ChunkLimits, GraphoneKeys, SymbolPairs, no_alignment_reason
from pellucid.pair_ngram.types import chunk_limits

Pair = tuple[tuple[int, ...], tuple[int, ...]]
NUMBERING = GraphoneKeys(source_size=3, target_size=2, source_chunk=3, target_chunk=3)
LIMITS = st.builds(ChunkLimits, st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans(), st.booleans())
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


def list_alignments(source: tuple[int, ...], target: tuple[int, ...], limits: ChunkLimits) -> Iterator[list[Pair]]:
    """Yield every alignment whose graphones have sizes within the limits."""
    if not source and not target:
        yield []
    sizes = [(1, count) for count in range(1, limits.max_target + 1)]
    sizes += [(count, 1) for count in range(2, limits.max_source + 1)]
    if limits.many_to_many:
        sizes += [(h, w) for h in range(2, limits.max_source + 1) for w in range(2, limits.max_target + 1)]
    sizes += [(0, 1)] * limits.insertions + [(1, 0)] * limits.deletions
    for height, count in sizes:
        if height <= len(source) and count <= len(target):
            for rest in list_alignments(source[height:], target[count:], limits):
                yield [(source[:height], target[:count]), *rest]


def key_of(graphone: Pair, numbering: GraphoneKeys) -> int:
    """Return the key of a graphone by its definition."""
    keys = list[int]()
    for symbols, size in zip(graphone, (numbering.source_size, numbering.target_size), strict=True):
        keys.append(sum((symbol + 1) * int((size + 1) ** place) for place, symbol in enumerate(reversed(symbols))))
    return keys[0] * int((numbering.target_size + 1) ** numbering.target_chunk) + keys[1]


def estimate_by_enumeration(examples: list[Pair], limits: ChunkLimits, iterations: int) -> dict[int, float]:
    """Estimate the probabilities of graphones by expectation-maximization over lists of all alignments."""
    lists = [
        [[key_of(graphone, NUMBERING) for graphone in path] for path in list_alignments(*example, limits)]
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


@given(st.integers(0, 4), st.integers(0, 5), LIMITS)
def test_edges_are_those_of_all_alignments(num_source: int, num_target: int, limits: ChunkLimits) -> None:
    source, target = tuple(range(num_source)), tuple(range(num_target))
    paths, expected = list(list_alignments(source, target, limits)), set[tuple[int, int, int, int]]()
    for path in paths:
        row = column = 0
        for chunk in path:
            height, width = map(len, chunk)
            expected.add((row, column, height, width))
            row, column = row + height, column + width
    edges = list_edges(num_source, num_target, limits)
    assert sorted(expected) == [tuple(map(int, edge)) for edge in zip(*edges, strict=True)]
    assert limits.allow(num_source, num_target) is bool(paths)


@given(st.lists(st.tuples(SOURCES, TARGETS), min_size=1, max_size=4), LIMITS)
def test_probabilities_equal_those_of_all_alignments(examples: list[Pair], limits: ChunkLimits) -> None:
    pairs = to_pairs(examples)
    rows = alignable_rows(pairs, limits)
    assert rows.tolist() == [row for row, pair in enumerate(examples) if limits.allow(*map(len, pair))]
    if not len(rows):
        return
    found = estimate_graphones(pairs, NUMBERING, limits, iterations=3)
    expected = estimate_by_enumeration([examples[row] for row in rows], limits, iterations=3)
    expected = {key: value for key, value in expected.items() if value > 1e-12}
    assert found.keys.tolist() == sorted(expected)
    np.testing.assert_allclose(
        np.exp(found.log_probabilities), [expected[key] for key in sorted(expected)], rtol=1e-9, atol=1e-12
    )


@given(st.lists(st.tuples(SOURCES, TARGETS), min_size=1, max_size=4), LIMITS, st.booleans(), st.integers(0, 2**32 - 1))
def test_best_path_has_the_greatest_score_of_all_alignments(
    examples: list[Pair], limits: ChunkLimits, by_longer_side: bool, seed: int
) -> None:
    pairs, random = to_pairs(examples), np.random.default_rng(seed)
    lists = [list(list_alignments(*example, limits)) for example in examples]
    graphones = sorted({graphone for paths in lists for path in paths for graphone in path} | {((0,), (0,))})
    by_key = {key_of(graphone, NUMBERING): graphone for graphone in graphones}
    keys = np.array(sorted(by_key))
    distribution = GraphoneDistribution(keys, np.log(random.dirichlet(np.ones(len(keys)))))
    scores = dict(zip(keys.tolist(), distribution.log_probabilities.tolist(), strict=True))

    def score(path: Sequence[Pair]) -> float:
        """Return the score by its definition."""
        sizes = [list(map(len, pair)) for pair in path]
        weights = [max(size) if by_longer_side else sum(size) / 2 for size in sizes]
        return float(sum(scores[key_of(pair, NUMBERING)] * weight for pair, weight in zip(path, weights, strict=True)))

    alignments = align_pairs(pairs, NUMBERING, limits, distribution, by_longer_side)
    rows = alignable_rows(pairs, limits)
    assert len(alignments.offsets) == len(rows) + 1
    for index, row in enumerate(rows):
        path = slice(alignments.offsets[index], alignments.offsets[index + 1])
        found = [by_key[key] for key in alignments.graphones[path].tolist()]
        assert score(found) == pytest.approx(score(max(lists[row], key=score)))
        assert tuple(symbol for source, _ in found for symbol in source) == examples[row][0]
        assert tuple(symbol for _, target in found for symbol in target) == examples[row][1]
        assert alignments.source_sizes[path].tolist() == [len(source) for source, _ in found]
        assert alignments.target_sizes[path].tolist() == [len(target) for _, target in found]
        total = sum(scores[key] for key in alignments.graphones[path].tolist())
        assert alignments.log_probabilities[index] == pytest.approx(total)


@pytest.mark.parametrize("limits", [chunk_limits(2), ChunkLimits(), ChunkLimits(3, 3, False, False, True)])
def test_probabilities_of_long_examples_do_not_underflow(limits: ChunkLimits) -> None:
    source = tuple(np.random.default_rng(1).integers(0, 3, 1000).tolist())
    pairs = to_pairs([(source, tuple(symbol % 2 for symbol in source))])
    found = estimate_graphones(pairs, NUMBERING, limits, iterations=3)
    assert np.exp(found.log_probabilities).sum() == pytest.approx(1)
    path = align_pairs(pairs, NUMBERING, limits, found)
    assert path.source_sizes.sum() == path.target_sizes.sum() == 1000


def test_rows_without_paths_do_not_overflow() -> None:
    """Long chunks become certain, so that no path of positive probability passes through most rows."""
    words = ((0, 0, 1, 0, 2, 2), (1, 1, 2, 2, 0, 1))
    random, examples = np.random.default_rng(1), list[Pair]()
    for _ in range(200):
        digits = random.integers(0, 2, random.integers(1, 9)).tolist()
        examples.append((tuple(symbol for digit in digits for symbol in words[digit]), tuple(digits)))
    numbering, limits = GraphoneKeys(3, 2, 6, 1), ChunkLimits(6, 1, insertions=False)
    found = estimate_graphones(to_pairs(examples), numbering, limits, iterations=20)
    assert np.exp(found.log_probabilities).sum() == pytest.approx(1)
    assert set(align_pairs(to_pairs(examples), numbering, limits, found).source_sizes.tolist()) == {6}


def test_a_sample_stands_for_a_large_set(monkeypatch: pytest.MonkeyPatch) -> None:
    examples, limits = (
        [((symbol, (symbol + 1) % 3), (symbol % 2, symbol % 2)) for symbol in range(3)] * 200,
        chunk_limits(2),
    )
    whole = estimate_graphones(to_pairs(examples), NUMBERING, limits)
    monkeypatch.setattr("pellucid.alignment.lattice.MAX_EDGES", 2000)
    sample = estimate_graphones(to_pairs(examples), NUMBERING, limits)
    assert set(sample.keys.tolist()) <= set(whole.keys.tolist())
    best = whole.keys[np.argmax(whole.log_probabilities)]
    assert best in sample.keys
    assert len(align_pairs(to_pairs(examples), NUMBERING, limits, sample).offsets) == 601


def test_keys_that_exceed_63_bits_do_not_fit() -> None:
    assert GraphoneKeys(30_000, 30_000, 2, 2).fits_int64
    assert not GraphoneKeys(30_000, 30_000, 2, 3).fits_int64


@given(LIMITS, st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6), st.integers(1, 200))
def test_aligned_pairs_are_those_without_a_reason(
    limits: ChunkLimits, lengths: list[tuple[int, int]], max_edges: int
) -> None:
    pairs = to_pairs([((0,) * num_source, (0,) * num_target) for num_source, num_target in lengths])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(types, "MAX_PAIR_EDGES", max_edges)
        rows = alignable_rows(pairs, limits).tolist()
        assert rows == [row for row, pair in enumerate(lengths) if not no_alignment_reason(*pair, limits)]
        examples = [(("a",) * num_source, ("b",) * num_target) for num_source, num_target in lengths]
        alignments = align_symbols(examples, limits, 1)
    assert rows == [row for row, alignment in enumerate(alignments) if alignment is not None]
    for (num_source, num_target), alignment in zip(lengths, alignments, strict=True):
        # Regression test: with another rule in the lattice, alignments moved to other pairs.
        assert alignment is None or (len(alignment.source), len(alignment.target)) == (num_source, num_target)
        assert alignment is None or alignment.chunks[-1][1::2] == (num_source, num_target)


def test_signals_are_handled_between_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: Ctrl-C waited until all examples were aligned, minutes for millions of words."""
    examples, limits = [((0, 1), (0,)), ((1, 2), (1, 1)), ((2, 0, 1), (0, 1))] * 20, chunk_limits(2)
    pairs = to_pairs(examples)
    distribution = estimate_graphones(pairs, NUMBERING, limits)
    whole = align_pairs(pairs, NUMBERING, limits, distribution)
    monkeypatch.setattr(lattice, "BLOCK_EDGES", 100)
    in_blocks = estimate_graphones(pairs, NUMBERING, limits)
    assert all(map(np.array_equal, in_blocks, distribution)), "bit for bit"
    assert all(map(np.array_equal, align_pairs(pairs, NUMBERING, limits, distribution), whole))
    blocks = list[int]()

    @contextmanager
    def count_block() -> Iterator[None]:
        blocks.append(0)
        yield

    monkeypatch.setattr(lattice, "defer_signals", count_block)
    align_pairs(pairs, NUMBERING, limits, distribution)
    assert len(blocks) > 10
    estimate_graphones(pairs, NUMBERING, limits, iterations=1)
    assert len(blocks) > 40  # edges are counted, written and summed over


def test_no_alignable_pair_has_no_alignment() -> None:
    """Regression test: a bare error of NumPy, "zero-size array to reduction operation"."""
    pairs, limits = to_pairs([((0,), (0,) * 9), ((), ())]), chunk_limits(2)
    distribution = estimate_graphones(pairs, NUMBERING, limits)
    assert len(distribution.keys) == 0
    assert align_pairs(pairs, NUMBERING, limits, distribution).offsets.tolist() == [0]


def test_pairs_of_too_many_edges_have_no_alignment() -> None:
    """Regression test: one pair of two long texts took gigabytes of memory at the start of a training."""
    offsets = np.array([0, 4000, 4001])
    ids = np.zeros(4001, np.int64)
    pairs, limits = SymbolPairs(ids, offsets, ids, offsets), chunk_limits(2)
    assert alignable_rows(pairs, limits).tolist() == [1]
    assert [bool(no_alignment_reason(length, length, limits)) for length in (4000, 1)] == [True, False]
