"""Compiled loops for the roofline: sums of elementary functions over numbers in the first-level cache.

Each loop returns a sum, so that no evaluation can be optimized away, and changes its arguments in every pass.
"""

import numpy as np

from pellucid.kernels.arithmetic import ONE, ZERO, Flat, exp, tanh
from pellucid.kernels.compilation import njit


@njit
def sum_tanh(values: Flat, num_passes: int) -> np.float32:
    """Return Σ tanh(v + p) over all arguments v and passes p = 0, 1, ….

    Args:
        values: Arguments v.
        num_passes: Number of passes over the arguments.
    """
    total = ZERO
    for pass_number in range(num_passes):
        shift = np.float32(pass_number)
        for i in range(values.shape[0]):
            total += tanh(values[i] + shift)
    return total


@njit
def sum_exponential(values: Flat, num_passes: int) -> np.float32:
    """Return Σ e^(v + p) over all arguments v and passes p = 0, 1, ….

    Args:
        values: Arguments v.
        num_passes: Number of passes over the arguments.
    """
    total = ZERO
    for pass_number in range(num_passes):
        shift = np.float32(pass_number)
        for i in range(values.shape[0]):
            total += exp(values[i] + shift)
    return total


@njit
def sum_energies(values: Flat, num_passes: int) -> np.float32:
    """Return Σ 1 / (1 + (1 + p) v) over all arguments v and passes p = 0, 1, ….

    This is the costly part of an attention energy: tanh(q + k) = 1 − 2 / (1 + e^{2q} e^{2k}).

    Args:
        values: Arguments v.
        num_passes: Number of passes over the arguments.
    """
    total = ZERO
    for pass_number in range(num_passes):
        query = ONE + np.float32(pass_number)
        for i in range(values.shape[0]):
            total += ONE / (ONE + query * values[i])
    return total


@njit
def sum_paired_energies(values: Flat, num_passes: int) -> np.float32:
    """Return the sum of `sum_energies` with one division per two terms: 1 / x + 1 / y = (x + y) / (x y).

    An argument is paired with the one half of the array after it; the number of arguments is even.

    Args:
        values: Arguments v.
        num_passes: Number of passes over the arguments.
    """
    total, half = ZERO, values.shape[0] // 2
    for pass_number in range(num_passes):
        query = ONE + np.float32(pass_number)
        for i in range(half):
            first, second = ONE + query * values[i], ONE + query * values[i + half]
            total += (first + second) / (first * second)
    return total


@njit
def sum_values(values: Flat, num_passes: int) -> np.float32:
    """Read all arguments once per pass; return t, with t ← p t + Σ v in each pass p = 0, 1, ….

    Args:
        values: Arguments v.
        num_passes: Number of passes over the arguments.
    """
    total = ZERO
    for pass_number in range(num_passes):
        partial = ZERO
        for i in range(values.shape[0]):
            partial += values[i]
        total = total * np.float32(pass_number) + partial
    return total
