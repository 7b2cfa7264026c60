"""A corpus: the encoded training examples as one Arrow file, written once, mapped into memory from then on.

Its pages are read when a batch asks for them and given up when memory is wanted elsewhere. With the columns, large
lists of ids, it keeps what a person is told of the files they came from, so that going on need not read those again.
"""

import hashlib
import json
import mmap
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pellucid.data.batches import EncodedExamples, Ragged, count_ids
from pellucid.data.readers import BadLine
from pellucid.data.vocabulary import Vocabularies
from pellucid.files import open_atomic, open_regular, parse_json

METADATA, DIGEST = b"pellucid", b"sha256"
"""The keys of the schema's metadata."""


class CorpusError(Exception):
    """Why a corpus is of no use. Whoever asked for it reads the files themselves instead."""


class ReadingReport(msgspec.Struct, frozen=True):
    """What reading the files found beside training examples."""

    bad: tuple[BadLine, ...]
    blank: int
    shared: int
    """Development examples that are training examples as well."""


class EncodedCorpus(NamedTuple):
    """Encoded examples, and all that their files taught."""

    key: str
    """Which files and settings they are of."""
    found: ReadingReport
    vocabularies: Vocabularies
    encoded: EncodedExamples


class _CorpusMetadata(msgspec.Struct, frozen=True):
    """What stands in the file beside the columns."""

    key: str
    found: ReadingReport
    vocabularies: Vocabularies


def write_corpus(path: Path, corpus: EncodedCorpus) -> None:
    """Write a corpus, whole or not at all; `RunError` where the system refuses."""
    import pyarrow

    # The json module spells a file name that is no Unicode, where msgspec would refuse it.
    notes = json.dumps(msgspec.to_builtins(_CorpusMetadata(*corpus[:3]))).encode()
    lists = [pyarrow.LargeListArray.from_arrays(column.offsets, column.values) for column in corpus.encoded]
    batch = pyarrow.record_batch(lists, names=EncodedExamples._fields)
    batch = batch.replace_schema_metadata({METADATA: notes, DIGEST: _digest(corpus.encoded, notes)})
    with open_atomic(path) as file, pyarrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def map_corpus(path: Path, key: str, tagged: bool) -> EncodedCorpus:
    """The corpus of these files and settings, without reading it into memory; `CorpusError` for any other file.

    Every byte of it is checked: it is what was written, and ids are such as there are (`tagged`: also of features).
    """
    import pyarrow

    try:
        with open_regular(path) as file:
            # The system's map, which knows every path that Python does.
            content = pyarrow.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        reader = pyarrow.ipc.open_file(content)
        told = reader.schema.metadata[METADATA]
        notes = msgspec.convert(parse_json(told), _CorpusMetadata)
        if notes.key != key:  # before anything large is looked at
            raise CorpusError("it is of other files or settings")
        batch = reader.get_batch(0)
        batch.validate(full=True)
        encoded = EncodedExamples(*(_column(batch.column(name)) for name in EncodedExamples._fields))
    except (pyarrow.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        raise CorpusError("it is damaged, or no corpus") from error
    whole = batch.schema.metadata.get(DIGEST) == _digest(encoded, told)
    if not whole or not _has_valid_ids(encoded, count_ids(notes.vocabularies, tagged)):
        raise CorpusError("it is damaged")
    return EncodedCorpus(notes.key, notes.found, notes.vocabularies, encoded)


def _column(lists: Any) -> Ragged:  # noqa: ANN401 (an Arrow array)
    """A column of lists of ids as it lies in the file; `ValueError` for a column of anything else."""
    import pyarrow

    kinds = (pyarrow.large_list(kind) for kind in (pyarrow.uint8(), pyarrow.uint16(), pyarrow.uint32()))
    if lists.type not in kinds or lists.null_count or lists.values.null_count:
        raise ValueError("not a list of ids")
    return Ragged(lists.values.to_numpy(), lists.offsets.to_numpy())


def _digest(encoded: EncodedExamples, notes: bytes) -> bytes:
    """A hash of everything in a corpus."""
    digest = hashlib.sha256(notes)
    for column in encoded:
        for part in column:
            digest.update(f"{part.dtype} {len(part)}".encode())
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest().encode()


def _has_valid_ids(encoded: EncodedExamples, counts: tuple[int, int]) -> bool:
    """Whether each example has symbols on both sides, of so many that there are: kernels look them up unchecked."""
    if encoded.source.num_sequences != encoded.target.num_sequences or not encoded.source.num_sequences:
        return False
    return all(
        column.offsets[0] == 0
        and column.offsets[-1] == len(column.values)
        and bool((column.lengths > 0).all())
        and int(column.values.max()) < count
        for column, count in zip(encoded, counts, strict=True)
    )
