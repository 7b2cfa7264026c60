"""Preparation of data that does not fit into memory: files of pairs become a folder of ids that a training maps.

The training file is read in blocks, twice: to count its symbols, and to encode its examples; before that a third time
for a sample, if subwords are learned. Memory depends on the number of different symbols, on the size of a block and,
without a validation file, on the examples of 2,000 sources, not on the number of examples. An interrupted preparation
continues with what it has stored.

References:
    Cohen & Kaplan 2007, "Summarizing Data using Bottom-k Sketches", for the sample of sources that is held out.
"""

import hashlib
import heapq
import os
import shutil
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from pellucid.argument_checks import check_arguments, replace_surrogates
from pellucid.config.renamed_settings import hashed_settings
from pellucid.config.settings import Config, reads_neighbors
from pellucid.data.corpus import EncodedCorpus, GrowingCorpus, ReadingReport, write_corpus
from pellucid.data.encoding import id_dtypes
from pellucid.data.examples import Example, ExampleFile, count_columns, describe_used_columns, read_example_blocks
from pellucid.data.prepared_data import (
    BAD_LINES_FILE,
    DESCRIPTION_FILE,
    EXAMPLES_FILE,
    PARTS_FOLDER,
    PREPARED_FILES,
    PREPARED_FORMAT,
    VALIDATION_FILE,
    PreparedDescription,
    PreparedFile,
    is_prepared,
    read_described,
    read_description,
)
from pellucid.data.readers import MAX_LISTED_BAD_LINES
from pellucid.data.tokenizers import SubwordModels, Tokenizers, build_tokenizers
from pellucid.data.validation_split import (
    MAX_VALIDATION_SOURCES,
    VALIDATION_FRACTION,
    format_validation_file,
    normalize_sources,
    single_source_error,
)
from pellucid.data.vocabulary import Vocabularies, VocabularyTotals, learn_tokenizers
from pellucid.errors import ConfigError, DataError, RunError, quote
from pellucid.files import (
    check_folder_writable,
    decode_json,
    digest_bytes,
    digest_file,
    file_exists,
    make_folder,
    open_atomic,
    open_regular_file,
    read_bytes,
    remove_file,
    remove_files,
    unexpected_files,
    wrap_os_errors,
    write_atomic,
)
from pellucid.run_folder.initialization import refuse_inputs, refuse_links
from pellucid.run_folder.lock import FolderLock, lock_run_folder
from pellucid.run_folder.run_files import LOCK
from pellucid.tasks.registry import get_task
from pellucid.training.training_data import (
    TrainingFiles,
    check_bad_lines_fraction,
    first_line_note,
    read_validation_file,
    resolve_auto_settings,
    same_examples_error,
)
from pellucid.version import __version__

BLOCK_EXAMPLES = 50_000
"""Number of examples that are held as texts at once."""
SAVED_BLOCKS = 20
"""Number of blocks after which the encoded examples are flushed to disk, and their number is stored."""
MAX_SUBWORD_EXAMPLES = 500_000
"""Maximum number of examples from which subwords are learned; of more, as many are drawn at random."""
SAMPLE_SEED = 1
"""Random seed of the examples from which subwords are learned."""
COUNTED, ENCODED = "counted.json", "encoded.json"
"""Files of an unfinished preparation: the result of the first reading, and the number of encoded blocks."""


class PreparationProgress(NamedTuple):
    """A number of examples was sampled for subwords, counted or encoded."""

    stage: Literal["sampled", "counted", "encoded"]
    num_examples: int
    """Number of examples so far, those of the validation set included."""


class DataPrepared(NamedTuple):
    """The folder is complete."""

    description: PreparedDescription
    vocabularies: Vocabularies | None
    """Vocabularies of the examples; None if the folder was complete before, for the same files and settings."""
    note: str = ""
    """Note about the first line and the columns that are used; "" if there is none."""
    bad_lines: Sequence[str] = ()
    """First bad lines with their reasons."""


class _CountedData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Result of the first reading, in `COUNTED`."""

    key: str
    vocabularies: Vocabularies
    held_out: tuple[str, ...]
    """Sources that are held out as validation set, in normal form; none with a validation file."""
    num_validation_examples: int
    validation_sha256: str
    """Checksum of the file of validation examples."""
    num_bad_lines: int
    num_blank_lines: int
    num_shared: int
    bad_lines: tuple[str, ...]
    note: str
    """Note about the first line of the training file; "" if there is none."""


class _EncodedBlocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Number of blocks and of examples that are encoded and flushed, in `ENCODED`."""

    num_blocks: int = 0
    num_examples: int = 0


