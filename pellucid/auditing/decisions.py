"""Decisions on entries: read from a CSV file, and applied to the audited file, whose other bytes stay as they are."""

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from pellucid.config.columns import column_number
from pellucid.config.settings import DataConfig
from pellucid.data.delimiters import DELIMITERS
from pellucid.data.examples import training_columns
from pellucid.data.lines import BYTE_ORDER_MARK, GZIP
from pellucid.data.readers import (
    TABLE_FORMATS,
    BadLine,
    ColumnSelection,
    Record,
    TableCells,
    find_columns,
    read_records,
    resolve_format,
)
from pellucid.errors import DataError, parse_whole_number, quote
from pellucid.files import write_atomic

Action = Literal["replace", "keep", "remove"]
"""Decision on an entry: another target, the target is right, or the row is removed."""
DECISION_COLUMNS = ("line", "source", "target", "decision", "new_target")
"""Columns of a file of decisions, which a worklist has as well."""
MAX_LISTED_ERRORS = 5


class Decision(NamedTuple):
    """Decision on one entry."""

    line: int
    source: str
    target: str
    """Target of the entry when it was decided on."""
    action: Action
    new_target: str = ""
    """New target; empty unless the action is "replace"."""


class AppliedDecisions(NamedTuple):
    """Counts of the decisions that were applied."""

    replaced: int
    removed: int
    kept: int
    undecided: int
    """Number of rows of the file without a decision."""


class TableRow(NamedTuple):
    """One record of the audited file."""

    line: int
    stop: int
    """Number of the line after its last one."""
    source: str
    target: str


class AuditedTable(NamedTuple):
    """A TSV or CSV file as bytes and as records."""

    lines: list[bytes]
    """Lines with their ends; the first one includes a byte order mark."""
    rows: dict[int, TableRow]
    """Records that are pairs, by their first line."""
    delimiter: str
    """Character that separates the columns."""
    has_quotes: bool
    """Whether cells may be quoted, as in CSV."""
    target_position: int
    """Position of the target among the columns, from 0."""


def read_decisions(path: Path) -> list[Decision]:
    """Read the decisions of a file; rows whose decision is empty are left out.

    Args:
        path: CSV with the columns of `DECISION_COLUMNS`, in any order, and any others; a worklist is one.

    Raises:
        DataError: The file cannot be read, lacks a column, has a row that is no decision, or two different decisions on
            one line.
    """
    selection = ColumnSelection({name: name for name in DECISION_COLUMNS}, header=True)
    decisions: dict[int, Decision] = {}
    for record in read_records(path, "csv", selection):
        if isinstance(record, BadLine):
            raise DataError(str(record))
        decision = _parse_decision(record, str(path)) if record.fields else None
        if decision is None:
            continue
        if decisions.setdefault(decision.line, decision) != decision:
            raise DataError(f"{path}:{record.line}: a second, different decision on line {decision.line}: keep one")
    return list(decisions.values())


def _parse_decision(record: Record, name: str) -> Decision | None:
    """Return the decision of a row; None if it is empty."""
    line_text, source, target, action_text, new_target = record.fields
    location, word = f"{name}:{record.line}", action_text.strip().lower()
    if not word and not new_target:
        return None
    action = next((choice for choice in get_args(Action) if choice == word), None)
    if action is None:
        raise DataError(
            f"{location}: the decision is {quote(action_text)}; expected {', '.join(get_args(Action))}, or nothing, "
            "with no new target either, for a row without a decision"
        )
    if (action == "replace") != bool(new_target):
        expected = "needs a new_target" if action == "replace" else "has no new_target"
        raise DataError(f"{location}: the decision {action} {expected}")
    line = parse_whole_number(line_text.strip())
    if not line:
        raise DataError(f"{location}: the line is {quote(line_text)}; expected a whole number from 1")
    return Decision(line, source, target, action, new_target)


def apply_decisions(path: Path, data: DataConfig, decisions: Sequence[Decision], output: Path) -> AppliedDecisions:
    """Write a copy of a TSV or CSV file with decisions applied; all other bytes stay as they are.

    Args:
        path: The audited file.
        data: Data settings with which it was audited.
        decisions: Decisions, at most one for each line.
        output: The new file, written atomically; it may be `path` itself.

    Returns:
        The counts.

    Raises:
        DataError: The file is no TSV or CSV, is compressed, or has another source or target than a decision; or a new
            target cannot be written. Nothing is written then.
        RunError: The output cannot be written.
    """
    table = read_audited_table(path, data)
    _check_agreement(path, table.rows, decisions)
    changed: dict[int, bytes] = {}
    for decision in decisions:
        row = table.rows[decision.line]
        if decision.action == "remove":
            changed[row.line] = BYTE_ORDER_MARK if table.lines[row.line - 1].startswith(BYTE_ORDER_MARK) else b""
        elif decision.action == "replace":
            content = b"".join(table.lines[row.line - 1 : row.stop - 1])
            changed[row.line] = _with_target(content, row, table, decision.new_target, str(path))
    write_atomic(output, b"".join(_changed_lines(table, changed)))
    counts = Counter(decision.action for decision in decisions)
    undecided = len(table.rows) - len(decisions)
    return AppliedDecisions(counts["replace"], counts["remove"], counts["keep"], undecided)


