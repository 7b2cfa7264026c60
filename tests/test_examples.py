"""Reading pairs: every line is an example, a bad line with its reason, or a counted blank line."""

import csv
import gzip
import io
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_data import PUBLISHED_DATA

from pellucid.config.settings import DataConfig, Format
from pellucid.data.examples import (
    Example,
    InputFormat,
    describe_used_columns,
    parse_pairs,
    parse_sources,
    read_examples,
    read_grouped_examples,
    read_lexicon_examples,
    read_pairs,
    read_sources,
)
from pellucid.data.readers import BadLine, ColumnSelection, csv_records, parquet_records, resolve_format
from pellucid.errors import ArgumentError, ConfigError, DataError

CONFIG = DataConfig()
SKIP_CONFIG = DataConfig(on_bad_line="skip")
FEATURES_CONFIG = DataConfig(features_column="3")
NAMED_COLUMNS_CONFIG = DataConfig(header=True, source_column="word", target_column="sound")
SOURCE_SETTING = "(--source-column, data.source_column)"
TARGET_SETTING = "(--target-column, data.target_column)"
SKIP_HINT = '; --on-bad-line skip (data.on_bad_line = "skip") skips and counts such lines'

FIELD_TEXT = st.text(st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=30)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes bytes (or text as UTF-8) to a named file, compressed if the name ends in .gz."""

    def write_file(content: bytes | str, name: str = "train.tsv") -> Path:
        path = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write_file


def test_a_parquet_file_of_very_many_columns_is_refused(tmp_path: Path) -> None:
    """Regression test: the description of a column in a file of some megabytes took 150 times its size in memory."""
    path = write_parquet(tmp_path / "x.parquet", pa.table({f"c{n}": pa.array([], pa.string()) for n in range(10_001)}))
    with pytest.raises(DataError, match=r"x\.parquet has 10,001 columns, and at most 10,000 are read from Parquet"):
        read_examples(path, DataConfig())


def write_parquet(path: Path, columns: dict[str, Sequence[object]] | pa.Table) -> Path:
    """Write a Parquet file."""
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path)
    return path


def error_message(path: Path, config: DataConfig = CONFIG, target: Path | None = None) -> str:
    """Return the message of the error that reading raises, without the folder and the usual hint."""
    with pytest.raises(DataError) as caught:
        read_examples(path, config, target)
    return str(caught.value).replace(f"{path.parent}{os.sep}", "").removesuffix(SKIP_HINT)


def bad_lines(path: Path, config: DataConfig = SKIP_CONFIG) -> list[tuple[int, str]]:
    """Return the line number and the reason of each bad line."""
    return [(bad.line, bad.reason) for bad in read_examples(path, config).bad_lines]


def read_tuples(path: Path, config: DataConfig = CONFIG) -> list[tuple[str, ...]]:
    """Return the examples as plain tuples, without empty features."""
    return [tuple(example if example.features else example[:2]) for example in read_examples(path, config).examples]


# ---- formats


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.tsv", "tsv"),
        ("a.TSV.GZ", "tsv"),
        ("a.csv", "csv"),
        ("a.csv.gz", "csv"),
        ("a.jsonl", "jsonl"),
        ("a.ndjson.gz", "jsonl"),
        ("a.parquet", "parquet"),
        ("a.parquet.gz", "parquet"),
        ("a.txt", "tsv"),
        ("csv", "tsv"),
        ("wd_arabic_16", "tsv"),
    ],
)
def test_auto_uses_the_file_name(name: str, expected: Format) -> None:
    assert resolve_format(Path("folder.csv") / name, CONFIG) == expected


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl", "parquet", "text"])
def test_a_configured_format_overrides_the_file_name(format: Format) -> None:
    assert resolve_format(Path("a.parquet"), DataConfig(input_format=format)) == format


def test_text_needs_a_second_file(write: Write) -> None:
    path = write("a\n")
    with pytest.raises(ConfigError) as caught:
        read_examples(path, DataConfig(input_format="text"))
    expected = f'data.input_format = "text" needs two parallel files: give the file of targets as well as {path}'
    assert str(caught.value) == expected


# ---- the same pairs in every format

CSV = 'cat,k æ t\n"a,b","c ""d"""\n'
JSON = '{"s": "cat", "t": "k æ t"}\n{"s": "a,b", "t": "c \\"d\\""}\n'


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "content"),
    [("x.tsv", 'cat\tk æ t\na,b\tc "d"\n'), ("x.csv", CSV), ("x.jsonl", JSON), ("x.ndjson", JSON)],
)
def test_formats_agree(write: Write, name: str, content: str, ending: str) -> None:
    reading = read_examples(write(content, name + ending), CONFIG)
    assert reading == ([("cat", "k æ t", ""), ("a,b", 'c "d"', "")], [1, 2], [], 0)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_parquet_agrees_with_the_other_formats(tmp_path: Path, write: Write, ending: str) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"s": ["cat", "a,b"], "t": ["k æ t", 'c "d"']})
    if ending:
        path = write(path.read_bytes(), "y.parquet.gz")
    assert read_examples(path, CONFIG) == ([("cat", "k æ t", ""), ("a,b", 'c "d"', "")], [1, 2], [], 0)


def test_gzip_is_detected_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "plainly_named.tsv"
    path.write_bytes(gzip.compress(b"a\tb\n") + gzip.compress(b"c\td\n"))
    assert read_tuples(path) == [("a", "b"), ("c", "d")]


def test_features_are_a_third_column(write: Write, tmp_path: Path) -> None:
    expected = [("go", "went", "V;PST")]
    assert read_tuples(write("go\twent\tV;PST\n"), FEATURES_CONFIG) == expected
    assert read_tuples(write("go,went,V;PST\n", "x.csv"), FEATURES_CONFIG) == expected
    assert read_tuples(write('{"a": "go", "b": "went", "c": "V;PST"}\n', "x.jsonl"), FEATURES_CONFIG) == expected
    assert (
        read_tuples(
            write_parquet(tmp_path / "x.parquet", {"a": ["go"], "b": ["went"], "c": ["V;PST"]}), FEATURES_CONFIG
        )
        == expected
    )


def test_empty_features_are_valid(write: Write) -> None:
    assert read_tuples(write("go\tgo\t\n"), FEATURES_CONFIG) == [("go", "go")]


def test_columns_by_number_in_any_order_and_twice(write: Write) -> None:
    path = write("a\tb\tc\n")
    assert read_tuples(path, DataConfig(source_column="3", target_column="1")) == [("c", "a")]
    assert read_tuples(path, DataConfig(source_column="3", target_column="3")) == [("c", "c")]


# ---- TSV: exact fields


@given(st.lists(st.tuples(FIELD_TEXT, FIELD_TEXT), max_size=8))
def test_tsv_fields_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    # The full stop prevents a blank line.
    rows = [("first", "row"), *((source, target + ".") for source, target in rows)]
    path = tmp_path_factory.mktemp("tsv") / "x.tsv"
    path.write_bytes("".join(f"{source}\t{target}\n" for source, target in rows).encode())
    reading = read_examples(path, CONFIG)
    assert [example[:2] for example in reading.examples] == rows
    assert reading.line_numbers == list(range(1, len(rows) + 1))


@pytest.mark.parametrize(
    "field",
    [
        '"quoted',
        'a "b" c',
        "'",
        "a\u2028b",
        "a\x0bb",
        "a\x0cb",
        "a\x85b",
        "a\x1cb",
        " padded ",
        "\\n",
        "#",
        "\ufeff",
    ],
)
def test_tsv_has_no_special_characters(write: Write, field: str) -> None:
    assert read_tuples(write(f"x\ty\n{field}\tz\nz\t{field}\n")) == [("x", "y"), (field, "z"), ("z", field)]


