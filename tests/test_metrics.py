import json
import time
from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import InputError
from pellucid.evaluation.metrics import (
    MAX_LENGTH_BINS,
    ScoredExample,
    bootstrap_ratio,
    edit_distance,
    evaluate_examples,
    metrics_for_log,
    wilson_interval,
    worst_examples,
)

SYMBOLS = st.sampled_from(["a", "b", "", "\0", "AH0", "AH1", "é", "e\u0301", "🙂"])
SEQUENCES = st.lists(SYMBOLS, max_size=6).map(tuple)
EXAMPLES = st.builds(
    ScoredExample,
    SEQUENCES,
    st.lists(SEQUENCES, min_size=1, max_size=3).map(tuple),
    source_length=st.integers(0, 40),
    positional=st.just(False),
    log_probabilities=st.just(()),
)


def scored(output: str, *references: str, source_length: int = 3) -> ScoredExample:
    return ScoredExample(tuple(output), tuple(tuple(reference) for reference in references), source_length)


def plain_distance(output: tuple[str, ...], reference: tuple[str, ...]) -> int:
    """Levenshtein's distance by the textbook's recurrence."""
    row = list(range(len(reference) + 1))
    for i, decoded in enumerate(output, start=1):
        above, row = row, [i]
        for j, wanted in enumerate(reference, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (decoded != wanted)))
    return row[-1]


@given(SEQUENCES, SEQUENCES)
def test_edit_distance_equals_the_plain_recurrence(output: tuple[str, ...], reference: tuple[str, ...]) -> None:
    assert edit_distance(output, reference) == plain_distance(output, reference)


@given(EXAMPLES)
def test_the_nearest_reference_is_the_first_with_the_smallest_distance(example: ScoredExample) -> None:
    distances = [plain_distance(example.output, reference) for reference in example.references]
    assert example.errors == min(distances)
    assert example.reference == example.references[int(np.argmin(distances))]
    assert example.exact == (example.errors == 0)


def positions_by_definition(examples: list[ScoredExample]) -> list[tuple[str, int, int]]:
    """Label, right and total of each position, with the end symbol written out and one cell looked at a time."""
    longest = max(len(example.reference) for example in examples)
    rows = []
    for t in range(longest + 1):
        padded = [((*e.output, None), (*e.reference, None)) for e in examples if t <= len(e.reference)]
        right = sum(t < len(output) and output[t] == reference[t] for output, reference in padded)
        rows.append((str(t + 1), right, len(padded)))
    return rows


@given(st.lists(EXAMPLES, min_size=1, max_size=12))
def test_evaluation_equals_its_definitions(examples: list[ScoredExample]) -> None:
    result = evaluate_examples(examples)
    errors, lengths = [e.errors for e in examples], [len(e.reference) for e in examples]
    exact = sum(e.exact for e in examples)
    assert result.examples == len(examples)
    assert result.exact_match == pytest.approx(100 * exact / len(examples))
    assert result.exact_match_ci95 == wilson_interval(exact, len(examples)).percent
    assert result.wer == pytest.approx(100 - result.exact_match)
    assert result.wer_ci95 == pytest.approx(wilson_interval(len(examples) - exact, len(examples)).percent, abs=1e-9)
    assert (result.errors, result.symbols) == (sum(errors), sum(lengths))
    assert result.symbol_error_rate == pytest.approx(100 * sum(errors) / max(1, sum(lengths)))
    assert result.symbol_error_rate_ci95 == bootstrap_ratio(errors, lengths).percent
    rows = positions_by_definition(examples)
    assert [row[:3] for row in result.positions] == rows
    assert result.symbol_accuracy == pytest.approx(100 * sum(row[1] for row in rows) / sum(row[2] for row in rows))


@given(st.lists(EXAMPLES, min_size=1, max_size=60))
def test_length_ranges_partition_the_examples(examples: list[ScoredExample]) -> None:
    rows = evaluate_examples(examples).lengths
    assert len(rows) <= MAX_LENGTH_BINS
    assert sum(row.total for row in rows) == len(examples)
    assert sum(row.right for row in rows) == sum(e.exact for e in examples)
    ends = [[int(end) for end in row.label.split("–")] for row in rows]
    assert ends == sorted(ends) and all(one[-1] < two[0] for one, two in pairwise(ends))
    for row, (low, high) in zip(rows, [(end[0], end[-1]) for end in ends], strict=True):
        inside = [e for e in examples if low <= e.source_length <= high]
        assert (row.right, row.total) == (sum(e.exact for e in inside), len(inside))
        assert row.percent == 100 * row.right / row.total
        assert (row.low, row.high) == wilson_interval(row.right, row.total).percent


