"""Loading of the compiled kernels: from the disk, or by compiling them first."""

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from importlib import import_module

from pellucid.errors import abbreviate_reason
from pellucid.kernels.compilation import (
    cache_folder,
    clear_cache,
    compile_lock,
    is_cache_complete,
    is_cache_damaged,
    mark_cache_complete,
)

_compilation_times = list[tuple[float, float]]()
"""Start and end of each compilation by this process, or of its wait for one by another process, as times of
`time.monotonic`."""


@cache
def load_kernels() -> bool:
    """Load the kernels for the CPU from the disk (about a second), or compile them (one to two minutes of a core).

    Only the first call in a process loads them.

    Returns:
        Whether they are loaded; if they cannot be compiled here, the first call warns with the reason.
    """
    return _try_to_load(_load_or_compile, "everything runs without compiled kernels")


@cache
def load_triton_kernel() -> bool:
    """Compile the kernel for the GPU with Triton. Only the first call in a process compiles it.

    Returns:
        Whether it is compiled; if Triton is not installed or fails on this GPU, the first call warns with the reason.
    """
    return _try_to_load(_compile_triton_kernel, "attention runs without its kernel for GPUs")


def has_tried_to_load_kernels() -> bool:
    """Return whether this process has loaded the kernels for the CPU, or has failed to load them."""
    return bool(load_kernels.cache_info().currsize)


def compilation_seconds(since: float) -> float:
    """Return the time for which this process has compiled kernels, or has waited while another process compiled them.

    Args:
        since: Time of `time.monotonic` from which the seconds count.
    """
    return sum((end - max(start, since) for start, end in _compilation_times if end > since), start=0.0)


def _try_to_load(load: Callable[[], None], consequence: str) -> bool:
    """Return whether a function loads kernels; if it fails, warn with the consequence and the reason."""
    try:
        load()
    except Exception as error:  # a compiler may fail in any way on an unknown machine
        warnings.warn(f"{consequence}, slower: {abbreviate_reason(error)}", stacklevel=3)
        return False
    return True


def _load_or_compile() -> None:
    """Load the kernels from the disk; if missing or damaged, compile them first, while other processes wait."""
    waits_from = time.monotonic()
    with nullcontext() if is_cache_complete() else compile_lock():
        _compilation_times.append((waits_from, time.monotonic()))
        filled = is_cache_complete()
        damaged = is_cache_damaged()
        if filled and not damaged:
            try:
                _call_all_kernels()
            except (ImportError, MemoryError, OSError):  # no compiler or no memory: the files are not the cause
                raise
            except Exception:  # a damaged file may raise any error in its reader
                damaged = True
            else:
                return
        if damaged:
            clear_cache()
        started_at = time.monotonic()
        if cache_folder() is not None:
            _compile_in_child()
        _call_all_kernels()
        _compilation_times.append((started_at, time.monotonic()))
        if filled:
            warnings.warn("the compiled kernels on the disk were damaged; they are compiled again", stacklevel=4)
        mark_cache_complete()


PROGRAM = """
import os, sys, threading
def end_with_parent():
    os.read(0, 1)
    os._exit(1)
threading.Thread(target=end_with_parent, daemon=True).start()
sys.path[:] = sys.argv[1:]
from pellucid.kernels import kernel_loader
kernel_loader._call_all_kernels()
"""
"""Program of the child process. Its standard input ends with this process, also with a killed one: then it ends too."""


def _compile_in_child() -> None:
    """Compile all kernels in a child process, which stores them on the disk.

    Kernels round differently in the process that compiled them than in one that loads them from the disk. So every
    process loads them, and a training that is interrupted in its first process resumes to the same bits.

    Raises:
        RuntimeError: The process failed; the message is the last line of its error output.
    """
    command = [sys.executable, "-c", PROGRAM, *sys.path]
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=output) as child,
    ):
        try:
            code = child.wait()
        except BaseException:
            child.kill()
            raise
        if code:
            output.seek(0)
            lines = output.read().decode("utf-8", "replace").strip().splitlines()
            raise RuntimeError((lines or [f"exit code {code}"])[-1])


def _call_all_kernels() -> None:
    """Call every kernel for the CPU with small arguments, at which Numba loads it from the disk or compiles it."""
    # Numba takes long to import.
    from pellucid.kernels import adam, arithmetic, attention, cross_entropy, decoder_step, recurrence, search, unroll

    # By name: their packages follow this one in the order of imports, and their kernels are stored with those here.
    outside = import_module("pellucid.alignment.lattice"), import_module("pellucid.pair_ngram.numba_search")
    for module in (arithmetic, recurrence, attention, unroll, decoder_step, search, cross_entropy, adam, *outside):
        module.warm_up()


def _compile_triton_kernel() -> None:
    """Compile the kernel for the GPU by a call."""
    from pellucid.kernels.triton_attention import warm_up  # Triton is an extra

    warm_up()
