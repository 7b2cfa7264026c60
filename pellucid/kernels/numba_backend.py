"""The computations of the Numba kernels on CPUs, and the compilation of these kernels.

They take float32. The tables name every setting on which a computation may depend; `ANYTHING` marks settings of which
the kernels compute all values, or that matter only before or after the kernels.
"""

import subprocess
import sys
import warnings
from contextlib import nullcontext
from functools import cache

from pellucid.kernels.backend import ANYTHING, SEARCH, Backend, Table, compiles
from pellucid.kernels.cache import cache_folder, clear, compile_lock, is_damaged, is_filled, mark_filled
from pellucid.kernels.types import CELL_LAYOUTS, SCORES

PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from pellucid.kernels.numba_backend import _warm_up; _warm_up()"

PROCESSOR: Table = {"device": {"cpu"}, "dtype": {"float32"}, "gradients": ANYTHING}
TRAINED: Table = {**PROCESSOR, "gradients": {True}}
ANSWERED: Table = {**PROCESSOR, "gradients": {False}}

# A matrix of recurrent weights may replace the cell's own; a mask of states would differ in every row.
RECURRENT_MASK: Table = {"recurrent_mask.weight": ANYTHING, "recurrent_mask.state": {False}}
DECODER: Table = {
    "decoder.kind": {"attend-then-step"},
    "decoder.order": {"attend-then-step"},
    "decoder.input_feeding": {False},
    "decoder.cell": CELL_LAYOUTS,
    "decoder.cell_kind": {"recurrent"},
    "decoder.head_kind": {"linear", "tied"},
    "decoder.hidden_size": ANYTHING,
    "decoder.num_layers": {1},
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
    "decoder.layer_normalization": {"none"},
    "decoder.residual": ANYTHING,  # of the layers above the first
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
    "masks.outputs": ANYTHING,  # applied to the outputs after all steps
    "masks.dropped_tokens": ANYTHING,  # applied to the symbols before all steps
    **RECURRENT_MASK,
}
STEP: Table = {**ANSWERED, **DECODER, "training": {False}}
ALL_STEPS: Table = {**STEP, "decoder.pointer_generator": {False}}
UNROLL: Table = {
    **PROCESSOR,
    **DECODER,
    "training": ANYTHING,
    "decoder.layer_normalization": {"none", "outputs"},  # applied to the outputs after all steps; no step reads them
}


@cache
def is_numba_available() -> bool:
    """Return whether kernels can be compiled here. The first call compiles them, or loads them from the disk."""
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
        clear()
    if cache_folder() is not None:
        _compile_in_child()
    _warm_up()
    if filled:
        warnings.warn("the compiled kernels on the disk were damaged; they are compiled again", stacklevel=5)
    mark_filled()


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
    from pellucid.kernels import (  # Numba takes long
        beam,
        decoder_step,
        greedy,
        keys,
        recurrence,
        topk,
        training,
        unroll,
    )

    for module in (recurrence, keys, unroll, decoder_step, topk, greedy, beam, training):
        module.warm_up()


NUMBA = Backend(
    "Numba",
    {
        "recurrence": {**PROCESSOR, **RECURRENT_MASK, "cell.kind": {"recurrent"}, "cell.cell": CELL_LAYOUTS},
        "keys": TRAINED,
        "unroll": UNROLL,
        "step": STEP,
        "search": SEARCH,
        "greedy": ALL_STEPS,
        "beam": ALL_STEPS,
        "ranking": {**PROCESSOR, "masks.blocked": {False}, "masks.is_early": ANYTHING},
        "cross_entropy": PROCESSOR,
        "adam": PROCESSOR,
    },
    lambda: is_numba_available(),
)