def test_white_space_is_a_valid_text(write: Write) -> None:
    assert read_tuples(write(" \tspace\n\u3000\t\u00a0\n")) == [(" ", "space"), ("\u3000", "\u00a0")]


def test_windows_line_ends_and_a_missing_last_newline_are_accepted(write: Write) -> None:
    assert read_examples(write(b"a\tb\r\n\r\nc\td\r\ne\tf"), CONFIG) == (
        [("a", "b", ""), ("c", "d", ""), ("e", "f", "")],
        [1, 3, 4],
        [],
        1,
    )


@pytest.mark.parametrize(
    ("content", "bad"),
    [
        (b"a\tb\rc\td\re\tf\n", {1: 4}),
        (b"a\tb\nc\td\re\tf\r", {2: 4}),
        (b"a\tb\nc\td\r\r\ne\tf", {2: 4}),
        (b"a\rb", {1: 2}),
    ],
)
def test_a_carriage_return_within_a_line_makes_it_bad(write: Write, content: bytes, bad: dict[int, int]) -> None:
    """Text between carriage returns is not part of an example, also in files with several kinds of line ends."""
    expected = {
        line: f"carriage returns without newlines do not end lines (the first is byte {byte}): "
        "save the file with newlines"
        for line, byte in bad.items()
    }
    for items in (read_sources(write(content), CONFIG), parse_sources(io.BytesIO(content), "<stdin>", CONFIG)):
        assert {item.line: item.reason for item in items if isinstance(item, BadLine)} == expected


@pytest.mark.parametrize(
    ("name", "content"), [("x.tsv", "a\tb\n"), ("x.csv", '"a",b\n'), ("x.jsonl", '{"s":"a","t":"b"}')]
)
def test_a_byte_order_mark_is_removed(write: Write, name: str, content: str) -> None:
    assert read_tuples(write("\ufeff" + content, name)) == [("a", "b")]
    assert read_tuples(write("\ufeff" + content, name + ".gz")) == [("a", "b")]


def test_blank_lines_are_counted_and_numbered(write: Write) -> None:
    reading = read_examples(write("\na\tb\n \t \n\r\nc\td\n\n"), CONFIG)
    assert reading == ([("a", "b", ""), ("c", "d", "")], [2, 5], [], 4)


def test_additional_columns_are_ignored(write: Write) -> None:
    assert read_tuples(write("a\tb\tc\nd\te\tf\n")) == [("a", "b"), ("d", "e")]


def test_unused_columns_are_reported(write: Write) -> None:
    expected = "the file has 4 columns; used are 1 as source, 2 as target"
    assert describe_used_columns(write("\na\tb\tc\td\n", "a.tsv"), CONFIG) == expected
    assert describe_used_columns(write('"a,a",b,c,d\n', "a.csv"), CONFIG) == expected
    assert describe_used_columns(write("a\tb\tc\n", "b.tsv"), FEATURES_CONFIG) == ""
    assert describe_used_columns(write("a\tb\n", "c.tsv"), CONFIG) == ""
    named = "the file has 3 columns; used are 'word' as source, 'sound' as target"
    assert describe_used_columns(write("c\tword\tsound\na\tb\tc\n", "d.tsv"), NAMED_COLUMNS_CONFIG) == named
    numbered = "the file has 3 columns; used are 'c' as source, 'word' as target"
    assert describe_used_columns(write("c\tword\tsound\na\tb\tc\n", "d.tsv"), DataConfig(header=True)) == numbered
    assert describe_used_columns(write('{"1": "a", "2": "b", "c": "d"}\n', "e.jsonl"), CONFIG) == ""


def test_a_line_with_another_number_of_columns_is_bad(write: Write) -> None:
    with pytest.raises(DataError, match=":2: expected 3 columns as in line 1, got 2"):
        read_tuples(write("a\tb\tc\nd\te\n"))
    with pytest.raises(DataError, match=":2: expected 2 columns as in line 1, got 3"):
        read_tuples(write("a\tb\nd\te\tf\n"))


# ---- bad lines

TEXT_HINT = (
    ": is this a binary file, or text in another encoding (convert the file to UTF-8, or only this line if the others "
    "are UTF-8)?"
)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"alone", "expected 2 columns, got 1 (tabs separate columns)"),
        (b"a b", "expected 2 columns, got 1 (tabs separate columns)"),
        (b"\x0c", "expected 2 columns, got 1 (tabs separate columns)"),
        (b"\tb", "the source is empty"),
        (b"a\t", "the target is empty"),
        (b"a\tb\tc", "expected 2 columns as in line 1, got 3"),
        (b"caf\xe9\tb", "invalid UTF-8 at byte 4 (0xe9) after 'caf'" + TEXT_HINT),
        (b"a\tb\xed\xa0\x80", "invalid UTF-8 at byte 4 (0xed) after 'a\\tb'" + TEXT_HINT),
        (b"a\tb\xc3", "invalid UTF-8 at byte 4 (0xc3) after 'a\\tb'" + TEXT_HINT),
        (b"a\0\tb", "NUL byte at byte 2: is this a binary or UTF-16 file?"),
        (b"x" * 1001 + b"\tb", "the source has 1001 symbols, more than data.max_sequence_length = 1000"),
        (b"a\t" + b"y" * 200_000, "the target has 200000 symbols, more than data.max_sequence_length = 1000"),
    ],
)
def test_a_bad_line_stops_or_is_skipped_with_its_number(write: Write, line: bytes, reason: str) -> None:
    path = write(b"a\tb\n\n" + line + b"\nc\td\n")
    with pytest.raises(DataError) as caught:
        read_examples(path, CONFIG)
    assert str(caught.value) == f"{path}:3: {reason}{SKIP_HINT}"
    expected = ([("a", "b", ""), ("c", "d", "")], [1, 4], [BadLine(str(path), 3, reason)], 1)
    assert read_examples(path, SKIP_CONFIG) == expected


def test_a_bad_line_is_formatted_like_a_compiler_message() -> None:
    assert str(BadLine("train.tsv", 17, "the target is empty")) == "train.tsv:17: the target is empty"


def test_the_last_selected_column_determines_the_required_number(write: Write) -> None:
    expected = "train.tsv:1: expected 3 columns, got 2 (tabs separate columns)"
    assert error_message(write("a\tb\n"), FEATURES_CONFIG) == expected


def test_lengths_count_symbols_not_characters(write: Write) -> None:
    path = write("abcdef\ta b c\n" + "abc\ta b c d\n" + "abcd\t \x0b \n" + "a\u0301e\u0301i\u0301\tx\n")
    config = DataConfig(target_symbols="words", max_sequence_length=3, on_bad_line="skip")
    reading = read_examples(path, config)
    assert reading.examples == [("a\u0301e\u0301i\u0301", "x", "")]
    assert [(bad.line, bad.reason) for bad in reading.bad_lines] == [
        (1, "the source has 6 symbols, more than data.max_sequence_length = 3"),
        (2, "the target has 4 symbols, more than data.max_sequence_length = 3"),
        (3, "the source has 4 symbols, more than data.max_sequence_length = 3"),
    ]


def test_white_space_has_no_words(write: Write) -> None:
    config = DataConfig(target_symbols="words")
    assert error_message(write("abcd\t \x0b \n"), config) == "train.tsv:1: the target is empty"


