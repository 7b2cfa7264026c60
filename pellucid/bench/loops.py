"""Loops whose speed is known to the floor: a function of numbers in the nearest cache, many times over.

Each returns a sum, so that no evaluation can be left out, and reads other values each time.
"""

import numpy as np

from pellucid.kernels.arithmetic import ONE, ZERO, Flat, exp, tanh
from pellucid.kernels.jit import njit


@njit
def tangent_over(values: Flat, times: int) -> np.float32:
    """Σ tanh v, so many times over."""
    total = ZERO
    for time in range(times):
        shift = np.float32(time)
        for i in range(values.shape[0]):
            total += tanh(values[i] + shift)
    return total


@njit
def exponential_over(values: Flat, times: int) -> np.float32:
    """Σ e^v, so many times over."""
    total = ZERO
    for time in range(times):
        shift = np.float32(time)
        for i in range(values.shape[0]):
            total += exp(values[i] + shift)
    return total


@njit
def energies_over(values: Flat, times: int) -> np.float32:
    """Σ 1 / (1 + a v), so many times over: tanh(q + k) = 1 − 2 / (1 + e^{2q} e^{2k})."""
    total = ZERO
    for time in range(times):
        asked = ONE + np.float32(time)
        for i in range(values.shape[0]):
            total += ONE / (ONE + asked * values[i])
    return total


@njit
def paired_energies_over(values: Flat, times: int) -> np.float32:
    """The same with one division for two: 1 / x + 1 / y = (x + y) / (x y)."""
    total, half = ZERO, values.shape[0] // 2
    for time in range(times):
        asked = ONE + np.float32(time)
        for i in range(half):
            first, second = ONE + asked * values[i], ONE + asked * values[i + half]
            total += (first + second) / (first * second)
    return total


@njit
def sum_over(values: Flat, times: int) -> np.float32:
    """Σ v, so many times over."""
    total = ZERO
    for time in range(times):
        partial = ZERO
        for i in range(values.shape[0]):
            partial += values[i]
        total = total * np.float32(time) + partial
    return total
