"""Helpers that navigate the page."""

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect


def tab(page: Page, title: str) -> None:
    """Open a view, and wait until it is there."""
    page.get_by_role("tab", name=title, exact=True).click()
    expect(page.get_by_role("tabpanel", name=title)).to_be_visible()


def panel(page: Page, title: str) -> Locator:
    """One picture with its title, its caption and its files."""
    return page.get_by_role("region", name=title, exact=True)


def cell(page: Page, title: str, place: tuple[int, int], shape: tuple[int, int]) -> tuple[float, float]:
    """Where on the screen the middle of a cell of a panel's heat map lies; place and shape have rows first."""
    cells = panel(page, title).locator("canvas").first
    cells.scroll_into_view_if_needed()
    box = cells.bounding_box()
    assert box is not None
    (row, column), (rows, columns) = place, shape
    return box["x"] + (column + 0.5) * box["width"] / columns, box["y"] + (row + 0.5) * box["height"] / rows


def says_its_cell(page: Page, title: str) -> None:
    """A heat map that is walked with the keys tells each cell, it alone aloud, and that a cell is held."""
    own = panel(page, title)
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


def saved(page: Page, title: str, form: str, to: Path) -> bytes:
    """What a panel's menu gives."""
    own = panel(page, title)
    own.get_by_role("button", name="Save as …").click()
    with page.expect_download() as download:
        own.get_by_role("button", name=form, exact=True).click()
    path = to / download.value.suggested_filename
    download.value.save_as(path)
    return path.read_bytes()


def listed(page: Page) -> Locator:
    """The rows of the list of examples that are in sight."""
    return page.get_by_role("listbox").get_by_role("option")


def texts(page: Page) -> list[str]:
    """The sources of the list, as far as they are in sight."""
    return listed(page).locator(".source").all_inner_texts()
