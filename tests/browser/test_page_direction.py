"""Right-to-left texts: lists of symbols, quoted symbols and links have the direction of the script."""

from pathlib import Path

import msgspec
import pytest
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import find_panel
from playwright.sync_api import Locator, Page, expect
from sample_traces import make_trace

from pellucid.decoding.trace import END
from pellucid.viewer.examples import page_trace_without_model
from pellucid.viewer.pages import export_page
from pellucid.viewer.schema import ConfusionCount, EditOperation, PageExample, PageTrace


def hebrew_trace(word: str) -> PageTrace:
    """Return a trace whose output is a word."""
    size = len(word) + 1
    return page_trace_without_model(make_trace("שלום", [*word, END], [[0.25] * 4] * size, [0.6] * size))


def hebrew_example() -> PageExample:
    """Return an example with a wrong second letter, and two outputs."""
    edits = [
        EditOperation(kind="same", step=0, expected="ד"),
        EditOperation(kind="substitution", step=1, expected="א"),
        EditOperation(kind="same", step=2, expected="ן"),
    ]
    traces = [hebrew_trace("דון"), hebrew_trace("דאן")]
    return PageExample(
        text="שלום", features=[], traces=traces, references=["דאן"], exact=False, errors=1, edits=edits, row_id="א-1"
    )


def open_hebrew_page(open_page: OpenPage, tmp_path: Path) -> Page:
    """Open a saved page with two Hebrew examples and a frequent confusion."""
    contents = digits_page_data(served=False).contents
    assert contents.corpus is not None
    confusion = ConfusionCount(expected="א", predicted="ו", count=10, num_expected=20, example_indices=[0, 1])
    corpus = msgspec.structs.replace(contents.corpus, confusions=[confusion])
    examples = [hebrew_example()] * 2
    path = tmp_path / "page.html"
    path.write_text(
        export_page(msgspec.structs.replace(contents, examples=examples, corpus=corpus, compared_runs=[])), "utf-8"
    )
    return open_page(path.as_uri())


def left_edges(elements: Locator) -> list[float]:
    """Return the left edges of elements."""
    return [box["x"] for element in elements.all() if (box := element.bounding_box())]


@pytest.mark.slow
def test_lists_of_symbols_run_from_right_to_left(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_hebrew_page(open_page, tmp_path)
    outputs = page.get_by_role("radio")
    expect(outputs).to_have_count(2)
    lists = [
        outputs.first.locator(".symbol"),
        page.get_by_role("table", name="Output and reference").locator("tr").first.locator("td"),
        find_panel(page, "Output steps").locator(".step"),
    ]
    for symbols in lists:
        edges = left_edges(symbols)
        assert len(edges) >= 3 and edges == sorted(edges, reverse=True)
    assert outputs.first.locator(".symbols").inner_text() == "דון"


def test_arrow_keys_move_in_the_direction_of_the_script(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_hebrew_page(open_page, tmp_path)
    steps = find_panel(page, "Output steps").locator(".step")
    steps.nth(1).focus()
    page.keyboard.press("ArrowLeft")
    expect(steps.nth(2)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(steps.nth(1)).to_be_focused()


def test_quoted_symbols_are_isolated_in_sentences(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_hebrew_page(open_page, tmp_path)
    quoted = "“\u2068ו\u2069” instead of “\u2068א\u2069”"
    expect(page.locator(".example-result b")).to_contain_text(f"step 2: {quoted}")
    expect(page.locator(".kinds button")).to_contain_text(f"{quoted}: 10 times in the file")
    expect(page.locator(".place").first).to_contain_text("id \u2068א-1\u2069")
    expect(page.locator("[role=option]").first).to_have_attribute(
        "aria-label", "wrong, 1 error: \u2068שלום\u2069, output \u2068דון\u2069"
    )


def test_saved_tables_have_no_marks(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_hebrew_page(open_page, tmp_path)
    panel = find_panel(page, "Attention matrix")
    panel.get_by_role("button", name="Save as").click()
    for kind in ("CSV", "JSON", "TikZ"):
        if kind != "CSV":
            panel.get_by_role("button", name="Save as").click()
        with page.expect_download() as download:
            panel.get_by_role("button", name=kind, exact=True).click()
        text = download.value.path().read_text("utf-8")
        assert "דון" in text and not {"\u2068", "\u2069"} & set(text)
