"""Readers of TSV, CSV, JSON lines, Parquet and parallel text: records with the selected columns."""

import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from pellucid.argument_checks import check_arguments
from pellucid.config.columns import column_number
from pellucid.config.settings import DataConfig, Delimiter, Format, Header
from pellucid.data.csv_parser import CsvError, csv_reader
from pellucid.data.delimiters import (
    DELIMITER_NAMES,
    DELIMITERS,
    MAX_SAMPLE_BYTES,
    MAX_SAMPLE_LINES,
    ExpectedColumns,
    check_delimiter,
    describe_delimiter,
    detect_delimiter,
)
from pellucid.data.headers import check_header_names, is_column_name, list_names, name_note
from pellucid.data.lines import (
    MAX_COLUMNS,
    MAX_LINE_BYTES,
    RecordError,
    check_lines,
    decode_line,
    decode_utf8,
    is_blank,
    line_text,
    open_data_file,
    read_lines,
    typed_lines,
)
from pellucid.errors import ConfigError, DataError, abbreviate_reason, count_noun, quote, suggest
from pellucid.files import repeated_key
from pellucid.limits import check_unpacked, read_module_limit

MAX_LISTED_BAD_LINES = 20
"""Maximum number of bad lines that a command lists, with their reasons; it counts all."""


