"""Lines of files and standard input: plain or gzip-compressed UTF-8.

Only a newline ends a line: U+2028, U+0085, form feeds and similar characters are data. A carriage return before the
newline and a byte order mark before the first line are removed; a carriage return elsewhere makes its line bad. Time
and memory are linear in the length of a line; a line of more than `MAX_LINE_BYTES` bytes is refused.
"""

import gzip
import io
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from select import select
from typing import Any

from pellucid.argument_checks import argument_error, check_arguments
from pellucid.errors import DataError, abbreviate_reason, quote, suggest
from pellucid.files import os_error_text, standard_input_advice, wrap_os_errors
from pellucid.limits import check_module_limits, check_unpacked, read_module_limit

MAX_LINE_BYTES = read_module_limit("PELLUCID_MAX_LINE_MIB", 256, largest=2047)
"""Maximum length of a line in bytes; a longer one would exhaust the memory before an error could be reported. The csv
module has no fields of 2 GiB."""
MAX_COLUMNS = 2**20
"""Maximum number of columns of a row, of delimiters in a CSV record, and of keys of a JSON object: Python needs 60 to
220 bytes for each."""
READ_SIZE = 2**16
"""Number of bytes read from a stream at once."""
UNPACKED_BLOCK = 2**13
"""Number of bytes that are decompressed at once: what precedes damage in the same block cannot be read."""
MAX_TEXT_BEFORE = 30
"""Maximum number of bytes before invalid UTF-8 that its message shows as text."""
CARRIAGE_RETURN = b"\r"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)
"""Exceptions of gzip for a damaged or truncated file."""
FOREIGN_SIGNATURES = {
    **{b"\xff\xfe\0\0": "UTF-32 text", b"\0\0\xfe\xff": "UTF-32 text"},  # before UTF-16, whose signature is a prefix
    **{b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text"},
    b"PK\x03\x04": "a zip archive or an Excel workbook",
}


class RecordError(Exception):
    """An invalid record. Caught within this package, where it becomes a `BadLine` or a `DataError`."""


@check_arguments
@contextmanager
def open_data_file(path: str | Path) -> Iterator[io.BufferedReader]:
    """Open a file, and decompress it if it is gzip-compressed, under any name.

    Args:
        path: The file.

    Yields:
        The decompressed content, open for reading.

    Raises:
        DataError: The file is missing, unreadable or damaged, or named .gz without being compressed. Also raised for
            system errors and damage while the block reads.
        ConfigError: A limit in an environment variable is invalid.
    """
    path = Path(path)
    check_module_limits()
    with wrap_os_errors("read", path, DataError):
        try:
            with path.open("rb") as file:
                if file.peek(2)[:2] == GZIP:
                    counted = _CountedFile(file)
                    with gzip.GzipFile(fileobj=counted) as content:
                        # Reads by read1, so that the lines before the damage are still returned.
                        yield io.BufferedReader(_UnpackedStream(content, counted, str(path)))
                elif path.suffix.lower() == ".gz" and file.peek(1):
                    raise DataError(f"{path} is named .gz but not compressed with gzip: rename it")
                else:
                    yield file
        except GZIP_ERRORS as error:
            raise _damaged(str(path), error) from error
        except FileNotFoundError as error:
            raise DataError(
                f"cannot read {path}: {os_error_text(error)}"
                f"{standard_input_advice(path) or suggest(path.name, _sibling_files(path))}"
            ) from error


@check_arguments
def read_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the lines of a file with their line ends, the first without a byte order mark.

    Args:
        path: The file.

    Raises:
        DataError: As in `open_data_file` and `check_lines`.
    """
    path = Path(path)
    yield from check_lines(read_raw_lines(path), str(path))


def read_raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file with their ends, and with a byte order mark.

    A line of more than `MAX_LINE_BYTES` bytes comes in pieces, the first of which `check_lines` refuses.

    Args:
        path: The file.

    Raises:
        DataError: As in `open_data_file`.
    """
    with open_data_file(path) as file:
        yield from _whole_lines(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), str(path))


