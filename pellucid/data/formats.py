"""File formats: lines or tables to records of the wanted columns; nothing is guessed and nothing mended.

* TSV: a tab ends a column and a newline a record; every other character, quotes too, is data.
* CSV: RFC 4180; a field in double quotes may hold commas, doubled quotes and line breaks.
* JSON lines: an object a line; a number counts its keys in their order.
* Text: the whole line. Parquet: the rows of a table, counted from 1.

Blank lines (spaces and tabs at most) are records without fields. A record that cannot be read is a `BadLine`; a column
that no record can have is a `DataError` or `ConfigError`.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from pellucid.data.columns import BadLine, Columns, Record, Records, find_column, find_columns, select
from pellucid.data.lines import RecordError, decoded, decoded_value, is_blank, opened, without_end
from pellucid.errors import DataError

LARGEST_FIELD = 2**31 - 1
"""The greatest limit csv takes on every system."""
ROWS_AT_ONCE = 8192
"""Rows of Parquet held at once."""
TEXT_TYPES = {"string", "large_string", "string_view", "binary", "large_binary", "binary_view"}


def tsv_records(lines: Iterable[bytes], columns: Columns, name: str) -> Records:
    """Records of lines whose columns are separated by tabs."""
    return select(_rows(lines, name, lambda text: text.split("\t")), columns, name, "tabs")


def table_width(lines: Iterable[bytes], format: Literal["tsv", "csv"], name: str) -> int:
    """How many columns the first record has that can be read; 0 where there is none."""
    rows = _csv_rows(lines, name) if format == "csv" else _rows(lines, name, lambda text: text.split("\t"))
    return next((len(row.fields) for row in rows if isinstance(row, Record) and row.fields), 0)


def text_records(lines: Iterable[bytes], columns: Columns, name: str) -> Records:
    """Records of whole lines: each is the source, or where features are wanted, the source, a tab, the features."""
    if "features" in columns.wanted:
        both = Columns({"source": "1", "features": "2"}, alone=columns.alone)
        return tsv_records(lines, both, name)
    return _rows(lines, name, lambda text: [text])


def csv_records(lines: Iterable[bytes], columns: Columns, name: str) -> Records:
    """Records of comma-separated values; one that spans several lines has the number of the first."""
    return select(_csv_rows(lines, name), columns, name, "commas")


def json_records(lines: Iterable[bytes], columns: Columns, name: str) -> Records:
    """Records of JSON objects, one a line."""
    decode: Callable[[bytes], object] = msgspec.json.Decoder().decode
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            yield Record(number, ())
            continue
        try:
            yield Record(number, _json_fields(line, decode, columns))
        except RecordError as error:
            yield BadLine(name, number, str(error))


def parquet_records(path: Path, columns: Columns) -> Records:
    """Records of a Parquet file, read batch by batch; a file that is none, or damaged, is a `DataError`."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with opened(path) as file:
        # Parquet is read from its end, which a pipe or compressed content has not at hand.
        at_hand = isinstance(file.raw, io.FileIO) and file.seekable()
        try:
            table = ParquetFile(file if at_hand else io.BytesIO(file.read()))
            named = [(field.name, str(field.type)) for field in table.schema_arrow]
            names = _text_columns(named, columns, str(path))
            first = 1
            for batch in table.iter_batches(ROWS_AT_ONCE, columns=list(dict.fromkeys(names))):
                yield from _batch_records([batch.column(name) for name in names], names, first, str(path))
                first += batch.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"cannot read {path} as Parquet: {str(error).partition(chr(10))[0]}") from error


def _rows(lines: Iterable[bytes], name: str, cut: Callable[[str], list[str]]) -> Records:
    """Every column of each line."""
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            yield Record(number, ())
            continue
        try:
            yield Record(number, cut(without_end(decoded(line))))
        except RecordError as error:
            yield BadLine(name, number, str(error))


def _csv_rows(lines: Iterable[bytes], name: str) -> Records:
    """Every column of each CSV record."""
    faults: list[str] = []
    reader = csv.reader(_csv_lines(lines, faults), strict=True)
    while True:
        start = reader.line_num + 1
        # The limit belongs to the whole process, so it is raised for one record and put back.
        limit = csv.field_size_limit(LARGEST_FIELD)
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            faults.append(_csv_reason(str(error), start, reader.line_num))
        finally:
            csv.field_size_limit(limit)
        if faults:
            yield BadLine(name, start, faults[0])
            faults.clear()
        else:
            # A line of spaces at most is no field, or one blank field, to csv.
            yield Record(start, fields if len(fields) > 1 or "".join(fields).strip(" \t") else ())


def _csv_lines(lines: Iterable[bytes], faults: list[str]) -> Iterator[str]:
    """Lines as text, ends kept. What is wrong with one is noted, for csv must still see where its record ends."""
    for line in lines:
        try:
            yield decoded(line)
        except RecordError as error:
            faults.append(str(error))
            yield line.decode(errors="replace")


def _csv_reason(error: str, start: int, end: int) -> str:
    """csv's own message, and which lines are lost where a quote has joined several."""
    what = "a carriage return outside quotes" if error.startswith("new-line") else error
    joined = f"; lines {start} to {end} were read as one record: is a quote missing?" if end > start else ""
    return f"not valid CSV: {what}{joined}"


def _json_fields(line: bytes, decode: Callable[[bytes], object], columns: Columns) -> list[str]:
    """The wanted values of one JSON object."""
    decoded(line)
    try:
        value = decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecordError(f"not valid JSON: {str(error).removeprefix('JSON is malformed: ')}") from error
    if not isinstance(value, dict):
        raise RecordError(f"expected a JSON object, got {_kind(value)}")
    keys = list(value)
    fields = []
    for role, column in columns.wanted.items():
        key = keys[find_column(role, column, keys)]
        if not isinstance(value[key], str):
            raise RecordError(f"the value of {key!r} is {_kind(value[key])}, not a string")
        fields.append(value[key])
    return fields


def _kind(value: object) -> str:
    """What JSON calls a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _text_columns(named: Sequence[tuple[str, str]], columns: Columns, name: str) -> list[str]:
    """The names of the wanted columns of a table, given the name and type of each, if they hold text."""
    names = [column for column, _ in named]
    chosen = [names[position] for position in find_columns(columns, names, name)]
    for column, kind in named:
        if column in chosen and names.count(column) > 1:
            raise DataError(f"{name}: {names.count(column)} columns are named {column!r}")
        if column in chosen and kind.removeprefix("dictionary<values=").partition(",")[0] not in TEXT_TYPES:
            raise DataError(f"{name}: column {column!r} holds {kind}, not strings")
    return chosen


def _batch_records(arrays: list[Any], names: list[str], first: int, name: str) -> Records:
    """The records of one batch. Values pass as bytes, so that invalid UTF-8 spoils its own row and no other."""
    values = [array.cast("large_binary").to_pylist() for array in arrays]
    for number, row in enumerate(zip(*values, strict=True), first):
        if None in row:
            yield BadLine(name, number, f"the value of {names[row.index(None)]!r} is null, not a string")
            continue
        try:
            yield Record(number, [decoded_value(value) for value in row])
        except RecordError as error:
            yield BadLine(name, number, str(error))
