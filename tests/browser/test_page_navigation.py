"""Navigation: history, addresses, touch, reduced motion, narrow screens."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import OpenPage
from page_data import digits_page_data
from page_navigation import find_panel, open_tab, visible_examples
from page_runs import long_page_data
from playwright.sync_api import Browser, Page, expect
from sample_traces import make_trace

from pellucid.decoding.trace import END
from pellucid.decoding.trace_schema import decode_array
from pellucid.viewer.pages import trace_page as page_of
from pellucid.viewer.server import background_server, create_app

SENTENCE = ".sentence"
UNKNOWN_MESSAGE = "not in the vocabulary"
SMALL_BUTTONS = """all => all.map(each => [each.textContent, each.getBoundingClientRect()])
    .filter(([, box]) => box.width > 0 && Math.min(box.width, box.height) < 24)
    .map(([text, box]) => [text, box.width, box.height])"""
"""Script that returns the buttons below the minimum target size (WCAG 2.2, 2.5.8)."""
HISTORY_INTERVAL = 1100
"""Milliseconds after which another example is a separate history entry."""


@pytest.mark.slow
def test_back_returns_to_the_previous_example_and_view(open_page: OpenPage, server_url: str) -> None:
    page = open_page(f"{server_url}#example=0")
    items = digits_page_data(beam_size=3).contents.examples
    for index in (3, 5):
        page.wait_for_timeout(HISTORY_INTERVAL)
        visible_examples(page).nth(index).click()
    open_tab(page, "Corpus")
    page.go_back()
    for index in (5, 3, 0):
        expect(page.get_by_role("option", selected=True).locator(".source")).to_have_text(items[index].text)
        page.go_back()
    assert page.url == "about:blank"
    page.go_forward()
    page.go_forward()
    expect(page.get_by_role("option", selected=True).locator(".source")).to_have_text(items[3].text)


@pytest.mark.slow
def test_quickly_passed_examples_are_one_history_entry(open_page: OpenPage, server_url: str) -> None:
    page = open_page(f"{server_url}#example=2")
    expect(visible_examples(page).first).to_be_visible()
    page.wait_for_timeout(HISTORY_INTERVAL)
    for _ in range(4):
        page.keyboard.press("j")
    page.wait_for_function("location.hash.includes('example=6')")
    page.go_back()
    expect(page.get_by_role("option", selected=True).locator(".source")).to_have_text(
        digits_page_data(beam_size=3).contents.examples[2].text
    )


def change_example(page: Page) -> str:
    """Mask a position, force a prefix and the attention of a step. Return the sentence that describes it."""
    open_tab(page, "What if")
    page.get_by_role("group", name="Source symbols").get_by_role("button").nth(1).click()
    page.get_by_role("button", name="Mask in attention").click()
    page.get_by_label("prefix").fill("9")
    page.get_by_role("button", name="Argmax only").click()
    expect(page.locator(SENTENCE)).to_contain_text("attend to position")
    expect(page.locator(SENTENCE)).to_contain_text("the prefix “9”")
    return page.locator(SENTENCE).inner_text()


@pytest.mark.slow
def test_address_contains_the_what_if_change(open_page: OpenPage, server_url: str, exported_page_url: str) -> None:
    page = open_page(f"{server_url}#example=4")
    sentence = change_example(page)
    expect(open_page(page.url).locator(SENTENCE)).to_have_text(sentence)
    page.get_by_role("textbox", name="source", exact=True).fill("two ten")
    expect(page.locator(SENTENCE)).to_contain_text("by “two ten”")
    sentence = page.locator(SENTENCE).inner_text()
    expect(open_page(page.url).locator(SENTENCE)).to_have_text(sentence)
    saved_page = open_page(f"{exported_page_url}#{page.url.partition('#')[2]}")
    expect(saved_page.get_by_role("tabpanel")).to_contain_text("This page is a saved file without a model")
    expect(saved_page.get_by_role("tabpanel")).to_contain_text("by “two ten”")
    page.get_by_role("button", name="Reset all changes").click()
    expect(page.locator(SENTENCE)).to_contain_text("No change")
    assert "edit=" not in page.url


@pytest.mark.slow
def test_address_contains_the_typed_and_changed_source(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    page.get_by_role("searchbox", name="Source to decode").fill("two six")
    expect(find_panel(page, "Attention links").get_by_role("application")).to_have_accessible_name(
        re.compile("^Links from 7 ")
    )
    open_tab(page, "What if")
    page.get_by_role("group", name="Source symbols").get_by_role("button").first.click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(SENTENCE)).to_contain_text("Replacing the source “two six” by “wo six”")
    sentence = page.locator(SENTENCE).inner_text()
    expect(open_page(page.url).locator(SENTENCE)).to_have_text(sentence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        "{",
        "[]",
        '{"masked_positions": "x"}',
        '{"forced_attention": [{}]}',
        '{"prefix": [1]}',
        "%7B%22text%22%3A1%7D",
    ],
)
def test_invalid_address_is_ignored(open_page: OpenPage, server_url: str, edit: str) -> None:
    page = open_page(f"{server_url}#tab=what-if&example=4&edit={edit}")
    expect(page.locator(SENTENCE)).to_contain_text("No change")


@pytest.fixture(scope="module")
def long_address() -> Iterator[str]:
    """Serve a page with sources of 300 to 1,000 symbols and yield its address."""
    with background_server(create_app(long_page_data())) as address:
        yield address


@pytest.mark.slow
def test_too_long_change_is_reported_and_small_weights_have_bars(open_page: OpenPage, long_address: str) -> None:
    page = open_page(f"{long_address}#tab=what-if")
    bars = find_panel(page, "Attention of step 1")
    expect(bars).to_contain_text("Full height:")
    heights = bars.locator("rect:not(.ground)").evaluate_all("all => all.map(each => each.height.baseVal.value)")
    assert max(heights) > 20
    before = decode_array(long_page_data().contents.examples[0].traces[0].attention)
    profile = find_panel(page, "Attention before").locator("rect:not(.here)")
    bar_heights = profile.evaluate_all("all => all.map(each => each.height.baseVal.value)")[-before.shape[1] :]
    assert min(bar_heights) > 0.2 * max(bar_heights)  # the weights are almost uniform, and the bars start at zero
    strip = bars.locator(".scroll")
    page.get_by_role("group", name="Source symbols").get_by_role("button").nth(250).click()
    assert strip.evaluate("strip => strip.scrollLeft") > 0
    box = strip.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 100, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + 100, box["y"] + 40, steps=5)
    page.mouse.up()
    expect(page.locator(SENTENCE)).to_contain_text("attention of step 1")
    weight = page.get_by_role("slider", name="Attention of step 1").get_attribute("aria-valuenow")
    assert 0.0005 < float(weight or 0) < 0.005  # the scale does not change during the drag
    page.get_by_role("button", name="Uniform").click()
    expect(page).to_have_url(re.compile("edit="))  # uniform weights are stored as one number and a count
    page.get_by_role("button", name="Permuted weights").click()
    expect(page.get_by_role("group", name="Undo and reset changes")).to_contain_text("too long for a link")
    assert "edit=" not in page.url


@pytest.mark.slow
def test_unknown_symbols_are_marked_in_every_view(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    page.get_by_role("searchbox", name="Source to decode").fill("si☃x")
    for title in ("Attention links", "Attention matrix"):
        expect(find_panel(page, title).locator("svg title")).to_have_text(UNKNOWN_MESSAGE)
    expect(page.get_by_text("The model does not know “☃”")).to_be_visible()
    page.get_by_role("button", name="Weights as table", exact=True).click()
    expect(page.get_by_role("columnheader", name=f"☃, position 3, {UNKNOWN_MESSAGE}")).to_be_visible()
    find_panel(page, "Attention links").get_by_role("application").focus()
    for key in ("ArrowRight", "ArrowUp", "Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(find_panel(page, "Attention links").locator("[aria-live]")).to_contain_text(
        re.compile(f"^Position 3, .*☃.*, {UNKNOWN_MESSAGE}")
    )
    open_tab(page, "Beam")
    expect(find_panel(page, "Attention of the selected hypothesis").locator("svg title")).to_have_text(
        [UNKNOWN_MESSAGE, UNKNOWN_MESSAGE]
    )
    expect(page.get_by_text("The model does not know “☃”")).to_be_visible()
    open_tab(page, "Compare")
    for name in ("run", "rival"):
        expect(page.get_by_text(f"Model “{name}” does not know “☃”")).to_be_visible()
    for title in ("run", "rival", "Attention difference"):
        expect(find_panel(page, title).locator("svg title")).to_have_text(UNKNOWN_MESSAGE)
    open_tab(page, "What if")
    for title in ("Attention before", "Attention after", "Attention difference"):
        expect(find_panel(page, title).locator("svg title")).to_have_text(UNKNOWN_MESSAGE)
    expect(find_panel(page, "Edit the source")).to_contain_text("The model does not know “☃”")
    expect(page.get_by_role("button", name=f"☃, position 3, {UNKNOWN_MESSAGE}")).to_have_class(re.compile("unknown"))
    bars = page.get_by_role("slider", name="Attention of step 1")
    expect(bars.locator("title").filter(has_text=UNKNOWN_MESSAGE)).to_have_count(1)


def test_wide_links_scroll_to_the_selection(open_page: OpenPage, tmp_path: Path) -> None:
    size = 100
    rows = [[0.9 if s == 10 * t + 5 else 0.1 / (size - 1) for s in range(size)] for t in range(10)]
    (tmp_path / "long.html").write_text(page_of(make_trace("ab" * (size // 2), [*"xyxyxyxyx", END], rows)), "utf-8")
    page = open_page((tmp_path / "long.html").as_uri())
    page.set_viewport_size({"width": 900, "height": 900})
    strip = find_panel(page, "Attention links").locator(".scroll")
    assert strip.evaluate("strip => strip.scrollWidth - strip.clientWidth") > 100
    expect(find_panel(page, "Attention links")).to_contain_text("Scroll sideways")
    page.get_by_role("application", name=re.compile("^Heat map")).focus()
    page.mouse.move(0, 0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.wait_for_function("() => document.querySelector('.scroll').scrollLeft > 50")
    page.keyboard.press("Home")
    page.wait_for_function("() => document.querySelector('.scroll').scrollLeft < 50")


@pytest.mark.slow
def test_animation_respects_reduced_motion(open_page: OpenPage, exported_page_url: str) -> None:
    page = open_page("about:blank")
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{exported_page_url}#tab=training")
    slider = page.get_by_role("slider", name="Validation whose")
    last = slider.input_value()
    page.wait_for_timeout(1500)
    assert slider.input_value() == last
    page.get_by_role("button", name="Play").click()
    values = set[float]()
    while page.get_by_role("button", name="Pause").is_visible():
        values.add(float(slider.input_value()))
        page.wait_for_timeout(50)
    assert len(values) > 2 and all(value == int(value) for value in values)
    assert page.evaluate("() => document.getAnimations().length") == 0


@pytest.mark.slow
def test_every_tab_is_reachable_on_a_narrow_screen(browser: Browser, server_url: str) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 800}, has_touch=True, is_mobile=True)
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(f"{error}"))
    page.goto(server_url)
    expect(find_panel(page, "Attention links")).to_be_visible()
    tabs = page.get_by_role("tab")
    names = tabs.all_inner_texts()
    assert len(names) == 8
    assert page.get_by_role("tablist").evaluate("each => each.scrollWidth <= each.clientWidth")
    for name in names:
        tab_button = page.get_by_role("tab", name=name, exact=True)
        box = tab_button.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 400
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(tab_button).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        assert page.get_by_role("button").evaluate_all(SMALL_BUTTONS) == []
        page.evaluate("scrollTo(0, 0)")
    page.get_by_role("tab", selected=True).focus()
    for name in names:
        page.keyboard.press("ArrowRight")
        expect(page.locator("[role=tab]:focus")).to_have_text(name)
        expect(page.get_by_role("tab", selected=True)).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
    assert errors == []


def test_touch_locks_and_unlocks(browser: Browser, server_url: str) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 800}, has_touch=True, is_mobile=True)
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(f"{error}"))
    page.goto(server_url)
    for title, y in (("Attention links", 40), ("Attention matrix", 60)):
        picture = find_panel(page, title).get_by_role("application")
        picture.tap(position={"x": 120, "y": y})
        unlock_button = find_panel(page, title).get_by_role("button", name="unlock selection")
        expect(unlock_button).to_be_visible()
        expect(find_panel(page, title).locator(".readout")).to_contain_text(re.compile("osition|Step"))
        unlock_button.tap()
        expect(unlock_button).to_have_count(0)
    page.locator(".step").nth(1).tap()
    expect(page.locator(".step.pointed")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
    assert errors == []


def test_no_request_of_the_page_fails(open_page: OpenPage, server_url: str) -> None:
    page, responses = open_page("about:blank"), list[tuple[str, int]]()
    page.on("response", lambda response: responses.append((response.url, response.status)))
    page.goto(server_url)
    expect(find_panel(page, "Attention matrix")).to_be_visible()
    page.wait_for_timeout(300)
    assert responses and all(status < 400 for _, status in responses)


def test_percentages_name_their_total(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    item = next(example for example in digits_page_data(beam_size=3).contents.examples if len(example.traces) > 1)
    expect(page.get_by_role("radio").first).to_contain_text("of these")
    expect(page.locator(".picked")).to_contain_text(f"probability normalized over these {len(item.traces)}")
    for layer, caption in {
        "occlusion": "embedding of a source position is set to zero",
        "gradient": "Gradient of the log-probability",
    }.items():
        page.get_by_role("button", name=layer, exact=True).click()
        expect(page.locator(".layers + p")).to_contain_text(caption)
    open_tab(page, "Compare")
    outcomes = page.get_by_role("group", name=re.compile("^Outcomes"))
    expect(outcomes).to_contain_text("only “run” correct")
    expect(outcomes).to_contain_text("only “rival” correct")
    expect(find_panel(page, "Attention difference").locator(".caption")).to_contain_text("Red: more weight in “rival”")
    expect(find_panel(page, "Attention difference")).to_contain_text("“rival” − “run”")
    # On a wide screen, the three heat maps are side by side.
    page.set_viewport_size({"width": 1600, "height": 900})
    top_edges = page.locator(".pair canvas").evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")
    assert len(top_edges) >= 3 and max(top_edges[:3]) - min(top_edges[:3]) < 1


def test_output_has_one_tab_stop_and_arrow_keys(open_page: OpenPage, exported_page_url: str) -> None:
    page = open_page(exported_page_url)
    page.get_by_role("option", name=re.compile("^wrong, ")).first.click()
    symbols = page.locator(".example-result td button")
    expect(symbols.and_(page.locator("[tabindex='0']"))).to_have_count(1)
    symbols.first.focus()
    for _ in range(symbols.count()):
        page.keyboard.press("ArrowRight")
    expect(symbols.last).to_be_focused()
    expect(symbols.and_(page.locator("[tabindex='0']"))).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    if symbols.count() > 1:
        expect(symbols.nth(symbols.count() - 2)).to_be_focused()
