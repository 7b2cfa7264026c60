"""Compilation of kernels by Numba, and the folder that keeps compiled kernels for the next process.

Numba is imported by the decorators alone, because it takes a second.
"""

import hashlib
import inspect
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from pellucid.errors import RunError
from pellucid.file_lock import wait_for_lock
from pellucid.files import is_writable, write_atomic

Function = TypeVar("Function", bound=Callable[..., object])


def njit(function: Function) -> Function:
    """Return the function as a Numba dispatcher, which compiles it at its first call with new types of arguments.

    Compiled code is stored in `cache_folder()` for the next process; without such a folder it is not stored.

    Sums may be reordered and contracted, which vectorizes them. NaN and infinity keep their meaning, so that a
    diverging training is noticed. Errors are as in NumPy: otherwise every division is tested for zero, and a loop with
    a test in it stays scalar. `inspect.unwrap` removes the shape checks that tests wrap around every function.

    Args:
        function: The Python function.
    """
    return _compiled(function, counts=True)


def njit_no_refcount(function: Function) -> Function:
    """Return what `njit` returns, without reference counts: for functions that neither create nor return arrays.

    Otherwise every slice and every call counts the references to an array twice, by atomic operations, which takes a
    tenth of an update where sums are short.

    Args:
        function: The Python function.
    """
    return _compiled(function, counts=False)


def njit_inlined(function: Function) -> Function:
    """Return what `njit_no_refcount` returns, copied into every kernel that calls it.

    For short functions with many fields of arguments that are called once a row: a call copies every field.

    Args:
        function: The Python function.
    """
    return _compiled(function, counts=False, inline="always")


def _compiled(function: Function, counts: bool, inline: str = "never") -> Function:
    """Return the function, to be compiled with or without reference counts of arrays and stored in the folder."""
    import numba  # takes a second

    flags = {"reassoc", "contract", "arcp", "nsz"}
    folder = cache_folder()
    former = numba.config.CACHE_DIR
    is_read_only = folder is not None and not is_writable(folder)
    numba.config.CACHE_DIR = str(folder or former)
    try:
        options = numba.njit(
            fastmath=flags,
            error_model="numpy",
            nogil=True,
            cache=folder is not None and not is_read_only,
            _nrt=counts,
            inline=inline,
        )
        result: Function = options(inspect.unwrap(function))
        if is_read_only:
            _read_from_cache(result)
    finally:
        numba.config.CACHE_DIR = former
    return result


def _read_from_cache(dispatcher: Any) -> None:  # noqa: ANN401 (a class of Numba)
    """Let a dispatcher load its compiled code from a folder that cannot be written, which Numba alone refuses.

    What is missing there is compiled in each process.
    """
    from numba.core import caching

    base = caching.CompileResultCacheImpl
    (user_locator,) = (each for each in base._locator_classes if each.__name__.endswith("UserProvidedCacheLocator"))
    locator = type("ReadOnlyLocator", (user_locator,), {"ensure_cache_path": lambda self: None})
    implementation = type("ReadOnlyCacheImpl", (base,), {"_locator_classes": [locator]})
    members = {"_impl_class": implementation, "save_overload": lambda self, signature, data: None}
    dispatcher._cache = type("ReadOnlyCache", (caching.FunctionCache,), members)(dispatcher.py_func)


COMPLETE = "complete"
"""Name of the file that lists the digests of the kernels, written once all of them are compiled. A compilation may be
interrupted, and a damaged kernel computes wrong results silently."""

PROCESSOR_VARIABLES = "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX"
"""Environment variables that name the processor for which Numba compiles, or remove instructions."""


@cache
def cache_folder() -> Path | None:
    """Return the folder of the kernels compiled from the present sources on this machine; None if none is usable.

    It is in the folder named by the environment variable PELLUCID_CACHE, else in `__pycache__` beside the kernels, or
    in `pellucid` in the user's folder of caches, which is XDG_CACHE_HOME or ~/.cache. A complete folder is used
    wherever it is, also one that cannot be written, as of a package that another user has installed. Without one, the
    first call of a process creates the first that can be written.
    """
    return _usable_folder(f"kernels-{hashlib.sha256(repr(list(_fingerprint_parts())).encode()).hexdigest()[:16]}")


