"""Screenshots of every view of three kinds of run, light and dark, wide and narrow, without errors.

The pictures are written to build/screenshots.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from chromium import OpenPage
from page_navigation import open_tab
from page_runs import RUN_KINDS, make_page_data
from playwright.sync_api import Page, expect

from pellucid.viewer.server import background_server, create_app

FOLDER = Path(__file__).parents[2] / "build" / "screenshots"
SIZES = {"wide": (1400, 1000), "narrow": (420, 860)}
SIZES_AND_SCHEMES = [("wide", "light"), ("narrow", "dark"), ("wide", "dark"), ("narrow", "light")]


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """Serve each kind of run and yield the addresses."""
    with ExitStack() as stack:
        yield {kind: stack.enter_context(background_server(create_app(make_page_data(kind)))) for kind in RUN_KINDS}


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), SIZES_AND_SCHEMES)
@pytest.mark.parametrize("kind", RUN_KINDS)
def test_views_have_no_errors_and_fit_the_window(
    open_page: OpenPage, addresses: dict[str, str], kind: str, size: str, scheme: str
) -> None:
    items = make_page_data(kind).contents.examples
    index = next((number for number, item in enumerate(items) if not item.exact), 0)
    page = open_page("about:blank")
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(f"{addresses[kind]}#example={index}")
    expect(page.locator("#view")).to_be_visible()
    titles = page.get_by_role("tab").all_inner_texts()
    assert {"Examples", "Beam", "What if", "Corpus", "States", "Training", "About"} <= set(titles)
    for title in titles:
        open_tab(page, title)
        wait_for_view(page, title)
        FOLDER.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=FOLDER / f"{kind}-{title.lower().replace(' ', '-')}-{size}-{scheme}.png", full_page=True)
        page_width = page.evaluate("document.documentElement.scrollWidth")
        assert page_width <= width, f"{title} is {page_width} pixels wide in a window of {width}"


def wait_for_view(page: Page, title: str) -> None:
    """Wait for the response to the first request of a view."""
    if title == "What if":
        expect(page.locator(".sentence")).to_contain_text("No change")
