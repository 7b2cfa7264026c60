"""Selection of the backend that computes: availability, supported settings, and the only place that decides.

Each computation is described by a `ComputationRequest`. A compiled backend is selected if it supports every property of
the request, is available, and is not disabled by `disable_kernels()` or by the environment variable PELLUCID_PLAIN=1.
Every other request is computed in plain PyTorch, by the reference implementation in model/ and decoding/.

The tables name every setting on which a computation may depend; `ANYTHING` marks settings of which the kernels compute
all values, or that matter only before or after the kernels.
"""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import get_args

from pellucid.kernels.backend import (
    ANYTHING,
    AllProperties,
    Backend,
    Computation,
    ComputationRequest,
    SupportedValues,
    compiles,
)
from pellucid.kernels.compilation import cache_folder, clear_cache, compile_lock, is_damaged, is_filled, mark_filled
from pellucid.kernels.types import CELL_LAYOUTS, SCORES

WORTH_LOADING = 500
"""Number of hypotheses from which kernels save more time in a search than loading them takes, approximately."""
MAX_TRITON_POSITIONS = 8192
"""Largest number of source positions of the kernel for GPUs: one program holds them all."""


@cache
def is_numba_available() -> bool:
    """Return whether the Numba kernels can be compiled here; if not, warn once with the reason.

    The first call loads the kernels from the disk (about a second) or compiles them (up to a minute).
    """
    return compiles(_warm_up_once, "everything runs without compiled kernels")


def _warm_up_once() -> None:
    """Load the kernels from the disk, or compile them in one process while the others wait."""
    with nullcontext() if is_filled() else compile_lock():
        _warm_up_from_disk()


def _warm_up_from_disk() -> None:
    """Load the kernels from the disk; compile them first if they are missing or damaged."""
    filled, damaged = is_filled(), is_damaged()
    if filled and not damaged:
        try:
            _warm_up()
        except (ImportError, MemoryError, OSError):  # no compiler or no memory: the files are not the cause
            raise
        except Exception:  # a damaged file may raise any error in its reader
            damaged = True
        else:
            return
    if damaged:
        clear_cache()
    if cache_folder() is not None:
        _compile_in_child()
    _warm_up()
    if filled:
        warnings.warn("the compiled kernels on the disk were damaged; they are compiled again", stacklevel=5)
    mark_filled()


PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from pellucid.kernels.dispatch import _warm_up; _warm_up()"


def _compile_in_child() -> None:
    """Compile all kernels in a child process, which stores them on the disk.

    Kernels round differently in the process that compiled them than in one that loads them from the disk. So every
    process loads them, and a training that is interrupted in its first process resumes to the same bits.

    Raises:
        RuntimeError: The process failed; the message is the last line of its error output.
    """
    command = [sys.executable, "-c", PROGRAM, *sys.path]
    completed = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if completed.returncode:
        raise RuntimeError((completed.stderr.strip().splitlines() or [f"exit code {completed.returncode}"])[-1])


def _warm_up() -> None:
    """Load or compile the kernels for the processor."""
    # Numba takes long to import.
    from pellucid.kernels import adam, attention, cross_entropy, decoder_step, recurrence, search, unroll

    for module in (recurrence, attention, unroll, decoder_step, search, cross_entropy, adam):
        module.warm_up()


@cache
def is_triton_available() -> bool:
    """Return whether Triton is installed and compiles its kernel for this GPU; if not, warn once with the reason."""
    return compiles(_warm_up_triton, "attention runs without its kernel for GPUs")


def _warm_up_triton() -> None:
    """Compile the kernels for the GPU."""
    from pellucid.kernels.triton_attention import warm_up  # Triton is an extra

    warm_up()


PROCESSOR: SupportedValues = {"device": {"cpu"}, "dtype": {"float32"}, "gradients": ANYTHING}
TRAINED: SupportedValues = {**PROCESSOR, "gradients": {True}}
ANSWERED: SupportedValues = {**PROCESSOR, "gradients": {False}}

