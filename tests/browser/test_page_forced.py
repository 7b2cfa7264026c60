"""Forced prefixes in the What if tab: comparison, marks, saved files, invalid prefixes."""

import json
import re
from pathlib import Path

import pytest
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import download_panel, find_panel, open_tab
from playwright.sync_api import Page, expect
from saved_files import read_csv_lines

SENTENCE = ".sentence"
COUNT_COLORS = """canvas => new Set(new Uint32Array(
    canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""


def open_what_if(page: Page) -> None:
    """Open the What if tab and wait for its first response."""
    open_tab(page, "What if")
    expect(page.locator(SENTENCE)).to_contain_text("No change")


@pytest.mark.slow
def test_forced_output_is_compared_along_itself_and_saved(open_page: OpenPage, server_url: str, tmp_path: Path) -> None:
    page = open_page(f"{server_url}#example=0")
    open_what_if(page)
    page.get_by_role("group", name="Steps of the output").get_by_role("button").first.click()
    alternative = find_panel(page, "Output before and after").locator("button.other").first
    symbol = alternative.locator(".symbol, span").first.inner_text()
    with page.expect_response("**/api/what-if") as response:
        alternative.click()
    body = json.loads(response.value.body())
    before, after = (body[name]["traces"][0]["target"] for name in ("before", "after"))
    expect(page.locator(SENTENCE)).to_contain_text(f"outputs “{symbol}” (p = ")
    probabilities = find_panel(page, "Probabilities before and after")
    expect(probabilities.locator("tbody tr")).to_have_count(max(len(before), len(after)))
    expect(probabilities.locator(".caption")).to_contain_text("conditional on the previous symbols of its own output")
    # Both symbols of the first step have their probabilities before and after the change.
    first_row = probabilities.locator("tbody tr").first
    for written in (before[0], after[0]):
        expect(first_row).to_contain_text(re.compile(rf"p\({re.escape(written)}\)(< )?[\d.e-]+→(< )?[\d.e-]+"))
    assert find_panel(page, "Attention difference").locator("canvas").evaluate(COUNT_COLORS) > 1
    header, *rows = read_csv_lines(download_panel(page, "Probabilities before and after", "CSV", tmp_path))
    assert header == [
        "step",
        "before",
        "after",
        "p(symbol before), before the change",
        "p(symbol before), after the change, given the output after",
        "p(symbol after), before the change",
        "p(symbol after), after the change, given the output after",
        "KL in bits",
        "forced after",
    ]
    assert [row[8] for row in rows] == ["symbol", *[""] * (len(rows) - 1)]
    assert [row[2] for row in rows[: len(after)]] == after and [row[1] for row in rows[: len(before)]] == before
    assert float(rows[0][6]) < float(rows[0][3]) and float(rows[0][7]) == 0 < float(rows[1][7])
    difference_rows = read_csv_lines(download_panel(page, "Attention difference", "CSV", tmp_path))[1:]
    assert len(difference_rows) == min(len(before), len(after)) and difference_rows[0][0] == f"{before[0]}/{after[0]}"
    page.get_by_role("button", name="Uniform").click()
    page.get_by_role("group", name="Source symbols").get_by_role("button").last.click()
    with page.expect_response("**/api/what-if"):
        page.get_by_role("button", name="Mask in attention").click()
    expect(page.locator(SENTENCE)).to_contain_text("Masking")
    forced_column = [
        row[8] for row in read_csv_lines(download_panel(page, "Probabilities before and after", "CSV", tmp_path))
    ]
    assert forced_column[1] == "symbol and attention"
    values = json.loads(download_panel(page, "Probabilities before and after", "JSON", tmp_path))
    first_example = digits_page_data(beam_size=3).contents.examples[0]
    assert values["response"]["before"]["text"] == values["request"]["text"] == first_example.text
    assert values["request"]["prefix"] == after[:1] and values["request"]["forced_attention"][0]["step"] == 0
    assert values["request"]["masked_positions"] == [len(first_example.traces[0].source) - 1]


def test_step_forced_in_examples_is_selected(open_page: OpenPage, server_url: str) -> None:
    page = open_page(f"{server_url}#example=0")
    find_panel(page, "Output steps").locator(".step").nth(1).click()
    page.get_by_role("button", name=re.compile("^Force .* at step 2$")).first.click()
    expect(page.locator(SENTENCE)).to_contain_text("Forcing the prefix")
    steps = page.get_by_role("group", name="Steps of the output").get_by_role("button")
    expect(steps.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(steps.nth(1)).to_be_focused()
    expect(find_panel(page, "Attention of step 2")).to_be_visible()
    expect(find_panel(page, "Output before and after")).to_contain_text(
        re.compile("Output at step 2 .*; other candidates")
    )


@pytest.mark.slow
def test_impossible_prefix_is_reported(open_page: OpenPage, server_url: str) -> None:
    page = open_page(f"{server_url}#example=0")
    open_what_if(page)
    page.get_by_role("textbox", name="prefix").fill("☃")
    expect(page.locator(f"{SENTENCE} .wrong")).to_have_text(re.compile("^prefix: the model never writes"))
    expect(page.locator(SENTENCE)).to_contain_text("The previous result is shown below.")
    # The previous result is dimmed and cannot be saved.
    expect(page.get_by_role("button", name="Save as …")).to_have_count(0)
    for selector in ("table", ".steps", ".after b", "[role=slider]"):
        expect(page.locator(f"main {selector}").first).to_have_css("opacity", "0.4")
    expect(page.get_by_role("textbox", name="prefix")).to_have_css("opacity", "1")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(SENTENCE)).to_contain_text("No change")
    expect(page.get_by_role("button", name="Save as …").first).to_be_visible()


@pytest.mark.slow
def test_changed_symbols_and_correctness_of_a_new_output_are_marked(open_page: OpenPage, server_url: str) -> None:
    item = next(
        each
        for each in digits_page_data(beam_size=3).contents.examples
        if each.exact and len(each.traces[0].target) > 3
    )
    page = open_page(f"{server_url}#example={digits_page_data(beam_size=3).contents.examples.index(item)}")
    open_what_if(page)
    output = find_panel(page, "Output before and after")
    expect(output.locator(".after")).to_contain_text("✓ correct")
    expect(output.locator(".missed")).to_have_count(0)
    page.get_by_role("textbox", name="prefix").fill("8" if item.traces[0].output.startswith("7") else "7")
    expect(output.locator(".after")).to_contain_text(f"✗ “{item.references[0]}” expected")
    marked_symbols = output.locator(".after .missed").first
    expect(marked_symbols).to_have_text(re.compile("^[78]"))
    assert len(marked_symbols.inner_text()) < len(output.locator(".after b").inner_text())
    # A changed source has no reference.
    page.get_by_role("textbox", name="source").fill("one two")
    expect(page.locator(SENTENCE)).to_contain_text("by “one two”")
    expect(output.locator(".after")).not_to_contain_text("expected")