def test_a_text_of_the_maximum_length_is_valid(write: Write) -> None:
    assert read_tuples(write("x" * 1000 + "\t" + "y" * 1000 + "\n")) == [("x" * 1000, "y" * 1000)]


def test_a_long_line_is_valid_with_a_higher_maximum(write: Write) -> None:
    words = ["x" * 10_000] * 20  # more characters than Python's CSV reader accepts in a cell
    config = DataConfig(source_symbols="words", max_sequence_length=20)
    long = " ".join(words)
    for name, content in [
        ("x.tsv", f"{long}\ty\n"),
        ("x.csv", f'"{long}",y\n'),
        ("x.jsonl", f'{{"s":"{long}","t":"y"}}'),
    ]:
        assert read_tuples(write(content, name), config) == [(long, "y")]
    assert csv.field_size_limit() == 131_072


def test_field_size_limit_of_the_process_has_no_effect() -> None:
    """Regression test: another thread that read CSV restored the limit while a long record was read, which was bad."""

    def lines() -> Iterator[bytes]:
        yield b'"long\n'
        csv.field_size_limit(3)
        yield b'field",y\n'

    limit = csv.field_size_limit()
    try:
        records = list(csv_records(lines(), ColumnSelection({"source": "1", "target": "2"}, delimiter=","), "x.csv"))
    finally:
        csv.field_size_limit(limit)
    assert records == [(1, ["long\nfield", "y"])]


# ---- invalid files


@pytest.mark.parametrize("name", ["train.tsv", "train.csv", "train.jsonl", "train.tsv.gz"])
def test_an_empty_file_is_an_error(write: Write, name: str) -> None:
    assert error_message(write("", name)) == f"{name} contains no example: it is empty"


def test_an_empty_file_named_gz_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.tsv.gz").touch()
    assert error_message(tmp_path / "x.tsv.gz") == "x.tsv.gz contains no example: it is empty"


def test_only_blank_lines_are_an_error(write: Write) -> None:
    assert error_message(write("\n \n\t\n")) == "train.tsv contains no example: all its lines are blank (3)"


def test_only_bad_lines_are_an_error(write: Write) -> None:
    path = write("a\nb\n")
    first = "expected 2 columns, got 1 (tabs separate columns)"
    assert (
        error_message(path, SKIP_CONFIG)
        == f"train.tsv contains no example: 2 bad lines; the first: train.tsv:1: {first}"
    )
    path = write("\na\nb\n")
    expected = f"train.tsv contains no example: 2 bad lines, 1 blank; the first: train.tsv:2: {first}"
    assert error_message(path, SKIP_CONFIG) == expected


def test_only_a_header_is_an_error(write: Write) -> None:
    assert (
        error_message(write("word\tsound\n"), NAMED_COLUMNS_CONFIG)
        == "train.tsv contains no example: it is empty below the header"
    )


@pytest.mark.parametrize("name", ["train.tsv", "train.csv", "train.tsv.gz"])
def test_an_empty_file_is_not_empty_below_a_header(write: Write, name: str) -> None:
    """Regression test: it was said to have a header."""
    empty = f"{name} contains no example: it is empty"
    assert error_message(write("", name), NAMED_COLUMNS_CONFIG) == empty
    assert error_message(write("\ufeff", name), NAMED_COLUMNS_CONFIG) == empty
    with pytest.raises(DataError, match=f"{re.escape(empty)}$"):
        read_lexicon_examples(write("", name), NAMED_COLUMNS_CONFIG)
    with pytest.raises(DataError, match=r"it is empty below the header$"):
        header = "word,sound\n" if name == "train.csv" else "word\tsound\n"
        read_lexicon_examples(write(header, name), NAMED_COLUMNS_CONFIG)


@pytest.mark.parametrize("name", ["trian.tsv", "trian.csv", "trian.jsonl", "trian.parquet"])
def test_a_missing_file_is_reported_with_a_similar_name(write: Write, tmp_path: Path, name: str) -> None:
    write("a\tb\n", name.replace("trian", "train"))
    similar = name.replace("trian", "train")
    assert error_message(tmp_path / name) == f"cannot read {name}: no such file or directory; did you mean {similar!r}?"


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "none" / "x.tsv"
    assert error_message(path) == "cannot read x.tsv: no such file or directory"


def test_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert error_message(tmp_path / "data") == "cannot read data: is a directory"


def test_missing_permission_is_reported(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    path = write("a\tb\n")
    monkeypatch.setattr(Path, "open", refuse)
    assert error_message(path) == "cannot read train.tsv: permission denied"


@pytest.mark.parametrize("name", ["x.tsv", "x.csv", "x.jsonl", "x.tsv.gz"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_reported(write: Write, name: str, encoding: str) -> None:
    expected = f"{name} is UTF-16 text: save it as plain text in UTF-8"
    assert error_message(write("\ufeffa\tb\n".encode(encoding), name)) == expected
    without_mark = error_message(write("a\tb\n".encode(encoding), name))
    assert re.fullmatch(rf"{name}:1: NUL byte at byte [12]: is this a binary or UTF-16 file\?", without_mark)


def test_a_workbook_is_reported(write: Write) -> None:
    assert error_message(write(b"PK\x03\x04rest", "book.tsv")) == (
        "book.tsv is a zip archive or an Excel workbook: save it as plain text in UTF-8"
    )


@pytest.mark.parametrize("name", ["x.tsv", "x.csv", "x.jsonl"])
def test_a_binary_file_is_reported(write: Write, name: str) -> None:
    assert (
        error_message(write(b"\x89PNG\r\n\x1a\n\0\0", name)) == f"{name}:1: invalid UTF-8 at byte 1 (0x89){TEXT_HINT}"
    )
    every_byte = error_message(write(bytes(range(256)) * 4, name))
    assert every_byte == f"{name}:1: NUL byte at byte 1: is this a binary or UTF-16 file?"


def test_damaged_gzip_is_reported(write: Write) -> None:
    content = write("".join(f"{i}\t{i}\n" for i in range(5000)), "x.tsv.gz").read_bytes()
    path = write("", "y.tsv.gz")
    path.write_bytes(content[:-4000])
    expected = r"cannot read y\.tsv\.gz beyond line \d+: the gzip file is damaged or cut short \("
    assert re.match(expected, error_message(path))
    path.write_bytes(content[:1000] + b"\xff" * 100 + content[1100:])
    assert re.match(expected, error_message(path, SKIP_CONFIG))
    path.write_bytes(content[:-8] + b"\0" * 8)
    expected = "cannot read y.tsv.gz beyond line 5000: the gzip file is damaged or cut short (CRC check failed"
    assert error_message(path).startswith(expected)


def test_plain_text_named_gz_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv.gz"
    path.write_text("a\tb\n")
    assert error_message(path) == "x.tsv.gz is named .gz but not compressed with gzip: rename it"


@pytest.mark.parametrize("compressed", [False, True])
def test_a_pipe_is_read_like_a_file(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[gzip.compress(b"a\tb\n") if compressed else b"a\tb\n"])
    writer.start()
    assert read_tuples(path) == [("a", "b")]
    writer.join()


# ---- CSV


def csv_bytes(rows: Sequence[Sequence[str]]) -> bytes:
    """Return rows as Python's csv writer formats them."""
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    return file.getvalue().encode()


@given(st.lists(st.tuples(ANY_TEXT.filter(lambda text: "\0" not in text), FIELD_TEXT), max_size=8))
def test_csv_fields_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    rows = [("first", "row"), *rows]
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(csv_bytes(rows))
    reading = read_examples(path, CONFIG)
    assert [example[:2] for example in reading.examples] == rows
    assert reading.line_numbers == [1 + csv_bytes(rows[:count]).count(b"\n") for count in range(len(rows))]


def test_csv_records_have_the_number_of_their_first_line(write: Write) -> None:
    path = write('a,"b\r\nb"\r\n\r\n"c\n\nc",d\n,\n   \ne,f', "x.csv")
    reading = read_examples(path, SKIP_CONFIG)
    assert reading.examples == [("a", "b\r\nb", ""), ("c\n\nc", "d", ""), ("e", "f", "")]
    assert reading.line_numbers == [1, 4, 9]
    assert [(bad.line, bad.reason) for bad in reading.bad_lines] == [(7, "the source is empty")]
    assert reading.num_blank_lines == 2


def test_invalid_csv_is_reported(write: Write) -> None:
    lines = [b'a,"b" c', b"d,e", b"f,g\rh", b"i", b"j,\xff", b"k,\0", b'l,"\xff', b'l"', b'm,"n', b"o,p"]
    path = write(b"\n".join(lines), "x.csv")
    assert read_tuples(path, SKIP_CONFIG) == [("d", "e")]
    assert bad_lines(path) == [
        (1, "not valid CSV: ',' expected after '\"'"),
        (3, "not valid CSV: a carriage return outside quotes does not end a line"),
        (4, "expected 2 columns, got 1 (commas separate columns)"),
        (5, "invalid UTF-8 at byte 3 (0xff) after 'j,'" + TEXT_HINT),
        (6, "NUL byte at byte 3: is this a binary or UTF-16 file?"),
        (7, "invalid UTF-8 at byte 4 (0xff) after 'l,\"'" + TEXT_HINT),
        (9, "not valid CSV: unexpected end of data; lines 9 to 10 were read as one record: is a quote missing?"),
    ]


def test_csv_reports_a_quote_that_spans_lines(write: Write) -> None:
    path = write('a,"b\n' + "c,d\n" * 300 + 'e,f"\ng,h\n', "x.csv")
    assert read_tuples(path, SKIP_CONFIG) == [("g", "h")]
    spans = "(it spans 302 lines: is a quote missing?)"
    assert bad_lines(path) == [(1, f"the target has 1205 symbols {spans}, more than data.max_sequence_length = 1000")]


# ---- JSON lines


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=8), st.booleans())
def test_json_values_round_trip(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], ascii_only: bool
) -> None:
    path = tmp_path_factory.mktemp("json") / "x.jsonl"
    lines = [json.dumps({"s": source, "t": target}, ensure_ascii=ascii_only) for source, target in rows]
    path.write_bytes("\n".join(lines).encode())
    assert read_tuples(path) == rows


