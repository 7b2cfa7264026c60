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
NEVER = "not in the vocabulary"
SMALL = """all => all.map(each => [each.textContent, each.getBoundingClientRect()])
    .filter(([, box]) => box.width > 0 && Math.min(box.width, box.height) < 24)
    .map(([text, box]) => [text, box.width, box.height])"""
"""Buttons that are too small for a finger (WCAG 2.2, 2.5.8)."""
WALK = 1100
"""Milliseconds after which going to another example is a step of its own."""


def test_back_returns_to_the_previous_example_and_view(open_page: OpenPage, server_url: str) -> None:
    page = open_page(f"{server_url}#example=0")
    items = digits_page_data(beam_size=3).contents.examples
    for place in (3, 5):
        page.wait_for_timeout(WALK)
        visible_examples(page).nth(place).click()
    open_tab(page, "Corpus")
    page.go_back()
    for place in (5, 3, 0):
        expect(page.get_by_role("option", selected=True).locator(".source")).to_have_text(items[place].text)
        page.go_back()
    assert page.url == "about:blank"
    page.go_forward()
    page.go_forward()
    expect(page.get_by_role("option", selected=True).locator(".source")).to_have_text(items[3].text)


def test_quickly_passed_examples_are_one_history_entry(open_page: OpenPage, server_url: str) -> None:
    page = open_page(f"{server_url}#example=2")
    expect(visible_examples(page).first).to_be_visible()
    page.wait_for_timeout(WALK)
    for _ in range(4):
        page.keyboard.press("j")
    page.wait_for_function("location.hash.includes('example=6')")
    page.go_back()
    expect(page.get_by_role("option", selected=True).locator(".source")).to_have_text(
        digits_page_data(beam_size=3).contents.examples[2].text
    )


def changed(page: Page) -> str:
    """A position is hidden, the output's beginning and a row of attention are given; what is said of it."""
    open_tab(page, "What if")
    page.get_by_role("group", name="Source symbols").get_by_role("button").nth(1).click()
    page.get_by_role("button", name="Mask in attention").click()
    page.get_by_label("prefix").fill("9")
    page.get_by_role("button", name="Argmax only").click()
    expect(page.locator(SENTENCE)).to_contain_text("attend to position")
    expect(page.locator(SENTENCE)).to_contain_text("the prefix “9”")
    return page.locator(SENTENCE).inner_text()


def test_address_contains_the_what_if_change(open_page: OpenPage, server_url: str, exported_page_url: str) -> None:
    page = open_page(f"{server_url}#example=4")
    told = changed(page)
    expect(open_page(page.url).locator(SENTENCE)).to_have_text(told)
    page.get_by_role("textbox", name="source", exact=True).fill("two ten")
    expect(page.locator(SENTENCE)).to_contain_text("by “two ten”")
    told = page.locator(SENTENCE).inner_text()
    expect(open_page(page.url).locator(SENTENCE)).to_have_text(told)
    alone = open_page(f"{exported_page_url}#{page.url.partition('#')[2]}")
    expect(alone.get_by_role("tabpanel")).to_contain_text("This page is a saved file without a model")
    expect(alone.get_by_role("tabpanel")).to_contain_text("by “two ten”")
    page.get_by_role("button", name="Reset all changes").click()
    expect(page.locator(SENTENCE)).to_contain_text("No change")
    assert "edit=" not in page.url


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
    told = page.locator(SENTENCE).inner_text()
    expect(open_page(page.url).locator(SENTENCE)).to_have_text(told)


@pytest.mark.parametrize(
    "edit",
    [
        "{",
        "[]",
        '{"masked_positions": "x"}',
        '{"attention_overrides": [{}]}',
        '{"prefix": [1]}',
        "%7B%22text%22%3A1%7D",
    ],
)
def test_invalid_address_is_ignored(open_page: OpenPage, server_url: str, edit: str) -> None:
    page = open_page(f"{server_url}#tab=what-if&example=4&edit={edit}")
    expect(page.locator(SENTENCE)).to_contain_text("No change")


