"""Corpus files: they round-trip, and other files are refused."""

import errno
import io
import json
import os
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow
import pytest
from hypothesis import given
from small_networks import EXAMPLES, RANDOM_TOKENIZERS, few_examples
from trained_runs import make_copy_examples

from pellucid.config.settings import DataConfig
from pellucid.data import corpus as corpus_module
from pellucid.data.corpus import (
    DIGEST,
    METADATA,
    CorpusError,
    EncodedCorpus,
    GrowingCorpus,
    ReadingReport,
    _digest,
    map_corpus,
    write_corpus,
)
from pellucid.data.encoding import EncodedExamples, Ragged, encode_examples
from pellucid.data.examples import Example
from pellucid.data.readers import BadLine
from pellucid.data.tokenizers import Tokenizers, build_tokenizers
from pellucid.data.vocabulary import Vocabularies, Vocabulary, learn_vocabularies
from pellucid.errors import RunError

TOKENIZERS = build_tokenizers(DataConfig())
READING_REPORT = ReadingReport((BadLine("caf\udce9.tsv", 7, "the target is empty"),), 3, 2)


def make_corpus(examples: list[Example], tokenizers: Tokenizers = TOKENIZERS) -> EncodedCorpus:
    vocabularies = learn_vocabularies(examples, tokenizers, 1)
    return EncodedCorpus("key", READING_REPORT, vocabularies, encode_examples(examples, tokenizers, vocabularies))


def assert_same_corpus(actual: EncodedCorpus, expected: EncodedCorpus) -> None:
    assert actual[:3] == expected[:3]
    columns = (corpus.encoded.columns().values() for corpus in (actual, expected))
    for actual_column, expected_column in zip(*columns, strict=True):
        for actual_part, expected_part in zip(actual_column, expected_column, strict=True):
            assert actual_part.dtype == expected_part.dtype and actual_part.tobytes() == expected_part.tobytes()


@few_examples
@given(EXAMPLES, RANDOM_TOKENIZERS)
def test_corpus_round_trips(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Example], tokenizers: Tokenizers
) -> None:
    corpus = make_corpus([Example("a", "b"), *pairs], tokenizers)
    path = tmp_path_factory.mktemp("corpus") / "corpus.arrow"
    write_corpus(path, corpus)
    if all((column.lengths > 0).all() for column in corpus.encoded.columns().values()):
        assert_same_corpus(map_corpus(path, "key", has_features=True), corpus)
    else:
        with pytest.raises(CorpusError, match=r"^it is damaged$"):
            map_corpus(path, "key", has_features=True)


def test_feature_ids_are_valid_only_with_features(tmp_path: Path) -> None:
    corpus = make_corpus([Example("a", "b", "V;PST"), Example("b", "a", "N")])
    write_corpus(tmp_path / "corpus.arrow", corpus)
    assert_same_corpus(map_corpus(tmp_path / "corpus.arrow", "key", has_features=True), corpus)
    with pytest.raises(CorpusError, match=r"^it is damaged$"):
        map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)


def test_pyarrow_reads_the_file_and_mapping_copies_nothing(tmp_path: Path) -> None:
    corpus = make_corpus(make_copy_examples(50, seed=1))
    write_corpus(tmp_path / "corpus.arrow", corpus)
    table = pyarrow.ipc.open_file(tmp_path / "corpus.arrow").read_all()
    assert table.column_names == ["source", "target"] and str(table.schema.field(0).type) == "large_list<item: uint8>"
    source = corpus.encoded.source
    assert table["source"][7].as_py() == source.values[source.offsets[7] : source.offsets[8]].tolist()
    before = pyarrow.total_allocated_bytes()
    mapped = map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)
    assert pyarrow.total_allocated_bytes() == before
    assert not any(
        part.flags.owndata or part.flags.writeable for column in mapped.encoded.columns().values() for part in column
    )


def test_mapped_corpus_outlives_the_file(tmp_path: Path) -> None:
    corpus = make_corpus(make_copy_examples(50, seed=1))
    write_corpus(tmp_path / "corpus.arrow", corpus)
    mapped = map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)
    write_corpus(tmp_path / "corpus.arrow", make_corpus(make_copy_examples(9, seed=2)))
    (tmp_path / "corpus.arrow").unlink()
    assert_same_corpus(mapped, corpus)


