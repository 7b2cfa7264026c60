"""Tables in memory: lists and iterables of pairs, data frames, Arrow tables and datasets, read like a file.

No other package is imported to recognize an object. An object with the Arrow PyCapsule interface
(`__arrow_c_stream__`: pandas from 2.2, polars, pyarrow) is converted by pyarrow; a dataset of Hugging Face is read
through `with_format("arrow")`, which respects `select`, `filter` and `shuffle`; any other iterable is a list of rows.
"""

import hashlib
from collections.abc import Iterable, Mapping, MappingView, Sequence, Set
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

import numpy as np

from pellucid.argument_checks import SURROGATES
from pellucid.config.columns import column_number
from pellucid.data.headers import list_names
from pellucid.data.lines import MAX_LINE_BYTES, RecordError, decode_utf8
from pellucid.data.readers import (
    BadLine,
    ColumnFinder,
    ColumnSelection,
    Record,
    Records,
    arrow_records,
    check_distinct_columns,
    find_columns,
    is_text_type,
)
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, ConfigError, DataError, abbreviate_reason, quote
from pellucid.files import FileDigest

BATCH_ROWS = 2**13
"""Number of rows of an Arrow table that are converted at once."""
PANDAS_INDEX = "__index_level_"
"""Beginning of the names that pyarrow gives to the columns of an index without a name."""


@dataclass(frozen=True, eq=False)
class InMemoryTable:
    """Rows of an object in memory. `str` returns its name in messages, such as "the training data frame"."""

    name: str
    unit: str
    """Noun of a row in messages: "row", "pair" or "source"."""
    column_names: tuple[str, ...]
    """Names of all columns in order; empty if each row has its own names, or none."""
    rows: Any
    """A `pyarrow.Table` of the selected columns at least, or a list with an object for each row."""

    def __str__(self) -> str:
        """Return the name for messages."""
        return self.name

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.rows.num_rows) if hasattr(self.rows, "num_rows") else len(self.rows)

    @property
    def num_columns(self) -> int:
        """Number of items of the first row, for rows without names, which correspond to a TSV file; else 0."""
        first = None if self.column_names or not self.num_rows else _row_items(self.rows[0])
        return 0 if first is None or isinstance(first, Mapping) or _field_names(self.rows[0]) else len(first)

    def records(self, columns: ColumnSelection) -> Records:
        """Yield the selected columns of each row. A value that is no text, such as None or NaN, makes a `BadLine`.

        Args:
            columns: The columns to select; their header settings have no effect. None and NaN of a nullable role are
                empty texts.

        Raises:
            DataError: A column is missing, occurs twice or holds no text.
            ConfigError: A column is selected by name, but the rows have no names.
        """
        if hasattr(self.rows, "num_rows"):
            records = _table_records(self, columns)
        elif self.column_names:
            positions = find_columns(columns, self.column_names, self.name)
            names = [f"of {quote(self.column_names[position])}" for position in positions]
            nullable = columns.nullable_columns
            records = (
                _record(self, number, row, positions, names, nullable) for number, row in enumerate(self.rows, 1)
            )
        else:
            records = _row_records(self, columns)
        return (item._replace(unit=self.unit) if isinstance(item, BadLine) else item for item in records)

    def digest(self, columns: ColumnSelection) -> FileDigest:
        """Return the size and a checksum of the selected texts, which do not depend on the kind of the object.

        Args:
            columns: The columns to select.

        Raises:
            DataError: As in `records`.
            ConfigError: As in `records`.
        """
        checksum = hashlib.sha256()
        size = 0
        for item in self.records(columns):
            fields = (item.reason,) if isinstance(item, BadLine) else item.fields
            texts = [text.encode(errors="surrogatepass") for text in fields]
            checksum.update(str((type(item) is BadLine, [len(text) for text in texts])).encode() + b"".join(texts))
            size += sum(map(len, texts))
        return FileDigest(size, checksum.hexdigest())


def read_table(
    argument: str, value: object, purpose: str, columns: ColumnSelection, unit: str = "pair"
) -> InMemoryTable:
    """Return the rows of an object in memory. An iterator is read to its end.

    Args:
        argument: Name of the argument, for messages.
        value: A list or other iterable of rows, a data frame, an Arrow table, or a dataset.
        purpose: Word before the kind of the object in messages, such as "training"; may be empty.
        columns: The columns that will be selected.
        unit: Noun of a row of a list; "pair" by default.

    Raises:
        ArgumentError: The object holds no rows.
        DataError: A column is missing, or a data frame cannot be converted.
    """
    prefix = f"the {purpose} " if purpose else "the "
    match _recognize(value):
        case "arrow":
            kind = "Arrow table" if type(value).__module__.startswith("pyarrow") else "data frame"
            return _read_arrow(argument, value, prefix + kind, columns)
        case "dataset":
            return _read_dataset(value, f"{prefix}dataset", columns)
        case "frame":
            return _read_frame(value, f"{prefix}data frame", columns)
        case "rows":
            if isinstance(value, Set) and not isinstance(value, MappingView):  # views of a dict have its order
                raise ArgumentError(f"{argument}: expected rows, got {describe_value(value)}: a set has no order")
            rows: Any = value
            return InMemoryTable(f"{prefix}list of {unit}s", unit, (), list(rows))
        case "mapping":
            raise ArgumentError(_mapping_message(argument, value))
        case _:
            expected = "a path, or rows: a list or iterable, a data frame, an Arrow table or a dataset"
            raise ArgumentError(f"{argument}: expected {expected}, got {describe_value(value)}")