class BadLine(NamedTuple):
    """A line that cannot be used, with the reason.

    `path` is the name of the file, the stream or the table in memory. `line` counts from 1: the line, or the row of a
    Parquet file or a table; for a CSV record of several lines, the first of them. `unit` is the noun of a row of a
    table in memory, and empty for files. `missing_columns` are the roles of the selected columns, such as "group",
    whose number is greater than the number of columns of the line, if neither a header nor an earlier line has them.
    """

    path: str
    line: int
    reason: str
    unit: str = ""
    missing_columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the location and reason: "train.tsv:17: the target is empty", "row 17 of the data frame: ..."."""
        location = f"{self.unit} {self.line} of {self.path}" if self.unit else f"{self.path}:{self.line}"
        return f"{location}: {self.reason}"


class Record(NamedTuple):
    """Fields of one record, and the number of its first line, or of its Parquet row, from 1.

    The fields are those of the selected columns in order, where columns have been selected. A blank line has no fields.
    """

    line: int
    fields: Sequence[str]


Records = Iterator[Record | BadLine]
"""Records in the order of the file; an unusable one is a `BadLine`, a blank line a record without fields."""


@dataclass
class TableCells:
    """All cells of a TSV or CSV input, including the columns that are not selected, in the order of its records.

    The reader fills it, one row per record; whoever uses the records removes the rows.
    """

    names: Sequence[str] = ()
    """Names of the columns, as in the header; empty without header."""
    delimiter: Delimiter = ","
    """Delimiter of a CSV input; the comma for other formats."""
    source_position: int = 0
    """Position of the source among the columns, from 0."""
    rows: deque[Sequence[str]] = field(default_factory=deque)
    """Cells of each record; none for a blank or unreadable line."""
    has_rows: bool = True
    """Whether the reader keeps the rows; False if only the names are needed."""
    num_characters: int = 0
    """Number of characters of the rows that were added since the last chunk (`begin_chunk`)."""

    def add_row(self, row: Sequence[str]) -> None:
        """Add the cells of the next record.

        Args:
            row: The cells.
        """
        self.rows.append(row)
        self.num_characters += sum(map(len, row))

    def begin_chunk(self) -> None:
        """Begin a chunk of records, with no row of its own yet."""
        self.num_characters = 0

    def is_full(self) -> bool:
        """Return whether the chunk of records should end, because its cells have many characters."""
        return self.num_characters >= MAX_CELL_CHARACTERS


class ColumnSelection(NamedTuple):
    """Columns to read from each record.

    `selected` maps roles ("source", "target", "features", "group") to a column: its name, or its number from 1.
    `header`: True if the first non-blank line names the columns; "auto" reads it as a record, and refuses one that
    looks like a header. `single_column`: a record of one column is a source (in prediction). `max_columns`: maximum
    number of columns of a record without a header; 0 = no limit. `header_given`: the user specified the header of this
    input. `report` receives notes about its first line; None for no notes. `cells` receives all cells of a table; None
    to keep only the selected columns. `delimiter`: that of CSV; "auto" detects it. `symbol_separator`: separator of the
    symbols of a source, which is not a delimiter in a list of sources; empty if there is none. `nullable`: roles whose
    null in JSON and Parquet is an empty text; null is an error otherwise. `fixed_names`: the kind of file determines
    the names of the columns, so that messages name no flags that select them. `group_setting`: flag or argument that
    selects the column of the groups, for messages; empty for the flag and the setting of a training.
    """

    selected: dict[str, str]
    header: Header = False
    single_column: bool = False
    max_columns: int = 0
    header_given: bool = False
    report: Callable[[str], None] | None = None
    cells: TableCells | None = None
    delimiter: Delimiter = "auto"
    symbol_separator: str = ""
    nullable: frozenset[str] = frozenset()
    fixed_names: bool = False
    group_setting: str = ""

    def setting_note(self, role: str) -> str:
        """Return the flag and the setting that select a column, for messages; empty for fixed names.

        Args:
            role: Role of the column.

        Returns:
            Text such as " (--source-column, data.source_column)".
        """
        if self.fixed_names:
            return ""
        if role == "group" and self.group_setting:
            return f" ({self.group_setting})"
        return f" (--{role}-column, data.{role}_column)"

    def missing_columns(self, positions: Sequence[int], num_columns: int) -> tuple[str, ...]:
        """Return the roles of the columns that a line of this number of columns lacks.

        Args:
            positions: Position of each selected column, from 0.
            num_columns: Number of columns of the line.
        """
        return tuple(role for role, position in zip(self.selected, positions, strict=True) if position >= num_columns)

    @property
    def nullable_columns(self) -> list[bool]:
        """True for each selected column whose nulls are empty texts."""
        return [role in self.nullable for role in self.selected]


@dataclass
class ColumnCount:
    """Expected number of columns of a file, and the line that determines it: the header, or the first row that is used.

    Both are 0 before that line.
    """

    columns: int = 0
    line: int = 0

    def differs(self, row: Record) -> bool:
        """Return whether a row has another number of columns than expected; without a header, the first row sets it.

        Args:
            row: The row.
        """
        if not self.columns:
            self.columns = len(row.fields)
            self.line = row.line
        return len(row.fields) != self.columns

    def __str__(self) -> str:
        """Return the number and the line for a message: "2 columns as in line 1"."""
        return f"{count_noun(self.columns, 'column')} as in line {self.line:,}"


def select_columns(rows: Records, columns: ColumnSelection, name: str, separators: str) -> Records:
    """Yield the selected columns of rows.

    Args:
        rows: Rows with all their columns.
        columns: The columns to select.
        name: Name of the file, for messages.
        separators: What separates columns, for messages, such as "tabs" or "commas".

    Yields:
        Records of the selected columns; with `single_column`, of the source alone for a row of one column, unless a
        header names another column first. A row with too few columns, more than `max_columns`, or another number than
        the header or the first row is a `BadLine`. Bad and blank rows pass unchanged.

    Raises:
        DataError: The header line cannot be read, or lacks a selected column or has it twice.
        HeaderError: `header` is "auto", and the first row consists of usual column names.
        ConfigError: A column is selected by name, but there is no header; with `single_column` only if the first row
            has several columns, and later ones are bad then.
    """
    positions, width, rows = _resolve_columns(rows, columns, name)
    needed = max(positions, default=0) + 1
    if columns.cells is not None:
        columns.cells.source_position = positions[0] if positions else 0
        rows = _keep_cells(rows, columns.cells) if columns.cells.has_rows else rows
    # Below a header that names another column first, a single cell is not the source.
    single_column = columns.single_column and not (width.columns and positions[0])
    expected = str(width) if width.columns else count_noun(needed, "column")
    has_sources = False
    for row in rows:
        if isinstance(row, BadLine) or not row.fields or (single_column and len(row.fields) == 1):
            has_sources = has_sources or (isinstance(row, Record) and bool(row.fields))
            yield row
        elif not positions:
            if not has_sources and columns.header is not True:
                raise _missing_header(columns, name)
            missing = " or ".join(quote(column) for column in columns.selected.values())
            yield BadLine(name, row.line, f"got {count_noun(len(row.fields), 'column')}, but no header names {missing}")
        elif len(row.fields) < needed:
            message = f"expected {expected}, got {len(row.fields)} ({separators} separate columns)"
            if columns.single_column and not width.columns:
                message += f"; {_column_flags(columns)} the columns of this file"
            missing_columns = () if width.columns else columns.missing_columns(positions, len(row.fields))
            yield BadLine(name, row.line, message, missing_columns=missing_columns)
        elif columns.max_columns and len(row.fields) > columns.max_columns and columns.header is not True:
            message = (
                f"expected at most {count_noun(columns.max_columns, 'column')}, got {len(row.fields)} "
                f"({separators} separate columns)"
            )
            yield BadLine(name, row.line, message)
        elif width.differs(row):
            message = f"expected {width}, got {len(row.fields)}"
            yield BadLine(name, row.line, message)
        else:
            yield Record(row.line, [row.fields[position] for position in positions])


def _keep_cells(rows: Records, cells: TableCells) -> Records:
    """Yield rows, and store the cells of each."""
    for row in rows:
        cells.add_row(() if isinstance(row, BadLine) else row.fields)
        yield row


def split_last_field(records: Records, last_fields: dict[int, str]) -> Records:
    """Yield records without their last field, which is stored in `last_fields` under the line number.

    Args:
        records: Records; bad and blank lines pass unchanged.
        last_fields: Dict that receives the last fields, when their records are yielded.
    """
    for record in records:
        if isinstance(record, BadLine) or not record.fields:
            yield record
        else:
            last_fields[record.line] = record.fields[-1]
            yield Record(record.line, record.fields[:-1])


def resolve_header(columns: ColumnSelection) -> ColumnSelection:
    """Return the selection, with header = True if it was "auto" and a column is selected by name.

    Args:
        columns: The selection.
    """
    named = any(column_number(column) is None for column in columns.selected.values())
    return columns._replace(header=True) if columns.header == "auto" and named else columns


def find_columns(columns: ColumnSelection, names: Sequence[str], name: str) -> list[int]:
    """Return the positions, from 0, of the selected columns in a file; errors name the file.

    Args:
        columns: The columns to select.
        names: Names of the columns of the file, in order.
        name: Name of the file, for messages.

    Raises:
        DataError: A column is missing or ambiguous.
    """
    try:
        return find_record_columns(columns, names)
    except (RecordError, DataError) as error:
        raise DataError(f"{name}: {error}") from error


def find_record_columns(columns: ColumnSelection, names: Sequence[str]) -> list[int]:
    """Return the positions, from 0, of the selected columns in a record.

    Args:
        columns: The columns to select.
        names: Names of the columns of the record, in order.

    Raises:
        RecordError: A column is missing or ambiguous.
        DataError: Source and target are one column (`check_distinct_columns`).
    """
    positions = [find_column(columns.setting_note(role), column, names) for role, column in columns.selected.items()]
    check_distinct_columns(columns, positions, names)
    return positions


def check_distinct_columns(columns: ColumnSelection, positions: Sequence[int], names: Sequence[str] = ()) -> None:
    """Check that source and target are two columns, unless the user has selected one column twice by its name.

    The default numbers of source and target do not count as a choice of the user.

    Args:
        columns: The selected columns.
        positions: Their positions, from 0.
        names: Names of all columns; none by default.

    Raises:
        DataError: Source and target are one column.
    """
    found = dict(zip(columns.selected, positions, strict=True))
    if found.get("source", -1) != found.get("target"):
        return
    source, target = columns.selected["source"], columns.selected["target"]
    if source != target or source in (DEFAULTS.source_column, DEFAULTS.target_column):
        column = quote(names[found["source"]]) if names else found["source"] + 1
        role = "source" if source == DEFAULTS.source_column and source != target else "target"
        raise DataError(f"source and target are both column {column}: give --{role}-column (data.{role}_column)")


def find_column(setting: str, column: str, names: Sequence[str]) -> int:
    """Return the position, from 0, of a column among column names.

    Args:
        setting: Flag and setting that select the column, for messages, as from `ColumnSelection.setting_note`.
        column: A name, or a number from 1.
        names: Names of the columns of the file, in order.

    Raises:
        RecordError: The column is missing or ambiguous.
    """
    number = column_number(column)
    if number is not None:
        if number <= len(names):
            return number - 1
        raise RecordError(f"no column {number}{setting} among {list_names(names)}")
    if names.count(column) == 1:
        return names.index(column)
    if column in names:
        advice = "choose one by its number" if setting else "keep one"
        raise RecordError(f"{names.count(column)} columns are named {quote(column)}{setting}: {advice}")
    advice = suggest(column, names)
    if len(names) == 1 and ";" in names[0]:
        advice = ": if semicolons separate the columns, give --input-format csv --delimiter ';'"
    raise RecordError(f"no column {quote(column)}{setting} among {list_names(names)}{advice}")


class ColumnFinder:
    """Positions of the selected columns in objects that name their fields, each in an order of its own.

    A column that is selected by its number has that number in the first object, and its name in all others: the order
    of the fields of an object has no meaning, as in JSON.
    """

    def __init__(self, columns: ColumnSelection, unit: str) -> None:
        """Set the columns.

        Args:
            columns: The columns to select.
            unit: Noun of an object in messages, such as "line".
        """
        self.columns = columns
        self.unit = unit
        self.first = 0
        """Number of the first object; 0 before it."""
        self.first_names: tuple[str, ...] = ()
        self.names: dict[str, str] = {}
        """Name of the column of each role in the first object."""
        self._last: tuple[tuple[str, ...], list[int]] = ((), [])

    def find(self, names: tuple[str, ...], number: int) -> list[int]:
        """Return the positions, from 0, of the selected columns.

        Args:
            names: Names of the fields of the object, in order.
            number: Number of the object, from 1.

        Raises:
            RecordError: A column is missing or ambiguous.
            DataError: Source and target are one column.
        """
        if names == self._last[0] and self.first:
            return self._last[1]
        if not self.first:
            positions = find_record_columns(self.columns, names)
            self.first, self.first_names = number, names
            self.names = {
                role: names[position] for role, position in zip(self.columns.selected, positions, strict=True)
            }
        else:
            positions = [self._find(role, column, names) for role, column in self.columns.selected.items()]
        self._last = (names, positions)
        return positions

    def _find(self, role: str, column: str, names: tuple[str, ...]) -> int:
        """Return the position of a column in an object after the first."""
        name = self.names[role]
        if column_number(column) is None:
            return find_column(self.columns.setting_note(role), column, names)
        if names.count(name) == 1:
            return names.index(name)
        first = f"{self.unit} {self.first}"
        raise RecordError(
            f"expected {quote(name)}, which is column {column}{self.columns.setting_note(role)} of {first}, "
            f"among {list_names(names)}; {first} has {list_names(self.first_names)}"
        )


def _resolve_columns(rows: Records, columns: ColumnSelection, name: str) -> tuple[list[int], ColumnCount, Records]:
    """Return the positions of the selected columns, the expected number of columns, and the rows without the header.

    The positions are empty if they are unknown.
    """
    if columns.header is not True:
        return (
            _column_positions(columns, name),
            ColumnCount(),
            _check_first_row(rows, name) if columns.header == "auto" else rows,
        )
    preceding: list[Record | BadLine] = []
    for row in rows:
        if isinstance(row, BadLine):
            raise DataError(f"{row} (in the header line)")
        if not row.fields:
            preceding.append(row)
        elif columns.single_column and len(row.fields) == 1:
            # One column: the header of a list of sources, or already the first source.
            if not _names_source(row, columns, name):
                rows = chain([row], rows)
            elif columns.cells is not None:
                columns.cells.names = row.fields
            return _column_positions(columns, name), ColumnCount(), chain(preceding, rows)
        else:
            positions = _find_columns_of_header(columns, row, name)
            if columns.cells is not None:
                columns.cells.names = row.fields
            _report_inherited_header(row, positions[0], columns, name)
            return positions, ColumnCount(len(row.fields), row.line), chain(preceding, rows)
    return [], ColumnCount(), iter(preceding)


def _find_columns_of_header(columns: ColumnSelection, row: Record, name: str) -> list[int]:
    """Return the positions of the selected columns in a header; for sources, an error says how else to read them."""
    try:
        return find_columns(columns, row.fields, name)
    except DataError as error:
        if not columns.single_column:
            raise
        raise DataError(
            f"{error}; line {row.line} is read as the names of the columns, as in the training file: "
            f"{_column_flags(columns)} another one, and --input-format text reads each line as a source"
        ) from error


def _column_flags(columns: ColumnSelection) -> str:
    """Return the flags that select the columns of sources, with a verb: "--source-column selects"."""
    flags = " and ".join(f"--{role}-column" for role in columns.selected)
    return f"{flags} {'select' if len(columns.selected) > 1 else 'selects'}"


def _names_source(row: Record, columns: ColumnSelection, name: str) -> bool:
    """Return whether a first line of one cell is the header of a list of sources, not the first source.

    A header that lacks the column raises `DataError`: if the user says that there is a header, or if only the case of
    the name differs.
    """
    cell = row.fields[0]
    source = columns.selected["source"]
    is_named = column_number(source) is None
    if is_named and cell == source:
        return True
    if is_named and (columns.header_given or cell.strip().lower() == source.strip().lower()):
        _find_columns_of_header(columns._replace(selected={"source": source}), row, name)
    if not columns.header_given and columns.report is not None and is_column_name(cell):
        columns.report(f"{name}:{row.line}: {name_note('source', cell)}")
    return columns.header_given


def _report_inherited_header(row: Record, source: int, columns: ColumnSelection, name: str) -> None:
    """Report a first line that looks like an example but is read as a header, as in the training file."""
    numbered = all(column_number(column) is not None for column in columns.selected.values())
    if (
        numbered
        and not columns.header_given
        and columns.report is not None
        and not is_column_name(cell := row.fields[source])
    ):
        columns.report(
            f"{name}:{row.line}: the first line is read as the names of the columns, as in the training file, but "
            f"{quote(cell)} is not what columns are usually named by; --no-header reads it as an example"
        )


def _check_first_row(rows: Records, name: str) -> Records:
    """Yield rows; raise `HeaderError` if the first one looks like a header."""
    first = True
    for row in rows:
        if first and isinstance(row, Record) and row.fields:
            check_header_names(row.fields, f"{name}:{row.line}")
            first = False
        yield row


def _column_positions(columns: ColumnSelection, name: str) -> list[int]:
    """Return the positions of columns selected by number; empty if one is selected by name and rows may be sources."""
    positions = []
    for column in columns.selected.values():
        number = column_number(column)
        if number is not None:
            positions.append(number - 1)
        elif columns.single_column:
            return []
        else:
            raise _missing_header(columns, name)
    try:
        check_distinct_columns(columns, positions)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    return positions


def _missing_header(columns: ColumnSelection, name: str) -> ConfigError:
    """Return the error for a file without header from which a column is selected by name."""
    role, column = next((role, column) for role, column in columns.selected.items() if column_number(column) is None)
    return ConfigError(
        f"the column {quote(column)}{columns.setting_note(role)} is a name, but {name} has no header: give a number "
        "from 1, or --header (data.header = true) if the first line names the columns"
    )


DEFAULTS = DataConfig()
"""Data settings that no user has changed."""
MAX_PARSED_JSON = 2**22
"""Maximum length of a JSON line whose values are all parsed, in bytes: Python needs up to 24 times its memory."""
MAX_CELL_CHARACTERS = 2**24
"""Number of characters of the cells of a chunk of records from which the chunk ends (`TableCells.is_full`)."""
PARQUET_BATCH_ROWS = 2**13
"""Maximum number of Parquet rows in memory at once."""
PARQUET_NESTED_ROWS = 2**8
"""Number of rows of columns without texts, or with several values in a row, in memory at once."""
PARQUET_BATCH_BYTES = 2**25
"""Approximate maximum size of the values of one column in a batch of Parquet rows, in bytes."""
PARQUET_PROBE_BYTES = 2**16
"""Size of the pieces in which the first row of each row group is read, in bytes."""
PREFIX_ENCODING = "DELTA_BYTE_ARRAY"
"""Encoding in which a value repeats a prefix of the value before it, so that many values may be stored in few bytes."""
MAX_UNSEEKABLE_PARQUET = read_module_limit("PELLUCID_MAX_PARQUET_MIB", 256)
"""Maximum size of Parquet from a pipe or a gzip-compressed file, in bytes after decompression: it is read into memory.
"""
TEXT_TYPES = {"string", "large_string", "string_view", "binary", "large_binary", "binary_view"}


def tsv_records(lines: Iterable[bytes], columns: ColumnSelection, name: str) -> Records:
    """Yield the records of lines whose columns are separated by tabs. There are no quotes: a tab always separates.

    Args:
        lines: The lines.
        columns: The columns to select.
        name: Name of the file, for messages.

    Raises:
        DataError: As in `select_columns`.
        ConfigError: As in `select_columns`.
    """
    return select_columns(_split_rows(lines, name, _split_tabs), columns, name, "tabs")


def _split_tabs(text: str) -> list[str]:
    """Return the columns of a line; `RecordError` if there are too many."""
    if len(text) >= MAX_COLUMNS and text.count("\t") >= MAX_COLUMNS:
        raise RecordError(f"more than {MAX_COLUMNS:,} columns: is this a table?")
    return text.split("\t")


def first_table_row(
    lines: Iterable[bytes], format: Format, name: str, min_columns: int = 1, delimiter: Delimiter = ","
) -> Sequence[str]:
    """Return the fields of the first readable, non-blank record of TSV or CSV; empty if there is none.

    Args:
        lines: The lines.
        format: "csv"; any other value means TSV.
        name: Name of the file, for messages.
        min_columns: Minimum number of fields of the record; 1 by default.
        delimiter: Delimiter of CSV; the comma by default.

    Raises:
        DataError: A CSV record exceeds `MAX_LINE_BYTES`.
    """
    rows = _csv_rows(lines, name, delimiter) if format == "csv" else _split_rows(lines, name, _split_tabs)
    return next((row.fields for row in rows if isinstance(row, Record) and len(row.fields) >= min_columns), ())


def source_line_records(lines: Iterable[bytes], columns: ColumnSelection, name: str) -> Records:
    """Yield the records of text lines: the source, or source, tab and features where features are selected.

    Args:
        lines: The lines; the first is never a header.
        columns: The selection, of which only the presence of "features", `single_column` and the limits count.
        name: Name of the file, for messages.
    """
    if "features" in columns.selected:
        source_and_features = ColumnSelection(
            {"source": "1", "features": "2"}, single_column=columns.single_column, max_columns=2
        )
        return tsv_records(lines, source_and_features, name)
    return _split_rows(lines, name, lambda text: [text])


def csv_records(
    lines: Iterable[bytes], columns: ColumnSelection, name: str, max_sample_lines: int = MAX_SAMPLE_LINES
) -> Records:
    """Yield the records of CSV; a record that spans several lines has the number of the first.

    Args:
        lines: The lines.
        columns: The columns to select.
        name: Name of the file, for messages.
        max_sample_lines: Maximum number of lines that are read before the first record, to detect the delimiter.

    Raises:
        DataError: As in `select_columns` and `resolve_delimiter`, or a record exceeds `MAX_LINE_BYTES`.
        ConfigError: As in `select_columns`.
    """
    delimiter, lines = resolve_delimiter(lines, columns, name, max_sample_lines)
    if columns.cells is not None:
        columns.cells.delimiter = delimiter
    if columns.delimiter == "auto" and columns.report is not None and (note := describe_delimiter(delimiter)):
        columns.report(f"{name}: {note}")
    yield from select_columns(_csv_rows(lines, name, delimiter), columns, name, DELIMITER_NAMES[delimiter])


def resolve_delimiter(
    lines: Iterable[bytes],
    columns: ColumnSelection,
    name: str,
    max_sample_lines: int = MAX_SAMPLE_LINES,
    advice: str = "",
) -> tuple[Delimiter, Iterator[bytes]]:
    """Return the delimiter of CSV, and all its lines.

    Args:
        lines: The lines, of which the first ones are read if the delimiter is "auto".
        columns: The columns to select, with the delimiter.
        name: Name of the file, for messages.
        max_sample_lines: Maximum number of lines that are read, from the first one that is not blank.
        advice: What to do if the delimiter is not clear; by default, to give a flag.

    Raises:
        DataError: The delimiter is not clear (`detect_delimiter`), or another one is given (`check_delimiter`).
    """
    lines = iter(lines)
    names = frozenset(column for column in columns.selected.values() if column_number(column) is None)
    if columns.delimiter != "auto":
        if not (names and columns.single_column and columns.header is True):
            return columns.delimiter, lines
        max_sample_lines = 1
    blank = list[bytes]()
    sample = list[bytes]()
    size = 0
    for line in lines:
        (sample if sample or not is_blank(line) else blank).append(line)
        size += len(line)
        if len(sample) >= max_sample_lines or size >= MAX_SAMPLE_BYTES:
            break
    numbers = [column_number(column) for column in columns.selected.values()]
    expected = ExpectedColumns(
        names,
        columns.header is True,
        max((number for number in numbers if number is not None), default=1),
        columns.single_column,
        columns.max_columns,
        columns.symbol_separator,
    )
    if columns.delimiter == "auto":
        delimiter = detect_delimiter(sample, expected, name, advice)
    else:
        delimiter = columns.delimiter
        if sample:
            check_delimiter(delimiter, sample[0], names, name)
    return delimiter, chain(blank, sample, lines)


def json_records(lines: Iterable[bytes], columns: ColumnSelection, name: str) -> Records:
    """Yield the records of JSON lines, one object per line.

    A line that is not an object, lacks a selected key, has a key twice, or holds no string under a selected key is a
    `BadLine`.

    Args:
        lines: The lines.
        columns: The keys to select; a number counts the keys of the first object from 1, and selects that key in all.
        name: Name of the file, for messages.

    Raises:
        DataError: Source and target are one key.
    """
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    finder = ColumnFinder(columns, "line")
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            yield Record(number, ())
            continue
        try:
            yield Record(number, _json_fields(line, number, decode, finder))
        except RecordError as error:
            yield BadLine(name, number, str(error))
        except DataError as error:
            raise DataError(f"{name}:{number}: {error}") from error


def first_json_keys(lines: Iterable[bytes]) -> Sequence[str]:
    """Return the keys of the first JSON object; empty if there is none.

    Args:
        lines: The lines.
    """
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    for line in lines:
        try:
            decode_line(line)
            return list(_json_object(line, decode))
        except (RecordError, msgspec.DecodeError, RecursionError):  # reading the records reports it
            continue
    return ()


def parquet_column_names(path: Path) -> Sequence[str]:
    """Return the names of the columns of a Parquet file; empty for a pipe, which can be read only once.

    Args:
        path: The file.

    Raises:
        DataError: The file cannot be read, is not Parquet, or is damaged.
    """
    if not path.is_file():
        return ()
    with _open_parquet(path) as (table, _):
        return list(table.schema_arrow.names)


MAX_PARQUET_COLUMNS = 10_000
"""Maximum number of columns of a Parquet file. The description of a column in a file takes 150 times its size in
memory."""


@contextmanager
def _open_parquet(path: Path) -> Iterator[tuple[Any, io.BufferedIOBase]]:
    """Open a Parquet file, and its content, for a block; `DataError` for errors of pyarrow at its opening and in it."""
    # For a damaged file pyarrow raises its own exceptions, C++ exceptions, or a UnicodeDecodeError for a column name.
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with open_data_file(path) as file:
        content = _seekable_content(file, path)
        try:
            table = ParquetFile(content, page_checksum_verification=True)
            if table.metadata.num_columns > MAX_PARQUET_COLUMNS:
                raise DataError(
                    f"{path} has {table.metadata.num_columns:,} columns, and at most {MAX_PARQUET_COLUMNS:,} are read "
                    "from Parquet: write a file with those that are needed"
                )
            yield table, content
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError, RuntimeError, MemoryError, OverflowError) as error:
            raise DataError(f"cannot read {path} as Parquet: {abbreviate_reason(error)}") from error


def parquet_records(path: Path, columns: ColumnSelection) -> Records:
    """Yield the records of a Parquet file, read in batches; a row with a null or with invalid UTF-8 is a `BadLine`.

    Args:
        path: The file.
        columns: The columns to select.

    Raises:
        DataError: The file cannot be read, is not Parquet, is damaged, or lacks a selected column, has it twice, or has
            no strings in it.
    """
    from pyarrow.parquet import ParquetFile

    with _open_parquet(path) as (table, content):
        named = [(field.name, str(field.type)) for field in table.schema_arrow]
        names = _parquet_columns(named, columns, str(path))
        nullable = columns.nullable_columns
        first = 1
        chunks = _column_chunks(table, content, names, str(path))
        dictionaries = _dictionary_columns(chunks)
        unexpanded = ParquetFile(
            content, metadata=table.metadata, read_dictionary=dictionaries, page_checksum_verification=True
        )
        unpacked = 0
        packed = content.seek(0, io.SEEK_END)
        for batch in _parquet_batches(table, unexpanded, chunks, names, str(path)):
            arrays = [batch.column(name) for name in names]
            unpacked += sum(map(_text_bytes, arrays))
            check_unpacked(str(path), unpacked, packed)
            yield from arrow_records(arrays, names, first, str(path), nullable)
            first += batch.num_rows
        if first - 1 != table.metadata.num_rows:
            raise DataError(
                f"cannot read {path} as Parquet: it is damaged: it declares {table.metadata.num_rows:,} rows but "
                f"contains {first - 1:,}"
            )


def divide_parquet_rows(path: Path, parts: Sequence[str]) -> dict[str, bytes]:
    """Return the rows of a Parquet file as several files, each with all columns and the rows of one part in order.

    Args:
        path: The file.
        parts: Name of the part of each row; "" leaves the row out.

    Returns:
        Content of the file of each part.

    Raises:
        DataError: The file cannot be read, or has another number of rows; or a column, also one that is not selected,
            is much larger than the file.
    """
    import pyarrow
    import pyarrow.parquet

    contents = {name: io.BytesIO() for name in parts if name}
    with _open_parquet(path) as (table, content):
        if table.metadata.num_rows != len(parts):
            raise DataError(f"{path} has changed while it was read: run the command again")
        _check_unpacked_columns(table, content, str(path))
        rows = table.read()
        for name, divided in contents.items():
            mask = pyarrow.array([part == name for part in parts], pyarrow.bool_())
            pyarrow.parquet.write_table(rows.filter(mask), divided)
    return {name: divided.getvalue() for name, divided in contents.items()}


def _check_unpacked_columns(table: Any, content: io.BufferedIOBase, name: str) -> None:  # noqa: ANN401
    """Raise `DataError` if all columns together are much larger than the file (`check_unpacked`).

    Texts are read as `parquet_records` reads them: a dictionary may expand a few bytes to any size.
    """
    from pyarrow.parquet import ParquetFile

    kinds = {field.name: str(field.type) for field in table.schema_arrow}
    texts = [column for column, kind in kinds.items() if is_text_type(kind)]
    chunks = _column_chunks(table, content, texts, name)
    dictionaries = _dictionary_columns(chunks)
    unexpanded = ParquetFile(
        content, metadata=table.metadata, read_dictionary=dictionaries, page_checksum_verification=True
    )
    packed = content.seek(0, io.SEEK_END)
    unpacked = 0
    for batch in _parquet_batches(table, unexpanded, chunks, texts, name):
        unpacked += sum(map(_text_bytes, batch.columns))
        check_unpacked(name, unpacked, packed)
    others = [column for column in kinds if column not in texts]
    # A row of a nested column may be long. Without columns, iter_batches would read all of them.
    for batch in table.iter_batches(PARQUET_NESTED_ROWS, columns=others) if others else ():
        unpacked += batch.nbytes
        check_unpacked(name, unpacked, packed)


def is_text_type(kind: str) -> bool:
    """Return whether a type of Arrow is one of texts, also with a dictionary.

    Args:
        kind: The type as text.
    """
    return kind.removeprefix("dictionary<values=").partition(",")[0] in TEXT_TYPES


def _dictionary_columns(chunks: list[dict[str, Any]]) -> list[str]:
    """Return the columns that are stored with a dictionary, and whose encodings pyarrow reads without expanding it."""
    columns = [named for group in chunks for named in group.items()]
    prefixed = {path for path, column in columns if PREFIX_ENCODING in column.encodings}
    return sorted({path for path, column in columns if column.has_dictionary_page} - prefixed)


def _column_chunks(
    table: Any,  # noqa: ANN401 (pyarrow has no types)
    content: io.BufferedIOBase,
    names: Sequence[str],
    name: str,
) -> list[dict[str, Any]]:
    """Return the metadata of the selected columns in each row group, by their paths in the schema.

    For damaged metadata pyarrow's `column` aborts the process, where reading a row raises an `OSError`. So the first
    row of each row group is read before `column` is called, in small pieces.

    Raises:
        DataError: A selected column has the path of another one.
    """
    from pyarrow.parquet import ParquetFile

    metadata = table.metadata
    selected = frozenset(names)
    _check_column_paths(table, selected, name)
    first_rows = ParquetFile(
        content, metadata=metadata, buffer_size=PARQUET_PROBE_BYTES, page_checksum_verification=True
    )
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    chunks = []
    for index in range(metadata.num_row_groups):
        next(first_rows.iter_batches(1, row_groups=[index], columns=names, use_threads=False), None)
        group = metadata.row_group(index)
        chunks.append({path: group.column(column) for column, path in enumerate(paths) if path in selected})
    return chunks


def _check_column_paths(table: Any, selected: frozenset[str], name: str) -> None:  # noqa: ANN401
    """Raise `DataError` if pyarrow would read a second column in place of a selected one, or with it.

    A column is found by its path, in which dots separate the fields of structs: "a.b" is also the field b of a.
    """
    structs = {field.name for field in table.schema_arrow if field.type.num_fields}
    paths = set[str]()
    for index in range(table.metadata.num_columns):
        column = table.metadata.schema.column(index)
        if column.path in selected and column.path in paths and column.name == column.path:
            raise DataError(f"{name}: several columns are named {quote(column.path)}: rename all but one")
        paths.add(column.path)
        is_field = False
        starts = accumulate(column.path.split("."), "{}.{}".format)
        for start in starts if column.name != column.path else ():
            if is_field and start in selected:
                raise DataError(f"{name}: {quote(start)} is a column and a field of a struct: rename one of them")
            is_field = is_field or start in structs


def _parquet_batches(
    table: Any,  # noqa: ANN401 (pyarrow has no types)
    unexpanded: Any,  # noqa: ANN401
    chunks: list[dict[str, Any]],
    names: Sequence[str],
    name: str,
) -> Iterator[Any]:
    """Yield batches of rows, with fewer rows where the values are long.

    A batch may refer thousands of times to one long value of a dictionary. Only then is it read from `unexpanded`, the
    same file with its dictionaries as they are, which takes longer.
    """
    selected = list(dict.fromkeys(names))
    for index, columns in enumerate(chunks):
        rows = PARQUET_BATCH_ROWS
        for path, column in columns.items():
            size, count = max(column.total_uncompressed_size, 1), max(table.metadata.row_group(index).num_rows, 1)
            if size > (count + 1) * MAX_LINE_BYTES:
                raise DataError(
                    f"{name}: values of {quote(path)} have more than {MAX_LINE_BYTES:,} bytes: is this text?"
                )
            # No value is larger than its column chunk. Prefixes apart, all values together are not larger.
            limit = (
                MAX_LINE_BYTES // size if PREFIX_ENCODING in column.encodings else PARQUET_BATCH_BYTES * count // size
            )
            rows = min(rows, limit)
        rows = max(rows, 1)
        is_small = rows * _longest_dictionary_value(unexpanded, index, selected) <= PARQUET_BATCH_BYTES
        yield from (table if is_small else unexpanded).iter_batches(rows, row_groups=[index], columns=selected)


def _longest_dictionary_value(unexpanded: Any, index: int, names: Sequence[str]) -> int:  # noqa: ANN401
    """Return the bytes of the longest value in the dictionaries of a row group; 0 without dictionaries."""
    import pyarrow.compute as pc

    first_row = next(unexpanded.iter_batches(1, row_groups=[index], columns=names), None)
    columns = [] if first_row is None else first_row.columns
    values = [_dictionary_parts(column)[0] for column in columns if hasattr(column, "dictionary")]
    return max((pc.max(pc.binary_length(value)).as_py() or 0 for value in values), default=0)


def _seekable_content(file: io.BufferedReader, path: Path) -> io.BufferedIOBase:
    """Return an open Parquet file, or its content in memory if it is a pipe or compressed."""
    is_seekable_file = isinstance(file.raw, io.FileIO) and file.seekable()
    return file if is_seekable_file else _read_parquet_content(file, path)


def _read_parquet_content(file: io.BufferedReader, path: Path) -> io.BytesIO:
    """Return the content of a pipe or a compressed file in memory, because Parquet is read from its end.

    Raises:
        DataError: It has more than `MAX_UNSEEKABLE_PARQUET` bytes.
    """
    content = io.BytesIO()
    while piece := file.read(2**20):
        content.write(piece)
        if content.tell() > MAX_UNSEEKABLE_PARQUET:
            raise DataError(
                f"{path} has more than {MAX_UNSEEKABLE_PARQUET:,} bytes: Parquet from a pipe or with gzip is read into "
                "memory; give an uncompressed file"
            )
    content.seek(0)
    return content


def _split_rows(lines: Iterable[bytes], name: str, split: Callable[[str], list[str]]) -> Records:
    """Yield all columns of each line."""
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            yield Record(number, ())
            continue
        try:
            yield Record(number, split(line_text(line)))
        except RecordError as error:
            yield BadLine(name, number, str(error))


def _csv_rows(lines: Iterable[bytes], name: str, delimiter: Delimiter) -> Records:
    """Yield all columns of each CSV record."""
    record = _CsvRecord(name, DELIMITERS[delimiter].encode())
    reader = csv_reader(_csv_lines(lines, record), DELIMITERS[delimiter])
    while True:
        start = record.begin(reader.line_num + 1)
        try:
            fields = next(reader)
        except StopIteration:
            return
        except CsvError as error:
            record.error = record.error or _csv_error_text(abbreviate_reason(error), start, reader.line_num)
        if record.error:
            yield BadLine(name, start, record.error)
        else:
            # For a blank line, csv returns no field or one blank field.
            yield Record(start, fields if len(fields) > 1 or "".join(fields).strip(" \t") else ())


@dataclass
class _CsvRecord:
    """State of the CSV record that is being read, which may span several lines."""

    name: str
    delimiter: bytes
    line: int = 0
    size: int = 0
    num_delimiters: int = 0
    """Number of delimiters, those in quotes included; 0 as long as there cannot be too many."""
    error: str = ""
    """Decoding error of its first invalid line."""

    def begin(self, line: int) -> int:
        """Start a new record, and return the number of its line.

        Args:
            line: Number of the line.
        """
        self.line = line
        self.size = 0
        self.num_delimiters = 0
        self.error = ""
        return line

    def add(self, line: bytes) -> None:
        """Add the size of a line.

        Args:
            line: The line.

        Raises:
            DataError: The record exceeds `MAX_LINE_BYTES` or `MAX_COLUMNS`.
        """
        self.size += len(line)
        if self.size > MAX_COLUMNS:  # the delimiters of the lines before are fewer
            self.num_delimiters += line.count(self.delimiter)
        if self.num_delimiters > MAX_COLUMNS:
            raise DataError(
                f"{self.name}:{self.line}: the record has more than {MAX_COLUMNS:,} delimiters: is this a table, or is "
                "a quote missing?"
            )
        if self.size > MAX_LINE_BYTES:
            raise DataError(
                f"{self.name}:{self.line}: the record has more than {MAX_LINE_BYTES:,} bytes: is a quote missing?"
            )


def _csv_lines(lines: Iterable[bytes], record: _CsvRecord) -> Iterator[str]:
    """Yield lines as text. Decoding errors are stored in the record, because csv must still find its end."""
    for line in lines:
        record.add(line)
        try:
            yield decode_line(line)
        except RecordError as error:
            record.error = record.error or str(error)
            yield line.decode(errors="replace")


def _csv_error_text(error: str, start: int, end: int) -> str:
    """Return the error of the csv module, with the lines that a quote has joined."""
    message = "a carriage return outside quotes does not end a line" if error.startswith("new-line") else error
    line_note = f"; lines {start} to {end} were read as one record: is a quote missing?" if end > start else ""
    return f"not valid CSV: {message}{line_note}"


def _json_fields(
    line: bytes, number: int, decode: Callable[[bytes], dict[str, msgspec.Raw]], finder: ColumnFinder
) -> list[str]:
    """Return the selected values of a JSON object. Other values are not decoded and may be of any kind."""
    decode_line(line)
    try:
        values = _json_object(line, decode)
        _check_keys(line, values)
        keys = tuple(values)
        fields = []
        for role, position in zip(finder.columns.selected, finder.find(keys, number), strict=True):
            key = keys[position]
            value = bytes(values[key])
            if value == b"null" and role in finder.columns.nullable:
                value = b'""'
            if not value.startswith(b'"'):
                raise RecordError(f"the value of {quote(key)} is {_json_type(value)}, not a string")
            fields.append(msgspec.json.decode(value, type=str))
        return fields
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecordError(f"not valid JSON: {abbreviate_reason(error).removeprefix('JSON is malformed: ')}") from error


def _check_keys(line: bytes, values: dict[str, msgspec.Raw]) -> None:
    """Raise `RecordError` for a key that occurs twice; msgspec would silently use the last value.

    A line with a repeated key has more quotation marks than its keys and values. So has a line with such a mark in a
    key.
    """
    if line.count(b'"') == 2 * len(values) + sum(bytes(value).count(b'"') for value in values.values()):
        return
    if len(line) > MAX_PARSED_JSON:
        raise RecordError("a key occurs twice, or has a quotation mark")
    key = repeated_key(line)
    if key is not None:
        raise RecordError(f"the key {quote(key)} occurs twice")


def _json_object(line: bytes, decode: Callable[[bytes], dict[str, msgspec.Raw]]) -> dict[str, msgspec.Raw]:
    """Return the keys and raw values of a JSON object; raise `RecordError` for another JSON value."""
    if len(line) > MAX_COLUMNS and line.count(b":") > MAX_COLUMNS:
        raise RecordError(f"more than {MAX_COLUMNS:,} colons: expected an object with a source and a target")
    try:
        return decode(line)
    except msgspec.ValidationError as error:
        msgspec.json.decode(line, type=msgspec.Raw)
        raise RecordError(f"expected a JSON object, got {_json_type(line)}") from error


def _json_type(value: bytes) -> str:
    """Return the JSON type of a value in words, from its first byte."""
    match value.lstrip()[:1]:
        case b"n":
            return "null"
        case b"t":
            return "true"
        case b"f":
            return "false"
        case b'"':
            return "a string"
        case b"[":
            return "an array"
        case b"{":
            return "an object"
        case _:
            return "a number"


def _parquet_columns(named: Sequence[tuple[str, str]], columns: ColumnSelection, name: str) -> list[str]:
    """Return the names of the selected columns; raise `DataError` for duplicates and columns without strings.

    Args:
        named: Name and type of each column.
        columns: The columns to select.
        name: Name of the file, for messages.
    """
    names = [column for column, _ in named]
    selected = [names[position] for position in find_columns(columns, names, name)]
    for column, kind in named:
        if column in selected and names.count(column) > 1:
            raise DataError(f"{name}: {names.count(column)} columns are named {quote(column)}")
        if column in selected and not is_text_type(kind):
            raise DataError(f"{name}: column {quote(column)} holds {kind}, not strings")
    return selected


def arrow_records(
    arrays: list[Any], names: list[str], first: int, name: str, nullable: Sequence[bool] = (), unit: str = ""
) -> Records:
    """Yield the records of a batch of Arrow columns.

    Values are decoded one by one: invalid UTF-8 affects its own row only.

    Args:
        arrays: A column of texts for each field.
        names: Names of the columns.
        first: Number of the first row.
        name: Name of the file or table, for messages.
        nullable: Whether a null of each column is an empty text; it is an error in all columns by default.
        unit: Noun of a row of a table in memory; empty, the default, for a Parquet file.

    Raises:
        DataError: A value has more than `MAX_LINE_BYTES` bytes, or refers beyond the dictionary of its column.
    """
    columns = [_cell_values(array, column, first, name, unit) for array, column in zip(arrays, names, strict=True)]
    for index, is_nullable in enumerate(nullable):
        columns[index] = (value or b"" for value in columns[index]) if is_nullable else columns[index]
    for number, row in enumerate(zip(*columns, strict=True), first):
        if None in row:
            yield BadLine(name, number, f"the value of {quote(names[row.index(None)])} is null, not a string")
            continue
        try:
            yield Record(number, [decode_utf8(value) for value in row])
        except RecordError as error:
            yield BadLine(name, number, str(error))


def _cell_values(array: Any, column: str, first: int, name: str, unit: str) -> Iterable[bytes | None]:  # noqa: ANN401
    """Return the values of a column; those of a dictionary are converted once, and long ones one by one.

    Raises:
        DataError: A value has more than `MAX_LINE_BYTES` bytes, or refers beyond the dictionary.
    """
    import pyarrow.compute as pc

    values, indices = _dictionary_parts(array)
    if indices is not None and (pc.max(indices).as_py() or 0) >= len(values):
        damage = "it is damaged: a value refers beyond its dictionary"
        raise DataError(f"cannot read {name}{'' if unit else ' as Parquet'}: {damage}")
    if pc.any(pc.greater(pc.binary_length(values), MAX_LINE_BYTES)).as_py():
        _check_lengths(array, column, first, name, unit)
    if indices is not None:
        used = indices.unique().drop_null()
        known = dict(zip(used.to_pylist(), values.take(used).to_pylist(), strict=True))
        return [known.get(index) for index in indices.to_pylist()]
    if values.nbytes <= PARQUET_BATCH_BYTES:
        return cast(list[bytes | None], values.to_pylist())
    return (value.as_py() for value in values)


def _text_bytes(array: Any) -> int:  # noqa: ANN401
    """Return the number of bytes of the texts of a column, and one more for each row."""
    import pyarrow.compute as pc

    values, indices = _dictionary_parts(array)
    lengths = pc.cast(pc.binary_length(values), "int64")
    if indices is None:
        return len(array) + int(pc.sum(lengths).as_py() or 0)
    try:
        return len(array) + int(pc.sum(lengths.take(indices)).as_py() or 0)
    except IndexError:  # beyond the dictionary, which is reported when the values are read
        return len(array)


def _check_lengths(array: Any, column: str, first: int, name: str, unit: str) -> None:  # noqa: ANN401
    """Raise `DataError` for the first value of a batch beyond `MAX_LINE_BYTES`, before it is converted."""
    import pyarrow.compute as pc

    for number, value in enumerate(array, first):
        if value.is_valid and (pc.binary_length(getattr(value, "value", value)).as_py() or 0) > MAX_LINE_BYTES:
            reason = f"the value of {quote(column)} has more than {MAX_LINE_BYTES:,} bytes: is this text?"
            raise DataError(str(BadLine(name, number, reason, unit)))


def _dictionary_parts(array: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return the values of a column as bytes, and the indices into them; None if there is one value per row."""
    if hasattr(array, "dictionary"):
        return array.dictionary.cast("large_binary"), array.indices
    return array.cast("large_binary"), None