def test_json_keys_by_name_or_number(write: Write) -> None:
    path = write('{"id": 7, "word": "a", "sound": "b"}\n{"sound": "d", "word": "c", "id": 8}\n', "x.jsonl")
    assert read_tuples(path, DataConfig(source_column="word", target_column="sound")) == [("a", "b"), ("c", "d")]
    reading = read_examples(path, DataConfig(source_column="2", target_column="3", on_bad_line="skip"))
    assert reading.examples == [("a", "b", ""), ("c", "d", "")]
    assert reading.bad_lines == []


def test_numbers_select_the_keys_of_the_first_object(write: Write) -> None:
    """Regression test: the numbers were those of each object, so that an object with another order was swapped."""
    lines = ['{"a": "1", "b": "2"}', '{"b": "4", "a": "3"}', '{"id": "x", "a": "5", "b": "6"}', '{"b": "8"}']
    path = write("\n".join([*lines, lines[0]]) + "\n", "x.jsonl")
    assert read_tuples(path, SKIP_CONFIG) == [("1", "2"), ("3", "4"), ("5", "6"), ("1", "2")]
    reason = f"expected 'a', which is column 1 {SOURCE_SETTING} of line 1, among 'b'; line 1 has 'a', 'b'"
    assert bad_lines(path) == [(4, reason)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"s": "a"}', f"expected 't', which is column 2 {TARGET_SETTING} of line 1, among 's'; line 1 has 's', 't'"),
        ("{}", f"expected 's', which is column 1 {SOURCE_SETTING} of line 1, among none; line 1 has 's', 't'"),
        ('{"s": "a", "t": null}', "the value of 't' is null, not a string"),
        ('{"s": "a", "t": true}', "the value of 't' is true, not a string"),
        ('{"s": "a", "t": false}', "the value of 't' is false, not a string"),
        ('{"s": 1.5, "t": "b"}', "the value of 's' is a number, not a string"),
        ('{"s": ["a"], "t": "b"}', "the value of 's' is an array, not a string"),
        ('{"s": {}, "t": "b"}', "the value of 's' is an object, not a string"),
        ('["a", "b"]', "expected a JSON object, got an array"),
        ('"a"', "expected a JSON object, got a string"),
        ("a\tb", "not valid JSON: invalid character (byte 0)"),
        ('{"s": "a"', "not valid JSON: Input data was truncated"),
        ('{"s": "", "t": "b"}', "the source is empty"),
        ('{"s": ' + "1" * 5000 + ', "t": "b"}', "the value of 's' is a number, not a string"),
        ("[" * 5000, "not valid JSON: maximum recursion depth exceeded while deserializing an object"),
        ('{"s": "a", "t": "b", "s": "c"}', "the key 's' occurs twice"),
        ('{"s": "a", "t": "b", "n": 1, "n": ' + "1" * 5000 + "}", "the key 'n' occurs twice"),
        (r'{"s": "a", "t": "b", "q\"": [], "\u0073": "c"}', "the key 's' occurs twice"),
        ('{"s": "\0", "t": "b"}', "NUL byte at byte 8: is this a binary or UTF-16 file?"),
    ],
)
def test_invalid_json_is_reported(write: Write, line: str, reason: str) -> None:
    path = write('{"s": "a", "t": "b"}\n' + line + '\n\n{"s": "c", "t": "d"}', "x.jsonl")
    reading = read_examples(path, SKIP_CONFIG)
    assert (read_tuples(path, SKIP_CONFIG), reading.line_numbers, reading.num_blank_lines) == (
        [("a", "b"), ("c", "d")],
        [1, 4],
        1,
    )
    assert bad_lines(path) == [(2, reason)]


@pytest.mark.parametrize(
    "line", [r'{"s": "\"", "t": "b", "q\"": 1}', r'{"s": "\"", "t": "b", "o": {"s": 1, "t": {"s": 2}}}']
)
def test_keys_with_quotation_marks_and_nested_keys_are_not_repeated(write: Write, line: str) -> None:
    assert read_tuples(write(line, "x.jsonl"), SKIP_CONFIG) == [('"', "b")]


@pytest.mark.parametrize("value", ["1" * 5000, "-" + "1" * 5000, "1" * 5000 + ".5", "1e9999"])
def test_unused_json_numbers_may_have_any_size(write: Write, value: str) -> None:
    assert read_tuples(write('{"s": "a", "t": "b", "n": ' + value + "}\n", "x.jsonl")) == [("a", "b")]


def test_missing_json_keys_are_reported(write: Write) -> None:
    path = write('{"source": "a", "target": "b"}\n', "x.jsonl")
    expected = f"x.jsonl:1: no column 'sorce' {SOURCE_SETTING} among 'source', 'target'; did you mean 'source'?"
    assert error_message(path, DataConfig(source_column="sorce", target_column="target")) == expected


# ---- Parquet


