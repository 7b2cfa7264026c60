"""Examples: pairs read from data files without any change, with the reason for every line that is rejected.

Every line of a file becomes an example, a bad line with its reason, or one of the counted blank lines. Nothing is
stripped, normalized, truncated or skipped silently.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NamedTuple

import msgspec

from pellucid.argument_checks import UNCHECKED, argument_error, check_arguments
from pellucid.config.columns import check_columns, column_number
from pellucid.config.settings import DataConfig, Delimiter, Format, Header, PositiveInt, reads_neighbors
from pellucid.data.context import EDGE, SENTENCE_END, UNKNOWN_WORD, add_contexts
from pellucid.data.delimiters import describe_delimiter
from pellucid.data.headers import check_header_cells, header_note, is_column_name, list_names
from pellucid.data.in_memory import InMemoryTable
from pellucid.data.lines import read_lines
from pellucid.data.readers import (
    TABLE_FORMATS,
    BadLine,
    ColumnSelection,
    Record,
    Records,
    TableCells,
    csv_records,
    find_columns,
    first_json_keys,
    first_table_row,
    json_records,
    parquet_column_names,
    parquet_records,
    parse_records,
    read_parallel_records,
    read_records,
    resolve_delimiter,
    resolve_format,
    resolve_header,
    resolve_input_format,
    split_last_field,
    tsv_records,
)
from pellucid.data.tokenizers import Tokenizer, Tokenizers, build_tokenizers
from pellucid.errors import BadLineError, ConfigError, DataError, InputError, count_noun, parse_whole_number, quote

PAIR_ROLES = ("source", "target", "features", "class")
TWO_COLUMNS = ColumnSelection({"source": "1", "target": "2"})
"""Columns of a lexicon of two columns without header."""
MAX_BAD_LINES = 10**6
"""Number of bad lines from which a file is refused if it has fewer examples: each takes 240 bytes, and a few bytes of a
compressed file may hold any number of them."""
SKIP_HINT = '--on-bad-line skip (data.on_bad_line = "skip") skips and counts such lines'
STANDARD_INPUT = "standard input"
"""Name of the standard input in messages."""
Lines = Annotated[Iterable[bytes], UNCHECKED]
"""Lines with their line ends, which are checked one at a time as they are read."""


class Example(NamedTuple):
    """A source, its target and its features, each exactly as in the file.

    The target is empty in prediction; the features are empty for a model without features. With data.context_words, the
    features are the words around the source (data/context.py).
    """

    source: str
    target: str
    features: str = ""


class ExampleFile(NamedTuple):
    """Content of a file: the examples with their line numbers, the bad lines, and the number of blank lines."""

    examples: list[Example]
    line_numbers: list[int]
    """Number of the line, from 1, of each example."""
    bad_lines: list[BadLine]
    """Bad lines, which were skipped."""
    num_blank_lines: int


class PartiallyLabeledFile(NamedTuple):
    """Content of a file in which rows may lack a target."""

    pairs: ExampleFile
    """The pairs; rows without a target are not among the bad lines."""
    without_target: list[tuple[int, Example]]
    """Number of the line and source of each row without a target, whose features are those of a column."""


class LexiconFile(NamedTuple):
    """Content of a lexicon."""

    pairs: ExampleFile
    num_without_target: int
    """Number of rows with a source and no target, which are no pairs."""


class InputFormat(NamedTuple):
    """Format of an input of predict, score or look, as far as it differs from the training file."""

    format: Format = "auto"
    """File format; "auto" uses the file name, else the format of the training file."""
    header: Header = "auto"
    """Whether the first line names the columns; "auto": as in the training file."""
    columns: int = 0
    """Number of columns of the training file, the maximum for a line of an input without header; 0 for no maximum."""
    report: Callable[[str], None] | None = None
    """Function that receives notes about the first line; None for no notes."""
    cells: TableCells | None = None
    """All cells of a TSV or CSV input, for its reader to fill; None if they are not needed."""


FILE_FORMAT, STREAM_FORMAT = InputFormat(), InputFormat(header=False)
"""Default formats of files, and of lines from a stream, which have no header."""


@check_arguments
def read_examples(path: str | Path, config: DataConfig, target_path: str | Path | None = None) -> ExampleFile:
    """Read the examples of a file, or of two parallel text files.

    Args:
        path: The file of pairs, or the file of sources.
        config: The data settings.
        target_path: The file of targets, if the files are parallel.

    Returns:
        The examples (at least one), the bad lines and the number of blank lines.

    Raises:
        DataError: A file cannot be read or contains no example, its header lacks a configured column, or parallel files
            differ in the number of lines.
        BadLineError: A line is bad, and `config.on_bad_line` is "stop".
        HeaderError: `config.header` is "auto", and the first line looks like a header.
        ConfigError: A configured column or tokenizer is invalid, a column is selected by name but the file has no
            header, or the format "text" has no file of targets.
    """
    return next(_read_blocks(Path(path), config, None if target_path is None else Path(target_path), sys.maxsize))


@check_arguments
def read_partially_labeled(path: str | Path, config: DataConfig) -> PartiallyLabeledFile:
    """Read the pairs of a file in which rows may lack a target: it is empty, or null.

    Args:
        path: The file of pairs.
        config: The data settings.

    Raises:
        DataError: As in `read_examples`; the file may not lack all targets.
        BadLineError: A line is bad for another reason, and `config.on_bad_line` is "stop".
        HeaderError: As in `read_examples`.
        ConfigError: As in `read_examples`.
    """
    columns = _selected_columns(config, PAIR_ROLES)._replace(nullable=frozenset({"target"}))
    return _collect_partially_labeled(
        lambda skipping, prepare: next(_read_pair_blocks(Path(path), skipping, columns, sys.maxsize, prepare)), config
    )


def read_partially_labeled_table(table: InMemoryTable, config: DataConfig) -> PartiallyLabeledFile:
    """Read the pairs of a table in memory in which rows may lack a target: it is empty, None or NaN.

    Args:
        table: The table.
        config: The data settings; the format and the header of files have no effect.

    Raises:
        DataError: The table contains no pair, or lacks a configured column.
        BadLineError: A row is bad for another reason, and `config.on_bad_line` is "stop".
        ConfigError: As in `read_table_examples`.
    """
    columns = _selected_columns(config, PAIR_ROLES)._replace(nullable=frozenset({"target"}))
    names = _table_names(table)
    return _collect_partially_labeled(
        lambda skipping, prepare: _collect_examples(prepare(table.records(columns)), skipping, names), config
    )


def _collect_partially_labeled(
    read: Callable[[DataConfig, Callable[[Records], Records]], ExampleFile], config: DataConfig
) -> PartiallyLabeledFile:
    """Return the examples of a file or table, and apart from its bad lines those without a target.

    Args:
        read: Function that reads the examples with other settings, which skip bad lines, and passes the records through
            a function.
        config: The data settings.
    """
    skipping = msgspec.structs.replace(config, on_bad_line="skip")
    candidates = dict[int, Example]()

    def keep_candidates(records: Records) -> Records:
        for record in records:
            if isinstance(record, Record) and record.fields and not record.fields[1].strip():
                features = record.fields[2] if config.features_column else ""
                candidates[record.line] = Example(record.fields[0], record.fields[1], features)
            yield record

    reading = read(skipping, keep_candidates)
    is_unlabeled = [bad.reason == empty_text_error("target") and bad.line in candidates for bad in reading.bad_lines]
    others = [bad for bad, each in zip(reading.bad_lines, is_unlabeled, strict=True) if not each]
    if others and config.on_bad_line == "stop":
        is_first = reading.line_numbers[0] > others[0].line
        raise BadLineError(str(others[0]) if is_first else f"{others[0]}; {SKIP_HINT}")
    lines = [bad.line for bad, each in zip(reading.bad_lines, is_unlabeled, strict=True) if each]
    return PartiallyLabeledFile(reading._replace(bad_lines=others), [(line, candidates[line]) for line in lines])


@check_arguments
def read_example_blocks(
    path: str | Path, config: DataConfig, size: PositiveInt, target_path: str | Path | None = None
) -> Iterator[ExampleFile]:
    """Read the examples of a file in blocks, so that memory does not grow with the file.

    Args:
        path: The file of pairs, or the file of sources.
        config: The data settings.
        size: Maximum number of examples of a block, and of bad lines.
        target_path: The file of targets, if the files are parallel.

    Yields:
        The examples of the next lines, their bad lines, and the number of their blank lines. The last block may have no
        example.

    Raises:
        DataError: As in `read_examples`; during iteration.
        BadLineError: As in `read_examples`.
        HeaderError: As in `read_examples`.
        ConfigError: As in `read_examples`.
    """
    yield from _read_blocks(Path(path), config, None if target_path is None else Path(target_path), size)


def _read_blocks(path: Path, config: DataConfig, target_path: Path | None, size: int) -> Iterator[ExampleFile]:
    """Yield the examples of a file, or of two parallel files, in blocks of at most `size` examples."""
    columns = _selected_columns(config, PAIR_ROLES)
    if target_path is None:
        yield from _read_pair_blocks(path, config, columns, size)
        return
    _reject_class_column(config, target_path)
    records = read_parallel_records(path, target_path, columns)
    names = InputNames(str(path), describe_pair_files(path, target_path), target=str(target_path))
    yield from _collect_blocks(records, config, names, size)


def describe_pair_files(path: Path, target_path: Path | None) -> str:
    """Return the name of a file of pairs, or of two parallel files, in messages.

    Args:
        path: File of pairs, or of sources.
        target_path: File of targets; None if the files are not parallel.
    """
    return str(path) if target_path is None else f"the pair {path} and {target_path}"


def _reject_class_column(config: DataConfig, target_path: Path) -> None:
    """Raise `ConfigError` if classes are in a column of their own, which parallel files do not have."""
    if config.class_column:
        raise ConfigError(
            "data.class_column selects a column of a table, and parallel files have none: begin each line of "
            f"{target_path} with the class"
        )


def training_columns(config: DataConfig, group_setting: str = "") -> ColumnSelection:
    """Return the columns that a training reads, with that of the groups if it is configured.

    Args:
        config: The data settings.
        group_setting: Argument that selects the column of the groups, for messages; that of a training by default.

    Raises:
        ConfigError: A configured column is invalid.
    """
    return _selected_columns(config, (*PAIR_ROLES, "group"), group_setting)


def read_table_examples(
    table: InMemoryTable, config: DataConfig, group_setting: str = ""
) -> tuple[ExampleFile, list[str]]:
    """Read the pairs of a table in memory, under the conditions for a file.

    Args:
        table: The table.
        config: The data settings; the format and the header of files have no effect.
        group_setting: Argument that selects the column of the groups, for messages; that of a training by default.

    Returns:
        The examples (at least one) with the numbers of their rows, and the group of each; no groups without
        `config.group_column`.

    Raises:
        DataError: The table contains no example, or lacks a configured column.
        BadLineError: A row is bad, and `config.on_bad_line` is "stop".
        ConfigError: A configured column is invalid, or a column is selected by name but the rows have no names.
    """
    groups: dict[int, str] = {}
    records = _training_records(table, config, groups, group_setting)
    reading = _collect_examples(records, config, _table_names(table))
    return reading, [groups[row] for row in reading.line_numbers] if config.group_column else []


def _training_records(
    table: InMemoryTable, config: DataConfig, groups: dict[int, str], group_setting: str = ""
) -> Records:
    """Return the records of the pairs of a table; `groups` receives the group of each row if a column has them."""
    records = table.records(training_columns(config, group_setting))
    return split_last_field(records, groups) if config.group_column else records


def config_for_rows(table: InMemoryTable, config: DataConfig) -> DataConfig:
    """Return the data settings with which a trained run reads a table.

    Rows without names, such as tuples, are (source, target), or (source, target, features), also if the columns of the
    training file are selected by name; so is an `Example`. All columns stay as they are if one is selected by another
    number, or if the classes are in a column.

    Args:
        table: The table.
        config: The data settings of the run.
    """
    is_example = isinstance(table.rows, list) and bool(table.rows) and isinstance(table.rows[0], Example)
    roles = PAIR_ROLES[:3] if config.features_column else PAIR_ROLES[:2]
    trained = [getattr(config, f"{role}_column") for role in roles]
    is_clear = all(column_number(column) in (None, number) for number, column in enumerate(trained, 1))
    if config.class_column or not is_clear or not (is_example or table.num_columns):
        return config
    columns = roles if is_example else map(str, range(1, 1 + len(roles)))
    return msgspec.structs.replace(config, **{f"{role}_column": c for role, c in zip(roles, columns, strict=True)})


def describe_table_columns(table: InMemoryTable, config: DataConfig) -> str:
    """Describe which columns of a table are used: "it has 3 columns; used are 'word' as source, ..."; "" if all are.

    A first pair that looks like the names of columns is described, too.

    Args:
        table: The table.
        config: The data settings.

    Raises:
        DataError: The table lacks a configured column.
        ConfigError: A configured column is invalid.
    """
    columns = training_columns(config)
    num_columns = len(table.column_names) or table.num_columns
    notes = []
    if num_columns > len(set(columns.selected.values())):
        if table.column_names:
            positions = find_columns(columns, table.column_names, table.name)
            names = [quote(table.column_names[position]) for position in positions]
        else:
            names = list(columns.selected.values())
        used = ", ".join(f"{name} as {role}" for role, name in zip(columns.selected, names, strict=True))
        notes.append(f"it has {num_columns} columns; used are {used}")
    first = None if table.column_names else next(table.records(columns), None)
    if isinstance(first, Record) and table.num_columns and all(map(is_column_name, first.fields[:2])):
        cells = " and ".join(map(quote, first.fields[:2]))
        notes.append(f"{table.unit} 1 holds {cells}, which may be names of columns; it is read as an example")
    return "; ".join(notes)


def parse_table_sources(table: InMemoryTable, config: DataConfig) -> Iterator[Example | BadLine]:
    """Yield the source and features of each row of a table, for prediction, or why they are invalid.

    Args:
        table: The table.
        config: The data settings of the run.

    Raises:
        DataError: The table lacks a configured column; during iteration.
        ConfigError: A configured column is invalid.
    """
    yield from _checked_sources(table.records(source_columns(config)), config, table.name, table.unit)


def parse_table_pairs(table: InMemoryTable, config: DataConfig) -> Iterator[Example | BadLine]:
    """Yield the pair of each row of a table, for scoring, or why it is invalid.

    Args:
        table: The table.
        config: The data settings of the run; see `pair_config`.

    Raises:
        DataError: The table lacks a configured column; during iteration.
        ConfigError: A configured column is invalid.
    """
    config = pair_config(config)
    records = table.records(_selected_columns(config, PAIR_ROLES))
    yield from _checked_pairs(records, config, table.name, table.unit)


@check_arguments
def read_lexicon_examples(path: str | Path, config: DataConfig, num_columns: int = 0) -> LexiconFile:
    """Read the pairs of a lexicon, once, by the columns of the training file or from two columns.

    The first line of at least two columns decides (in JSON lines, the first object; in Parquet, the names of the
    columns):

    1. If the training columns have names and the line contains them, it is the header, and they are read.
    2. If the training columns have numbers, and the line has as many columns as the training file, these columns are
       read. The line is a header only if the training file had one and it consists of usual column names.
    3. Otherwise, a file of two columns has no header: column 1 is the source, column 2 the target.
    4. Any other file is refused.

    Rows without a target, such as words whose pronunciation is not known yet, are counted and not read.

    Args:
        path: The file; its ending selects the format, else it is TSV.
        config: The data settings of the run. Features are not read.
        num_columns: Number of columns of the training file; 0 if it is unknown, by default: then rule 2 applies to any
            number of columns.

    Returns:
        The pairs (at least one), the bad lines, and the numbers of blank lines and of rows without a target.

    Raises:
        DataError: As in `read_examples`, or the file has neither the columns of the training file nor two columns.
        BadLineError: A line is bad, and `config.on_bad_line` is "stop".
        ConfigError: A configured column or tokenizer is invalid.
    """
    path = Path(path)
    if config.class_column:
        raise ConfigError(
            "a lexicon holds pairs of a source and a target, but this model predicts classes and tags, which are two "
            "columns (data.class_column)"
        )
    if config.input_format == "text":
        num_columns = 3 if config.features_column else 2
    config = msgspec.structs.replace(pair_config(config), input_format="auto", features_column="", context_words=0)
    columns = _selected_columns(config, ("source", "target"))
    format = resolve_format(path, config)
    name = str(path)
    if format == "parquet":
        names = parquet_column_names(path)
        selected = _lexicon_columns(names, columns, num_columns, name) if names else columns
        return _collect_lexicon(parquet_records(path, selected), config, InputNames(name, name))
    lines = read_lines(path)
    first_lines = list[bytes]()
    if format == "csv":
        delimiter, lines = resolve_delimiter(
            lines, columns, name, advice="save the lexicon with commas, or with tabs under a name that ends with .tsv"
        )
        columns = columns._replace(delimiter=delimiter)
    copied_lines = _copy_lines(lines, first_lines)
    first = (
        first_json_keys(copied_lines)
        if format == "jsonl"
        else first_table_row(copied_lines, format, name, min_columns=2, delimiter=columns.delimiter)
    )
    header = TableCells(has_rows=False)
    selected = _lexicon_columns(first, columns, num_columns, name)
    selected = selected._replace(delimiter=columns.delimiter, cells=header)
    read_all = {"csv": csv_records, "jsonl": json_records}.get(format, tsv_records)
    records = read_all(chain(first_lines, lines), selected, name)
    return _collect_lexicon(records, config, InputNames(name, name, header))


def _copy_lines(lines: Iterable[bytes], copies: list[bytes]) -> Iterator[bytes]:
    """Yield lines, and append each to `copies`, so that the lines of a pipe can be used again."""
    for line in lines:
        copies.append(line)
        yield line


def _lexicon_columns(first: Sequence[str], columns: ColumnSelection, num_columns: int, name: str) -> ColumnSelection:
    """Return the columns of a lexicon; see `read_lexicon_examples`.

    Args:
        first: The first line of at least two columns; empty if there is none.
        columns: The columns of the training file.
        num_columns: Their number; 0 if it is unknown.
        name: Name of the file, for messages.
    """
    numbers = [column_number(column) for column in columns.selected.values()]
    fits = all(
        column in first if number is None else number <= len(first)
        for column, number in zip(columns.selected.values(), numbers, strict=True)
    )
    if None in numbers:
        if fits:
            return columns._replace(header=True)
    else:
        fits = fits and len(first) == (num_columns or len(first))
        cells = [first[number - 1] for number in numbers if number] if fits else []
        if fits and columns.header is True and cells[0] != cells[-1] and all(map(is_column_name, cells)):
            return columns
        if fits and len(first) > 2:
            return columns._replace(header=False)
    if len(first) <= 2:
        return TWO_COLUMNS
    raise DataError(
        f"{name}: the lexicon has {len(first)} columns, and its first line is {list_names(first)}; expected "
        f"{_describe_lexicon_columns(columns, num_columns)}, or exactly two columns without header, source and target: "
        "name the columns so, or keep only these two"
    )


def _describe_lexicon_columns(columns: ColumnSelection, num_columns: int) -> str:
    """Return the columns of the training file that a lexicon should have, for a message."""
    source, target = columns.selected.values()
    if column_number(source) is None or column_number(target) is None:
        return (
            f"a first line that names the columns of the training file, {quote(source)} (source) and {quote(target)} "
            "(target)"
        )
    count = f"{num_columns} columns" if num_columns else "the columns"
    return f"{count} as in the training file, with the source in column {source} and the target in column {target}"


@check_arguments
def count_examples(
    path: str | Path, config: DataConfig, limit: int, target_path: str | Path | None = None
) -> int | None:
    """Return the number of examples that a training reads from a file, or from two parallel text files.

    Args:
        path: The file of pairs, or the file of sources.
        config: The data settings.
        limit: Number at which counting stops, so that a large file is not read to its end.
        target_path: The file of targets, if the files are parallel.

    Returns:
        At most `limit`; None for a file that can be read only once, such as a pipe, and for one that a training would
        refuse.
    """
    path, target_path = Path(path), None if target_path is None else Path(target_path)
    try:
        if not all(each.is_file() for each in (path, target_path) if each is not None):
            return None
        if config.group_column and target_path is None:
            grouped = read_grouped_blocks(path, config, config.group_column, limit)
            return _count_blocks((block for block, _ in grouped), limit)
        return _count_blocks(_read_blocks(path, config, target_path, limit), limit)
    except (InputError, OSError):  # reading the examples reports it
        return None


def count_table_examples(table: InMemoryTable, config: DataConfig, limit: int) -> int | None:
    """Return the number of examples that a training reads from a table in memory.

    Args:
        table: The table.
        config: The data settings.
        limit: Number at which counting stops.

    Returns:
        At most `limit`; None for a table that a training would refuse.
    """
    try:
        blocks = _collect_blocks(_training_records(table, config, {}), config, _table_names(table), limit)
        return _count_blocks(blocks, limit)
    except InputError:
        return None


def _count_blocks(blocks: Iterable[ExampleFile], limit: int) -> int:
    """Return the number of examples of some blocks, of which no further one is read from `limit` examples on."""
    count = 0
    for block in blocks:
        count += len(block.examples)
        if count >= limit:
            return limit
    return count


@check_arguments
def is_header_unknown(path: str | Path, config: DataConfig, target_path: str | Path | None = None) -> bool:
    """Return whether a file may have a header and neither the settings nor the flags say whether it has one.

    Args:
        path: The file.
        config: The data settings, with the flags applied.
        target_path: The file of targets, if the files are parallel; such files have no header.

    Raises:
        ConfigError: A configured column is invalid.
    """
    path = Path(path)
    target_path = None if target_path is None else Path(target_path)
    format = "text" if target_path is not None else resolve_format(path, config)
    return format in TABLE_FORMATS and training_columns(config).header == "auto"


@check_arguments
def has_header(config: DataConfig) -> bool:
    """Return whether TSV and CSV files have a header by these settings: `header` is true, or a column has a name.

    Args:
        config: The data settings.

    Raises:
        ConfigError: A configured column is invalid.
    """
    return training_columns(config).header is True


@check_arguments
def count_columns(path: str | Path, config: DataConfig) -> int:
    """Return the number of columns of a TSV or CSV file, by its first record; 0 for other formats and for pipes.

    Args:
        path: The file.
        config: The data settings, which define its format.

    Raises:
        DataError: The file cannot be read.
    """
    return len(first_cells(path, config))


@check_arguments
def first_cells(path: str | Path, config: DataConfig) -> Sequence[str]:
    """Return the cells of the first record of a TSV or CSV file; none for other formats and for pipes.

    Args:
        path: The file.
        config: The data settings, which define its format.

    Raises:
        DataError: The file cannot be read.
    """
    return _first_row(Path(path), config).fields


@check_arguments
def file_delimiter(path: str | Path, config: DataConfig) -> Delimiter:
    """Return the delimiter of a CSV file; the comma for other formats and for pipes.

    Args:
        path: The file.
        config: The data settings, which define its format.

    Raises:
        DataError: The file cannot be read, or its delimiter is not clear.
    """
    return _first_row(Path(path), config).delimiter


class _FirstRow(NamedTuple):
    """First record of a TSV or CSV file."""

    fields: Sequence[str] = ()
    """Its fields; empty for other formats and for pipes."""
    delimiter: Delimiter = ","
    """Delimiter of CSV; the comma for other formats."""
    delimiter_note: str = ""
    """Note about a delimiter that was detected; empty for the comma, and for other formats."""


def _first_row(path: Path, config: DataConfig) -> _FirstRow:
    """Return the first record of a TSV or CSV file."""
    format = resolve_format(path, config)
    name = str(path)
    columns = _selected_columns(config, PAIR_ROLES)
    if format not in TABLE_FORMATS or not path.is_file():
        return _FirstRow()
    lines = read_lines(path)
    if format == "tsv":
        return _FirstRow(first_table_row(lines, format, name))
    delimiter, lines = resolve_delimiter(lines, columns, name)
    note = describe_delimiter(delimiter) if columns.delimiter == "auto" else ""
    return _FirstRow(first_table_row(lines, format, name, delimiter=delimiter), delimiter, note)


@check_arguments
def describe_used_columns(path: str | Path, config: DataConfig) -> str:
    """Describe which columns of a TSV or CSV file are used: "the file has 3 columns; used are 1 as source, …".

    Columns of a file with a header have their names instead of their numbers. A delimiter other than the comma that was
    detected is named first.

    Args:
        path: The file.
        config: The data settings.

    Returns:
        The description; "" if all columns are used and the delimiter was not detected, or the file has another format.

    Raises:
        DataError: The file cannot be read, or its header lacks a selected column.
        ConfigError: A configured column is invalid.
    """
    path = Path(path)
    columns = _selected_columns(config, PAIR_ROLES)
    first, _, delimiter_note = _first_row(path, config)
    if len(first) <= len(set(columns.selected.values())):
        return delimiter_note
    if columns.header is True:
        names = [quote(first[position]) for position in find_columns(columns, first, str(path))]
    else:
        names = list(columns.selected.values())
    used = ", ".join(f"{name} as {role}" for role, name in zip(columns.selected, names, strict=True))
    return "; ".join(filter(None, [delimiter_note, f"the file has {len(first)} columns; used are {used}"]))


@check_arguments
def read_column_names(path: str | Path, config: DataConfig) -> list[str]:
    """Return the names of the columns of a TSV or CSV file with a header; none of another format or another file.

    Args:
        path: The file.
        config: The data settings.

    Raises:
        DataError: The file cannot be read.
        ConfigError: A configured column is invalid.
    """
    return list(_first_row(Path(path), config).fields) if config.header is True else []


@check_arguments
def read_grouped_examples(path: str | Path, config: DataConfig, group: str) -> tuple[ExampleFile, list[str]]:
    """Read the examples of a file, and the group of each from a further column.

    Args:
        path: The file.
        config: The data settings.
        group: Column of the groups: a name, or a number from 1.

    Returns:
        The content of the file, and one group for each example.

    Raises:
        DataError: As in `read_examples`.
        ConfigError: As in `read_examples`, also for the group column.
    """
    return next(read_grouped_blocks(path, config, group, sys.maxsize))


@check_arguments
def read_grouped_blocks(
    path: str | Path, config: DataConfig, group: str, size: PositiveInt, group_setting: str = ""
) -> Iterator[tuple[ExampleFile, list[str]]]:
    """Read the examples of a file in blocks, and the group of each from a further column.

    Args:
        path: The file.
        config: The data settings.
        group: Column of the groups: a name, or a number from 1.
        size: Maximum number of examples of a block, and of bad lines.
        group_setting: Flag or argument that selects the column of the groups, for messages; that of a training by
            default.

    Yields:
        The content of the next lines, as `read_example_blocks` does, and one group for each example.

    Raises:
        DataError: As in `read_examples`; during iteration.
        ConfigError: As in `read_examples`, also for the group column.
    """
    if not group:
        raise argument_error("group", "a column: a name, or a number from 1", group)
    columns = training_columns(msgspec.structs.replace(config, group_column=group), group_setting)
    groups: dict[int, str] = {}
    for block in _read_pair_blocks(
        Path(path), config, columns, size, lambda records: split_last_field(records, groups)
    ):
        yield block, [groups.pop(line) for line in block.line_numbers]


ID_COLUMN = "id"
"""Name, in any case, of the column that identifies the rows of a file."""


@check_arguments
def read_row_ids(path: str | Path, config: DataConfig) -> dict[int, str]:
    """Return the cell of the column "id" of each row of a TSV or CSV file with a header, by line number.

    Args:
        path: The file.
        config: The data settings.

    Returns:
        Cell by line number, without the bad lines; empty if the file has no header, no such column or several, if the
        column is selected as source, target or features, or if the file can be read only once, such as a pipe.

    Raises:
        DataError: The file cannot be read.
        ConfigError: A configured column is invalid.
    """
    rows = iterate_row_ids(path, config)
    return {} if rows is None else dict(rows)


@check_arguments
def iterate_row_ids(path: str | Path, config: DataConfig) -> Iterator[tuple[int, str]] | None:
    """Return an iterator over the rows of `read_row_ids`, so that memory does not grow with the file.

    Args:
        path: The file.
        config: The data settings.

    Returns:
        Number of the line and cell of the column "id" of each row, in their order; None where `read_row_ids` is empty.

    Raises:
        DataError: As in `read_row_ids`.
        ConfigError: As in `read_row_ids`.
    """
    path = Path(path)
    columns = _selected_columns(config, PAIR_ROLES)
    names = _first_row(path, config).fields
    position = _id_position(columns, names, path)
    if position is None:
        return None
    return ((line, cells[0]) for line, cells in _iterate_cells(path, config, [position]))


def _id_position(columns: ColumnSelection, names: Sequence[str], path: Path) -> int | None:
    """Return the position of the only column "id" of a header; None without one, or if it is selected."""
    positions = [index for index, name in enumerate(names) if name.strip().lower() == ID_COLUMN]
    if columns.header is not True or len(positions) != 1:
        return None
    return None if positions[0] in find_columns(columns, names, str(path)) else positions[0]


def _iterate_cells(path: Path, config: DataConfig, positions: Sequence[int]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the line number and the cells of the columns at these positions, from 0, of each row that is not bad."""
    columns = _selected_columns(config, PAIR_ROLES)
    others = {f"column {position + 1}": str(position + 1) for position in positions}
    selection = columns._replace(selected={**columns.selected, **others})
    for record in read_records(path, resolve_format(path, config), selection):
        if not isinstance(record, BadLine) and record.fields:
            yield record.line, record.fields[-len(positions) :]


