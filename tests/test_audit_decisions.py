"""auditing/decisions.py: decisions are read, checked and applied; all other bytes stay as they are."""

import csv
import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from audited_pairs import audited_errors
from hypothesis import given
from hypothesis import strategies as st

from pellucid.auditing.decisions import (
    AppliedDecisions,
    Decision,
    apply_decisions,
    cell_spans,
    exclude_decided,
    read_all_decisions,
    read_audited_table,
    read_decided_pairs,
    read_decisions,
)
from pellucid.auditing.types import Reason
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


@contextmanager
def background_writer(pipe: Path, content: bytes) -> Iterator[None]:
    """Write content to a named pipe in a thread during the block."""
    thread = threading.Thread(target=lambda: pipe.write_bytes(content), daemon=True)
    thread.start()
    yield
    thread.join(60.0)
    assert not thread.is_alive()


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
    decisions = [Decision(4, "b", "B", "remove"), Decision(6, "c", "C", "keep"), Decision(8, "e", "E", "replace", "C")]
    assert apply_decisions(path, DATA, decisions, path) == AppliedDecisions(1, 1, 1, 1)
    assert path.read_bytes().endswith(b"5;e;C;n")


def test_sources_are_corrected_alone_or_with_the_target(tmp_path: Path) -> None:
    changed = apply(
        tmp_path,
        Decision(2, "ab", 'A "x"', "replace", new_source='a;"b'),
        Decision(4, "b", "B", "replace", "BB", "bb"),
    )
    assert changed == CSV.replace(b"1;ab;", b'1;"a;""b";').replace(b"2;b;B;", b"2;bb;BB;")
    path = tmp_path / "words.tsv"
    path.write_bytes(b"\xef\xbb\xbf a\tA\r\nb\tB\r\n")
    apply_decisions(path, DataConfig(header=False), [Decision(1, " a", "A", "replace", new_source="a")], path)
    assert path.read_bytes() == b"\xef\xbb\xbfa\tA\r\nb\tB\r\n"


def test_new_texts_with_surrounding_spaces_or_new_symbols_are_named(tmp_path: Path) -> None:
    path = write_csv(tmp_path)
    decisions = [Decision(2, "ab", 'A "x"', "replace", "C "), Decision(4, "b", "B", "replace", "QC", "c")]
    assert apply_decisions(path, DATA, decisions, tmp_path / "corrected.csv").warnings == (
        f"{path}: new target with a space at the beginning or the end, in line 2",
        f"{path}: new target with ' ', a symbol that no other row has, in line 2",
        f"{path}: new target with 'Q', a symbol that no other row has, in line 4",
    )


def test_rows_that_were_kept_are_left_out_wherever_they_are(tmp_path: Path) -> None:
    records = audited_errors().records[:3]
    first, second = records[0].example, records[1].example
    text = f"line,source,target,decision,new_target\n999,{first.source},{first.target},keep,\n"
    text += f"{records[1].line},{second.source},{second.target},replace,X\n998,{second.source},other,keep,\n"
    kept = read_decided_pairs([write_decisions(tmp_path, text)])
    assert kept.kept == {(first.source, first.target), (second.source, "other")}
    assert kept.corrected == {(second.source, "X")}
    assert exclude_decided(records, kept) == records[1:]


def test_rows_that_have_become_their_correction_are_left_out_unless_they_repeat_another_row(tmp_path: Path) -> None:
    """Regression test: the first rows of the next audit were those that had just been corrected."""
    records = audited_errors().records[:3]
    first, second, third = (record.example for record in records)
    text = "line,source,target,decision,new_target,new_source\n"
    text += f"9,{first.source},wrong,replace,{first.target},\n8,wrong,{second.target},replace,,{second.source}\n"
    text += f"7,{third.source},{third.target},replace,X,\n"
    decided = read_decided_pairs([write_decisions(tmp_path, text)])
    assert exclude_decided(records, decided) == records[2:], "the third row is not yet corrected"
    repeated = replace(records[0], reasons=(Reason("duplicate", "twice"),))
    assert exclude_decided([repeated], decided) == [repeated]


def test_a_removed_first_line_keeps_the_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_bytes(b"\xef\xbb\xbfa\tA\nb\tB\n")
    apply_decisions(path, DataConfig(header=False), [Decision(1, "a", "A", "remove")], path)
    assert path.read_bytes() == b"\xef\xbb\xbfb\tB\n"


def test_a_first_row_keeps_its_invisible_first_character(tmp_path: Path) -> None:
    """Only the first of two U+FEFF at the start of a file is a byte order mark, which a reader removes."""
    path, data = tmp_path / "words.tsv", DataConfig(header=False)
    path.write_bytes("a\tA\n\ufeffc\tC\n".encode())
    apply_decisions(path, data, [Decision(1, "a", "A", "remove")], path)
    assert path.read_bytes() == "\ufeff\ufeffc\tC\n".encode()
    decision = Decision(1, "\ufeffc", "C", "replace", new_source="\ufeffd")
    apply_decisions(path, data, [decision], path)
    assert [row.source for row in read_audited_table(path, data).rows.values()] == ["\ufeffd"]


