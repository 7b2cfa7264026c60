"""Tables abbreviate long names, and end with the rest of many rows."""

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from test_assessment import ROWS, build_assessment, with_baseline

from pellucid.evaluation.assessment import ComparedAssessment, compare_runs, rates_over_seeds
from pellucid.reporting.tables import (
    ERROR_NUMBERS,
    MAX_NAME_LENGTH,
    MAX_RUN_COLUMNS,
    SHORT_NAMES,
    _table_of_runs,
    assessment_tables,
    comparison_tables,
    score_columns,
    score_rows,
    seed_table,
    short_names,
)


def test_long_names_lose_their_common_prefix_then_their_middle() -> None:
    assert short_names(["base", "large"]) == ["base", "large"]
    assert short_names(["g2p-sigmorphon2020-armenian-a", "g2p-sigmorphon2020-dutch"]) == ["…armenian-a", "…dutch"]
    one, other = short_names(["a" * 30 + "x", "a" * 30 + "y"])
    assert len(one) == len(other) == MAX_NAME_LENGTH and one[-1] == "x" and other[-1] == "y" and "…" in one
    one, other = short_names(["x" + "a" * 60, "y" + "a" * 60])
    assert one[0] == "x" and other[0] == "y" and len(one) <= MAX_NAME_LENGTH
    one, other = short_names(["m" * 40 + "x" + "m" * 40, "m" * 40 + "y" + "m" * 40])
    assert one != other
    assert (
        short_names(["runs/here/and/there/a", "runs/here/and/there/a"])[0] == short_names(["runs/here/and/there/a"])[0]
    )


def test_names_lose_their_common_words_if_one_is_too_long() -> None:
    seeds = [f"gru-large-dropout-{seed:02}" for seed in range(1, 5)]
    assert short_names(seeds) == seeds and short_names(seeds, 12) == ["…01", "…02", "…03", "…04"]
    cells = [f"experiment-{cell}-additive-attention" for cell in ("gru", "lstm")]
    assert short_names(cells) == ["…gru…", "…lstm…"]


@pytest.mark.parametrize("num_runs", [MAX_RUN_COLUMNS, MAX_RUN_COLUMNS + 1, 10])
def test_every_run_and_metric_is_shown_in_full_or_named(num_runs: int) -> None:
    """In 80 columns, no cell of the main metrics is folded, whatever the number of runs."""
    names = [f"runs/additive/seed-{seed}" for seed in range(num_runs)]
    runs = [build_assessment([("a", "a"), ("b", "c")], name) for name in names]
    output = StringIO()
    table = next(comparison_tables(runs, [], [1.0] * num_runs, 0, [15_419] * num_runs))
    Console(width=80, file=output, highlight=False).print(table)
    text = output.getvalue()
    if num_runs <= MAX_RUN_COLUMNS:
        assert len(table.columns) == 1 + num_runs and table.row_count > 5
        return
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    assert [row[0] for row in rows] == names and {tuple(row[1:3]) for row in rows} == {("50.00 %", "50.00 %")}
    headings = [str(column.header) for column in table.columns]
    named = str(table.caption).partition(": ")[2].split(", ")
    all_metrics = [SHORT_NAMES.get(name, name) for name, _, _ in score_rows(runs[0])]
    assert headings[1:] + named == [*all_metrics, "parameters", "decoded in"]


def test_metrics_of_runs_are_told_apart_by_name() -> None:
    """Regression test: the values of a run with fewer metrics were in the rows of others."""
    run, baseline = build_assessment(ROWS, "a"), with_baseline(build_assessment(ROWS, "b"), "abc", "abd", "x", "x")
    for runs in ([run, baseline], [baseline, run], [run, run, run, baseline]):
        columns = score_columns(runs)
        for index, each in enumerate(runs):
            own = {name: value for name, value, _ in score_rows(each)}
            assert {name: values[index] for name, values in columns.items() if name in own} == own
            assert all(values[index] == "–" for name, values in columns.items() if name not in own)
        table = next(comparison_tables(runs, [], [1.0] * len(runs), 0))
        assert len(runs) <= MAX_RUN_COLUMNS or not any("pair n-gram" in str(column.header) for column in table.columns)


def test_seeds_of_two_configurations_are_told_apart() -> None:
    for count in (2, 3, 5):
        names = [f"runs/{cell}/seed-{seed}" for cell in ("gru", "lstm") for seed in range(1, count + 1)]
        shown = short_names(names)
        assert all(short.endswith(name.removeprefix("runs/")) for short, name in zip(shown, names, strict=True))


