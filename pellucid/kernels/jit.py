"""Compilation of kernels by Numba, and the folder where compiled kernels are kept for the next process."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numba

from pellucid.kernels.cache import cache_folder

Function = TypeVar("Function", bound=Callable[..., object])


def njit(function: Function) -> Function:
    """Return the function, compiled at its first call.

    Sums may be reordered and contracted, which vectorizes them. NaN and infinity keep their meaning, so that a training
    that diverges is noticed. Errors are as in NumPy: otherwise every division is tested for zero, and a loop with a
    test in it stays scalar. `unwrap` removes the checks of shapes that tests wrap around every function.
    """
    return _compiled(function, counts=True)


def njit_no_refcount(function: Function) -> Function:
    """Return the function, compiled without reference counts: for functions that neither create nor return arrays.

    Every slice and every call otherwise counts the references to an array, twice, by atomic operations: a tenth of an
    update where sums are short.
    """
    return _compiled(function, counts=False)


def _compiled(function: Function, counts: bool) -> Function:
    """Return the function, compiled with or without the counting of references to arrays."""
    flags = {"reassoc", "contract", "arcp", "nsz"}
    with _kept_in(CACHE):
        options = numba.njit(fastmath=flags, error_model="numpy", nogil=True, cache=CACHE is not None, _nrt=counts)
        result: Function = options(inspect.unwrap(function))
    return result


@contextmanager
def _kept_in(folder: Path | None) -> Iterator[None]:
    """Keep functions that are compiled within in this folder, and restore Numba's own setting afterwards."""
    former = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or former)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = former


CACHE = cache_folder()
