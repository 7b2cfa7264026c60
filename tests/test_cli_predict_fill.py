"""pellucid predict --fill: outputs in the empty cells of a column, all other cells unchanged."""

import csv
import io
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandResult, run_pellucid, usage_error_message
from trained_runs import digits_run

from pellucid.cli.predict_fill import FilledTable, FillOptions, RowReader
from pellucid.data.readers import TableCells
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError
from pellucid.run_folder.predictor_loader import load

ROWS = [
    ["1", "one two", "", "a;b"],
    ["2", "three", "THREE", 'say "x"'],
    ["3", "", "", ""],
    ["4", "six", "  ", "two\nlines"],
]
NAMES = ["id", "words", "digits", "note"]


def write_table(path: Path, delimiter: str = ",", line_end: str = "\n", encoding: str = "utf-8") -> Path:
    """Write the table as CSV."""
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator=line_end).writerows([NAMES, *ROWS])
    return path


def fill(*arguments: object, stdin: bytes = b"") -> CommandResult:
    """Fill the column `digits`."""
    options = ("--fill", "digits", "--source-column", "words", "--header")
    return run_pellucid("predict", digits_run().run, *arguments, *options, stdin=stdin)


def traces() -> dict[str, Trace]:
    """Return the outputs for the sources of the empty cells, through the Python interface."""
    sources = ["one two", "six"]
    return dict(zip(sources, load(digits_run().run).predict(sources), strict=True))


def read_rows(text: str, delimiter: str = ",") -> list[list[str]]:
    """Return the rows of CSV."""
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


@pytest.mark.parametrize(
    ("delimiter", "line_end", "encoding"), [(",", "\n", "utf-8"), (";", "\r\n", "utf-8-sig"), ("\t", "\n", "utf-8")]
)
def test_only_empty_cells_change(delimiter: str, line_end: str, encoding: str, tmp_path: Path) -> None:
    path = write_table(tmp_path / "table.csv", delimiter, line_end, encoding)
    result = fill(path)
    assert result.code == 0
    names, *rows = read_rows(result.out.removeprefix("\ufeff"), delimiter)
    assert names == [*NAMES, "confidence"]
    expected = [list(row) for row in ROWS]
    for row in (expected[0], expected[3]):
        row[2] = traces()[row[1]].output
    assert [row[:4] for row in rows] == expected
    assert rows[1][4] == rows[2][4] == ""
    assert "2 cells of 'digits' filled, 1 cell left empty; 1 row unchanged" in result.err
    assert result.out.startswith("\ufeff") == (encoding == "utf-8-sig")
    assert result.out.count("\r\n") == (5 if line_end == "\r\n" else 0)


