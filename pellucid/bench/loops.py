"""Compiled loops for the roofline: sums of elementary functions over numbers in the first-level cache.

Each loop returns a sum, so that no evaluation can be optimized away, and changes its arguments in every pass.
"""

import numpy as np

from pellucid.kernels.arithmetic import ONE, ZERO, Flat, exp, tanh
from pellucid.kernels.jit import njit


@njit
def sum_tanh(values: Flat, times: int) -> np.float32:
    """Return Σ tanh v, `times` times."""
    total = ZERO
    for time in range(times):
        shift = np.float32(time)
        for i in range(values.shape[0]):
            total += tanh(values[i] + shift)
    return total


@njit
def sum_exponential(values: Flat, times: int) -> np.float32:
    """Return Σ e^v, `times` times."""
    total = ZERO
    for time in range(times):
        shift = np.float32(time)
        for i in range(values.shape[0]):
            total += exp(values[i] + shift)
    return total


@njit
def sum_energies(values: Flat, times: int) -> np.float32:
    """Return Σ 1 / (1 + a v), `times` times, as in tanh(q + k) = 1 − 2 / (1 + e^{2q} e^{2k})."""
    total = ZERO
    for time in range(times):
        request = ONE + np.float32(time)
        for i in range(values.shape[0]):
            total += ONE / (ONE + request * values[i])
    return total


@njit
def sum_paired_energies(values: Flat, times: int) -> np.float32:
    """Return the sum of `sum_energies` with one division per two terms: 1 / x + 1 / y = (x + y) / (x y)."""
    total, half = ZERO, values.shape[0] // 2
    for time in range(times):
        request = ONE + np.float32(time)
        for i in range(half):
            first, second = ONE + request * values[i], ONE + request * values[i + half]
            total += (first + second) / (first * second)
    return total


@njit
def sum_values(values: Flat, times: int) -> np.float32:
    """Return Σ v, `times` times."""
    total = ZERO
    for time in range(times):
        partial = ZERO
        for i in range(values.shape[0]):
            partial += values[i]
        total = total * np.float32(time) + partial
    return total