class LineStream:
    """Lines of a stream, each available as soon as it has arrived. Gzip-compressed streams are decompressed.

    Iteration raises `DataError` for a damaged gzip stream, and for one whose content is much larger than it.
    """

    def __init__(self, stream: io.BufferedIOBase, name: str) -> None:
        """Initialize without reading.

        Args:
            stream: The stream, open for reading.
            name: Name of the stream, for messages.
        """
        self.stream = stream
        self.name = name
        self.arrived_lines: deque[bytes] = deque()
        """Lines that have arrived and are not yet consumed."""

    def __iter__(self) -> Iterator[bytes]:
        """Return an iterator over whole lines with their newlines, which the last one may lack.

        A line of more than `MAX_LINE_BYTES` bytes ends the iteration; `check_lines` then refuses it.
        """
        return _whole_lines(self._lines(), self.name)

    def _lines(self) -> Iterator[bytes]:
        """Yield whole lines; errors of gzip are passed on."""
        partial_line = list[bytes]()  # parts of the incomplete line, joined once at its end
        length = 0
        for chunk in self._pieces():
            *lines, remainder = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join([*partial_line, lines[0]])
                partial_line = []
                length = 0
                self.arrived_lines.extend(line + b"\n" for line in lines)
            partial_line.append(remainder)
            length += len(remainder)
            while self.arrived_lines:
                yield self.arrived_lines.popleft()
            if length > MAX_LINE_BYTES:
                break
        if length:
            yield b"".join(partial_line)

    def _pieces(self) -> Iterator[bytes]:
        """Yield decompressed bytes as they arrive."""
        first = self.stream.read1(READ_SIZE)
        if first == GZIP[:1]:
            first += self.stream.read(1)
        if first.startswith(GZIP):
            counted = _CountedFile(_PrefixedStream(first, self.stream))
            with gzip.GzipFile(fileobj=counted) as content:
                unpacked = io.BufferedReader(_UnpackedStream(content, counted, self.name), READ_SIZE)
                yield from iter(partial(unpacked.read1, READ_SIZE), b"")
        else:
            yield first
            yield from iter(partial(self.stream.read1, READ_SIZE), b"")


class WaitingStream(io.RawIOBase):
    """Stream whose reads wait for bytes, also of a pipe that another program has set not to block (O_NONBLOCK).

    Such a pipe returns None while its writer pauses, which buffered readers pass on as the end. Its state is that of
    other programs as well, so it stays.
    """

    def __init__(self, stream: io.RawIOBase, name: str) -> None:
        """Initialize without reading.

        Args:
            stream: The stream.
            name: Name of the stream, for messages.
        """
        self.stream = stream
        self.name = name

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (any buffer)
        """Read the available bytes into a buffer, and return their number.

        Args:
            buffer: A writable buffer.

        Raises:
            DataError: The stream cannot be read.
        """
        with wrap_os_errors("read", Path(self.name), DataError):
            while (size := self.stream.readinto(buffer)) is None:
                select([self.stream], [], [])
            return size


class _PrefixedStream(io.RawIOBase):
    """Stream that begins with bytes read before. A read returns the available bytes and does not wait for more."""

    def __init__(self, prefix: bytes, stream: io.BufferedIOBase) -> None:
        """Initialize without reading.

        Args:
            prefix: Bytes that were read from the stream before.
            stream: The rest of the stream.
        """
        self.prefix = prefix
        self.stream = stream

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (any buffer)
        """Read the available bytes into a buffer, and return their number.

        Args:
            buffer: A writable buffer.
        """
        view = memoryview(buffer).cast("B")
        if self.prefix:
            piece, self.prefix = self.prefix[: len(view)], self.prefix[len(view) :]
        else:
            piece = self.stream.read1(len(view))
        view[: len(piece)] = piece
        return len(piece)


class _CountedFile(io.BufferedIOBase):
    """Open file whose bytes are counted as they are read."""

    def __init__(self, file: io.BufferedReader | io.RawIOBase) -> None:
        """Initialize without reading.

        Args:
            file: The file.
        """
        self.file = file
        self.size = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes.

        Args:
            size: Maximum number; all if it is negative or None.
        """
        block = self.file.read(-1 if size is None else size) or b""
        self.size += len(block)
        return block


class _UnpackedStream(_PrefixedStream):
    """Content of a gzip file, which must not be much larger than the file."""

    def __init__(self, content: gzip.GzipFile, file: _CountedFile, name: str) -> None:
        """Initialize without reading.

        Args:
            content: The content.
            file: The file.
            name: Name of the file, for messages.
        """
        super().__init__(b"", content)
        self.file = file
        self.name = name
        self.unpacked = 0

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (any buffer)
        """Read the available bytes into a buffer, and return their number.

        Args:
            buffer: A writable buffer.

        Raises:
            DataError: The content is much larger than the file (`check_unpacked`).
        """
        size = super().readinto(memoryview(buffer).cast("B")[:UNPACKED_BLOCK])
        self.unpacked += size
        check_unpacked(self.name, self.unpacked, self.file.size)
        return size


def _whole_lines(lines: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield lines; raise `DataError` for damaged gzip content, with the number of lines before it."""
    number = 0
    try:
        for number, line in enumerate(lines, 1):  # noqa: B007 (the error message needs it)
            yield line
    except GZIP_ERRORS as error:
        raise _damaged(name, error, f" beyond line {number}" if number else "") from error


