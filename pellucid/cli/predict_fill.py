"""Filling of the empty cells of a column: pellucid predict RUN FILE --fill COLUMN"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pellucid.cli.csv_output import byte_order_mark, format_confidence, name_result_columns
from pellucid.cli.messages import print_message
from pellucid.cli.sources import DecodingNotes, InputLine, escape_text, first_bad_line
from pellucid.config.settings import Format
from pellucid.data.delimiters import format_csv
from pellucid.data.examples import Example
from pellucid.data.lines import open_data_file
from pellucid.data.readers import BadLine, TableCells
from pellucid.decoding.confidence import reaches_confidence
from pellucid.decoding.trace import Trace
from pellucid.errors import ConfigError, DataError, count_noun, quote, suggest

if TYPE_CHECKING:
    from pellucid.cli.backend import PredictionBackend

MAX_FIRST_ROW = 2**20
"""Maximum number of bytes of the first row, whose line end is that of all rows."""
MAX_LISTED = 20
"""Maximum number of rows that cannot be read and are listed."""


class FillOptions(NamedTuple):
    """Column to fill, and which outputs fill it."""

    column: str
    """Name of the column."""
    min_confidence: float | None = None
    """Lowest confidence of an output that fills a cell; None: every output does."""
    has_origin: bool = False
    """Whether rows have the column "origin": lexicon or search."""


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
        self.line_end = _line_end(file)
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


def _line_end(file: Path) -> str:
    """Return the line end of the first row of a file, whose cells may have others; that of Unix for standard input."""
    if str(file) == "-" or not file.is_file():
        return "\n"
    with open_data_file(file) as stream:
        row = line = stream.readline(MAX_FIRST_ROW)
        while line and row.count(b'"') % 2 and len(row) < MAX_FIRST_ROW:
            line = stream.readline(MAX_FIRST_ROW)
            row += line
        return "\r\n" if row.endswith(b"\r\n") else "\n"


def check_rows(lines: Iterable[InputLine], file: Path) -> None:
    """Refuse a file with rows that cannot be read, before anything is written: every row must be in the output.

    Args:
        lines: Rows of the file.
        file: The file, for the message.

    Raises:
        DataError: A row cannot be read. The first such rows are printed.
    """
    num_bad = 0
    for line in lines:
        if isinstance(line, BadLine):
            num_bad += 1
            if num_bad <= MAX_LISTED:
                print_message(str(line))
    if num_bad:
        listed = "" if num_bad <= MAX_LISTED else f"; the first {MAX_LISTED} are listed"
        raise DataError(
            f"{file}: {count_noun(num_bad, 'row')} cannot be read{listed}. --fill writes every row, so nothing is "
            "written: correct them first"
        )


def write_filled_table(
    table: FilledTable, chunks: Iterable[list[InputLine]], backend: "PredictionBackend", notes: DecodingNotes
) -> None:
    """Decode the sources of all rows with an empty cell, and write the table to standard output.

    Args:
        table: Table, with the cells of the chunks.
        chunks: Rows of the input.
        backend: Predictor.
        notes: Counts of the input, which this function increases.

    Raises:
        ConfigError: The input has no header, or its header lacks the column.
        DataError: There is no row, or a row cannot be read or has another number of cells than the header. The rows
            before it are written.
    """
    is_first = True
    for chunk in chunks:
        bad_index = first_bad_line(chunk)
        lines = [item for item in chunk[:bad_index] if isinstance(item, Example)]
        rows = table.pop_rows(len(lines))
        if is_first:
            sys.stdout.write(table.header_row())
            is_first = False
        traces = _decode_empty(table, lines, rows, backend)
        for line, row, trace in zip(lines, rows, traces, strict=True):
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


def _decode_empty(
    table: FilledTable, lines: Sequence[Example], rows: Sequence[Sequence[str]], backend: "PredictionBackend"
) -> Iterator[Trace | None]:
    """Yield the output for each row; None for one whose cell is not empty."""
    is_empty = [table.is_empty(row) for row in rows]
    examples = [line for line, empty in zip(lines, is_empty, strict=True) if empty]
    outputs = iter(backend.for_sources(len(examples)).predict_examples(examples) if examples else [])
    for empty in is_empty:
        yield next(outputs) if empty else None