class OtherColumns(NamedTuple):
    """Columns of a TSV or CSV file with a header that are neither source, target, features nor the only "id"."""

    names: Sequence[str] = ()
    cells: Mapping[int, Sequence[str]] = MappingProxyType({})
    """Cells of these columns by line number."""


@check_arguments
def read_other_columns(path: str | Path, config: DataConfig) -> OtherColumns:
    """Read the columns of a TSV or CSV file with a header that are neither selected nor read by `read_row_ids`.

    Args:
        path: The file.
        config: The data settings.

    Returns:
        The columns; none if the file has no header, or can be read only once, such as a pipe.

    Raises:
        DataError: The file cannot be read.
        ConfigError: A configured column is invalid.
    """
    path = Path(path)
    columns = _selected_columns(config, PAIR_ROLES)
    names = _first_row(path, config).fields
    if columns.header is not True or not names:
        return OtherColumns()
    used = {*find_columns(columns, names, str(path)), _id_position(columns, names, path)}
    positions = [position for position in range(len(names)) if position not in used]
    if not positions:
        return OtherColumns()
    return OtherColumns([names[position] for position in positions], dict(_iterate_cells(path, config, positions)))


@check_arguments
def read_sources(
    path: str | Path, config: DataConfig, input_format: InputFormat = FILE_FORMAT
) -> Iterator[Example | BadLine]:
    """Read the sources of a file for prediction. The targets of the examples are empty.

    A blank line is an empty source. A line of TSV or CSV with one column is the source.

    Args:
        path: The file.
        config: The data settings of the run.
        input_format: Format of the file, where the user specifies it.

    Yields:
        One example or bad line for each record, in order. The header is not a record.

    Raises:
        DataError: The file cannot be read, or its header lacks a configured column; during iteration. The lines before
            a damaged place are yielded first.
        HeaderError: The header is "auto", and the first line consists of usual column names.
        ConfigError: A configured column or tokenizer is invalid.
    """
    path = Path(path)
    yield from _checked_sources(_file_records(path, config, input_format, source_columns(config)), config, str(path))


