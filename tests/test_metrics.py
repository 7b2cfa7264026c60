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


def build_scored_example(output: str, *references: str, source_length: int = 3) -> ScoredExample:
    return ScoredExample(tuple(output), tuple(tuple(reference) for reference in references), source_length)


def reference_distance(output: tuple[str, ...], reference: tuple[str, ...]) -> int:
    """Return the Levenshtein distance, computed by the usual recurrence."""
    row = list(range(len(reference) + 1))
    for i, decoded in enumerate(output, start=1):
        above, row = row, [i]
        for j, expected in enumerate(reference, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (decoded != expected)))
    return row[-1]


@given(SEQUENCES, SEQUENCES)
def test_edit_distance_equals_the_plain_recurrence(output: tuple[str, ...], reference: tuple[str, ...]) -> None:
    assert edit_distance(output, reference) == reference_distance(output, reference)


@given(EXAMPLES)
def test_the_nearest_reference_is_the_first_with_the_smallest_distance(example: ScoredExample) -> None:
    distances = [reference_distance(example.output, reference) for reference in example.references]
    assert example.errors == min(distances)
    assert example.reference == example.references[int(np.argmin(distances))]
    assert example.exact == (example.errors == 0)


def reference_positions(examples: list[ScoredExample]) -> list[tuple[str, int, int]]:
    """Return label, number correct and total of each position, with the end symbol as None."""
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
    assert result.sequence_error_rate == pytest.approx(100 - result.exact_match)
    assert result.sequence_error_rate_ci95 == pytest.approx(
        wilson_interval(len(examples) - exact, len(examples)).percent, abs=1e-9
    )
    assert (result.errors, result.symbols) == (sum(errors), sum(lengths))
    assert result.symbol_error_rate == pytest.approx(100 * sum(errors) / max(1, sum(lengths)))
    assert result.symbol_error_rate_ci95 == bootstrap_ratio(errors, lengths).percent
    rows = reference_positions(examples)
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
        in_range = [e for e in examples if low <= e.source_length <= high]
        assert (row.right, row.total) == (sum(e.exact for e in in_range), len(in_range))
        assert row.percent == 100 * row.right / row.total
        assert (row.low, row.high) == wilson_interval(row.right, row.total).percent


def test_length_ranges_are_nearly_equal_and_split_no_length() -> None:
    even = evaluate_examples([build_scored_example("a", "a", source_length=length) for length in range(1, 101)]).lengths
    assert [row.label for row in even][:2] == ["1–10", "11–20"] and {row.total for row in even} == {10}
    repeated = evaluate_examples(
        [build_scored_example("a", "a", source_length=length) for length in [3] * 50 + [4] * 30 + [5] * 20]
    ).lengths
    assert [(row.label, row.total) for row in repeated] == [("3", 50), ("4", 30), ("5", 20)]
    tail = evaluate_examples(
        [build_scored_example("a", "a", source_length=length) for length in [3] * 99 + [9]]
    ).lengths
    assert [(row.label, row.total) for row in tail] == [("3", 99), ("9", 1)]


def test_positions_include_eos() -> None:
    right = [row.right for row in evaluate_examples([build_scored_example("abc", "abc")]).positions]
    early = [row.right for row in evaluate_examples([build_scored_example("ab", "abc")]).positions]
    late = [row.right for row in evaluate_examples([build_scored_example("abcc", "abc")]).positions]
    shifted = [row.right for row in evaluate_examples([build_scored_example("xabc", "abc")]).positions]
    assert (right, early, late, shifted) == ([1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0])


def test_the_nearest_of_several_references_counts() -> None:
    example = build_scored_example("abd", "xyz", "abc", "abe")
    assert example.reference == tuple("abc") and example.errors == 1 and not example.exact
    assert evaluate_examples([build_scored_example("abe", "xyz", "abc", "abe")]).exact_match == 100.0


