"""Requests to a served page (what-if, attribution, states), for grapheme-to-phoneme conversion."""

import json
import re
from collections.abc import Iterator

import pytest
from chromium import OpenPage
from page_data import find_forced_chain
from page_navigation import find_panel, open_tab
from page_runs import pronunciation_page_data
from playwright.sync_api import Page, expect

from pellucid.decoding.trace_schema import decode_array
from pellucid.viewer.handlers import decode_source
from pellucid.viewer.schema import DecodeRequest, ForcedAttentionRow, PageExample
from pellucid.viewer.server import background_server, create_app

SENTENCE = ".sentence"


@pytest.fixture(scope="module")
def phoneme_address() -> Iterator[str]:
    """Serve a grapheme-to-phoneme run and yield its address."""
    with background_server(create_app(pronunciation_page_data())) as address:
        yield address


def open_what_if(page: Page) -> None:
    """Open the What if tab and wait for its first response."""
    open_tab(page, "What if")
    expect(page.locator(SENTENCE)).to_contain_text("No change")


def greedy_differs_example() -> tuple[int, PageExample]:
    """Return an example whose greedy output differs from its beam output, or else the first example."""
    page_data = pronunciation_page_data()
    for index, item in enumerate(page_data.contents.examples):
        if decode_source(page_data, DecodeRequest(text=item.text)).traces[0].output != item.traces[0].output:
            return index, item
    return 0, page_data.contents.examples[0]


def first_example() -> PageExample:
    """Return the example that the page opens on."""
    items = pronunciation_page_data().contents.examples
    return next((item for item in items if item.exact is False), items[0])


def test_unchanged_what_if_is_bit_for_bit_equal(open_page: OpenPage, phoneme_address: str) -> None:
    index, item = greedy_differs_example()
    page = open_page(f"{phoneme_address}#example={index}")
    with page.expect_response("**/api/what-if") as response:
        open_what_if(page)
    body = json.loads(response.value.body())
    assert body["before"]["traces"][0]["output"] == item.traces[0].output
    assert body["before"] == body["after"] and body["rescored"]["source"] == body["before"]["traces"][0]["source"]
    expect(find_panel(page, "Probabilities before and after").locator("tbody tr").first).to_contain_text("0.00")
    assert find_panel(page, "Attention difference").locator("canvas").evaluate(COUNT_COLORS) == 1