def test_corpus_with_another_key_is_refused(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.arrow", make_corpus(make_copy_examples(5, seed=1)))
    with pytest.raises(CorpusError, match="built from other files or settings, or with another version of Unicode"):
        map_corpus(tmp_path / "corpus.arrow", "another key", has_features=False)


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"\0" * 999, b"source\ttarget\n", b"PAR1 and more than that PAR1"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "corpus.arrow").write_bytes(content)
    with pytest.raises(CorpusError):
        map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)
    with pytest.raises(CorpusError):
        map_corpus(tmp_path, "key", has_features=False)


def test_messages_of_another_kind_are_refused(tmp_path: Path) -> None:
    """Regression test: pyarrow read a schema from a message without a kind, which ended the process."""
    path = tmp_path / "corpus.arrow"
    write_corpus(path, make_corpus(make_copy_examples(5, seed=1)))
    content, places = path.read_bytes(), b"\x06\x00\x05\x00\x08\x00"  # of the version, kind and header in a message
    start = content.index(places)
    path.write_bytes(content[: start + 3] + b"\x01" + content[start + 4 :])
    with pytest.raises(CorpusError, match="it is damaged, or not a corpus"):
        map_corpus(path, "key", has_features=False)


def test_truncation_and_flipped_bits_are_detected(tmp_path: Path) -> None:
    """The file is refused unless the changed byte is Arrow padding, which is not read."""
    corpus, path, generator = make_corpus(make_copy_examples(20, seed=1)), tmp_path / "corpus.arrow", random.Random(1)
    write_corpus(path, corpus)
    content = path.read_bytes()
    for num_bytes in range(0, len(content), 41):
        path.write_bytes(content[:num_bytes])
        with pytest.raises(CorpusError):
            map_corpus(path, "key", has_features=False)
    num_refused = 0
    for _ in range(1500):
        damaged = bytearray(content)
        damaged[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        try:
            assert_same_corpus(map_corpus(path, "key", has_features=False), corpus)
        except CorpusError:
            num_refused += 1
    assert num_refused > 800


def make_column(*sequences: list[int], kind: type = np.uint8) -> Ragged:
    lengths = [len(sequence) for sequence in sequences]
    values: np.ndarray = np.array([value for sequence in sequences for value in sequence], dtype=kind)
    return Ragged(values, np.cumsum([0, *lengths]))


SMALL_VOCABULARIES = Vocabularies(Vocabulary(("a",), (1,)), Vocabulary(("b",), (1,)), Vocabulary((), ()), 1, 1)


@pytest.mark.parametrize(
    "encoded",
    [
        EncodedExamples(make_column([4], [5]), make_column([2], [2])),
        EncodedExamples(make_column([4], [4]), make_column([2], [5])),
        EncodedExamples(make_column([4], [4]), make_column([2])),
        EncodedExamples(make_column([4], []), make_column([2], [2])),
        EncodedExamples(make_column(), make_column()),
        EncodedExamples(make_column([4], kind=np.int64), make_column([2])),
        EncodedExamples(make_column([4], kind=np.int8), make_column([2])),
    ],
    ids=[
        "source id too large",
        "target id too large",
        "unequal numbers",
        "empty source",
        "no pairs",
        "wide type",
        "signed type",
    ],
)
def test_invalid_ids_are_refused(tmp_path: Path, encoded: EncodedExamples) -> None:
    """Kernels do not check ids, so the reader must."""
    if len(encoded.source.offsets) == len(encoded.target.offsets):
        write_corpus(tmp_path / "corpus.arrow", EncodedCorpus("key", READING_REPORT, SMALL_VOCABULARIES, encoded))
    else:
        with pytest.raises(ValueError, match="length"):
            write_corpus(tmp_path / "corpus.arrow", EncodedCorpus("key", READING_REPORT, SMALL_VOCABULARIES, encoded))
    with pytest.raises(CorpusError):
        map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)