TABLE_FORMATS = ("tsv", "csv")
"""Formats whose first line may be a header."""
SUFFIXES: dict[str, Format] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


@check_arguments
def resolve_format(path: str | Path, config: DataConfig) -> Format:
    """Return the format of a file of pairs: the configured one; for "auto", by the file name, else TSV.

    A file whose name has no known ending is CSV if a delimiter is configured.

    Args:
        path: The file.
        config: The data settings.
    """
    path = Path(path)
    return _format_from_name(path, _default_format(config)) if config.input_format == "auto" else config.input_format


@check_arguments
def resolve_input_format(path: str | Path, config: DataConfig) -> Format:
    """Return the format of an input file: by the file name, else the configured one, else TSV.

    Args:
        path: The file.
        config: The data settings of the run.
    """
    path = Path(path)
    return _format_from_name(path, _default_format(config) if config.input_format == "auto" else config.input_format)


@check_arguments
def has_known_suffix(path: str | Path) -> bool:
    """Return whether a file name determines the format: .tsv, .csv, .jsonl, .ndjson or .parquet, also before .gz.

    Args:
        path: The file.
    """
    path = Path(path)
    return _format_from_name(path, "auto") != "auto"


def divide_name(path: Path) -> tuple[str, str]:
    """Return the name of a file without .gz as two parts: its beginning, and its ending, which may be empty.

    Args:
        path: The file. Endings may be in capital letters.
    """
    name = path.name[: -len(".gz")] if path.name.lower().endswith(".gz") else path.name
    ending = next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), Path(name).suffix)
    return name[: len(name) - len(ending)], name[len(name) - len(ending) :]