def test_perfect_outputs_and_a_single_example_have_intervals() -> None:
    result = evaluate_examples([build_scored_example("ab", "ab")] * 50)
    assert (
        result.exact_match == result.symbol_accuracy == 100.0
        and result.sequence_error_rate == result.symbol_error_rate == 0.0
    )
    assert result.exact_match_ci95.high == 100.0 and 90 < result.exact_match_ci95.low < 100
    assert result.symbol_error_rate_ci95 == (0.0, 0.0)
    one = evaluate_examples([build_scored_example("ab", "ac")])
    assert one.exact_match_ci95.low == 0.0 and one.exact_match_ci95.high == pytest.approx(79.3, abs=0.1)
    assert one.symbol_error_rate_ci95 == (50.0, 50.0)


def test_empty_references_and_outputs_are_scored() -> None:
    right = evaluate_examples([build_scored_example("", "", source_length=0)])
    assert right.exact_match == right.symbol_accuracy == 100.0 and right.symbol_error_rate == 0.0
    wrong = evaluate_examples([build_scored_example("ab", "", source_length=0)])
    assert (wrong.errors, wrong.symbols, wrong.symbol_error_rate, wrong.symbol_accuracy) == (2, 0, 200.0, 0.0)


def test_missing_examples_are_refused() -> None:
    with pytest.raises(InputError, match="no examples to evaluate"):
        evaluate_examples([])
    with pytest.raises(InputError, match="no reference to compare the output 'a b' with"):
        evaluate_examples([ScoredExample(("a", "b"), (), 3)])


def is_plain_json(value: object) -> bool:
    """Return whether a value has only types of JSON, without NumPy numbers and tuples."""
    if type(value) is dict:
        return all(type(key) is str and is_plain_json(inner) for key, inner in value.items())
    return all(map(is_plain_json, value)) if type(value) is list else type(value) in (int, float, str)


def test_to_dict_is_json_with_every_score() -> None:
    values = evaluate_examples(
        [build_scored_example("ab", "ab"), build_scored_example("b", "ab", source_length=9)]
    ).to_dict()
    assert is_plain_json(values) and json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["sequence_error_rate"] == 50.0 and values["symbol_error_rate"] == 25.0 and values["errors"] == 1
    assert list(values["lengths"][0]) == ["label", "right", "total", "low", "high"]


def test_metrics_for_log_are_three_percentages() -> None:
    log = metrics_for_log(evaluate_examples([build_scored_example("ab", "ab"), build_scored_example("b", "ab")]))
    assert log == {"exact_match": 50.0, "symbol_error_rate": 25.0, "symbol_accuracy": 50.0}


def test_evaluation_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        evaluate_examples([build_scored_example("a", "a")]).examples = 2  # type: ignore[misc]


def test_worst_examples_are_sorted_by_rate_errors_and_index() -> None:
    examples = [
        build_scored_example("abcd", "abcd"),  # no error: never listed
        build_scored_example("abcx", "abcd"),  # 1 of 4
        build_scored_example("ax", "ab"),  # 1 of 2
        build_scored_example("abxx", "abcd"),  # 2 of 4: as bad, with more errors
        build_scored_example("xa", "ba"),  # 1 of 2, later
        build_scored_example("x", ""),  # an error with an empty reference
    ]
    assert worst_examples(examples, 10) == [5, 3, 2, 4, 1]
    assert worst_examples(examples, 2) == [5, 3]
    assert worst_examples(examples, 0) == worst_examples([], 5) == []


@pytest.mark.slow
def test_a_hundred_thousand_examples_take_a_few_seconds() -> None:
    generator = np.random.default_rng(1)
    words = ["".join(row) for row in generator.choice(list("abcdef"), size=(1000, 9))]
    pairs = generator.integers(1000, size=(100_000, 2))
    examples = [build_scored_example(words[i], words[j], source_length=int(i % 30)) for i, j in pairs]
    start = time.process_time()
    evaluate_examples(examples)
    assert time.process_time() - start < 10  # one or two seconds, doubled by the type checks under pytest
