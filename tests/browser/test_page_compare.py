"""Comparison of two runs: paired outcomes, list of examples, attention difference, missing attention, saved files."""

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


def page_contents() -> PageContents:
    return digits_page_data(beam_size=3).contents


def open_comparison(
    open_page: OpenPage,
    folder: Path,
    run_examples: list[PageExample],
    rival_examples: list[PageExample],
    counts: Sequence[int] = (),
) -> Page:
    """Open a page that compares two runs on these examples.

    `counts` holds the four outcome counts of the file and the number of differing outputs.
    """
    statistics = {"outcomes": tuple(counts[:4]) if counts else None, "num_differing": counts[4] if counts else None}
    compared_run = msgspec.structs.replace(page_contents().compared_runs[0], examples=rival_examples, **statistics)
    page_data = msgspec.structs.replace(
        page_contents(),
        examples=run_examples,
        num_examples=len(run_examples),
        compared_runs=[compared_run],
        served=False,
    )
    path = folder / "page.html"
    path.write_text(export_page(page_data), encoding="utf-8")
    page = open_page(path.as_uri())
    open_tab(page, "Compare")
    return page


def make_example(output: str, reference: str, edits: Sequence[EditOperation]) -> PageExample:
    """Return the example with the source “ab” and this output."""
    trace = page_trace_without_model(make_trace("ab", [*output, END], [[1, 0]] * (len(output) + 1)))
    num_errors = sum(edit.kind != "same" for edit in edits)
    return PageExample(
        text="ab",
        features=[],
        traces=[trace],
        references=[reference],
        edits=list(edits),
        errors=num_errors,
        exact=not num_errors,
    )


def matching_edits(*steps: int) -> list[EditOperation]:
    """Return the edits of steps whose symbol equals the reference."""
    return [EditOperation(kind="same", step=step, expected="A") for step in steps]


DELETION = EditOperation(kind="deletion", step=None, expected="B")
SUBSTITUTION = EditOperation(kind="substitution", step=1, expected="B")


