"""Selection of the backend that computes: the only place that decides it.

Each computation is described by a `Request`. A compiled backend is selected if it supports every fact of the request,
is available, and is not disabled by `disable_kernels()` or by the environment variable PELLUCID_PLAIN=1. Every other
request is computed in plain PyTorch, by the reference implementation in model/ and decoding/.
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
"""Number of hypotheses from which kernels save more time in a search than loading them takes, approximately."""
TORCH = Backend("Torch", {**dict.fromkeys(get_args(Computation), AllFacts()), "search": SEARCH}, lambda: True)
"""The reference, which computes everything. Its whole-batch searches are `greedy` and `beam`."""
COMPILED: tuple[Backend, ...] = (TRITON, NUMBA)

_DISABLED = ContextVar("kernels_disabled", default=False)


@contextmanager
def disable_kernels() -> Iterator[None]:
    """Compute everything within the block in plain PyTorch."""
    token = _DISABLED.set(True)
    try:
        yield
    finally:
        _DISABLED.reset(token)


def choose_backend(request: Request) -> Backend:
    """Return the backend that computes a request: a compiled one if possible, else the reference.

    Args:
        request: The computation and its facts.
    """
    supporting = _first_supporting(request)
    if supporting is None or are_kernels_disabled() or not supporting.is_available():
        return TORCH
    return supporting


@lru_cache(maxsize=4096)
def _first_supporting(request: Request) -> Backend | None:
    """Return the first compiled backend that supports a request; cached, as requests recur at every update."""
    return next((backend for backend in COMPILED if backend.supports(request)), None)


@lru_cache(maxsize=1024)
def searches_whole_batches(request: Request) -> bool:
    """Return whether `greedy` and `beam` in decoding/ support all options of a search, whichever backend steps.

    Any other search takes single steps, by `beam_stepwise` of decoding/beam_search.py, which supports every option.

    Args:
        request: The search and its facts.
    """
    return TORCH.supports(request) and NUMBA.supports(request)


def use_kernel(request: Request) -> bool:
    """Return whether a compiled backend computes a request.

    Args:
        request: The computation and its facts.
    """
    return choose_backend(request) is not TORCH


def are_kernels_disabled() -> bool:
    """Return whether kernels are disabled, by `disable_kernels()` or by the environment variable PELLUCID_PLAIN."""
    return _DISABLED.get() or os.environ.get("PELLUCID_PLAIN", "0") not in ("", "0")


@contextmanager
def inference_kernels(hypotheses: int, device: str) -> Iterator[None]:
    """Let CPU kernels compute a search within the block only where that is faster.

    It is faster if this process has loaded the kernels, or if they are compiled on this machine and there are enough
    hypotheses to justify the second that loading takes. No search waits for a compiler.

    Args:
        hypotheses: Number of hypotheses of the search, over all sources.
        device: Type of the device: "cpu" or "cuda".
    """
    loaded = device != "cpu" or bool(is_numba_available.cache_info().currsize)
    with nullcontext() if loaded or (hypotheses >= WORTH_LOADING and is_filled()) else disable_kernels():
        yield


def will_compile() -> bool:
    """Return whether the next training has to compile the kernels first, as far as can be known in advance."""
    return not are_kernels_disabled() and not is_numba_available.cache_info().currsize and not is_filled()