@check_arguments
def read_first_lines(path: str | Path, config: DataConfig, input_format: InputFormat = FILE_FORMAT) -> Iterator[int]:
    """Yield the number of the first line of each record that `read_sources` reads.

    Args:
        path: The file.
        config: The data settings of the run.
        input_format: Format of the file, where the user specifies it.

    Raises:
        DataError: As in `read_sources`.
        HeaderError: As in `read_sources`.
        ConfigError: As in `read_sources`.
    """
    for record in _file_records(Path(path), config, input_format, source_columns(config)):
        yield record.line


@check_arguments
def parse_sources(
    lines: Lines,
    name: str,
    config: DataConfig,
    input_format: InputFormat = STREAM_FORMAT,
) -> Iterator[Example | BadLine]:
    """Parse lines as sources for prediction, one at a time: a line is requested after the previous one was processed.

    Args:
        lines: The lines, with line ends.
        name: Name of the stream for messages.
        config: The data settings of the run; format "auto" means TSV, and their header setting applies to CSV only.
        input_format: Format of the lines, where the user specifies it.

    Yields:
        One example or bad line for each record, in order.

    Raises:
        DataError: The format is Parquet, which cannot be parsed as lines, a line is too long, or the header lacks a
            configured column.
        HeaderError: The header is "auto", and the first line consists of usual column names.
        ConfigError: A configured column or tokenizer is invalid.
    """
    yield from _checked_sources(_parse_lines(lines, name, config, input_format, source_columns(config)), config, name)


