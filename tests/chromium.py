"""Chromium for browser tests. An error on the console or a request to another host fails the test."""

import atexit
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from page_data import digits_page_data
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from pellucid.viewer.pages import export_page
from pellucid.viewer.server import background_server, create_app

BROWSER_PATHS = (Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium"))
"""Chromium without a window takes half the CPU time of the browser that has one; either will do."""
CHROMIUM_PATH = next((path for path in BROWSER_PATHS if path.exists()), BROWSER_PATHS[0])
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
LOCAL_HOSTS = ("127.0.0.1", "localhost")
TIMEOUT_MS = 30_000
"""Milliseconds until what is expected of a page must have come: a busy machine is no fault of the page."""

OpenPage = Callable[[str], Page]
"""Opens an address in a page of its own."""


@cache
def launch_browser() -> Browser:
    """Chromium, started once for each process of tests: Playwright runs once in a thread."""
    playwright = sync_playwright().start()
    atexit.register(playwright.stop)
    found = playwright.chromium.launch(executable_path=str(CHROMIUM_PATH), args=list(FLAGS))
    atexit.register(found.close)
    return found


@pytest.fixture(scope="session")
def browser() -> Browser:
    """Debian's Chromium. It may be missing at a desk, never on a server."""
    if not CHROMIUM_PATH.exists():
        install = f"make test installs it where it may (as root: apt-get install {CHROMIUM_PATH.name})"
        message = f"{CHROMIUM_PATH} is missing: {install}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    expect.set_options(timeout=TIMEOUT_MS)
    return launch_browser()


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """A service on a trained run, with a beam."""
    with background_server(create_app(digits_page_data(beam_size=3))) as found:
        yield found


@pytest.fixture(scope="session")
def exported_page_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of an exported page of the same run."""
    path = tmp_path_factory.mktemp("exported") / "page.html"
    path.write_text(export_page(digits_page_data(served=False, beam_size=3).contents), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page_errors() -> list[str]:
    """What went wrong in the pages of a test; a test that provokes it clears the list."""
    return []


@pytest.fixture
def open_page(browser: Browser, page_errors: list[str]) -> Iterator[OpenPage]:
    """Opens pages whose errors and requests are watched."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(4 * TIMEOUT_MS)

    def console(message: ConsoleMessage) -> None:
        """An error or a warning is one too many."""
        if message.type in ("error", "warning"):
            page_errors.append(f"console: {message.text}")

    def request(made: Request) -> None:
        """Nobody but this machine is asked for anything, and an exported page asks nobody at all."""
        parts = urlsplit(made.url)
        if parts.scheme not in ("data", "blob", "file", "about") and parts.hostname not in LOCAL_HOSTS:
            page_errors.append(f"request: {made.url}")

    def watched(page: Page) -> None:
        """Listen to a page."""
        page.on("console", console)
        page.on("pageerror", lambda error: page_errors.append(f"error: {error}"))
        page.on("request", request)

    context.on("page", watched)

    def open_(url: str) -> Page:
        """A page of its own, when it has come to rest."""
        page = context.new_page()
        page.goto(url)
        return page

    yield open_
    context.close()
    assert page_errors == []
