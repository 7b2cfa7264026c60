"""Comparison of two runs: paired outcomes, list of examples, attention difference, saved files."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import assert_cell_is_announced, download_panel, find_panel, open_tab
from playwright.sync_api import Page, expect
from sample_traces import make_trace
from saved_files import read_csv_lines, read_svg_texts

from pellucid.decoding.trace import END
from pellucid.viewer.examples import page_trace_without_model
from pellucid.viewer.pages import export_page
from pellucid.viewer.schema import EditOperation, PageContents, PageExample


def contents() -> PageContents:
    """What the page shows."""
    return digits_page_data(beam_size=3).contents


def compared(
    open_page: OpenPage, to: Path, ours: list[PageExample], theirs: list[PageExample], counts: Sequence[int] = ()
) -> Page:
    """A page that compares two runs by these examples; `counts` are the file's four and how many outputs differ."""
    told = {"outcomes": tuple(counts[:4]) if counts else None, "num_differing": counts[4] if counts else None}
    rival = msgspec.structs.replace(contents().compared_runs[0], examples=theirs, **told)
    shown = msgspec.structs.replace(
        contents(), examples=ours, num_examples=len(ours), compared_runs=[rival], served=False
    )
    path = to / "page.html"
    path.write_text(export_page(shown), encoding="utf-8")
    page = open_page(path.as_uri())
    open_tab(page, "Compare")
    return page


def written(output: str, wanted: str, edits: Sequence[EditOperation]) -> PageExample:
    """What a run wrote of the source “ab”."""
    trace = page_trace_without_model(make_trace("ab", [*output, END], [[1, 0]] * (len(output) + 1)))
    wrong = sum(edit.kind != "same" for edit in edits)
    return PageExample(
        text="ab", features=[], traces=[trace], references=[wanted], edits=list(edits), errors=wrong, exact=not wrong
    )


def same(*steps: int) -> list[EditOperation]:
    """Steps that wrote what was expected."""
    return [EditOperation(kind="same", step=step, expected="A") for step in steps]


MISSING = EditOperation(kind="deletion", step=None, expected="B")
OTHER = EditOperation(kind="substitution", step=1, expected="B")