@pytest.mark.parametrize("fault", ["nulls", "metadata", "notes", "columns", "batches"])
def test_other_schemas_are_refused(tmp_path: Path, fault: str) -> None:
    corpus = make_corpus(make_copy_examples(5, seed=1))
    metadata = json.dumps(
        msgspec.to_builtins({"key": "key", "found": READING_REPORT, "vocabularies": corpus.vocabularies})
    ).encode()
    schema_metadata: dict[bytes, bytes] | None = {METADATA: metadata, DIGEST: _digest(corpus.encoded, metadata)}
    parts = corpus.encoded.columns().values()
    columns: list[Any] = [pyarrow.LargeListArray.from_arrays(part.offsets, part.values) for part in parts]
    names, count = ["source", "target"], 1
    match fault:
        case "nulls":
            columns[0] = pyarrow.array([None, [4], [4], [4], [4]], pyarrow.large_list(pyarrow.uint8()))
        case "metadata":
            schema_metadata = None
        case "notes":
            schema_metadata = {METADATA: b'{"key": "key"}', DIGEST: b""}
        case "columns":
            names = ["source", "source"]
        case "batches":
            count = 0
    batch = pyarrow.record_batch(columns, names=names).replace_schema_metadata(schema_metadata)
    with pyarrow.ipc.new_file(tmp_path / "corpus.arrow", batch.schema) as writer:
        for _ in range(count):
            writer.write_batch(batch)
    with pytest.raises(CorpusError):
        map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_corpus_is_refused_before_it_is_decompressed(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file could hold gigabytes of zeros."""
    corpus = make_corpus(make_copy_examples(50, seed=1))
    write_corpus(tmp_path / "plain.arrow", corpus)
    batch = pyarrow.ipc.open_file(tmp_path / "plain.arrow").get_batch(0)
    options = pyarrow.ipc.IpcWriteOptions(compression=codec)
    with pyarrow.ipc.new_file(tmp_path / "corpus.arrow", batch.schema, options=options) as writer:
        writer.write_batch(batch)
    monkeypatch.delattr(pyarrow.ipc, "read_record_batch")  # which decompresses
    with pytest.raises(CorpusError, match=r"^it is compressed$"):
        map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)


@pytest.mark.slow
def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    """A limit on the file size simulates the full disk."""
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from test_corpus import make_copy_examples, make_corpus, write_corpus\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "write_corpus(Path(sys.argv[1]), make_corpus(make_copy_examples(5000, seed=1)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "corpus.arrow")], capture_output=True, text=True, env=environment
    )
    assert process.returncode == 1 and f"RunError: cannot write {tmp_path / 'corpus.arrow'}: " in process.stderr, (
        process.stderr
    )
    assert "file too large" in process.stderr and list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_by_a_growing_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: closing the files wrote their rest again, and its error replaced the message."""
    opened = list[str]()

    class FullDisk(io.RawIOBase):
        """File that cannot be written, with the descriptor of one that can be cut back."""

        def __init__(self, path: Path) -> None:
            self.file = path.open("ab+", buffering=0)

        def writable(self) -> bool:
            return True

        def truncate(self, size: int | None = None) -> int:
            return self.file.truncate(size)

        def write(self, content: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None:
            opened.append("closed") if not self.closed else None
            self.file.close()
            super().close()

    def open_file(path: Path, mode: str) -> io.BufferedWriter:
        return io.BufferedWriter(FullDisk(path))

    monkeypatch.setattr(corpus_module, "open_regular_file", open_file)
    sequences = Ragged(np.zeros(3, np.uint8), np.array([0, 3]))
    for append in (True, False):
        message = rf"^cannot write {tmp_path}/(source|target)\.ids: no space left on device$"
        with (
            pytest.raises(RunError, match=message),
            closing(GrowingCorpus(tmp_path, [np.dtype(np.uint8)] * 2)) as corpus,
        ):
            corpus.append(EncodedExamples(sequences, sequences))
            if append:
                corpus.flush()
    assert len(opened) == 8


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^cannot write .*/none/corpus\.arrow: no such file or directory$"):
        write_corpus(tmp_path / "none" / "corpus.arrow", make_corpus(make_copy_examples(5, seed=1)))


def test_the_names_of_stored_fields_stay() -> None:
    """Files of earlier versions have these names: with others, prepared data would be refused as damaged."""
    assert msgspec.to_builtins(ReadingReport((), 1, 2, "note")) == {"bad": (), "blank": 1, "shared": 2, "texts": "note"}
    corpus = make_corpus(make_copy_examples(5, seed=1))
    metadata = corpus_module._CorpusMetadata(corpus.key, corpus.report, corpus.vocabularies)
    assert msgspec.to_builtins(metadata).keys() == {"key", "found", "vocabularies"}