@check_arguments
def pair_config(config: DataConfig) -> DataConfig:
    """Return the data settings for a single input of pairs.

    A run that is trained on two parallel text files has no file of pairs. Its pairs are TSV with the source in column
    1, the target in column 2, and features in column 3 if it is trained with features.

    Args:
        config: The data settings of the run.
    """
    if config.input_format != "text":
        return config
    features = "3" if config.features_column else ""
    return msgspec.structs.replace(
        config, input_format="tsv", source_column="1", target_column="2", features_column=features
    )


@check_arguments
def read_pairs(
    path: str | Path, config: DataConfig, input_format: InputFormat = FILE_FORMAT
) -> Iterator[Example | BadLine]:
    """Read the pairs of a file for scoring: one item for each record, in order.

    A line is valid under the conditions for a training file, except that a blank line is an example with empty source
    and target.

    Args:
        path: The file.
        config: The data settings of the run; see `pair_config`.
        input_format: Format of the file, where the user specifies it.

    Yields:
        One example or bad line for each record.

    Raises:
        DataError: As in `read_sources`.
        HeaderError: As in `read_sources`.
        ConfigError: As in `read_sources`, or a column is selected by name but the file has no header.
        ArgumentError: The format of the input is "text", which has no targets.
    """
    path = Path(path)
    config = _checked_pair_config(config, input_format)
    yield from _checked_pairs(
        _file_records(path, config, input_format, _selected_columns(config, PAIR_ROLES)), config, str(path)
    )


