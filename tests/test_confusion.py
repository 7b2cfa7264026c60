"""Confusions: alignments with the fewest edits, and their counts."""

import random
from collections import Counter
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from pellucid.evaluation.confusion import ConfusionMatrix, SymbolConfusions, SymbolPair, align_symbols, count_confusions
from pellucid.evaluation.metrics import ScoredExample

SEQUENCES = st.lists(st.sampled_from(["a", "b", "c", "", "\0"]), max_size=7).map(tuple)


def make_scored(output: str, *references: str) -> ScoredExample:
    return ScoredExample(tuple(output), tuple(tuple(reference) for reference in references), 3)


@given(SEQUENCES, SEQUENCES)
def test_alignment_contains_both_sequences_with_the_fewest_edits(
    output: tuple[str, ...], reference: tuple[str, ...]
) -> None:
    pairs = align_symbols(output, reference)
    assert tuple(predicted for _, predicted in pairs if predicted is not None) == output
    assert tuple(expected for expected, _ in pairs if expected is not None) == reference
    edits = sum(expected != predicted for expected, predicted in pairs)
    letters = {symbol: chr(ord("a") + index) for index, symbol in enumerate(["a", "b", "c", "", "\0"])}
    assert edits == Levenshtein.distance("".join(map(letters.get, output)), "".join(map(letters.get, reference)))  # type: ignore[arg-type]


def test_confusions_are_counted_with_totals_and_kinds() -> None:
    result = count_confusions(
        [make_scored("bat", "cat"), make_scored("bar", "car"), make_scored("cat", "cats"), make_scored("at", "at")]
    )
    first, second = result.errors
    assert asdict(first) == {"expected": "c", "predicted": "b", "count": 2, "num_expected": 3}
    assert asdict(second) == {"expected": "s", "predicted": None, "count": 1, "num_expected": 1}
    assert (first.kind, second.kind) == ("substitution", "deletion")
    assert result.kinds == {"substitution": 2, "insertion": 0, "deletion": 1}
    assert result.matrix() == ConfusionMatrix(
        [None, "b", "c", "s"], [[0, 0, 0, 0], [0, 0, 0, 0], [0, 2, 1, 0], [1, 0, 0, 0]]
    )


def test_insertions_have_no_reference_symbol() -> None:
    (error,) = count_confusions([make_scored("ab", "a")]).errors
    assert (error.expected, error.predicted, error.kind) == (None, "b", "insertion")
    assert (error.count, error.num_expected) == (1, 0)


def test_nearest_reference_is_compared() -> None:
    (error,) = count_confusions([make_scored("abd", "xyz", "abc")]).errors
    assert (error.expected, error.predicted) == ("c", "d")


@given(
    st.lists(
        st.builds(
            ScoredExample,
            SEQUENCES,
            st.lists(SEQUENCES, min_size=1, max_size=3).map(tuple),
            st.just(1),
            st.just(False),
            st.just(()),
        )
    )
)
def test_kinds_sum_to_the_distances_in_any_order(examples: list[ScoredExample]) -> None:
    result = count_confusions(examples)
    assert sum(result.kinds.values()) == sum(example.errors for example in examples)
    shuffled = random.Random(1).sample(examples, len(examples))
    assert count_confusions(shuffled).to_dict() == result.to_dict()


def test_correct_and_empty_outputs_have_no_errors() -> None:
    for examples in ([make_scored("ab", "ab"), make_scored("", "")], []):
        result = count_confusions(examples)
        assert result.errors == [] and result.matrix() == ConfusionMatrix([], []) and sum(result.kinds.values()) == 0


@pytest.mark.parametrize("max_symbols", [0, 1, 3])
def test_the_matrix_has_the_most_frequent_symbols_up_to_the_maximum(max_symbols: int) -> None:
    pairs: Counter[SymbolPair] = Counter({(chr(97 + index), chr(98 + index)): 10 - index for index in range(8)})
    matrix = SymbolConfusions(pairs).matrix(max_symbols)
    assert len(matrix.symbols) == max_symbols == len(matrix.counts)
    assert set(matrix.symbols) <= {"b", "c", "d", "e"}