def _recognize(value: object) -> Literal["arrow", "dataset", "frame", "mapping", "rows", "other"]:
    """Return the kind of an object; "other" also for one whose methods raise exceptions."""
    try:
        if isinstance(value, Mapping):
            return "mapping"
        if hasattr(value, "__arrow_c_stream__"):
            return "arrow"
        if hasattr(value, "with_format") and hasattr(value, "column_names"):
            return "dataset"
        if _is_frame(value):
            return "frame"
        if isinstance(value, str | bytes | bytearray | memoryview | type) or getattr(value, "ndim", 1) == 0:
            return "other"
        return "rows" if isinstance(value, Iterable) else "other"
    except Exception:  # __class__ or an attribute of the object may raise anything
        return "other"


def _mapping_message(argument: str, value: Any) -> str:  # noqa: ANN401 (a mapping)
    """Return the message for a dict of splits, or of columns."""
    try:
        names = list(value)[:10]
        if names and hasattr(value[names[0]], "with_format"):
            splits = ", ".join(map(quote, names))
            return (
                f"{argument}: expected one dataset, got the splits {splits}: choose one, as in data[{quote(names[0])}]"
            )
    except Exception:  # methods of a mapping may raise anything
        pass
    return f"{argument}: expected rows, got {describe_value(value)}: give pairs, as in list(zip(sources, targets))"


def _is_frame(value: object) -> bool:
    """Return whether an object is a data frame without the Arrow interface, such as one of an old version of pandas."""
    return hasattr(value, "columns") and hasattr(value, "__getitem__") and hasattr(value, "shape")


def _read_arrow(argument: str, value: object, name: str, columns: ColumnSelection) -> InMemoryTable:
    """Return the rows of an object with the Arrow interface; a frame with mixed types is read value by value."""
    import pyarrow

    try:
        table = pyarrow.table(value)
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        if _is_frame(value):
            return _read_frame(value, name, columns)
        if columns.single_column:  # a column of texts, such as a Series
            rows: Any = value
            return InMemoryTable("the list of sources", "source", (), getattr(rows, "to_pylist", lambda: list(rows))())
        raise ArgumentError(
            f"{argument}: expected columns of a source and a target, got {type(value).__name__} "
            f"({abbreviate_reason(error)})"
        ) from error
    index = _index_names(table) - {*columns.selected.values()}
    names = tuple(column for column in table.column_names if column not in index)
    numbers = [column_number(column) or 0 for column in columns.selected.values()]
    if max(numbers, default=0) > len(names) and any(not column.startswith(PANDAS_INDEX) for column in index):
        listed = list_names(sorted(column for column in index if not column.startswith(PANDAS_INDEX)))
        advice = "select it by its name, or give frame.reset_index()"
        raise DataError(f"{name}: the columns are {list_names(names)}; {listed} is the index, no column: {advice}")
    return InMemoryTable(name, "row", names, table)


def _index_names(table: Any) -> set[str]:  # noqa: ANN401 (a pyarrow.Table)
    """Return the names of the columns that were the index of a pandas frame; none for other tables."""
    metadata = table.schema.pandas_metadata or {}
    named = {column for column in metadata.get("index_columns", ()) if isinstance(column, str)}
    return named | {column for column in table.column_names if column.startswith(PANDAS_INDEX)}


def _read_frame(value: Any, name: str, columns: ColumnSelection) -> InMemoryTable:  # noqa: ANN401 (any frame)
    """Return the selected columns of a data frame as lists of Python values."""
    names = tuple(map(str, value.columns))
    positions = set(find_columns(columns, names, name))
    for position in positions:
        if names.count(names[position]) > 1:
            raise DataError(f"{name}: {names.count(names[position])} columns are named {quote(names[position])}")
    values = [
        list(value[column]) if position in positions else repeat(None) for position, column in enumerate(value.columns)
    ]
    return InMemoryTable(name, "row", names, list(zip(*values, strict=False)))


def _read_dataset(value: Any, name: str, columns: ColumnSelection) -> InMemoryTable:  # noqa: ANN401 (any dataset)
    """Return the selected columns of a dataset, in the order that its methods have given it."""
    import pyarrow

    names = tuple(map(str, value.column_names or ()))
    if not names:
        raise DataError(f"{name} does not name its columns: give a list of its rows, as in list(dataset)")
    selected = list(dict.fromkeys(names[position] for position in find_columns(columns, names, name)))
    batches = list(value.select_columns(selected).with_format("arrow").iter(BATCH_ROWS))
    table = pyarrow.concat_tables(batches) if batches else pyarrow.table({column: [""] for column in selected}).slice(1)
    return InMemoryTable(name, "row", names, table)


