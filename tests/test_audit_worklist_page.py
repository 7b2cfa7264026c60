"""auditing/worklist_page.py: one self-contained file with escaped contents."""

import json
import re
from dataclasses import replace
from typing import Any

from audited_pairs import audited_errors

from pellucid.auditing.types import AuditRecord, Reason
from pellucid.auditing.worklist_page import page_records, worklist_page
from pellucid.data.examples import Example, OtherColumns


def page_contents(page: str) -> dict[str, Any]:
    """Return the JSON of a page."""
    contents: dict[str, Any] = json.loads(page.split('id="worklist">')[1].split("</script>")[0])
    return contents


def with_reasons(record: AuditRecord, *reasons: Reason) -> AuditRecord:
    return replace(record, reasons=reasons)


def test_a_page_has_the_first_rows_and_some_of_each_kind() -> None:
    records = [with_reasons(record) for record in audited_errors().records[:10]]
    for number in (1, 3, 5, 7, 9):
        records[number] = with_reasons(records[number], Reason("duplicate", "twice"))
    records[8] = with_reasons(records[8], Reason("length", "long"))
    assert page_records(records, 3) == [records[number] for number in (0, 1, 2, 3, 5, 8)]
    others = OtherColumns(["entry_no", "remark"], {record.line: ["7", ""] for record in records[:1]})
    contents = page_contents(worklist_page(records, "words.csv", 3, others, ";"))
    assert contents["note"] == "6 of 10 rows: the 3 most suspicious, and up to 3 of each reason."
    assert contents["kinds"] == [
        {"kind": "duplicate", "shown": 3, "total": 5},
        {"kind": "length", "shown": 1, "total": 1},
    ]
    assert contents["other_names"] == ["entry_no", "remark"]
    assert [row["others"] for row in contents["rows"][:2]] == [["7", ""], []]


def test_errors_of_the_source_are_told_from_those_of_the_target() -> None:
    record = replace(audited_errors().records[5], example=Example(" ab", "A B "))
    source, target = (Reason("surrounding_space", "space", column, 1) for column in ("source", "target"))
    for reasons, expected in (([source], True), ([source, target], True), ([target], False), ([], False)):
        (row,) = page_contents(worklist_page([with_reasons(record, *reasons)], "words.csv", 5))["rows"]
        assert row["has_source_error"] is expected
        assert row["proposed_source"] == ("ab" if source in reasons else " ab")
        assert row["proposed_target"] == ("A B" if target in reasons else "A B ")


def test_the_page_holds_the_rows_as_json_and_loads_nothing() -> None:
    records = audited_errors().records[:300]
    records[2] = replace(records[2], example=Example("</script><script>alert(1)</script>", "A"))
    page = worklist_page(records, "a<b>.tsv", 3)
    (data,) = re.findall(r'<script type="application/json" id="worklist">(.*?)</script>', page, re.DOTALL)
    contents = json.loads(data)
    assert contents["name"] == "a<b>.tsv" and contents["note"] == "The 3 most suspicious of 300 rows."
    assert contents["rows"][2]["source"] == records[2].example.source and page.count("<script") == 2
    assert not re.findall(r"https?://|src=|@import|url\(", page)
    assert "default-src &#x27;none&#x27;; script-src &#x27;sha256-" in page


def test_a_page_with_all_rows_has_no_note_and_marks_the_difference() -> None:
    records = audited_errors().records[:2]
    contents = page_contents(worklist_page(records, "words.tsv", 2))
    rows = contents["rows"]
    assert contents["note"] == ""
    for row, record in zip(rows, records, strict=True):
        assert "".join(part for part, _ in row["target_parts"]) == record.example.target
        assert record.difference is not None
        marked = [part for part, is_marked in row["target_parts"] if is_marked]
        assert marked == ([record.difference.given] if record.difference.given else [])


def test_a_correction_begins_with_the_known_repairs_of_its_column() -> None:
    (record,) = audited_errors().records[:1]
    reasons = (
        Reason("surrounding_space", "a space", "source", 1),
        Reason("mixed_scripts", "letters", "source", 2, (), "\u0430", (("\u0430", "a"),)),
        Reason("look_alike", "no tie bar", "target", 2, replacements=(("t\u0283", "t\u0361\u0283"),)),
        Reason("invisible", "zero-width", "target", 1, replacements=(("\u200b", ""),)),
    )
    record = replace(record, example=Example(" \u0430b", "\u200bt\u0283i"), reasons=reasons)
    (row,) = page_contents(worklist_page([record], "words.csv", 1))["rows"]
    assert (row["proposed_source"], row["proposed_target"]) == ("ab", "t\u0361\u0283i")
    assert (row["source"], row["target"]) == (" \u0430b", "\u200bt\u0283i")


def test_exchanged_texts_are_proposed_in_the_other_column() -> None:
    (record,) = audited_errors().records[:1]
    record = replace(record, example=Example("A B", "ab"), reasons=(Reason("exchanged", "exchanged"),))
    (row,) = page_contents(worklist_page([record], "words.csv", 1))["rows"]
    assert (row["proposed_source"], row["proposed_target"], row["has_source_error"]) == ("ab", "A B", True)
