"""The page shows a selection of the examples of a large file."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pellucid.config.settings import DataConfig
from pellucid.evaluation.metrics import ScoredExample
from pellucid.viewer.inputs import read_example_file, sample_with_ends, select_examples


def make_scored_example(errors: int) -> ScoredExample:
    """Return an output of ten symbols with the given number of errors."""
    return ScoredExample(tuple("x" * errors + "a" * (10 - errors)), (tuple("a" * 10),), 5)


def test_small_file_is_shown_completely() -> None:
    assert select_examples([make_scored_example(0)], 2) == ([0], "one example")
    numbers, note = select_examples([make_scored_example(0), make_scored_example(2)], 2)
    assert numbers == [0, 1] and note == "all 2 examples"


def test_worst_errors_are_selected_and_correct_ones_sampled_evenly() -> None:
    numbers, note = select_examples([make_scored_example(index % 10 if index % 2 else 0) for index in range(100)], 20)
    wrong = [index for index in numbers if index % 2]
    assert len(numbers) == 20 and len(wrong) == 10 and all(index % 10 == 9 for index in wrong)
    assert numbers == sorted(numbers) and numbers[0] == 0 and 98 in numbers
    assert note == ("20 of 100 examples: the 10 worst of 50 wrong, and 10 of 50 correct, sampled evenly from the file")


def test_few_wrong_examples_are_all_selected() -> None:
    numbers, note = select_examples([make_scored_example(0)] * 50 + [make_scored_example(1)] * 3, 20)
    assert numbers[-3:] == [50, 51, 52] and len(numbers) == 20
    assert "all 3 wrong" in note


def test_differing_examples_are_selected_first() -> None:
    first_run = [make_scored_example(1 if index % 3 == 0 else 0) for index in range(90)]
    second_run = [
        make_scored_example(0 if index in (0, 30) else 1 if index in (1, 2, 44) else each.errors)
        for index, each in enumerate(first_run)
    ]
    numbers, note = select_examples(first_run, 11, [second_run])
    assert len(numbers) == 11 and {0, 30, 1, 2, 44} < set(numbers) and numbers == sorted(numbers)
    assert sum(index % 3 == 0 for index in numbers if index not in (0, 30)) == 3
    assert note == (
        "11 of 90 examples: only one run is correct on 5 (shown: all); both are wrong on 28 (shown: the 3 worst); "
        "both are correct on 57 (shown: 3, sampled evenly)"
    )
    assert select_examples(first_run, 11, [first_run])[0] == select_examples(first_run, 11)[0]
    assert ": only one run is correct on none; " in select_examples(first_run, 11, [first_run])[1]


def test_too_many_differing_examples_are_sampled_evenly_from_both_kinds() -> None:
    first_run = [make_scored_example(index % 2) for index in range(100)]
    numbers, note = select_examples(
        first_run, 10, [[make_scored_example(1 - index % 2) for index in range(100)], first_run]
    )
    assert [index % 2 for index in numbers].count(0) == 5 and {0, 1, 98, 99} < set(numbers)
    assert note.startswith(
        "10 of 100 examples: some runs are correct and others wrong on 100 (shown: 10, sampled evenly); "
        "all are wrong on none; all are correct on none"
    )
    mixed_run = [make_scored_example(1 if index == 7 else index % 2) for index in range(100)]
    numbers, _ = select_examples(mixed_run, 10, [[make_scored_example(0)] * 100])
    assert len(numbers) == len(set(numbers)) == 10 and sum(mixed_run[index].errors > 0 for index in numbers) == 8


def test_one_fifth_is_reserved_for_equal_outcomes() -> None:
    first_run = [make_scored_example(index % 2) for index in range(100)]
    second_run = [make_scored_example(1 if index < 5 else 0 if index >= 90 else 1 - index % 2) for index in range(100)]
    numbers, note = select_examples(first_run, 20, [second_run])
    equal_outcomes = [index for index in numbers if bool(first_run[index].errors) == bool(second_run[index].errors)]
    assert (
        len(numbers) == 20
        and len(equal_outcomes) == 4
        and sum(first_run[index].errors > 0 for index in equal_outcomes) == 2
    )
    assert note == (
        "20 of 100 examples: only one run is correct on 93 (shown: 16, sampled evenly); "
        "both are wrong on 2 (shown: all); both are correct on 5 (shown: 2, sampled evenly)"
    )
    assert (
        "; both are wrong on 2 (shown: none); both are correct on 5 (shown: none)"
        in select_examples(first_run, 4, [second_run])[1]
    )


def test_selection_note_reports_that_nothing_is_wrong() -> None:
    numbers, note = select_examples([make_scored_example(0)] * 50, 20)
    assert len(numbers) == 20
    assert note == "20 of 50 examples, sampled evenly from the file, in which none is wrong"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 30))
def test_selection_has_the_maximum_size_without_repetition(errors: list[int], max_examples: int) -> None:
    numbers, note = select_examples([make_scored_example(each) for each in errors], max_examples)
    assert len(numbers) == min(max_examples, len(errors)) == len(set(numbers))
    assert numbers == sorted(numbers) and note
    wrong = sum(map(bool, errors))
    assert sum(bool(errors[index]) for index in numbers) >= min(wrong, max_examples // 2)


@given(st.integers(0, 50), st.integers(-3, 60))
def test_evenly_sampled_items_are_distinct_and_include_both_ends(size: int, count: int) -> None:
    result = sample_with_ends(range(size), count)
    assert len(result) == len(set(result)) == min(size, max(count, 0))
    if count > 1 and size > 1:
        assert result[0] == 0 and result[-1] == size - 1


def test_examples_have_the_id_and_the_line_of_their_row(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("Id,a,b\nP-1,x,y\n\nP-2,z,y\n", encoding="utf-8")
    config = DataConfig(input_format="csv", source_column="a", target_column="b")
    assert [(item.row_id, item.line) for item in read_example_file(path, config).metadata] == [("P-1", 2), ("P-2", 4)]
    (tmp_path / "pairs.tsv").write_text("x\ty\n", encoding="utf-8")
    assert read_example_file(tmp_path / "pairs.tsv", DataConfig()).metadata[0].row_id == ""


def test_one_example_of_a_kind_is_not_called_all() -> None:
    first_run, other_run = [[make_scored_example(errors) for errors in (0, 0, 0, last)] for last in (0, 1)]
    assert select_examples(first_run, 3, [other_run])[1] == (
        "3 of 4 examples: only one run is correct on 1 (shown); both are wrong on none; "
        "both are correct on 3 (shown: 2, sampled evenly)"
    )
