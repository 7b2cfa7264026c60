"""The page of a worklist: rows are decided by keyboard and mouse, and decisions are exported."""

from dataclasses import replace
from pathlib import Path

import pytest
from audited_pairs import ERRORS, audited_errors
from chromium import OpenPage
from playwright.sync_api import Page, expect

from pellucid.auditing.audit import record_bad_row
from pellucid.auditing.decisions import Decision, read_decisions
from pellucid.auditing.text_checks import check_column
from pellucid.auditing.types import AuditRecord, ModelScore, Reason
from pellucid.auditing.worklist_page import worklist_page
from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example, OtherColumns
from pellucid.data.tokenizers import build_tokenizers

SPACE = Reason("surrounding_space", "the source begins with a space", "source", 1)
HOSTILE = '</script><img src=x onerror="alert(1)"> & "q", \u202e'


def page_records() -> list[AuditRecord]:
    """Return records with two wrong targets and one with hostile texts."""
    records = audited_errors().records[:20]
    return [*records[:19], replace(records[19], example=Example(HOSTILE, HOSTILE), identifier=HOSTILE)]


def plain_records(count: int) -> list[AuditRecord]:
    """Return further records without reasons."""
    return [replace(record, reasons=()) for record in audited_errors().records[20 : 20 + count]]


def open_worklist(open_page: OpenPage, tmp_path: Path) -> Page:
    path = tmp_path / "worklist.html"
    path.write_text(worklist_page([*page_records(), *plain_records(280)], "words.tsv", 20), encoding="utf-8")
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
    for key in ("a", "c"):  # a decision selects the next row
        page.keyboard.press(key)
    page.get_by_role("textbox", name=f"New target of {records[1].example.source}").fill("A, B")
    for key in ("Enter", "r", "x", "r", "k", "u"):
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
    rows.nth(1).get_by_role("button", name="Keep").click()
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


def test_keys_act_on_shown_rows_only_and_undo_the_last_decision(open_page: OpenPage, tmp_path: Path) -> None:
    page, records = open_worklist(open_page, tmp_path), page_records()
    page.get_by_label("Search").fill("ONERROR")
    page.locator("h1").click()
    page.keyboard.press("r")
    [decision] = save_decisions(page, tmp_path)
    assert decision.line == records[19].line, "the only row that is shown"
    page.keyboard.press("u")
    expect(page.get_by_role("status")).to_contain_text("0 of 20 rows decided")
    page.get_by_label("Search").fill("no row has this text")
    page.locator("h1").click()
    page.keyboard.press("r")
    expect(page.get_by_role("status")).to_contain_text("0 of 20 rows decided")
    page.get_by_label("Search").fill("")
    page.locator("tbody tr").first.focus()
    for key in ("x", "r", "u", "u"):  # u undoes r, which selected the next row, and then x
        page.keyboard.press(key)
    expect(page.get_by_role("status")).to_contain_text("0 of 20 rows decided")
    expect(page.locator("tbody tr").first).to_be_focused()
    page.keyboard.press("u")
    expect(page.get_by_role("status")).to_contain_text("This page has no decision left to undo")


