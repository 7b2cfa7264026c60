"""auditing/worklist_page.py: one self-contained file with escaped contents."""

import json
import re
from dataclasses import replace

from audited_pairs import audited_errors

from pellucid.auditing.worklist_page import worklist_page
from pellucid.data.examples import Example


def test_the_page_holds_the_rows_as_json_and_loads_nothing() -> None:
    records = audited_errors().records[:3]
    records[2] = replace(records[2], example=Example("</script><script>alert(1)</script>", "A"))
    page = worklist_page(records, "a<b>.tsv", 300)
    (data,) = re.findall(r'<script type="application/json" id="worklist">(.*?)</script>', page, re.DOTALL)
    contents = json.loads(data)
    assert contents["name"] == "a<b>.tsv" and contents["note"] == "The 3 most suspicious of 300 rows."
    assert contents["rows"][2]["source"] == records[2].example.source and page.count("<script") == 2
    assert not re.findall(r"https?://|src=|@import|url\(", page)
    assert "default-src &#x27;none&#x27;; script-src &#x27;sha256-" in page


def test_a_page_with_all_rows_has_no_note_and_marks_the_difference() -> None:
    records = audited_errors().records[:2]
    page = worklist_page(records, "words.tsv", 2)
    rows = json.loads(page.split('id="worklist">')[1].split("</script>")[0])["rows"]
    for row, record in zip(rows, records, strict=True):
        assert "".join(part for part, _ in row["target_parts"]) == record.example.target
        assert record.difference is not None
        marked = [part for part, is_marked in row["target_parts"] if is_marked]
        assert marked == ([record.difference.given] if record.difference.given else [])
