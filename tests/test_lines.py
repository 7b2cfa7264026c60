"""Lines of files and streams: completeness, timely delivery, and linear time and memory."""

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.config.settings import DataConfig
from pellucid.data import delimiters as delimiters_module
from pellucid.data import examples as examples_module
from pellucid.data import lines
from pellucid.data import readers as readers_module
from pellucid.data.examples import parse_sources, read_examples, read_sources
from pellucid.data.lines import LineStream, check_lines, read_lines
from pellucid.data.readers import BadLine
from pellucid.errors import DataError

NAME = "standard input"


class ChunkedStream(io.BytesIO):
    """Stream that delivers one chunk at a time."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        super().__init__(b"".join(chunks))
        self.ends = [0]
        for chunk in chunks:
            self.ends.append(self.ends[-1] + len(chunk))

    def read1(self, size: int | None = -1) -> bytes:
        """Return the rest of the current chunk, at most `size` bytes."""
        remaining = next((stop - self.tell() for stop in self.ends if stop > self.tell()), 0)
        return self.read(min(remaining, size) if size is not None and size >= 0 else remaining)


class CountingBytes(bytes):
    """Bytes that count the copied bytes of all instances."""

    copied = 0

    def split(self, *arguments: object) -> list[bytes]:
        CountingBytes.copied += len(self)
        return [CountingBytes(part) for part in bytes(self).split(*arguments)]  # type: ignore[arg-type]

    def __add__(self, other: bytes) -> bytes:  # type: ignore[override]
        CountingBytes.copied += len(self) + len(other)
        return CountingBytes(bytes(self) + bytes(other))

    def __radd__(self, other: bytes) -> bytes:
        return CountingBytes(other) + self


class CountingStream(ChunkedStream):
    """Stream whose chunks count copied bytes."""

    def read1(self, size: int | None = -1) -> bytes:
        return CountingBytes(super().read1(size))


def read_stream_lines(chunks: Sequence[bytes]) -> list[bytes]:
    return list(LineStream(ChunkedStream(chunks), NAME))


def test_a_long_line_is_copied_a_constant_number_of_times() -> None:
    copied = []
    for count in (100, 400):
        CountingBytes.copied = 0
        content = b"ab" * 50
        (line, rest) = LineStream(CountingStream([content] * count + [b"\nc"]), NAME)
        assert (line, rest) == (content * count + b"\n", b"c")
        copied.append(CountingBytes.copied / len(line))
    assert copied[0] < 3 and copied[1] == pytest.approx(copied[0], rel=0.1)


@given(st.lists(st.sampled_from([b"", b"a", b"\n", b"b\n", b"\nc", b"d\r\ne", b"\0\xff\n\n"])))
def test_lines_do_not_depend_on_the_chunks(chunks: list[bytes]) -> None:
    content = b"".join(chunks)
    expected = list(io.BytesIO(content))
    assert read_stream_lines(chunks) == expected
    assert read_stream_lines([content]) == expected
    assert read_stream_lines([gzip.compress(content)]) == expected


def test_lines_are_yielded_before_more_is_read() -> None:
    stream = ChunkedStream([b"a\n", b"b", b"c\nd\ne", b"\n"])
    line_stream = LineStream(stream, NAME)
    positions = [(line, stream.tell(), len(line_stream.arrived_lines)) for line in line_stream]
    assert positions == [(b"a\n", 2, 0), (b"bc\n", 8, 1), (b"d\n", 8, 0), (b"e\n", 9, 0)]


def test_compressed_lines_are_yielded_before_more_is_read() -> None:
    compressor = zlib.compressobj(wbits=31)
    chunks = [compressor.compress(line) + compressor.flush(zlib.Z_SYNC_FLUSH) for line in (b"a\n", b"b\n", b"c\n")]
    chunks.append(compressor.flush())
    stream = ChunkedStream(chunks)
    positions = [(line, stream.tell()) for line in LineStream(stream, NAME)]
    assert [line for line, _ in positions] == [b"a\n", b"b\n", b"c\n"]
    assert all(before < after for (_, before), (_, after) in pairwise(positions))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_gzip_is_detected_for_any_chunks(size: int) -> None:
    content = gzip.compress(b"a\nb\n") + gzip.compress(b"c\n" * 100) + gzip.compress(b"") + bytes(10)
    chunks = [content[start : start + size] for start in range(0, len(content), size)]
    assert read_stream_lines(chunks) == [b"a\n", b"b\n"] + [b"c\n"] * 100
    assert read_stream_lines([b"\x1f"]) == [b"\x1f"] and read_stream_lines([b"\x1f", b"a\n"]) == [b"\x1fa\n"]


NUMBERS = b"".join(b"%d\n" % number for number in range(5000))
COMPRESSED = gzip.compress(NUMBERS)


def compress_with_invalid_block(content: bytes) -> bytes:
    """Return a gzip file whose first blocks hold the content, followed by an invalid block."""
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(content) + compressor.flush(zlib.Z_SYNC_FLUSH) + b"\xff" * 10


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(COMPRESSED[:-1], id="truncated at the end"),
        pytest.param(COMPRESSED[:100], id="truncated"),
        pytest.param(COMPRESSED[:5], id="truncated in the header"),
        pytest.param(COMPRESSED[:300] + b"\0" * 300 + COMPRESSED[600:], id="damaged"),
        pytest.param(compress_with_invalid_block(NUMBERS), id="damaged after many lines"),
        pytest.param(COMPRESSED + b"more", id="followed by other bytes"),
    ],
)
def test_damaged_gzip_is_reported_for_streams_and_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.gz").write_bytes(content)
    lines_before = []
    for reader in (LineStream(ChunkedStream([content]), NAME), read_lines(tmp_path / "a.gz")):
        lines_before.append(list[bytes]())
        with pytest.raises(
            DataError, match=r"^cannot read .*( beyond line \d+)?: the gzip file is damaged or cut short \("
        ):
            for line in reader:
                lines_before[-1].append(line)
    assert lines_before[0] == lines_before[1]


def test_an_endless_line_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    content = b"a\n" + b"b" * 9 + b"\n" + b"c" * 1000
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "b.gz").write_bytes(gzip.compress(content))
    stream = ChunkedStream([content[start : start + 5] for start in range(0, len(content), 5)])
    for reader in (check_lines(LineStream(stream, NAME), NAME), *map(read_lines, sorted(tmp_path.iterdir()))):
        lines_read = []
        with pytest.raises(DataError, match=r"(input|a\.txt|b\.gz):3: the line has more than 10 bytes: is this a text"):
            for line in reader:
                lines_read.append(line)
        assert lines_read == [b"a\n", b"b" * 9 + b"\n"]
    assert stream.tell() < 40


def test_an_unclosed_quote_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers_module, "MAX_LINE_BYTES", 100)
    num_lines = 0

    def endless() -> Iterator[bytes]:
        nonlocal num_lines
        yield b"a,b\n"
        yield b'"\n'
        while num_lines < 1000:
            num_lines += 1
            yield b'","\xff\n'

    items: list[object] = []
    with pytest.raises(DataError, match=r"^x\.csv:2: the record has more than 100 bytes: is a quote missing\?$"):
        for item in parse_sources(endless(), "x.csv", DataConfig(input_format="csv")):
            items.append(item)
    assert len(items) == 1 and num_lines < 25


@pytest.mark.parametrize("lines", [0, 3, 5000])
def test_damaged_gzip_is_reported_with_the_last_line(tmp_path: Path, lines: int) -> None:
    """The content comes from a file or from a stream."""
    content, path = gzip.compress(b"ab\n" * lines)[:-4] if lines else b"\x1f\x8b\x08", tmp_path / "a.gz"
    path.write_bytes(content)
    location = f" beyond line {lines}" if lines else ""
    for name, reader in (("a.gz", read_lines(path)), ("-", iter(LineStream(io.BytesIO(content), "-")))):
        with pytest.raises(DataError) as caught:
            list(reader)
        message = str(caught.value).replace(str(tmp_path) + "/", "")
        assert message.startswith(f"cannot read {name}{location}: the gzip file is damaged or cut short (")
        assert message.endswith("); copy or download it again")


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("ab\u2028c\u0085\x0c\nd".encode())
    items = [item if isinstance(item, BadLine) else item.source for item in read_sources(path, DataConfig())]
    assert items == ["ab\u2028c\u0085\x0c", "d"]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_stream_that_unpacks_to_very_much_is_refused(is_compressed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_MAX_UNPACKED_MIB", "1")
    content = b"a\tb\n" * 300_000
    stream = LineStream(ChunkedStream([gzip.compress(content) if is_compressed else content]), NAME)
    if is_compressed:
        with pytest.raises(DataError, match=r"^standard input unpacks to more than 1,048,576 bytes"):
            list(stream)
    else:
        assert sum(1 for _ in stream) == 300_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tsv", b"a\t" * 101 + b"\n", "x.tsv:1: more than 100 columns: is this a table?"),
        ("x.jsonl", b'{"a":0' + b',"b":0' * 101 + b"}\n", "x.jsonl:1: more than 100 colons: expected an object"),
        ("x.csv", b"a," * 102 + b"\n", "x.csv:1: the record has more than 100 delimiters: is this a table"),
        (
            "x.csv",
            (b'"' + b"a," * 60 + b"\n" + b"a," * 60 + b'"\n'),
            "x.csv:1: the record has more than 100 delimiters",
        ),
    ],
)
def test_a_row_of_very_many_columns_is_refused_before_it_is_split(
    name: str, content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: a line of 255 MiB with 89 million short cells took 24 times its size."""
    for module in (readers_module, delimiters_module):
        monkeypatch.setattr(module, "MAX_COLUMNS", 100)
    valid = {"x.tsv": b"a\tb\n", "x.csv": b"a,b\n", "x.jsonl": b'{"a": "x", "b": "y"}\n'}[name]
    (tmp_path / name).write_bytes(content + valid)
    config = DataConfig(on_bad_line="skip", header=False)
    if name == "x.csv":
        with pytest.raises(DataError, match=message):
            read_examples(tmp_path / name, config)
        return
    reading = read_examples(tmp_path / name, config)
    assert len(reading.examples) == 1 and message in str(reading.bad_lines[0])