def test_texts_are_shown_as_they_are_and_run_no_code(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_worklist(open_page, tmp_path)
    cell = page.locator("tbody tr").last.locator("td").nth(1)
    assert cell.text_content() == HOSTILE and page.locator("img").count() == 0
    page.locator("tbody tr").last.get_by_role("button", name="Keep").click()
    assert save_decisions(page, tmp_path)[0].source == HOSTILE


def test_quoted_texts_of_reasons_are_isolated(open_page: OpenPage, tmp_path: Path) -> None:
    text = "the models write 'איזראל': 'א' for 'I' in place of 'ה' at target symbol 1"
    record = replace(page_records()[0], identifier="א-1", reasons=(Reason("prediction", text),))
    path = tmp_path / "worklist.html"
    path.write_text(worklist_page([record], "מילים.csv", 1, delimiter=";"), encoding="utf-8")
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
    assert "\ufeffline;source;target;decision;new_target;new_source" in download.value.path().read_text("utf-8")


def test_errors_of_the_source_are_corrected_there(open_page: OpenPage, tmp_path: Path) -> None:
    records = [
        replace(record, example=Example(f" {record.example.source}", "A"), reasons=reasons)
        for record, reasons in zip(audited_errors().records, [(SPACE,), (SPACE,), ()], strict=False)
    ]
    path = tmp_path / "worklist.html"
    others = OtherColumns(["entry_no", "remark"], {record.line: [f"E-{record.line}-x", ""] for record in records})
    path.write_text(worklist_page(records, "words.csv", 3, others), encoding="utf-8")
    page = open_page(path.as_uri())
    first = page.locator("tbody tr").first
    expect(first).to_contain_text(f"entry_no: E-{records[0].line}-x")
    assert first.locator(".sign").evaluate("node => getComputedStyle(node, '::before').content") == '"␣"'
    assert first.get_by_role("button").all_text_contents()[:4] == ["Correct", "Keep", "Remove", "Accept output"]
    page.keyboard.press("a")
    expect(page.get_by_role("status")).to_contain_text("press c to correct it; 0 of 3 rows decided")
    for key in ("c", "Enter"):  # the field of the source is selected, without the leading space
        page.keyboard.press(key)
    expect(page.locator("tbody tr").nth(1)).to_be_focused()
    page.keyboard.press("c")
    page.keyboard.press("Tab")
    page.keyboard.insert_text("A B")
    page.keyboard.press("Enter")
    page.get_by_label("Search").fill(f"e-{records[2].line}-x")
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    page.locator("tbody tr:visible").get_by_role("button", name="Keep").click()
    page.locator("tbody tr:visible").get_by_role("button", name="Undo").click()
    texts = [(record.line, record.example.source, "A") for record in records]
    assert save_decisions(page, tmp_path) == [
        Decision(*texts[0], "replace", "", texts[0][1].strip()),
        Decision(*texts[1], "replace", "A B", texts[1][1].strip()),
    ]


def test_a_proposed_correction_is_saved_only_if_it_is_confirmed_or_changed(open_page: OpenPage, tmp_path: Path) -> None:
    """Regression test: a click elsewhere saved the proposal that the fields began with."""
    (record,) = audited_errors().records[:1]
    record = replace(record, example=Example(f" {record.example.source}", "A"), reasons=(SPACE,))
    path = tmp_path / "worklist.html"
    path.write_text(worklist_page([record], "words.csv", 1), encoding="utf-8")
    page = open_page(path.as_uri())
    page.keyboard.press("c")
    page.locator("h1").click()
    expect(page.locator("tbody input")).to_have_count(0)
    expect(page.get_by_role("status")).to_have_text("0 of 1 rows decided")
    page.locator("tbody tr").first.get_by_role("button", name="Correct").click()
    page.keyboard.insert_text("B")
    page.locator("h1").click()
    expect(page.get_by_role("status")).to_have_text("1 of 1 rows decided")


def test_rows_of_one_source_are_side_by_side(open_page: OpenPage, tmp_path: Path) -> None:
    twice = (Reason("duplicate", "twice"),)
    sources = ["ab", "cd", "ef", "cd", "ab"]
    records = [
        replace(record, example=Example(source, "A"), reasons=twice if source != "ef" else ())
        for record, source in zip(audited_errors().records, sources, strict=False)
    ]
    path = tmp_path / "worklist.html"
    path.write_text(worklist_page(records, "words.csv", 5), encoding="utf-8")
    page = open_page(path.as_uri())
    assert page.get_by_label("Reason").locator("option").all_text_contents() == ["all", "duplicate (4)"]
    page.get_by_label("Reason").select_option("duplicate")
    shown = page.locator("tbody tr:visible td:nth-child(2)")
    assert shown.all_text_contents() == ["ab", "ab", "cd", "cd"]
    page.get_by_label("Reason").select_option("")
    assert shown.all_text_contents() == sources


def test_the_page_can_make_no_requests(open_page: OpenPage, tmp_path: Path, page_errors: list[str]) -> None:
    page = open_worklist(open_page, tmp_path)
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'answered', error => error.name)") == "TypeError"
    assert any("Content Security Policy" in message for message in page_errors)
    page_errors.clear()


IPA_TARGETS = ["ˈat͡ʃa", "d͡ʒˌaˈd"] * 1_200
"""Targets of a dictionary, to which new targets are compared."""
TOKENIZERS = build_tokenizers(DataConfig())
SOURCES = ["chaged", "adach", "jagd", "hagac"] * 600
CHECKS = [check_column(SOURCES, TOKENIZERS.source), check_column(IPA_TARGETS, TOKENIZERS.target)]


def ipa_record(line: int, source: str, target: str, output: str, *reasons: Reason) -> AuditRecord:
    """Return a record with a pronunciation."""
    score = ModelScore(output, 3.0)
    return AuditRecord(line, "", Example(source, target), 3.0, score, None, None, reasons, ())


def open_records(open_page: OpenPage, tmp_path: Path, *records: AuditRecord) -> Page:
    path = tmp_path / "worklist.html"
    path.write_text(worklist_page(records, "words.csv", 500, checks=CHECKS), encoding="utf-8")
    return open_page(path.as_uri())


MIXED = Reason("mixed_scripts", "the source mixes scripts", "source", 4, characters="а")
LOOK_ALIKE = Reason("look_alike", "the target has a look-alike", "target", 1, characters="'")


def test_letters_of_another_script_and_look_alikes_have_signs(open_page: OpenPage, tmp_path: Path) -> None:
    """Regression test: a Cyrillic letter looked like any other letter of its word."""
    page = open_records(open_page, tmp_path, ipa_record(2, "chаg", "'at͡ʃ", "ˈat͡ʃ", MIXED, LOOK_ALIKE))
    cells = page.locator("tbody td")
    for place, text, sign in ((1, "а", "U+0430"), (2, "'", "U+0027")):
        expect(cells.nth(place).locator(".sign")).to_have_text(text)
        assert cells.nth(place).locator(".sign").get_attribute("data-sign") == sign
    assert cells.nth(3).locator(".sign").count() == 0
    page.keyboard.press("c")  # the field of the source has the focus
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text(
        "line 2: source and target are unchanged, no decision is made; 0 of 1 rows decided"
    )


