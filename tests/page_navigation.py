"""Helpers that navigate the page."""

import re
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Locator, Page, TimeoutError, expect

MAX_DOWNLOADS = 4
"""Maximum number of times that a file is requested."""
DOWNLOAD_MILLISECONDS = 10_000


def open_tab(page: Page, title: str) -> None:
    """Open a tab, and wait until its panel is visible."""
    page.get_by_role("tab", name=title, exact=True).click()
    expect(page.get_by_role("tabpanel", name=title)).to_be_visible()


def find_panel(page: Page, title: str) -> Locator:
    """Return the panel with this title: a picture, its caption and its menu of files."""
    return page.get_by_role("region", name=title, exact=True)


def cell_center(page: Page, title: str, index: tuple[int, int], shape: tuple[int, int]) -> tuple[float, float]:
    """Return the x and y of the center of a cell of a heat map on the screen; `index` and `shape` have rows first."""
    canvas = find_panel(page, title).locator("canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    (row, column), (rows, columns) = index, shape
    return box["x"] + (column + 0.5) * box["width"] / columns, box["y"] + (row + 0.5) * box["height"] / rows


def assert_cell_is_announced(page: Page, title: str) -> None:
    """Assert that a heat map, controlled by the keyboard, announces each cell and a locked selection.

    No other element of the page is a live region then.
    """
    panel = find_panel(page, title)
    panel.get_by_role("application").last.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    announcement = panel.locator("[aria-live]")
    expect(announcement).to_have_text(re.compile(r"; .+ on .+: −?\d\.\d{4}\.$"))
    page.keyboard.press("Enter")
    expect(announcement).to_have_text(re.compile(r"\d\.\s*Selection locked\.$"))
    expect(page.locator(".readout [aria-live=polite]")).to_have_count(1)
    expect(announcement).to_have_attribute("aria-live", "polite")
    page.keyboard.press("Escape")


def download_panel(page: Page, title: str, file_format: str, folder: Path) -> bytes:
    """Download a file from the menu of a panel; return its content.

    Chromium 156 loses a download now and then while another browser runs; it is then requested again.
    """
    for _ in range(MAX_DOWNLOADS - 1):
        with suppress(TimeoutError):
            return _request_download(page, title, file_format, folder, DOWNLOAD_MILLISECONDS)
    return _request_download(page, title, file_format, folder, 4 * DOWNLOAD_MILLISECONDS)


def _request_download(page: Page, title: str, file_format: str, folder: Path, milliseconds: int) -> bytes:
    """Request a file from the menu of a panel once; `TimeoutError` if no download begins."""
    panel = find_panel(page, title)
    button = panel.get_by_role("button", name=file_format, exact=True)
    if not button.is_visible():
        panel.get_by_role("button", name="Save as …").click()
    with page.expect_download(timeout=milliseconds) as download:
        button.click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path.read_bytes()


def visible_examples(page: Page) -> Locator:
    """Return the rendered rows of the list of examples."""
    return page.get_by_role("listbox").get_by_role("option")


def visible_source_texts(page: Page) -> list[str]:
    """Return the sources of the rendered rows of the list of examples."""
    return visible_examples(page).locator(".source").all_inner_texts()
