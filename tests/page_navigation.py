"""Helpers that navigate the page."""

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect


def open_tab(page: Page, title: str) -> None:
    """Open a view, and wait until it is there."""
    page.get_by_role("tab", name=title, exact=True).click()
    expect(page.get_by_role("tabpanel", name=title)).to_be_visible()


def find_panel(page: Page, title: str) -> Locator:
    """One picture with its title, its caption and its files."""
    return page.get_by_role("region", name=title, exact=True)


def cell_center(page: Page, title: str, index: tuple[int, int], shape: tuple[int, int]) -> tuple[float, float]:
    """Where on the screen the middle of a cell of a panel's heat map lies; place and shape have rows first."""
    cells = find_panel(page, title).locator("canvas").first
    cells.scroll_into_view_if_needed()
    box = cells.bounding_box()
    assert box is not None
    (row, column), (rows, columns) = index, shape
    return box["x"] + (column + 0.5) * box["width"] / columns, box["y"] + (row + 0.5) * box["height"] / rows


def assert_cell_is_announced(page: Page, title: str) -> None:
    """A heat map that is walked with the keys tells each cell, it alone aloud, and that a cell is held."""
    own = find_panel(page, title)
    own.get_by_role("application").last.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    told = own.locator("[aria-live]")
    expect(told).to_have_text(re.compile(r"; .+ on .+: −?\d\.\d{4}\.$"))
    page.keyboard.press("Enter")
    expect(told).to_have_text(re.compile(r"\d\.\s*Selection locked\.$"))
    expect(page.locator(".readout [aria-live=polite]")).to_have_count(1)
    expect(told).to_have_attribute("aria-live", "polite")
    page.keyboard.press("Escape")


def download_panel(page: Page, title: str, file_format: str, folder: Path) -> bytes:
    """What a panel's menu gives."""
    own = find_panel(page, title)
    own.get_by_role("button", name="Save as …").click()
    with page.expect_download() as download:
        own.get_by_role("button", name=file_format, exact=True).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path.read_bytes()


def visible_examples(page: Page) -> Locator:
    """The rows of the list of examples that are in sight."""
    return page.get_by_role("listbox").get_by_role("option")


def visible_source_texts(page: Page) -> list[str]:
    """The sources of the list, as far as they are in sight."""
    return visible_examples(page).locator(".source").all_inner_texts()
