"""Corpora: encoded training examples in an Arrow file, written once and memory-mapped afterwards.

The system loads pages of the file when a batch needs them. The file also stores the vocabularies and the counts of bad
and blank lines, so that a resumed run need not read the training files again.
"""

import hashlib
import json
import mmap
import os
import struct
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pellucid.data.encoding import EncodedExamples, Ragged, count_ids
from pellucid.data.readers import BadLine
from pellucid.data.vocabulary import Vocabularies
from pellucid.errors import RunError
from pellucid.files import open_atomic, open_regular, open_regular_file, parse_json, wrap_os_errors

CORPUS_FORMAT = 1
"""Format of a corpus. Raise it when the file changes, or when the same files and settings give other ids or
vocabularies.
"""
METADATA, DIGEST = b"pellucid", b"sha256"
"""Keys of the metadata in the Arrow schema."""
MAGIC_SIZE = 8
"""Bytes before the first message of an Arrow file: ARROW1 and padding."""
GROWING_COLUMNS = ("source", "target")
"""Columns of a `GrowingCorpus`."""
OFFSET_SIZE = 8
"""Bytes of an offset."""
MESSAGE_HEADER, BATCH_COMPRESSION = 2, 3
"""Fields, counted from 0, of the tables Message and RecordBatch in Arrow's metadata (Message.fbs)."""


class CorpusError(Exception):
    """A corpus that cannot be used, with the reason. The caller reads the training files instead."""


# Names of fields in a corpus file, which stay readable when those of the classes change.
STORED_REPORT_NAMES = {"bad_lines": "bad", "num_blank_lines": "blank", "num_shared": "shared", "text_note": "texts"}
STORED_METADATA_NAMES = {"report": "found"}


class ReadingReport(msgspec.Struct, frozen=True, rename=STORED_REPORT_NAMES):
    """Bad lines, blank lines and shared examples found while the files were read."""

    bad_lines: tuple[BadLine, ...]
    """Skipped lines of the training file."""
    num_blank_lines: int
    """Number of blank lines of the training file."""
    num_shared: int
    """Number of validation examples that are training examples as well."""
    text_note: str = ""
    """Note about repeated examples and about spaces at the ends of texts of the training file; "" if there is none."""


class EncodedCorpus(NamedTuple):
    """Encoded training examples with the vocabularies learned from them."""

    key: str
    """Fingerprint of the files and settings; "" if the corpus cannot be used again."""
    report: ReadingReport
    """Bad, blank and shared lines of the files."""
    vocabularies: Vocabularies
    encoded: EncodedExamples


class _CorpusMetadata(msgspec.Struct, frozen=True, rename=STORED_METADATA_NAMES):
    """Metadata of a corpus file."""

    key: str
    report: ReadingReport
    vocabularies: Vocabularies


def write_corpus(path: Path, corpus: EncodedCorpus) -> None:
    """Write a corpus to a file, atomically.

    Args:
        path: The file.
        corpus: The corpus, with ids of unsigned 8-, 16- or 32-bit types.

    Raises:
        RunError: The file cannot be written.
    """
    import pyarrow

    # The json module escapes file names that are not valid Unicode; msgspec would refuse them.
    metadata = json.dumps(msgspec.to_builtins(_CorpusMetadata(corpus.key, corpus.report, corpus.vocabularies))).encode()
    columns = corpus.encoded.columns()
    lists = [pyarrow.LargeListArray.from_arrays(column.offsets, column.values) for column in columns.values()]
    batch = pyarrow.record_batch(lists, names=list(columns))
    batch = batch.replace_schema_metadata({METADATA: metadata, DIGEST: _digest(corpus.encoded, metadata)})
    with open_atomic(path) as file, pyarrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


