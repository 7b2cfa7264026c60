"""Long sources: drawing, zoom and response times."""

import itertools
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from chromium import OpenPage
from page_navigation import find_panel, open_tab
from page_runs import MAX_SOURCE_LENGTH, long_page_data
from playwright.sync_api import CDPSession, Page, expect
from sample_traces import make_trace

from pellucid.decoding.trace import END
from pellucid.viewer.pages import export_page
from pellucid.viewer.pages import trace_page as page_of

MAX_MILLISECONDS = 50
"""Maximum number of milliseconds from an event to the frame that shows it."""
# Measures the time from just before a pointer event is dispatched to the first task after the frame that shows the
# change: event handlers, style, layout, paint and the wait for the frame (16.7 ms). Returns the median of twenty.
MEASURE_HOVER = """async ([x, y, dx, dy]) => {
    const target = document.elementFromPoint(x, y), times = [];
    for (let event = 0; event < 20; event++) {
        const start = performance.now();
        const options = { clientX: x + event * dx, clientY: y + event * dy, bubbles: true };
        target.dispatchEvent(new PointerEvent('pointermove', options));
        await new Promise(resolve => requestAnimationFrame(() => {
            const { port1, port2 } = new MessageChannel();
            port1.onmessage = resolve;
            port2.postMessage(null);
        }));
        times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b)[10];
}"""


TEXT_BOXES = "all => all.map(each => each.getBoundingClientRect()).map(box => [Math.round(box.y), box.x, box.width])"


class HoverTime(NamedTuple):
    """Milliseconds that one event takes."""

    wall_ms: float
    """Wall-clock time until the frame: the median of twenty."""
    cpu_ms: float
    """CPU time of the main thread of the page: the mean. Other processes are not included."""


def measure_hover(page: Page, title: str) -> HoverTime:
    """Measure the time that a panel takes to respond to the pointer."""
    box = find_panel(page, title).locator("canvas").first
    box.scroll_into_view_if_needed()
    bounds = box.bounding_box()
    assert bounds is not None
    arguments = [bounds["x"] + 20, bounds["y"] + min(8, bounds["height"] / 2), 7, min(5, bounds["height"] / 40)]
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = main_thread_seconds(session)
    median = float(page.evaluate(MEASURE_HOVER, arguments))
    return HoverTime(median, 1000 * (main_thread_seconds(session) - before) / 20)