# A matrix of recurrent weights may replace the cell's own; a mask of states would differ in every row.
RECURRENT_MASK: SupportedValues = {"recurrent_mask.weight": ANYTHING, "recurrent_mask.state": {False}}
DECODER: SupportedValues = {
    "decoder.kind": {"attend-then-step"},
    "decoder.order": {"attend-then-step"},
    "decoder.input_feeding": {False},
    "decoder.cell": CELL_LAYOUTS,
    "decoder.cell_kind": {"recurrent"},
    "decoder.output_layer_kind": {"linear", "tied"},
    "decoder.hidden_size": ANYTHING,
    "decoder.num_layers": ANYTHING,
    "decoder.num_hops": ANYTHING,
    "decoder.init_hidden": ANYTHING,
    "decoder.embedding": ANYTHING,
    "decoder.embedding_size": ANYTHING,
    "decoder.output": ANYTHING,
    "decoder.tie_embeddings": ANYTHING,
    "decoder.dropout": ANYTHING,
    "decoder.dropout_mask": ANYTHING,
    "decoder.embedding_dropout": ANYTHING,
    "decoder.recurrent_dropout": ANYTHING,  # the masks show what is dropped
    "decoder.recurrent_dropout_on": ANYTHING,
    "decoder.layer_normalization": {"none", "outputs"},
    "decoder.is_normalized_single_layer": ANYTHING,
    "decoder.residual": ANYTHING,
    "decoder.pretrained": ANYTHING,
    "decoder.pointer_generator": ANYTHING,  # from the logits and the weights of a step
    "attention.kind": SCORES,
    "attention.type": SCORES,
    "attention.size": ANYTHING,
    "attention.filters": ANYTHING,
    "attention.filter_radius": ANYTHING,
    "attention.num_heads": {1},
    "memory.source": ANYTHING,
    "memory.masked": {False},
    "masks.outputs": ANYTHING,
    "masks.dropped_tokens": ANYTHING,  # applied to the symbols before all steps
    **RECURRENT_MASK,
}
STEP: SupportedValues = {
    **ANSWERED,
    **DECODER,
    "training": {False},
    # The kernels could: PyTorch computes it, so that the outputs of such networks do not change in the last bits.
    "decoder.is_normalized_single_layer": {False},
}
ALL_STEPS: SupportedValues = {**STEP, "decoder.pointer_generator": {False}}
UNROLL: SupportedValues = {
    **PROCESSOR,
    **DECODER,
    "training": ANYTHING,
}

BASIC_SEARCH: SupportedValues = {
    "device": ANYTHING,
    "dtype": ANYTHING,
    "gradients": ANYTHING,
    "search.max_length": ANYTHING,
    "search.min_length": ANYTHING,
    "search.max_length_ratio": {0.0},
    "search.max_length_offset": ANYTHING,  # of the ratio
    "search.min_length_ratio": {0.0},
    "search.min_length_offset": ANYTHING,  # of the ratio
    "search.beam_size": ANYTHING,
    "search.length_normalization": {"none"},
    "search.length_penalty_alpha": ANYTHING,  # of the normalization
    "search.coverage_penalty": {0.0},
    "search.batch_size": ANYTHING,
    "options.prefix": ANYTHING,  # the constraints contain it
    "options.forbidden": ANYTHING,
    "options.required": ANYTHING,
    "options.lexicon": ANYTHING,  # looked up before the search
    "options.lattice": {False},
    "options.forced_attention": {False},
    "options.masked": {False},
    "constraints.forbidden": {False},
    "constraints.required": {False},
    "constraints.prefixes": {False},
}
"""The options of a basic search: outputs are ranked by log-probability alone, without constraints, forced attention or
search trees. `greedy` and `beam` in decoding/ compute it, in PyTorch as in kernels."""