def _table_records(table: InMemoryTable, columns: ColumnSelection) -> Records:
    """Yield the records of an Arrow table."""
    names = [table.column_names[position] for position in find_columns(columns, table.column_names, table.name)]
    for name in names:
        if table.column_names.count(name) > 1:
            raise DataError(f"{table.name}: {table.column_names.count(name)} columns are named {quote(name)}")
        kind = str(table.rows.schema.field(name).type)
        if not is_text_type(kind):
            raise DataError(
                f"{table.name}: column {quote(name)} holds {kind}, not strings: convert the column to strings"
            )
    first = 1
    for batch in table.rows.select(list(dict.fromkeys(names))).to_batches(max_chunksize=BATCH_ROWS):
        arrays = [batch.column(name) for name in names]
        yield from arrow_records(arrays, names, first, table.name, columns.nullable_columns, table.unit)
        first += batch.num_rows


def _row_records(table: InMemoryTable, columns: ColumnSelection) -> Records:
    """Yield the records of rows that have their own names, as dicts and named tuples have, or no names."""
    width = 0
    nullable = columns.nullable_columns
    finder = ColumnFinder(columns, table.unit)
    for number, row in enumerate(table.rows, 1):
        items = _row_items(row)
        names = tuple(map(str, items)) if isinstance(items, Mapping) else _field_names(row)
        if isinstance(row, str) and columns.single_column:
            yield _record(table, number, (row,), [0], [""], nullable)
        elif items is None:
            expected = " and ".join(f"a {role}" for role in columns.selected)
            yield BadLine(table.name, number, f"expected {expected}, got {describe_value(row)}")
        elif names:
            try:
                positions = finder.find(names, number)
            except RecordError as error:
                yield BadLine(table.name, number, str(error))
                continue
            values = list(items.values()) if isinstance(items, Mapping) else items
            titles = [f"of {quote(names[position])}" for position in positions]
            yield _record(table, number, values, positions, titles, nullable)
        else:
            positions = _numbered_positions(columns, table.name)
            needed, width = max(positions) + 1, width or len(items)
            if len(items) != width or len(items) < needed:
                expected = f"{needed} items" if len(items) == width else f"{width} items as in {table.unit} 1"
                missing_columns = columns.missing_columns(positions, len(items)) if len(items) == width else ()
                reason = f"expected {expected}, got {len(items)}"
                yield BadLine(table.name, number, reason, missing_columns=missing_columns)
                continue
            roles = [f"of the {role}" for role in columns.selected]
            yield _record(table, number, items, positions, roles, nullable)


def _numbered_positions(columns: ColumnSelection, name: str) -> list[int]:
    """Return the positions of columns selected by number; raise `ConfigError` for one selected by name."""
    positions = []
    for role, column in columns.selected.items():
        number = column_number(column)
        if number is None:
            setting = (columns.group_setting if role == "group" else "") or f"data.{role}_column"
            raise ConfigError(
                f"{setting} = {quote(column)} is a name, but the rows of {name} have no names: give a number from 1, "
                "or dicts"
            )
        positions.append(number - 1)
    check_distinct_columns(columns, positions)
    return positions


def _row_items(row: object) -> Any:  # noqa: ANN401 (a sequence or a mapping)
    """Return the items of a row: a mapping, a list or a tuple, or a NumPy array of one dimension; else None."""
    if isinstance(row, np.ndarray):
        return row.tolist() if row.ndim == 1 else None
    return row if isinstance(row, Mapping | list | tuple) else None


def _field_names(row: object) -> tuple[str, ...]:
    """Return the names of the fields of a named tuple; empty for other rows."""
    names = getattr(row, "_fields", ())
    return tuple(names) if isinstance(row, tuple) and isinstance(names, tuple) else ()


def _record(
    table: InMemoryTable,
    number: int,
    values: Sequence[object],
    positions: Sequence[int],
    names: Sequence[str],
    nullable: Sequence[bool],
) -> Record | BadLine:
    """Return the selected values of a row as texts, or why one of them is no text; nulls may be empty texts."""
    fields = []
    for position, name, is_nullable in zip(positions, names, nullable, strict=False):
        value = values[position]
        try:
            fields.append("" if is_nullable and _is_null(value) else _text(value))
        except RecordError as error:
            description = f"the value {name}".rstrip()
            return BadLine(table.name, number, f"{description} {error}")
    return Record(number, fields)


def _is_null(value: object) -> bool:
    """Return whether a value is None, NaN, or the missing value of pandas."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def _text(value: object) -> str:
    """Return a value as text; raise `RecordError` if it is no text."""
    if isinstance(value, bytes):
        return decode_utf8(value)
    if not isinstance(value, str):
        hint = ": convert it with str()" if isinstance(value, int | np.integer) else ""
        raise RecordError(f"is {describe_value(value)}, not a string{hint}")
    text = str.__str__(value)
    if not text.isascii() and SURROGATES.search(text):
        raise RecordError(f"{quote(text)} has an unpaired surrogate, which UTF-8 cannot encode")
    if len(text) > MAX_LINE_BYTES:
        raise RecordError(f"has more than {MAX_LINE_BYTES:,} characters: is this text?")
    return text
