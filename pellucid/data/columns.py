"""Columns: of everything a record holds, the fields that are wanted, found by name or by number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from pellucid.config import Header
from pellucid.data.headers import check_names
from pellucid.data.lines import RecordError
from pellucid.errors import ConfigError, DataError, nearest, parse_whole_number, quote

MOST_COLUMNS = 2**20
"""The greatest number of a column that a setting may name."""
LISTED = 20
"""How many column names a message lists, and how much of each."""


class BadLine(NamedTuple):
    """A line that cannot be read, and why."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        """The way editors and compilers write it: "train.tsv:17: the target is empty"."""
        return f"{self.path}:{self.line}: {self.reason}"


class Record(NamedTuple):
    """The fields of one record, and the line it starts in, from 1; no fields for a blank line."""

    line: int
    fields: Sequence[str]


Records = Iterator[Record | BadLine]


class Columns(NamedTuple):
    """The columns wanted of each record, in the order its fields shall have.

    `wanted` maps "source", "target", "features", "group" to a name, or a number from 1. `header` says whether the first
    line that is not blank names the columns; "auto" refuses one that seems to. `alone` says that a record of one column
    is a source by itself (in prediction). `most` is how many columns a record has at most; 0 sets no limit.
    """

    wanted: dict[str, str]
    header: Header = False
    alone: bool = False
    most: int = 0


@dataclass
class Width:
    """How many columns a file has: as many as its header, or else its first whole row."""

    columns: int = 0
    line: int = 0

    def differs(self, row: Record) -> bool:
        """Whether a row has another number of columns; the first row sets it."""
        if not self.columns:
            self.columns, self.line = len(row.fields), row.line
        return len(row.fields) != self.columns


def select(rows: Records, columns: Columns, name: str, separators: str) -> Records:
    """The wanted columns of rows that hold every column; `name` and `separators` are for the messages.

    Errors: `DataError` for a header that has not the wanted columns, `ConfigError` for a name where there is no header;
    a row with too few columns, or with another number of them than the first row has, is a `BadLine`.
    """
    positions, width, rows = _layout(rows, columns, name)
    needed = max(positions, default=0) + 1
    for row in rows:
        if isinstance(row, BadLine) or not row.fields or (columns.alone and len(row.fields) == 1):
            yield row
        elif not positions:
            which = " or ".join(quote(column) for column in columns.wanted.values())
            yield BadLine(name, row.line, f"got {len(row.fields)} columns, but no header line says which is {which}")
        elif len(row.fields) < needed:
            what = f"expected {needed} columns, got {len(row.fields)} ({separators} separate columns)"
            yield BadLine(name, row.line, what)
        elif columns.most and len(row.fields) > columns.most and columns.header is not True:
            what = f"expected at most {columns.most} columns, got {len(row.fields)} ({separators} separate columns)"
            yield BadLine(name, row.line, what)
        elif width.differs(row):
            what = f"expected {width.columns} columns as in line {width.line}, got {len(row.fields)}"
            yield BadLine(name, row.line, what)
        else:
            yield Record(row.line, [row.fields[position] for position in positions])


def without_last(records: Records, kept: dict[int, str]) -> Records:
    """The records without their last field, which is kept by the line."""
    for record in records:
        if isinstance(record, BadLine) or not record.fields:
            yield record
        else:
            kept[record.line] = record.fields[-1]
            yield Record(record.line, record.fields[:-1])


def column_number(column: str) -> int | None:
    """Return the number of a column that is wanted by its number, from 1; None for one that is wanted by its name."""
    return parse_whole_number(column)


def resolve_header(columns: Columns) -> Columns:
    """Return the columns, with a header where nobody says whether there is one and a column is wanted by its name."""
    named = any(column_number(column) is None for column in columns.wanted.values())
    return columns._replace(header=True) if columns.header == "auto" and named else columns


def check_column(role: str, column: str) -> None:
    """Raise `ConfigError` for a number that no column has."""
    number = column_number(column)
    if (column.isascii() and column.isdecimal() and number is None) or (number is not None and number > MOST_COLUMNS):
        raise ConfigError(
            f"data.{role}_column: expected a name or a number from 1 to {MOST_COLUMNS:,}, got {quote(column)}"
        )
    if number == 0:
        raise ConfigError(f"data.{role}_column: expected a name or a number from 1, got {quote(column)}")


def find_columns(columns: Columns, names: Sequence[str], name: str) -> list[int]:
    """Where the wanted columns stand among the `names` of a file's columns; `DataError` where one does not."""
    try:
        return [find_column(role, column, names) for role, column in columns.wanted.items()]
    except RecordError as error:
        raise DataError(f"{name}: {error}") from error


def find_column(role: str, column: str, names: Sequence[str]) -> int:
    """Where one column stands among `names`; `RecordError` where it does not, or more than once."""
    number = column_number(column)
    if number is not None:
        if number <= len(names):
            return number - 1
        raise RecordError(f"no column {number} (data.{role}_column) among {_listed(names)}")
    if names.count(column) == 1:
        return names.index(column)
    if column in names:
        raise RecordError(
            f"{names.count(column)} columns are named {quote(column)} (data.{role}_column): choose one by its number"
        )
    raise RecordError(f"no column {quote(column)} (data.{role}_column) among {_listed(names)}{nearest(column, names)}")


def _layout(rows: Records, columns: Columns, name: str) -> tuple[list[int], Width, Records]:
    """Where the wanted columns stand (nowhere: no one can tell), the file's width, and the rows without the header."""
    if columns.header is not True:
        return _numbered(columns, name), Width(), _undoubted(rows, name) if columns.header == "auto" else rows
    before: list[Record | BadLine] = []
    for row in rows:
        if isinstance(row, BadLine):
            raise DataError(f"{row} (in the line that should name the columns)")
        if not row.fields:
            before.append(row)
        elif columns.alone and len(row.fields) == 1:
            # One column: the header of a list of sources, or already the first source.
            source = columns.wanted["source"]
            rest = rows if row.fields[0] == source and column_number(source) is None else chain([row], rows)
            return _numbered(columns, name), Width(), chain(before, rest)
        else:
            return find_columns(columns, row.fields, name), Width(len(row.fields), row.line), chain(before, rows)
    return [], Width(), iter(before)


def _undoubted(rows: Records, name: str) -> Records:
    """The rows; `HeaderError` for a first one that seems to name the columns."""
    first = True
    for row in rows:
        if first and isinstance(row, Record) and row.fields:
            check_names(row.fields, f"{name}:{row.line}")
            first = False
        yield row


def _numbered(columns: Columns, name: str) -> list[int]:
    """Where columns wanted by number stand; nowhere if one is wanted by name, an error where that is needed."""
    positions = []
    for role, column in columns.wanted.items():
        number = column_number(column)
        if number is not None:
            positions.append(number - 1)
        elif columns.alone:
            return []
        else:
            raise ConfigError(
                f"data.{role}_column = {quote(column)} is a name, but nothing names the columns of {name}: give a "
                f"number from 1, or set data.header = true if its first line names them"
            )
    return positions


def _listed(names: Sequence[str]) -> str:
    """Column names for a message, which a foreign file must not flood."""
    shown = [quote(name, LISTED + 1) for name in names[:LISTED]]
    return ", ".join(shown + ["…"] * (len(names) > LISTED)) or "none"