def _changed_lines(table: AuditedTable, changed: Mapping[int, bytes]) -> Iterator[bytes]:
    """Yield the lines of a table, with the content of changed records in place of theirs."""
    number = 1
    while number <= len(table.lines):
        if number in changed:
            yield changed[number]
            number = table.rows[number].stop
        else:
            yield table.lines[number - 1]
            number += 1


def read_audited_table(path: Path, data: DataConfig) -> AuditedTable:
    """Return a TSV or CSV file as bytes and as records.

    Args:
        path: The file.
        data: Data settings.

    Raises:
        DataError: The file is no TSV or CSV, is compressed, cannot be read, or lacks a column.
    """
    format = resolve_format(path, data)
    if format not in TABLE_FORMATS:
        raise DataError(f"{path}: decisions are applied to TSV and CSV, not to {format}: convert the file first")
    columns = training_columns(data)._replace(cells=(cells := TableCells()))
    records = list(read_records(path, format, columns))
    content = path.read_bytes()
    if content.startswith(GZIP):
        raise DataError(f"{path} is compressed with gzip: decompress it, then apply the decisions")
    lines = io.BytesIO(content).readlines()
    stops = [*(record.line for record in records[1:]), len(lines) + 1]
    rows = {
        record.line: TableRow(record.line, stop, record.fields[0], record.fields[1])
        for record, stop in zip(records, stops, strict=False)
        if isinstance(record, Record) and record.fields
    }
    delimiter = "\t" if format == "tsv" else DELIMITERS[cells.delimiter]
    return AuditedTable(lines, rows, delimiter, format == "csv", _target_position(columns, cells, path))


def _target_position(columns: ColumnSelection, cells: TableCells, path: Path) -> int:
    """Return the position of the target among the columns of a table, from 0."""
    number = column_number(columns.selected["target"])
    if number is not None:
        return number - 1
    return find_columns(columns._replace(selected={"target": columns.selected["target"]}), cells.names, str(path))[0]


def _check_agreement(path: Path, rows: Mapping[int, TableRow], decisions: Sequence[Decision]) -> None:
    """Raise `DataError` if a decision is about another source or target than the file has."""
    errors = list[str]()
    for decision in decisions:
        row = rows.get(decision.line)
        if row is None:
            errors.append(f"{path}:{decision.line}: no pair begins in this line, but there is a decision on it")
        elif (row.source, row.target) != (decision.source, decision.target):
            errors.append(
                f"{path}:{decision.line}: the decision is on {quote(decision.source)} with the target "
                f"{quote(decision.target)}, but the line has {quote(row.source)} with {quote(row.target)}"
            )
    if errors:
        more = [f"... and {len(errors) - MAX_LISTED_ERRORS:,} more"] if len(errors) > MAX_LISTED_ERRORS else []
        raise DataError(
            *errors[:MAX_LISTED_ERRORS], *more, "nothing is written; audit the file again, or apply to the audited file"
        )


def _with_target(content: bytes, row: TableRow, table: AuditedTable, target: str, name: str) -> bytes:
    """Return the bytes of a record with another target."""
    location = f"{name}:{row.line}"
    if "\n" in target or "\r" in target or "\0" in target or (not table.has_quotes and "\t" in target):
        raise DataError(f"{location}: the new target {quote(target)} has a line break, a NUL or a tab")
    text = content.decode()
    bom = "\ufeff" if text.startswith("\ufeff") else ""
    spans = cell_spans(text.removeprefix(bom), table.delimiter, table.has_quotes)
    start, stop = spans[table.target_position]
    body = text.removeprefix(bom)
    return (bom + body[:start] + _written_cell(body[start:stop], target, table) + body[stop:]).encode()


def _written_cell(old: str, target: str, table: AuditedTable) -> str:
    """Return a target as a cell, quoted if the old cell is, or if it must be."""
    if not table.has_quotes:
        return target
    needs_quotes = any(mark in target for mark in (table.delimiter, '"'))
    doubled = target.replace('"', '""')
    return f'"{doubled}"' if old.startswith('"') or needs_quotes else target


def cell_spans(text: str, delimiter: str, has_quotes: bool) -> list[tuple[int, int]]:
    """Return the start and the end of each cell of a record, with its quotes and without the line end.

    Args:
        text: The record, which is valid.
        delimiter: Character that separates the cells.
        has_quotes: Whether cells may be quoted, as in CSV.
    """
    body = text.removesuffix("\n").removesuffix("\r")
    quoted = '"(?:[^"]|"")*"|' if has_quotes else ""
    cell = re.compile(f"{quoted}[^{re.escape(delimiter)}]*")
    spans, start = list[tuple[int, int]](), 0
    while True:
        match = cell.match(body, start)
        assert match is not None
        spans.append(match.span())
        if match.end() >= len(body):
            return spans
        start = match.end() + 1
