"""Records in a temporary file: a list whose items are on disk."""

import tempfile
import weakref
from array import array
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from pellucid.files import wrap_os_errors

MAX_BYTES_IN_MEMORY = 2**24
"""Number of bytes up to which no file is written."""

RecordT = TypeVar("RecordT")


class RecordFile(Generic[RecordT]):
    """List of records, each encoded as MessagePack; memory holds 8 bytes of each. The file ends with the list.

    All records are appended before the first one is read.
    """

    def __init__(self, kind: type[RecordT]) -> None:
        """Begin without records.

        Args:
            kind: Type of the records.
        """
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._ends = array("q", [0])
        self._file = tempfile.SpooledTemporaryFile(MAX_BYTES_IN_MEMORY)  # noqa: SIM115 (it is closed with this object)
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._ends) - 1

    def append(self, record: RecordT) -> None:
        """Append a record.

        Args:
            record: The record.

        Raises:
            RunError: The file cannot be written.
        """
        content = msgspec.msgpack.encode(record)
        with _wrap_temporary_errors("write"):
            self._file.write(content)
        self._ends.append(self._ends[-1] + len(content))

    def __getitem__(self, index: int) -> RecordT:
        """Return a record.

        Args:
            index: Number of the record, from 0.

        Raises:
            RunError: The file cannot be read.
        """
        start, end = self._ends[index], self._ends[index + 1]
        with _wrap_temporary_errors("read"):
            self._file.seek(start)
            content = self._file.read(end - start)
        return self._decoder.decode(content)

    def __iter__(self) -> Iterator[RecordT]:
        """Yield the records in their order.

        Raises:
            RunError: The file cannot be read.
        """
        return map(self.__getitem__, range(len(self)))


def _wrap_temporary_errors(verb: str) -> AbstractContextManager[None]:
    """Convert an `OSError` inside the block to "cannot write a temporary file in /tmp: ..."."""
    return wrap_os_errors(f"{verb} a temporary file in", Path(tempfile.gettempdir()))
