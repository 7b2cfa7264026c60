"""Decisions on entries: read from a CSV file, and applied to the audited file, whose other bytes stay as they are."""

import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from pellucid.auditing.characters import quote_visibly
from pellucid.auditing.text_checks import check_column
from pellucid.auditing.types import AuditRecord
from pellucid.config.columns import column_number
from pellucid.config.settings import DataConfig
from pellucid.data.delimiters import DELIMITERS
from pellucid.data.examples import training_columns
from pellucid.data.lines import BYTE_ORDER_MARK, GZIP, check_lines, is_blank, protect_mark
from pellucid.data.readers import (
    TABLE_FORMATS,
    BadLine,
    ColumnSelection,
    Record,
    TableCells,
    find_columns,
    line_records,
    read_records,
    resolve_format,
)
from pellucid.data.tokenizers import build_tokenizers
from pellucid.errors import DataError, list_lines, parse_whole_number, quote
from pellucid.files import follow_links, read_bytes, write_atomic

Action = Literal["replace", "keep", "remove"]
"""Decision on an entry: another target or source, both are right, or the row is removed."""
DECISION_COLUMNS = ("line", "source", "target", "decision", "new_target")
"""Columns of a file of decisions, which a worklist has as well."""
SOURCE_COLUMN = "new_source"
"""Column of new sources, which a file of decisions may lack."""
MAX_LISTED_ERRORS = 5


class Decision(NamedTuple):
    """Decision on one entry."""

    line: int
    source: str
    target: str
    """Target of the entry when it was decided on."""
    action: Action
    new_target: str = ""
    """New target; empty if the target stays as it is."""
    new_source: str = ""
    """New source; empty if the source stays as it is. The action "replace" has a new target, a new source, or both."""


class AppliedDecisions(NamedTuple):
    """Counts of the decisions that were applied."""

    replaced: int
    """Number of new targets."""
    removed: int
    kept: int
    undecided: int
    """Number of rows of the file without a decision."""
    new_sources: int = 0
    """Number of new sources."""
    warnings: tuple[str, ...] = ()
    """Sentences on new targets and sources that may be typing errors."""


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
    bad_lines: dict[int, str]
    """Why a line is bad, by its number."""
    delimiter: str
    """Character that separates the columns."""
    has_quotes: bool
    """Whether cells may be quoted, as in CSV."""
    source_position: int
    """Position of the source among the columns, from 0."""
    target_position: int


def read_decisions(path: Path) -> list[Decision]:
    """Read the decisions of a file; rows whose decision is empty are left out.

    Args:
        path: CSV with the columns of `DECISION_COLUMNS`, in any order, and any others, of which `SOURCE_COLUMN` is
            read; a worklist is one.

    Raises:
        DataError: The file cannot be read, lacks a column, has a row that is not a decision, or two different decisions
            on one line.
    """
    return [decision for _, decision in _numbered_decisions(path)]


def _numbered_decisions(path: Path) -> list[tuple[int, Decision]]:
    """Return the decisions of a file with the numbers of their lines in it; see `read_decisions`."""
    table = TableCells()
    selection = ColumnSelection({name: name for name in DECISION_COLUMNS}, True, cells=table, fixed_names=True)
    decisions: dict[int, tuple[int, Decision]] = {}
    for record in read_records(path, "csv", selection):
        if isinstance(record, BadLine):
            raise DataError(str(record))
        new_source = _new_source(table.rows.popleft(), table.names, str(path))
        decision = _parse_decision(record, new_source, str(path)) if record.fields else None
        if decision is None:
            continue
        _, first = decisions.setdefault(decision.line, (record.line, decision))
        if first != decision:
            raise DataError(f"{path}:{record.line}: a second, different decision on line {decision.line}: keep one")
    return list(decisions.values())


def read_all_decisions(paths: Sequence[Path]) -> list[Decision]:
    """Read the decisions of several files on one file, such as those of several editors.

    Args:
        paths: Files of decisions, each as for `read_decisions`.

    Raises:
        DataError: As in `read_decisions`, or two files decide differently on one line.
    """
    decisions: dict[int, tuple[Decision, str]] = {}
    for path in paths:
        for number, decision in _numbered_decisions(path):
            location = f"{path}:{number}"
            first, first_location = decisions.setdefault(decision.line, (decision, location))
            if first != decision:
                raise DataError(
                    f"{location}: the decision on line {decision.line} is not that of {first_location}: keep one"
                )
    return [decision for decision, _ in decisions.values()]


def _new_source(cells: Sequence[str], names: Sequence[str], name: str) -> str:
    """Return the new source of a row of decisions; empty if there is none, or no such column."""
    if not cells or SOURCE_COLUMN not in names:
        return ""
    if names.count(SOURCE_COLUMN) > 1:
        raise DataError(f"{name}: {names.count(SOURCE_COLUMN)} columns are named {quote(SOURCE_COLUMN)}: keep one")
    return cells[names.index(SOURCE_COLUMN)]


