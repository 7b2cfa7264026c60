"""Width of the terminal, for tables, bars and help: never so small that they cannot be printed."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

MIN_WIDTH = 40
"""Minimum width in columns. Some programs without a terminal set COLUMNS=0, at which tables would be empty."""
COLUMNS = "COLUMNS"
"""Environment variable with the width, which precedes that of the terminal."""


def terminal_width(fallback: int = 80) -> int:
    """Return the width in the environment variable COLUMNS, or that of the terminal; at least `MIN_WIDTH`.

    Args:
        fallback: Width if neither is known, or is 0; 80 by default.
    """
    return max(MIN_WIDTH, shutil.get_terminal_size((fallback, 24)).columns)


def environment_with_width() -> Mapping[str, str]:
    """Return the environment, in which COLUMNS is `terminal_width` if it is set; for consoles of rich."""
    return {**os.environ, COLUMNS: str(terminal_width())} if COLUMNS in os.environ else os.environ


@contextmanager
def usable_terminal_width() -> Iterator[None]:
    """Set the environment variable COLUMNS to `terminal_width` in a block, whose library reads the width itself."""
    former = os.environ.get(COLUMNS)
    os.environ[COLUMNS] = str(terminal_width())
    try:
        yield
    finally:
        del os.environ[COLUMNS]
        if former is not None:
            os.environ[COLUMNS] = former
