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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pellucid.config import Format
from pellucid.data.columns import BadLine, Columns, Record, Records, find_column, find_columns, select
from pellucid.data.lines import (
    LONGEST_LINE,
    RecordError,
    check_ends,
    decoded,
    decoded_value,
    is_blank,
    opened,
    without_end,
)
from pellucid.errors import DataError, abbreviate, quote

LARGEST_FIELD = 2**31 - 1
"""The greatest limit csv takes on every system."""
ROWS_AT_ONCE = 8192
"""Rows of Parquet held at once."""
TEXT_TYPES = {"string", "large_string", "string_view", "binary", "large_binary", "binary_view"}


def tsv_records(lines: Iterable[bytes], columns: Columns, name: str) -> Records:
    """Records of lines whose columns are separated by tabs."""
    return select(_rows(lines, name, lambda text: text.split("\t")), columns, name, "tabs")


def table_width(lines: Iterable[bytes], format: Format, name: str) -> int:
    """How many columns the first record of TSV or CSV has that can be read; 0 where there is none."""
    rows = _csv_rows(lines, name) if format == "csv" else _rows(lines, name, lambda text: text.split("\t"))
    return next((len(row.fields) for row in rows if isinstance(row, Record) and row.fields), 0)


def text_records(lines: Iterable[bytes], columns: Columns, name: str) -> Records:
    """Records of whole lines: each is the source, or where features are wanted, the source, a tab, the features."""
    if "features" in columns.wanted:
        both = Columns({"source": "1", "features": "2"}, alone=columns.alone, most=2)
        return tsv_records(lines, both, name)
    return _rows(lines, name, lambda text: [text])


def csv_records(lines: Iterable[bytes], columns: Columns, name: str) -> Records:
    """Records of comma-separated values; one that spans several lines has the number of the first."""
    return select(_csv_rows(lines, name), columns, name, "commas")


def json_records(lines: Iterable[bytes], columns: Columns, name: str) -> Records:
    """Records of JSON objects, one a line."""
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            yield Record(number, ())
            continue
        try:
            yield Record(number, _json_fields(line, decode, columns))
        except RecordError as error:
            yield BadLine(name, number, str(error))


def parquet_records(path: Path, columns: Columns) -> Records:
    """Records of a Parquet file, read batch by batch; a file that is none, or damaged, is a `DataError`.

    Of a damaged file pyarrow raises its own errors, those of the C++ below it, and that of a name which is no UTF-8.
    """
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with opened(path) as file:
        # Parquet is read from its end, which a pipe or compressed content has not at hand.
        at_hand = isinstance(file.raw, io.FileIO) and file.seekable()
        try:
            table = ParquetFile(file if at_hand else io.BytesIO(file.read()), page_checksum_verification=True)
            named = [(field.name, str(field.type)) for field in table.schema_arrow]
            names = _text_columns(named, columns, str(path))
            first = 1
            for batch in table.iter_batches(ROWS_AT_ONCE, columns=list(dict.fromkeys(names))):
                yield from _batch_records([batch.column(name) for name in names], names, first, str(path))
                first += batch.num_rows
            if first - 1 != table.metadata.num_rows:
                raise DataError(
                    f"cannot read {path} as Parquet: it is damaged: {table.metadata.num_rows:,} rows are told, and "
                    f"{first - 1:,} are there"
                )
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError, RuntimeError, MemoryError, OverflowError) as error:
            told = abbreviate(str(error).partition("\n")[0] or type(error).__name__, 200)
            raise DataError(f"cannot read {path} as Parquet: {told}") from error


def _rows(lines: Iterable[bytes], name: str, cut: Callable[[str], list[str]]) -> Records:
    """Every column of each line."""
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            yield Record(number, ())
            continue
        try:
            if number == 1:
                check_ends(line)
            yield Record(number, cut(without_end(decoded(line))))
        except RecordError as error:
            yield BadLine(name, number, str(error))


def _csv_rows(lines: Iterable[bytes], name: str) -> Records:
    """Every column of each CSV record."""
    record = _CsvRecord(name)
    reader = csv.reader(_csv_lines(lines, record), strict=True)
    while True:
        start = record.begin(reader.line_num + 1)
        # The limit belongs to the whole process, so it is raised for one record and put back.
        limit = csv.field_size_limit(LARGEST_FIELD)
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            record.fault = record.fault or _csv_reason(str(error), start, reader.line_num)
        finally:
            csv.field_size_limit(limit)
        if record.fault:
            yield BadLine(name, start, record.fault)
        else:
            # A line of spaces at most is no field, or one blank field, to csv.
            yield Record(start, fields if len(fields) > 1 or "".join(fields).strip(" \t") else ())