class SourceSample:
    """A random sample of the different sources of a stream, with all their examples.

    A source is kept if its hash is among the smallest. So the sample depends on the set of the sources, not on their
    order, and a source that was left out cannot come back.
    """

    def __init__(self, max_sources: int = MAX_VALIDATION_SOURCES, fraction: float = VALIDATION_FRACTION) -> None:
        """Start with no source.

        Args:
            max_sources: Maximum number of sources; 2,000 by default.
            fraction: Maximum fraction of the different sources; a tenth by default.
        """
        self.max_sources = max_sources
        self.fraction = fraction
        self.num_examples = 0
        self._examples = dict[str, list[tuple[int, Example]]]()
        self._largest = list[tuple[int, str]]()  # heap of negative hashes
        self._known = set[int]()  # hashes of the first sources, until the fraction allows the maximum

    def add(self, examples: Sequence[Example], sources: Sequence[str]) -> None:
        """Add examples of the stream.

        Args:
            examples: The next examples.
            sources: Their sources in the form in which they are compared.
        """
        for example, source in zip(examples, sources, strict=True):
            number = self.num_examples
            self.num_examples += 1
            if source in self._examples:
                self._examples[source].append((number, example))
                continue
            key = _source_key(source)
            if self.max_sources > self.fraction * len(self._known):
                self._known.add(key)
            if len(self._largest) < self.max_sources:
                heapq.heappush(self._largest, (-key, source))
            elif -key > self._largest[0][0]:
                _, removed = heapq.heapreplace(self._largest, (-key, source))
                del self._examples[removed]
            else:
                continue
            self._examples[source] = [(number, example)]

    def sources(self, location: str) -> list[str]:
        """Return the sources of the sample: at least one, and at most the fraction of all.

        Args:
            location: Name of the file, for errors.

        Raises:
            DataError: All examples have the same source.
        """
        if len(self._known) < 2:
            raise single_source_error(location)
        count = min(self.max_sources, max(1, round(self.fraction * len(self._known))))
        return [source for _, source in sorted(self._largest, reverse=True)[:count]]

    def examples(self, sources: Sequence[str]) -> list[Example]:
        """Return all examples of some sources of the sample, in the order of the stream.

        Args:
            sources: The sources.
        """
        return [example for _, example in sorted(pair for source in sources for pair in self._examples[source])]


