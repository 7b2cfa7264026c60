"""The one place that decides which backend computes.

Each computation is described by a `Request`. A compiled backend takes it where it supports every fact of it, is
available, and was not left out by `disable_kernels()` or by the environment variable PELLUCID_PLAIN=1. AllFacts else
is computed in plain PyTorch, by the reference implementation in model/ and search/.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import get_args

from pellucid.kernels.backend import SEARCH, AllFacts, Backend, Computation, Request
from pellucid.kernels.cache import is_filled
from pellucid.kernels.numba_backend import NUMBA, is_numba_available
from pellucid.kernels.triton_backend import TRITON

WORTH_LOADING = 500
"""Hypotheses whose search is quicker by as much time as loading the kernels takes, about."""
TORCH = Backend("Torch", {**dict.fromkeys(get_args(Computation), AllFacts()), "search": SEARCH}, lambda: True)
"""The reference, which computes everything; of searches, `greedy` and `beam`, beside which there are single steps."""
COMPILED: tuple[Backend, ...] = (TRITON, NUMBA)

_DISABLED = ContextVar("kernels_disabled", default=False)


@contextmanager
def disable_kernels() -> Iterator[None]:
    """Compute everything within in plain PyTorch."""
    token = _DISABLED.set(True)
    try:
        yield
    finally:
        _DISABLED.reset(token)


def choose_backend(request: Request) -> Backend:
    """Return the backend that computes what is asked: a compiled one where it may, else the reference."""
    supporting = _first_supporting(request)
    if supporting is None or are_kernels_disabled() or not supporting.is_available():
        return TORCH
    return supporting


@lru_cache(maxsize=4096)
def _first_supporting(request: Request) -> Backend | None:
    """Return the first compiled backend that supports a request: decided once, for most are made at every update."""
    return next((backend for backend in COMPILED if backend.supports(request)), None)


@lru_cache(maxsize=1024)
def searches_whole_batches(request: Request) -> bool:
    """Return whether `greedy` and `beam` of search/ do all that is asked of a search, whoever takes their steps.

    Any other search is made of single steps, by `stepwise` of decoding/beam_search.py, which knows every option.
    """
    return TORCH.supports(request) and NUMBA.supports(request)


def use_kernel(request: Request) -> bool:
    """Return whether a compiled backend computes what is asked."""
    return choose_backend(request) is not TORCH


def are_kernels_disabled() -> bool:
    """Return whether kernels are disabled, in the code or by the environment variable PELLUCID_PLAIN."""
    return _DISABLED.get() or os.environ.get("PELLUCID_PLAIN", "0") not in ("", "0")


@contextmanager
def inference_kernels(hypotheses: int, device: str) -> Iterator[None]:
    """Let CPU kernels compute a search within only where that is faster.

    It is where this process has loaded them, or where the machine has compiled them and there are enough hypotheses to
    be worth the second that loading takes. No search waits for a compiler.
    """
    loaded = device != "cpu" or bool(is_numba_available.cache_info().currsize)
    with nullcontext() if loaded or (hypotheses >= WORTH_LOADING and is_filled()) else disable_kernels():
        yield


def will_compile() -> bool:
    """Return whether the next training has to compile the kernels first, as far as can be known before."""
    return not are_kernels_disabled() and not is_numba_available.cache_info().currsize and not is_filled()
