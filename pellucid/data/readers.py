"""Records of files: TSV, CSV, JSON lines, Parquet and parallel text, and the columns that are used."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pellucid.config.settings import DataConfig, Format, Header
from pellucid.data.headers import check_names
from pellucid.data.lines import (
    LONGEST_LINE,
    RecordError,
    checked_lines,
    decoded,
    decoded_value,
    file_lines,
    is_blank,
    line_text,
    opened,
)
from pellucid.errors import ConfigError, DataError, abbreviate_reason, nearest, parse_whole_number, quote
from pellucid.files import repeated_key

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
            raise DataError(f"cannot read {path} as Parquet: {abbreviate_reason(error)}") from error


def _rows(lines: Iterable[bytes], name: str, cut: Callable[[str], list[str]]) -> Records:
    """Every column of each line."""
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            yield Record(number, ())
            continue
        try:
            yield Record(number, cut(line_text(line)))
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
            record.fault = record.fault or _csv_reason(abbreviate_reason(error), start, reader.line_num)
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
        _check_keys(line, values)
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
        raise RecordError(f"not valid JSON: {abbreviate_reason(error).removeprefix('JSON is malformed: ')}") from error


def _check_keys(line: bytes, values: dict[str, msgspec.Raw]) -> None:
    """`RecordError` for a key that stands twice: msgspec takes the last value, and says nothing.

    A line has more quotation marks than its keys and values where a key stands twice, or has such a mark in it.
    """
    if line.count(b'"') == 2 * len(values) + sum(bytes(value).count(b'"') for value in values.values()):
        return
    key = repeated_key(line)
    if key is not None:
        raise RecordError(f"the key {quote(key)} stands twice")


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


TABLES = ("tsv", "csv")
"""Formats whose first line may be a header."""
SUFFIXES: dict[str, Format] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


def resolve_format(path: Path, config: DataConfig) -> Format:
    """The format of a file of pairs: the configured one, or for "auto" what its name says (other names are TSV)."""
    return _named_format(path, "tsv") if config.format == "auto" else config.format


def format_to_predict(path: Path, config: DataConfig) -> Format:
    """The format of a file that is not the training file: what its name says, else the configured one, else TSV."""
    return _named_format(path, "tsv" if config.format == "auto" else config.format)


def has_known_name(path: Path) -> bool:
    """Whether the name of a file says its format."""
    return _named_format(path, "auto") != "auto"


def file_records(path: Path, format: Format, columns: Columns) -> Records:
    """The records of a file in a known format."""
    name = str(path)
    match format:
        case "csv":
            return csv_records(file_lines(path), columns, name)
        case "jsonl":
            return json_records(file_lines(path), columns, name)
        case "parquet":
            return parquet_records(path, columns)
        case "text":
            return text_records(file_lines(path), columns, name)
        case "tsv" | "auto":
            return tsv_records(file_lines(path), columns, name)


def parse_records(lines: Iterable[bytes], name: str, format: Format, columns: Columns) -> Records:
    """The records of lines in a known format."""
    lines = checked_lines(lines, name)
    match format:
        case "parquet":
            raise DataError(f"{name} cannot be read as Parquet: give a file, or another --input-format")
        case "csv":
            return csv_records(lines, columns, name)
        case "jsonl":
            return json_records(lines, columns, name)
        case "text":
            return text_records(lines, columns, name)
        case "tsv" | "auto":
            return tsv_records(lines, columns, name)


def parallel_records(source_path: Path, target_path: Path, columns: Columns) -> Records:
    """Line i of one file with line i of the other; `DataError` where one ends before the other."""
    without_target = {role: column for role, column in columns.wanted.items() if role != "target"}
    sources = text_records(file_lines(source_path), Columns(without_target), str(source_path))
    targets = text_records(file_lines(target_path), Columns({"source": "1"}), str(target_path))
    for number, (source, target) in enumerate(zip_longest(sources, targets), 1):
        if source is None or target is None:
            count = number + sum(1 for _ in (sources if target is None else targets))
            counts = (count, number - 1) if target is None else (number - 1, count)
            raise DataError(
                f"{source_path} has {counts[0]} lines, but {target_path} has {counts[1]}: they must pair up"
            )
        if isinstance(source, BadLine) or isinstance(target, BadLine):
            yield source if isinstance(source, BadLine) else target
        elif source.fields or target.fields:
            first, *features = source.fields or [""]
            yield Record(number, [first, *(target.fields or [""]), *features])
        else:
            yield source


def _named_format(path: Path, otherwise: Format) -> Format:
    """The format that the name of a file says, if it says one."""
    name = path.name.lower().removesuffix(".gz")
    return next((format for suffix, format in SUFFIXES.items() if name.endswith(suffix)), otherwise)
