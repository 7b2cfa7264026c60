"""The kernels of an update beside the network: cross-entropy with its gradient, and Adam.

M positions, V vocabulary, P numbers of all parameters that are updated together. A position whose target is `ignored`
counts for nothing.
"""

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.arithmetic import ONE, ZERO, Flat, exp
from pellucid.kernels.attention import highest
from pellucid.kernels.jit import njit, njit_no_refcount


@njit
def loss_and_gradient(
    logits: Float[np.ndarray, "M V"], targets: Int[np.ndarray, " M"], ignored: int, smoothing: np.float32
) -> tuple[float, Float[np.ndarray, "M V"]]:
    """Return the mean of −Σ_v q_v log p_v, q = (1 − ε) one-hot + ε / V, and its gradient (p − q) / count."""
    gradient, total, count = np.zeros(logits.shape, np.float32), 0.0, 0
    for row in range(logits.shape[0]):
        count += targets[row] != ignored
    share, rest = ONE / np.float32(max(count, 1)), smoothing / np.float32(logits.shape[1])
    for row in range(logits.shape[0]):
        if targets[row] == ignored:
            continue
        own, change = logits[row], gradient[row]
        top, sum_of_exponents, sum_of_logits = highest(own), ZERO, ZERO
        for v in range(own.shape[0]):
            change[v] = exp(own[v] - top)
            sum_of_exponents += change[v]
            sum_of_logits += own[v] - top
        norm = np.log(sum_of_exponents)
        total += norm - (ONE - smoothing) * (own[targets[row]] - top) - rest * sum_of_logits
        scale = share / sum_of_exponents
        for v in range(own.shape[0]):
            change[v] = change[v] * scale - rest * share
        change[targets[row]] -= (ONE - smoothing) * share
    return total / count if count else np.nan, gradient


def adam_update(gradient: Flat, mean: Flat, square: Flat, numbers: tuple[float, float, float, float]) -> None:
    """Compute `training.optimizer.adam_update` for float32 on a CPU: moments and gradient are updated in place."""
    _adam_update(gradient, mean, square, np.array(numbers, dtype=np.float32))


@njit_no_refcount
def _adam_update(gradient: Flat, mean: Flat, square: Flat, numbers: Float[np.ndarray, "4"]) -> None:
    """Update every number, its operations together, so that the loop is vectorized."""
    mean_weight, square_weight, step, epsilon = numbers[0], numbers[1], numbers[2], numbers[3]
    for i in range(gradient.shape[0]):
        g = gradient[i]
        m = mean[i] + mean_weight * (g - mean[i])
        v = square[i] + square_weight * (g * g - square[i])
        mean[i] = m
        square[i] = v
        gradient[i] = step * m / (np.sqrt(v) + epsilon)


def warm_up() -> None:
    """Compile everything here."""
    loss_and_gradient(np.zeros((1, 2), np.float32), np.ones(1, np.int64), 0, ZERO)
    gradient, mean, square = np.zeros((3, 1), np.float32)
    adam_update(gradient, mean, square, (0.1, 0.001, 0.1, 1e-8))
