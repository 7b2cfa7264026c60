"""Cross-entropy with its gradient.

M positions, V vocabulary. Positions whose target is `ignore_index` do not contribute.
"""

import numpy as np

from pellucid.errors import ArgumentError
from pellucid.kernels.arithmetic import ONE, ZERO, exp, max_value
from pellucid.kernels.compilation import njit
from pellucid.shapes import Float, Int


@njit
def cross_entropy_and_gradient(
    logits: Float[np.ndarray, "M V"], targets: Int[np.ndarray, " M"], ignore_index: int, smoothing: np.float32
) -> tuple[float, Float[np.ndarray, "M V"]]:
    """Return the mean of −Σ_v q_v log p_v, q = (1 − ε) one-hot + ε / V, and its gradient (p − q) / count.

    The mean is over the count of positions whose target is not `ignore_index`; it is NaN if there are none. The
    gradient of the other positions is zero.

    Args:
        logits: Logits of each position.
        targets: Target id of each position.
        ignore_index: Target id of positions that do not contribute.
        smoothing: ε of label smoothing, from 0 to below 1.

    Raises:
        ArgumentError: There is not one target for each position, or a target is not an id of the vocabulary.
    """
    if targets.shape[0] != logits.shape[0]:
        raise ArgumentError("targets: expected one for each row of logits")
    gradient = np.zeros(logits.shape, np.float32)
    total = 0.0
    count = 0
    for row in range(logits.shape[0]):
        if targets[row] != ignore_index:
            if not 0 <= targets[row] < logits.shape[1]:
                raise ArgumentError("targets: expected ids of the vocabulary, or ignore_index")
            count += 1
    row_scale, uniform = ONE / np.float32(max(count, 1)), smoothing / np.float32(logits.shape[1])
    for row in range(logits.shape[0]):
        if targets[row] == ignore_index:
            continue
        row_logits, row_gradient = logits[row], gradient[row]
        maximum = max_value(row_logits)
        sum_of_exponentials = ZERO
        sum_of_logits = ZERO
        for v in range(row_logits.shape[0]):
            row_gradient[v] = exp(row_logits[v] - maximum)
            sum_of_exponentials += row_gradient[v]
            sum_of_logits += row_logits[v] - maximum
        norm = np.log(sum_of_exponentials)
        total += norm - (ONE - smoothing) * (row_logits[targets[row]] - maximum) - uniform * sum_of_logits
        scale = row_scale / sum_of_exponentials
        for v in range(row_logits.shape[0]):
            row_gradient[v] = row_gradient[v] * scale - uniform * row_scale
        row_gradient[targets[row]] -= (ONE - smoothing) * row_scale
    return total / count if count else np.nan, gradient


def warm_up() -> None:
    """Compile the kernel by running the smallest example."""
    cross_entropy_and_gradient(np.zeros((1, 2), np.float32), np.ones(1, np.int64), 0, ZERO)