def _parse_decision(record: Record, new_source: str, name: str) -> Decision | None:
    """Return the decision of a row; None if it is empty."""
    line_text, source, target, action_text, new_target = record.fields
    location, word = f"{name}:{record.line}", action_text.strip().lower()
    if not (word or new_target or new_source):
        return None
    action = next((choice for choice in get_args(Action) if choice == word), None)
    if action is None and not word:
        side, text = ("target", new_target) if new_target else ("source", new_source)
        raise DataError(
            f"{location}: the new {side} {quote(text)} has no decision: write replace into the column decision, or "
            "empty the cell"
        )
    if action is None:
        raise DataError(
            f"{location}: the decision is {quote(action_text)}; expected {', '.join(get_args(Action))}, or nothing "
            "for a row without a decision"
        )
    if (action == "replace") != bool(new_target or new_source):
        expected = (
            "needs a new_target or a new_source" if action == "replace" else "has no new_target and no new_source"
        )
        raise DataError(f"{location}: the decision {action} {expected}")
    line = parse_whole_number(line_text.strip())
    if not line:
        raise DataError(f"{location}: the line is {quote(line_text)}; expected a whole number from 1")
    return Decision(line, source, target, action, new_target, new_source)


class DecidedPairs(NamedTuple):
    """Source and target of rows on which earlier decisions are made."""

    kept: frozenset[tuple[str, str]]
    """Pairs that were kept."""
    corrected: frozenset[tuple[str, str]]
    """Pairs after their corrections."""


def read_decided_pairs(paths: Sequence[Path]) -> DecidedPairs:
    """Return source and target of all rows that files of decisions keep, and of those that they correct.

    Args:
        paths: Files of decisions, also on earlier states of the audited file: the lines do not count.

    Raises:
        DataError: As in `read_decisions`.
    """
    decisions = [decision for path in paths for decision in read_decisions(path)]
    return DecidedPairs(
        frozenset((each.source, each.target) for each in decisions if each.action == "keep"),
        frozenset(
            (each.new_source or each.source, each.new_target or each.target)
            for each in decisions
            if each.action == "replace"
        ),
    )


def exclude_decided(records: Sequence[AuditRecord], decided: DecidedPairs) -> list[AuditRecord]:
    """Return the records on which no decision has been made.

    A corrected row is still one of them if it repeats another row, which its correction may have caused.

    Args:
        records: Records of an audit.
        decided: Source and target of the rows with decisions (`read_decided_pairs`).
    """
    return [record for record in records if not _is_decided(record, decided)]


def _is_decided(record: AuditRecord, decided: DecidedPairs) -> bool:
    """Return whether a row was kept, or has become what its correction says."""
    pair = record.example.source, record.example.target
    return pair in decided.kept or (pair in decided.corrected and "duplicate" not in record.kinds)


def apply_decisions(path: Path, data: DataConfig, decisions: Sequence[Decision], output: Path) -> AppliedDecisions:
    """Write a copy of a TSV or CSV file with decisions applied; all other bytes stay as they are.

    Args:
        path: The audited file.
        data: Data settings with which it was audited.
        decisions: Decisions, at most one for each line.
        output: The new file, written atomically; it may be `path` itself.

    Returns:
        The counts, and warnings.

    Raises:
        DataError: The file is not a TSV or CSV, is compressed, or has another source or target than a decision; a line
            with a decision is bad; or a new target or source cannot be written. Nothing is written then.
        RunError: The output cannot be written.
    """
    table = read_audited_table(path, data)
    _check_agreement(path, table, decisions)
    changed: dict[int, bytes] = {}
    has_bom = bool(table.lines) and table.lines[0].startswith(BYTE_ORDER_MARK)  # of a later row, U+FEFF is its text
    for decision in decisions:
        row = table.rows[decision.line]
        if decision.action == "remove":
            changed[row.line] = BYTE_ORDER_MARK if row.line == 1 and has_bom else b""
        elif decision.action == "replace":
            content = b"".join(table.lines[row.line - 1 : row.stop - 1])
            changed[row.line] = _with_new_cells(content, decision, table, str(path))
    warnings = tuple(_typing_warnings(path, data, table.rows, decisions))
    write_atomic(follow_links(output), protect_mark(b"".join(_changed_lines(table, changed)), has_bom))
    actions = Counter(decision.action for decision in decisions)
    num_targets = sum(bool(decision.new_target) for decision in decisions)
    num_sources = sum(bool(decision.new_source) for decision in decisions)
    undecided = len(table.rows) - len(decisions)
    return AppliedDecisions(num_targets, actions["remove"], actions["keep"], undecided, num_sources, warnings)