def test_two_runs_are_side_by_side(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    open_tab(page, "Compare")
    wins = page.get_by_role("group", name=re.compile("^Outcomes")).get_by_role("button")
    judged = [int(each) for each in wins.locator("b").all_inner_texts()]
    (rival,) = contents().compared_runs
    assert judged == list(rival.outcomes or ()) and sum(judged) == contents().num_examples > len(contents().examples)
    own = find_panel(page, "Paired outcomes of both runs")
    expect(own).to_contain_text(f"both correct ({sum(item.exact or False for item in contents().examples)} shown)")
    expect(own).to_contain_text(
        "The outputs differ on 0 of 40 examples of the file; on 0 of them exactly one run is correct"
    )
    expect(own).to_contain_text("McNemar’s exact test: p = 1.")
    expect(own.get_by_role("row", name="exact match")).to_contain_text(f"{rival.scores[0].value:.2f} %")
    assert find_panel(page, "Attention difference").locator("canvas").is_visible()
    assert_cell_is_announced(page, "Attention difference")
    wins.first.click()
    page.get_by_role("button", name=re.compile("^Open these")).click()
    expect(page.get_by_role("listbox")).to_be_focused()
    assert page.locator(".only").inner_text().endswith("both correct")


def test_only_wrong_symbols_are_marked(open_page: OpenPage, tmp_path: Path) -> None:
    trace = page_trace_without_model(make_trace("ab", ["A", "B", END], [[1, 0], [0.5, 0.5], [0, 1]]))
    edits = [
        EditOperation(kind="same", step=0, expected="A"),
        EditOperation(kind="substitution", step=1, expected="C"),
    ]
    item = PageExample(text="ab", features=[], traces=[trace], references=["AC"], edits=edits, errors=1, exact=False)
    page = compared(open_page, tmp_path, [item], [item])
    for row in (page.get_by_role("option", selected=True), find_panel(page, "run"), find_panel(page, "rival")):
        expect(row).to_contain_text("AB")
        expect(row.locator(".missed").first).to_have_text("B")
        expect(row.locator(".output .wrong, p .wrong")).to_have_count(0)


def test_steps_of_two_outputs_are_paired_by_edits(open_page: OpenPage, tmp_path: Path) -> None:
    ours = make_trace("ab", ["A", "B", END], [[1, 0], [0.5, 0.5], [0, 1]])
    theirs = make_trace("ab", ["A", "X", "C", END], [[0.25, 0.75], [1, 0], [0.5, 0.5], [0, 1]])
    items = [
        PageExample(text="ab", features=[], traces=[page_trace_without_model(each)], references=[])
        for each in (ours, theirs)
    ]
    page = compared(open_page, tmp_path, items[:1], items[1:])
    apart, other = find_panel(page, "Attention difference"), find_panel(page, "rival")
    expect(apart.locator(".more")).to_contain_text("; 1 step that only one output has is omitted")
    expect(apart).to_contain_text("Maximum: 0.75")
    expect(apart.locator("svg .symbol, svg text").filter(has_text="B/X")).to_have_count(1)
    apart.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    expect(apart.locator("[aria-live]")).to_have_text(re.compile("−0.7500|0.7500"))
    # What is pointed at in one is the same step in all: the last of three is the last of four.
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(find_panel(page, "run").locator("[aria-live]")).to_contain_text("Step 3,")
    expect(other.locator("[aria-live]")).to_contain_text("Step 4,")
    other.get_by_role("application").focus()
    page.keyboard.press("ArrowUp")
    expect(other.locator("[aria-live]")).to_contain_text("Step 3, ⁨C⁩")
    expect(find_panel(page, "run").locator("[aria-live]")).not_to_contain_text("Step")
    page.keyboard.press("ArrowUp")
    expect(other.locator("[aria-live]")).to_contain_text("Step 2, ⁨X⁩")
    expect(find_panel(page, "run").locator("[aria-live]")).to_contain_text("Step 2, ⁨B⁩")


def test_saved_difference_names_both_runs_and_omitted_steps(open_page: OpenPage, tmp_path: Path) -> None:
    ours = make_trace("ab", ["A", "B", END], [[1, 0], [0.5, 0.5], [0, 1]])
    theirs = make_trace("ab", ["A", "X", "C", END], [[0.25, 0.75], [1, 0], [0.5, 0.5], [0, 1]])
    items = [
        PageExample(text="ab", features=[], traces=[page_trace_without_model(each)], references=[])
        for each in (ours, theirs)
    ]
    page = compared(open_page, tmp_path, items[:1], items[1:])
    expect(find_panel(page, "Attention difference").locator("canvas")).to_be_visible()
    told = "rival − run, source “ab”: “AXC” − “AB”; 1 step that only one output has is omitted"
    picture = download_panel(page, "Attention difference", "SVG", tmp_path)
    assert f"<title>{told}</title>" in picture.decode("utf-8") and told in " ".join(read_svg_texts(picture))
    assert json.loads(download_panel(page, "Attention difference", "JSON", tmp_path))["title"] == told
    assert read_csv_lines(download_panel(page, "Attention difference", "CSV", tmp_path))[0] == [told, "a", "b"]
    assert download_panel(page, "Attention difference", "TikZ", tmp_path).decode("utf-8").startswith(f"% {told}\n")
    # The name of a run is written as it is.
    assert read_svg_texts(download_panel(page, "run", "SVG", tmp_path))[0] == "run: “AB”"
    assert "<title>rival: “AXC”</title>" in download_panel(page, "rival", "SVG", tmp_path).decode("utf-8")


def test_paired_outcomes_are_saved_with_the_counts_of_the_file(open_page: OpenPage, tmp_path: Path) -> None:
    ours, theirs = written("A", "AB", [*same(0), MISSING]), written("AB", "AB", same(0, 1))
    page = compared(open_page, tmp_path, [ours], [theirs], [372, 14, 10, 54, 28])
    said = "The outputs differ on 28 of 450 examples of the file; on 24 of them exactly one run is correct."
    expect(find_panel(page, "Paired outcomes of both runs")).to_contain_text(said)
    told = json.loads(download_panel(page, "Paired outcomes of both runs", "JSON", tmp_path))
    assert told["runs"] == ["run", "rival"] and told["examples"] == 450 and told["differing"] == 28
    assert told["outcomes"] == {"both correct": 372, "only run correct": 14, "only rival correct": 10, "both wrong": 54}
    assert 0.5 < told["p"] < 0.6 and len(told["scores"][0]) == len(told["scores"][1]) > 0
    (one,) = told["shown examples"]["only rival correct"]
    assert one["source"] == "ab" and one["outputs"] == ["A", "AB"]
    texts = read_svg_texts(download_panel(page, "Paired outcomes of both runs", "SVG", tmp_path))
    rate = contents().compared_runs[0].scores[0]
    assert any(f"{rate.value:.2f} %" in text for text in texts) and "exact match" in texts
    assert said in " ".join(texts) and "p = 0.54." in " ".join(texts)


def test_list_marks_missing_symbols_and_differing_errors(open_page: OpenPage, tmp_path: Path) -> None:
    short, other = written("A", "AB", [*same(0), MISSING]), written("AX", "AB", [*same(0), OTHER])
    page = compared(open_page, tmp_path, [short, short, other], [short, other, other])
    rows = page.get_by_role("option")
    expect(rows).to_have_count(3)
    expect(rows.nth(0).locator(".missed")).to_have_text(["–", "–"])
    expect(rows.nth(1)).to_contain_text("≠")
    expect(rows.nth(1)).to_have_accessible_name("wrong, 1 error: ab, output A, the other run AX")
    for same_twice in (0, 2):
        expect(rows.nth(same_twice)).not_to_contain_text("≠")
        expect(rows.nth(same_twice)).to_have_accessible_name(re.compile("the other run the same$"))
    open_tab(page, "Examples")
    expect(page.locator(".row .missed").first).to_have_text("–")


def test_comparison_list_has_one_tab_stop_and_arrow_keys(open_page: OpenPage, tmp_path: Path) -> None:
    item = written("A", "AB", [*same(0), MISSING])
    page = compared(open_page, tmp_path, [item] * 30, [item] * 30)
    chosen = page.get_by_role("option", selected=True)
    page.get_by_role("button", name=re.compile("both wrong$")).focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("listbox")).to_be_focused()
    for key, place in (("ArrowDown", 2), ("j", 3), ("k", 2), ("End", 30), ("Home", 1)):
        page.keyboard.press(key)
        expect(chosen).to_have_attribute("aria-posinset", f"{place}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name=re.compile("^Open these 30"))).to_be_focused()