def _usable_folder(name: str) -> Path | None:
    """Return the folder of a name that is complete, else the first that can be written, which is created."""
    folders = [folder / name for folder in _candidate_folders()]
    for folder in folders:
        if _is_complete(folder):
            return folder
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if is_writable(folder):
            return folder
    return None


def _fingerprint_parts() -> Iterator[object]:
    """Yield every fact on which compiled code, or Numba's reuse of it, depends.

    Numba notices changes of a function's own file only, not of functions compiled into it. It also checks the path and
    the modification time of the file, its own version, and the processor with its settings in `PROCESSOR_VARIABLES`.
    """
    kernels = Path(__file__).resolve().parent
    sources = (*sorted(kernels.glob("*.py")), *sorted((kernels.parent / "pair_ngram").glob("*.py")))
    others = [kernels.parent / path for path in ("alignment/lattice.py", "alignment/types.py", "data/vocabulary.py")]
    for path in (*sources, *others):
        yield str(path), path.stat().st_mtime_ns, path.read_bytes()
    yield platform.python_version(), version("numba"), version("llvmlite"), platform.machine(), platform.processor()
    yield [(name, os.environ.get(name)) for name in PROCESSOR_VARIABLES]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        yield sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU"))})


def _candidate_folders() -> list[Path]:
    """Return the folder that PELLUCID_CACHE names; else the one beside the package and those in the user's caches."""
    if configured := os.environ.get("PELLUCID_CACHE"):
        return [Path(configured)]
    caches = filter(None, (os.environ.get("XDG_CACHE_HOME"), os.path.expanduser("~/.cache")))
    return [Path(__file__).parent / "__pycache__", *(Path(each) / "pellucid" for each in caches)]


def is_cache_complete() -> bool:
    """Return whether all kernels of these sources are compiled on this machine; False without a folder."""
    folder = cache_folder()
    return folder is not None and _is_complete(folder)


def _is_complete(folder: Path) -> bool:
    """Return whether a folder has the list of digests of all kernels; an empty one is one whose writing failed."""
    with suppress(OSError):
        return (folder / COMPLETE).stat().st_size > 0
    return False


def mark_cache_complete() -> None:
    """Write the digests of all compiled kernels to the file `complete`.

    If it cannot be written, the kernels count as missing.
    """
    folder = cache_folder()
    if folder is not None:
        with suppress(OSError, RunError):
            lines = "".join(f"{digest} {name}\n" for name, digest in _digests(folder))
            write_atomic(folder / COMPLETE, (lines or "\n").encode())


@contextmanager
def compile_lock() -> Iterator[None]:
    """Let one process at a time compile these kernels; other processes wait. Without a folder, none waits."""
    folder = cache_folder()
    if folder is None:
        yield
        return
    with folder.with_suffix(".lock").open("wb") as file:
        wait_for_lock(file)
        yield


def is_cache_damaged() -> bool:
    """Return whether a file of the folder is missing, unreadable or differs from the digest in `complete`.

    False if the folder is missing or not filled. Files that Numba adds later are not checked.
    """
    folder = cache_folder()
    if folder is None or not is_cache_complete():
        return False
    try:
        recorded = (folder / COMPLETE).read_text("utf-8").splitlines()
        digests = dict(_digests(folder))
    except (OSError, UnicodeDecodeError):
        return True
    return any(digests.get(line.partition(" ")[2]) != line.partition(" ")[0] for line in recorded if line)


def _digests(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the path of each file of machine code, and a hash of its bytes."""
    for path in sorted(folder.rglob("*.nbc")):
        yield path.relative_to(folder).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()


def clear_cache() -> None:
    """Remove all files of the folder of compiled kernels, which stays.

    Raises:
        RunError: The folder cannot be written.
    """
    folder = cache_folder()
    if folder is not None:
        if not is_writable(folder):
            raise RunError(f"the compiled kernels in {folder} are damaged, and the folder cannot be written: remove it")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
