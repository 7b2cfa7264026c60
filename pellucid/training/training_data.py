"""Training data: pairs from files, tables in memory, prepared data or a saved corpus, as texts and as ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from pellucid.config.settings import (
    Config,
    DataConfig,
    Format,
    has_characters,
    reads_features,
    reads_neighbors,
    setting_paths,
)
from pellucid.data.characters import learn_characters
from pellucid.data.corpus import CorpusError, EncodedCorpus, ReadingReport, map_corpus
from pellucid.data.delimiters import has_effect
from pellucid.data.encoding import EncodedExamples
from pellucid.data.examples import (
    Example,
    ExampleFile,
    count_columns,
    describe_table_columns,
    describe_used_columns,
    has_header,
    is_header_unknown,
    read_examples,
    read_grouped_examples,
    read_table_examples,
)
from pellucid.data.headers import HeaderError, check_shared_header, header_note
from pellucid.data.in_memory import InMemoryTable
from pellucid.data.prepared_data import (
    VALIDATION_FILE,
    is_prepared,
    read_description,
    read_prepared,
    read_prepared_validation,
    resolve_prepared_settings,
)
from pellucid.data.readers import BadLine, resolve_format
from pellucid.data.tokenizers import Tokenizers, build_tokenizers
from pellucid.data.validation_split import (
    ValidationSplit,
    format_validation_file,
    normalize_sources,
    split_by_group,
    split_by_sentence,
    split_by_source,
    validation_file_config,
)
from pellucid.data.vocabulary import Vocabularies, learn_tokenizers
from pellucid.errors import ConfigError, DataError, count_noun
from pellucid.files import FileDigest, digest_bytes, digest_file, open_regular_file
from pellucid.run_folder.run_files import VALIDATION, pair_file_config
from pellucid.tasks.registry import encode_for_task, get_task
from pellucid.training.corpus_cache import corpus_key, digest_data, path_or_name
from pellucid.training.data_warnings import overlap_note, text_note
from pellucid.training.events import FileRead
from pellucid.training.fine_tuning import extend_vocabularies

MIN_CHECKED_LINES = 20
"""Minimum number of lines of a file for the check that most of them are examples."""


class TrainingFiles(NamedTuple):
    """Paths of the training and validation data; the targets may be in separate files."""

    train: Path
    """Training pairs, or training sources if `train_target` is given."""
    valid: Path | None
    """Validation pairs, or validation sources if `valid_target` is given; None to hold out a part of `train`."""
    train_target: Path | None = None
    valid_target: Path | None = None


class TrainingSets(NamedTuple):
    """Training and validation data in files or in tables in memory; the fields are as in `TrainingFiles`."""

    train: Path | InMemoryTable
    valid: Path | InMemoryTable | None
    train_target: Path | None = None
    valid_target: Path | None = None


TrainingInputs = TrainingFiles | TrainingSets
"""Training and validation data, in files or in memory."""


def input_paths(files: TrainingInputs, config: Config) -> list[Path]:
    """Return the files and folders that a training reads: its data, and those that its settings name.

    Args:
        files: Training and validation data.
        config: Configuration.
    """
    return [*(path for path in files if isinstance(path, Path)), *setting_paths(config)]


class TrainingData(NamedTuple):
    """Training data as texts, or as ids of a saved corpus, and validation data as texts."""

    key: str
    """Fingerprint of files and settings for the corpus file; empty if a file is a pipe."""
    report: ReadingReport
    """Bad and blank lines of the training file, and the number of shared examples."""
    training_examples: Sequence[Example]
    """Training examples as texts; empty if `corpus` is given."""
    corpus: EncodedCorpus | None
    """Training examples in ids, from a saved corpus; None if the training file was read."""
    validation_examples: Sequence[Example]
    """Validation examples."""
    file_events: tuple[FileRead, FileRead]
    """Events for the training file and the validation file."""
    columns: int
    """Number of columns of the training file; 0 for a corpus, and for a file without columns."""
    validation_file: bytes = b""
    """Content of the validation file of the run folder, if a part of the training set is held out or the validation set
    is in memory; else empty."""
    validation_lines: Sequence[int] = ()
    """Number of the line of each validation example, in its file."""
    num_mixed_in: int = 0
    """Number of the last training examples that are earlier pairs, of which each epoch draws some."""


def read_training_examples(files: TrainingInputs, config: DataConfig) -> tuple[ExampleFile, list[str]]:
    """Read the training set, and the group of each example.

    Args:
        files: Training and validation data.
        config: Data settings.

    Returns:
        The examples, and one group for each; no groups without `data.group_column`.

    Raises:
        DataError: As in `read_files`.
        ConfigError: As in `read_files`.
    """
    if isinstance(files.train, InMemoryTable):
        reading, groups = read_table_examples(files.train, config)
    elif config.group_column:
        if files.train_target is not None:
            raise ConfigError("data.group_column selects a column, but parallel files of text have none")
        reading, groups = read_grouped_examples(files.train, config, config.group_column)
    else:
        reading, groups = read_examples(files.train, config, files.train_target), []
    check_reading(reading, files.train)
    return reading, groups


def check_reading(reading: ExampleFile, data: Path | InMemoryTable) -> None:
    """Check that at most half of the lines of a file are bad (`check_bad_lines_fraction`).

    Args:
        reading: The content of the file.
        data: The file, or a table.

    Raises:
        DataError: More than half of the lines are bad.
    """
    num_bad = len(reading.bad_lines)
    if num_bad:
        check_bad_lines_fraction(num_bad, num_bad + len(reading.examples), path_or_name(data), reading.bad_lines[0])


def check_bad_lines_fraction(num_bad: int, num_lines: int, data: Path | str, first: BadLine) -> None:
    """Check that at most half of the lines are bad; else the columns are probably wrong, and skipping does not help.

    Args:
        num_bad: Number of bad lines.
        num_lines: Number of lines, without blank ones.
        data: The file, or the name of a table.
        first: A bad line, for the error.

    Raises:
        DataError: More than half of them are bad, of at least `MIN_CHECKED_LINES`.
    """
    if num_lines >= MIN_CHECKED_LINES and 2 * num_bad > num_lines:
        raise DataError(
            f"{data}: {num_bad:,} of {num_lines:,} lines are bad, so the format, the delimiter or the columns are "
            f"probably wrong; the first: {first}"
        )


def _describe_columns(files: TrainingInputs, config: DataConfig) -> str:
    """Return which columns of the training set are used; "" if all are."""
    if isinstance(files.train, InMemoryTable):
        return describe_table_columns(files.train, config)
    return "" if files.train_target else describe_used_columns(files.train, config)


def _count_columns(files: TrainingInputs, config: DataConfig) -> int:
    """Return the number of columns of the training set; 0 for formats whose columns are not counted."""
    if isinstance(files.train, InMemoryTable):
        return files.train.num_columns
    return 0 if files.train_target else count_columns(files.train, config)


def _is_header_unknown(data: Path | InMemoryTable, target: Path | None, config: DataConfig) -> bool:
    """Return whether a file may have a header, which no setting tells; a table has none."""
    return not isinstance(data, InMemoryTable) and is_header_unknown(data, config, target)


def prepared_folder(files: TrainingInputs) -> Path | None:
    """Return the folder of prepared data from which a training reads; None for files and tables.

    Args:
        files: Training and validation data.

    Raises:
        ConfigError: A validation set or a file of targets is given as well.
    """
    if not is_prepared(files.train):
        return None
    if any((files.valid, files.train_target, files.valid_target)):
        raise ConfigError(
            f"{files.train} is prepared data, which has a validation set: give no valid, train_target or valid_target "
            "(--valid, --train-target, --valid-target), or prepare the data with them"
        )
    return files.train


def read_prepared_data(folder: Path, config: Config) -> TrainingData:
    """Return the training data of a folder of prepared data.

    Args:
        folder: The folder.
        config: Configuration of the training.

    Raises:
        DataError: A file is missing or damaged.
        ConfigError: A setting differs from that of the data, or needs the texts of the examples.
    """
    description, corpus, validation_examples = read_prepared(folder, config)
    bad, shared, num_valid = description.num_bad_lines, description.num_shared, description.num_validation_examples
    note = f"prepared from {description.train.path}" + (f", without {count_noun(bad, 'bad line')}" if bad else "")
    valid = "held out of the training file" if description.valid is None else f"copy of {description.valid.path}"
    overlap = overlap_note(shared, num_valid, "the training set")
    path, validation_note = folder / VALIDATION_FILE, "; ".join(filter(None, [valid, overlap]))
    return TrainingData(
        key=description.key,
        report=corpus.report,
        training_examples=[],
        corpus=corpus,
        validation_examples=validation_examples,
        file_events=(
            FileRead(folder, description.num_examples, [], 0, note, digest=description.train.digest),
            FileRead(path, num_valid, [], 0, validation_note, digest=digest_file(path), num_shared=shared),
        ),
        columns=0,
        validation_lines=range(1, num_valid + 1),
    )


class PairCounts(NamedTuple):
    """Numbers of the pairs of a training file."""

    all_pairs: int
    """Number of pairs by which a default size is chosen, those that are held out for validation included."""
    held_out: int
    """Number of those that are held out for validation."""
    are_known_before: bool = True
    """False if the pairs cannot be counted before they are read, because they come from a pipe."""


def count_pairs(files: TrainingInputs, file_events: Sequence[FileRead]) -> PairCounts:
    """Return the number of training pairs by which a default size is chosen, and of those that are held out.

    Args:
        files: Training and validation data.
        file_events: Events of the training and the validation set.
    """
    prepared = prepared_folder(files)
    if prepared is not None:
        description = read_description(prepared)
        return PairCounts(description.num_pairs, description.num_held_out)
    held_out = sum(read.num_examples for read in file_events[1:]) if files.valid is None else 0
    can_be_counted = find_stream([files.train, files.train_target]) is None
    return PairCounts(file_events[0].num_examples + held_out, held_out, can_be_counted)


def read_training_data(
    files: TrainingInputs,
    config: Config,
    unresolved: DataConfig,
    corpus_path: Path | None = None,
    validation_path: Path | None = None,
) -> TrainingData:
    """Read files of pairs, tables in memory, or prepared data.

    Args:
        files: Training and validation data.
        config: Configuration of the training.
        unresolved: Data settings as they were given.
        corpus_path: As in `read_files`; None, the default, for none.
        validation_path: As in `read_files`; None, the default, for none.

    Returns:
        The training examples as texts, or as ids if they are prepared or in a saved corpus; the validation examples as
        texts; and the events of both files.

    Raises:
        DataError: As in `read_files` and `read_prepared_data`.
        ConfigError: As in `read_files` and `read_prepared_data`.
    """
    prepared = prepared_folder(files)
    if prepared is None:
        return read_files(files, unresolved, corpus_path, validation_path)
    return read_prepared_data(prepared, config)


def read_files(
    files: TrainingInputs,
    config: DataConfig,
    corpus_path: Path | None,
    validation_path: Path | None = None,
) -> TrainingData:
    """Read the data files; the training file is not read if `corpus_path` holds the corpus of these files and settings.

    Args:
        files: Training and validation data.
        config: Data settings.
        corpus_path: File of the saved corpus, which need not exist; None if there is none.
        validation_path: File to which the caller writes a part of the training set that is held out, or a validation
            set in memory; None if there is none.

    Returns:
        The training examples as texts, or as the ids of the saved corpus; the validation examples as texts; and the
        events of both files. Without a validation set, a part of the training set is held out as one.

    Raises:
        DataError: A file cannot be read or holds no example, parallel files differ in length, a line is bad (unless bad
            lines are skipped), a first line is clearly a header, or both files hold the same set of examples.
        ConfigError: The configured columns are not valid, or `data.group_column` is set with a validation set.
    """
    if files.valid is not None and config.group_column:
        raise ConfigError(
            "data.group_column (--group-column) divides the training set, but a validation set is given: leave out one "
            "of them"
        )
    digests = [digest_data(data, config) for data in files]
    if files.valid is None:
        return _read_and_split(files, config, digests, validation_path)
    key, corpus, note = corpus_key(files, config, digests), None, ""
    if key and corpus_path is not None and corpus_path.exists():
        try:
            corpus = map_corpus(corpus_path, key, reads_features(config))
        except CorpusError as error:
            note = f"{corpus_path} is not used, for {error}"
    train_file = None if corpus is not None else read_training_examples(files, config)[0]
    valid_file = read_validation_file(files, config)
    if corpus is not None:
        training = _TrainingSet([], corpus.encoded.source.num_sequences, corpus.report, "", 0)
    else:
        assert train_file is not None
        training = _describe_training_set(files, config, train_file, valid_file.examples)
    num_shared = training.report.num_shared
    valid_read, content = _validation_read(files, config, valid_file, num_shared, digests, validation_path)
    train_read = FileRead(
        path=path_or_name(files.train),
        num_examples=training.num_examples,
        bad_lines=list(training.report.bad_lines),
        num_blank_lines=training.report.num_blank_lines,
        note="; ".join(filter(None, [note, training.note])),
        target=files.train_target,
        digest=digests[0],
        target_digest=digests[2],
        text_note=training.report.text_note,
    )
    num_valid = len(valid_file.examples)
    return TrainingData(
        key=key,
        report=training.report,
        training_examples=training.examples,
        corpus=corpus,
        validation_examples=valid_file.examples,
        file_events=(train_read, valid_read),
        columns=training.columns,
        validation_file=content,
        validation_lines=range(1, num_valid + 1) if isinstance(files.valid, InMemoryTable) else valid_file.line_numbers,
    )


class _TrainingSet(NamedTuple):
    """Training set, as texts or as the ids of a saved corpus."""

    examples: Sequence[Example]
    """Training examples as texts; empty for a corpus."""
    num_examples: int
    report: ReadingReport
    note: str
    """Note about the first line and the columns; empty for a corpus."""
    columns: int
    """As in `TrainingData`."""


def _describe_training_set(
    files: TrainingInputs, config: DataConfig, train_file: ExampleFile, validation_examples: Sequence[Example]
) -> _TrainingSet:
    """Return a training set that was read as texts, with the notes about it."""
    examples = train_file.examples
    num_shared = _count_shared(examples, validation_examples, files, config)
    notes = (_header_note(examples, validation_examples, files, config), _describe_columns(files, config))
    texts = text_note(train_file, config, "trained on", _unit(files.train))
    report = ReadingReport(tuple(train_file.bad_lines), train_file.num_blank_lines, num_shared, texts)
    return _TrainingSet(examples, len(examples), report, "; ".join(filter(None, notes)), _count_columns(files, config))


def _validation_read(
    files: TrainingInputs,
    config: DataConfig,
    valid_file: ExampleFile,
    num_shared: int,
    digests: Sequence[FileDigest | None],
    validation_path: Path | None,
) -> tuple[FileRead, bytes]:
    """Return the event for a validation set, and the content of its copy in the run folder, if it is in memory."""
    assert files.valid is not None
    overlap = overlap_note(num_shared, len(valid_file.examples), str(files.train))
    read = FileRead(
        path=path_or_name(files.valid),
        num_examples=len(valid_file.examples),
        bad_lines=valid_file.bad_lines,
        num_blank_lines=valid_file.num_blank_lines,
        note=overlap,
        num_shared=num_shared,
        target=files.valid_target,
        digest=digests[1],
        target_digest=digests[3],
        text_note=text_note(valid_file, config, "scored", _unit(files.valid)),
    )
    if not isinstance(files.valid, InMemoryTable) or validation_path is None:
        return read, b""
    # The run folder keeps the examples, so that later commands find them.
    content = format_validation_file(valid_file.examples)
    note = "; ".join(filter(None, [f"copy of {files.valid}", overlap]))
    return read._replace(path=validation_path, note=note, digest=digest_bytes(content)), content


def read_validation_file(files: TrainingInputs, config: DataConfig) -> ExampleFile:
    """Read the validation set that is given beside the training set.

    Args:
        files: Training and validation data.
        config: Data settings.

    Returns:
        The examples, with their line numbers and the bad lines. The validation file of a run folder or of prepared data
        is read by its own columns (`pair_file_config`).

    Raises:
        DataError: As in `read_files`.
        ConfigError: As in `read_files`.
    """
    assert files.valid is not None
    try:
        if isinstance(files.valid, InMemoryTable):
            valid_file, _ = read_table_examples(files.valid, config)
        else:
            valid_file = read_examples(files.valid, pair_file_config(files.valid, config), files.valid_target)
        check_reading(valid_file, files.valid)
    except HeaderError as error:
        raise HeaderError(f"{error}; {files.train}, which is read in the same way, seems to have none") from error
    return valid_file


def read_validation_examples(files: TrainingInputs, config: DataConfig, run: Path) -> list[Example]:
    """Return the validation examples of a training that has written its run folder.

    They are those of the prepared data; of the run folder, if they were held out or are a table in memory; or of the
    validation file.

    Args:
        files: Training and validation data.
        config: Data settings as they were given to the training.
        run: Run folder.

    Raises:
        DataError: As in `read_files` and `read_prepared_data`.
        ConfigError: As in `read_files`, or the prepared data is given with another validation set.
        RunError: The file of the run folder is missing or no regular file.
    """
    prepared = prepared_folder(files)
    if prepared is not None:
        return read_prepared_validation(prepared, read_description(prepared))
    if files.valid is None or isinstance(files.valid, InMemoryTable):
        path = run / VALIDATION
        open_regular_file(path).close()  # a pipe in the folder of another user would be waited for
        return read_examples(path, validation_file_config(config)).examples
    return read_validation_file(files, config).examples


def _unit(data: Path | InMemoryTable) -> str:
    """Return the noun of a row of a file or of a table."""
    return data.unit if isinstance(data, InMemoryTable) else "line"


def _read_and_split(
    files: TrainingInputs,
    config: DataConfig,
    digests: Sequence[FileDigest | None],
    validation_path: Path | None,
) -> TrainingData:
    """Read the training file, and hold out a part of it as validation set. A saved corpus is not used."""
    if files.valid_target is not None:
        raise DataError(f"{files.valid_target} holds targets of a validation set, but its sources are not given")
    train_file, groups = read_training_examples(files, config)
    header = first_line_note(train_file.examples, files, config)
    ignored = _describe_columns(files, config)
    split, description = _hold_out(files, train_file.examples, groups, config)
    content, num_held_out = format_validation_file(split.validation_examples), len(split.validation_examples)
    bad, blank = train_file.bad_lines, train_file.num_blank_lines
    note = "; ".join(filter(None, [header, ignored]))
    texts = text_note(train_file, config, "used", _unit(files.train))
    held_out = f"held out of {files.train}: {description}"
    num_training, path = len(split.training_examples), path_or_name(files.train)
    file_events = (
        FileRead(path, num_training, bad, blank, note, files.train_target, digests[0], digests[2], texts),
        FileRead(validation_path or path, num_held_out, [], 0, held_out, digest=digest_bytes(content)),
    )
    return TrainingData(
        key="",
        report=ReadingReport(tuple(bad), blank, 0, texts),
        training_examples=split.training_examples,
        corpus=None,
        validation_examples=split.validation_examples,
        file_events=file_events,
        columns=_count_columns(files, config),
        validation_file=content,
        validation_lines=range(1, num_held_out + 1),
    )


def _hold_out(
    files: TrainingInputs, examples: Sequence[Example], groups: Sequence[str], config: DataConfig
) -> tuple[ValidationSplit, str]:
    """Return the training set without and with what is held out of it, and a description of the latter."""
    if groups:
        return split_by_group(examples, groups, config, str(files.train))
    if reads_neighbors(config):
        return split_by_sentence(examples, config.context_words, str(files.train))
    return split_by_source(examples, config, str(files.train))


def split_checked_examples(
    files: TrainingInputs, examples: Sequence[Example], groups: Sequence[str], config: DataConfig
) -> Sequence[Example]:
    """Return the examples of a training set that are trained on: all, or those that are not held out.

    The validation set is checked, for errors before something slow; `read_files` checks it, too. A pipe is not read.

    Args:
        files: Training and validation data.
        examples: Examples of the training set.
        groups: Group of each example; empty without `data.group_column`.
        config: Data settings.

    Raises:
        DataError: The training set has a single source or group, the validation set cannot be read, a line of it is
            bad, or it holds the examples of the training set and no others.
        ConfigError: The configured columns are not valid.
    """
    if files.valid is None:
        return _hold_out(files, examples, groups, config)[0].training_examples
    if find_stream([files.valid, files.valid_target]) is None:
        _count_shared(examples, read_validation_file(files, config).examples, files, config)
    return examples


def find_stream(files: Sequence[object]) -> Path | None:
    """Return the first file that cannot be read twice, such as a pipe; None if all can.

    Args:
        files: Paths, and tables in memory or None, which are passed over.
    """
    paths = (path for path in files if isinstance(path, Path))
    return next((path for path in paths if path.exists() and not (path.is_file() or path.is_dir())), None)


def resolve_auto_settings(files: TrainingInputs, config: DataConfig) -> DataConfig:
    """Return the data settings with the format and the header option of the training file in place of "auto".

    The run folder records them, so that standard input is read in this format at prediction; after a training from a
    table in memory, as TSV.

    Args:
        files: Training and validation data; no file is opened, the file name decides.
        config: Data settings.

    Raises:
        ConfigError: The configured columns are not valid, or a delimiter is configured for a file that is not a CSV.
    """
    prepared = prepared_folder(files)
    if prepared is not None:
        return resolve_prepared_settings(read_description(prepared), config)
    if isinstance(files.train, InMemoryTable):
        format: Format = "tsv" if config.input_format == "auto" else config.input_format
    else:
        format = "text" if files.train_target else resolve_format(files.train, config)
        if config.delimiter != "auto" and not has_effect(config.delimiter, format):
            raise ConfigError(
                f"data.delimiter (--delimiter) separates the columns of CSV, but {files.train} is read as {format}: "
                "give --input-format csv (data.input_format), or leave the delimiter out"
            )
    return msgspec.structs.replace(config, input_format=format, header=has_header(config))


def encode_training_data(
    data: TrainingData, config: Config, initial_vocabularies: Vocabularies | None = None
) -> EncodedCorpus:
    """Return the training examples as ids: the saved corpus, or the texts with vocabularies learned from them now.

    Args:
        data: Training data.
        config: Configuration.
        initial_vocabularies: Vocabularies that those of the texts extend: of an initial run, or of the run that is
            resumed. None, the default, for none.

    Raises:
        DataError: A symbol has a reserved name or is too long.
        ConfigError: A setting defines no tokenizer, or the tokenizers library is not installed.
    """
    if data.corpus is not None:
        return data.corpus
    vocabularies, encoded = encode_texts(data.training_examples, config, initial_vocabularies)
    vocabularies = msgspec.structs.replace(vocabularies, columns=data.columns)
    return EncodedCorpus(data.key, data.report, vocabularies, encoded)


def encode_texts(
    examples: Sequence[Example], config: Config, initial_vocabularies: Vocabularies | None = None
) -> tuple[Vocabularies, EncodedExamples]:
    """Return vocabularies learned from examples, and the examples as ids.

    Args:
        examples: Training examples.
        config: Configuration.
        initial_vocabularies: Vocabularies that those of the examples extend, and whose subword models are used; None,
            the default, for none.

    Raises:
        DataError: A symbol has a reserved name or is too long.
        ConfigError: A setting defines no tokenizer, or the tokenizers library is not installed.
    """
    tokenizers, vocabularies = learn_symbols(examples, config, initial_vocabularies)
    return vocabularies, encode_for_task(examples, tokenizers, vocabularies, config)


def learn_symbols(
    examples: Sequence[Example], config: Config, initial_vocabularies: Vocabularies | None = None
) -> tuple[Tokenizers, Vocabularies]:
    """Return tokenizers and vocabularies learned from examples.

    Args:
        examples: Training examples.
        config: Configuration.
        initial_vocabularies: Vocabularies that those of the examples extend; None, the default, for none.

    Raises:
        DataError: As in `encode_texts`.
        ConfigError: As in `encode_texts`.
    """
    task = get_task(config.task)
    if initial_vocabularies is None:
        tokenizers = learn_tokenizers(examples, config.data)
    else:
        tokenizers = build_tokenizers(config.data, initial_vocabularies.pieces)
    vocabularies = task.learn_vocabularies(examples, tokenizers, config)
    if has_characters(config):
        characters = learn_characters(examples, tokenizers.source)
        vocabularies = msgspec.structs.replace(vocabularies, characters=characters)
    if initial_vocabularies is not None:
        vocabularies = extend_vocabularies(initial_vocabularies, vocabularies, config)
    return tokenizers, vocabularies


def first_line_note(examples: Sequence[Example], files: TrainingInputs, config: DataConfig) -> str:
    """Return a note if the first line of the training file may be a header, and the settings do not say; else "".

    Args:
        examples: The first training examples, at least one.
        files: Training and validation data.
        config: Data settings as they were given.
    """
    return header_note(examples) if _is_header_unknown(files.train, files.train_target, config) else ""


def _header_note(
    training_examples: Sequence[Example],
    validation_examples: Sequence[Example],
    files: TrainingInputs,
    config: DataConfig,
) -> str:
    """Return a remark if the first line may be a header; `HeaderError` if it clearly is one."""
    if files.valid is None or not _is_header_unknown(files.train, files.train_target, config):
        return ""
    both_unknown = _is_header_unknown(files.valid, files.valid_target, config)
    note = check_shared_header(training_examples, validation_examples, str(files.valid)) if both_unknown else ""
    return note or header_note(training_examples)


def _count_shared(
    training_examples: Sequence[Example],
    validation_examples: Sequence[Example],
    files: TrainingInputs,
    config: DataConfig,
) -> int:
    """Return the number of validation examples that are also training examples; `DataError` if the files are equal."""
    validation = list(normalize_sources(validation_examples, config))
    both = set(validation).intersection(normalize_sources(training_examples, config))
    shared = sum(example in both for example in validation)
    training = normalize_sources(training_examples, config)
    if shared == len(validation) and all(example in both for example in training):
        raise same_examples_error(files)
    return shared


def same_examples_error(files: TrainingInputs) -> DataError:
    """Return the error of a validation set that has all training examples and no other.

    Args:
        files: Training and validation data.
    """
    return DataError(
        f"{files.valid} holds the same examples as {files.train}: scores on training examples do not measure "
        "generalization; give examples that are not in the training file"
    )