def main_thread_seconds(session: CDPSession) -> float:
    """Return the CPU time of the main thread of the page, in seconds."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")


def assert_fast(hover_time: HoverTime, max_milliseconds: float) -> None:
    """Assert that the CPU time is in bounds, and the wall-clock time too unless the machine is busy."""
    print(hover_time)  # shown by pytest -s
    assert hover_time.cpu_ms < max_milliseconds
    assert hover_time.wall_ms < max_milliseconds or os.getloadavg()[0] > (os.cpu_count() or 1)


@pytest.mark.slow
def test_heat_map_of_200_by_200_responds_to_the_pointer_at_once(open_page: OpenPage, tmp_path: Path) -> None:
    size = 200
    rows = [[0.9 if s == t else 0.1 / (size - 1) for s in range(size)] for t in range(size)]
    path = tmp_path / "large.html"
    path.write_text(
        page_of(make_trace("ab" * (size // 2), [*"xy" * (size // 2 - 1), "x", END], rows)), encoding="utf-8"
    )
    page = open_page(path.as_uri())
    hover_time = measure_hover(page, "Attention matrix")
    assert_fast(hover_time, MAX_MILLISECONDS)
    expect(find_panel(page, "Attention matrix").locator(".readout")).to_contain_text("Step")
    picture = find_panel(page, "Attention matrix").locator("svg[role=application]")
    last_label, picture_box = (
        each.bounding_box() for each in (picture.locator("text.place").filter(has_text="200").first, picture)
    )
    assert last_label is not None and picture_box is not None
    assert last_label["x"] + last_label["width"] <= picture_box["x"] + picture_box["width"]
    expect(find_panel(page, "Output steps")).to_contain_text("Scroll sideways for the rest.")


# Printing lays out the page again without notifying a ResizeObserver. This script does the same in print media.
FREEZE_RESIZE_OBSERVER = """() => { const Original = window.ResizeObserver;
    window.ResizeObserver = class extends Original {
    constructor(notify) { super((...change) => matchMedia('print').matches || notify(...change)); } } }"""
OVERFLOWING_ELEMENTS = """width => [...document.querySelectorAll('#view *, header *')]
    .filter(each => each.getBoundingClientRect().width && each.getBoundingClientRect().right > width + 1)
    .map(each => `${each.tagName} ${each.getAttribute('class')} ${each.getBoundingClientRect().right}`)"""


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [(12, 14), (200, 200), (MAX_SOURCE_LENGTH, 100), (MAX_SOURCE_LENGTH, 1)])
def test_wide_heat_map_fits_on_paper(open_page: OpenPage, tmp_path: Path, columns: int, rows: int) -> None:
    weights = [[0.9 if s == t else 0.1 / (columns - 1) for s in range(columns)] for t in range(rows)]
    path = tmp_path / "wide.html"
    path.write_text(
        page_of(make_trace(("abcdefghij" * 100)[:columns], [*"x" * (rows - 1), END], weights)), encoding="utf-8"
    )
    page = open_page("about:blank")
    page.add_init_script(f"({FREEZE_RESIZE_OBSERVER})()")
    page.goto(path.as_uri())
    heat_map = find_panel(page, "Attention matrix").locator("svg[role=application]")
    expect(heat_map).to_be_visible()
    before = heat_map.bounding_box()
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 1000})
    assert page.evaluate(OVERFLOWING_ELEMENTS, 700) == []
    printed = heat_map.bounding_box()
    assert before is not None and printed is not None
    assert printed["height"] / printed["width"] == pytest.approx(before["height"] / before["width"], rel=0.02)
    assert printed["width"] == (pytest.approx(before["width"]) if columns == 12 else pytest.approx(660, abs=25))
    if rows > 1:
        cells, frame = (
            find_panel(page, "Attention matrix").locator(selector).bounding_box()
            for selector in ("canvas", "rect.edge")
        )
        assert cells is not None and frame is not None
        assert all(cells[side] == pytest.approx(frame[side], abs=1.5) for side in ("x", "y", "width", "height"))


@pytest.fixture(scope="module")
def long_page_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a page whose first source has a thousand symbols."""
    path = tmp_path_factory.mktemp("long") / "page.html"
    path.write_text(export_page(long_page_data(served=False).contents), encoding="utf-8")
    return path.as_uri()


@pytest.mark.slow
def test_heat_map_of_a_thousand_symbols_is_drawn_and_zoomed(open_page: OpenPage, long_page_address: str) -> None:
    contents = long_page_data(served=False).contents
    index = next(number for number, item in enumerate(contents.examples) if len(item.text) == MAX_SOURCE_LENGTH)
    page = open_page(f"{long_page_address}#example={index}")
    expect(find_panel(page, "Attention matrix")).to_contain_text(f"drag to zoom into the {MAX_SOURCE_LENGTH} positions")
    tinted_symbols = page.get_by_role("region", name="Attention of step 1 over the source").locator("[data-index]")
    assert tinted_symbols.count() == MAX_SOURCE_LENGTH
    tinted_symbols.nth(7).click()
    expect(find_panel(page, "Attention matrix")).to_contain_text("position 8")
    page.keyboard.press("Escape")
    picture = find_panel(page, "Attention matrix").get_by_role("application")
    page.mouse.move(0, 0)  # scrolling must not move a cell under the pointer
    picture.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    expect(find_panel(page, "Attention links").locator(".readout")).to_contain_text(f"position {MAX_SOURCE_LENGTH}")
    strip = page.get_by_role("slider", name="Shown part of the source")
    box = strip.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 10, steps=3)
    page.mouse.up()
    expect(strip).to_have_attribute("aria-valuetext", re.compile(r"^positions (39|40)\d to (49|50)\d of 1000"))
    # The share excludes the weight outside the visible range.
    share_text = find_panel(page, "Attention links").locator(".share").inner_text()
    share = re.search(r"with (< )?([\d.]+) % of the weight", share_text)
    assert share and float(share[2]) < 60, share_text
    page.keyboard.press("Tab")
    strip.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    find_panel(page, "Attention matrix").get_by_role("button", name="Show all positions").click()
    expect(strip).to_have_attribute("aria-valuetext", f"positions 1 to {MAX_SOURCE_LENGTH} of {MAX_SOURCE_LENGTH}")


