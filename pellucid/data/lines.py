"""Files and standard input to lines: plain or compressed with gzip, in UTF-8, each line whole and untouched.

A newline ends a line and nothing else does: U+2028, U+0085, form feeds and the like are data. A carriage return before
the newline goes with it; one that stands anywhere else makes its line bad, for old files end lines so. A byte order
mark before the first line is removed. Work and memory grow with the length
of a line and no faster; a line of more than `LONGEST_LINE` bytes is refused.
"""

import gzip
import io
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pellucid.errors import DataError, abbreviate_reason, nearest
from pellucid.files import reason, refusals

LONGEST_LINE = 2**28
"""Bytes of a line, at most: more would fill the memory before anybody could say what is wrong with the file."""
PIECE = 2**16
"""Bytes that are read at once as they arrive."""
CARRIAGE_RETURN = b"\r"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)
"""What gzip raises where a file is damaged or cut short."""
FOREIGN = {
    **{b"\xff\xfe\0\0": "UTF-32 text", b"\0\0\xfe\xff": "UTF-32 text"},  # before UTF-16, which begins alike
    **{b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text"},
    b"PK\x03\x04": "a zip archive or an Excel workbook",
}


class RecordError(Exception):
    """Why the record at hand is bad. Raised and caught within this folder; users see a `BadLine` or a `DataError`."""


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The content of a file, decompressed where it is gzip's, whatever its name.

    Errors, also while the block reads: `DataError` for a file that is missing (with the nearest name in its folder),
    not readable, damaged, or named .gz without being so.
    """
    with refusals("read", path, DataError):
        try:
            with path.open("rb") as file:
                if file.peek(2)[:2] == GZIP:
                    with gzip.GzipFile(fileobj=file) as content:
                        # By read1, so that damage takes no line with it that came before.
                        yield io.BufferedReader(_Arriving(b"", content))
                elif path.suffix.lower() == ".gz" and file.peek(1):
                    raise DataError(f"{path} is not compressed with gzip, though its name ends in .gz: rename it")
                else:
                    yield file
        except GZIP_ERRORS as error:
            raise _damaged(str(path), error) from error
        except FileNotFoundError as error:
            raise DataError(f"cannot read {path}: {reason(error)}{nearest(path.name, _siblings(path))}") from error


def file_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, their ends kept; errors as `opened` and `checked_lines` have them."""
    with opened(path) as file:
        lines = _whole_lines(iter(partial(file.readline, LONGEST_LINE + 1), b""), str(path))
        yield from checked_lines(lines, str(path))


class ArrivingLines:
    """Lines of a stream as they arrive, so that who types or pipes one line gets its answer before the next.

    What begins as gzip does is decompressed, also as it arrives. Errors, while it is iterated: `DataError` for a
    damaged gzip stream.
    """

    def __init__(self, stream: io.BufferedIOBase, name: str) -> None:
        """Nothing has arrived yet; `name` stands for the path in messages."""
        self.stream = stream
        self.name = name
        self.waiting: deque[bytes] = deque()
        """Lines that have arrived and nobody has taken."""

    def __iter__(self) -> Iterator[bytes]:
        """Whole lines; the last one may lack its end."""
        return _whole_lines(self._lines(), self.name)

    def _lines(self) -> Iterator[bytes]:
        """The same; gzip's own errors where its content is damaged."""
        unfinished = list[bytes]()  # of the line whose end has not arrived: joined once, whatever its length
        length = 0
        for piece in self._pieces():
            *lines, rest = piece.split(b"\n")
            if lines:
                lines[0] = b"".join([*unfinished, lines[0]])
                unfinished, length = [], 0
                self.waiting.extend(line + b"\n" for line in lines)
            unfinished.append(rest)
            length += len(rest)
            while self.waiting:
                yield self.waiting.popleft()
            if length > LONGEST_LINE:
                break
        if length:
            yield b"".join(unfinished)

    def _pieces(self) -> Iterator[bytes]:
        """What arrives, decompressed where it is gzip's."""
        first = self.stream.read1(PIECE)
        if first == GZIP[:1]:
            first += self.stream.read(1)
        if first.startswith(GZIP):
            with gzip.GzipFile(fileobj=_Arriving(first, self.stream)) as content:
                yield from iter(partial(content.read1, PIECE), b"")
        else:
            yield first
            yield from iter(partial(self.stream.read1, PIECE), b"")


class _Arriving(io.RawIOBase):
    """A stream whose first bytes have been read; reading returns what has arrived and does not wait for more."""

    def __init__(self, first: bytes, stream: io.BufferedIOBase) -> None:
        self.first = first
        self.stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (whatever holds bytes)
        view = memoryview(buffer).cast("B")
        if self.first:
            piece, self.first = self.first[: len(view)], self.first[len(view) :]
        else:
            piece = self.stream.read1(len(view))
        view[: len(piece)] = piece
        return len(piece)


def _whole_lines(lines: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The same lines; where gzip's content ends in damage, a `DataError` that tells how many lines came before it."""
    number = 0
    try:
        for number, line in enumerate(lines, 1):  # noqa: B007 (told where the next line fails)
            yield line
    except GZIP_ERRORS as error:
        raise _damaged(name, error, f" beyond line {number}" if number else "") from error


def _damaged(name: str, error: Exception, where: str = "") -> DataError:
    """What is told of gzip's content that cannot be read."""
    return DataError(
        f"cannot read {name}{where}: the gzip file is damaged or cut short ({abbreviate_reason(error)}); copy or "
        "download it anew"
    )


def checked_lines(lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The same lines without a byte order mark.

    Errors: `DataError` where they begin as another kind of file does, and for a line that is longer than any text.
    """
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            raise DataError(f"{name}:{number}: the line has more than {LONGEST_LINE:,} bytes: is this a text file?")
        yield line if number > 1 else _first_line(line, name)


def _first_line(line: bytes, name: str) -> bytes:
    """The first line without a byte order mark; `DataError` where it begins as another kind of file does."""
    for signature, kind in FOREIGN.items():
        if line.startswith(signature):
            raise DataError(f"{name} is {kind}: save it as plain text in UTF-8")
    return line.removeprefix(BYTE_ORDER_MARK)


def is_blank(line: bytes) -> bool:
    """Whether a line holds spaces and tabs at most; other white space is data."""
    return not line.strip(b" \t\r\n")


def decoded(line: bytes) -> str:
    """A line as text; `RecordError` for a NUL byte (text has none, other files have many) and for invalid UTF-8."""
    if b"\0" in line:
        raise RecordError(f"a NUL byte at byte {line.index(0) + 1}: is this a binary or UTF-16 file?")
    return decoded_value(line)


def decoded_value(value: bytes) -> str:
    """Bytes as text, NUL and all; `RecordError` for invalid UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1} (0x{value[error.start]:02x})"
        raise RecordError(f"invalid UTF-8 at {where}: is this a binary file, or text in another encoding?") from error


def without_end(text: str) -> str:
    """A line without its newline and one carriage return."""
    return text.removesuffix("\n").removesuffix("\r")


def line_text(line: bytes) -> str:
    """A line as text, without its end; `RecordError` as of `decoded`, and for a carriage return within the line.

    Such a line is several of a file whose other line ends are carriage returns: as one it would be read wrongly.
    """
    text = without_end(decoded(line))
    if "\r" in text:
        raise RecordError(
            f"lone carriage returns are no line ends (the first is byte {line.index(CARRIAGE_RETURN) + 1}): save the "
            "file with newlines"
        )
    return text


def _siblings(path: Path) -> list[str]:
    """The names of the files in the folder of a path; none where it cannot be listed."""
    try:
        return [entry.name for entry in os.scandir(path.parent) if entry.is_file()]
    except OSError:
        return []
