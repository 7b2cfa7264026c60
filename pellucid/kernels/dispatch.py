"""Selection of the backend that computes: the supported settings, and the only place that compares requests with them.

Modules in model/, decoding/ and training/ call `use_kernel` to choose between a kernel and PyTorch. Each computation is
described by a `ComputationRequest`. A compiled backend is selected if it supports every property of the request, its
kernels can be loaded, and it is not disabled by `disable_kernels()` or by the environment variable PELLUCID_PLAIN=1.
Every other request is computed in plain PyTorch, by the reference implementation in model/ and decoding/.

The tables name every setting on which a computation may depend; `ANYTHING` marks settings of which the kernels compute
all values, or that matter only before or after the kernels.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import get_args

from pellucid.kernels.backend import (
    ANYTHING,
    AllProperties,
    Backend,
    Computation,
    ComputationRequest,
    Properties,
    SupportedValues,
)
from pellucid.kernels.compilation import is_cache_complete
from pellucid.kernels.kernel_loader import has_tried_to_load_kernels, load_kernels, load_triton_kernel
from pellucid.kernels.types import CELL_LAYOUTS, SCORES

MIN_HYPOTHESES_TO_LOAD = 500
"""Number of hypotheses from which kernels save more time in a search than loading them takes, approximately."""
MAX_TRITON_POSITIONS = 8192
"""Largest number of source positions of the kernel for GPUs: one program holds them all."""


CPU: SupportedValues = {"device": {"cpu"}, "dtype": {"float32"}, "gradients": ANYTHING}
CPU_TRAINING: SupportedValues = {**CPU, "gradients": {True}}
CPU_INFERENCE: SupportedValues = {**CPU, "gradients": {False}}

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
    "decoder.output_layer_inputs": ANYTHING,
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
    "attention.type": ANYTHING,  # a name; its class declares the equations by its kind
    "attention.size": ANYTHING,
    "attention.filters": ANYTHING,
    "attention.filter_radius": ANYTHING,
    "attention.num_heads": {1},
    "memory.source": ANYTHING,
    "memory.ignored": {False},
    "masks.outputs": ANYTHING,
    "masks.dropped_symbols": ANYTHING,  # applied to the symbols before all steps
    **RECURRENT_MASK,
}
STEP: SupportedValues = {
    **CPU_INFERENCE,
    **DECODER,
    "training": {False},
    # The kernels could: PyTorch computes it, so that the outputs of such networks do not change in the last bits.
    "decoder.is_normalized_single_layer": {False},
}
SEARCH: SupportedValues = {
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
    "search.pair_ngram": ANYTHING,  # ranks the outputs after the search
    "search.batch_size": ANYTHING,
    "options.prefix": ANYTHING,  # the constraints contain it
    "options.forbidden": ANYTHING,
    "options.required": ANYTHING,
    "options.lexicon": ANYTHING,  # looked up before the search
    "options.search_tree": {False},
    "options.forced_attention": {False},
    "options.masked_positions": {False},
    "constraints.forbidden": {False},
    "constraints.required": {False},
    "constraints.prefixes": {False},
    "predictor.is_ensemble": {False},
}
WHOLE_SEARCH: SupportedValues = {**STEP, **SEARCH, "decoder.pointer_generator": {False}}
UNROLL: SupportedValues = {
    **CPU,
    **DECODER,
    "training": ANYTHING,
}

NUMBA = Backend(
    "Numba",
    {
        "recurrence": {**CPU, **RECURRENT_MASK, "cell.kind": {"recurrent"}, "cell.type": CELL_LAYOUTS},
        "linear": CPU_TRAINING,
        "keys": CPU_TRAINING,
        "unroll": UNROLL,
        "step": STEP,
        "greedy": WHOLE_SEARCH,
        "beam": WHOLE_SEARCH,
        "ranking": {**CPU, "symbol_masks.blocked": {False}, "symbol_masks.is_early": ANYTHING},
        "cross_entropy": CPU,
        "adam": CPU,
    },
    load_kernels,
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
            "attention.forced_weights": {False},
            "attention.differentiated_queries": {0, 1},  # queries of a source that gradients flow to
            "attention.positions": range(1, MAX_TRITON_POSITIONS + 1),
            "memory.source": ANYTHING,
            "memory.ignored": {False},
        }
    },
    load_triton_kernel,
)
"""The kernel for GPUs: additive attention."""
TORCH = Backend("Torch", dict.fromkeys(get_args(Computation), AllProperties()), lambda: True)
"""The reference in PyTorch, which computes every request."""

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


_BFLOAT16 = ContextVar("bfloat16_products", default=False)


@contextmanager
def bfloat16_products() -> Iterator[None]:
    """Compute products of CPU kernels with gradients in bfloat16 within the block, with sums in float32.

    The backward pass computes in the type of its forward pass. Other threads and processes are not affected. Kernels
    without gradients, and PyTorch, stay in float32.
    """
    token = _BFLOAT16.set(True)
    try:
        yield
    finally:
        _BFLOAT16.reset(token)


def are_products_bfloat16() -> bool:
    """Return whether products are in bfloat16: within `bfloat16_products()`."""
    return _BFLOAT16.get()


def choose_backend(request: ComputationRequest) -> Backend:
    """Return the backend that computes a request: Triton or Numba if one supports it and can be loaded, else `TORCH`.

    The first request that a compiled backend supports loads or compiles its kernels.

    Args:
        request: The computation and its properties.
    """
    supporting = _first_supporting(request)
    if supporting is None or are_kernels_disabled() or not supporting.load():
        return TORCH
    return supporting


@lru_cache(maxsize=4096)
def _first_supporting(request: ComputationRequest) -> Backend | None:
    """Return the first compiled backend that supports a request; cached, as requests recur at every update."""
    return next((backend for backend in COMPILED if backend.supports(request)), None)


def use_kernel(request: ComputationRequest) -> bool:
    """Return whether a compiled backend computes a request; may load or compile kernels, as `choose_backend` does.

    Args:
        request: The computation and its properties.
    """
    return choose_backend(request) is not TORCH


def fits_search_kernel(properties: Properties) -> bool:
    """Return whether a kernel can run all steps of a search, if it also supports the model (`use_kernel`).

    Such a search ranks outputs by log-probability alone, without length ratios, constraints, forced attention and
    search trees, by one network. The table names every setting and option of a search: a search with a setting that the
    table lacks takes single steps.

    Args:
        properties: Properties of the search (`search_properties`).
    """
    return all(value in WHOLE_SEARCH.get(name, ()) for name, value in properties)


def are_kernels_disabled() -> bool:
    """Return whether kernels are disabled: within `disable_kernels()`, or if PELLUCID_PLAIN is set, except to 0."""
    return _DISABLED.get() or os.environ.get("PELLUCID_PLAIN", "0") not in ("", "0")


def load_enabled_kernels() -> bool:
    """Load the kernels for the CPU, or compile them, unless they are disabled; return whether they are loaded."""
    return not are_kernels_disabled() and load_kernels()


_CHOSEN = ContextVar[bool | None]("kernels_chosen", default=None)


@contextmanager
def set_kernels_enabled(enabled: bool) -> Iterator[None]:
    """Compute all searches on the CPU within the block with kernels, or all without, whatever this process has loaded.

    A process that computes a part of an input for another one gives the same numbers if it is told the choice of that
    process.

    Args:
        enabled: Whether kernels are used where they support a search. They are loaded or compiled if necessary.
    """
    token = _CHOSEN.set(enabled)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def are_kernels_worth_loading(hypotheses: int, device: str) -> bool:
    """Return whether a search asks for kernels: loading them saves time or was tried before, or the device is a GPU.

    Loading takes a second. No search waits for a compiler. Kernels that failed to load are not tried again.

    Args:
        hypotheses: Number of hypotheses of the search, over the sources of a chunk.
        device: Type of the device, "cpu" or "cuda".
    """
    if device != "cpu" or has_tried_to_load_kernels():
        return True
    return hypotheses >= MIN_HYPOTHESES_TO_LOAD and is_cache_complete()


@contextmanager
def disable_kernels_unless_worth_loading(hypotheses: int, device: str) -> Iterator[None]:
    """Disable kernels within the block if a search on the CPU is faster without loading them.

    They stay enabled if this process has loaded them, on a GPU, or if they are compiled on this machine and there are
    at least `MIN_HYPOTHESES_TO_LOAD` hypotheses (`are_kernels_worth_loading`). Within `set_kernels_enabled`, its
    argument decides for the CPU.

    Args:
        hypotheses: Number of hypotheses of the search, over the sources of a chunk.
        device: Type of the device, "cpu" or "cuda".
    """
    chosen = _CHOSEN.get()
    enabled = are_kernels_worth_loading(hypotheses, device) if chosen is None or device != "cpu" else chosen
    with nullcontext() if enabled else disable_kernels():
        yield


def will_compile() -> bool:
    """Return whether the next training on a CPU compiles the kernels first.

    It does if they are enabled, this process has not tried to load them, and none are on the disk.
    """
    return not are_kernels_disabled() and not has_tried_to_load_kernels() and not is_cache_complete()