def test_a_long_json_line_is_not_parsed_to_find_a_repeated_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(readers_module, "MAX_PARSED_JSON", 100)
    path = tmp_path / "x.jsonl"
    lines = ['{"a": "x", "a": "y", "b": "z"}', '{"a": "x", "a": "%s", "b": "z"}' % ("y" * 100), '{"a": "x", "b": "y"}']
    path.write_text("\n".join(lines))
    reading = read_examples(path, DataConfig(on_bad_line="skip", source_column="a", target_column="b"))
    assert [line.reason for line in reading.bad_lines] == [
        "the key 'a' occurs twice",
        "a key occurs twice, or has a quotation mark",
    ]


def test_a_file_of_bad_lines_is_refused_before_all_of_them_are_stored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(examples_module, "MAX_BAD_LINES", 3)
    path, config = tmp_path / "x.tsv", DataConfig(on_bad_line="skip", header=False)
    path.write_bytes(b"a\tb\n" * 3 + b"x\n" * 3)
    assert len(read_examples(path, config).bad_lines) == 3
    path.write_bytes(b"a\tb\n" * 3 + b"x\n" * 9)
    with pytest.raises(
        DataError, match=r"x\.tsv: 4 of the first 7 lines are bad, so the format, the delimiter or the columns"
    ):
        read_examples(path, config)
