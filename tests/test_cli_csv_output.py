"""CSV output of predict and score: the cells of the input stay as they are, one row per input line and output."""

import csv
import io
import math
from functools import cache
from pathlib import Path

import pytest
from command_line import run_pellucid
from hypothesis import given, settings
from hypothesis import strategies as st
from trained_runs import DataFiles, digits_run, make_copy_examples, make_small_config, train_to_end

from pellucid.cli.csv_output import CsvOutput
from pellucid.data.examples import Example, InputFormat, parse_sources
from pellucid.data.readers import BadLine, TableCells
from pellucid.errors import DataError
from pellucid.run_folder.predictor_loader import load


def rows_of(text: str) -> list[list[str]]:
    """Return the rows of CSV."""
    return list(csv.reader(io.StringIO(text), strict=True))


@cache
def run_with_named_columns(folder: Path) -> Path:
    """Return a run whose training file has the columns id, word and copy."""
    config = make_small_config({"epochs": 3}, data={"source_column": "word", "target_column": "copy"})
    train, valid = folder / "train.csv", folder / "valid.csv"
    for path, seed in ((train, 1), (valid, 2)):
        examples = make_copy_examples(30, seed=seed)
        lines = [f"{number},{example.source},{example.target}" for number, example in enumerate(examples)]
        path.write_text("\n".join(["id,word,copy", *lines, ""]))
    train_to_end(DataFiles(train, valid), folder / "run", config)
    return folder / "run"


@pytest.fixture(scope="module")
def named_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_with_named_columns(tmp_path_factory.mktemp("named"))


def test_sources_from_standard_input_have_a_column() -> None:
    result = run_pellucid("predict", digits_run().run, "-f", "csv", stdin=b"one\n\nnine two\n")
    trace = load(digits_run().run).predict(["nine two"])[0]
    rows = rows_of(result.out)
    assert rows[0] == ["source", "output", "log_probability", "probability", "confidence"]
    assert rows[2] == ["", "", "", "", ""]
    assert rows[3][:2] == ["nine two", trace.output] and len(rows) == 4
    assert float(rows[3][2]) == pytest.approx(trace.score, abs=1e-4)
    assert float(rows[3][3]) == pytest.approx(math.exp(trace.score), abs=1e-4)
    assert trace.confidence is not None and float(rows[3][4]) == pytest.approx(trace.confidence, abs=1e-4)


def test_all_columns_of_the_input_are_kept(named_run: Path, tmp_path: Path) -> None:
    cells = [["7", 'a "b"', "ab"], ["8", "two\nlines, one cell", "ba"], ["9", "", "a"], ["", "= 1", ""]]
    with (tmp_path / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "note", "word"], *cells])
    result = run_pellucid("predict", named_run, tmp_path / "new.csv", "-f", "csv")
    rows = rows_of(result.out)
    assert rows[0] == ["id", "note", "word", "output", "log_probability", "probability", "confidence"]
    assert [row[:3] for row in rows[1:]] == cells
    assert [row[3] for row in rows[1:]] == [trace.output for trace in load(named_run).predict(["ab", "ba", "a", ""])]