def _damaged(name: str, error: Exception, location: str = "") -> DataError:
    """Return the error for gzip content that cannot be read."""
    return DataError(
        f"cannot read {name}{location}: the gzip file is damaged or cut short ({abbreviate_reason(error)}); copy or "
        "download it again"
    )


def typed_lines(lines: Iterable[bytes]) -> Iterable[bytes]:
    """Return the lines of a caller, checked to be bytes: of a list at once, of a binary stream not at all.

    Args:
        lines: The lines.

    Raises:
        ArgumentError: `lines` is not iterable, or a line is not bytes; of an iterator, when the line is read.
    """
    if issubclass(type(lines), LineStream | io.BufferedIOBase | io.RawIOBase):
        return lines
    if type(lines) in (list, tuple) and {*map(type, lines)} <= {bytes}:
        return lines
    if not issubclass(type(lines), str | bytes | bytearray | Mapping):
        with suppress(Exception):  # methods of a value may raise anything
            return _checked_bytes(iter(lines))
    raise argument_error("lines", "lines as bytes, such as a file that is open in binary mode", lines)


def _checked_bytes(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines; raise `ArgumentError` for one that is not bytes."""
    for index, line in enumerate(lines):
        if type(line) is not bytes:
            raise argument_error(f"lines[{index}]", "bytes", line)
        yield line


def check_lines(lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield lines, the first without a byte order mark; none for an input that has nothing else.

    Args:
        lines: The lines.
        name: Name of the input for messages.

    Raises:
        DataError: A line is too long, or the first bytes are the signature of another file format.
    """
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE_BYTES:
            raise DataError(f"{name}:{number}: the line has more than {MAX_LINE_BYTES:,} bytes: is this a text file?")
        if number > 1 or (line := _first_line(line, name)):
            yield line


def _first_line(line: bytes, name: str) -> bytes:
    """Return the first line without a byte order mark; raise `DataError` for the signature of another file format."""
    for signature, kind in FOREIGN_SIGNATURES.items():
        if line.startswith(signature):
            raise DataError(f"{name} is {kind}: save it as plain text in UTF-8")
    return line.removeprefix(BYTE_ORDER_MARK)


def protect_mark(content: bytes, has_bom: bool) -> bytes:
    """Return a file that gets a byte order mark if its first record begins with one, which a reader would remove.

    Args:
        content: The new file, of records of another one.
        has_bom: Whether it begins with a byte order mark that belongs to no record.
    """
    return content if has_bom or not content.startswith(BYTE_ORDER_MARK) else BYTE_ORDER_MARK + content


def is_blank(line: bytes) -> bool:
    """Return whether a line contains nothing but spaces, tabs and its end; other white space is data.

    Args:
        line: The line.
    """
    return not line.strip(b" \t\r\n")


def decode_line(line: bytes) -> str:
    """Return a line as text, with its end.

    Args:
        line: The line.

    Raises:
        RecordError: The line contains a NUL byte, which is typical of binary files, or is invalid UTF-8.
    """
    if b"\0" in line:
        raise RecordError(f"NUL byte at byte {line.index(0) + 1}: is this a binary or UTF-16 file?")
    return decode_utf8(line)


def decode_utf8(value: bytes) -> str:
    """Return bytes as text.

    Args:
        value: The bytes.

    Raises:
        RecordError: The bytes are invalid UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        text = value[max(0, error.start - MAX_TEXT_BEFORE) : error.start].decode(errors="ignore")
        after = f" after {quote(text)}" if text else ""
        location = f"byte {error.start + 1} (0x{value[error.start]:02x}){after}"
        raise RecordError(
            f"invalid UTF-8 at {location}: is this a binary file, or text in another encoding (convert the file to "
            "UTF-8, or only this line if the others are UTF-8)?"
        ) from error


def strip_newline(text: str) -> str:
    """Return a line without its newline and a carriage return before it.

    Args:
        text: The line.
    """
    return text.removesuffix("\n").removesuffix("\r")


def line_text(line: bytes) -> str:
    """Return a line as text without its end.

    A line with a carriage return inside is several lines of a file with other line ends, so it would be misread as one.

    Args:
        line: The line.

    Raises:
        RecordError: As in `decode_line`, or the line contains a carriage return.
    """
    text = strip_newline(decode_line(line))
    if "\r" in text:
        raise RecordError(
            "carriage returns without newlines do not end lines (the first is byte "
            f"{line.index(CARRIAGE_RETURN) + 1}): save the file with newlines"
        )
    return text


def _sibling_files(path: Path) -> list[str]:
    """Return the names of the files in the folder of a path; none if it cannot be listed."""
    try:
        return [entry.name for entry in os.scandir(path.parent) if entry.is_file()]
    except OSError:
        return []