class GrowingCorpus:
    """Encoded sources and targets in plain files that grow block by block; at the end, they become a corpus file.

    Each column has a file of ids and a file of offsets. The sizes after a block are a state to which the files can be
    cut back, so that an interrupted program continues.
    """

    def __init__(self, folder: Path, dtypes: Sequence[np.dtype[Any]], num_examples: int = 0) -> None:
        """Open the files; what was appended after the given number of examples is removed.

        Args:
            folder: Folder of the files, which exists.
            dtypes: Unsigned integer type of the ids of each column.
            num_examples: Number of examples that the files hold; 0, the default, for new files.

        Raises:
            RunError: A file cannot be written, or holds fewer examples.
        """
        self.num_examples = 0
        self._columns = [
            _GrowingColumn(folder / name, dtype, num_examples)
            for name, dtype in zip(GROWING_COLUMNS, dtypes, strict=True)
        ]
        self.num_examples = num_examples

    def append(self, encoded: EncodedExamples) -> None:
        """Append examples.

        Args:
            encoded: The examples.

        Raises:
            RunError: A file cannot be written.
        """
        for column, sequences in zip(self._columns, encoded.columns().values(), strict=True):
            column.append(sequences)
        self.num_examples += encoded.source.num_sequences

    def flush(self) -> None:
        """Flush the files to disk, so that they survive a loss of power.

        Raises:
            RunError: A file cannot be written.
        """
        for column in self._columns:
            column.flush()

    def mapped(self) -> EncodedExamples:
        """Return the examples as memory-mapped arrays of the files.

        Raises:
            RunError: A file cannot be read.
        """
        self.flush()
        return EncodedExamples(*(column.mapped() for column in self._columns))

    def close(self) -> None:
        """Close the files, which stay.

        Raises:
            RunError: The last bytes, which are not flushed yet, cannot be written.
        """
        with ExitStack() as stack:  # closes the other column as well if one fails
            for column in self._columns:
                stack.callback(column.close)


class _GrowingColumn:
    """Files of ids and of offsets of one column."""

    def __init__(self, path: Path, dtype: np.dtype[Any], num_sequences: int) -> None:
        """Open the files, and cut them back to a number of sequences."""
        self.ids_path, self.offsets_path = path.with_suffix(".ids"), path.with_suffix(".offsets")
        self.dtype = dtype
        with wrap_os_errors("write", path):
            self._ids = open_regular_file(self.ids_path, mode="ab+")  # through no link: it is cut back
            self._offsets = open_regular_file(self.offsets_path, mode="ab+")
            self.end = self._cut(num_sequences)

    def _cut(self, num_sequences: int) -> int:
        """Cut the files back to a number of sequences, and return the number of their ids."""
        if not num_sequences:
            self._ids.truncate(0)
            self._offsets.truncate(0)
            self._offsets.write(np.zeros(1, np.int64).tobytes())
            return 0
        self._offsets.seek(OFFSET_SIZE * num_sequences)
        last = self._offsets.read(OFFSET_SIZE)
        end = int.from_bytes(last, sys.byteorder)
        if len(last) < OFFSET_SIZE or os.path.getsize(self.ids_path) < end * self.dtype.itemsize:
            raise RunError(
                f"{self.ids_path} is shorter than its offsets say: remove {self.ids_path.parent}, and run the command "
                "again"
            )
        self._offsets.truncate(OFFSET_SIZE * (num_sequences + 1))
        self._ids.truncate(end * self.dtype.itemsize)
        return end

    def append(self, sequences: Ragged) -> None:
        """Append sequences of ids."""
        with wrap_os_errors("write", self.ids_path):
            self._ids.write(sequences.values.astype(self.dtype, copy=False).tobytes())
            self._offsets.write((sequences.offsets[1:] + self.end).astype(np.int64, copy=False).tobytes())
        self.end += int(sequences.offsets[-1])

    def flush(self) -> None:
        """Flush the files to disk."""
        for file in (self._ids, self._offsets):
            with wrap_os_errors("write", self.ids_path):
                file.flush()
                os.fsync(file.fileno())

    def mapped(self) -> Ragged:
        """Return the sequences as memory-mapped arrays."""
        with wrap_os_errors("read", self.ids_path):
            return Ragged(
                np.memmap(self.ids_path, self.dtype, "r") if self.end else np.zeros(0, self.dtype),
                np.memmap(self.offsets_path, np.int64, "r"),
            )

    def close(self) -> None:
        """Close the files, both if one cannot be written."""
        with wrap_os_errors("write", self.ids_path), self._ids, self._offsets:
            pass


