"""What the tests in a browser share; it stands in chromium.py, for mypy knows one conftest only."""

from chromium import address, browser, file, opened, wrong

__all__ = ["address", "browser", "file", "opened", "wrong"]