def test_parquet_columns_by_name(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"id": [1, 2], "a.b": ["a", "c"], "t": ["b", "d"]})
    assert read_tuples(path, DataConfig(source_column="a.b", target_column="t")) == [("a", "b"), ("c", "d")]
    assert read_tuples(path, DataConfig(source_column="3", target_column="2")) == [("b", "a"), ("d", "c")]
    assert read_tuples(path, DataConfig(source_column="t", target_column="t")) == [("b", "b"), ("d", "d")]


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=8))
def test_parquet_values_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("parquet") / "x.parquet"
    assert read_tuples(write_parquet(path, {"s": [row[0] for row in rows], "t": [row[1] for row in rows]})) == rows


@pytest.mark.parametrize(
    "data_type",
    [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.string())],
)
def test_parquet_accepts_every_text_type(tmp_path: Path, data_type: pa.DataType) -> None:
    texts = pa.chunked_array([pa.array(["é", "b", "é"])])
    texts = texts.dictionary_encode() if pa.types.is_dictionary(data_type) else texts.cast(data_type)
    assert read_tuples(write_parquet(tmp_path / "x.parquet", {"s": texts, "t": texts})) == [
        ("é", "é"),
        ("b", "b"),
        ("é", "é"),
    ]


def test_invalid_parquet_rows_are_bad_lines(tmp_path: Path) -> None:
    sources = pa.array([b"a", None, b"\xff", b"d", b""], pa.binary())
    path = write_parquet(tmp_path / "x.parquet", {"s": sources, "t": ["b", "b", "b", None, "b"]})
    assert read_tuples(path, SKIP_CONFIG) == [("a", "b")]
    assert bad_lines(path) == [
        (2, "the value of 's' is null, not a string"),
        (3, "invalid UTF-8 at byte 1 (0xff)" + TEXT_HINT),
        (4, "the value of 't' is null, not a string"),
        (5, "the source is empty"),
    ]


def test_parquet_rows_are_numbered_across_batches(tmp_path: Path) -> None:
    texts: list[str | None] = [str(number) for number in range(1, 70_001)]
    texts[69_499] = None
    reading = read_examples(write_parquet(tmp_path / "x.parquet", {"s": texts, "t": texts}), SKIP_CONFIG)
    assert [bad.line for bad in reading.bad_lines] == [69_500]
    assert all(
        example.source == str(line) for example, line in zip(reading.examples, reading.line_numbers, strict=True)
    )
    assert len(reading.examples) == 69_999


def test_invalid_parquet_columns_are_reported(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"word": ["a"], "number": [1], "list": [["a"]]})
    assert error_message(path) == "x.parquet: column 'number' holds int64, not strings"
    lists = DataConfig(source_column="1", target_column="list")
    assert error_message(path, lists).startswith("x.parquet: column 'list' holds list<")
    misspelled = DataConfig(source_column="wrod", target_column="word")
    columns = "among 'word', 'number', 'list'"
    assert (
        error_message(path, misspelled)
        == f"x.parquet: no column 'wrod' {SOURCE_SETTING} {columns}; did you mean 'word'?"
    )
    assert error_message(path, DataConfig(target_column="4")) == f"x.parquet: no column 4 {TARGET_SETTING} {columns}"
    repeated = pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["a", "a"])
    assert error_message(write_parquet(path, repeated)) == "x.parquet: 2 columns are named 'a'"


def test_invalid_parquet_files_are_reported(write: Write, tmp_path: Path) -> None:
    start = "cannot read x.parquet as Parquet: "
    assert error_message(write("", "x.parquet")) == start + "Parquet file size is 0 bytes"
    assert error_message(write("not a table, only text\n", "x.parquet")).startswith(
        start + "Parquet magic bytes not found"
    )
    content = write_parquet(tmp_path / "whole.parquet", {"s": ["a"] * 99, "t": ["b"] * 99}).read_bytes()
    assert error_message(write(content[:60] + content[90:], "x.parquet")).startswith(start)
    assert error_message(write(content[:4] + b"\xff" * 30 + content[34:], "x.parquet")).startswith(start)
    assert error_message(write(content[:-20], "x.parquet.gz")).startswith("cannot read x.parquet.gz as Parquet: ")
    write_parquet(tmp_path / "x.parquet", {"s": pa.array([], pa.string()), "t": pa.array([], pa.string())})
    assert error_message(tmp_path / "x.parquet") == "x.parquet contains no example: it is empty"


@pytest.mark.parametrize("write_options", [{}, {"compression": "none", "use_dictionary": False}])
def test_parquet_with_a_changed_byte_is_read_completely_or_refused(
    tmp_path: Path, write_options: dict[str, Any]
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"s": ["ab", "c", "d"], "t": ["e", "f", "g"]}), path, store_schema=False, **write_options)
    content, outcomes = path.read_bytes(), {"read": 0, "refused": 0}
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        try:
            reading = read_examples(path, SKIP_CONFIG)
            assert len(reading.examples) + len(reading.bad_lines) + reading.num_blank_lines == 3
            outcomes["read"] += 1
        except DataError as error:
            assert len(str(error)) < 400 + len(str(path))
            outcomes["refused"] += 1
    assert outcomes["read"] > 50 and outcomes["refused"] > 50


@pytest.mark.parametrize("name", ["s", "t"])
def test_parquet_whose_schema_contradicts_its_statistics_is_refused(tmp_path: Path, name: str) -> None:
    """For one damaged byte, which makes an optional column required, pyarrow may abort the process."""
    path, optional = tmp_path / "x.parquet", b"\x25\x02\x18\x01" + name.encode()
    pq.write_table(pa.table({"s": ["ab", "c"], "t": ["e", "f"]}), path, store_schema=False)
    content = path.read_bytes()
    assert content.count(optional) == 1
    path.write_bytes(content.replace(optional, b"\x25\x00" + optional[2:]))
    code = "import sys, pellucid.data.examples as e; e.read_examples(sys.argv[1], e.DataConfig())"
    reading = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert reading.returncode == 1 and "as Parquet: Definition level histogram size mismatch" in reading.stderr


def test_parquet_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    columns = pa.table({"s": ["abcdef"], "t": ["ghijkl"]})
    pq.write_table(columns, path, compression="none", use_dictionary=False, write_page_checksum=True)
    path.write_bytes(path.read_bytes().replace(b"abcdef", b"abcxef"))
    assert "cannot read x.parquet as Parquet: could not verify page integrity, CRC checksum" in error_message(path)


