"""Whether kernels compute, or the plain version in model/.

Kernels take float32 on a processor. They are left out within `plain()`, where the environment has PELLUCID_PLAIN=1, and
where they cannot be compiled, which is said once.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

from pellucid.kernels.cache import is_filled

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


def _asked_for_plain() -> bool:
    """Whether the plain version was asked for, in the code or in the environment."""
    return _PLAIN.get() or os.environ.get("PELLUCID_PLAIN", "0") not in ("", "0")


def will_compile() -> bool:
    """Whether the next training has to compile the kernels first, as far as can be known before."""
    return not _asked_for_plain() and not available.cache_info().currsize and not is_filled()


@cache
def available() -> bool:
    """Whether kernels can be compiled here. The first call compiles them, or takes them from the disk."""
    try:
        from pellucid.kernels.decoding import rehearse as rehearse_decoding  # Numba takes a second to import
        from pellucid.kernels.recurrence import rehearse as rehearse_recurrence
        from pellucid.kernels.stepping import rehearse as rehearse_stepping

        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller needs: a rehearsal goes both ways
            rehearse_recurrence()
            rehearse_decoding()
            rehearse_stepping()
    except Exception as error:  # whatever a compiler may meet on a machine nobody has seen
        reason = str(error).strip().splitlines() or [type(error).__name__]
        warnings.warn(f"training runs without compiled kernels, slower: {reason[0]}", stacklevel=2)
        return False
    return True
