"""How kernels are compiled, and where the compiled ones are kept for the next process."""

import hashlib
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function, compiled at its first call.

    Sums may be reordered and contracted, which vectorises them. That NaN and infinity do not occur is not assumed: a
    training that diverges must be seen to. Errors as in NumPy: without this, every division is tested for zero, and a
    loop with a test in it stays scalar. `unwrap` passes by the checks of shapes that tests wrap every function in.
    """
    flags = {"reassoc", "contract", "arcp", "nsz"}
    with _kept_in(CACHE):
        options = numba.njit(fastmath=flags, error_model="numpy", nogil=True, cache=CACHE is not None)
        result: Function = options(inspect.unwrap(function))
    return result


def _cache() -> Path | None:
    """Where compiled kernels are kept: a folder of their own for each state of their sources.

    Numba notices a change of a function's own file only, not one of a function that is compiled into it.
    """
    sources = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    name = f"kernels-{sources.hexdigest()[:16]}"
    for folder in (Path(__file__).parent / "__pycache__", Path.home() / ".cache" / "pellucid"):
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder / name, os.W_OK):
            return folder / name
    return None


@contextmanager
def _kept_in(folder: Path | None) -> Iterator[None]:
    """Functions made within are kept in this folder; Numba's own setting stands again afterwards."""
    former = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or former)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = former


CACHE = _cache()
