"""Whether kernels compute, or the plain version in model/.

Kernels take float32 on a processor, and on a GPU float32 or bfloat16. They are left out within `plain()`, where the
environment has PELLUCID_PLAIN=1, and where they cannot be compiled, which is said once.
"""

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from pellucid.kernels.cache import by_one, cache_folder, empty, is_damaged, is_filled, mark_filled
from pellucid.kernels.environment import plain_is_asked

WORTH_LOADING = 500
"""Hypotheses whose search is quicker by as much time as loading the kernels takes, about."""
LONGEST = 8192
"""Source positions that the kernel for GPUs takes at most: one program holds them all."""

_PLAIN = ContextVar("plain", default=False)


@contextmanager
def plain() -> Iterator[None]:
    """Within, everything runs in plain PyTorch."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def chosen(tensor: Tensor) -> bool:
    """Whether kernels compute with tensors such as this one."""
    fits = tensor.dtype == torch.float32 and tensor.device.type == "cpu"
    return fits and not _asked_for_plain() and available()


def chosen_on_gpu(query: Float[Tensor, "R H"], keys: Float[Tensor, "B S A"]) -> bool:
    """Whether the kernel for GPUs looks at these keys: with gradients, for one query a source only."""
    if not keys.is_cuda or _asked_for_plain() or (torch.is_grad_enabled() and len(query) != len(keys)):
        return False
    fits = keys.dtype in (torch.float32, torch.bfloat16) and 0 < keys.shape[1] <= LONGEST
    return fits and available_on_gpu()


def _asked_for_plain() -> bool:
    """Whether the plain version was asked for, in the code or in the environment."""
    return _PLAIN.get() or plain_is_asked()


@contextmanager
def for_answers(hypotheses: int, device: torch.device) -> Iterator[None]:
    """Within, which searches so many hypotheses, kernels for the processor compute only where that pays.

    They do where this process has them already, and where the machine has compiled them and there is enough to search
    to be worth the second that loading takes. No answer waits for a compiler.
    """
    loaded = device.type != "cpu" or bool(available.cache_info().currsize)
    with nullcontext() if loaded or (hypotheses >= WORTH_LOADING and is_filled()) else plain():
        yield


def will_compile() -> bool:
    """Whether the next training has to compile the kernels first, as far as can be known before."""
    return not _asked_for_plain() and not available.cache_info().currsize and not is_filled()


@cache
def available() -> bool:
    """Whether kernels can be compiled here. The first call compiles them, or takes them from the disk."""
    return _succeeds(_rehearse_anew, "everything runs without compiled kernels")


@cache
def available_on_gpu() -> bool:
    """Whether Triton is there and can compile for this GPU."""
    return _succeeds(_rehearse_on_gpu, "attention runs without its kernel for GPUs")


def _rehearse_anew() -> None:
    """Take the kernels from the disk, or compile them, one process for all that want them now."""
    with nullcontext() if is_filled() else by_one():
        _rehearse_kept()


def _rehearse_kept() -> None:
    """Load the kernels from the disk; where they are missing or damaged there, compile them first."""
    filled, damaged = is_filled(), is_damaged()
    if filled and not damaged:
        try:
            _rehearse()
        except (ImportError, MemoryError, OSError):  # no compiler, no memory: nothing the disk could be blamed for
            raise
        except Exception:  # a damaged file shows as whatever its reader stumbles over
            damaged = True
        else:
            return
    if damaged:
        empty()
    if cache_folder() is not None:
        _compile_in_child()
    _rehearse()
    if filled:
        warnings.warn("the compiled kernels on the disk were damaged; they are compiled again", stacklevel=5)
    mark_filled()


def _compile_in_child() -> None:
    """Compile all kernels in a process of its own, which leaves them on the disk.

    Kernels round differently in the process that compiled them than in one that loads them from the disk. So every
    process loads them, and a training that is interrupted in its first process resumes to the same bits.

    Raises:
        RuntimeError: The process failed; the message is the last line that it wrote.
    """
    program = "import sys; sys.path[:] = sys.argv[1:]; from pellucid.kernels.choice import _rehearse; _rehearse()"
    command = [sys.executable, "-c", program, *sys.path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])


def _rehearse() -> None:
    """Load or compile the kernels for the processor."""
    from pellucid.kernels.adam import rehearse as rehearse_adam  # Numba takes a second to import
    from pellucid.kernels.beams import rehearse as rehearse_beams
    from pellucid.kernels.decoding import rehearse as rehearse_decoding
    from pellucid.kernels.keys import rehearse as rehearse_keys
    from pellucid.kernels.loss import rehearse as rehearse_loss
    from pellucid.kernels.ranking import rehearse as rehearse_ranking
    from pellucid.kernels.recurrence import rehearse as rehearse_recurrence
    from pellucid.kernels.searching import rehearse as rehearse_searching
    from pellucid.kernels.stepping import rehearse as rehearse_stepping

    rehearse_recurrence()
    rehearse_keys()
    rehearse_decoding()
    rehearse_stepping()
    rehearse_ranking()
    rehearse_searching()
    rehearse_beams()
    rehearse_adam()
    rehearse_loss()


def _rehearse_on_gpu() -> None:
    """Compile the kernels for the GPU."""
    from pellucid.kernels.gpu import rehearse  # Triton is an extra

    rehearse()


def _succeeds(rehearse: Callable[[], None], otherwise: str) -> bool:
    """Whether kernels compile; if not, why, in a warning that begins with what follows from it."""
    try:
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller needs: a rehearsal goes both ways
            rehearse()
    except Exception as error:  # whatever a compiler may meet on a machine nobody has seen
        reason = str(error).strip().splitlines() or [type(error).__name__]
        warnings.warn(f"{otherwise}, slower: {reason[0]}", stacklevel=3)
        return False
    return True
