"""The update of Adam, in one pass over all parameters."""

import numpy as np

from pellucid.kernels.arithmetic import Flat
from pellucid.kernels.compilation import njit_no_refcount
from pellucid.shapes import Float


@njit_no_refcount
def adam_kernel(gradient: Flat, mean: Flat, square: Flat, coefficients: Float[np.ndarray, "4"]) -> None:
    """Compute `pellucid.training.optimizer.compute_adam_changes` for contiguous float32 arrays, in place.

    Args:
        gradient: Gradient g; replaced by the update that is added to the parameters, step · m / (√v + ε). The caller
            checks that g, m and v have equal lengths; a shorter moment would be read beyond its end.
        mean: First moment m, updated to m + (1 − β₁) (g − m).
        square: Second moment v, updated to v + (1 − β₂) (g² − v).
        coefficients: 1 − β₁, 1 − β₂, step and ε.
    """
    mean_weight, square_weight, step, epsilon = coefficients[0], coefficients[1], coefficients[2], coefficients[3]
    for i in range(gradient.shape[0]):
        g = gradient[i]
        m = mean[i] + mean_weight * (g - mean[i])
        v = square[i] + square_weight * (g * g - square[i])
        mean[i] = m
        square[i] = v
        gradient[i] = step * m / (np.sqrt(v) + epsilon)


def warm_up() -> None:
    """Compile the kernel by running the smallest example."""
    gradient, mean, square = np.zeros((3, 1), np.float32)
    adam_kernel(gradient, mean, square, np.ones(4, np.float32))