def test_a_result_does_not_take_the_name_of_a_column(named_run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("word,output\nab,old\n")
    rows = rows_of(run_pellucid("predict", named_run, tmp_path / "new.csv", "-f", "csv").out)
    assert rows[0][:3] == ["word", "output", "predicted_output"] and rows[1][:2] == ["ab", "old"]


@pytest.mark.parametrize(("flags", "last"), [(("--nbest", 2), "nbest_probability"), (("--sample", 2), "probability")])
def test_several_outputs_have_a_row_each(named_run: Path, tmp_path: Path, flags: tuple[object, ...], last: str) -> None:
    (tmp_path / "new.csv").write_text("id,word\n1,ab\n2,b\n")
    rows = rows_of(run_pellucid("predict", named_run, tmp_path / "new.csv", "-f", "csv", *flags).out)
    assert rows[0][:4] == ["id", "word", "rank", "output"] and rows[0][-1] == last
    assert [row[:3] for row in rows[1:]] == [["1", "ab", "1"], ["1", "ab", "2"], ["2", "b", "1"], ["2", "b", "2"]]


def test_a_bad_line_keeps_its_row(named_run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("id,word\n1,ab\n2\n3,b\n4,a,b,c\n")
    result = run_pellucid("predict", named_run, tmp_path / "new.csv", "-f", "csv", "--on-bad-line", "skip")
    rows = rows_of(result.out)
    assert [row[0] for row in rows] == ["id", "1", "2", "3", "4"] and rows[2] == ["2", "", "", "", "", ""]
    assert rows[4] == ["4", "a", "", "", "", ""] and {len(row) for row in rows} == {6}
    assert "new.csv:3: expected 2 columns as in line 1, got 1" in result.err


def test_score_keeps_the_columns(named_run: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("id,word,copy\nx,ab,ab\n,,\n")
    rows = rows_of(run_pellucid("score", named_run, tmp_path / "pairs.csv", "-f", "csv", "--on-bad-line", "skip").out)
    assert rows[0] == ["id", "word", "copy", "log_probability", "probability", "log_probability_per_symbol"]
    score = load(named_run).score_examples([Example("ab", "ab")])[0].score
    assert rows[1][:3] == ["x", "ab", "ab"] and float(rows[1][3]) == pytest.approx(score, abs=1e-4)
    assert float(rows[1][5]) == pytest.approx(score / 3, abs=1e-4)  # two symbols and the end
    assert rows[2] == [""] * 6


def test_other_formats_have_the_source_alone(named_run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text('{"id": 1, "word": "ab"}\n')
    rows = rows_of(run_pellucid("predict", named_run, tmp_path / "new.jsonl", "-f", "csv").out)
    assert rows[0][:2] == ["source", "output"] and rows[1][0] == "ab"


def test_the_byte_order_mark_of_a_spreadsheet_is_kept(named_run: Path, tmp_path: Path) -> None:
    for encoding, mark in (("utf-8-sig", "\ufeff"), ("utf-8", "")):
        (tmp_path / "new.csv").write_text("id,word\n1,ab\n", encoding)
        output = run_pellucid("predict", named_run, tmp_path / "new.csv", "-f", "csv").out
        assert output.startswith(f"{mark}id,word,output,") and output.count("\ufeff") == len(mark)


def test_a_wider_line_than_the_first_ones_is_no_silent_loss() -> None:
    """Without header, the first lines determine the columns; later cells are not cut off."""
    output = CsvOutput(cells := TableCells(), ["output"])
    cells.rows.append(["ab"])
    assert output.rows(Example("ab", ""), [["x"]]) == "source,output\nab,x\n"
    cells.rows.append(["cd", "note"])
    with pytest.raises(DataError, match="the line of the source 'cd' has 2 columns, and the first lines have 1"):
        output.rows(Example("cd", ""), [["y"]])


TABLE = st.lists(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=8), min_size=3, max_size=3),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(TABLE)
def test_cells_are_kept_exactly(table: list[list[str]]) -> None:
    """The rows of any table are those that the csv module reads; unreadable and blank ones have empty results."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["id", "word", "note"], *table])
    cells = TableCells()
    config = make_small_config(
        data={"source_column": "word", "target_column": "copy", "header": True, "input_format": "csv"}
    ).data
    items = parse_sources(
        text.getvalue().encode().splitlines(keepends=True),
        "input",
        config,
        InputFormat(format="csv", header=True, cells=cells),
    )
    output = CsvOutput(cells, ["output"])
    rows = rows_of("".join(output.rows(item, [] if isinstance(item, BadLine) else [["x"]]) for item in items))
    assert rows[0] == ["id", "word", "note", "output"]
    assert [row[:3] for row in rows[1:]] == table
    assert {row[3] for row in rows[1:]} <= {"x", ""}


def test_control_characters_are_escaped_for_a_terminal() -> None:
    cells = TableCells(names=["word"])
    cells.rows.append(["\x1b[2J"])
    assert CsvOutput(cells, ["output"], escape=True).rows(Example("\x1b[2J", ""), [["\x9b"]]).splitlines()[1] == (
        "\\x1b[2J,\\x9b"
    )