def test_tsv_stays_tsv(tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    path.write_text('words\tdigits\tnote\none\t\t"quoted"\ntwo\tTWO\t\n', "utf-8")
    lines = fill(path).out.splitlines()
    assert lines[0] == "words\tdigits\tnote\tconfidence"
    output = load(digits_run().run).predict(["one"])[0].output
    assert lines[1].split("\t")[:3] == ["one", output, '"quoted"'] and lines[2].split("\t")[:3] == ["two", "TWO", ""]


def test_a_table_without_the_column_of_other_rows_is_read_from_standard_input(tmp_path: Path) -> None:
    text = write_table(tmp_path / "table.csv").read_bytes()
    result = fill("--input-format", "csv", stdin=text)
    assert result.out == fill(tmp_path / "table.csv").out


def test_an_output_stays_in_its_cell_of_tsv(tmp_path: Path) -> None:
    path, lexicon = tmp_path / "table.tsv", tmp_path / "lexicon.csv"
    path.write_text("words\tdigits\nsix\t\n")
    lexicon.write_text('words,digits\nsix,"6\t6\n6"\n')
    result = fill(path, "--lexicon", lexicon)
    assert result.out == "words\tdigits\tconfidence\torigin\nsix\t6\\t6\\n6\t\tlexicon\n", result.err


def test_names_and_line_ends_of_unusual_headers(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b'words,digits,"two\nlines",confidence,predicted_confidence\r\nsix,,,1,2\r\n')
    header, _ = fill(path).out.split("\r\n", 1)
    assert header.endswith(",confidence,predicted_confidence,predicted_predicted_confidence")


def test_a_quotation_mark_in_the_header_of_tsv_changes_no_line_end(tmp_path: Path) -> None:
    """Regression test: the rest of the file was taken for the header, and its last line has no line end."""
    path = tmp_path / "table.tsv"
    path.write_bytes(b'words\tdigits\tin"ch\r\nsix\t\tx\r\none\t1\ty')
    assert fill(path).out.startswith('words\tdigits\tin"ch\tconfidence\r\nsix\t6\tx\t')


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_blank_lines_stay_blank(delimiter: str, tmp_path: Path) -> None:
    """Regression test: a blank line became a row of empty cells, and was counted as a cell that was left empty."""
    path = tmp_path / "table.csv"
    path.write_text("words,digits\nsix,\n\none,1\n  \n".replace(",", delimiter))
    result = fill(path, "--input-format", "csv" if delimiter == "," else "tsv")
    lines = result.out.splitlines()
    assert len(lines) == 5 and lines[2] == lines[4] == "" and lines[3] == "one,1,".replace(",", delimiter)
    assert "1 cell of 'digits' filled; 1 row unchanged" in result.err


def test_known_pairs_have_an_origin(tmp_path: Path) -> None:
    path, lexicon = write_table(tmp_path / "table.csv"), tmp_path / "lexicon.tsv"
    lexicon.write_text("six\t66\n")
    names, *rows = read_rows(fill(path, "--lexicon", lexicon).out)
    assert names[-2:] == ["confidence", "origin"]
    assert [row[-1] for row in rows] == ["search", "", "", "lexicon"] and rows[3][2] == "66"


def test_uncertain_cells_stay_empty(tmp_path: Path) -> None:
    path = write_table(tmp_path / "table.csv")
    result = fill(path, "--min-confidence", "1")
    confidences = [trace.confidence for trace in traces().values()]
    if None in confidences:
        assert "--min-confidence" in usage_error_message(result)
        return
    rows = read_rows(result.out)[1:]
    assert rows[0][2] == "" and float(rows[0][4]) == pytest.approx(confidences[0], abs=1e-6)
    assert "0 cells of 'digits' filled, 3 cells left empty" in result.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("words,digitz\none,\n", "--fill: the file has no column 'digits'; did you mean 'digitz'?"),
        ("words,digits,digits\none,,\n", "--fill: 2 columns are named 'digits': rename all but one"),
        ("", "the input has no row. A shell that writes the output to the file of the input empties it first"),
    ],
)
def test_tables_that_cannot_be_filled(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert message in usage_error_message(fill(path))


def test_nothing_is_written_if_rows_of_the_file_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"words,digits\none,\n\xff,\ntwo,\nsix,,x\n")
    result = fill(path)
    assert result.code == 2 and not result.out
    assert f"{path}:3: invalid UTF-8" in result.err and f"{path}:5: expected 2 columns" in result.err
    assert "2 rows cannot be read. --fill writes every row, so nothing is written: correct them first" in result.err
    path.write_bytes(b"words,digits\n" + b"\xff,\n" * 30)
    result = fill(path)
    assert result.err.count("invalid UTF-8") == 20 and "30 rows cannot be read; the first 20 are listed" in result.err


def test_a_bad_row_of_standard_input_stops_after_the_rows_before_it() -> None:
    result = fill("--input-format", "csv", stdin=b"words,digits\none,\n\xff,\ntwo,\n")
    assert result.code == 2 and len(result.out.splitlines()) == 2
    assert "stops at one that it cannot read: the output ends before it" in result.err