def test_names_are_folded_and_never_cut_in_a_narrow_table() -> None:
    """Each name can be read in full from the lines of its column."""
    names = ["m" * 40 + "x" + "m" * 40, "m" * 40 + "y" + "m" * 40]
    runs = [build_assessment([("a", "a"), ("b", "c")], name) for name in names]
    output = StringIO()
    console = Console(width=80, file=output, highlight=False)
    table = next(comparison_tables(runs, [], [1.0, 1.0], 0))
    console.print(table)
    heading = output.getvalue().partition("┡")[0]
    columns = zip(*(line.split("┃")[2:4] for line in heading.splitlines()[1:]), strict=True)
    assert ["".join(cell.strip() for cell in column) for column in columns] == names


@given(st.lists(st.text("ab-/", min_size=1, max_size=60), min_size=1, max_size=4, unique=True))
def test_short_names_stay_distinct(names: list[str]) -> None:
    assert len(set(short_names(names))) == len(names) and len(short_names(names)) == len(names)


def test_numbers_without_room_are_left_out_and_named() -> None:
    """No text is cut; the numbers that are least needed are left out first."""
    cases = ((80, "abc", ()), (80, "abc" * 11, ERROR_NUMBERS[2:]), (40, "abc" * 40, ERROR_NUMBERS))
    for width, output, omitted in cases:
        table = list(assessment_tables(build_assessment([("xyz", output)]), {}, 1.0, 1, width))[-1]
        without = f"; columns that do not fit: {', '.join(omitted)}" if omitted else ""
        assert table.title == "worst examples"
        assert table.caption == f"order: most errors per expected symbol first{without}"
        text = StringIO()
        Console(width=width, file=text, highlight=False).print(table)
        cells = [line.split("│")[2].strip() for line in text.getvalue().splitlines() if "│" in line]
        assert "".join(cells) == output and "…" not in text.getvalue()


def test_many_rows_of_accuracies_end_with_the_rest() -> None:
    """42 positions: 14 rows, and the positions from 15 on in one."""
    pairs = [("a" * length, "a" * length if length % 2 else "a" * (length - 1)) for length in range(1, 43)]
    assessment = build_assessment(pairs)
    tables = list(assessment_tables(assessment, {}, 1.0, 0))
    (table,) = (table for table in tables if table.title == "accuracy by target position")
    labels, right, total, *_ = (list(column.cells) for column in table.columns)
    assert labels == [*map(str, range(1, 15)), f"15–{assessment.evaluation.positions[-1].label}"]
    positions = assessment.evaluation.positions
    assert right[-1] == f"{sum(each.right for each in positions[14:]):,}" and right[0] == f"{positions[0].right:,}"
    assert total[-1] == f"{sum(each.total for each in positions[14:]):,}"


def test_a_mean_over_trainings_that_ended_by_time_warns_of_different_numbers_of_updates() -> None:
    group = rates_over_seeds([build_assessment([("a", "a"), ("b", "c")], name) for name in ("one", "two")])
    for updates, warned in (({}, False), ({"one": 100, "two": 105}, False), ({"one": 1_672, "two": 2_560}, True)):
        caption = str(seed_table(group, updates=updates).caption)
        assert ("1,672 to 2,560 updates" in caption) == warned and ("WARNING" in caption) == warned


def test_the_comparison_of_two_trainings_of_several_seeds_says_that_it_is_about_them_alone() -> None:
    names = ("a/1", "b/1", "a/2")
    runs = [build_assessment([("a", "a"), ("b", result)], name) for name, result in zip(names, "bcb", strict=True)]
    comparison = ComparedAssessment(runs[1], compare_runs(runs[0], runs[1]))
    for shown, warned in ((runs[:2], False), (runs, True)):
        _, table, *_ = comparison_tables(shown, [comparison], [1.0] * len(shown), 0)
        assert ("two single trainings" in str(table.caption)) == warned


def test_requested_metrics_of_runs_are_left_out_last() -> None:
    names = [f"metric {number}" for number in range(8)]
    columns = {"10 examples": ["a", "b"], **{name: ["12.34 %", "5.67 %"] for name in names}}
    headings = {}
    for width in (200, 60, 30, 10):
        table = _table_of_runs(columns, width, {"metric 6"})
        headings[width] = [str(column.header) for column in table.columns]
        omitted = [name for name in names if name not in headings[width]]
        shown = f"columns that do not fit (--json has them): {', '.join(omitted)}" if omitted else ""
        assert (table.caption or "") == shown
    assert headings[200] == list(columns)
    assert headings[60] == ["10 examples", "metric 0", "metric 1", "metric 2", "metric 6"]
    assert headings[30] == headings[10] == ["10 examples", "metric 6"]
