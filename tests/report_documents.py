"""Helpers that read the document of a written report."""

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from pellucid.viewer.report_schema import ReportDocument

DATA = re.compile(r'<script type="application/json" id="contents">(.*?)</script>', re.DOTALL)
PartKind = TypeVar("PartKind")


def written_document(path: Path) -> ReportDocument:
    """The report in a page, which holds it once, checked against the schema."""
    (data,) = DATA.findall(path.read_text("utf-8"))
    return msgspec.json.decode(data, type=ReportDocument)


def parts_of(document: ReportDocument, kind: type[PartKind], title: str | None = None) -> list[PartKind]:
    """The parts of one kind, under one title if that is given."""
    return [part for part in document.parts if isinstance(part, kind) and title in (None, part.title)]


def titles_of(document: ReportDocument) -> list[str]:
    """The titles of the sections in their order."""
    return list(dict.fromkeys(part.title for part in document.parts))
