"""Records in a temporary file: a list whose items are on disk."""

import tempfile
import weakref
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Generic, TypeVar

import msgspec
import numpy as np

from pellucid.row_file import RowFile, close_temporary_file, wrap_temporary_errors
from pellucid.shapes import Int

MAX_BYTES_IN_MEMORY = 2**24
"""Number of bytes up to which no file is written."""
READ_BYTES = 2**14
"""Number of bytes that are read at a time: records are mostly read in their order."""

RecordT = TypeVar("RecordT")


class RecordFile(Generic[RecordT]):
    """List of records, each encoded as MessagePack. The file ends with the list.

    All records are appended before the first one is read.
    """

    def __init__(self, kind: type[RecordT]) -> None:
        """Begin without records.

        Args:
            kind: Type of the records.
        """
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._num_bytes, self._ends = 0, RowFile(np.int64)
        self._read_ends: Int[np.ndarray, " n"] | None = None
        self._read_start, self._read_content = 0, b""
        self._file = tempfile.SpooledTemporaryFile(MAX_BYTES_IN_MEMORY)  # noqa: SIM115 (it is closed with this object)
        weakref.finalize(self, close_temporary_file, self._file)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._ends)

    def append(self, record: RecordT) -> None:
        """Append a record.

        Args:
            record: The record.

        Raises:
            RunError: The file cannot be written.
        """
        self.extend([record])

    def extend(self, records: Iterable[RecordT]) -> None:
        """Append records, which are written together.

        Args:
            records: The records.

        Raises:
            RunError: The file cannot be written.
        """
        contents = list(map(msgspec.msgpack.encode, records))
        with wrap_temporary_errors("write"):
            self._file.write(b"".join(contents))
        ends = list(accumulate(map(len, contents), initial=self._num_bytes))
        self._num_bytes = ends[-1]
        self._ends.extend(ends[1:])

    def __getitem__(self, index: int) -> RecordT:
        """Return a record.

        Args:
            index: Number of the record, from 0.

        Raises:
            RunError: The file cannot be read.
        """
        if self._read_ends is None or len(self._read_ends) != len(self):
            self._read_ends = self._ends.rows
        start, end = int(self._read_ends[index - 1]) if index else 0, int(self._read_ends[index])
        first, last = start - self._read_start, end - self._read_start
        if not 0 <= first <= last <= len(self._read_content):
            with wrap_temporary_errors("read"):
                self._file.seek(start)
                self._read_content = self._file.read(max(end - start, READ_BYTES))
            self._read_start, first, last = start, 0, end - start
        return self._decoder.decode(self._read_content[first:last])

    def __iter__(self) -> Iterator[RecordT]:
        """Yield the records in their order.

        Raises:
            RunError: The file cannot be read.
        """
        return map(self.__getitem__, range(len(self)))