@pytest.mark.parametrize("text", ["ˈat͡ʃ", "ˈQt͡ʃ", "'at͡ʃ", "͡ʃa", "at͡", "d͡ad", "dˈˈˌa", "aˈ", " a", "ˈαt͡ʃ"])
def test_warnings_beside_the_fields_are_those_of_apply(text: str, open_page: OpenPage, tmp_path: Path) -> None:
    page = open_records(open_page, tmp_path, ipa_record(2, "chag", "ˈad", text))
    expected = [f"target with {phrase}" for phrase in CHECKS[1].warnings(text, "ˈad")]
    assert page.locator("td:nth-child(4) .warning").all_text_contents() == expected
    page.keyboard.press("c")
    assert page.locator("#target-note .warning").count() == 0, "the target itself is not judged"
    page.get_by_role("textbox", name="New target of chag").fill(text)
    assert page.locator("#target-note .warning").all_text_contents() == expected
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    assert page.locator(".decision .warning").all_text_contents() == expected
    assert ("⚠ line 2: new target with" in (page.get_by_role("status").text_content() or "")) == bool(expected)


def test_a_new_source_that_still_mixes_scripts_has_a_warning(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_records(open_page, tmp_path, ipa_record(2, "chаg", "ˈad", "ˈad", MIXED))
    page.keyboard.press("c")
    page.get_by_role("textbox", name="New source of chаg").fill("chаgd")
    warning = "source with letters of two scripts: 'а' (U+0430, Cyrillic) among Latin letters"
    assert warning in page.locator("#source-note .warning").all_text_contents()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text(f"⚠ line 2: new {warning.split(':')[0].split(' with')[0]} with")
    expect(page.locator(".decision")).to_contain_text(warning)


def test_keys_work_after_a_menu_or_a_check_box_was_used(open_page: OpenPage, tmp_path: Path) -> None:
    """Regression test: r chose the reason "rare_symbol" in the menu, and did nothing after the box was ticked."""
    records = [ipa_record(line, f"chag{line}", "ˈad", "ˈada", LOOK_ALIKE) for line in range(2, 8)]
    page = open_records(open_page, tmp_path, *records)
    rows, status = page.locator("tbody tr"), page.get_by_role("status")
    page.get_by_label("Reason").select_option("look_alike")
    expect(rows.first).to_be_focused()
    page.keyboard.press("r")
    expect(status).to_contain_text("1 of 6 rows decided")
    page.get_by_label("only rows without a decision").click()
    page.keyboard.press("x")
    expect(status).to_contain_text("2 of 6 rows decided")
    page.get_by_label("Reason").focus()
    page.keyboard.press("r")
    expect(status).to_contain_text("3 of 6 rows decided")
    expect(page.get_by_label("Reason")).to_have_value("look_alike")
    page.get_by_label("Search").focus()
    page.keyboard.press("r")
    expect(page.get_by_label("Search")).to_have_value("r")
    expect(status).to_contain_text("3 of 6 rows decided")


@pytest.mark.slow
def test_headings_stay_visible(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_records(open_page, tmp_path, *(ipa_record(line, "chag", "ˈad", "ˈada") for line in range(2, 202)))
    page.mouse.wheel(0, 3_000)
    page.wait_for_function("scrollY > 1000")
    header, heading = (page.locator(name).first.bounding_box() for name in ("header", "thead th"))
    assert header is not None and heading is not None
    assert abs(heading["y"] - (header["y"] + header["height"])) < 2
    for _ in range(60):
        page.keyboard.press("ArrowDown")
    for _ in range(50):
        page.keyboard.press("ArrowUp")
    row, heading = page.locator("tr:focus").bounding_box(), page.locator("thead th").first.bounding_box()
    assert row is not None and heading is not None and row["y"] >= heading["y"] + heading["height"] - 1


def test_rows_that_cannot_be_read_are_listed_without_decisions(open_page: OpenPage, tmp_path: Path) -> None:
    bad = record_bad_row(17, "expected 6 columns, got 3", "00016;ab;no")
    page = open_records(open_page, tmp_path, bad, ipa_record(2, "chag", "ˈad", "ˈada"))
    first = page.locator("tbody tr").first
    expect(first).to_contain_text("the row cannot be read: expected 6 columns, got 3; its text is '00016;ab;no'")
    assert first.get_by_role("button").count() == 0
    for key in "acrx":
        page.keyboard.press(key)
    expect(page.get_by_role("status")).to_have_text(
        "This line cannot be read: change it in an editor; 0 of 1 rows decided"
    )
    assert page.get_by_label("Reason").locator("option").all_text_contents() == ["all", "bad_row (1)"]
