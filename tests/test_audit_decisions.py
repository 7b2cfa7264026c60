"""auditing/decisions.py: decisions are read, checked and applied; all other bytes stay as they are."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.auditing.decisions import AppliedDecisions, Decision, apply_decisions, cell_spans, read_decisions
from pellucid.config.settings import DataConfig
from pellucid.errors import DataError

CSV = b'\xef\xbb\xbfid;word;"ipa";note\r\n1;ab;"A ""x""";n\r\n\r\n2;b;B;"two\r\nlines"\r\n3;c;C;\n4;d\n5;e;E;n'
DATA = DataConfig(header=True, source_column="word", target_column="ipa", on_bad_line="skip")


def write_csv(tmp_path: Path) -> Path:
    path = tmp_path / "words.csv"
    path.write_bytes(CSV)
    return path


def apply(tmp_path: Path, *decisions: Decision) -> bytes:
    output = tmp_path / "corrected.csv"
    apply_decisions(write_csv(tmp_path), DATA, decisions, output)
    return output.read_bytes()


def test_without_decisions_the_file_is_the_same_to_the_byte(tmp_path: Path) -> None:
    assert apply(tmp_path) == apply(tmp_path, Decision(4, "b", "B", "keep")) == CSV


def test_only_the_cells_and_rows_of_decisions_change(tmp_path: Path) -> None:
    changed = apply(
        tmp_path,
        Decision(2, "ab", 'A "x"', "replace", 'é "y"'),
        Decision(4, "b", "B", "remove"),
        Decision(6, "c", "C", "replace", "C;D"),
        Decision(8, "e", "E", "replace", "F"),
    )
    expected = CSV.replace(b'"A ""x"""', 'é ""y""'.join('""').encode()).replace(b'2;b;B;"two\r\nlines"\r\n', b"")
    assert changed == expected.replace(b"3;c;C;", b'3;c;"C;D";').replace(b"5;e;E", b"5;e;F")


def test_counts_are_returned_and_a_file_may_replace_itself(tmp_path: Path) -> None:
    path = write_csv(tmp_path)
    decisions = [Decision(4, "b", "B", "remove"), Decision(6, "c", "C", "keep"), Decision(8, "e", "E", "replace", "F")]
    assert apply_decisions(path, DATA, decisions, path) == AppliedDecisions(1, 1, 1, 1)
    assert path.read_bytes().endswith(b"5;e;F;n")


def test_a_removed_first_line_keeps_the_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_bytes(b"\xef\xbb\xbfa\tA\nb\tB\n")
    apply_decisions(path, DataConfig(header=False), [Decision(1, "a", "A", "remove")], path)
    assert path.read_bytes() == b"\xef\xbb\xbfb\tB\n"


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (
            Decision(4, "b", "X", "remove"),
            "words.csv:4: the decision is on 'b' with the target 'X', but the line has 'b'",
        ),
        (Decision(5, "b", "B", "remove"), "words.csv:5: no pair begins in this line"),
        (Decision(99, "b", "B", "remove"), "words.csv:99: no pair begins in this line"),
        (Decision(4, "b", "B", "replace", "x\ny"), "line break"),
    ],
)
def test_a_decision_that_does_not_fit_is_named_and_nothing_is_written(
    tmp_path: Path, decision: Decision, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        apply(tmp_path, Decision(6, "c", "C", "remove"), decision)
    assert [path.name for path in tmp_path.iterdir()] == ["words.csv"]


def test_tabs_have_no_place_in_tsv_and_other_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text('a\t"A\nb\tB\n')
    apply_decisions(path, DataConfig(header=False), [Decision(1, "a", '"A', "replace", '"B')], path)
    assert path.read_text() == 'a\t"B\nb\tB\n'
    with pytest.raises(DataError, match="or a tab"):
        apply_decisions(path, DataConfig(header=False), [Decision(2, "b", "B", "replace", "x\ty")], path)
    with pytest.raises(DataError, match="not to jsonl: convert the file first"):
        apply_decisions(tmp_path / "words.jsonl", DataConfig(), [], path)


def write_decisions(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "decisions.csv"
    path.write_text(text)
    return path


def test_decisions_are_read_from_any_csv_with_their_columns(tmp_path: Path) -> None:
    text = "rank;new_target;line;source;target;decision\n1;X;2;a;A;Replace\n2;;3;b;B;\n3;;4;c;C;keep\n"
    path = write_decisions(tmp_path, text)
    assert read_decisions(path) == [Decision(2, "a", "A", "replace", "X"), Decision(4, "c", "C", "keep")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2,a,A,change,X", ":2: the decision is 'change'; expected replace, keep, remove"),
        ("2,a,A,,X", ":2: the decision is ''"),
        ("2,a,A,replace,", ":2: the decision replace needs a new_target"),
        ("2,a,A,keep,X", ":2: the decision keep has no new_target"),
        ("two,a,A,keep,", ":2: the line is 'two'; expected a whole number"),
        ("2,a,A,keep,\n2,a,A,remove,", ":3: a second, different decision on line 2"),
        ("2,a", ":2: expected 5 columns"),
    ],
)
def test_a_row_that_is_no_decision_is_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_decisions(write_decisions(tmp_path, f"line,source,target,decision,new_target\n{row}\n"))


@given(st.lists(st.text('a;"\n ', max_size=4), min_size=2, max_size=4), st.sampled_from(["\n", "\r\n", ""]))
def test_cell_spans_hold_the_cells_of_csv(cells: list[str], end: str) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=";", lineterminator="\r\n").writerow(cells)  # which quotes cells with line ends
    record = text.getvalue().removesuffix("\r\n") + end
    found = [record[start:stop] for start, stop in cell_spans(record, ";", has_quotes=True)]
    assert [cell[1:-1].replace('""', '"') if cell.startswith('"') else cell for cell in found] == cells
