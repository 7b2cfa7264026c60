"""Files to lines: plain or compressed with gzip, in UTF-8, each line whole and untouched.

A newline ends a line and nothing else does: U+2028, U+0085, form feeds and the like are data. A carriage return before
the newline goes with it, and a byte order mark before the first line is removed.
"""

import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pellucid.errors import DataError, nearest
from pellucid.files import reason, refusals

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
FOREIGN = {b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text", b"PK\x03\x04": "a zip archive or an Excel workbook"}


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
                        yield io.BufferedReader(content)
                elif path.suffix.lower() == ".gz" and file.peek(1):
                    raise DataError(f"{path} is not compressed with gzip, though its name ends in .gz: rename it")
                else:
                    yield file
        except FileNotFoundError as error:
            raise DataError(f"cannot read {path}: {reason(error)}{nearest(path.name, _siblings(path))}") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"cannot read {path}: the gzip file is damaged or cut short ({error})") from error


def file_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, their ends kept; errors as `opened` and `checked_lines` have them."""
    with opened(path) as file:
        yield from checked_lines(file, str(path))


def checked_lines(lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The same lines without a byte order mark; `DataError` where they begin as another kind of file does."""
    following = iter(lines)
    for first in following:
        for signature, kind in FOREIGN.items():
            if first.startswith(signature):
                raise DataError(f"{name} is {kind}: save it as plain text in UTF-8")
        yield first.removeprefix(BYTE_ORDER_MARK)
        break
    yield from following


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


def _siblings(path: Path) -> list[str]:
    """The names of the files in the folder of a path; none where it cannot be listed."""
    try:
        return [entry.name for entry in os.scandir(path.parent) if entry.is_file()]
    except OSError:
        return []
