"""Corpus files: they round-trip, and other files are never mistaken for one."""

import json
import os
import random
import subprocess
import sys
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
from pellucid.data.batches import EncodedExamples, Ragged, encode_examples
from pellucid.data.corpus import (
    DIGEST,
    METADATA,
    CorpusError,
    EncodedCorpus,
    ReadingReport,
    _digest,
    map_corpus,
    write_corpus,
)
from pellucid.data.examples import Example
from pellucid.data.readers import BadLine
from pellucid.data.tokenizers import Tokenizers, build_tokenizers
from pellucid.data.vocabulary import Vocabularies, Vocabulary, learn_vocabularies
from pellucid.errors import RunError

CUT = build_tokenizers(DataConfig())
FOUND = ReadingReport((BadLine("caf\udce9.tsv", 7, "the target is empty"),), 3, 2)


def corpus_of(examples: list[Example], cut: Tokenizers = CUT) -> EncodedCorpus:
    vocabularies = learn_vocabularies(examples, cut, 1)
    return EncodedCorpus("key", FOUND, vocabularies, encode_examples(examples, cut, vocabularies))


def assert_same(one: EncodedCorpus, other: EncodedCorpus) -> None:
    assert one[:3] == other[:3]
    for column, expected in zip(one.encoded, other.encoded, strict=True):
        for part, wanted in zip(column, expected, strict=True):
            assert part.dtype == wanted.dtype and part.tobytes() == wanted.tobytes()


@few_examples
@given(EXAMPLES, RANDOM_TOKENIZERS)
def test_a_corpus_round_trips(tmp_path_factory: pytest.TempPathFactory, pairs: list[Example], cut: Tokenizers) -> None:
    corpus = corpus_of([Example("a", "b"), *pairs], cut)
    path = tmp_path_factory.mktemp("corpus") / "corpus.arrow"
    write_corpus(path, corpus)
    if all((column.lengths > 0).all() for column in corpus.encoded):
        assert_same(map_corpus(path, "key", has_features=True), corpus)
    else:
        with pytest.raises(CorpusError, match=r"^it is damaged$"):
            map_corpus(path, "key", has_features=True)


def test_feature_ids_are_valid_only_with_features(tmp_path: Path) -> None:
    corpus = corpus_of([Example("a", "b", "V;PST"), Example("b", "a", "N")])
    write_corpus(tmp_path / "corpus.arrow", corpus)
    assert_same(map_corpus(tmp_path / "corpus.arrow", "key", has_features=True), corpus)
    with pytest.raises(CorpusError, match=r"^it is damaged$"):
        map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)


def test_pyarrow_reads_it_and_mapping_copies_nothing(tmp_path: Path) -> None:
    corpus = corpus_of(make_copy_examples(50, seed=1))
    write_corpus(tmp_path / "corpus.arrow", corpus)
    table = pyarrow.ipc.open_file(tmp_path / "corpus.arrow").read_all()
    assert table.column_names == ["source", "target"] and str(table.schema.field(0).type) == "large_list<item: uint8>"
    source = corpus.encoded.source
    assert table["source"][7].as_py() == source.values[source.offsets[7] : source.offsets[8]].tolist()
    before = pyarrow.total_allocated_bytes()
    mapped = map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)
    assert pyarrow.total_allocated_bytes() == before
    assert not any(part.flags.owndata or part.flags.writeable for column in mapped.encoded for part in column)


def test_the_map_outlives_the_file(tmp_path: Path) -> None:
    corpus = corpus_of(make_copy_examples(50, seed=1))
    write_corpus(tmp_path / "corpus.arrow", corpus)
    mapped = map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)
    write_corpus(tmp_path / "corpus.arrow", corpus_of(make_copy_examples(9, seed=2)))
    (tmp_path / "corpus.arrow").unlink()
    assert_same(mapped, corpus)


def test_other_keys_are_distinguished_from_damage(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.arrow", corpus_of(make_copy_examples(5, seed=1)))
    with pytest.raises(CorpusError, match=r"^it was built from other files or settings$"):
        map_corpus(tmp_path / "corpus.arrow", "another key", has_features=False)


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"\0" * 999, b"source\ttarget\n", b"PAR1 and more than that PAR1"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "corpus.arrow").write_bytes(content)
    with pytest.raises(CorpusError):
        map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)
    with pytest.raises(CorpusError):
        map_corpus(tmp_path, "key", has_features=False)