def test_an_invisible_first_character_of_a_later_row_is_its_text(tmp_path: Path) -> None:
    """Regression test: it was kept as if it were a byte order mark, and then belonged to the next row."""
    path, data = tmp_path / "words.tsv", DataConfig(header=False)
    path.write_bytes("a\tA\n\ufeffc\tC\n\ufeffd\tD\n".encode())
    decisions = [Decision(2, "\ufeffc", "C", "remove"), Decision(3, "\ufeffd", "D", "replace", new_source="e")]
    apply_decisions(path, data, decisions, path)
    assert path.read_bytes() == b"a\tA\ne\tD\n"


def test_a_row_that_would_be_blank_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_bytes(b"a\tA\n")
    with pytest.raises(DataError, match=r"words\.tsv:1: with the new texts, the row is a blank line: remove"):
        apply_decisions(path, DataConfig(header=False), [Decision(1, "a", "A", "replace", " ", " ")], path)
    assert path.read_bytes() == b"a\tA\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist on POSIX systems only")
def test_decisions_are_applied_to_a_pipe_which_has_no_second_reading(tmp_path: Path) -> None:
    """The content is longer than what one read of an unknown size returns (1 MiB)."""
    pipe, content = tmp_path / "words.tsv", b"a\tA\n" + (b"b\t" + b"B" * 200 + b"\n") * 6_000
    os.mkfifo(pipe)
    with background_writer(pipe, content):
        counts = apply_decisions(
            pipe, DataConfig(header=False), [Decision(1, "a", "A", "replace", "X")], tmp_path / "o"
        )
    assert counts.replaced == 1 and counts.undecided == 6_000
    assert (tmp_path / "o").read_bytes() == content.replace(b"A", b"X")


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
        (Decision(4, "b", "B", "replace", new_source="x\ny"), "the new source 'x.ny' has a line break"),
        (Decision(7, "d", "", "remove"), "words.csv:7: this line is bad, so that .*: expected 4 columns"),
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


def test_a_column_of_new_sources_is_read(tmp_path: Path) -> None:
    path = write_decisions(
        tmp_path, "new_source,line,source,target,decision,new_target\n,2,a,A,keep,\n\nB,3,b,B,replace,\n"
    )
    assert read_decisions(path) == [Decision(2, "a", "A", "keep"), Decision(3, "b", "B", "replace", "", "B")]
    write_decisions(tmp_path, "line,source,target,decision,new_target,new_source\n2,a,A,keep,,B\n")
    with pytest.raises(DataError, match=":2: the decision keep has no new_target and no new_source"):
        read_decisions(path)
    write_decisions(tmp_path, "line,source,target,decision,new_target,new_source,new_source\n2,a,A,keep,,,\n")
    with pytest.raises(DataError, match="2 columns are named 'new_source': keep one"):
        read_decisions(path)


def test_files_of_several_editors_are_joined_unless_they_differ_on_a_line(tmp_path: Path) -> None:
    header, paths = "line,source,target,decision,new_target\n", [tmp_path / f"{name}.csv" for name in "abc"]
    for path, rows in zip(paths, ("2,a,A,keep,\n", "3,b,B,remove,\n2,a,A,keep,\n", "3,b,B,keep,\n"), strict=True):
        path.write_text(header + rows)
    kept, removed = Decision(2, "a", "A", "keep"), Decision(3, "b", "B", "remove")
    assert read_all_decisions(paths[:2]) == [kept, removed] and read_all_decisions(paths[:1]) == [kept]
    with pytest.raises(DataError, match=r"c\.csv:\d+: the decision on line 3 is not that of .*b\.csv:\d+: keep one"):
        read_all_decisions(paths)


def test_decisions_are_read_from_any_csv_with_their_columns(tmp_path: Path) -> None:
    text = "rank;new_target;line;source;target;decision\n1;X;2;a;A;Replace\n2;;3;b;B;\n3;;4;c;C;keep\n"
    path = write_decisions(tmp_path, text)
    assert read_decisions(path) == [Decision(2, "a", "A", "replace", "X"), Decision(4, "c", "C", "keep")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2,a,A,change,X", ":2: the decision is 'change'; expected replace, keep, remove"),
        ("2,a,A,,X", ":2: the new target 'X' has no decision: write replace"),
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


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            "line,source,target,decision",
            "no column 'new_target' among 'line', 'source', 'target', 'decision'; did you mean 'target'?",
        ),
        ("line,source,target,decision,decision,new_target", "2 columns are named 'decision': keep one"),
    ],
)
def test_messages_about_columns_of_decisions_name_no_flags(tmp_path: Path, header: str, message: str) -> None:
    path = tmp_path / "decisions.csv"
    path.write_text(header + "\n", "utf-8")
    with pytest.raises(DataError) as caught:
        read_decisions(path)
    assert str(caught.value) == f"{path}: {message}"


def test_contradictions_of_two_files_name_the_lines_of_both(tmp_path: Path) -> None:
    """Regression test: only the line of the audited file was named."""
    header = "line,source,target,decision,new_target\n"
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text(header + "2,a,A,keep,\n4,b,B,keep,\n", "utf-8")
    second.write_text(header + "4,b,B,remove,\n", "utf-8")
    with pytest.raises(DataError) as caught:
        read_all_decisions([first, second])
    assert str(caught.value) == f"{second}:2: the decision on line 4 is not that of {first}:3: keep one"
