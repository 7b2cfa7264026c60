"""The folder that keeps compiled kernels for the next process. This module does not need Numba."""

import fcntl
import hashlib
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

COMPLETE = "complete"
"""The file that stands beside the kernels once all of them do, with their digests: a compilation may be interrupted,
and a damaged kernel computes something else without a word."""


@cache
def cache_folder() -> Path | None:
    """Return the folder for this state of the kernels' sources; None where nothing can be written."""
    name = f"kernels-{hashlib.sha256(repr(list(_decisive())).encode()).hexdigest()[:16]}"
    for folder in _places():
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder / name, os.W_OK):
            return folder / name
    return None


def _decisive() -> Iterator[object]:
    """Yield everything on which compiled code, or Numba's reuse of it, depends.

    Numba notices a change of a function's own file only, not one of a function that is compiled into it; and it goes by
    the place and the time of the file, by its own version, and by the processor.
    """
    kernels = Path(__file__).resolve().parent
    for path in (*sorted(kernels.glob("*.py")), kernels.parent / "data" / "vocabulary.py"):
        yield str(path), path.stat().st_mtime_ns, path.read_bytes()
    yield platform.python_version(), version("numba"), platform.machine(), platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        yield sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU"))})


def _places() -> list[Path]:
    """The folder that PELLUCID_CACHE names; else beside the package, else in the user's cache."""
    named = os.environ.get("PELLUCID_CACHE")
    usual = [Path(__file__).parent / "__pycache__", Path(os.path.expanduser("~/.cache/pellucid"))]
    return [Path(named)] if named else usual


def is_filled() -> bool:
    """Return whether all kernels of these sources were compiled here before."""
    folder = cache_folder()
    return folder is not None and (folder / COMPLETE).exists()


def mark_filled() -> None:
    """Note that all kernels are there. Where that cannot be written, they are taken for missing."""
    folder = cache_folder()
    if folder is not None:
        with suppress(OSError):
            (folder / COMPLETE).write_text("".join(f"{digest} {name}\n" for name, digest in _digests(folder)), "utf-8")


@contextmanager
def by_one() -> Iterator[None]:
    """Let one process at a time compile these kernels; another one waits here."""
    folder = cache_folder()
    if folder is None:
        yield
        return
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_damaged() -> bool:
    """Return whether a kernel differs from what was compiled. Files that Numba adds later are not checked."""
    folder = cache_folder()
    if folder is None or not is_filled():
        return False
    try:
        noted = (folder / COMPLETE).read_text("utf-8").splitlines()
        found = dict(_digests(folder))
    except (OSError, UnicodeDecodeError):
        return True
    return any(found.get(line.partition(" ")[2]) != line.partition(" ")[0] for line in noted)


def _digests(folder: Path) -> Iterator[tuple[str, str]]:
    """The name of each file of machine code, and a hash of its bytes."""
    for path in sorted(folder.rglob("*.nbc")):
        yield path.relative_to(folder).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()


def empty() -> None:
    """Remove all compiled kernels."""
    folder = cache_folder()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
