"""Adam's moments and the change they call for, in one pass over the numbers.

P counts the numbers of all parameters that are updated together.
"""

import numpy as np
from jaxtyping import Float

from pellucid.kernels.arithmetic import Flat
from pellucid.kernels.compiling import in_place


def turn_to_changes(gradient: Flat, mean: Flat, square: Flat, numbers: tuple[float, float, float, float]) -> None:
    """`training.optimizer.turn_to_changes`, compiled: float32, on a processor."""
    _turn_to_changes(gradient, mean, square, np.array(numbers, dtype=np.float32))


@in_place
def _turn_to_changes(gradient: Flat, mean: Flat, square: Flat, numbers: Float[np.ndarray, "4"]) -> None:
    """Every number by itself, so that the vectors of a processor are full."""
    mean_weight, square_weight, step, epsilon = numbers[0], numbers[1], numbers[2], numbers[3]
    for i in range(gradient.shape[0]):
        g = gradient[i]
        m = mean[i] + mean_weight * (g - mean[i])
        v = square[i] + square_weight * (g * g - square[i])
        mean[i] = m
        square[i] = v
        gradient[i] = step * m / (np.sqrt(v) + epsilon)


def warm_up() -> None:
    """Call the kernel once, so that it is compiled."""
    gradient, mean, square = np.zeros((3, 1), np.float32)
    turn_to_changes(gradient, mean, square, (0.1, 0.001, 0.1, 1e-8))