def test_two_runs_are_side_by_side(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    open_tab(page, "Compare")
    outcome_buttons = page.get_by_role("group", name=re.compile("^Outcomes")).get_by_role("button")
    counts = [int(each) for each in outcome_buttons.locator("b").all_inner_texts()]
    (compared_run,) = page_contents().compared_runs
    assert counts == list(compared_run.outcomes or ()) and sum(counts) == page_contents().num_examples > len(
        page_contents().examples
    )
    outcomes = find_panel(page, "Paired outcomes of both runs")
    expect(outcomes).to_contain_text(
        f"both correct ({sum(item.exact or False for item in page_contents().examples)} shown)"
    )
    expect(outcomes).to_contain_text(
        "The outputs differ on 0 of 40 examples of the file; on 0 of them exactly one run is correct"
    )
    expect(outcomes).to_contain_text("McNemar’s exact test: p = 1.")
    expect(outcomes.get_by_role("row", name="exact match")).to_contain_text(f"{compared_run.scores[0].value:.2f} %")
    assert find_panel(page, "Attention difference").locator("canvas").is_visible()
    assert_cell_is_announced(page, "Attention difference")
    outcome_buttons.first.click()
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
    page = open_comparison(open_page, tmp_path, [item], [item])
    for row in (page.get_by_role("option", selected=True), find_panel(page, "run"), find_panel(page, "rival")):
        expect(row).to_contain_text("AB")
        expect(row.locator(".missed").first).to_have_text("B")
        expect(row.locator(".output .wrong, p .wrong")).to_have_count(0)


def test_steps_of_two_outputs_are_paired_by_edits(open_page: OpenPage, tmp_path: Path) -> None:
    run_trace = make_trace("ab", ["A", "B", END], [[1, 0], [0.5, 0.5], [0, 1]])
    rival_trace = make_trace("ab", ["A", "X", "C", END], [[0.25, 0.75], [1, 0], [0.5, 0.5], [0, 1]])
    items = [
        PageExample(text="ab", features=[], traces=[page_trace_without_model(each)], references=[])
        for each in (run_trace, rival_trace)
    ]
    page = open_comparison(open_page, tmp_path, items[:1], items[1:])
    difference, rival = find_panel(page, "Attention difference"), find_panel(page, "rival")
    expect(difference.locator(".more")).to_contain_text("; 1 step that only one output has is omitted")
    expect(difference).to_contain_text("Maximum: 0.75")
    expect(difference.locator("svg .symbol, svg text").filter(has_text="B/X")).to_have_count(1)
    difference.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    expect(difference.locator("[aria-live]")).to_have_text(re.compile("−0.7500|0.7500"))
    # A selected step is selected in every panel: the last of three steps and the last of four are paired.
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(find_panel(page, "run").locator("[aria-live]")).to_contain_text("Step 3,")
    expect(rival.locator("[aria-live]")).to_contain_text("Step 4,")
    rival.get_by_role("application").focus()
    page.keyboard.press("ArrowUp")
    expect(rival.locator("[aria-live]")).to_contain_text("Step 3, C")
    expect(find_panel(page, "run").locator("[aria-live]")).not_to_contain_text("Step")
    page.keyboard.press("ArrowUp")
    expect(rival.locator("[aria-live]")).to_contain_text("Step 2, X")
    expect(find_panel(page, "run").locator("[aria-live]")).to_contain_text("Step 2, B")


def test_saved_difference_names_both_runs_and_omitted_steps(open_page: OpenPage, tmp_path: Path) -> None:
    run_trace = make_trace("ab", ["A", "B", END], [[1, 0], [0.5, 0.5], [0, 1]])
    rival_trace = make_trace("ab", ["A", "X", "C", END], [[0.25, 0.75], [1, 0], [0.5, 0.5], [0, 1]])
    items = [
        PageExample(text="ab", features=[], traces=[page_trace_without_model(each)], references=[])
        for each in (run_trace, rival_trace)
    ]
    page = open_comparison(open_page, tmp_path, items[:1], items[1:])
    expect(find_panel(page, "Attention difference").locator("canvas")).to_be_visible()
    title = "rival − run, source “ab”: “AXC” − “AB”; 1 step that only one output has is omitted"
    picture = download_panel(page, "Attention difference", "SVG", tmp_path)
    assert f"<title>{title}</title>" in picture.decode("utf-8") and title in " ".join(read_svg_texts(picture))
    assert json.loads(download_panel(page, "Attention difference", "JSON", tmp_path))["title"] == title
    assert read_csv_lines(download_panel(page, "Attention difference", "CSV", tmp_path))[0] == [title, "a", "b"]
    assert download_panel(page, "Attention difference", "TikZ", tmp_path).decode("utf-8").startswith(f"% {title}\n")
    # The name of a run is not escaped.
    assert read_svg_texts(download_panel(page, "run", "SVG", tmp_path))[0] == "run: “AB”"
    assert "<title>rival: “AXC”</title>" in download_panel(page, "rival", "SVG", tmp_path).decode("utf-8")


def test_paired_outcomes_are_saved_with_the_counts_of_the_file(open_page: OpenPage, tmp_path: Path) -> None:
    run_example, rival_example = (
        make_example("A", "AB", [*matching_edits(0), DELETION]),
        make_example("AB", "AB", matching_edits(0, 1)),
    )
    page = open_comparison(open_page, tmp_path, [run_example], [rival_example], [372, 14, 10, 54, 28])
    summary = "The outputs differ on 28 of 450 examples of the file; on 24 of them exactly one run is correct."
    expect(find_panel(page, "Paired outcomes of both runs")).to_contain_text(summary)
    values = json.loads(download_panel(page, "Paired outcomes of both runs", "JSON", tmp_path))
    assert values["runs"] == ["run", "rival"] and values["examples"] == 450 and values["differing"] == 28
    assert values["outcomes"] == {
        "both correct": 372,
        "only “run” correct": 14,
        "only “rival” correct": 10,
        "both wrong": 54,
    }
    assert 0.5 < values["p"] < 0.6 and len(values["scores"][0]) == len(values["scores"][1]) > 0
    (example,) = values["shown examples"]["only “rival” correct"]
    assert example["source"] == "ab" and example["outputs"] == ["A", "AB"]
    texts = read_svg_texts(download_panel(page, "Paired outcomes of both runs", "SVG", tmp_path))
    rate = page_contents().compared_runs[0].scores[0]
    assert any(f"{rate.value:.2f} %" in text for text in texts) and "exact match" in texts
    assert summary in " ".join(texts) and "p = 0.54." in " ".join(texts)


def test_list_marks_missing_symbols_and_differing_errors(open_page: OpenPage, tmp_path: Path) -> None:
    shortened, substituted = (
        make_example("A", "AB", [*matching_edits(0), DELETION]),
        make_example("AX", "AB", [*matching_edits(0), SUBSTITUTION]),
    )
    page = open_comparison(
        open_page, tmp_path, [shortened, shortened, substituted], [shortened, substituted, substituted]
    )
    rows = page.get_by_role("option")
    expect(rows).to_have_count(3)
    expect(rows.nth(0).locator(".missed")).to_have_text(["–", "–"])
    expect(rows.nth(1)).to_contain_text("≠")
    expect(rows.nth(1)).to_have_accessible_name("wrong, 1 error: ab, output A, the other run AX")
    for equal_row in (0, 2):
        expect(rows.nth(equal_row)).not_to_contain_text("≠")
        expect(rows.nth(equal_row)).to_have_accessible_name(re.compile("the other run the same$"))
    open_tab(page, "Examples")
    expect(page.locator(".row .missed").first).to_have_text("–")


def test_comparison_list_has_one_tab_stop_and_arrow_keys(open_page: OpenPage, tmp_path: Path) -> None:
    item = make_example("A", "AB", [*matching_edits(0), DELETION])
    page = open_comparison(open_page, tmp_path, [item] * 30, [item] * 30)
    selected_row = page.get_by_role("option", selected=True)
    page.get_by_role("button", name=re.compile("both wrong$")).focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("listbox")).to_be_focused()
    for key, position in (("ArrowDown", 2), ("j", 3), ("k", 2), ("End", 30), ("Home", 1)):
        page.keyboard.press(key)
        expect(selected_row).to_have_attribute("aria-posinset", f"{position}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name=re.compile("^Open these 30"))).to_be_focused()


def test_a_run_without_attention_has_a_sentence_in_place_of_every_map(open_page: OpenPage, tmp_path: Path) -> None:
    attending = make_trace("ab", ["A", "B", END], [[1, 0], [0.5, 0.5], [0, 1]])
    without = make_trace("ab", ["A", "B", END], [[0.0, 0.0]] * 3)
    items = [
        PageExample(text="ab", features=[], traces=[page_trace_without_model(each)], references=["AB"], exact=True)
        for each in (attending, without)
    ]
    page = open_comparison(open_page, tmp_path, items[:1], items[1:])
    sentence = "Model “rival” has no attention."
    expect(find_panel(page, "run").locator("canvas")).to_be_visible()
    for title in ("rival", "Attention difference"):
        expect(find_panel(page, title)).to_contain_text(sentence)
        expect(find_panel(page, title).locator("canvas")).to_have_count(0)
    page = open_comparison(open_page, tmp_path, items[1:], items[:1])
    open_tab(page, "Examples")
    expect(page.get_by_text("Model “run” has no attention.")).to_be_visible()


def test_differences_have_one_scale_and_small_ones_can_be_scaled(open_page: OpenPage, tmp_path: Path) -> None:
    weights = ([[0.5, 0.5], [0.0, 1.0]], [[0.55, 0.45], [0.0, 1.0]])
    traces = [make_trace("ab", ["A", END], rows) for rows in weights]
    items = [
        PageExample(text="ab", features=[], traces=[page_trace_without_model(each)], references=[]) for each in traces
    ]
    page = open_comparison(open_page, tmp_path, items[:1], items[1:])
    difference = find_panel(page, "Attention difference")
    expect(difference).to_contain_text("−1 (blue) to 1 (red)")
    image = "canvas => canvas.toDataURL()"
    faint = difference.locator("canvas").evaluate(image)
    difference.get_by_role("button", name="Scale colors to this maximum").click()
    expect(difference).to_contain_text("−0.050 (blue) to 0.050 (red)")
    assert difference.locator("canvas").evaluate(image) != faint
    difference.get_by_role("button", name="Colors from −1 to 1").click()
    expect(difference).to_contain_text("−1 (blue) to 1 (red)")
    assert difference.locator("canvas").evaluate(image) == faint
