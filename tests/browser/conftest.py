"""Fixtures of the browser tests, defined in chromium.py, because mypy accepts only one conftest.py."""

from chromium import address, browser, file, opened, wrong

__all__ = ["address", "browser", "file", "opened", "wrong"]