NUMBA = Backend(
    "Numba",
    {
        "recurrence": {**PROCESSOR, **RECURRENT_MASK, "cell.kind": {"recurrent"}, "cell.type": CELL_LAYOUTS},
        "keys": TRAINED,
        "unroll": UNROLL,
        "step": STEP,
        "search": BASIC_SEARCH,
        "greedy": ALL_STEPS,
        "beam": ALL_STEPS,
        "ranking": {**PROCESSOR, "masks.blocked": {False}, "masks.is_early": ANYTHING},
        "cross_entropy": PROCESSOR,
        "adam": PROCESSOR,
    },
    lambda: is_numba_available(),
)
"""The kernels for CPUs."""
TRITON = Backend(
    "Triton",
    {
        "attention": {
            "device": {"cuda"},
            "dtype": {"float32", "bfloat16"},
            "gradients": ANYTHING,
            "attention.kind": {"additive"},
            "attention.override": {False},
            "attention.differentiated_queries": {0, 1},  # queries of a source that gradients flow to
            "attention.positions": range(1, MAX_TRITON_POSITIONS + 1),
            "memory.source": ANYTHING,
            "memory.masked": {False},
        }
    },
    lambda: is_triton_available(),
)
"""The kernel for GPUs: additive attention."""
TORCH = Backend(
    "Torch", {**dict.fromkeys(get_args(Computation), AllProperties()), "search": BASIC_SEARCH}, lambda: True
)
"""The reference, which computes everything. Its basic searches are `greedy` and `beam`."""

COMPILED: tuple[Backend, ...] = (TRITON, NUMBA)

_DISABLED = ContextVar("kernels_disabled", default=False)


@contextmanager
def disable_kernels() -> Iterator[None]:
    """Compute everything within the block in plain PyTorch. Other threads and processes are not affected."""
    token = _DISABLED.set(True)
    try:
        yield
    finally:
        _DISABLED.reset(token)


def choose_backend(request: ComputationRequest) -> Backend:
    """Return the backend that computes a request: Triton or Numba if one supports it and is available, else `TORCH`.

    The first request that a compiled backend supports loads or compiles its kernels.

    Args:
        request: The computation and its properties.
    """
    supporting = _first_supporting(request)
    if supporting is None or are_kernels_disabled() or not supporting.is_available():
        return TORCH
    return supporting


@lru_cache(maxsize=4096)
def _first_supporting(request: ComputationRequest) -> Backend | None:
    """Return the first compiled backend that supports a request; cached, as requests recur at every update."""
    return next((backend for backend in COMPILED if backend.supports(request)), None)


@lru_cache(maxsize=1024)
def is_basic_search(request: ComputationRequest) -> bool:
    """Return whether `greedy` and `beam` in decoding/ support all options of a search, on every backend.

    Any other search takes single steps, by `beam_stepwise` of decoding/beam_search.py, which supports every option.

    Args:
        request: The search and its properties.
    """
    return TORCH.supports(request) and NUMBA.supports(request)


def use_kernel(request: ComputationRequest) -> bool:
    """Return whether a compiled backend computes a request; may load or compile kernels, as `choose_backend` does.

    Args:
        request: The computation and its properties.
    """
    return choose_backend(request) is not TORCH


def are_kernels_disabled() -> bool:
    """Return whether kernels are disabled: within `disable_kernels()`, or if PELLUCID_PLAIN is set, except to 0."""
    return _DISABLED.get() or os.environ.get("PELLUCID_PLAIN", "0") not in ("", "0")


@contextmanager
def disable_kernels_unless_worth_loading(hypotheses: int, device: str) -> Iterator[None]:
    """Disable kernels within the block if a search on the CPU is faster without loading them.

    They stay enabled if this process has loaded them, on a GPU, or if they are compiled on this machine and there are
    at least `WORTH_LOADING` hypotheses, which justify the second that loading takes. No search waits for a compiler.

    Args:
        hypotheses: Number of hypotheses of the search, over the sources of a chunk.
        device: Type of the device, "cpu" or "cuda".
    """
    loaded = device != "cpu" or bool(is_numba_available.cache_info().currsize)
    with nullcontext() if loaded or (hypotheses >= WORTH_LOADING and is_filled()) else disable_kernels():
        yield


def will_compile() -> bool:
    """Return whether the next training on a CPU has to compile the kernels first: none are loaded or on the disk."""
    return not are_kernels_disabled() and not is_numba_available.cache_info().currsize and not is_filled()
