"""Cross-entropy with label smoothing, and its gradient in the same pass.

M positions, V vocabulary. A position whose target is `ignored` counts for nothing.
"""

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.arithmetic import ONE, ZERO, exponential
from pellucid.kernels.attention import highest
from pellucid.kernels.compiling import compiled


@compiled
def loss_and_gradient(
    logits: Float[np.ndarray, "M V"], targets: Int[np.ndarray, " M"], ignored: int, smoothing: np.float32
) -> tuple[float, Float[np.ndarray, "M V"]]:
    """The mean of −Σ_v q_v ln p_v with q = (1 − ε) one-hot + ε / V, and its gradient (p − q) / count."""
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
            change[v] = exponential(own[v] - top)
            sum_of_exponents += change[v]
            sum_of_logits += own[v] - top
        norm = np.log(sum_of_exponents)
        total += norm - (ONE - smoothing) * (own[targets[row]] - top) - rest * sum_of_logits
        scale = share / sum_of_exponents
        for v in range(own.shape[0]):
            change[v] = change[v] * scale - rest * share
        change[targets[row]] -= (ONE - smoothing) * share
    return total / count if count else np.nan, gradient


def warm_up() -> None:
    """Compile everything here."""
    loss_and_gradient(np.zeros((1, 2), np.float32), np.ones(1, np.int64), 0, ZERO)