def test_cells_of_spaces_stay_if_the_output_is_empty(tmp_path: Path) -> None:
    table = FilledTable(TableCells(["words", "digits"]), FillOptions("digits"), tmp_path / "table.csv", "csv")
    [row] = [["x", "  "]]
    table.cells.rows.append(row)
    assert table.pop_rows(1) == [row] and table.is_empty(row)
    [trace] = load(digits_run().run).predict(["one"])
    assert table.fill_row(row, replace(trace, output=""))[:2] == row and table.num_empty == 1
    assert table.fill_row(row, trace)[1] == trace.output


def test_a_file_without_names_cannot_be_filled(tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    path.write_text("one\t\ntwo\t2\n")
    result = run_pellucid("predict", digits_run().run, path, "--fill", "digits", "--no-header")
    assert "whose first line names the columns" in usage_error_message(result)


@pytest.mark.parametrize(
    "flags",
    [
        ("--nbest", "2"),
        ("--top-mass", "0.5"),
        ("--sample", "2"),
        ("--text",),
        ("--output-format", "jsonl"),
    ],
)
def test_options_that_exclude_filling(flags: tuple[str, ...], tmp_path: Path) -> None:
    path = write_table(tmp_path / "table.csv")
    assert "--fill" in usage_error_message(run_pellucid("predict", digits_run().run, path, "--fill", "digits", *flags))


def test_the_column_of_the_sources_is_not_filled(tmp_path: Path) -> None:
    path = write_table(tmp_path / "table.csv")
    result = run_pellucid("predict", digits_run().run, path, "--fill", "words", "--source-column", "words", "--header")
    assert usage_error_message(result) == "--fill: 'words' is the column of the sources; name that of the targets"


def test_rows_that_cannot_be_read_are_written_as_they_are_on_request(tmp_path: Path) -> None:
    """Regression test: --fill refused a table with two broken rows, and excluded --on-bad-line skip."""
    path = tmp_path / "table.csv"
    bad = (b'2,"three\r\n', b"3,\xff,,\r\n", b"5,six\r\n")
    path.write_bytes(b"id,words,digits,note\r\n1,one two,,a\r\n" + bad[1] + bad[2] + b'6,six,SIX,"b, c"\r\n' + bad[0])
    refused = fill(path)
    assert refused.code == 2 and "3 rows cannot be read" in refused.err and "--on-bad-line skip" in refused.err
    options = ("--fill", "digits", "--source-column", "words", "--header", "--on-bad-line", "skip")
    filled = tmp_path / "filled.csv"
    result = run_pellucid("predict", digits_run().run, path, *options, stdout=filled)
    lines = filled.read_bytes().splitlines(keepends=True)
    assert lines[0] == b"id,words,digits,note,confidence\r\n" and lines[1].startswith(b"1,one two,")
    assert lines[2:4] == [bad[1], bad[2]] and lines[4] == b'6,six,SIX,"b, c",\r\n' and lines[5:] == [bad[0]]
    assert (
        "3 rows that cannot be read, written as in the input" in result.err
        and "1 cell of 'digits' filled" in result.err
    )
    assert "give a regular file" in usage_error_message(fill("--on-bad-line", "skip", stdin=path.read_bytes()))


def test_bad_rows_are_read_one_at_a_time(tmp_path: Path) -> None:
    """Regression test: one bad row was enough to hold the whole file in memory."""
    path = tmp_path / "table.csv"
    with path.open("wb") as file:
        for number in range(3000):
            file.write(b'a,"%s\nb"\n' % (b"x" * 1000) if number % 1000 else b"bad %d\nx\n" % number)
    rows = RowReader(path, range(1, 6001, 2))
    tracemalloc.start()
    try:
        assert [rows.read(line) for line in (1, 2001, 4001)] == [b"bad %d\nx\n" % n for n in (0, 1000, 2000)]
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_a_table_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """Regression test: a bad row that was appended between the readings ended in a traceback."""
    path = tmp_path / "table.csv"
    path.write_bytes(b"one\ntwo\n")
    assert RowReader(path, [1, 2]).read(2) == b"two\n"
    for first_lines, line in (([1], 2), ([1, 2, 3], 3), ([1, 3], 2)):
        with pytest.raises(DataError, match="has changed while it was read: run the command again"):
            RowReader(path, first_lines).read(line)