@check_arguments
def parse_pairs(
    lines: Lines,
    name: str,
    config: DataConfig,
    input_format: InputFormat = STREAM_FORMAT,
) -> Iterator[Example | BadLine]:
    """Parse lines as pairs for scoring, one at a time; a blank line is an example with empty source and target.

    Args:
        lines: The lines, with line ends.
        name: Name of the stream for messages.
        config: The data settings of the run; see `pair_config`.
        input_format: Format of the lines, where the user specifies it.

    Yields:
        One example or bad line for each record.

    Raises:
        DataError: As in `parse_sources`.
        HeaderError: As in `parse_sources`.
        ConfigError: As in `parse_sources`, or a column is selected by name but the lines have no header.
        ArgumentError: The format of the lines is "text", which has no targets.
    """
    config = _checked_pair_config(config, input_format)
    yield from _checked_pairs(
        _parse_lines(lines, name, config, input_format, _selected_columns(config, PAIR_ROLES)), config, name
    )


def _checked_pair_config(config: DataConfig, input_format: InputFormat) -> DataConfig:
    """Return `pair_config`; raise `ArgumentError` if the input is said to be text, which has no targets."""
    if input_format.format == "text":
        raise argument_error("input_format.format", "a format of pairs: auto, tsv, csv, jsonl or parquet", "text")
    return pair_config(config)


