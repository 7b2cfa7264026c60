"""Compilation of kernels by Numba, and the folder that stores compiled kernels for the next process."""

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

    Sums may be reordered and contracted, which vectorizes them. NaN and infinity keep their meaning, so that a
    diverging training is noticed. Errors are as in NumPy: otherwise every division is tested for zero, and a loop with
    a test in it stays scalar. `inspect.unwrap` removes the shape checks that tests wrap around every function.

    Args:
        function: The Python function.
    """
    return _compiled(function, counts=True)


def njit_no_refcount(function: Function) -> Function:
    """Return the function, compiled without reference counts: for functions that neither create nor return arrays.

    Otherwise every slice and every call counts the references to an array twice, by atomic operations, which takes a
    tenth of an update where sums are short.

    Args:
        function: The Python function.
    """
    return _compiled(function, counts=False)


def _compiled(function: Function, counts: bool) -> Function:
    """Return the function, compiled with or without reference counts of arrays."""
    flags = {"reassoc", "contract", "arcp", "nsz"}
    with _kept_in(CACHE):
        options = numba.njit(fastmath=flags, error_model="numpy", nogil=True, cache=CACHE is not None, _nrt=counts)
        result: Function = options(inspect.unwrap(function))
    return result


@contextmanager
def _kept_in(folder: Path | None) -> Iterator[None]:
    """Store functions that are compiled within the block in this folder, and restore Numba's setting afterwards."""
    former = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or former)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = former


CACHE = cache_folder()
