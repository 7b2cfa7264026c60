"""Rows of numbers that are appended one after the other; many of them are in a temporary file.

n rows.
"""

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike

from pellucid.files import wrap_os_errors
from pellucid.shapes import Int

MAX_BYTES_IN_MEMORY = 2**22
"""Number of bytes up to which no file is written."""
WRITE_BYTES = 2**18
"""Number of bytes that are written to the file at a time."""
BLOCK_ROWS = 2**16
"""Number of rows that are read at a time."""


class RowFile:
    """Rows of numbers of one NumPy type: single numbers, or records with a number in each field.

    Beyond `MAX_BYTES_IN_MEMORY` they are in a temporary file, which ends with this object. They are read through a
    memory map of the file, whose pages the system can drop. So the memory of a program does not grow with the rows.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        """Begin without rows.

        Args:
            dtype: Type of a row.
        """
        self.dtype = np.dtype(dtype)
        self._num_bytes = 0
        self._buffer = bytearray()
        self._file: BinaryIO | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._num_bytes // self.dtype.itemsize

    def extend(self, *columns: Sequence[Any] | np.ndarray) -> None:
        """Append rows.

        Args:
            *columns: Numbers of each field of the rows, in their order; rows as one array if they have no fields.

        Raises:
            RunError: A temporary file cannot be written.
        """
        arrays = [np.asarray(column) for column in columns]
        rows = np.empty(len(arrays[0]), self.dtype)
        if self.dtype.names is None:
            (rows[:],) = arrays
        else:
            for name, column in zip(self.dtype.names, arrays, strict=True):
                rows[name] = column
        self.extend_rows(rows)

    def extend_rows(self, rows: np.ndarray) -> None:
        """Append rows.

        Args:
            rows: Array of the type of the rows.

        Raises:
            RunError: A temporary file cannot be written.
        """
        content = rows.tobytes()
        self._buffer += content
        self._num_bytes += len(content)
        if len(self._buffer) > (MAX_BYTES_IN_MEMORY if self._file is None else WRITE_BYTES):
            self._write()

    @property
    def rows(self) -> np.ndarray:
        """All rows that have been appended, read-only: a memory map of the file, or a copy of those in memory.

        Raises:
            RunError: A temporary file cannot be written or read.
        """
        if self._file is None:
            return np.frombuffer(bytes(self._buffer), self.dtype)
        return np.frombuffer(self._map(mmap.ACCESS_READ), self.dtype)

    def take(self, indices: Int[np.ndarray, " m"]) -> np.ndarray:
        """Return some rows.

        Args:
            indices: Their numbers, from 0.

        Raises:
            RunError: A temporary file cannot be written or read.
        """
        rows: np.ndarray = np.frombuffer(self._buffer, self.dtype) if self._file is None else self.rows
        taken: np.ndarray = rows[indices]
        return taken

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in their order, `BLOCK_ROWS` at a time; a block without rows if there are none.

        Raises:
            RunError: A temporary file cannot be written or read.
        """
        rows = self.rows
        for first in range(0, max(1, len(rows)), BLOCK_ROWS):
            yield rows[first : first + BLOCK_ROWS]

    def sort(self) -> None:
        """Sort the rows in place: numbers by their values, and records by their bytes.

        Records are sorted by their fields, the first of them first, if these are unsigned numbers whose first byte is
        the most significant one (such as ">u8").

        Raises:
            RunError: A temporary file cannot be written or read.
        """
        kind = self.dtype if self.dtype.names is None else np.dtype(f"S{self.dtype.itemsize}")
        content = self._buffer if self._file is None else self._map(mmap.ACCESS_WRITE)
        np.frombuffer(content, kind).sort()

    def _write(self) -> None:
        """Write the rows in memory to the file."""
        with wrap_temporary_errors("write"):
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (it is closed with this object)
                weakref.finalize(self, close_temporary_file, self._file)
            remaining = memoryview(self._buffer)
            while remaining:
                remaining = remaining[self._file.write(remaining) :]
        self._buffer = bytearray()

    def _map(self, access: int) -> mmap.mmap:
        """Return a memory map of the file with all rows."""
        assert self._file is not None
        self._write()
        with wrap_temporary_errors("read"):
            return mmap.mmap(self._file.fileno(), self._num_bytes, access=access)


@contextmanager
def wrap_temporary_errors(verb: str) -> Iterator[None]:
    """Convert an `OSError` inside the block to "cannot write a temporary file in /tmp: ...".

    Args:
        verb: "write" or "read".

    Raises:
        RunError: The block raised an `OSError`, or no folder for temporary files can be written.
    """
    action = f"{verb} a temporary file in"
    with wrap_os_errors(action, Path(os.environ.get("TMPDIR") or "/tmp")):
        folder = Path(tempfile.gettempdir())
    with wrap_os_errors(action, folder):
        yield


def close_temporary_file(file: BinaryIO | tempfile.SpooledTemporaryFile[bytes]) -> None:
    """Close a temporary file whose content is of no more use; its last bytes may not fit on the disk.

    Args:
        file: The file.
    """
    with suppress(OSError):
        file.close()
