"""data/file_split.py: every row of a file is in one part, with its bytes, or is reported."""

import csv
import errno
import gzip
import io
import json
import os
import stat
import tracemalloc
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pellucid.config.settings import DataConfig
from pellucid.data import file_split, lines
from pellucid.data.examples import read_examples
from pellucid.data.file_split import FileSplit, SplitSizes, connected_components, split_file, write_split
from pellucid.data.headers import HeaderError
from pellucid.errors import BadLineError, ConfigError, DataError, FolderInUseError, RunError
from pellucid.files import write_together

NAMED = msgspec.structs.replace(DataConfig(), source_column="old", target_column="new")
SKIP = msgspec.structs.replace(NAMED, on_bad_line="skip")
HEADER = ["id", "old", "new", "note"]
CELL = st.text('ab,;"\t\n é', max_size=4)
ROWS = st.lists(st.tuples(st.sampled_from(["u", "v", "w", "x y", ""]), st.sampled_from(["A", "B", "", " "]), CELL))


@pytest.mark.parametrize(
    ("name", "ending"), [("d.csv", ".csv"), ("D.CSV.GZ", ".CSV"), ("d.tsv.Gz", ".tsv"), (".csv", ".csv"), ("d", "")]
)
def test_the_files_have_the_ending_of_the_format(name: str, ending: str, tmp_path: Path) -> None:
    """Regression test: of D.CSV.GZ it was .GZ, though the files are not compressed, and of .csv there was none."""
    content = b"a,b\nc,d\ne,f\n" if ".csv" in name.lower() else b"a\tb\nc\td\ne\tf\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.lower().endswith("gz") else content)
    split = split_file(tmp_path / name, DataConfig(), SplitSizes(1), 1)
    paths = write_split(split, tmp_path / "parts")
    assert [path.name for path in paths.values()] == [f"train{ending}", f"test{ending}"]
    assert [len(read_examples(path, DataConfig()).examples) for path in paths.values()] == [2, 1]


def test_a_source_of_white_space_is_a_pair_as_in_a_training(tmp_path: Path) -> None:
    """Regression test: it was reported as empty."""
    path = tmp_path / "a.tsv"
    path.write_text("\u2028\tc\n\u00a0\td\nb\tc\nc\td\n", "utf-8")
    split = split_file(path, DataConfig(), SplitSizes(1), 1)
    assert split.num_rows == {"train": 3, "test": 1} and not split.bad_lines
    assert len(read_examples(path, DataConfig()).examples) == 4