@pytest.fixture(scope="module")
def long() -> Iterator[str]:
    """A service on sources of 300 to 1,000 symbols."""
    with background_server(create_app(long_page_data())) as found:
        yield found


def test_too_long_change_is_reported_and_small_weights_have_bars(open_page: OpenPage, long: str) -> None:
    page = open_page(f"{long}#tab=what-if")
    bars = find_panel(page, "Attention of step 1")
    expect(bars).to_contain_text("Full height:")
    heights = bars.locator("rect:not(.ground)").evaluate_all("all => all.map(each => each.height.baseVal.value)")
    assert max(heights) > 20
    before = decode_array(long_page_data().contents.examples[0].traces[0].attention)
    profile = find_panel(page, "Attention before").locator("rect:not(.here)")
    drawn = profile.evaluate_all("all => all.map(each => each.height.baseVal.value)")[-before.shape[1] :]
    assert min(drawn) > 0.2 * max(drawn)  # hardly more than an even share each: the bars begin at nothing
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
    dragged = page.get_by_role("slider", name="Attention of step 1").get_attribute("aria-valuenow")
    assert 0.0005 < float(dragged or 0) < 0.005  # the scale stays while one drags
    page.get_by_role("button", name="Uniform").click()
    expect(page).to_have_url(re.compile("edit="))  # one number, and how often
    page.get_by_role("button", name="Permuted weights").click()
    expect(page.get_by_role("group", name="Undo and reset changes")).to_contain_text("too long for a link")
    assert "edit=" not in page.url


def test_unknown_symbols_are_marked_in_every_view(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    page.get_by_role("searchbox", name="Source to decode").fill("si☃x")
    for title in ("Attention links", "Attention matrix"):
        expect(find_panel(page, title).locator("svg title")).to_have_text(NEVER)
    page.get_by_role("button", name="Weights as table", exact=True).click()
    expect(page.get_by_role("columnheader", name=f"☃, position 3, {NEVER}")).to_be_visible()
    find_panel(page, "Attention links").get_by_role("application").focus()
    for key in ("ArrowRight", "ArrowUp", "Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(find_panel(page, "Attention links").locator("[aria-live]")).to_contain_text(
        re.compile(f"^Position 3, .*☃.*, {NEVER}")
    )
    open_tab(page, "Beam")
    expect(find_panel(page, "Attention of the selected hypothesis").locator("svg title")).to_have_text([NEVER, NEVER])
    open_tab(page, "Compare")
    for title in ("run", "rival", "Attention difference"):
        expect(find_panel(page, title).locator("svg title")).to_have_text(NEVER)
    open_tab(page, "What if")
    for title in ("Attention before", "Attention after", "Attention difference"):
        expect(find_panel(page, title).locator("svg title")).to_have_text(NEVER)
    expect(page.get_by_role("button", name=f"☃, position 3, {NEVER}")).to_have_class(re.compile("unknown"))
    bars = page.get_by_role("slider", name="Attention of step 1")
    expect(bars.locator("title").filter(has_text=NEVER)).to_have_count(1)


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


def test_animation_respects_reduced_motion(open_page: OpenPage, exported_page_url: str) -> None:
    page = open_page("about:blank")
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{exported_page_url}#tab=training")
    scrub = page.get_by_role("slider", name="Validation whose")
    last = scrub.input_value()
    page.wait_for_timeout(1500)
    assert scrub.input_value() == last
    page.get_by_role("button", name="Play").click()
    seen = set[float]()
    while page.get_by_role("button", name="Pause").is_visible():
        seen.add(float(scrub.input_value()))
        page.wait_for_timeout(50)
    assert len(seen) > 2 and all(each == int(each) for each in seen)
    assert page.evaluate("() => document.getAnimations().length") == 0


def test_every_tab_is_reachable_on_a_narrow_screen(browser: Browser, server_url: str) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 800}, has_touch=True, is_mobile=True)
    page, wrong = context.new_page(), list[str]()
    page.on("pageerror", lambda error: wrong.append(f"{error}"))
    page.goto(server_url)
    expect(find_panel(page, "Attention links")).to_be_visible()
    tabs = page.get_by_role("tab")
    names = tabs.all_inner_texts()
    assert len(names) == 8
    assert page.get_by_role("tablist").evaluate("each => each.scrollWidth <= each.clientWidth")
    for name in names:
        own = page.get_by_role("tab", name=name, exact=True)
        box = own.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 400
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(own).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        assert page.get_by_role("button").evaluate_all(SMALL) == []
        page.evaluate("scrollTo(0, 0)")
    page.get_by_role("tab", selected=True).focus()
    for name in names:
        page.keyboard.press("ArrowRight")
        expect(page.locator("[role=tab]:focus")).to_have_text(name)
        expect(page.get_by_role("tab", selected=True)).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
    assert wrong == []