def test_length_ranges_are_nearly_equal_and_split_no_length() -> None:
    even = evaluate_examples([scored("a", "a", source_length=length) for length in range(1, 101)]).lengths
    assert [row.label for row in even][:2] == ["1–10", "11–20"] and {row.total for row in even} == {10}
    few = evaluate_examples(
        [scored("a", "a", source_length=length) for length in [3] * 50 + [4] * 30 + [5] * 20]
    ).lengths
    assert [(row.label, row.total) for row in few] == [("3", 50), ("4", 30), ("5", 20)]
    tail = evaluate_examples([scored("a", "a", source_length=length) for length in [3] * 99 + [9]]).lengths
    assert [(row.label, row.total) for row in tail] == [("3", 99), ("9", 1)]


def test_positions_include_eos() -> None:
    right = [row.right for row in evaluate_examples([scored("abc", "abc")]).positions]
    early = [row.right for row in evaluate_examples([scored("ab", "abc")]).positions]
    late = [row.right for row in evaluate_examples([scored("abcc", "abc")]).positions]
    shifted = [row.right for row in evaluate_examples([scored("xabc", "abc")]).positions]
    assert (right, early, late, shifted) == ([1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0])


def test_several_references() -> None:
    example = scored("abd", "xyz", "abc", "abe")
    assert example.reference == tuple("abc") and example.errors == 1 and not example.exact
    assert evaluate_examples([scored("abe", "xyz", "abc", "abe")]).exact_match == 100.0


def test_all_right_and_one_example() -> None:
    result = evaluate_examples([scored("ab", "ab")] * 50)
    assert result.exact_match == result.symbol_accuracy == 100.0 and result.wer == result.symbol_error_rate == 0.0
    assert result.exact_match_ci95.high == 100.0 and 90 < result.exact_match_ci95.low < 100
    assert result.symbol_error_rate_ci95 == (0.0, 0.0)
    one = evaluate_examples([scored("ab", "ac")])
    assert one.exact_match_ci95.low == 0.0 and one.exact_match_ci95.high == pytest.approx(79.3, abs=0.1)
    assert one.symbol_error_rate_ci95 == (50.0, 50.0)


def test_empty_references_and_outputs() -> None:
    right = evaluate_examples([scored("", "", source_length=0)])
    assert right.exact_match == right.symbol_accuracy == 100.0 and right.symbol_error_rate == 0.0
    wrong = evaluate_examples([scored("ab", "", source_length=0)])
    assert (wrong.errors, wrong.symbols, wrong.symbol_error_rate, wrong.symbol_accuracy) == (2, 0, 200.0, 0.0)


def test_missing_examples_are_refused() -> None:
    with pytest.raises(InputError, match="no examples to evaluate"):
        evaluate_examples([])
    with pytest.raises(InputError, match="no reference to compare the output 'a b' with"):
        evaluate_examples([ScoredExample(("a", "b"), (), 3)])


def plain_values(value: object) -> bool:
    """Whether JSON holds the value as it is, numpy's numbers and tuples excluded."""
    if type(value) is dict:
        return all(type(key) is str and plain_values(inner) for key, inner in value.items())
    return all(map(plain_values, value)) if type(value) is list else type(value) in (int, float, str)


def test_to_dict_is_json_with_every_score() -> None:
    values = evaluate_examples([scored("ab", "ab"), scored("b", "ab", source_length=9)]).to_dict()
    assert plain_values(values) and json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["wer"] == 50.0 and values["symbol_error_rate"] == 25.0 and values["errors"] == 1
    assert list(values["lengths"][0]) == ["label", "right", "total", "low", "high"]


def test_metrics_for_log() -> None:
    log = metrics_for_log(evaluate_examples([scored("ab", "ab"), scored("b", "ab")]))
    assert log == {"exact_match": 50.0, "symbol_error_rate": 25.0, "symbol_accuracy": 50.0}


def test_evaluation_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        evaluate_examples([scored("a", "a")]).examples = 2  # type: ignore[misc]


def test_worst_examples_are_sorted_by_rate_errors_and_index() -> None:
    examples = [
        scored("abcd", "abcd"),  # no error: never listed
        scored("abcx", "abcd"),  # 1 of 4
        scored("ax", "ab"),  # 1 of 2
        scored("abxx", "abcd"),  # 2 of 4: as bad, with more errors
        scored("xa", "ba"),  # 1 of 2, later
        scored("x", ""),  # an error where there is nothing to get right
    ]
    assert worst_examples(examples, 10) == [5, 3, 2, 4, 1]
    assert worst_examples(examples, 2) == [5, 3]
    assert worst_examples(examples, 0) == worst_examples([], 5) == []


def test_a_hundred_thousand_examples_take_a_few_seconds() -> None:
    generator = np.random.default_rng(1)
    words = ["".join(row) for row in generator.choice(list("abcdef"), size=(1000, 9))]
    pairs = generator.integers(1000, size=(100_000, 2))
    examples = [scored(words[i], words[j], source_length=int(i % 30)) for i, j in pairs]
    start = time.process_time()
    evaluate_examples(examples)
    assert time.process_time() - start < 10  # one or two, and as much again for the checks of every type
