"""CSV output of predict and score: the columns of the input, then the columns of the results."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from pellucid.cli.sources import InputLine, escape_text
from pellucid.config.settings import Format
from pellucid.data.delimiters import format_csv
from pellucid.data.examples import Example
from pellucid.data.lines import BYTE_ORDER_MARK, open_data_file
from pellucid.data.readers import TableCells
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError, quote

MAX_FIRST_ROW = 2**20
"""Maximum number of bytes of the first row, whose line end is that of all rows."""


def byte_order_mark(path: Path) -> str:
    """Return the byte order mark with which a file begins, by which spreadsheets recognize UTF-8; "" if it has none.

    Args:
        path: The file; an input that is not a regular file, and "-", can be read only once and count as without.

    Raises:
        DataError: The file cannot be read.
    """
    if str(path) == "-" or not path.is_file():
        return ""
    with open_data_file(path) as file:
        return BYTE_ORDER_MARK.decode() if file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else ""


def line_end(path: Path, format: Format) -> str:
    """Return the line end of the first row of a file, whose cells may have others; that of Unix for other inputs.

    Args:
        path: The file; an input that is not a regular file, and "-", can be read only once.
        format: Its format. Only cells of CSV may have line ends, between quotation marks; in TSV, no character has a
            special meaning.

    Raises:
        DataError: The file cannot be read.
    """
    if str(path) == "-" or not path.is_file():
        return "\n"
    with open_data_file(path) as stream:
        row = line = stream.readline(MAX_FIRST_ROW)
        while format == "csv" and line and row.count(b'"') % 2 and len(row) < MAX_FIRST_ROW:
            line = stream.readline(MAX_FIRST_ROW)
            row += line
        return "\r\n" if row.endswith(b"\r\n") else "\n"


def name_result_columns(results: Iterable[str], names: Collection[str]) -> list[str]:
    """Return the names of the columns of results; a name that is taken gets the prefix "predicted_", until it is free.

    Args:
        results: Names of the results.
        names: Names of the columns of the input.
    """
    named = list[str]()
    for result in results:
        while result in names or result in named:
            result = f"predicted_{result}"
        named.append(result)
    return named


def format_confidence(trace: Trace) -> str:
    """Return the confidence of an output for a table; "" if it has none.

    Args:
        trace: The output.
    """
    return "" if trace.confidence is None else f"{trace.confidence:.6f}"


def format_score(trace: Trace) -> str:
    """Return the log-probability of an output by the network for a table; "" before its first validation.

    Args:
        trace: The output.
    """
    return f"{trace.score:.6f}" if trace.has_trained_network else ""


class CsvOutput:
    """Formats results as CSV. Each row has the cells of its input line, unchanged, and one result.

    The first row names the columns. Those of an input without header are named "source", or by their numbers. The
    delimiter is that of the input.
    """

    def __init__(
        self,
        cells: TableCells,
        result_names: Sequence[str],
        escape: bool = False,
        bom: str = "",
        names: Sequence[str] = (),
    ) -> None:
        """Set the columns of the results.

        Args:
            cells: Cells of the input, which the reader fills. An input that is not a table has none: its only column is
                then the source.
            result_names: Names of the columns of a result. A name that is a column of the input gets the prefix
                "predicted_".
            escape: Whether to escape control characters, for a terminal; False by default, which changes no cell.
            bom: Byte order mark at the beginning (`byte_order_mark`); none by default.
            names: Names of the columns of the input, if the row of names is written already (`begin`); empty by
                default.
        """
        self.cells = cells
        self.result_names = result_names
        self.escape = escape
        self.bom = bom
        self.names = list(names)

    def begin(self) -> str:
        """Return the byte order mark and the row of names, and keep the names of the columns.

        The cells of the first lines determine the names of an input without header.
        """
        return self.bom + self._format([self._header()])

    def rows(self, item: InputLine, results: Sequence[Sequence[str]]) -> str:
        """Return the rows of the next input line; before those of the first line, the row of names.

        Args:
            item: Input line.
            results: Results of this line, each with one cell per name. Without results, the line has one row whose
                cells of results are empty.

        Returns:
            Lines of CSV, each with its line end. A bad line has its first cells, as many as there are names.

        Raises:
            DataError: Without header, a line has more columns than the first lines, which determined the names.
        """
        header = "" if self.names else self.begin()
        width = len(self.names)
        cells = list(self.cells.rows.popleft()) if self.cells.rows else []
        if not cells and isinstance(item, Example):
            cells = [item.source]
        if len(cells) == 1 and isinstance(item, Example):
            cells = [""] * min(self.cells.source_position, width - 1) + cells
        if len(cells) > width and isinstance(item, Example):
            raise DataError(
                f"the line of the source {quote(item.source)} has {len(cells)} columns, and the first lines have "
                f"{width}: give a file in which all lines have as many columns, or another --output-format"
            )
        cells = (cells + [""] * width)[:width]
        empty = [[""] * len(self.result_names)]
        return header + self._format([[*cells, *result] for result in results or empty])

    def _header(self) -> list[str]:
        """Return the names of all columns, and keep those of the input."""
        self.names = list(self.cells.names)
        if not self.names:
            width = max((len(row) for row in self.cells.rows), default=1) or 1
            self.names = [f"column_{number}" for number in range(1, width + 1)]
            self.names[min(self.cells.source_position, width - 1)] = "source"
        return [*self.names, *name_result_columns(self.result_names, self.names)]

    def _format(self, rows: Sequence[Sequence[str]]) -> str:
        """Return rows as lines of CSV."""
        shown = [[escape_text(cell) for cell in row] for row in rows] if self.escape else rows
        return format_csv(shown, self.cells.delimiter)
