"""Forced prefixes in the What if tab: comparison, marks, saved files, invalid prefixes."""

import json
import re
from pathlib import Path

from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import download_panel, find_panel, open_tab
from playwright.sync_api import Page, expect
from saved_files import read_csv_lines

SENTENCE = ".sentence"
SHADES = """canvas => new Set(new Uint32Array(
    canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""


def what_if(page: Page) -> None:
    """Open the view, and wait for its first answer."""
    open_tab(page, "What if")
    expect(page.locator(SENTENCE)).to_contain_text("No change")


def test_forced_output_is_compared_along_itself_and_saved(open_page: OpenPage, server_url: str, tmp_path: Path) -> None:
    page = open_page(f"{server_url}#example=0")
    what_if(page)
    page.get_by_role("group", name="Steps of the output").get_by_role("button").first.click()
    other = find_panel(page, "Output before and after").locator("button.other").first
    symbol = other.locator(".symbol, span").first.inner_text()
    with page.expect_response("**/api/what-if") as answered:
        other.click()
    told = json.loads(answered.value.body())
    before, after = (told[name]["traces"][0]["target"] for name in ("before", "after"))
    expect(page.locator(SENTENCE)).to_contain_text(f"outputs “{symbol}” (p = ")
    became = find_panel(page, "Probabilities before and after")
    expect(became.locator("tbody tr")).to_have_count(max(len(before), len(after)))
    expect(became.locator(".caption")).to_contain_text("along its own prefix")
    assert find_panel(page, "Attention difference").locator("canvas").evaluate(SHADES) > 1
    head, *lines = read_csv_lines(download_panel(page, "Probabilities before and after", "CSV", tmp_path))
    assert head == [
        "step",
        "before",
        "after",
        "p before",
        "p after, along its own output",
        "KL in bits",
        "forced after",
    ]
    assert [line[6] for line in lines] == ["symbol", *[""] * (len(lines) - 1)]
    assert [line[2] for line in lines[: len(after)]] == after and [line[1] for line in lines[: len(before)]] == before
    assert float(lines[0][4]) < float(lines[0][3]) and float(lines[0][5]) == 0 < float(lines[1][5])
    rows = read_csv_lines(download_panel(page, "Attention difference", "CSV", tmp_path))[1:]
    assert len(rows) == min(len(before), len(after)) and rows[0][0] == f"{before[0]}/{after[0]}"
    page.get_by_role("button", name="Uniform").click()
    page.get_by_role("group", name="Source symbols").get_by_role("button").last.click()
    with page.expect_response("**/api/what-if"):
        page.get_by_role("button", name="Mask in attention").click()
    expect(page.locator(SENTENCE)).to_contain_text("Masking")
    given = [
        line[6] for line in read_csv_lines(download_panel(page, "Probabilities before and after", "CSV", tmp_path))
    ]
    assert given[1] == "symbol and attention"
    change = json.loads(download_panel(page, "Probabilities before and after", "JSON", tmp_path))
    first = digits_page_data(beam_size=3).contents.examples[0]
    assert change["difference"]["before"]["text"] == change["request"]["text"] == first.text
    assert change["request"]["prefix"] == after[:1] and change["request"]["attention_overrides"][0]["step"] == 0
    assert change["request"]["masked_positions"] == [len(first.traces[0].source) - 1]


def test_step_forced_in_examples_is_selected(open_page: OpenPage, server_url: str) -> None:
    page = open_page(f"{server_url}#example=0")
    find_panel(page, "Output steps").locator(".step").nth(1).click()
    page.get_by_role("button", name=re.compile("^Force .* at step 2$")).first.click()
    expect(page.locator(SENTENCE)).to_contain_text("Forcing the prefix")
    steps = page.get_by_role("group", name="Steps of the output").get_by_role("button")
    expect(steps.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(steps.nth(1)).to_be_focused()
    expect(find_panel(page, "Attention of step 2")).to_be_visible()
    expect(find_panel(page, "Output before and after")).to_contain_text("Candidates at step 2")


def test_impossible_prefix_is_reported(open_page: OpenPage, server_url: str) -> None:
    page = open_page(f"{server_url}#example=0")
    what_if(page)
    page.get_by_role("textbox", name="prefix").fill("☃")
    expect(page.locator(f"{SENTENCE} .wrong")).to_have_text(re.compile("^prefix: the model never writes"))
    expect(page.locator(SENTENCE)).to_contain_text("The previous result is shown below.")
    # What is left of the former answer looks like it, and is not saved as another one.
    expect(page.get_by_role("button", name="Save as …")).to_have_count(0)
    for left in ("table", ".steps", ".after b", "[role=slider]"):
        expect(page.locator(f"main {left}").first).to_have_css("opacity", "0.4")
    expect(page.get_by_role("textbox", name="prefix")).to_have_css("opacity", "1")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(SENTENCE)).to_contain_text("No change")
    expect(page.get_by_role("button", name="Save as …").first).to_be_visible()


def test_changed_symbols_and_correctness_of_a_new_output_are_marked(open_page: OpenPage, server_url: str) -> None:
    item = next(
        each
        for each in digits_page_data(beam_size=3).contents.examples
        if each.exact and len(each.traces[0].target) > 3
    )
    page = open_page(f"{server_url}#example={digits_page_data(beam_size=3).contents.examples.index(item)}")
    what_if(page)
    output = find_panel(page, "Output before and after")
    expect(output.locator(".after")).to_contain_text("✓ correct")
    expect(output.locator(".missed")).to_have_count(0)
    page.get_by_role("textbox", name="prefix").fill("8" if item.traces[0].output.startswith("7") else "7")
    expect(output.locator(".after")).to_contain_text(f"✗ “{item.references[0]}” expected")
    marked = output.locator(".after .missed").first
    expect(marked).to_have_text(re.compile("^[78]"))
    assert len(marked.inner_text()) < len(output.locator(".after b").inner_text())
    # Of another source nobody knows what is expected.
    page.get_by_role("textbox", name="source").fill("one two")
    expect(page.locator(SENTENCE)).to_contain_text("by “one two”")
    expect(output.locator(".after")).not_to_contain_text("expected")