def write_csv(path: Path, rows: Sequence[Sequence[str]], delimiter: str = ",", end: str = "\n", bom: str = "") -> None:
    """Write a CSV file with a header."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end).writerows([HEADER, *rows])
    path.write_bytes((bom + text.getvalue()).encode())


def read_csv(content: bytes, delimiter: str = ",") -> list[list[str]]:
    """Return the rows of CSV below the header, which is checked."""
    header, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter)
    assert header == HEADER
    return rows


ENDS, MARKS = st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\ufeff"])


@example([("u", "A", ""), *[("v", "A", "")] * 8, ("w", "A", "")], ",", "\n", "", 0)  # u and w were both in the test set
@given(ROWS, st.sampled_from(",;\t"), ENDS, MARKS, st.integers(0, 9))
def test_every_row_is_in_one_part_or_reported(
    tmp_path_factory: pytest.TempPathFactory,
    cells: list[tuple[str, str, str]],
    delimiter: str,
    end: str,
    bom: str,
    seed: int,
) -> None:
    path = tmp_path_factory.mktemp("split") / "words.csv"
    rows = [[f"{number}", *row] for number, row in enumerate(cells)]
    write_csv(path, rows, delimiter, end, bom)
    pairs = [row for row in rows if row[1] and row[2].strip()]
    if len({row[1] for row in pairs}) < 3:
        with pytest.raises(DataError, match=r"no row with a source and a target|nothing would be left"):
            split_file(path, SKIP, SplitSizes(0.2, 0.9), seed)
        return
    split = split_file(path, SKIP, SplitSizes(0.2, 1), seed)
    assert all(content.startswith((bom + delimiter.join(HEADER) + end).encode()) for content in split.contents.values())
    parts = {part: read_csv(content, delimiter) for part, content in split.contents.items()}
    assert {part: len(found) for part, found in parts.items()} == split.num_rows
    assert sorted(row for found in parts.values() for row in found) == sorted(row for row in rows if row[1])
    assert [row for row in rows if row[1] and not row[2].strip()] == parts.get("unlabeled", [])
    assert len(split.bad_lines) == sum(not row[1] for row in rows) and not split.num_blank_lines
    for found in parts.values():
        assert [int(row[0]) for row in found] == sorted(int(row[0]) for row in found)
    sources = [{row[1] for row in parts[part]} for part in ("train", "valid", "test")]
    assert sum(map(len, sources)) == len(set().union(*sources)) and all(sources)
    records = Counter(path.read_bytes()[len(bom.encode()) :].splitlines())
    assert not Counter(line for text in split.contents.values() for line in text.splitlines()[1:]) - records


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_tsv_without_header_keeps_its_bytes(tmp_path: Path, end: str) -> None:
    (path := tmp_path / "words.tsv").write_bytes(
        "\n".join(f'"w{number}\t{number}\tü' for number in range(50)).encode() + end.encode()
    )
    split = split_file(path, DataConfig(), SplitSizes(5), 1)
    lines = [line for content in split.contents.values() for line in content.splitlines(keepends=True)]
    assert sorted(lines) == sorted(path.read_bytes().splitlines(keepends=True))
    assert split.num_rows == {"train": 45, "test": 5} and split.suffix == ".tsv"


def test_a_record_that_begins_with_a_byte_order_mark_keeps_it_as_the_first_of_a_part(tmp_path: Path) -> None:
    """Regression test: a reader of the part removed the mark, which is data below the first line of the file."""
    path, rows = tmp_path / "pairs.tsv", ["a\tb", "\ufeffc\td", "e\tf"]
    path.write_text("".join(f"{row}\n" for row in rows), "utf-8")
    config = DataConfig(header=False)
    for seed in range(20):
        read = []
        for part, content in split_file(path, config, SplitSizes(1), seed).contents.items():
            (tmp_path / f"{part}.tsv").write_bytes(content)
            read += read_examples(tmp_path / f"{part}.tsv", config).examples
        assert sorted(f"{example.source}\t{example.target}" for example in read) == sorted(rows)


def test_the_test_set_is_seeded_and_does_not_depend_on_the_validation_set(tmp_path: Path) -> None:
    (path := tmp_path / "words.tsv").write_text("".join(f"w{number}\t{number}\n" for number in range(500)))
    one, same, other, three = (
        split_file(path, DataConfig(), sizes, seed)
        for sizes, seed in ((SplitSizes(0.1), 1), (SplitSizes(50), 1), (SplitSizes(0.1), 2), (SplitSizes(0.1, 60), 1))
    )
    assert one == same and one.contents["test"] != other.contents["test"]
    assert three.contents["test"] == one.contents["test"] and three.num_rows == {"train": 390, "valid": 60, "test": 50}
    assert not one.notes


def test_json_lines_and_parquet_take_null_as_no_target(tmp_path: Path) -> None:
    rows = [{"id": n, "old": f"é{n}", "new": None if n % 4 == 0 else "e", "more": {"a": [n]}} for n in range(40)]
    (path := tmp_path / "words.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), other := tmp_path / "words.parquet")
    json_split, table_split = (split_file(each, NAMED, SplitSizes(6), 1) for each in (path, other))
    assert json_split.num_rows == table_split.num_rows == {"train": 24, "test": 6, "unlabeled": 10}
    for part, content in json_split.contents.items():
        found = [json.loads(line) for line in content.splitlines()]
        assert found == pyarrow.parquet.read_table(io.BytesIO(table_split.contents[part])).to_pylist()
        assert all(row in rows for row in found)
    assert table_split.suffix == ".parquet"
    path.write_text('{"old": null, "new": "a"}\n')
    with pytest.raises(BadLineError, match=r"words.jsonl:1: the value of 'old' is null, not a string"):
        split_file(path, NAMED, SplitSizes(6), 1)


def test_compressed_files_and_blank_lines(tmp_path: Path) -> None:
    text = b"\n\nid,old,new\n1,a,A\n\n2,b,B\n3,c,\n"
    (path := tmp_path / "words.csv.gz").write_bytes(gzip.compress(text))
    split = split_file(path, NAMED, SplitSizes(1), 1)
    assert split.suffix == ".csv" and split.num_blank_lines == 3
    assert split.contents["unlabeled"] == b"id,old,new\n3,c,\n"
    assert sorted(split.contents["train"] + split.contents["test"]) == sorted(b"id,old,new\n" * 2 + b"1,a,A\n2,b,B\n")


def test_bad_lines_stop_or_are_listed(tmp_path: Path) -> None:
    (path := tmp_path / "words.csv").write_bytes(b"id,old,new\n1,a,A\n2,b\n3,\xff,C\n4,,D\n5,e,E\n")
    with pytest.raises(BadLineError, match=r"words.csv:3: expected 3 columns as in line 1, got 2.*; --on-bad-line"):
        split_file(path, NAMED, SplitSizes(1), 1)
    split = split_file(path, SKIP, SplitSizes(1), 1)
    assert [bad.line for bad in split.bad_lines] == [3, 4, 5] and split.num_rows == {"train": 1, "test": 1}


def test_equal_sources_are_recognized_after_normalization(tmp_path: Path) -> None:
    lines = [f"{form}{number}\t{form}\n" for number in range(30) for form in ("é", "e\u0301")]
    (path := tmp_path / "words.tsv").write_text("".join(lines))
    split = split_file(path, DataConfig(), SplitSizes(0.3), 1)
    numbers = [{line.split(b"\t")[0][-1:] for line in text.splitlines()} for text in split.contents.values()]
    assert split.num_rows == {"train": 42, "test": 18} and numbers


def test_groups_stay_together_and_their_sources_too(tmp_path: Path) -> None:
    rows = [f"w{n % 7 if n < 14 else n}\tx\tg{n // 5}\n" for n in range(100)]
    (path := tmp_path / "words.tsv").write_text("".join(rows))
    config = msgspec.structs.replace(DataConfig(), group_column="3")
    split = split_file(path, config, SplitSizes(0.2, 0.2), 1)
    for column in (0, 2):
        values = [{line.split(b"\t")[column] for line in text.splitlines()} for text in split.contents.values()]
        assert sum(map(len, values)) == len(set().union(*values))
    path.write_text("".join(f"w{n % 9}\tx\tg{n // 50}\n" for n in range(100)))
    with pytest.raises(DataError, match=r"nothing would be left for training: it has 100 rows.*1 such unit.*--group"):
        split_file(path, config, SplitSizes(0.2), 1)
    path.write_text("".join(f"w{n}\tx\tg{n // 25}\n" for n in range(100)))
    assert split_file(path, config, SplitSizes(0.1), 1).notes[-1].startswith("test: 25 rows, not 10, because")


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["", "x", "y", "z"]))))
def test_units_are_the_connected_components(keys: list[tuple[str, str]]) -> None:
    units = connected_components(keys)
    expected = list(range(len(keys)))
    for _ in keys:  # the least number of all connected rows, by repetition
        expected = [
            min(
                expected[other]
                for other, key in enumerate(keys)
                if key[0] == keys[row][0] or (key[1] and key[1] == keys[row][1])
            )
            for row in range(len(keys))
        ]
    assert units == expected


def test_what_cannot_be_split_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "words.txt").write_text("a\tb\nc\td\n")
    text = msgspec.structs.replace(DataConfig(), input_format="text")
    with pytest.raises(ConfigError, match=r"has sources only, one per line: join it .*paste SOURCES TARGETS"):
        split_file(path, text, SplitSizes(0.1), 1)
    with pytest.raises(DataError, match="nothing would be left for training"):
        split_file(path, DataConfig(), SplitSizes(2), 1)
    path.write_text("a\t\nc\t\n")
    with pytest.raises(DataError, match="has no row with a source and a target"):
        split_file(path, DataConfig(), SplitSizes(2), 1)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        split_file(path, DataConfig(), SplitSizes(2), 1)
    path.write_text("word\tpronunciation\na\tb\nc\td\n")
    with pytest.raises(HeaderError, match="the first line looks like a header"):
        split_file(path, DataConfig(), SplitSizes(1), 1)
    path.write_text("word\tb\na\tb\nc\td\n")
    assert "the first line may be a header" in split_file(path, DataConfig(), SplitSizes(1), 1).notes[0]


def test_a_split_is_written_once_and_replaces_nothing(tmp_path: Path) -> None:
    split = FileSplit({"train": b"a\n", "test": b"b\n"}, {"train": 1, "test": 1}, [], 0, ".tsv")
    folder = tmp_path / "new" / "parts"
    assert write_split(split, folder) == write_split(split, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["test.tsv", "train.tsv"]
    with pytest.raises(DataError, match=r"test.tsv exists and would not be the same"):
        write_split(split._replace(contents={"train": b"a\n", "test": b"c\n"}), folder)
    (folder / "valid.tsv").write_bytes(b"old\n")
    with pytest.raises(DataError, match=r"valid.tsv exists and would not be the same"):
        write_split(split, folder)
    assert (folder / "test.tsv").read_bytes() == b"b\n"


def test_a_split_that_does_not_fit_on_the_disk_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the files before the one that could not be flushed were in place."""
    split = FileSplit({"train": b"a\n", "test": b"b\n"}, {"train": 1, "test": 1}, [], 0, ".tsv")
    flush, num_flushed = os.fsync, 0

    def full_disk(descriptor: int) -> None:
        nonlocal num_flushed
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            num_flushed += 1
            if num_flushed > 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(RunError, match="no space left on device"):
        write_split(split, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["text", "number", "nested"])