def _file_records(path: Path, config: DataConfig, input_format: InputFormat, columns: ColumnSelection) -> Records:
    """Return the records of an input file."""
    return read_records(path, input_file_format(path, config, input_format), _with_input_format(columns, input_format))


def _parse_lines(
    lines: Iterable[bytes], name: str, config: DataConfig, input_format: InputFormat, columns: ColumnSelection
) -> Records:
    """Return the records of input lines."""
    format = input_file_format(None, config, input_format)
    header = columns.header if format == "csv" else input_format.header
    return parse_records(lines, name, format, _with_input_format(columns, input_format)._replace(header=header))


def _with_input_format(columns: ColumnSelection, input_format: InputFormat) -> ColumnSelection:
    """Return the columns with the format of the input."""
    return columns._replace(
        max_columns=input_format.columns,
        header_given=input_format.header is True,
        report=input_format.report,
        cells=input_format.cells,
    )


def input_file_format(path: Path | None, config: DataConfig, input_format: InputFormat) -> Format:
    """Return the format of an input: the selected one, else by the file name, else that of the training file.

    Args:
        path: The file; None for lines.
        config: The data settings of the run.
        input_format: Format of the input, where the user selects it.
    """
    if input_format.format != "auto":
        return input_format.format
    return config.input_format if path is None else resolve_input_format(path, config)


def check_first_line(
    items: Sequence[Example | BadLine], path: Path | None, config: DataConfig, input_format: InputFormat
) -> str:
    """Check whether the first line of TSV or CSV input is a header, if neither user nor training file say so.

    Args:
        items: The first items of the input.
        path: The file; None for standard input.
        config: The data settings of the run.
        input_format: Format of the input, where the user specifies it.

    Returns:
        A note with the location; "" if the line does not look like a header.

    Raises:
        HeaderError: It clearly looks like a header.
    """
    format = input_file_format(path, config, input_format)
    header = (
        input_format.header
        if path is None and format != "csv"
        else _selected_columns(config, ("source", "features")).header
    )
    line = next((number for number, item in enumerate(items, 1) if isinstance(item, BadLine) or item.source), 0)
    if header != "auto" or format not in (*TABLE_FORMATS, "auto") or not line or isinstance(items[line - 1], BadLine):
        return ""
    cells = [(item.source, item.target) for item in items if isinstance(item, Example) and item.source]
    location = f"{path or STANDARD_INPUT}:{line}"
    check_header_cells(cells, location)
    note = header_note(cells)
    return f"{location}: {note}" if note else ""


def _selected_columns(config: DataConfig, roles: tuple[str, ...], group_setting: str = "") -> ColumnSelection:
    """Return the configured columns for these roles; raise `ConfigError` for an invalid one.

    `group_setting` is the flag or the argument that selects the column of the groups; empty for the setting.
    """
    check_columns(config, group_setting or "data.group_column")
    configured = {"source": config.source_column, "target": config.target_column, "features": config.features_column}
    configured |= {"class": config.class_column, "group": config.group_column}
    selected = {role: configured[role] for role in roles if configured[role]}
    return resolve_header(
        ColumnSelection(
            selected,
            config.header,
            delimiter=config.delimiter,
            symbol_separator=config.source_symbols,
            group_setting=group_setting,
        )
    )


def source_columns(config: DataConfig) -> ColumnSelection:
    """Return the columns that prediction reads.

    Args:
        config: The data settings.

    Raises:
        ConfigError: A configured column is invalid.
    """
    return _selected_columns(config, ("source", "features"))._replace(single_column=True)


def _read_pair_blocks(
    path: Path,
    config: DataConfig,
    columns: ColumnSelection,
    size: int,
    prepare: Callable[[Records], Records] = lambda records: records,
) -> Iterator[ExampleFile]:
    """Yield the pairs of a file, whose records are prepared by a function, in blocks."""
    format = resolve_format(path, config)
    if format == "text":
        raise ConfigError(
            f'data.input_format = "text" needs two parallel files: give the file of targets as well as {path}'
        )
    header = TableCells(has_rows=False)
    records = prepare(read_records(path, format, columns._replace(cells=header)))
    is_unknown = format in TABLE_FORMATS and columns.header == "auto"
    for block in _collect_blocks(records, config, InputNames(str(path), str(path), header), size):
        if is_unknown and block.examples:
            check_header_cells(block.examples, f"{path}:{block.line_numbers[0]}", _first_row(path, config).fields)
            is_unknown = False
        yield block