COUNT_COLORS = """canvas => new Set(new Uint32Array(
    canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""


@pytest.mark.slow
def test_changed_source_is_shown_beside_the_original(open_page: OpenPage, phoneme_address: str) -> None:
    page = open_page(phoneme_address)
    open_what_if(page)
    page.get_by_role("group", name="Source symbols").get_by_role("button").first.click()
    page.get_by_role("button", name="Mask in attention").click()
    expect(page.locator(SENTENCE)).to_contain_text("Masking position 1")
    assert find_panel(page, "Attention difference").locator("canvas").evaluate(COUNT_COLORS) > 1
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(SENTENCE)).to_contain_text("No change")
    page.get_by_role("textbox", name="New symbol").fill("z")
    page.get_by_role("button", name="Replace", exact=True).click()
    expect(page.locator(SENTENCE)).to_contain_text("by “z")
    page.get_by_role("button", name="Swap with next").click()
    page.get_by_role("button", name="Reset all changes").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(find_panel(page, "Attention difference")).to_contain_text("different lengths")


@pytest.mark.slow
def test_symbol_is_forced_by_a_click_and_marked(open_page: OpenPage, phoneme_address: str) -> None:
    page = open_page(phoneme_address)
    first = find_panel(page, "Output steps").locator(".step").first
    first.click()
    symbol = find_panel(page, "Output steps").locator(".choices li").nth(1).locator(".face").inner_text()
    page.get_by_role("button", name=re.compile("^Force .* at step 1$")).first.click()
    expect(page.get_by_role("tab", name="What if")).to_have_attribute("aria-selected", "true")
    expect(page.locator(SENTENCE)).to_contain_text(f"Forcing the prefix “{symbol}”")
    steps = page.get_by_role("group", name="Steps of the output").get_by_role("button")
    expect(steps.first).to_have_accessible_name("step 1, forced")
    page.get_by_role("button", name="step 2", exact=True).click()
    find_panel(page, "Output before and after").locator("button.other").first.click()
    expect(steps.nth(1)).to_have_accessible_name("step 2, forced")


@pytest.mark.slow
def test_attention_is_forced_and_its_effect_described(open_page: OpenPage, phoneme_address: str) -> None:
    page = open_page(phoneme_address)
    open_what_if(page)
    error_steps = [edit.step for edit in first_example().edits if edit.kind in ("substitution", "insertion")]
    expect(find_panel(page, f"Attention of step {(error_steps[0] or 0) + 1 if error_steps else 1}")).to_be_visible()
    page.get_by_role("group", name="Steps of the output").get_by_role("button").first.click()
    page.get_by_role("button", name="Uniform").click()
    expect(page.locator(SENTENCE)).to_contain_text("Forcing step 1 to attend uniformly")
    expect(find_panel(page, "Probabilities before and after").locator("tbody tr").first).not_to_contain_text("0.00")
    bars = page.get_by_role("slider", name="Attention of step 1")
    box = bars.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 90)
    page.mouse.down()
    page.mouse.move(box["x"] + 5, box["y"] + 8, steps=4)
    page.mouse.up()
    expect(page.locator(SENTENCE)).to_contain_text("Forcing step 1 to attend to position 1")
    # “Argmax only” uses the attention of the model, not the forced weights.
    page.get_by_role("button", name="Uniform").click()
    page.get_by_role("button", name="Argmax only").click()
    argmax_position = int(decode_array(first_example().traces[0].attention)[0].argmax()) + 1
    expect(page.locator(SENTENCE)).to_contain_text(f"Forcing step 1 to attend to position {argmax_position} ")
    expect(page.get_by_role("slider", name="Attention of step 1")).to_have_attribute(
        "aria-valuetext", re.compile(f"^position {argmax_position}, .*: 1.00")
    )
    for name in ("Argmax only", "Permuted", "Diagonal", "Original"):
        page.get_by_role("button", name=name).click()
    page.get_by_role("checkbox", name="apply to every step").check()
    page.get_by_role("button", name="Weights of the previous step").click()
    expect(page.locator(SENTENCE)).to_contain_text(
        re.compile("attention of .* steps|Forcing step|Setting the attention")
    )


@pytest.mark.slow
def test_dragged_weights_apply_to_every_step_until_all_changes_are_reset(
    open_page: OpenPage, phoneme_address: str
) -> None:
    page = open_page(phoneme_address)
    open_what_if(page)
    steps = page.get_by_role("group", name="Steps of the output").get_by_role("button")
    count = steps.count()
    steps.first.click()
    every_step = page.get_by_role("checkbox", name="apply to every step")
    every_step.check()
    box = page.get_by_role("slider", name="Attention of step 1").bounding_box()
    assert count > 1 and box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 8)
    page.mouse.down()
    page.mouse.up()
    forced_steps = page.get_by_role("group", name="Steps with forced attention").get_by_role("button")
    expect(forced_steps).to_have_count(count)
    page.get_by_role("button", name="Reset all changes").click()
    expect(forced_steps).to_have_count(0)
    expect(every_step).not_to_be_checked()


@pytest.mark.slow
def test_a_substituted_symbol_has_its_probabilities_before_and_after(open_page: OpenPage, phoneme_address: str) -> None:
    page = open_page(phoneme_address)
    open_what_if(page)
    page.get_by_role("group", name="Steps of the output").get_by_role("button").first.click()
    slider = page.get_by_role("slider", name="Attention of step 1")
    slider.focus()
    # All weight on the last position changes the first symbol.
    for _ in first_example().traces[0].source:
        page.keyboard.press("ArrowRight")
    for _ in range(20):
        page.keyboard.press("ArrowUp")
    expect(page.locator(".outdated")).to_have_count(0)
    row = find_panel(page, "Probabilities before and after").locator("tbody tr").first
    before, after = row.locator("td").nth(1).inner_text(), row.locator("td").nth(2).inner_text()
    written = row.locator(".symbol-change > span:first-child").all_inner_texts()
    assert written == [f"p({symbol})" for symbol in dict.fromkeys((before, after))]
    # The frame of the keyboard focus is within the strip, which would clip it.
    assert slider.evaluate("each => getComputedStyle(each).outlineOffset") == "-2px"


@pytest.mark.slow
def test_forced_attention_of_several_steps_is_reset_step_by_step(open_page: OpenPage, server_url: str) -> None:
    index, forced_rows = find_forced_chain()
    page = open_page(f"{server_url}#example={index}")
    open_what_if(page)
    steps = page.get_by_role("group", name="Steps of the output").get_by_role("button")
    forced_steps = page.get_by_role("group", name="Steps with forced attention").get_by_role("button")
    lengths = [steps.count()]
    for count, row in enumerate(forced_rows, start=1):
        page.get_by_role("button", name=re.compile(f"^step {row.step + 1}(, attention forced)?$")).click()
        bars = page.get_by_role("slider", name=f"Attention of step {row.step + 1}:")
        cells = bars.locator(".ground")
        box = cells.nth(row.weights.index(1)).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 1, steps=4)
        page.mouse.up()
        expect(forced_steps).to_have_count(count)
        expect(page.locator("[aria-busy=true], .outdated")).to_have_count(0)
        expect(page.locator(f"{SENTENCE} .wrong")).to_have_count(0)
        lengths.append(steps.count())
    assert lengths[0] < lengths[1] > forced_rows[1].step >= lengths[3]
    labels = [
        f"step {row.step + 1}{', not reached' if row is forced_rows[1] else ''} ✕"
        for row in sorted(forced_rows, key=forced_step)
    ]
    expect(forced_steps).to_have_text(labels)
    undo = page.get_by_role("button", name="Undo")
    for count in (2, 1):
        undo.click()
        expect(forced_steps).to_have_count(count)
        expect(steps).to_have_count(lengths[count])
    undo.click()
    expect(forced_steps).to_have_count(0)
    expect(undo).to_be_disabled()
    for _ in forced_rows:
        page.get_by_role("button", name="Redo").click()
    expect(forced_steps).to_have_text(labels)
    forced_steps.nth(0).click()
    expect(forced_steps).to_have_count(2)


@pytest.mark.slow
def test_table_ends_with_the_new_output_and_the_probability_of_its_end(open_page: OpenPage, server_url: str) -> None:
    index, forced_rows = find_forced_chain()
    page = open_page(f"{server_url}#example={index}")
    open_what_if(page)
    steps = page.get_by_role("group", name="Steps of the output").get_by_role("button")
    rows = find_panel(page, "Probabilities before and after").locator("tbody tr")
    num_steps_before = steps.count()
    end_with_probability = re.compile(r"p\(⟨end⟩\)(–|(< )?[\d.e-]+)→[\d.e-]+")
    for row in forced_rows:
        steps.nth(row.step).click()
        bars = page.get_by_role("slider", name=f"Attention of step {row.step + 1}:")
        box = bars.locator(".ground").nth(row.weights.index(1)).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 1, steps=4)
        page.mouse.up()
        expect(page.locator("[aria-busy=true], .outdated")).to_have_count(0)
        expect(rows).to_have_count(steps.count())
        expect(rows.last.locator("td").nth(2)).to_have_text("⟨end⟩")
        expect(rows.last).to_contain_text(end_with_probability)
        if steps.count() > num_steps_before:
            expect(rows.last.locator("td").nth(1)).to_have_text("–")
            expect(rows.last).to_contain_text("p(⟨end⟩)–→")


def forced_step(row: ForcedAttentionRow) -> int:
    """Return the step of forced attention."""
    return row.step


def test_occlusion_and_gradient_are_shown(open_page: OpenPage, phoneme_address: str) -> None:
    page = open_page(phoneme_address)
    canvas = page.get_by_role("region", name=re.compile("^(Attention|Occlusion|Gradient) matrix$")).locator("canvas")
    images = {canvas.evaluate("canvas => canvas.toDataURL()")}
    for layer in ("occlusion", "gradient"):
        page.get_by_role("button", name=layer, exact=True).click()
        expect(page.locator(".layers")).to_contain_text("rank correlation with attention")
        expect(find_panel(page, f"{layer.capitalize()} matrix")).to_be_visible()
        expect(find_panel(page, f"{layer.capitalize()} links")).to_be_visible()
        expect(page.get_by_role("button", name=layer, exact=True)).to_have_attribute("aria-pressed", "true")
        images.add(canvas.evaluate("canvas => canvas.toDataURL()"))
        assert f"layer={layer}" in page.url
    assert len(images) == 3


@pytest.mark.slow
def test_states_gates_and_neighbors_are_shown_on_request(open_page: OpenPage, phoneme_address: str) -> None:
    page = open_page(phoneme_address)
    open_tab(page, "States")
    page.get_by_role("button", name="Show state values").click()
    strips = find_panel(page, "State values").get_by_role("application")
    expect(strips).to_have_count(2)
    page.get_by_role("button", name="Show gate values").click()
    expect(find_panel(page, "State values")).to_contain_text("update")
    assert strips.count() > 2
    page.get_by_role("button", name="Find nearest states").click()
    neighbors = find_panel(page, "Nearest states")
    expect(neighbors.locator("ol li")).to_have_count(20)
    expect(neighbors).to_contain_text("symbols that follow these states")
    expect(neighbors.locator(".caption")).to_contain_text("states of the file")
    neighbors.get_by_role("button", name="Encoder states").click()
    expect(neighbors).to_contain_text("Nearest to the encoder state")


def test_trajectory_of_an_example_is_drawn_among_corpus_states(open_page: OpenPage, phoneme_address: str) -> None:
    page = open_page(phoneme_address)
    open_tab(page, "States")
    plot = find_panel(page, "PCA of the states")
    trajectory_button = page.get_by_role("button", name="Show the states of this example")
    if trajectory_button.is_visible():
        trajectory_button.click()
    expect(plot.locator("circle.mine").first).to_be_visible()
    space = pronunciation_page_data().contents.state_space
    assert space is not None
    assert (plot.locator("path.corpus").get_attribute("d") or "").count("M") == len(space.encoder.points)
    plot_area = plot.get_by_role("application")
    plot_area.focus()
    page.keyboard.press("ArrowRight")
    expect(plot.locator("[aria-live]")).to_contain_text("at position")
    page.keyboard.press("Enter")
    plot.get_by_role("button", name="Decoder states").click()
    assert (plot.locator("path.corpus").get_attribute("d") or "").count("M") == len(space.decoder.points)


def test_unknown_symbol_is_decoded_and_reported(open_page: OpenPage, phoneme_address: str) -> None:
    page = open_page(phoneme_address)
    page.get_by_role("searchbox", name="Source to decode").fill("ca☃o")
    expect(find_panel(page, "Attention links")).to_contain_text("☃")
