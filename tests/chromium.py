"""Fixtures of the browser tests. An error on the console or a request to another host fails the test."""

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
"""Chromium executables in order of preference: the headless shell takes half the CPU time."""
CHROMIUM_PATH = next((path for path in BROWSER_PATHS if path.exists()), BROWSER_PATHS[0])
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
LOCAL_HOSTS = ("127.0.0.1", "localhost")
TIMEOUT_MS = 30_000
"""Time limit of an expectation, in milliseconds; it is long because the machine may be busy."""

OpenPage = Callable[[str], Page]
"""Function that opens a URL in a new page."""


@cache
def launch_browser() -> Browser:
    """Start Chromium once per test process, because Playwright runs only once per thread."""
    playwright = sync_playwright().start()
    atexit.register(playwright.stop)
    started = playwright.chromium.launch(executable_path=str(CHROMIUM_PATH), args=list(FLAGS))
    atexit.register(started.close)
    return started


@pytest.fixture(scope="session")
def browser() -> Browser:
    """Chromium of Debian. If it is missing, the test is skipped, or fails in continuous integration."""
    if not CHROMIUM_PATH.exists():
        message = f"{CHROMIUM_PATH} is missing: run make test as root, or apt-get install {CHROMIUM_PATH.name}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    expect.set_options(timeout=TIMEOUT_MS)
    return launch_browser()


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """URL of a server of the digits run with beam search."""
    with background_server(create_app(digits_page_data(beam_size=3))) as url:
        yield url


@pytest.fixture(scope="session")
def exported_page_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of an exported page of the same run."""
    path = tmp_path_factory.mktemp("exported") / "page.html"
    path.write_text(export_page(digits_page_data(served=False, beam_size=3).contents), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page_errors() -> list[str]:
    """Errors in the pages of a test. A test that provokes an error clears the list."""
    return []


@pytest.fixture
def open_page(browser: Browser, page_errors: list[str]) -> Iterator[OpenPage]:
    """Function that opens a page and records its errors and its requests to other hosts."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(4 * TIMEOUT_MS)

    def record_console_message(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            page_errors.append(f"console: {message.text}")

    def record_foreign_request(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "file", "about") and parts.hostname not in LOCAL_HOSTS:
            page_errors.append(f"request: {request.url}")

    def add_listeners(page: Page) -> None:
        page.on("console", record_console_message)
        page.on("pageerror", lambda error: page_errors.append(f"error: {error}"))
        page.on("request", record_foreign_request)

    context.on("page", add_listeners)

    def open_url(url: str) -> Page:
        page = context.new_page()
        page.goto(url)
        return page

    yield open_url
    context.close()
    assert page_errors == []