class InputNames(NamedTuple):
    """Names of the parts of an input, for messages."""

    name: str
    """Name of the file, of the file of sources, or of the table, for bad lines."""
    description: str
    """Name of the file or the pair of files, for the error that there is no example."""
    header: TableCells | None = None
    """Receives the header of the file, if it has one, for that error; None where none is possible."""
    target: str = ""
    """Name of the file of targets, if the files are parallel: for lines whose source is valid."""
    unit: str = ""
    """Noun of a row of a table in memory; empty for a file."""


def _table_names(table: InMemoryTable) -> InputNames:
    """Return the names of a table, for messages."""
    return InputNames(table.name, table.name, unit=table.unit)


def _collect_examples(records: Records, config: DataConfig, names: InputNames) -> ExampleFile:
    """Sort records into examples, bad lines and blank lines.

    Args:
        records: The records.
        config: The data settings; the first bad line raises an error unless they are skipped.
        names: Names of the parts of the input.
    """
    return next(_collect_blocks(records, config, names, sys.maxsize))


def _collect_lexicon(records: Records, config: DataConfig, names: InputNames) -> LexiconFile:
    """Sort the records of a lexicon as `_collect_examples` does, and count those without a target."""
    without_target = list[int]()

    def mark_without_target() -> Records:
        for record in records:
            if isinstance(record, Record) and record.fields and record.fields[0] and not record.fields[1]:
                without_target.append(record.line)
                yield Record(record.line, ())
            else:
                yield record

    reading = _collect_examples(mark_without_target(), config, names)
    num_blank_lines = reading.num_blank_lines - len(without_target)
    return LexiconFile(reading._replace(num_blank_lines=num_blank_lines), len(without_target))


def _collect_blocks(records: Records, config: DataConfig, names: InputNames, size: int) -> Iterator[ExampleFile]:
    """Yield blocks of at most `size` examples and `size` bad lines; see `_collect_examples`."""
    block = ExampleFile([], [], [], 0)
    num_yielded = 0
    for item in _classify_records(records, config, names):
        match item:
            case None:
                block = block._replace(num_blank_lines=block.num_blank_lines + 1)
            case BadLine():
                if config.on_bad_line == "stop":
                    # If the first line is bad, the settings are probably wrong, and skipping lines does not help.
                    hint = f"; {SKIP_HINT}" if num_yielded or block.examples else ""
                    raise BadLineError(f"{item}{hint}", missing_columns=item.missing_columns)
                block.bad_lines.append(item)
                check_bad_lines(block.bad_lines, len(block.examples), names.description)
            case line, example:
                block.examples.append(example)
                block.line_numbers.append(line)
        if max(len(block.examples), len(block.bad_lines)) >= size:
            yield block
            num_yielded += len(block.examples)
            block = ExampleFile([], [], [], 0)
    if not (num_yielded or block.examples):
        raise DataError(
            _no_example_message(block, names),
            missing_columns=block.bad_lines[0].missing_columns if block.bad_lines else (),
        )
    yield block


def check_bad_lines(bad_lines: Sequence[BadLine], num_examples: int, description: str) -> None:
    """Check that not too many lines of a file are bad.

    Args:
        bad_lines: The bad lines so far.
        num_examples: Number of examples so far.
        description: Name of the file or the pair of files, for the message.

    Raises:
        DataError: There are `MAX_BAD_LINES` or more, and fewer examples.
    """
    if len(bad_lines) >= MAX_BAD_LINES and len(bad_lines) > num_examples:
        raise DataError(
            f"{description}: {len(bad_lines):,} of the first {len(bad_lines) + num_examples:,} lines are bad, so the "
            f"format, the delimiter or the columns are probably wrong; the first: {bad_lines[0]}",
            missing_columns=bad_lines[0].missing_columns,
        )


def _classify_records(
    records: Records, config: DataConfig, names: InputNames
) -> Iterator[tuple[int, Example] | BadLine | None]:
    """Yield each record as an example with its line, as a bad line, or as None if it is blank."""
    tokenizers = build_tokenizers(config)
    for record in _with_contexts(records, config, 2):
        if isinstance(record, BadLine):
            yield record
        elif not record.fields:
            yield None
        else:
            example, reason = _make_example(record.fields, tokenizers, config)
            if not reason:
                yield record.line, example
                continue
            source_reason = length_error("source", example.source, tokenizers.source, config.max_sequence_length)
            name = names.name if source_reason or not names.target else names.target
            yield BadLine(name, record.line, reason, names.unit)


def _checked_sources(records: Records, config: DataConfig, name: str, unit: str = "") -> Iterator[Example | BadLine]:
    """Yield the source and features of each record, or why they are invalid."""
    tokenizers = build_tokenizers(config)
    limit = config.max_sequence_length
    for record in _with_contexts(records, config, 1):
        if isinstance(record, BadLine):
            yield record
            continue
        source, features, *_ = *record.fields, "", ""
        reason = length_error("source", source, tokenizers.source, limit, min_length=0)
        reason = reason or features_error(features, tokenizers, config)
        yield BadLine(name, record.line, reason, unit) if reason else Example(source, "", features)


def _checked_pairs(records: Records, config: DataConfig, name: str, unit: str = "") -> Iterator[Example | BadLine]:
    """Yield the pair of each record, or why it is invalid."""
    tokenizers = build_tokenizers(config)
    for record in _with_contexts(records, config, 2):
        if isinstance(record, BadLine) or not record.fields:
            yield record if isinstance(record, BadLine) else Example("", "")
            continue
        example, reason = _make_example(record.fields, tokenizers, config)
        yield BadLine(name, record.line, reason, unit) if reason else example


def _with_contexts(records: Records, config: DataConfig, position: int) -> Records:
    """Return records with the context of each source as a field at `position`, if it is read from the neighbors.

    A row of empty fields becomes a blank line; it ends a sentence, as any row with an empty source.
    """
    if not reads_neighbors(config):
        return records
    rows = (
        Record(record.line, ()) if isinstance(record, Record) and not any(record.fields) else record
        for record in records
    )
    words = ((row, UNKNOWN_WORD if isinstance(row, BadLine) else (*row.fields, SENTENCE_END)[0]) for row in rows)
    return (
        Record(row.line, [*row.fields[:position], context, *row.fields[position:]])
        if isinstance(row, Record) and row.fields
        else row
        for row, context in add_contexts(words, config.context_words)
    )


