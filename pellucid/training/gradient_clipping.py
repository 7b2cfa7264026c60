"""Clipping of gradients by value and by their joint norm, before an update by any optimizer."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pellucid.shapes import Float

NORM_BLOCK = 1 << 16
"""Number of float32 squares summed at a time; a sum of millions loses digits."""
MAX_NORM = 1.8e19
"""Norm of gradients whose squares are within float32."""


def clip_gradients(parts: Sequence[Float[Tensor, " p"]], clip_value: float, clip_norm: float) -> float:
    """Clip gradients in place; if their norm is not finite, they are not scaled.

    Args:
        parts: All gradients, as flat tensors.
        clip_value: Clip each entry to ±`clip_value` first; 0 = off.
        clip_norm: Then scale all gradients so that their joint Euclidean norm is at most this (Pascanu et al. 2013); 0
            is off.

    Returns:
        The joint norm after clipping by value and before clipping by norm; infinite from `MAX_NORM` on.
    """
    if clip_value:
        for part in parts:
            part.clamp_(-clip_value, clip_value)
    norm = _joint_norm(parts)
    if clip_norm and math.isfinite(norm) and (scale := clip_norm / (norm + 1e-6)) < 1.0:
        for part in parts:
            part.mul_(scale)
    return norm


def _joint_norm(parts: Sequence[Float[Tensor, " p"]]) -> float:
    """Return the Euclidean norm of all gradients; 0 for none."""
    norms = [
        torch.linalg.vector_norm(part[start : start + NORM_BLOCK])
        for part in parts
        for start in range(0, len(part), NORM_BLOCK)
    ]
    if not norms:
        return 0.0
    norm = float(norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms)))
    return norm if norm < MAX_NORM else math.inf  # the norm of a single number is not squared, so may exceed