def _source_key(source: str) -> int:
    """Return the hash of a source, a number of 64 bits."""
    digest = hashlib.blake2b(source.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


@check_arguments
def prepare_data(
    files: TrainingFiles, folder: str | Path, config: Config
) -> Iterator[PreparationProgress | DataPrepared]:
    """Encode a training set into a folder, from which trainings read it.

    Args:
        files: Training and validation files, which are read twice.
        folder: Folder of the prepared data: missing, empty, or of an interrupted preparation. What one of other files
            or settings has stored is not used.
        config: Configuration, of which the data settings and the task matter.

    Yields:
        `PreparationProgress` after each block, and `DataPrepared` at the end.

    Raises:
        DataError: A file cannot be read twice, changes meanwhile, or holds no example; a line is bad, unless bad lines
            are skipped; or the folder is complete and damaged.
        ConfigError: The task cannot be prepared, or a setting is not valid.
        RunError: The folder holds other files or symbolic links, a file that is read would be replaced, or the folder
            cannot be written.
    """
    folder = Path(folder)
    if not get_task(config.task).settings.counts_symbols:
        raise ConfigError(
            f"task = {quote(config.task)} cannot be prepared: its vocabularies are not counted from symbols; train on "
            "the file of pairs"
        )
    if config.data.group_column:
        raise ConfigError(
            "data.group_column (--group-column) is not possible with prepare: leave it out, and give a validation file "
            "(--valid) of other groups"
        )
    if files.valid is None and reads_neighbors(config.data):
        raise ConfigError(
            "data.context_words (--context-words) holds out sentences of a text, but prepared data holds out sources: "
            "give a validation file (--valid)"
        )
    refuse_links([folder / name for name in (LOCK, *PREPARED_FILES)], "a preparation")
    refuse_inputs(folder, PREPARED_FILES, filter(None, files))
    _check_folder(folder)  # first: the files may take minutes to read
    if not is_prepared(folder):
        check_folder_writable(folder)
    resolved = msgspec.structs.replace(config, data=resolve_auto_settings(files, config.data))
    others = (None if file is None else _describe_file(file) for file in files[1:])
    described = DescribedFiles(_describe_file(files.train), *others)
    preparation = Preparation(files, folder, config, resolved, described)
    if is_prepared(folder) and not file_exists(preparation.parts):
        yield preparation.complete_event()
        return
    with lock_run_folder(folder, PREPARED_FILES, "preparation") as lock, lock.replacement_reported():
        preparation = preparation._replace(lock=lock)
        if is_prepared(folder):  # another process has completed it meanwhile, or was killed just after
            shutil.rmtree(preparation.parts, ignore_errors=True)
            yield preparation.complete_event()
            return
        _check_folder(folder)
        make_folder(preparation.parts)
        with wrap_os_errors("read", preparation.parts):
            refuse_links(sorted(preparation.parts.iterdir()), "a preparation")
        try:
            yield from preparation.run()
        finally:
            preparation.discard_uncounted()


def _check_folder(folder: Path) -> None:
    """Raise `RunError` if a folder holds files, unless they are those of prepared data, complete or not."""
    is_own = is_prepared(folder) or file_exists(folder / PARTS_FOLDER)
    if unexpected_files(folder, PREPARED_FILES if is_own else ()):
        raise RunError(f"{folder} holds other files: name a new folder for the prepared data")


def _describe_file(file: Path) -> PreparedFile:
    """Return path, size and checksum of a file; raise `DataError` for one that cannot be read twice."""
    digest = digest_file(file)
    if digest is None:
        if str(file) == "-":
            raise DataError("standard input cannot be prepared: files are read twice, so write it to a file first")
        with wrap_os_errors("read", file, DataError):
            file.stat()
        if is_prepared(file):
            raise DataError(f"{file} is prepared data already: pellucid train {file} trains on it")
        if os.path.isdir(file):
            raise DataError(f"{file} is a folder: give a file of pairs")
        if os.path.isfile(file):
            open_regular_file(file, DataError).close()  # raises the reason, such as missing permission
        raise DataError(f"{file} is not a regular file: it is read twice, so write a pipe or a stream to a file first")
    return PreparedFile(str(file), *digest)


class DescribedFiles(NamedTuple):
    """Path, size and checksum of each file of `TrainingFiles`."""

    train: PreparedFile
    valid: PreparedFile | None
    train_target: PreparedFile | None
    valid_target: PreparedFile | None


def _encodable(file: PreparedFile) -> PreparedFile:
    """Return a file with U+FFFD in a path that is not UTF-8, which JSON cannot have."""
    return msgspec.structs.replace(file, path=replace_surrogates(file.path))


class Preparation(NamedTuple):
    """A preparation: files, folder and settings."""

    files: TrainingFiles
    folder: Path
    config: Config
    """Configuration as it was given."""
    resolved: Config
    """Configuration with the format and the header of the training file."""
    described: DescribedFiles
    lock: FolderLock | None = None
    """Lock of the folder, without which nothing is written."""

    @property
    def key(self) -> str:
        """Hash of everything that determines the examples."""
        data = hashed_settings(self.resolved.data)
        settings = (PREPARED_FORMAT, unicodedata.unidata_version, data, self.resolved.task)
        contents = [file and (file.size, file.sha256) for file in self.described]
        return hashlib.sha256(msgspec.json.encode((settings, contents))).hexdigest()

    @property
    def parts(self) -> Path:
        """Folder of the files of an unfinished preparation."""
        return self.folder / PARTS_FOLDER

    def complete_event(self) -> DataPrepared:
        """Return the event of a folder that is complete.

        Raises:
            RunError: It was prepared from other files or settings, or with another version of Unicode.
            DataError: A file is damaged.
        """
        description = read_description(self.folder)
        if description.key != self.key:
            is_same = self._has_files_and_settings_of(description)
            cause = "with another version of Unicode (of Python)" if is_same else "from other files or settings"
            raise RunError(
                f"{self.folder} holds data that was prepared {cause} ({self.folder / DESCRIPTION_FILE}): name another "
                "folder, or remove it"
            )
        read_described(self.folder, description)
        return DataPrepared(description, None)

    def _has_files_and_settings_of(self, description: PreparedDescription) -> bool:
        """Return whether complete data has the files, by their contents, and the settings of this preparation."""
        stored = (description.train, description.valid, description.train_target, description.valid_target)
        digests = [[file and file.digest for file in files] for files in (stored, self.described)]
        settings = (description.data, description.task)
        return digests[0] == digests[1] and settings == (self.resolved.data, self.resolved.task)

    def discard_uncounted(self) -> None:
        """Remove the files of a preparation that has ended before its counts were stored: the next one begins anew."""
        with suppress(RunError):  # of an error, the first one is reported
            self.check_place()
            if not is_prepared(self.folder) and not file_exists(self.parts / COUNTED):
                remove_files(self.folder, [EXAMPLES_FILE, VALIDATION_FILE, BAD_LINES_FILE])
                shutil.rmtree(self.parts, ignore_errors=True)

    def check_place(self) -> None:
        """Check that the path still leads to the locked folder; to be called before files are written or opened there.

        Raises:
            RunError: The folder was removed, moved or replaced, and another preparation may have begun at its path.
        """
        assert self.lock is not None, "expected a locked folder"
        self.lock.check()

    def run(self) -> Iterator[PreparationProgress | DataPrepared]:
        """Yield the events of a new or an interrupted preparation."""
        counted = self._stored_count()
        if counted is None:
            counted = yield from self._count()
        num_examples = yield from self._encode(counted)
        for file in filter(None, self.described):
            if digest_file(Path(file.path)) != file.digest:
                raise DataError(f"{file.path} changed while it was read: run the command again")
        yield self._finish(counted, num_examples)

    def blocks(self) -> Iterator[ExampleFile]:
        """Yield the examples of the training file in blocks, and check that most lines are no bad lines."""
        num_bad = num_examples = 0
        for block in read_example_blocks(self.files.train, self.config.data, BLOCK_EXAMPLES, self.files.train_target):
            num_bad, num_examples = num_bad + len(block.bad_lines), num_examples + len(block.examples)
            if block.bad_lines:
                check_bad_lines_fraction(num_bad, num_bad + num_examples, self.files.train, block.bad_lines[0])
            yield block

    def _stored_count(self) -> _CountedData | None:
        """Return the stored result of the first reading; None if there is none of these files and settings."""
        path = self.parts / COUNTED
        if file_exists(path) and file_exists(self.folder / VALIDATION_FILE):
            try:
                counted = decode_json(read_bytes(path), _CountedData)
            except ValueError:
                return None  # damaged: it is counted again
            digest = digest_file(self.folder / VALIDATION_FILE)
            if counted.key == self.key and digest is not None and digest.sha256 == counted.validation_sha256:
                return counted
        return None

    def _count(self) -> Generator[PreparationProgress, None, _CountedData]:
        """Count the symbols, hold out the validation set, and store both."""
        self.check_place()
        # First: the files that are written below must never be taken for those of another, interrupted preparation.
        remove_file(self.parts / COUNTED)
        remove_file(self.parts / ENCODED)
        tokenizers = yield from self._learn_tokenizers()
        validation = None if self.files.valid is None else read_validation_file(self.files, self.config.data).examples
        counter = BlockCounter(self.resolved, tokenizers, validation)
        with open_atomic(self.folder / BAD_LINES_FILE) as file:
            for block in self.blocks():
                if block.examples and not counter.num_examples:
                    counter.note = first_line_note(block.examples, self.files, self.config.data)
                counter.add(block)
                file.write("".join(f"{line}\n" for line in block.bad_lines).encode("utf-8", "replace"))
                self.check_place()
                yield PreparationProgress("counted", counter.num_examples)
        if not counter.num_bad_lines:
            remove_file(self.folder / BAD_LINES_FILE)
        held_out, examples = counter.hold_out_validation(self.files)
        content = format_validation_file(examples)
        digest = digest_bytes(content)
        counted = counter.counted_data(self.key, self.files, held_out, len(examples), digest.sha256)
        self.check_place()
        write_atomic(self.folder / VALIDATION_FILE, content)
        write_atomic(self.parts / COUNTED, msgspec.json.encode(counted))
        return counted

    def _learn_tokenizers(self) -> Generator[PreparationProgress, None, Tokenizers]:
        """Return the tokenizers; subwords are learned from examples that are drawn at random."""
        data, examples = self.resolved.data, list[Example]()
        if "subwords" not in (data.source_symbols, data.target_symbols):
            return build_tokenizers(data)
        generator, num_examples = np.random.default_rng(SAMPLE_SEED), 0
        for block in self.blocks():
            for example in block.examples:
                num_examples += 1
                if len(examples) < MAX_SUBWORD_EXAMPLES:
                    examples.append(example)
                elif (index := int(generator.integers(num_examples))) < MAX_SUBWORD_EXAMPLES:
                    examples[index] = example
            yield PreparationProgress("sampled", num_examples)
        return learn_tokenizers(examples, data)

    def _encode(self, counted: _CountedData) -> Generator[PreparationProgress, None, int]:
        """Encode the examples, write the file of all ids, and return the number of training examples."""
        vocabularies, held_out = counted.vocabularies, frozenset(counted.held_out)
        task, tokenizers = get_task(self.resolved.task), build_tokenizers(self.resolved.data, vocabularies.pieces)
        self.check_place()
        stored, num_examples = self._stored_blocks(), 0
        with closing(GrowingCorpus(self.parts, id_dtypes(vocabularies), stored.num_examples)) as corpus:
            for number, block in enumerate(self.blocks(), 1):
                num_examples += len(block.examples)
                if number > stored.num_blocks:
                    normalized = normalize_sources(block.examples, self.resolved.data)
                    pairs = zip(block.examples, normalized, strict=True)
                    examples = [example for example, key in pairs if key.source not in held_out]
                    corpus.append(task.encode_examples(examples, tokenizers, vocabularies, self.resolved))
                if number > stored.num_blocks and number % SAVED_BLOCKS == 0:
                    corpus.flush()
                    self.check_place()
                    self._store_blocks(_EncodedBlocks(number, corpus.num_examples))
                yield PreparationProgress("encoded", num_examples)
            if not corpus.num_examples:
                raise DataError(
                    f"{self.files.train}: the sources of all examples are in the validation set: give other validation "
                    "examples (--valid)"
                )
            report = ReadingReport((), counted.num_blank_lines, counted.num_shared)
            encoded = EncodedCorpus(self.key, report, vocabularies, corpus.mapped())
            self.check_place()  # the files are mapped by their paths
            write_corpus(self.folder / EXAMPLES_FILE, encoded)
            return corpus.num_examples

    def _stored_blocks(self) -> _EncodedBlocks:
        """Return the number of blocks that an interrupted preparation has encoded."""
        path = self.parts / ENCODED
        if not file_exists(path):
            return _EncodedBlocks()
        try:
            return decode_json(read_bytes(path), _EncodedBlocks)
        except ValueError:
            return _EncodedBlocks()  # damaged: they are encoded again

    def _store_blocks(self, blocks: _EncodedBlocks) -> None:
        """Store the number of encoded blocks, which are on disk."""
        write_atomic(self.parts / ENCODED, msgspec.json.encode(blocks))

    def _finish(self, counted: _CountedData, num_examples: int) -> DataPrepared:
        """Write the description, which makes the folder complete, and remove the parts."""
        description = PreparedDescription(
            key=self.key,
            data=self.resolved.data,
            task=self.resolved.task,
            train=_encodable(self.described.train),
            train_target=self.described.train_target and _encodable(self.described.train_target),
            valid=self.described.valid and _encodable(self.described.valid),
            valid_target=self.described.valid_target and _encodable(self.described.valid_target),
            num_examples=num_examples,
            num_validation_examples=counted.num_validation_examples,
            validation_sha256=counted.validation_sha256,
            num_bad_lines=counted.num_bad_lines,
            num_blank_lines=counted.num_blank_lines,
            num_shared=counted.num_shared,
            version=__version__,
        )
        content = msgspec.json.format(msgspec.json.encode(description), indent=1)
        self.check_place()
        write_atomic(self.folder / DESCRIPTION_FILE, content)
        with wrap_os_errors("remove", self.parts):
            shutil.rmtree(self.parts)
        columns = "" if self.files.train_target else describe_used_columns(self.files.train, self.resolved.data)
        note = "; ".join(filter(None, [counted.note, columns]))
        return DataPrepared(description, counted.vocabularies, note, counted.bad_lines)


class BlockCounter:
    """Counts of the symbols of blocks, the sample of sources that is held out, and the numbers of lines."""

    def __init__(self, config: Config, tokenizers: Tokenizers, validation: Sequence[Example] | None) -> None:
        """Start with no block.

        Args:
            config: Configuration.
            tokenizers: Tokenizers of sources and targets.
            validation: Validation examples of a file; None to hold out sources.
        """
        self.config = config
        self.tokenizers = tokenizers
        self.validation = validation
        self._validation_set = frozenset(normalize_sources(validation or (), config.data))
        self.num_examples = self.num_bad_lines = self.num_blank_lines = 0
        self.bad_lines = list[str]()
        self.note = ""
        """Note about the first line; "" if there is none."""
        self._totals, self._sample = VocabularyTotals(), SourceSample()
        self._shared = set[Example]()
        self._all_shared = True

    def add(self, block: ExampleFile) -> None:
        """Count a block.

        Args:
            block: The examples, and their bad and blank lines.
        """
        self._totals.add(self._learn(block.examples))
        normalized = list(normalize_sources(block.examples, self.config.data))
        if self.validation is None:
            self._sample.add(block.examples, [example.source for example in normalized])
        else:
            found = self._validation_set.intersection(normalized)
            self._shared |= found
            self._all_shared = self._all_shared and found.issuperset(normalized)
        self.num_examples += len(block.examples)
        self.num_bad_lines += len(block.bad_lines)
        self.num_blank_lines += block.num_blank_lines
        self.bad_lines += map(str, block.bad_lines[: MAX_LISTED_BAD_LINES - len(self.bad_lines)])

    def _learn(self, examples: Sequence[Example]) -> Vocabularies:
        """Return the vocabularies of examples, with every symbol."""
        data = msgspec.structs.replace(self.config.data, min_count=1, context_words=0)
        config = msgspec.structs.replace(self.config, data=data)
        return get_task(config.task).learn_vocabularies(examples, self.tokenizers, config)

    def hold_out_validation(self, files: TrainingFiles) -> tuple[tuple[str, ...], Sequence[Example]]:
        """Return the sources that are held out, none with a validation file, and the validation examples.

        The counts are then those of the other examples.

        Args:
            files: Training and validation files, for errors.

        Raises:
            DataError: All examples have the same source, or the files hold the same examples.
        """
        if self.validation is not None:
            if self._all_shared and self._shared == self._validation_set:
                raise same_examples_error(files)
            return (), self.validation
        sources = self._sample.sources(str(files.train))
        examples = self._sample.examples(sources)
        self._totals.subtract(self._learn(examples))
        return tuple(sources), examples

    def num_shared(self) -> int:
        """Return the number of validation examples that are training examples, too."""
        return sum(example in self._shared for example in normalize_sources(self.validation or (), self.config.data))

    def vocabularies(self) -> Vocabularies:
        """Return the vocabularies of the training examples, once the validation set is held out."""
        subword_models = SubwordModels(self.tokenizers.source.subwords, self.tokenizers.target.subwords)
        min_count = self.config.data.min_count
        is_label = not get_task(self.config.task).settings.autoregressive
        context_words = self.config.data.context_words
        min_target_count = 1 if is_label else min_count
        return self._totals.build_vocabularies(min_count, min_target_count, subword_models, context_words)

    def counted_data(
        self,
        key: str,
        files: TrainingFiles,
        held_out: tuple[str, ...],
        num_validation_examples: int,
        validation_sha256: str,
    ) -> _CountedData:
        """Return the result of the first reading, once the validation set is held out.

        Args:
            key: Hash of everything that determines the examples.
            files: Training and validation files.
            held_out: Sources that are held out.
            num_validation_examples: Number of validation examples.
            validation_sha256: Checksum of the file of validation examples.
        """
        columns = 0 if files.train_target else count_columns(files.train, self.config.data)
        return _CountedData(
            key=key,
            vocabularies=msgspec.structs.replace(self.vocabularies(), columns=columns),
            held_out=held_out,
            num_validation_examples=num_validation_examples,
            validation_sha256=validation_sha256,
            num_bad_lines=self.num_bad_lines,
            num_blank_lines=self.num_blank_lines,
            num_shared=self.num_shared(),
            bad_lines=tuple(map(replace_surrogates, self.bad_lines)),
            note=replace_surrogates(self.note),
        )