def test_parquet_beyond_the_bound_of_gzip_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may contain any number of zeros; decompression stops at the bound."""
    monkeypatch.setattr("pellucid.data.readers.MAX_UNSEEKABLE_PARQUET", 2**21, raising=False)
    path = tmp_path / "x.parquet"
    path.write_bytes(gzip.compress(bytes(2**26), 1))
    tracemalloc.start()
    message = error_message(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24 and message == (
        "x.parquet has more than 2,097,152 bytes: Parquet from a pipe or with gzip is read into memory; give an "
        "uncompressed file"
    )


@pytest.mark.parametrize("write_options", [{"use_dictionary": False}, {}, {"encoding": "DELTA_BYTE_ARRAY"}])
def test_parquet_cells_are_bounded_like_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_options: dict[str, Any]
) -> None:
    monkeypatch.setattr("pellucid.data.readers.MAX_LINE_BYTES", 1000)
    texts = ["a" * 10] * 70 + ["b" * 1000, "c" * 1001] + ["d"] * 8
    options = (
        {"use_dictionary": False, "column_encoding": {"s": "DELTA_BYTE_ARRAY"}}
        if "encoding" in write_options
        else write_options
    )
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"s": texts, "t": ["y"] * 80}), path, **options)
    assert error_message(path, SKIP_CONFIG) == "x.parquet:72: the value of 's' has more than 1,000 bytes: is this text?"
    pq.write_table(pa.table({"s": texts[:71], "t": ["y"] * 71}), path, **options)
    assert len(read_examples(path, SKIP_CONFIG).examples) == 71
    pq.write_table(pa.table({"s": ["c" * 4001], "t": ["y"]}), path, **options)
    assert error_message(path, SKIP_CONFIG) == "x.parquet: values of 's' have more than 1,000 bytes: is this text?"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["RLE_DICTIONARY", "DELTA_BYTE_ARRAY"])
def test_repeated_long_parquet_cells_are_read_in_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Two hundred values of 4 MB take 800 MB; dictionaries and prefixes store them in 4 MB of the file."""
    monkeypatch.setenv("PELLUCID_MAX_UNPACKED_MIB", "1024")
    options: dict[str, Any] = {"use_dictionary": ["s"]}
    if encoding == "DELTA_BYTE_ARRAY":
        options = {"use_dictionary": False, "column_encoding": {"s": encoding}}
    path, before = tmp_path / "x.parquet", pa.total_allocated_bytes()
    pq.write_table(pa.table({"s": ["a" * 2**22] * 200, "t": ["y"] * 200}), path, compression="zstd", **options)
    assert path.stat().st_size < 2**20
    records = parquet_records(path, ColumnSelection({"source": "s", "target": "t"}))
    sizes = [pa.total_allocated_bytes() - before for _ in records]
    assert len(sizes) == 200 and max(sizes) < (2**26 if encoding == "RLE_DICTIONARY" else 2**29)


@pytest.mark.parametrize("order", [["a.b", "t", "a"], ["a", "a.b", "t"]])
@pytest.mark.parametrize("field", ["b", "b.c"])
def test_parquet_column_with_the_path_of_a_field_is_refused(tmp_path: Path, order: list[str], field: str) -> None:
    """Regression test: the sizes of the small column were taken for those of the large one, which was read at once."""
    inner: pa.Array = pa.array(["x", "y"])
    for part in reversed(field.split(".")):
        inner = pa.StructArray.from_arrays([inner], names=[part])
    columns = {"a.b": ["long", "long"], "t": ["c", "d"], "a": inner}
    path = write_parquet(tmp_path / "x.parquet", pa.table({name: columns[name] for name in order}))
    message = "x.parquet: 'a.b' is a column and a field of a struct: rename one of them"
    assert error_message(path, DataConfig(source_column="a.b", target_column="t")) == message
    assert read_tuples(path, DataConfig(source_column="t", target_column="t")) == [("c", "c"), ("d", "d")]


