"""The page of a worklist: one self-contained HTML file on which rows are decided, without network and server."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib import resources

import msgspec

from pellucid.auditing.characters import PHONETIC_LETTERS, SCRIPTS
from pellucid.auditing.decisions import DECISION_COLUMNS, SOURCE_COLUMN
from pellucid.auditing.text_checks import TextChecks
from pellucid.auditing.types import AuditRecord, Column, ReasonKind
from pellucid.auditing.worklist import format_nats
from pellucid.config.settings import Delimiter
from pellucid.data.delimiters import DELIMITERS
from pellucid.data.examples import OtherColumns
from pellucid.data.tokenizers import TOKENIZER_KINDS
from pellucid.viewer.pages import security_policy

DATA_ELEMENT = '<script type="application/json" id="worklist"></script>'
"""Element of the page for its rows."""
MAX_KIND_ROWS = 200
"""Maximum number of rows of each kind of reason that a page has beside the most suspicious rows."""
MAX_CHECKED_SYMBOLS = 20_000
"""Maximum number of different symbols of a column that a page knows; of a column with more, it knows the characters."""
ENCODING_MARK = '<meta charset="utf-8">'


class WorklistRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the page. Texts are unescaped; the page writes them as text, never as HTML."""

    line: int
    id: str
    source: str
    features: str
    target: str
    target_parts: list[tuple[str, bool]]
    """Parts of the target, each with whether it is marked as different from the output."""
    output: str
    suspicion: str
    kinds: tuple[ReasonKind, ...]
    reasons: list[str]
    others: list[str]
    """Cells of the other columns of the file."""
    has_source_error: bool
    """True if the source has a character-level error, which no other target corrects."""
    source_marks: str
    """Characters of the source that a reason calls mistaken; they are marked with their code points."""
    target_marks: str
    """Characters of the target that a reason calls mistaken."""
    proposed_source: str
    """Source with which a correction begins: with the known repairs of the characters that are a reason."""
    proposed_target: str
    """Target with which a correction begins: with the known repairs of the characters that are a reason."""


