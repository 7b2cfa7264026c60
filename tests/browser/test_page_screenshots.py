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
LOOKS = [("wide", "light"), ("narrow", "dark"), ("wide", "dark"), ("narrow", "light")]


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """A service on each run."""
    with ExitStack() as stack:
        yield {kind: stack.enter_context(background_server(create_app(make_page_data(kind)))) for kind in RUN_KINDS}


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
@pytest.mark.parametrize("kind", RUN_KINDS)
def test_every_view_of_every_kind_of_run(
    open_page: OpenPage, addresses: dict[str, str], kind: str, size: str, scheme: str
) -> None:
    items = make_page_data(kind).contents.examples
    wrong = next((place for place, item in enumerate(items) if not item.exact), 0)
    page = open_page("about:blank")
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(f"{addresses[kind]}#example={wrong}")
    expect(page.locator("#view")).to_be_visible()
    titles = page.get_by_role("tab").all_inner_texts()
    assert {"Examples", "Beam", "What if", "Corpus", "States", "Training", "About"} <= set(titles)
    for title in titles:
        open_tab(page, title)
        settled(page, title)
        FOLDER.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=FOLDER / f"{kind}-{title.lower().replace(' ', '-')}-{size}-{scheme}.png", full_page=True)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{title} is {wide} pixels wide in a window of {width}"


def settled(page: Page, title: str) -> None:
    """What a view asks when it opens has been answered."""
    if title == "What if":
        expect(page.locator(".sentence")).to_contain_text("No change")