def _no_example_message(reading: ExampleFile, names: InputNames) -> str:
    """Return the error message for a file without examples."""
    name = names.description
    if reading.bad_lines:
        blank = f", {reading.num_blank_lines} blank" if reading.num_blank_lines else ""
        return (
            f"{name} contains no example: {count_noun(len(reading.bad_lines), 'bad line')}{blank}; the first: "
            f"{reading.bad_lines[0]}"
        )
    if reading.num_blank_lines:
        return f"{name} contains no example: all its lines are blank ({reading.num_blank_lines})"
    has_header = names.header is not None and bool(names.header.names)
    return f"{name} contains no example: it is empty{' below the header' if has_header else ''}"


def _make_example(fields: Sequence[str], tokenizers: Tokenizers, config: DataConfig) -> tuple[Example, str]:
    """Return the example of the selected columns, and why it is invalid, or "" if it is valid.

    A class in a column of its own is put before the tags.
    """
    if not config.class_column:
        example = Example(*fields)
        return example, _example_error(example, tokenizers, config)
    *others, label = fields
    example = Example(*others)
    reason = _class_error(label, tokenizers.target) or ("" if example.target else empty_text_error("target"))
    example = example._replace(target=tokenizers.target.join([label, example.target]))
    return example, reason or _example_error(example, tokenizers, config)


def _class_error(label: str, tokenizer: Tokenizer) -> str:
    """Return why the text of a column of classes is not one target symbol, or "" if it is one."""
    if not label:
        return empty_text_error("class")
    if tokenizer.count(label) == 1:
        return ""
    return (
        f"the class {quote(label)} is not one symbol of a target (data.target_symbols = {quote(tokenizer.kind)}), "
        "which data.class_column needs"
    )


def _example_error(example: Example, tokenizers: Tokenizers, config: DataConfig) -> str:
    """Return why an example is invalid, or "" if it is valid."""
    reason = pair_error(example.source, example.target, tokenizers, config)
    return reason or features_error(example.features, tokenizers, config)


def features_error(features: str, tokenizers: Tokenizers, config: DataConfig) -> str:
    """Return why features are invalid, or "" if they are valid: too many, or words of a context that are not 2N.

    Args:
        features: The features; empty for a context that is not known.
        tokenizers: The tokenizers of the configuration.
        config: The data settings, of which context_words is N.
    """
    num_expected = 2 * config.context_words
    if num_expected and features and (num_words := tokenizers.features.count(features)) != num_expected:
        return (
            f"the context has {count_noun(num_words, 'word')}; expected {num_expected}, the {config.context_words} "
            f"before and the {config.context_words} after the source, with {EDGE} beyond the ends of the sentence"
        )
    return length_error("features", features, tokenizers.features, config.max_sequence_length, min_length=0)


def pair_error(source: str, target: str, tokenizers: Tokenizers, config: DataConfig) -> str:
    """Return why a pair is invalid, or "" if it is valid.

    Both sides need 1 to `max_length` symbols; a position must exist in the source; with `equal_length`, the numbers of
    symbols must be equal and a tag must be scored. With `class_first`, the target has one symbol more: the class.

    Args:
        source: The source.
        target: The target.
        tokenizers: The tokenizers of the configuration.
        config: The data settings.
    """
    max_length = config.max_sequence_length
    reason = length_error("source", source, tokenizers.source, max_length)
    reason = reason or length_error("target", target, tokenizers.target, max_length)
    if reason:
        return reason
    if tokenizers.target.kind == "position":
        return _position_error(target, tokenizers.source.count(source))
    return _alignment_error(source, target, tokenizers, config.class_first) if config.equal_length else ""


def empty_text_error(side: str) -> str:
    """Return why an example with an empty text is a bad line.

    Args:
        side: Name of the column: "source", "target" or "features".
    """
    return f"the {side} is empty"


def length_error(side: str, text: str, tokenizer: Tokenizer, max_length: int, min_length: int = 1) -> str:
    """Return why the length of a text is invalid, or "" if it is valid.

    Args:
        side: Name of the column, for the message: "source", "target" or "features".
        text: The text.
        tokenizer: The tokenizer of the column.
        max_length: Maximum number of symbols.
        min_length: Minimum number of symbols; 1 by default.
    """
    # Normalization at most quadruples the length, and a text has at most as many symbols as characters plus one.
    if 4 * len(text) < max_length and text.strip():
        return ""
    count = tokenizer.count(text)
    if count < min_length:
        return empty_text_error(side)
    if count > max_length:
        lines = text.count("\n") + 1
        line_note = f" (it spans {lines} lines: is a quote missing?)" if lines > 1 else ""
        verb = "have" if side == "features" else "has"
        return f"the {side} {verb} {count} symbols{line_note}, more than data.max_sequence_length = {max_length}"
    return ""


def _position_error(target: str, positions: int) -> str:
    """Return why a target is not a source position, or "" if it is one."""
    number = parse_whole_number(target)
    if number is not None and number <= positions and str(number) == target and number:
        return ""
    return f"the target is not a source position: expected a number from 1 to {positions}, got {quote(target)}"


def _alignment_error(source: str, target: str, tokenizers: Tokenizers, class_first: bool) -> str:
    """Return why source and target symbols do not correspond one to one, or "" if they do."""
    num_source_symbols = len(tokenizers.source.split(source))
    target_symbols = tokenizers.target.split(target)
    if num_source_symbols + class_first != len(target_symbols):
        needs = (
            "class_first needs a class, and a tag for each source symbol"
            if class_first
            else "equal_length needs equal numbers"
        )
        return (
            f"the source has {count_noun(num_source_symbols, 'symbol')} and the target has {len(target_symbols)}: "
            f"data.{needs}{_word_advice(source, target, tokenizers, class_first)}"
        )
    ignored_tag = tokenizers.target.ignored_tag
    if class_first and ignored_tag and target_symbols[0] == ignored_tag:
        return f"the class equals data.ignored_tag = {quote(ignored_tag)}, which is a tag"
    if not class_first and ignored_tag and all(symbol == ignored_tag for symbol in target_symbols):
        return f"no symbol of the target is scored: all equal data.ignored_tag = {quote(ignored_tag)}"
    return ""


def _word_advice(source: str, target: str, tokenizers: Tokenizers, class_first: bool) -> str:
    """Return which sides, of several words, should have words as symbols for the numbers to agree; "" if none do."""
    texts = (("source", source, tokenizers.source), ("target", target, tokenizers.target))
    words = {side: text.split() for side, text, _ in texts}
    for sides in (("target",), ("source",), ("source", "target")):
        symbols = {side: words[side] if side in sides else tokenizer.split(text) for side, text, tokenizer in texts}
        has_words = all(len(words[side]) > 1 for side in sides)
        if has_words and len(symbols["source"]) + class_first == len(symbols["target"]):
            flags = " and ".join(f"--{side}-symbols words (data.{side}_symbols)" for side in sides)
            return f"; with {flags} they agree"
    return ""