class KindCount(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of reason, and how many rows have it."""

    kind: ReasonKind
    shown: int
    """Number of rows of the page."""
    total: int
    """Number of rows of the audit."""


class ColumnChecks(msgspec.Struct, frozen=True, kw_only=True):
    """Checks of new texts of a column by the page, as those of `TextChecks`."""

    kind: str
    """Symbols: "characters", "words", or their separator."""
    normalization: str
    """Unicode normal form of the symbols; empty if there is none."""
    counts: dict[str, int]
    """Number of rows with each symbol."""
    ties: dict[str, int]
    """Number of rows with each pair of tied letters."""
    look_alikes: dict[str, str]
    """Proper character of each look-alike."""
    num_rows: int
    rare_limit: int
    usual: list[str]
    """Kinds of findings that many rows have."""


class WorklistContents(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of the page."""

    name: str
    """Name of the audited file."""
    note: str
    """Which rows the page has, if it has not all."""
    digest: str
    """Checksum of the rows: the browser stores decisions under this name."""
    columns: tuple[str, ...]
    """Columns of the exported decisions."""
    delimiter: str
    """Delimiter of the exported decisions."""
    other_names: list[str]
    """Names of the other columns of the file."""
    kinds: list[KindCount]
    """Kinds of reasons of the rows."""
    rows: list[WorklistRow]
    checks: list[ColumnChecks]
    """Checks of new sources and of new targets; empty for no warnings."""
    scripts: list[str]
    """Scripts of which a word should have one."""
    phonetic_letters: str
    """Letters that belong to several scripts."""


def page_records(records: Sequence[AuditRecord], max_rows: int) -> list[AuditRecord]:
    """Return the records of a page: the first ones, and the first of each kind of reason, in their order.

    Args:
        records: All records of an audit, in their order.
        max_rows: Maximum number of first records, and of each kind, which is at most `MAX_KIND_ROWS`.
    """
    counts, chosen = Counter[ReasonKind](), list[AuditRecord]()
    for number, record in enumerate(records):
        has_rare_kind = any(counts[kind] < min(max_rows, MAX_KIND_ROWS) for kind in record.kinds)
        if number < max_rows or has_rare_kind:
            chosen.append(record)
            counts.update(record.kinds)
    return chosen


def describe_page_rows(num_shown: int, num_records: int, max_rows: int) -> str:
    """Return which rows a page has: "the 1,000 most suspicious of 20,000 rows".

    Args:
        num_shown: Number of rows of the page.
        num_records: Number of all rows, more than `num_shown`.
        max_rows: Maximum number of most suspicious rows of the page.
    """
    if num_shown == max_rows:
        return f"the {num_shown:,} most suspicious of {num_records:,} rows"
    per_kind = min(max_rows, MAX_KIND_ROWS)
    return (
        f"{num_shown:,} of {num_records:,} rows: the {max_rows:,} most suspicious, and up to {per_kind:,} of each "
        "reason"
    )


def worklist_page(
    records: Sequence[AuditRecord],
    name: str,
    max_rows: int,
    others: OtherColumns | None = None,
    delimiter: Delimiter = ",",
    checks: Sequence[TextChecks] = (),
) -> str:
    """Return the page of a worklist. Its security policy allows no network requests.

    Args:
        records: All records of an audit, in their order; the page has those of `page_records`.
        name: Name of the audited file.
        max_rows: Maximum number of most suspicious rows.
        others: Other columns of the audited file, which are shown; None if there is none.
        delimiter: Delimiter of the exported decisions; the comma by default.
        checks: Checks of sources and of targets, for warnings about new texts; none by default.
    """
    others, shown = others or OtherColumns(), page_records(records, max_rows)
    rows = [_page_row(record, others) for record in shown]
    counts, totals = (Counter(kind for record in each for kind in record.kinds) for each in (shown, records))
    note = describe_page_rows(len(rows), len(records), max_rows) if len(rows) < len(records) else ""
    contents = WorklistContents(
        name=name,
        note=f"{note[0].upper()}{note[1:]}." if note else "",
        digest=hashlib.sha256(msgspec.json.encode([name, rows])).hexdigest(),
        columns=(*DECISION_COLUMNS, SOURCE_COLUMN),
        delimiter=DELIMITERS[delimiter],
        other_names=list(others.names),
        kinds=[KindCount(kind=kind, shown=counts[kind], total=totals[kind]) for kind in counts],
        rows=rows,
        checks=[_column_checks(each) for each in checks],
        scripts=[script.capitalize() for script in sorted(SCRIPTS)],
        phonetic_letters="".join(sorted(PHONETIC_LETTERS)),
    )
    page = resources.files("pellucid.auditing").joinpath("worklist.html").read_text(encoding="utf-8")
    policy = escape(security_policy(page, "'none'"))
    page = page.replace(
        ENCODING_MARK, f'{ENCODING_MARK}\n<meta http-equiv="Content-Security-Policy" content="{policy}">', 1
    )
    return page.replace(DATA_ELEMENT, DATA_ELEMENT.replace("></", f">{encode_for_html(contents)}</"), 1)


def encode_for_html(value: msgspec.Struct) -> str:
    r"""Return a value as JSON that no HTML parser takes for the end of its element: `<` is written as \u003c.

    Args:
        value: The value.
    """
    return msgspec.json.encode(value).decode().replace("<", r"\u003c")


def _page_row(record: AuditRecord, others: OtherColumns) -> WorklistRow:
    """Return a record as row of the page."""
    return WorklistRow(
        line=record.line,
        id=record.identifier,
        source=record.example.source,
        features=record.example.features,
        target=record.example.target,
        target_parts=_target_parts(record),
        output=record.output,
        suspicion=format_nats(record.suspicion),
        kinds=record.kinds,
        reasons=[reason.text for reason in record.reasons],
        others=list(others.cells.get(record.line, ())),
        has_source_error=record.has_source_error,
        source_marks=_marked_characters(record, "source"),
        target_marks=_marked_characters(record, "target"),
        proposed_source=_proposed_text(record, "source"),
        proposed_target=_proposed_text(record, "target"),
    )


def _column_checks(checks: TextChecks) -> ColumnChecks:
    """Return checks as the page needs them; of symbols that it cannot split, those of characters."""
    tokenizer = checks.tokenizer
    is_split = tokenizer.kind in ("characters", "words") or tokenizer.kind not in TOKENIZER_KINDS
    by_symbols = is_split and not tokenizer.lowercase and len(checks.counts) <= MAX_CHECKED_SYMBOLS
    return ColumnChecks(
        kind=tokenizer.kind if by_symbols else "characters",
        normalization=tokenizer.normalization.upper() if by_symbols and tokenizer.normalization != "none" else "",
        counts=dict(checks.counts if by_symbols else checks.characters),
        ties=dict(checks.ties),
        look_alikes=checks.look_alikes,
        num_rows=checks.num_rows,
        rare_limit=checks.rare_limit,
        usual=sorted(checks.usual),
    )


def _marked_characters(record: AuditRecord, column: Column) -> str:
    """Return the characters of a source or target that its reasons call mistaken."""
    return "".join(reason.characters for reason in record.reasons if reason.column == column)


def _proposed_text(record: AuditRecord, column: Column) -> str:
    """Return a source or target with the known repairs of the characters that are a reason of its row.

    Exchanged texts are proposed in the other column.
    """
    if "exchanged" in record.kinds:
        return record.example.target if column == "source" else record.example.source
    text: str = getattr(record.example, column)
    reasons = [reason for reason in record.reasons if reason.column == column]
    for mistaken, proper in (replacement for reason in reasons for replacement in reason.replacements):
        text = text.replace(mistaken, proper)
    return text.strip() if any(reason.kind == "surrounding_space" for reason in reasons) else text


def _target_parts(record: AuditRecord) -> list[tuple[str, bool]]:
    """Return the target in parts, of which the one that differs from the output is marked, if it is found."""
    target, given = record.example.target, record.difference.given if record.difference is not None else ""
    start = record.difference.offset if record.difference is not None else 0
    if not given or target[start : start + len(given)] != given:
        return [(target, False)]
    stop = start + len(given)
    parts = [(target[:start], False), (target[start:stop], True), (target[stop:], False)]
    return [part for part in parts if part[0]]
