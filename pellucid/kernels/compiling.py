"""How kernels are compiled, and where the compiled ones are kept for the next process."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numba

from pellucid.kernels.cache import cache_folder

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function, compiled at its first call.

    Sums may be reordered and contracted, which vectorises them. That NaN and infinity do not occur is not assumed: a
    training that diverges must be seen to. Errors as in NumPy: without this, every division is tested for zero, and a
    loop with a test in it stays scalar. `unwrap` passes by the checks of shapes that tests wrap every function in.
    """
    return _compiled(function, counts=True)


def in_place(function: Function) -> Function:
    """As `compiled`, for a function that makes no array and returns none: it works on what its caller holds.

    So nothing counts who still reads an array, which every slice and every call otherwise does, twice, in a way that
    all threads see: a tenth of an update where sums are short.
    """
    return _compiled(function, counts=False)


def _compiled(function: Function, counts: bool) -> Function:
    """The function, compiled with or without the counting of references to arrays."""
    flags = {"reassoc", "contract", "arcp", "nsz"}
    with _kept_in(CACHE):
        options = numba.njit(fastmath=flags, error_model="numpy", nogil=True, cache=CACHE is not None, _nrt=counts)
        result: Function = options(inspect.unwrap(function))
    return result


@contextmanager
def _kept_in(folder: Path | None) -> Iterator[None]:
    """Functions made within are kept in this folder; Numba's own setting stands again afterwards."""
    former = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or former)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = former


CACHE = cache_folder()