def test_truncation_and_flipped_bits_are_detected(tmp_path: Path) -> None:
    """The file is refused, or the change hit a padding byte of Arrow, which is never read."""
    corpus, path, generator = corpus_of(make_copy_examples(20, seed=1)), tmp_path / "corpus.arrow", random.Random(1)
    write_corpus(path, corpus)
    whole = path.read_bytes()
    for kept in range(0, len(whole), 41):
        path.write_bytes(whole[:kept])
        with pytest.raises(CorpusError):
            map_corpus(path, "key", has_features=False)
    refused = 0
    for _ in range(1500):
        spoilt = bytearray(whole)
        spoilt[generator.randrange(len(whole))] ^= 1 << generator.randrange(8)
        path.write_bytes(spoilt)
        try:
            assert_same(map_corpus(path, "key", has_features=False), corpus)
        except CorpusError:
            refused += 1
    assert refused > 800


def column(*sequences: list[int], kind: type = np.uint8) -> Ragged:
    lengths = [len(sequence) for sequence in sequences]
    values: np.ndarray = np.array([value for sequence in sequences for value in sequence], dtype=kind)
    return Ragged(values, np.cumsum([0, *lengths]))


SMALL = Vocabularies(Vocabulary(("a",), (1,)), Vocabulary(("b",), (1,)), Vocabulary((), ()), 1, 1)


@pytest.mark.parametrize(
    "encoded",
    [
        EncodedExamples(column([4], [5]), column([2], [2])),
        EncodedExamples(column([4], [4]), column([2], [5])),
        EncodedExamples(column([4], [4]), column([2])),
        EncodedExamples(column([4], []), column([2], [2])),
        EncodedExamples(column(), column()),
        EncodedExamples(column([4], kind=np.int64), column([2])),
        EncodedExamples(column([4], kind=np.int8), column([2])),
    ],
    ids=["source beyond", "target beyond", "unequal", "empty", "none", "wide", "signed"],
)
def test_invalid_ids_are_refused(tmp_path: Path, encoded: EncodedExamples) -> None:
    """Kernels do not check ids."""
    if len(encoded.source.offsets) == len(encoded.target.offsets):
        write_corpus(tmp_path / "corpus.arrow", EncodedCorpus("key", FOUND, SMALL, encoded))
    else:
        with pytest.raises(ValueError, match="length"):
            write_corpus(tmp_path / "corpus.arrow", EncodedCorpus("key", FOUND, SMALL, encoded))
    with pytest.raises(CorpusError):
        map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)


@pytest.mark.parametrize("spoilt", ["nulls", "metadata", "notes", "columns", "batches"])
def test_other_schemas_are_refused(tmp_path: Path, spoilt: str) -> None:
    corpus = corpus_of(make_copy_examples(5, seed=1))
    notes = json.dumps(
        msgspec.to_builtins({"key": "key", "found": FOUND, "vocabularies": corpus.vocabularies})
    ).encode()
    told: dict[bytes, bytes] | None = {METADATA: notes, DIGEST: _digest(corpus.encoded, notes)}
    lists: list[Any] = [pyarrow.LargeListArray.from_arrays(part.offsets, part.values) for part in corpus.encoded]
    names, count = ["source", "target"], 1
    match spoilt:
        case "nulls":
            lists[0] = pyarrow.array([None, [4], [4], [4], [4]], pyarrow.large_list(pyarrow.uint8()))
        case "metadata":
            told = None
        case "notes":
            told = {METADATA: b'{"key": "key"}', DIGEST: b""}
        case "columns":
            names = ["source", "source"]
        case "batches":
            count = 0
    batch = pyarrow.record_batch(lists, names=names).replace_schema_metadata(told)
    with pyarrow.ipc.new_file(tmp_path / "corpus.arrow", batch.schema) as writer:
        for _ in range(count):
            writer.write_batch(batch)
    with pytest.raises(CorpusError):
        map_corpus(tmp_path / "corpus.arrow", "key", has_features=False)


def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    """The system's limit on the size of a file simulates the full disk."""
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from test_corpus import copies, corpus_of, write_corpus\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "write_corpus(Path(sys.argv[1]), corpus_of(copies(5000, seed=1)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "corpus.arrow")], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1 and f"RunError: cannot write {tmp_path / 'corpus.arrow'}: " in done.stderr, done.stderr
    assert "file too large" in done.stderr and list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^cannot write .*/none/corpus\.arrow: no such file or directory$"):
        write_corpus(tmp_path / "none" / "corpus.arrow", corpus_of(make_copy_examples(5, seed=1)))