def read_records(path: Path, format: Format, columns: ColumnSelection) -> Records:
    """Return the records of a file. It is opened, and errors are raised, when they are iterated.

    Args:
        path: The file.
        format: Its format; "auto" means TSV.
        columns: The columns to select.

    Raises:
        DataError: The file cannot be read, or as in the reader of its format.
        ConfigError: As in the reader of its format.
    """
    if format == "parquet":
        return parquet_records(path, columns)
    return line_records(read_lines(path), format, columns, str(path))


def line_records(
    lines: Iterable[bytes],
    format: Format,
    columns: ColumnSelection,
    name: str,
    max_sample_lines: int = MAX_SAMPLE_LINES,
) -> Records:
    """Return the records of checked lines, as `read_lines` and `check_lines` yield them.

    Args:
        lines: The lines.
        format: Their format, any but Parquet; "auto" means TSV.
        columns: The columns to select.
        name: Name of the input, for messages.
        max_sample_lines: As in `csv_records`.

    Raises:
        DataError: During iteration, as in the reader of the format.
        ConfigError: During iteration, as in the reader of the format.
    """
    match format:
        case "csv":
            return csv_records(lines, columns, name, max_sample_lines)
        case "jsonl":
            return json_records(lines, columns, name)
        case "text":
            return source_line_records(lines, columns, name)
        case _:
            return tsv_records(lines, columns, name)