def test_parquet_column_beside_a_struct_is_read(tmp_path: Path) -> None:
    info = pa.StructArray.from_arrays([pa.array(["x"])], names=["c"])
    path = write_parquet(tmp_path / "x.parquet", {"a": ["v"], "a.b": ["w"], "a.b.c": info, "word.info": info})
    assert read_tuples(path, DataConfig(source_column="a", target_column="a.b")) == [("v", "w")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bomb.tsv.gz", "bomb.parquet"])
def test_a_small_file_that_unpacks_to_very_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Regression test: a gzip or Parquet file of some kilobytes held more pairs than fit into the memory."""
    path, count = tmp_path / name, 400_000
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(b"ab\tba\n" * count))
    else:
        pq.write_table(pa.table({"s": ["ab"] * count, "t": ["ba"] * count}), path)
    monkeypatch.setenv("PELLUCID_MAX_UNPACKED_MIB", "1")
    config = CONFIG if name.endswith(".gz") else SKIP_CONFIG
    assert error_message(path, config) == (
        f"{name} unpacks to more than 1,048,576 bytes, and to more than 100 times its size: it is refused, because it "
        "could exhaust the memory. To read it, set the environment variable PELLUCID_MAX_UNPACKED_MIB to a larger "
        "number of MiB"
    )
    monkeypatch.delenv("PELLUCID_MAX_UNPACKED_MIB")
    assert len(read_examples(path, config).examples) == count


# ---- two parallel files


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_parallel_files_pair_line_by_line(write: Write, ending: str) -> None:
    source = write('a\tb\n\n"c\r\nd', "train.en" + ending)
    target = write("x\n \ny,\nz\n", "train.tsv" + ending)
    assert read_examples(source, CONFIG, target) == (
        [("a\tb", "x", ""), ('"c', "y,", ""), ("d", "z", "")],
        [1, 3, 4],
        [],
        1,
    )


def test_bad_parallel_lines_name_their_file(write: Write) -> None:
    source = write(b"a\n\nc\n\xffd\ne\n" + b"f" * 1001 + b"\n", "train.en")
    target = write(b"u\nv\n\nx\ny\xff\nz\n", "train.de")
    reading = read_examples(source, SKIP_CONFIG, target)
    assert reading.examples == [("a", "u", "")]
    assert reading.bad_lines == [
        BadLine(str(source), 2, "the source is empty"),
        BadLine(str(target), 3, "the target is empty"),
        BadLine(str(source), 4, "invalid UTF-8 at byte 1 (0xff)" + TEXT_HINT),
        BadLine(str(target), 5, "invalid UTF-8 at byte 2 (0xff) after 'y'" + TEXT_HINT),
        BadLine(str(source), 6, "the source has 1001 symbols, more than data.max_sequence_length = 1000"),
    ]


@pytest.mark.parametrize(("source_lines", "target_lines"), [(3, 5), (5, 3), (0, 2), (2, 0), (4, 5)])
def test_parallel_files_of_different_lengths_are_an_error(write: Write, source_lines: int, target_lines: int) -> None:
    source, target = write("a\n" * source_lines, "train.en"), write("b\n" * target_lines, "train.de")
    expected = f"train.en has {source_lines} lines, but train.de has {target_lines}: give equally many lines"
    assert error_message(source, CONFIG, target) == expected


def test_empty_or_missing_parallel_files_are_an_error(write: Write, tmp_path: Path) -> None:
    source, target = write("", "train.en"), write("", "train.de")
    expected = "the pair train.en and train.de contains no example: it is empty"
    assert error_message(source, CONFIG, target) == expected
    missing = "cannot read train.d: no such file or directory; did you mean 'train.de'?"
    assert error_message(write("a\n", "train.en"), CONFIG, tmp_path / "train.d") == missing


@pytest.mark.parametrize(
    ("content", "changes", "missing"),
    [
        ("a\tb\n", {}, ("group",)),
        ("a\tb\n", {"on_bad_line": "skip"}, ("group",)),
        ("a\tb\n" * 3 + "a\tb\tx\n", {"on_bad_line": "skip"}, ("group",)),
        ("a\n", {}, ("target", "group")),
        ("a\tb\tx\na\tb\n", {}, ()),
        ("\tb\tx\n", {}, ()),
        ("x\ty\tz\na\tb\n", {"header": True}, ()),
    ],
)
def test_errors_have_the_columns_that_the_first_bad_line_lacks(
    write: Write, monkeypatch: pytest.MonkeyPatch, content: str, changes: dict[str, Any], missing: tuple[str, ...]
) -> None:
    monkeypatch.setattr("pellucid.data.examples.MAX_BAD_LINES", 3)
    with pytest.raises(DataError) as caught:
        read_grouped_examples(write(content), DataConfig(**{"header": False, **changes}), "3")
    assert caught.value.missing_columns == missing
    restored = pickle.loads(pickle.dumps(caught.value))
    assert restored.missing_columns == missing and str(restored) == str(caught.value)


def test_parallel_features_follow_a_tab(write: Write) -> None:
    source, target = write("go\tV;PST\nbe\n", "train.en"), write("went\nwas\n", "train.de")
    reading = read_examples(source, DataConfig(features_column="3", on_bad_line="skip"), target)
    assert reading.examples == [("go", "went", "V;PST")]
    reason = "expected 2 columns, got 1 (tabs separate columns)"
    assert reading.bad_lines == [BadLine(str(source), 2, reason)]


# ---- headers and names


@pytest.mark.parametrize(("name", "separator"), [("x.tsv", "\t"), ("x.csv", ",")])
def test_a_header_names_the_columns(write: Write, name: str, separator: str) -> None:
    lines = ["", "id,sound,word", "1,kæt,cat", "", "2,dɔg,dog"]
    reading = read_examples(write("\n".join(lines).replace(",", separator), name), NAMED_COLUMNS_CONFIG)
    assert reading == ([("cat", "kæt", ""), ("dog", "dɔg", "")], [3, 5], [], 2)


def test_a_header_is_skipped_for_numbers_too(write: Write) -> None:
    assert read_tuples(write("word\tsound\na\tb\n"), DataConfig(header=True)) == [("a", "b")]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("wrod\tsound", f"no column 'word' {SOURCE_SETTING} among 'wrod', 'sound'; did you mean 'wrod'?"),
        ("word", f"no column 'sound' {TARGET_SETTING} among 'word'"),
        ("word\tsound\tword", f"2 columns are named 'word' {SOURCE_SETTING}: choose one by its number"),
    ],
)
def test_a_header_without_the_columns_is_an_error(write: Write, header: str, reason: str) -> None:
    assert error_message(write(f"{header}\na\tb\n"), NAMED_COLUMNS_CONFIG) == f"train.tsv: {reason}"


def test_a_long_header_is_abbreviated(write: Write) -> None:
    message = error_message(write("\t".join(["x" * 500] * 500) + "\n"), NAMED_COLUMNS_CONFIG)
    assert message.endswith(", 'xxxxxxxxxxxxxxxxxxxx…', …") and len(message) < 700


def test_a_header_with_too_few_columns_is_an_error(write: Write) -> None:
    config = DataConfig(header=True, target_column="3")
    assert error_message(write("a\tb\n"), config) == f"train.tsv: no column 3 {TARGET_SETTING} among 'a', 'b'"


def test_an_unreadable_header_is_an_error(write: Write) -> None:
    expected = f"train.tsv:1: invalid UTF-8 at byte 1 (0xff){TEXT_HINT} (in the header line)"
    assert error_message(write(b"\xff\tsound\na\tb\n"), NAMED_COLUMNS_CONFIG) == expected


def test_a_column_name_implies_a_header(write: Write) -> None:
    path = write("word\tsound\na\tb\n")
    assert read_tuples(path, DataConfig(source_column="word", target_column="2")) == [("a", "b")]
    expected = f"train.tsv: no column 'sund' {TARGET_SETTING} among 'word', 'sound'; did you mean 'sound'?"
    assert error_message(path, DataConfig(target_column="sund")) == expected


def test_a_column_name_needs_a_header(write: Write) -> None:
    path = write("word\tsound\n")
    with pytest.raises(ConfigError) as caught:
        read_examples(path, DataConfig(target_column="sound", header=False))
    assert str(caught.value) == (
        f"the column 'sound' {TARGET_SETTING} is a name, but {path} has no header: give a number "
        f"from 1, or --header (data.header = true) if the first line names the columns"
    )


@pytest.mark.parametrize("column", ["1048577", "1" * 5000])
@pytest.mark.parametrize("role", ["source", "target", "features"])
def test_missing_columns_are_reported(write: Write, role: str, column: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_examples(write("a\tb\n"), DataConfig(**{f"{role}_column": column}))  # type: ignore[arg-type]
    quoted = column if len(column) < 80 else column[:79] + "…"
    assert str(caught.value) == f"data.{role}_column: expected a name or a number from 1 to 1,048,576, got '{quoted}'"


@pytest.mark.parametrize(("role", "column"), [("source", "0"), ("target", ""), ("features", "00")])
def test_invalid_columns_are_refused(write: Write, role: str, column: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_examples(write("a\tb\n"), DataConfig(**{f"{role}_column": column}))  # type: ignore[arg-type]
    assert str(caught.value) == f"data.{role}_column: expected a name or a number from 1, got {column!r}"


# ---- sources for prediction


def read_source_items(path: Path, config: DataConfig = CONFIG) -> list[tuple[str, str] | tuple[int, str]]:
    """Return source and features of each item of a file, or line and reason of a bad line."""
    return [summarize_item(item) for item in read_sources(path, config)]


def parse_source_items(content: bytes, config: DataConfig = CONFIG) -> list[tuple[str, str] | tuple[int, str]]:
    """Return source and features of each item of these bytes, or line and reason of a bad line."""
    return [summarize_item(item) for item in parse_sources(io.BytesIO(content), "<stdin>", config)]


def summarize_item(item: Example | BadLine) -> tuple[str, str] | tuple[int, str]:
    """Return source and features of an example, or line and reason of a bad line."""
    if isinstance(item, BadLine):
        return item.line, item.reason
    assert item.target == ""
    return item.source, item.features


def test_every_line_gives_one_source(write: Write) -> None:
    content = b"a\tb\n\nc\n \td\n\xff\n\te\n" + b"f" * 1001 + b"\n \t\ng"
    expected = [
        ("a", ""),
        ("", ""),
        ("c", ""),
        (" ", ""),
        (5, "invalid UTF-8 at byte 1 (0xff)" + TEXT_HINT),
        ("", ""),
        (7, "the source has 1001 symbols, more than data.max_sequence_length = 1000"),
        ("", ""),
        ("g", ""),
    ]
    assert read_source_items(write(content, "words.txt")) == expected
    assert parse_source_items(content) == expected


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)))
def test_arbitrary_lines_give_one_item_each(lines: list[bytes]) -> None:
    content = [b"first\n", *(line + b"\n" for line in lines)]
    for format in ("tsv", "text"):
        items = list(parse_sources(content, "<stdin>", DataConfig(input_format=format, features_column="4")))
        assert len(items) == len(content)
        assert all(item.line == n for n, item in enumerate(items, 1) if isinstance(item, BadLine))


def test_white_space_is_an_empty_source_of_words() -> None:
    assert parse_source_items(b"\x0b\n", DataConfig(source_symbols="words", max_sequence_length=2)) == [("\x0b", "")]


def test_a_line_without_a_tab_is_a_source() -> None:
    config = DataConfig(source_column="3", target_column="1", features_column="2")
    assert parse_source_items(b"a\nb\tc\td\ne\tf\n", config) == [
        ("a", ""),
        ("d", "c"),
        (3, "expected 3 columns, got 2 (tabs separate columns)"),
    ]


def test_text_lines_are_sources(write: Write) -> None:
    config = DataConfig(input_format="text")
    for lines in (
        read_source_items(write("a\tb\n\nc,\n", "words.txt"), config),
        parse_source_items(b"a\tb\n\nc,\n", config),
    ):
        assert lines == [("a\tb", ""), ("", ""), ("c,", "")]


def test_text_lines_may_have_features() -> None:
    config = DataConfig(input_format="text", source_column="2", features_column="word")
    assert parse_source_items(b"go\tV;PST\nbe\n", config) == [("go", "V;PST"), ("be", "")]


def test_pairs_beside_parallel_files_are_tsv(write: Write) -> None:
    """Column settings apply to files of pairs; parallel text has its features in column 2 of the sources."""
    without_features = DataConfig(input_format="text")
    with_features = DataConfig(input_format="text", source_column="2", target_column="word", features_column="2")
    for name in ("pairs", "pairs.tsv"):
        for config, line, pair in (
            (without_features, "a\tb", Example("a", "b")),
            (with_features, "a\tb\tV", Example("a", "b", "V")),
        ):
            assert list(read_pairs(write(f"{line}\n", name), config)) == [pair]
            assert list(parse_pairs([f"{line}\n".encode()], "<stdin>", config)) == [pair]
    (bad,) = parse_pairs([b"a\n"], "<stdin>", without_features)
    assert str(bad) == "<stdin>:1: expected 2 columns, got 1 (tabs separate columns)"


def test_lines_of_text_are_not_pairs(write: Write) -> None:
    path, text = write("a\tb\n"), InputFormat("text")
    for reader in (read_pairs(path, CONFIG, text), parse_pairs([b"a\tb\n"], "<stdin>", CONFIG, text)):
        with pytest.raises(ArgumentError, match=r"^input_format\.format: expected a format of pairs: auto, tsv, csv"):
            list(reader)


def test_groups_need_a_column(write: Write) -> None:
    """Regression test: the last of two fields became the group, which raised a `TypeError`."""
    with pytest.raises(ArgumentError, match=r"^group: expected a column: a name, or a number from 1, got ''$"):
        read_grouped_examples(write("a\tb\n"), CONFIG, "")


def test_a_known_suffix_overrides_the_configured_format(write: Write, tmp_path: Path) -> None:
    config = DataConfig(input_format="text")
    assert read_source_items(write('"a,b",c\n', "x.csv"), config) == [("a,b", "")]
    assert read_source_items(write("a\tb\n", "x.tsv"), config) == [("a", "")]
    assert read_source_items(write("a\tb\n", "x.txt"), config) == [("a\tb", "")]
    assert read_source_items(write('{"s": ""}\n\n{}\n', "x.jsonl"), config) == [
        ("", ""),
        ("", ""),
        (3, f"expected 's', which is column 1 {SOURCE_SETTING} of line 1, among none; line 1 has 's'"),
    ]
    assert read_source_items(write_parquet(tmp_path / "x.parquet", {"s": ["a", "", None], "t": [1, 2, 3]}), config) == [
        ("a", ""),
        ("", ""),
        (3, "the value of 's' is null, not a string"),
    ]
    assert read_source_items(write("a,b\n", "y.txt"), DataConfig(input_format="csv")) == [("a", "")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("sound\tword\nkæt\tcat\n", [("cat", "")]),
        ("\nword\tid\ncat\t1\ndog\n", [("", ""), ("cat", ""), ("dog", "")]),
        ("word\ncat\n", [("cat", "")]),
        ("cat\nword\n", [("cat", ""), ("word", "")]),
        ("cat\na\tb\n", [("cat", ""), (2, "got 2 columns, but no header names 'word'")]),
        ("", []),
        ("\n", [("", "")]),
    ],
)
def test_a_header_of_sources_is_skipped(
    write: Write, content: str, expected: list[tuple[str, str] | tuple[int, str]]
) -> None:
    assert read_source_items(write(content), NAMED_COLUMNS_CONFIG) == expected


def test_a_header_is_skipped_for_columns_by_number(write: Write) -> None:
    config = DataConfig(header=True)
    assert read_source_items(write("word\tsound\na\tb\n"), config) == [("a", "")]
    assert read_source_items(write("1\nb\n"), config) == [("1", ""), ("b", "")]


def test_a_header_of_sources_without_features_is_skipped(write: Write) -> None:
    config = DataConfig(header=True, source_column="word", target_column="sound", features_column="tags")
    assert read_source_items(write("word\na\n"), config) == [("a", "")]
    assert read_source_items(write("tags\tword\nN\ta\n"), config) == [("a", "N")]
    with pytest.raises(DataError, match=r"no column 'tags' \(--features-column, .*\) among 'word', 'id'"):
        read_source_items(write("word\tid\na\t1\n"), config)


def test_standard_input_has_no_header() -> None:
    assert parse_source_items(b"word\na\tb\n", NAMED_COLUMNS_CONFIG) == [
        ("word", ""),
        (2, "got 2 columns, but no header names 'word'"),
    ]
    assert parse_source_items(b"word\tsound\na\tb\n", DataConfig(header=True)) == [("word", ""), ("a", "")]


def test_a_byte_order_mark_is_removed_from_sources() -> None:
    assert parse_source_items(b"\xef\xbb\xbfa\n") == [("a", "")]
    assert parse_source_items(b"\xef\xbb\xbf") == [], "a mark without a line is an empty file"
    assert parse_source_items(b"\xef\xbb\xbf\n") == [("", "")]
    with pytest.raises(DataError, match=r"^<stdin> is UTF-16 text: save it as plain text in UTF-8$"):
        parse_source_items("\ufeffa\n".encode("utf-16-le"))


def test_sources_are_parsed_one_at_a_time() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"a\n"

    items = parse_sources(endless(), "<stdin>", CONFIG)
    assert [next(items), next(items)] == [("a", "", "")] * 2


def test_sources_of_a_missing_file_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or directory"):
        next(read_sources(tmp_path / "none.tsv", CONFIG))


# ---- imports and published files


def test_importing_does_not_import_pyarrow() -> None:
    code = "import sys, pellucid.data.examples; sys.exit(any(name in sys.modules for name in ('pyarrow', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


needs_published_data = pytest.mark.skipif(
    not PUBLISHED_DATA.is_dir(), reason=f"no data in {PUBLISHED_DATA}: set PELLUCID_DATA"
)


@needs_published_data
@pytest.mark.parametrize(
    ("name", "count", "bad", "blank"),
    [
        ("histnorm/german-ridges.train.txt", 48_987, [16_413], 2_920),
        ("histnorm/german-ridges.test.txt", 11_251, [8257, 10_671], 670),
        ("histnorm/slovene-goo300k-bohoric.test.txt", 7_305, [], 448),
        ("g2p-sigmorphon2020/train/kor_train.tsv", 3_600, [], 0),
        ("mt-tatoeba-spa-eng/derived-split/dev.tsv.gz", 3_570, [], 0),
    ],
)
def test_published_files_are_read(name: str, count: int, bad: list[int], blank: int) -> None:
    config = DataConfig(target_symbols="words" if "g2p" in name else "characters", on_bad_line="skip")
    reading = read_examples(PUBLISHED_DATA / name, config)
    assert (len(reading.examples), [line.line for line in reading.bad_lines], reading.num_blank_lines) == (
        count,
        bad,
        blank,
    )
    assert len(reading.line_numbers) == count


def test_features_are_limited_like_sources_and_targets(tmp_path: Path) -> None:
    config = DataConfig(features_column="3", features_symbols=";", max_sequence_length=20, on_bad_line="skip")
    (path := tmp_path / "train.tsv").write_text(f"a\tb\t{'u;' * 20}v\na\tb\t{'u;' * 19}v\n")
    reading = read_examples(path, config)
    reason = "the features have 21 symbols, more than data.max_sequence_length = 20"
    assert len(reading.examples) == 1 and [(line.line, line.reason) for line in reading.bad_lines] == [(1, reason)]
    assert [str(each).partition(": ")[2] for each in read_sources(path, config) if isinstance(each, BadLine)] == [
        reason
    ]