def _typing_warnings(
    path: Path, data: DataConfig, rows: Mapping[int, TableRow], decisions: Sequence[Decision]
) -> Iterator[str]:
    """Yield warnings about new texts that may be typing errors, compared to the rows that are not changed."""
    tokenizers = build_tokenizers(data)
    changed = {decision.line for decision in decisions if decision.action != "keep"}
    others = [row for row in rows.values() if row.line not in changed]
    for side, tokenizer in (("target", tokenizers.target), ("source", tokenizers.source)):
        checks = check_column([getattr(row, side) for row in others], tokenizer)
        lines_of = defaultdict[str, list[int]](list)
        for decision in decisions:
            for phrase in checks.warnings(getattr(decision, f"new_{side}")):
                lines_of[phrase].append(decision.line)
        for phrase, lines in lines_of.items():
            yield f"{path}: new {side} with {phrase}, in {list_lines(lines)}"


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
        DataError: The file is not a TSV or CSV, is compressed, cannot be read, has more than `MAX_FILE_SIZE` bytes, or
            lacks a column.
    """
    format = resolve_format(path, data)
    if format not in TABLE_FORMATS:
        raise DataError(f"{path}: decisions are applied to TSV and CSV, not to {format}: convert the file first")
    columns = training_columns(data)._replace(cells=(cells := TableCells()))
    content = read_bytes(path, DataError, regular=False)  # once: a pipe has no second reading, and a file may change
    if content.startswith(GZIP):
        raise DataError(f"{path} is compressed with gzip: decompress it, then apply the decisions")
    lines = io.BytesIO(content).readlines()
    records = list(line_records(check_lines(lines, str(path)), format, columns, str(path)))
    stops = [*(record.line for record in records[1:]), len(lines) + 1]
    bad_lines = {record.line: record.reason for record in records if isinstance(record, BadLine)}
    rows = {
        record.line: TableRow(record.line, stop, record.fields[0], record.fields[1])
        for record, stop in zip(records, stops, strict=False)
        if isinstance(record, Record) and record.fields
    }
    delimiter = "\t" if format == "tsv" else DELIMITERS[cells.delimiter]
    source, target = (_position(side, columns, cells, path) for side in ("source", "target"))
    return AuditedTable(lines, rows, bad_lines, delimiter, format == "csv", source, target)


def _position(side: str, columns: ColumnSelection, cells: TableCells, path: Path) -> int:
    """Return the position of the source or the target among the columns of a table, from 0."""
    number = column_number(columns.selected[side])
    if number is not None:
        return number - 1
    return find_columns(columns._replace(selected={side: columns.selected[side]}), cells.names, str(path))[0]


def _check_agreement(path: Path, table: AuditedTable, decisions: Sequence[Decision]) -> None:
    """Raise `DataError` if a decision is about another source or target than the file has, or about a bad line."""
    errors = list[str]()
    for decision in decisions:
        row = table.rows.get(decision.line)
        if decision.line in table.bad_lines:
            errors.append(
                f"{path}:{decision.line}: this line is bad, so that the decision on it cannot be applied; change the "
                f"line in an editor: {table.bad_lines[decision.line]}"
            )
        elif row is None:
            errors.append(f"{path}:{decision.line}: no pair begins in this line, but there is a decision on it")
        elif (row.source, row.target) != (decision.source, decision.target):
            errors.append(
                f"{path}:{decision.line}: the decision is on {quote_visibly(decision.source)} with the target "
                f"{quote_visibly(decision.target)}, but the line has {quote_visibly(row.source)} with "
                f"{quote_visibly(row.target)}"
            )
    if errors:
        more = [f"... and {len(errors) - MAX_LISTED_ERRORS:,} more"] if len(errors) > MAX_LISTED_ERRORS else []
        raise DataError(
            *errors[:MAX_LISTED_ERRORS],
            *more,
            "nothing is written; apply to the audited file, with its --source-column and --target-column, or audit "
            "the file again",
        )


def _with_new_cells(content: bytes, decision: Decision, table: AuditedTable, name: str) -> bytes:
    """Return the bytes of a record with its new target and source."""
    new_cells = dict[int, str]()
    for side, text, position in (
        ("target", decision.new_target, table.target_position),
        ("source", decision.new_source, table.source_position),
    ):
        if "\n" in text or "\r" in text or "\0" in text or (not table.has_quotes and "\t" in text):
            message = f"the new {side} {quote(text)} has a line break, a NUL or a tab"
            raise DataError(f"{name}:{decision.line}: {message}")
        if text:
            new_cells[position] = text
    text = content.decode()
    bom = "\ufeff" if decision.line == 1 and text.startswith("\ufeff") else ""
    body = text.removeprefix(bom)
    spans = cell_spans(body, table.delimiter, table.has_quotes)
    for position in sorted(new_cells, reverse=True):  # the spans before a changed cell stay valid
        start, stop = spans[position]
        body = body[:start] + _format_cell(body[start:stop], new_cells[position], table) + body[stop:]
    if not table.has_quotes and is_blank(body.encode()):
        raise DataError(f"{name}:{decision.line}: with the new texts, the row is a blank line: remove it instead")
    return (bom + body).encode()


def _format_cell(old: str, text: str, table: AuditedTable) -> str:
    """Return a text as a cell, quoted if the old cell is, or if it must be."""
    if not table.has_quotes:
        return text
    needs_quotes = any(mark in text for mark in (table.delimiter, '"'))
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if old.startswith('"') or needs_quotes else text


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
