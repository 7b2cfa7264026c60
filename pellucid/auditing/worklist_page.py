"""The page of a worklist: one self-contained HTML file on which rows are decided, without network and server."""

import hashlib
from collections.abc import Sequence
from html import escape
from importlib import resources

import msgspec

from pellucid.auditing.decisions import DECISION_COLUMNS
from pellucid.auditing.types import AuditRecord, ReasonKind
from pellucid.auditing.worklist import format_nats
from pellucid.config.settings import Delimiter
from pellucid.data.delimiters import DELIMITERS
from pellucid.viewer.pages import security_policy

DATA_ELEMENT = '<script type="application/json" id="worklist"></script>'
"""Element of the page for its rows."""
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
    kinds: list[ReasonKind]
    """Kinds of reasons of the rows."""
    rows: list[WorklistRow]


def worklist_page(records: Sequence[AuditRecord], name: str, num_records: int, delimiter: Delimiter = ",") -> str:
    """Return the page of a worklist. Its security policy allows no network requests.

    Args:
        records: Records of the page, in their order.
        name: Name of the audited file.
        num_records: Number of all records of the audit, of which the page may have the first.
        delimiter: Delimiter of the exported decisions; the comma by default.
    """
    rows = [_page_row(record) for record in records]
    note = "" if len(rows) == num_records else f"The {len(rows):,} most suspicious of {num_records:,} rows."
    contents = WorklistContents(
        name=name,
        note=note,
        digest=hashlib.sha256(msgspec.json.encode([name, rows])).hexdigest(),
        columns=DECISION_COLUMNS,
        delimiter=DELIMITERS[delimiter],
        kinds=list(dict.fromkeys(kind for row in rows for kind in row.kinds)),
        rows=rows,
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


def _page_row(record: AuditRecord) -> WorklistRow:
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
    )


def _target_parts(record: AuditRecord) -> list[tuple[str, bool]]:
    """Return the target in parts, of which the one that differs from the output is marked, if it is found."""
    target, given = record.example.target, record.difference.given if record.difference is not None else ""
    start = record.difference.offset if record.difference is not None else 0
    if not given or target[start : start + len(given)] != given:
        return [(target, False)]
    stop = start + len(given)
    parts = [(target[:start], False), (target[start:stop], True), (target[stop:], False)]
    return [part for part in parts if part[0]]
