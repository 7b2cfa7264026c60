"""Reading of the documents of written reports."""

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from pellucid.viewer.report_schema import ReportDocument

CONTENTS_ELEMENT = re.compile(r'<script type="application/json" id="contents">(.*?)</script>', re.DOTALL)
PartType = TypeVar("PartType")


def read_report(path: Path) -> ReportDocument:
    """Return the document of the one report in a page, validated against its schema."""
    (contents,) = CONTENTS_ELEMENT.findall(path.read_text("utf-8"))
    return msgspec.json.decode(contents, type=ReportDocument)


def select_parts(document: ReportDocument, part_type: type[PartType], title: str | None = None) -> list[PartType]:
    """Return the parts of this type, only those with this title if one is given."""
    return [part for part in document.parts if isinstance(part, part_type) and title in (None, part.title)]


def section_titles(document: ReportDocument) -> list[str]:
    """Return the titles of the sections in their order."""
    return list(dict.fromkeys(part.title for part in document.parts))
