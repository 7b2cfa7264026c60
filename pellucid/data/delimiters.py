"""CSV files: their delimiter if the user does not say which one, and rows as lines of CSV.

The comma is the default. Another delimiter is used only if the first lines clearly have it; where two are possible,
reading stops with an error that names the flag.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import NamedTuple

from pellucid.config.settings import Delimiter, Format
from pellucid.data.csv_parser import CsvError, csv_reader
from pellucid.data.lines import MAX_COLUMNS, RecordError, decode_line
from pellucid.errors import DataError

DELIMITERS: dict[Delimiter, str] = {",": ",", ";": ";", "tab": "\t", "|": "|"}
"""Character of each delimiter. The first one is the default."""
DELIMITER_NAMES: dict[Delimiter, str] = {",": "commas", ";": "semicolons", "tab": "tabs", "|": "vertical bars"}
"""Name of each delimiter in messages."""
MAX_SAMPLE_LINES = 50
"""Maximum number of lines from which the delimiter of a file is detected."""
MAX_SAMPLE_BYTES = 2**20
"""Number of bytes after which no further line is used."""
MAX_NAME_LENGTH = 2**16
"""Number of characters of a cell of the first record that are compared with the names of columns."""
MIN_CONSISTENT_FRACTION = 0.9
"""Minimum fraction of the first records with as many columns as the first one."""


class ExpectedColumns(NamedTuple):
    """Columns that a CSV file should have, as far as they are known before it is read."""

    names: frozenset[str] = frozenset()
    """Names of the columns that are selected by name."""
    has_header: bool = False
    """Whether the first record names the columns."""
    min_columns: int = 1
    """Minimum number of columns: the largest number of a selected one."""
    is_list_allowed: bool = False
    """Whether the file may be a list of sources, one per record (in prediction)."""
    num_training_columns: int = 0
    """Number of columns of the training file; 0 if it is unknown."""
    symbol_separator: str = ""
    """Separator of the symbols of a source; in a list of sources, it is not a delimiter."""


class _Table(NamedTuple):
    """First records of a file, parsed with one delimiter."""

    first: Sequence[str]
    """Beginnings of the cells of the first record that is not blank; none if it cannot be parsed."""
    consistent_fraction: float
    """Fraction of the records with as many columns as the first one."""

    def has_consistent_columns(self) -> bool:
        """Return whether the records have at least two columns, and nearly all the same number."""
        return len(self.first) > 1 and self.consistent_fraction >= MIN_CONSISTENT_FRACTION


def has_effect(delimiter: Delimiter, format: Format) -> bool:
    """Return whether a delimiter that the user gives has an effect on a file of a format: CSV, or TSV with tabs.

    Args:
        delimiter: The delimiter, not "auto".
        format: Format of the file.
    """
    return format == "csv" or (format, delimiter) == ("tsv", "tab")


def detect_delimiter(lines: Sequence[bytes], expected: ExpectedColumns, name: str, advice: str = "") -> Delimiter:
    """Return the delimiter of CSV.

    With a header that should contain names of columns: the delimiter with which the first record contains them. Else
    the comma, if it gives enough columns, the same number in nearly all records, or if no other delimiter does so; else
    the only other delimiter that does. If another delimiter gives at least as many columns as the comma, the same
    number in all records, as in "1,5;one", it is not clear.

    Args:
        lines: The first lines.
        expected: The columns that the file should have.
        name: Name of the file, for messages.
        advice: What to do if the delimiter is not clear; by default, to give a flag.

    Raises:
        DataError: Two delimiters are possible, or the file may be a list of sources.
    """
    tables = {delimiter: _parse(lines, character) for delimiter, character in DELIMITERS.items()}
    if expected.names and expected.has_header:
        return _delimiter_of_header(tables, expected.names, name, advice)
    comma = tables[","]
    min_columns = max(2, expected.min_columns)
    fits = len(comma.first) >= min_columns
    others = [key for key, table in tables.items() if key != "," and len(table.first) >= min_columns]
    consistent = [key for key in others if tables[key].has_consistent_columns()]
    rivals = [
        key for key in consistent if tables[key].consistent_fraction == 1 and len(tables[key].first) >= len(comma.first)
    ]
    if fits and comma.consistent_fraction >= MIN_CONSISTENT_FRACTION and rivals:
        raise DataError(_unclear_message(rivals, name, advice))
    if not others or (fits and (comma.consistent_fraction >= MIN_CONSISTENT_FRACTION or not consistent)):
        return ","
    if expected.is_list_allowed and not fits:
        consistent = [key for key in consistent if DELIMITERS[key] != expected.symbol_separator]
        if not consistent:
            return ","
        if expected.names:  # the file is a table without header, from which no column can be selected by name
            return consistent[0]
        count = len(tables[consistent[0]].first)
        if len(consistent) > 1 or count != expected.num_training_columns:
            raise DataError(_list_message(consistent[0], count, name))
        return consistent[0]
    if len(consistent) != 1 or (fits and tables[consistent[0]].consistent_fraction < 1):
        raise DataError(_unclear_message(consistent or others, name, advice))
    return consistent[0]


def check_delimiter(delimiter: Delimiter, line: bytes, names: frozenset[str], name: str) -> None:
    """Check the first line of a file that may be a list of sources: no other delimiter may give it several columns.

    Args:
        delimiter: The delimiter that was given.
        line: The first line that is not blank.
        names: Names of the columns that are selected by name.
        name: Name of the file, for messages.

    Raises:
        DataError: With another delimiter the line has several columns, and with this one only one, which is none of the
            names.
    """
    tables = {key: _parse([line], character) for key, character in DELIMITERS.items()}
    if len(tables[delimiter].first) != 1 or names.issuperset(tables[delimiter].first):
        return
    others = [key for key, table in tables.items() if len(table.first) > 1]
    if others:
        raise DataError(
            f"{name}: the first line has one column with --delimiter '{delimiter}', but {DELIMITER_NAMES[others[0]]} "
            f"seem to separate its columns: give --delimiter '{others[0]}' (data.delimiter), or --input-format text if "
            "each line is one source"
        )


def _delimiter_of_header(tables: dict[Delimiter, _Table], names: frozenset[str], name: str, advice: str) -> Delimiter:
    """Return the delimiter with which the first record contains the names.

    If there is none, the delimiter with which the record looks most like a header, so that the error lists its columns.
    """
    found = [delimiter for delimiter, table in tables.items() if names.issubset(table.first)]
    if len(found) > 1 and "," not in found:
        raise DataError(_unclear_message(found, name, advice))
    if found:
        return found[0]
    if len(tables[","].first) > 1:
        return ","
    return max(tables, key=lambda key: (tables[key].has_consistent_columns(), len(tables[key].first)))


def _unclear_message(delimiters: Sequence[Delimiter], name: str, advice: str) -> str:
    """Return the error message for a file in which other delimiters than the comma are possible."""
    listed = " or ".join(["commas", *(DELIMITER_NAMES[delimiter] for delimiter in delimiters)])
    flags = " or ".join(f"--delimiter '{delimiter}'" for delimiter in [*delimiters, ","])
    return f"{name}: it is not clear whether {listed} separate the columns: " + (
        advice or f"give {flags} (data.delimiter)"
    )


def _list_message(delimiter: Delimiter, count: int, name: str) -> str:
    """Return the error message for a file that may be a table or a list of sources."""
    return (
        f"{name}: it is not clear whether each line is one source, or has {count} columns with "
        f"{DELIMITER_NAMES[delimiter]} between them: give --delimiter '{delimiter}' (data.delimiter) for columns, "
        "--input-format text for sources"
    )


def describe_delimiter(delimiter: Delimiter) -> str:
    """Return a note about a detected delimiter: "semicolons separate the columns"; "" for the comma.

    Args:
        delimiter: The delimiter.
    """
    return "" if delimiter == "," else f"{DELIMITER_NAMES[delimiter]} separate the columns"


def format_csv(rows: Iterable[Sequence[str]], delimiter: Delimiter = ",", line_end: str = "\n") -> str:
    """Return rows as lines of CSV.

    Args:
        rows: Cells of each row.
        delimiter: Delimiter; the comma by default.
        line_end: Line end; that of Unix by default.
    """
    lines = list[str]()
    # With "\r\n" as its line end, the writer quotes cells with any character of a line end; with "\n", Python 3.11
    # and 3.12 write a carriage return without quotes, which ends the row for readers.
    file = SimpleNamespace(write=lines.append)
    csv.writer(file, delimiter=DELIMITERS[delimiter], lineterminator="\r\n").writerows(rows)
    return "".join(line.removesuffix("\r\n") + line_end for line in lines)


def _parse(lines: Sequence[bytes], character: str) -> _Table:
    """Return the records of some lines; a last one that ends after them does not count."""
    widths, first = list[int](), list[str]()
    for fields in _rows(lines, character):
        if not widths:
            first = [field[:MAX_NAME_LENGTH] for field in fields]  # a long line would be held once for each delimiter
        widths.append(len(fields))
    return _Table(first, sum(width == len(first) for width in widths) / len(widths) if widths else 0.0)


def _is_text(line: bytes) -> bool:
    """Return whether a line is valid text."""
    try:
        decode_line(line)
    except RecordError:
        return False
    return True


def _rows(lines: Sequence[bytes], character: str) -> Iterator[list[str]]:
    """Yield the records of some lines that are not blank; one that is not valid CSV has no fields."""
    if lines and not _is_text(lines[0]):  # reading the records reports it
        return
    # A line with more delimiters is not divided. Reading the records refuses it if this is the delimiter.
    counts = accumulate(line.count(character.encode()) for line in lines)
    lines = lines[: sum(count <= MAX_COLUMNS for count in counts)]
    reader = csv_reader((line.decode(errors="replace") for line in lines), character)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except CsvError:
            if reader.line_num < len(lines):
                yield []
            continue
        if len(fields) > 1 or "".join(fields).strip(" \t"):
            yield fields
