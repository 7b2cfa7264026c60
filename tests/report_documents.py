"""Helpers that read the document of a written report."""

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from pellucid.viewer.report_schema import ReportDocument

CONTENTS_ELEMENT = re.compile(r'<script type="application/json" id="contents">(.*?)</script>', re.DOTALL)
PartType = TypeVar("PartType")


def read_report(path: Path) -> ReportDocument:
    """The report in a page, which holds it once, checked against the schema."""
    (data,) = CONTENTS_ELEMENT.findall(path.read_text("utf-8"))
    return msgspec.json.decode(data, type=ReportDocument)


def select_parts(document: ReportDocument, part_type: type[PartType], title: str | None = None) -> list[PartType]:
    """The parts of one kind, under one title if that is given."""
    return [part for part in document.parts if isinstance(part, part_type) and title in (None, part.title)]


def section_titles(document: ReportDocument) -> list[str]:
    """The titles of the sections in their order."""
    return list(dict.fromkeys(part.title for part in document.parts))