def test_overview_strip_stays_above_the_zoomed_heat_map(open_page: OpenPage, long_page_address: str) -> None:
    items = long_page_data(served=False).contents.examples
    index = next(number for number, item in enumerate(items) if len(item.traces[0].target) > 1 and len(item.text) > 100)
    page = open_page(f"{long_page_address}#example={index}")
    matrix = find_panel(page, "Attention matrix")
    strip = page.get_by_role("slider", name="Shown part of the source").first
    expect(matrix.locator("canvas").first).to_be_visible()
    strip_box, canvas_box = strip.bounding_box(), matrix.locator("canvas").first.bounding_box()
    assert strip_box and canvas_box
    assert abs(strip_box["x"] - canvas_box["x"]) < 1 and abs(strip_box["width"] - canvas_box["width"]) < 1
    strip.focus()
    for _ in range(8):
        page.keyboard.press("ArrowUp")
    expect(strip).not_to_have_attribute("aria-valuetext", re.compile("^positions 1 to"))
    zoomed_box = strip.bounding_box()
    assert zoomed_box and abs(zoomed_box["width"] - strip_box["width"]) < 1


@pytest.mark.slow
def test_last_of_a_thousand_symbols_is_numbered(open_page: OpenPage, long_page_address: str) -> None:
    contents = long_page_data(served=False).contents
    index = next(number for number, item in enumerate(contents.examples) if len(item.text) == MAX_SOURCE_LENGTH)
    page = open_page(f"{long_page_address}#example={index}")
    numbers = find_panel(page, "Attention links").locator("text.place")
    for width in (1400, 1180, 820):
        page.set_viewport_size({"width": width, "height": 900})
        expect(numbers.filter(has_text=re.compile(rf"^{MAX_SOURCE_LENGTH}$")).first).to_be_visible()
        boxes = sorted(map(tuple, numbers.evaluate_all(TEXT_BOXES)))
        neighbors = itertools.pairwise(boxes)
        assert not [pair for pair in neighbors if pair[0][0] == pair[1][0] and pair[0][1] + pair[0][2] > pair[1][1]]
    open_tab(page, "States")
    states = find_panel(page, "PCA of the states")
    assert len(states.locator("p").first.inner_text()) < 300
    assert states.locator("svg text").count() < 20


def test_single_row_is_a_profile(open_page: OpenPage, long_page_address: str) -> None:
    contents = long_page_data(served=False).contents
    index = next(number for number, item in enumerate(contents.examples) if len(item.traces[0].target) == 1)
    page = open_page(f"{long_page_address}#example={index}")
    profile = find_panel(page, "Attention matrix").get_by_role("application")
    expect(profile).to_have_attribute("aria-roledescription", "profile")
    assert profile.locator("rect").count() >= len(contents.examples[index].text)
    profile.focus()
    page.keyboard.press("ArrowRight")
    expect(find_panel(page, "Attention matrix").locator(".readout")).to_contain_text("Step 1,")


@pytest.mark.slow
def test_long_heat_map_responds_to_the_pointer_at_once(open_page: OpenPage, tmp_path: Path) -> None:
    rows = [
        [0.8 if s == 5 * t else 0.2 / (MAX_SOURCE_LENGTH - 1) for s in range(MAX_SOURCE_LENGTH)] for t in range(100)
    ]
    path = tmp_path / "long.html"
    path.write_text(
        page_of(make_trace("ACDE" * (MAX_SOURCE_LENGTH // 4), [*"xy" * 49, "x", END], rows)), encoding="utf-8"
    )
    page = open_page(path.as_uri())
    hover_time = measure_hover(page, "Attention matrix")
    assert_fast(hover_time, 2 * MAX_MILLISECONDS)