@dataclass
class _CsvRecord:
    """What is known of the CSV record that is being read: a quote may join any number of lines to one."""

    name: str
    line: int = 0
    size: int = 0
    fault: str = ""
    """What is wrong with the first of its lines that is no text."""

    def begin(self, line: int) -> int:
        """Forget the record before; the line in which this one starts."""
        self.line, self.size, self.fault = line, 0, ""
        return line

    def add(self, line: bytes) -> None:
        """Count a line; `DataError` where the record is longer than any line may be."""
        self.size += len(line)
        if self.size > LONGEST_LINE:
            raise DataError(
                f"{self.name}:{self.line}: the record has more than {LONGEST_LINE:,} bytes: is a quote missing?"
            )


def _csv_lines(lines: Iterable[bytes], record: _CsvRecord) -> Iterator[str]:
    """Lines as text, ends kept. What is wrong with one is noted, for csv must still see where its record ends."""
    for line in lines:
        record.add(line)
        try:
            yield decoded(line)
        except RecordError as error:
            record.fault = record.fault or str(error)
            yield line.decode(errors="replace")


def _csv_reason(error: str, start: int, end: int) -> str:
    """csv's own message, and which lines are lost where a quote has joined several."""
    what = "a carriage return outside quotes, which ends no line" if error.startswith("new-line") else error
    joined = f"; lines {start} to {end} were read as one record: is a quote missing?" if end > start else ""
    return f"not valid CSV: {what}{joined}"


def _json_fields(line: bytes, decode: Callable[[bytes], dict[str, msgspec.Raw]], columns: Columns) -> list[str]:
    """The wanted values of one JSON object; the others are not converted, so that any number may stand there."""
    decoded(line)
    try:
        values = _json_object(line, decode)
        keys = list(values)
        fields = []
        for role, column in columns.wanted.items():
            key = keys[find_column(role, column, keys)]
            value = bytes(values[key])
            if not value.startswith(b'"'):
                raise RecordError(f"the value of {quote(key)} is {_kind(value)}, not a string")
            fields.append(msgspec.json.decode(value, type=str))
        return fields
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecordError(f"not valid JSON: {str(error).removeprefix('JSON is malformed: ')}") from error


def _json_object(line: bytes, decode: Callable[[bytes], dict[str, msgspec.Raw]]) -> dict[str, msgspec.Raw]:
    """The keys and values of one JSON object; `RecordError` for another value, msgspec's errors for no JSON."""
    try:
        return decode(line)
    except msgspec.ValidationError as error:
        msgspec.json.decode(line, type=msgspec.Raw)
        raise RecordError(f"expected a JSON object, got {_kind(line)}") from error


def _kind(value: bytes) -> str:
    """What JSON calls a value, which its first byte tells."""
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


def _text_columns(named: Sequence[tuple[str, str]], columns: Columns, name: str) -> list[str]:
    """The names of the wanted columns of a table, given the name and type of each, if they hold text."""
    names = [column for column, _ in named]
    chosen = [names[position] for position in find_columns(columns, names, name)]
    for column, kind in named:
        if column in chosen and names.count(column) > 1:
            raise DataError(f"{name}: {names.count(column)} columns are named {quote(column)}")
        if column in chosen and kind.removeprefix("dictionary<values=").partition(",")[0] not in TEXT_TYPES:
            raise DataError(f"{name}: column {quote(column)} holds {kind}, not strings")
    return chosen


def _batch_records(arrays: list[Any], names: list[str], first: int, name: str) -> Records:
    """The records of one batch. Values pass as bytes, so that invalid UTF-8 spoils its own row and no other."""
    values = [array.cast("large_binary").to_pylist() for array in arrays]
    for number, row in enumerate(zip(*values, strict=True), first):
        if None in row:
            yield BadLine(name, number, f"the value of {quote(names[row.index(None)])} is null, not a string")
            continue
        try:
            yield Record(number, [decoded_value(value) for value in row])
        except RecordError as error:
            yield BadLine(name, number, str(error))
