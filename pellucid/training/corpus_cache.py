"""Encoded training examples on disk, and the key by which a resumed training finds that they are of its files."""

import hashlib
import os
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from pellucid.config.renamed_settings import hashed_settings
from pellucid.config.settings import DataConfig, reads_features
from pellucid.data.corpus import CORPUS_FORMAT, CorpusError, EncodedCorpus, map_corpus, write_corpus
from pellucid.data.examples import training_columns
from pellucid.data.in_memory import InMemoryTable
from pellucid.errors import RunError
from pellucid.files import FileDigest, digest_file, remove_file

DataSets = Sequence[Path | InMemoryTable | None]
"""Files and tables of a training; None for those that are not given."""
MIN_CORPUS_SYMBOLS = 1 << 23
"""Minimum number of symbols for a corpus file; less data is read faster from text."""


def save_corpus(path: Path, corpus: EncodedCorpus, files: DataSets, config: DataConfig) -> EncodedCorpus:
    """Write a large corpus to disk, and return it as memory-mapped pages of the file.

    If the files changed while they were read, or cannot be read twice, the corpus is saved with an empty key, which
    never matches.

    Args:
        path: Corpus file.
        corpus: Training examples in ids.
        files: Data files from which they were read.
        config: Data settings.

    Returns:
        The mapped corpus; the given one, in memory, if it has fewer than `MIN_CORPUS_SYMBOLS` symbols or cannot be
        written.
    """
    if sum(len(column.values) for column in corpus.encoded.columns().values()) < MIN_CORPUS_SYMBOLS:
        return corpus
    if corpus.key != corpus_key(files, config):
        corpus = corpus._replace(key="")
    try:
        remove_file(path)
        write_corpus(path, corpus)
        return map_corpus(path, corpus.key, reads_features(config))
    except (CorpusError, RunError):  # the disk is full or cannot be mapped: the corpus stays in memory
        with suppress(RunError):
            remove_file(path)
        return corpus


def corpus_key(files: DataSets, config: DataConfig, digests: Sequence[FileDigest | None] | None = None) -> str:
    """Return a hash of everything that determines the corpus: formats, settings, file names and contents.

    Args:
        files: Data files, and tables in memory.
        config: Data settings.
        digests: Checksum of each; None, the default, to read them.

    Returns:
        The hash in hexadecimal; empty for a pipe, which can be read only once, and for unreadable files.
    """
    key = hashlib.sha256(msgspec.json.encode((CORPUS_FORMAT, unicodedata.unidata_version, hashed_settings(config))))
    for index, data in enumerate(files):
        if data is None:
            key.update(b"\0")
            continue
        digest = digest_data(data, config) if digests is None else digests[index]
        if digest is None:
            return ""
        key.update(os.fsencode(path_or_name(data)) + b"\0" + bytes.fromhex(digest.sha256))
    return key.hexdigest()


def digest_data(data: Path | InMemoryTable | None, config: DataConfig) -> FileDigest | None:
    """Return the checksum of a file or of a table; None for a pipe, and without data.

    Args:
        data: The file or the table; None if it is not given.
        config: Data settings, for the columns of a table.
    """
    if isinstance(data, InMemoryTable):
        return data.digest(training_columns(config))
    return None if data is None else digest_file(data)


def path_or_name(data: Path | InMemoryTable) -> Path | str:
    """Return the path of a file, or the name of a table.

    Args:
        data: The file or the table.
    """
    return data.name if isinstance(data, InMemoryTable) else data