def test_a_bomb_in_a_column_that_is_not_selected_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: all columns were read at once, whatever they unpack to."""
    monkeypatch.setenv("PELLUCID_MAX_UNPACKED_MIB", "1")
    count = 4_000
    long: dict[str, Any] = {
        "text": pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * count, pyarrow.int32()), ["x" * 10**5]),
        "number": pyarrow.array([0] * count * 5),
        "nested": pyarrow.array([["x" * 300]] * count),
    }
    count = len(long[kind])
    table = pyarrow.table({"old": [f"a{n}" for n in range(count)], "new": ["b"] * count, "note": long[kind]})
    options = {"compression": "zstd", "row_group_size": count}
    pyarrow.parquet.write_table(table, path := tmp_path / "words.parquet", **options)
    if kind == "number":  # as large as the texts
        assert split_file(path, NAMED, SplitSizes(6), 1).num_rows["test"] == 6
        return
    with pytest.raises(DataError, match=r"words\.parquet unpacks to more than 1,048,576 bytes"):
        split_file(path, NAMED, SplitSizes(6), 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist on POSIX systems only")
def test_parquet_from_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "words.parquet")
    with pytest.raises(DataError, match=r"words\.parquet is a pipe, and Parquet is read twice to be divided"):
        split_file(tmp_path / "words.parquet", NAMED, SplitSizes(6), 1)


def test_a_long_line_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    (path := tmp_path / "words.tsv").write_bytes(b"a\tb\n" + b"x" * 10**7)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"words\.tsv:2: the line has more than 1,000 bytes"):
        split_file(path, DataConfig(header=False), SplitSizes(1), 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6


def test_two_splits_into_one_folder_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: both wrote, so that rows were in two files or in none."""
    file, folder = tmp_path / "a.tsv", tmp_path / "out"
    file.write_text("".join(f"{number}\tx\n" for number in range(40)), "utf-8")
    first, second = (split_file(file, DataConfig(), SplitSizes(10), seed) for seed in (1, 2))

    def write_meanwhile(contents: Mapping[Path, bytes]) -> None:
        with pytest.raises(FolderInUseError, match="out is in use: another split is writing to it"):
            write_split(second, folder)
        write_together(contents)

    monkeypatch.setattr(file_split, "write_together", write_meanwhile)
    paths = write_split(first, folder)
    assert {part: path.read_bytes() for part, path in paths.items()} == first.contents
    assert sorted(path.name for path in folder.iterdir()) == ["test.tsv", "train.tsv"]
    monkeypatch.undo()
    with pytest.raises(DataError, match="would not be the same after this split"):
        write_split(second, folder)


def test_a_split_is_compared_with_the_files_that_another_one_has_just_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "a.tsv", tmp_path / "out"
    file.write_text("".join(f"{number}\tx\n" for number in range(40)), "utf-8")
    first, second = (split_file(file, DataConfig(), SplitSizes(10), seed) for seed in (1, 2))

    def make_and_write(path: Path) -> None:
        monkeypatch.undo()
        write_split(first, path)

    monkeypatch.setattr(file_split, "make_folder", make_and_write)
    with pytest.raises(DataError, match="would not be the same after this split"):
        write_split(second, folder)
    assert (folder / "train.tsv").read_bytes() == first.contents["train"]
