"""Filling of the empty cells of a column: pellucid predict RUN FILE --fill COLUMN"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pellucid.cli.csv_output import byte_order_mark, format_confidence, line_end, name_result_columns
from pellucid.cli.messages import print_message
from pellucid.cli.sources import DecodingNotes, InputLine, escape_text, first_bad_line
from pellucid.config.settings import Format
from pellucid.data.delimiters import format_csv
from pellucid.data.examples import Example
from pellucid.data.lines import open_data_file
from pellucid.data.readers import MAX_LISTED_BAD_LINES, BadLine, TableCells
from pellucid.decoding.confidence import reaches_confidence
from pellucid.decoding.trace import Trace
from pellucid.errors import ConfigError, DataError, count_noun, quote, suggest

if TYPE_CHECKING:
    from pellucid.cli.backend import PredictionBackend


class FillOptions(NamedTuple):
    """Column to fill, and which outputs fill it."""

    column: str
    """Name of the column."""
    min_confidence: float | None = None
    """Lowest confidence of an output that fills a cell; None: every output does."""
    has_origin: bool = False
    """Whether rows have the column "origin": lexicon, search or pair_ngram."""


class FilledTable:
    """A table in which outputs fill the empty cells of one column; all other cells stay as they are.

    Columns are added at its end: the confidence of the output, and on request its origin. They are empty in rows whose
    cell was not empty. Blank lines stay blank. Delimiter, byte order mark and line ends are those of the input.
    """

    def __init__(self, cells: TableCells, options: FillOptions, file: Path, format: Format) -> None:
        """Set the table.

        Args:
            cells: Cells of the input, which the reader fills.
            options: Column to fill.
            file: Input file, or "-" for standard input.
            format: Its format.
        """
        self.cells = cells
        self.options = options
        self.format = format
        self.escape = sys.stdout.isatty()
        self.bom = byte_order_mark(file)
        self.line_end = line_end(file, format)
        self.position = -1
        """Position of the column, from 0; -1 before the first row."""
        self.num_filled = self.num_empty = self.num_kept = 0
        """Numbers of filled cells, of cells that stay empty, and of cells that were not empty."""

    def pop_rows(self, count: int) -> list[list[str]]:
        """Remove the next rows, and return their cells: as many in each as the header has, none in a blank line.

        Args:
            count: Number of rows.

        Raises:
            ConfigError: The input has no header, or its header lacks the column.
        """
        if self.position < 0:
            self.position = self._find_column()
        rows = [list(self.cells.rows.popleft()) for _ in range(count)]
        width = len(self.cells.names)
        return [row and row + [""] * (width - len(row)) for row in rows]

    def is_empty(self, row: Sequence[str]) -> bool:
        """Return whether the cell of a row in the column to fill is empty, or has spaces only; False for a blank line.

        Args:
            row: Cells of the row.
        """
        return bool(row) and not row[self.position].strip()

    def header_row(self) -> str:
        """Return the line with the names of the columns."""
        names = ["confidence", *(["origin"] if self.options.has_origin else [])]
        return self.bom + self.format_row([*self.cells.names, *name_result_columns(names, self.cells.names)])

    def fill_row(self, row: Sequence[str], trace: Trace | None) -> list[str]:
        """Return the cells of a row with those of the added columns, and count its cell.

        Args:
            row: Cells of the row; none for a blank line, which has no cell to count.
            trace: Output for its source; None if the cell was not empty.
        """
        if not row:
            return []
        cells, has_origin = list(row), self.options.has_origin
        if trace is None or not trace.source:
            self.num_kept += trace is None
            self.num_empty += trace is not None
            return [*cells, "", *([""] if has_origin else [])]
        lowest = self.options.min_confidence
        if trace.output and (lowest is None or reaches_confidence(trace, lowest)):
            # TSV has no quotes: a tab or a line break in an output would end the cell.
            cells[self.position] = escape_text(trace.output) if self.format == "tsv" else trace.output
        is_filled = bool(cells[self.position].strip())
        self.num_filled += is_filled
        self.num_empty += not is_filled
        return [*cells, format_confidence(trace), *([trace.origin] if has_origin else [])]

    def format_row(self, row: Sequence[str]) -> str:
        """Return a row as a line of the format of the input.

        Args:
            row: Cells of the row.
        """
        cells = [escape_text(cell) for cell in row] if self.escape else row
        if self.format == "tsv":
            return "\t".join(cells) + self.line_end
        return format_csv([cells], self.cells.delimiter, self.line_end)

    def write_unchanged(self, row: bytes) -> None:
        """Write a row that cannot be read to standard output, byte for byte unless that is a terminal.

        Args:
            row: The row, with its line end.
        """
        if self.escape:
            sys.stdout.write(escape_text(row.decode(errors="replace").rstrip("\r\n")) + self.line_end)
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(row)

    def describe(self) -> str:
        """Return a message with the numbers of cells."""
        kept = f"{count_noun(self.num_kept, 'row')} unchanged" if self.num_kept else "no row had one before"
        rest = f", {count_noun(self.num_empty, 'cell')} left empty" if self.num_empty else ""
        return f"{count_noun(self.num_filled, 'cell')} of {quote(self.options.column)} filled{rest}; {kept}"

    def _find_column(self) -> int:
        """Return the position of the column to fill."""
        column, names = self.options.column, list(self.cells.names)
        if not names:
            raise ConfigError(
                "--fill needs a CSV or TSV file whose first line names the columns; if it has one, add --header"
            )
        if column not in names:
            raise ConfigError(f"--fill: the file has no column {quote(column)}{suggest(column, names)}")
        if names.count(column) > 1:
            raise ConfigError(f"--fill: {names.count(column)} columns are named {quote(column)}: rename all but one")
        position = names.index(column)
        if position == self.cells.source_position:
            raise ConfigError(f"--fill: {quote(column)} is the column of the sources; name that of the targets")
        return position


def check_rows(lines: Iterable[InputLine], file: Path, on_bad_line: Literal["stop", "skip"] = "stop") -> None:
    """Find the rows of a file that cannot be read, before anything is written: every row must be in the output.

    The first ones are printed.

    Args:
        lines: Rows of the file.
        file: The file, for the message.
        on_bad_line: "stop", the default, refuses a file with such rows.

    Raises:
        DataError: A row cannot be read, and `on_bad_line` is "stop".
    """
    num_bad = 0
    for line in lines:
        if isinstance(line, BadLine):
            num_bad += 1
            if num_bad <= MAX_LISTED_BAD_LINES:
                print_message(str(line))
    if num_bad and on_bad_line == "stop":
        listed = "" if num_bad <= MAX_LISTED_BAD_LINES else f"; the first {MAX_LISTED_BAD_LINES} are listed"
        raise DataError(
            f"{file}: {count_noun(num_bad, 'row')} cannot be read{listed}. --fill writes every row, so nothing "
            "is written: correct them first, or write them as they are with --on-bad-line skip"
        )


class RowReader:
    """Reads rows of a file as bytes, with their line ends. It is opened with the first row, and read once."""

    def __init__(self, file: Path, first_lines: Iterable[int]) -> None:
        """Begin before the first row.

        Args:
            file: The file.
            first_lines: First line of each row of the file, in their order.
        """
        self.file = file
        self._lines = self._read_lines()
        self._num_read = 0
        """Number of lines that were read."""
        self._first_lines = iter(first_lines)
        self._first_line: int | None = 0

    def read(self, first_line: int) -> bytes:
        """Return a row.

        Args:
            first_line: Its first line, behind the rows that were read earlier.

        Raises:
            DataError: The file cannot be read, or has no such row: it has changed.
        """
        while self._first_line is not None and self._first_line < first_line:
            self._first_line = next(self._first_lines, None)
        if self._first_line == first_line:
            self._first_line = next(self._first_lines, None)
            for _ in self._next_lines(first_line - 1):
                pass
            row = b"".join(self._next_lines(None if self._first_line is None else self._first_line - 1))
            if row:
                return row
        raise DataError(f"{self.file} has changed while it was read: run the command again")

    def _next_lines(self, last: int | None) -> Iterator[bytes]:
        """Yield the next lines of the file up to a number; None is the last one."""
        for line in islice(self._lines, None if last is None else last - self._num_read):
            self._num_read += 1
            yield line

    def _read_lines(self) -> Iterator[bytes]:
        """Yield the lines of the file."""
        with open_data_file(self.file) as stream:
            yield from stream


def write_filled_table(
    table: FilledTable,
    chunks: Iterable[list[InputLine]],
    backend: "PredictionBackend",
    notes: DecodingNotes,
    bad_rows: RowReader | None = None,
) -> None:
    """Decode the sources of all rows with an empty cell, and write the table to standard output.

    Args:
        table: Table, with the cells of the chunks.
        chunks: Rows of the input.
        backend: Predictor.
        notes: Counts of the input, which this function increases.
        bad_rows: Reader of the file for rows that cannot be read, which are written as they are; None, the default,
            to stop at one.

    Raises:
        ConfigError: The input has no header, or its header lacks the column.
        DataError: There is no row, the file has changed, or a row cannot be read or has another number of cells than
            the header. The rows before it are written.
    """
    is_first, num_bad = True, 0
    for chunk in chunks:
        bad_index = first_bad_line(chunk) if bad_rows is None else None
        items = chunk[:bad_index]
        lines = [item for item in items if isinstance(item, Example)]
        cells = table.pop_rows(len(items))  # a row that cannot be read has none
        rows = [row for item, row in zip(items, cells, strict=True) if isinstance(item, Example)]
        if is_first:
            sys.stdout.write(table.header_row())
            is_first = False
        decoded = zip(lines, rows, _decode_empty(table, lines, rows, backend), strict=True)
        for item in items:
            if isinstance(item, BadLine):
                assert bad_rows is not None
                table.write_unchanged(bad_rows.read(item.line))
                num_bad += 1
                continue
            line, row, trace = next(decoded)
            notes.count_line(line, trace)
            sys.stdout.write(table.format_row(table.fill_row(row, trace)))
        sys.stdout.flush()
        if bad_index is not None:
            raise DataError(
                f"{chunk[bad_index]} (--fill writes every row, and stops at one that it cannot read: the output ends "
                "before it)"
            )
    if is_first:
        raise DataError(
            "--fill: the input has no row. A shell that writes the output to the file of the input empties it first: "
            "write to another file"
        )
    print_message(table.describe())
    if num_bad:
        print_message(f"{count_noun(num_bad, 'row')} that cannot be read, written as in the input")


def _decode_empty(
    table: FilledTable, lines: Sequence[Example], rows: Sequence[Sequence[str]], backend: "PredictionBackend"
) -> Iterator[Trace | None]:
    """Yield the output for each row; None for one whose cell is not empty."""
    is_empty = [table.is_empty(row) for row in rows]
    examples = [line for line, empty in zip(lines, is_empty, strict=True) if empty]
    outputs = iter(backend.for_sources(len(examples)).predict_examples(examples) if examples else [])
    for empty in is_empty:
        yield next(outputs) if empty else None