def parse_records(lines: Iterable[bytes], name: str, format: Format, columns: ColumnSelection) -> Records:
    """Return the records of lines.

    Args:
        lines: The lines.
        name: Name of the input, for messages.
        format: Format of the lines; "auto" means TSV.
        columns: The columns to select.

    Raises:
        DataError: The format is Parquet, which cannot be parsed as lines. During iteration: as in `check_lines` and the
            reader of the format.
        ConfigError: During iteration, as in the reader of the format.
    """
    lines = check_lines(typed_lines(lines), name)
    if format == "parquet":
        raise DataError(f"{name} cannot be read as Parquet: give a file, or another --input-format")
    # Of a stream, each line can be answered before the next one arrives.
    return line_records(lines, format, columns, name, max_sample_lines=1)


def read_parallel_records(source_path: Path, target_path: Path, columns: ColumnSelection) -> Records:
    """Yield the records of two parallel text files: line i of the first with line i of the second.

    Args:
        source_path: The file of sources; with features, each line is source, tab and features.
        target_path: The file of targets.
        columns: The selection, of which only the presence of "features" counts.

    Yields:
        Records of source, target and features. Where both lines are blank, the record has no fields; where one is bad,
        a `BadLine`.

    Raises:
        DataError: A file cannot be read, or the files differ in the number of lines.
    """
    without_target = {role: column for role, column in columns.selected.items() if role != "target"}
    sources = source_line_records(read_lines(source_path), ColumnSelection(without_target), str(source_path))
    targets = source_line_records(read_lines(target_path), ColumnSelection({"source": "1"}), str(target_path))
    for number, (source, target) in enumerate(zip_longest(sources, targets), 1):
        if source is None or target is None:
            count = number + sum(1 for _ in (sources if target is None else targets))
            counts = (count, number - 1) if target is None else (number - 1, count)
            raise DataError(
                f"{source_path} has {count_noun(counts[0], 'line')}, but {target_path} has {counts[1]:,}: give equally "
                "many lines"
            )
        if isinstance(source, BadLine) or isinstance(target, BadLine):
            yield source if isinstance(source, BadLine) else target
        elif source.fields or target.fields:
            first, *features = source.fields or [""]
            yield Record(number, [first, *(target.fields or [""]), *features])
        else:
            yield source


def _default_format(config: DataConfig) -> Format:
    """Return the format of a file whose name has no known ending: CSV if a delimiter is configured, else TSV."""
    return "tsv" if config.delimiter == "auto" else "csv"


def _format_from_name(path: Path, default: Format) -> Format:
    """Return the format for the suffix of a file name, or the default if the suffix is unknown."""
    name = path.name.lower().removesuffix(".gz")
    return next((format for suffix, format in SUFFIXES.items() if name.endswith(suffix)), default)