def test_touch_locks_and_unlocks(browser: Browser, server_url: str) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 800}, has_touch=True, is_mobile=True)
    page, wrong = context.new_page(), list[str]()
    page.on("pageerror", lambda error: wrong.append(f"{error}"))
    page.goto(server_url)
    for title, y in (("Attention links", 40), ("Attention matrix", 60)):
        picture = find_panel(page, title).get_by_role("application")
        picture.tap(position={"x": 120, "y": y})
        held = find_panel(page, title).get_by_role("button", name="unlock selection")
        expect(held).to_be_visible()
        expect(find_panel(page, title).locator(".readout")).to_contain_text(re.compile("osition|Step"))
        held.tap()
        expect(held).to_have_count(0)
    page.locator(".step").nth(1).tap()
    expect(page.locator(".step.pointed")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
    assert wrong == []


def test_no_request_of_the_page_fails(open_page: OpenPage, server_url: str) -> None:
    page, answers = open_page("about:blank"), list[tuple[str, int]]()
    page.on("response", lambda answer: answers.append((answer.url, answer.status)))
    page.goto(server_url)
    expect(find_panel(page, "Attention matrix")).to_be_visible()
    page.wait_for_timeout(300)
    assert answers and all(status < 400 for _, status in answers)


def test_percentages_name_their_total(open_page: OpenPage, server_url: str) -> None:
    page = open_page(server_url)
    several = next(item for item in digits_page_data(beam_size=3).contents.examples if len(item.traces) > 1)
    expect(page.get_by_role("radio").first).to_contain_text("of these")
    expect(page.locator(".picked")).to_contain_text(f"probability normalized over these {len(several.traces)}")
    for layer, said in {
        "occlusion": "embedding of a source position is set to zero",
        "gradient": "Gradient of the log-probability",
    }.items():
        page.get_by_role("button", name=layer, exact=True).click()
        expect(page.locator(".layers + p")).to_contain_text(said)
    open_tab(page, "Compare")
    wins = page.get_by_role("group", name=re.compile("^Outcomes"))
    expect(wins).to_contain_text("only run correct")
    expect(wins).to_contain_text("only rival correct")
    expect(find_panel(page, "Attention difference").locator(".caption")).to_contain_text("Red: more weight in rival")
    expect(find_panel(page, "Attention difference")).to_contain_text("rival − run")
    # Three maps that are read together stand at one height, where there is room for them beside each other.
    page.set_viewport_size({"width": 1600, "height": 900})
    tops = page.locator(".pair canvas").evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")
    assert len(tops) >= 3 and max(tops[:3]) - min(tops[:3]) < 1


def test_output_has_one_tab_stop_and_arrow_keys(open_page: OpenPage, exported_page_url: str) -> None:
    page = open_page(exported_page_url)
    page.get_by_role("option", name=re.compile("^wrong, ")).first.click()
    written = page.locator(".verdict td button")
    expect(written.and_(page.locator("[tabindex='0']"))).to_have_count(1)
    written.first.focus()
    for _ in range(written.count()):
        page.keyboard.press("ArrowRight")
    expect(written.last).to_be_focused()
    expect(written.and_(page.locator("[tabindex='0']"))).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    if written.count() > 1:
        expect(written.nth(written.count() - 2)).to_be_focused()
