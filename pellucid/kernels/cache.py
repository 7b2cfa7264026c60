"""Where compiled kernels are kept for the next process. Numba is not needed to know."""

import hashlib
import os
from functools import cache
from pathlib import Path


@cache
def cache_folder() -> Path | None:
    """A folder of their own for each state of the kernels' sources; None where nothing can be written.

    Numba notices a change of a function's own file only, not one of a function that is compiled into it.
    """
    sources = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    name = f"kernels-{sources.hexdigest()[:16]}"
    for folder in (Path(__file__).parent / "__pycache__", Path(os.path.expanduser("~/.cache/pellucid"))):
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder / name, os.W_OK):
            return folder / name
    return None


def is_filled() -> bool:
    """Whether kernels of these sources were compiled here before."""
    folder = cache_folder()
    return folder is not None and any(folder.rglob("*.nbc"))
