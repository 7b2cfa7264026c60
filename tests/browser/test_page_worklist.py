"""The page of a worklist: rows are decided by keyboard and mouse, and decisions are exported."""

from dataclasses import replace
from pathlib import Path

from audited_pairs import ERRORS, audited_errors
from chromium import OpenPage
from playwright.sync_api import Page, expect

from pellucid.auditing.decisions import Decision, read_decisions
from pellucid.auditing.types import AuditRecord, Reason
from pellucid.auditing.worklist_page import worklist_page
from pellucid.data.examples import Example

HOSTILE = '</script><img src=x onerror="alert(1)"> & "q", \u202e'


def page_records() -> list[AuditRecord]:
    """Return records with two wrong targets and one with hostile texts."""
    records = audited_errors().records[:20]
    return [*records[:19], replace(records[19], example=Example(HOSTILE, HOSTILE), identifier=HOSTILE)]


def open_worklist(open_page: OpenPage, tmp_path: Path) -> Page:
    path = tmp_path / "worklist.html"
    path.write_text(worklist_page(page_records(), "words.tsv", 300), encoding="utf-8")
    return open_page(path.as_uri())


def save_decisions(page: Page, tmp_path: Path) -> list[Decision]:
    """Export the decisions by the keyboard, and read them."""
    with page.expect_download() as download:
        page.keyboard.press("s")
    path = tmp_path / "decisions.csv"
    download.value.save_as(path)
    return read_decisions(path)


def test_rows_are_decided_by_the_keyboard_and_exported(open_page: OpenPage, tmp_path: Path) -> None:
    page, records = open_worklist(open_page, tmp_path), page_records()
    expect(page).to_have_title("Worklist of words.tsv")
    expect(page.locator("header")).to_contain_text("The 20 most suspicious of 300 rows.")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(20)
    expect(rows.first).to_be_focused()
    page.keyboard.press("a")
    for key in ("ArrowDown", "c"):
        page.keyboard.press(key)
    page.get_by_role("textbox", name=f"New target of {records[1].example.source}").fill("A, B")
    for key in ("Enter", "j", "r", "j", "x", "j", "r", "u"):
        page.keyboard.press(key)
    expect(page.get_by_role("status")).to_have_text("4 of 20 rows decided")
    decided = [(record.line, record.example.source, record.example.target) for record in records[:4]]
    assert save_decisions(page, tmp_path) == [
        Decision(*decided[0], "replace", records[0].output),
        Decision(*decided[1], "replace", "A, B"),
        Decision(*decided[2], "keep"),
        Decision(*decided[3], "remove"),
    ]
    page.reload()  # the browser stores the decisions
    expect(page.get_by_role("status")).to_have_text("4 of 20 rows decided")


def test_buttons_decide_and_filters_hide_rows(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_worklist(open_page, tmp_path)
    rows = page.locator("tbody tr")
    rows.nth(1).get_by_role("button", name="Right").click()
    rows.nth(2).get_by_role("button", name="Correct").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("status")).to_have_text("1 of 20 rows decided")
    page.get_by_label("Reason").select_option("prediction")
    expect(page.locator("tbody tr:visible")).to_have_count(len(ERRORS))
    page.get_by_label("only rows without a decision").check()
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    page.get_by_label("Reason").select_option("")
    page.get_by_label("Search").fill("ONERROR")
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    page.get_by_label("Search").fill("")
    page.get_by_label("only rows without a decision").uncheck()
    rows.nth(1).get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_have_text("0 of 20 rows decided")


def test_texts_are_shown_as_they_are_and_run_no_code(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_worklist(open_page, tmp_path)
    cell = page.locator("tbody tr").last.locator("td").nth(1)
    assert cell.text_content() == HOSTILE and page.locator("img").count() == 0
    page.locator("tbody tr").last.get_by_role("button", name="Right").click()
    assert save_decisions(page, tmp_path)[0].source == HOSTILE


def test_quoted_texts_of_reasons_are_isolated(open_page: OpenPage, tmp_path: Path) -> None:
    text = "the models write 'איזראל': 'א' for 'I' in place of 'ה' at target symbol 1"
    record = replace(page_records()[0], identifier="א-1", reasons=(Reason("prediction", text),))
    path = tmp_path / "worklist.html"
    path.write_text(worklist_page([record], "מילים.csv", 1, ";"), encoding="utf-8")
    page = open_page(path.as_uri())
    reason = page.locator("tbody li")
    expect(reason).to_have_text(text)
    assert reason.locator("bdi").all_text_contents() == ["'איזראל'", "'א'", "'I'", "'ה'"]
    boxes = [box["x"] for quoted in reason.locator("bdi").all() if (box := quoted.bounding_box())]
    assert boxes == sorted(boxes) and len(boxes) == 4
    expect(page).to_have_title("Worklist of \u2068מילים.csv\u2069")
    page.keyboard.press("r")
    with page.expect_download() as download:
        page.keyboard.press("s")
    assert "\ufeffline;source;target;decision;new_target" in download.value.path().read_text("utf-8")


def test_the_page_can_make_no_requests(open_page: OpenPage, tmp_path: Path, page_errors: list[str]) -> None:
    page = open_worklist(open_page, tmp_path)
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'answered', error => error.name)") == "TypeError"
    assert any("Content Security Policy" in message for message in page_errors)
    page_errors.clear()
