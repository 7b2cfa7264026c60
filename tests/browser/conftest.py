"""Fixtures of the browser tests. chromium.py defines them, because mypy accepts only one conftest.py."""

from chromium import browser, exported_page_url, open_page, page_errors, server_url

__all__ = ["browser", "exported_page_url", "open_page", "page_errors", "server_url"]
