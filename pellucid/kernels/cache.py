"""Where compiled kernels are kept for the next process. Numba is not needed to know."""

import hashlib
import os
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path

COMPLETE = "complete"
"""The file that stands beside the kernels once all of them do: a compilation may be interrupted."""


@cache
def cache_folder() -> Path | None:
    """A folder of their own for each state of the kernels' sources; None where nothing can be written.

    Numba notices a change of a function's own file only, not one of a function that is compiled into it.
    """
    sources = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    name = f"kernels-{sources.hexdigest()[:16]}"
    for folder in _places():
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder / name, os.W_OK):
            return folder / name
    return None


def _places() -> list[Path]:
    """The folder that PELLUCID_CACHE names; else beside the package, else in the user's cache."""
    named = os.environ.get("PELLUCID_CACHE")
    usual = [Path(__file__).parent / "__pycache__", Path(os.path.expanduser("~/.cache/pellucid"))]
    return [Path(named)] if named else usual


def is_filled() -> bool:
    """Whether all kernels of these sources were compiled here before."""
    folder = cache_folder()
    return folder is not None and (folder / COMPLETE).exists()


def mark_filled() -> None:
    """Note that all kernels are there. Where that cannot be written, they are taken for missing."""
    folder = cache_folder()
    if folder is not None:
        with suppress(OSError):
            (folder / COMPLETE).touch()


def empty() -> None:
    """Remove what was compiled: something of it is damaged."""
    folder = cache_folder()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