def map_corpus(path: Path, key: str, has_features: bool) -> EncodedCorpus:
    """Map a corpus file into memory and check it.

    The checksum covers every byte, and no id exceeds the vocabularies: kernels do not check ids.

    Args:
        path: The file.
        key: Expected fingerprint of the files and settings.
        has_features: Whether the encoder reads features, whose ids then occur in sources.

    Returns:
        The corpus, whose arrays are views of the file.

    Raises:
        CorpusError: The file is missing or damaged, or belongs to other files or settings.
    """
    import pyarrow

    try:
        with open_regular(path) as file:
            # Python's mmap accepts every path; pyarrow's accepts UTF-8 only.
            content = pyarrow.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        reader = pyarrow.ipc.open_file(content)
        messages = pyarrow.ipc.MessageReader.open_stream(content.slice(MAGIC_SIZE))
        schema = pyarrow.ipc.read_schema(_next_message(messages, "schema"))
        if reader.num_record_batches != 1 or not reader.schema.equals(schema, check_metadata=True):
            raise CorpusError("it is damaged, or not a corpus")
        encoded_metadata = schema.metadata[METADATA]
        metadata = msgspec.convert(parse_json(encoded_metadata), _CorpusMetadata)
        if metadata.key != key:  # before any large array is read
            raise CorpusError("it was built from other files or settings, or with another version of Unicode")
        message = _next_message(messages, "record batch")
        if _is_compressed(message.metadata.to_pybytes()):  # its arrays would need more memory than the file
            raise CorpusError("it is compressed")
        batch = pyarrow.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        encoded = EncodedExamples(**{name: _column(batch.column(name)) for name in schema.names})
    except (
        *(pyarrow.ArrowException, OSError, ValueError, LookupError, TypeError, EOFError, struct.error),
        StopIteration,  # of a reader of messages at the end of the file
    ) as error:
        raise CorpusError("it is damaged, or not a corpus") from error
    is_intact = schema.metadata.get(DIGEST) == _digest(encoded, encoded_metadata)
    counts = *count_ids(metadata.vocabularies, has_features), len(metadata.vocabularies.characters)
    if not is_intact or not _has_valid_ids(encoded, counts):
        raise CorpusError("it is damaged")
    return EncodedCorpus(metadata.key, metadata.report, metadata.vocabularies, encoded)


def _next_message(messages: Any, kind: str) -> Any:  # noqa: ANN401 (reader and message of pyarrow)
    """Return the next message of an Arrow file; raise `ValueError` for another kind, which would end the process."""
    message = messages.read_next_message()
    if message.type != kind:
        raise ValueError(f"not a {kind}")
    return message


def _is_compressed(metadata: bytes) -> bool:
    """Return whether an Arrow message has a compressed body; pyarrow tells it only by decompressing the body.

    Args:
        metadata: Metadata of a record batch: a FlatBuffers table of the type Message.
    """
    message = _read_number(metadata, 0, "<I")
    header = _table_field(metadata, message, MESSAGE_HEADER)
    if header is None:
        raise ValueError("a message without a header")
    batch = header + _read_number(metadata, header, "<I")
    return _table_field(metadata, batch, BATCH_COMPRESSION) is not None


def _table_field(content: bytes, table: int, field: int) -> int | None:
    """Return the place of a field of a FlatBuffers table, or None if the table lacks it."""
    offsets = table - _read_number(content, table, "<i")
    if offsets < 0:
        raise ValueError("a table without a list of its fields")
    place = 4 + 2 * field
    is_listed = place < _read_number(content, offsets, "<H")
    distance = _read_number(content, offsets + place, "<H") if is_listed else 0
    return table + distance if distance else None


def _read_number(content: bytes, place: int, kind: str) -> int:
    """Return the number of a given type at a place; raise `struct.error` if the content ends before."""
    number: int = struct.unpack_from(kind, content, place)[0]
    return number


def _column(lists: Any) -> Ragged:  # noqa: ANN401 (an Arrow array)
    """Return an Arrow column of lists of ids as a `Ragged` array; raise `ValueError` for another type."""
    import pyarrow

    kinds = (pyarrow.large_list(kind) for kind in (pyarrow.uint8(), pyarrow.uint16(), pyarrow.uint32()))
    if lists.type not in kinds or lists.null_count or lists.values.null_count:
        raise ValueError("not a list of ids")
    return Ragged(lists.values.to_numpy(), lists.offsets.to_numpy())


def _digest(encoded: EncodedExamples, metadata: bytes) -> bytes:
    """Return the SHA-256 checksum of a corpus."""
    digest = hashlib.sha256(metadata)
    for column in encoded.columns().values():
        for part in column:
            digest.update(f"{part.dtype} {len(part)}".encode())
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest().encode()


def _has_valid_ids(encoded: EncodedExamples, counts: tuple[int, int, int]) -> bool:
    """Return whether every example has symbols in all columns and no id reaches the counts of ids."""
    columns = encoded.columns().values()
    if len({column.num_sequences for column in columns}) != 1 or not encoded.source.num_sequences:
        return False
    return all(
        column.offsets[0] == 0
        and column.offsets[-1] == len(column.values)
        and bool((column.lengths > 0).all())
        and int(column.values.max()) < count
        for column, count in zip(columns, counts, strict=False)
    )
