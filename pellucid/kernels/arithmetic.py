"""exp, tanh and σ of float32, written so that compilers vectorize loops of them.

Constants are float32 one by one: a Python float or integer among them would make a whole loop float64.
"""

import numpy as np
from jaxtyping import Float

from pellucid.kernels.jit import njit_no_refcount

Flat = Float[np.ndarray, " N"]

ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)

PER_LN2, LN2, FLOOR, FLOOR_INTEGER = np.float32(1.4426950408889634), np.float32(0.6931471805599453), 200.5, 200
FLOOR_SHIFT = np.float32(FLOOR)
EXPONENT_LIMIT = np.float32(87)
E2, E3, E4 = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24)
E5, E6, E7 = np.float32(1 / 120), np.float32(1 / 720), np.float32(1 / 5040)


@njit_no_refcount
def clamp(x: np.float32, limit: np.float32) -> np.float32:
    """Return x within ±limit; NaN stays NaN, because no comparison with it holds.

    Args:
        x: Number to clamp.
        limit: Largest absolute value of the result; positive.
    """
    capped = limit if x > limit else x
    return -limit if capped < -limit else capped


@njit_no_refcount
def exp(x: np.float32) -> np.float32:
    """Return e^x = 2^n e^r with n = round(x / ln 2), |r| ≤ ln 2 / 2 and Taylor's series to r⁷; x is clamped to ±87.

    Args:
        x: Exponent.
    """
    clamped = clamp(x, EXPONENT_LIMIT)
    n = np.int32(clamped * PER_LN2 + FLOOR_SHIFT) - np.int32(FLOOR_INTEGER)
    r = clamped - np.float32(n) * LN2
    series = E4 + r * (E5 + r * (E6 + r * E7))
    series = ONE + r * (ONE + r * (E2 + r * (E3 + r * series)))
    return series * np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)


TANH_LIMIT = np.float32(7.90531110763549805)
P1, P3, P5 = np.float32(4.89352455891786e-03), np.float32(6.37261928875436e-04), np.float32(1.48572235717979e-05)
P7, P9 = np.float32(5.12229709037114e-08), np.float32(-8.60467152213735e-11)
P11, P13 = np.float32(2.00018790482477e-13), np.float32(-2.76076847742355e-16)
Q0, Q2 = np.float32(4.89352518554385e-03), np.float32(2.26843463243900e-03)
Q4, Q6 = np.float32(1.18534705686654e-04), np.float32(1.19825839466702e-06)


@njit_no_refcount
def tanh(x: np.float32) -> np.float32:
    """Return tanh x, a quotient of polynomials, to about 1e-7. Coefficients: Eigen, MathFunctionsImpl.h.

    Args:
        x: Argument of the function.
    """
    clamped = clamp(x, TANH_LIMIT)
    square = clamped * clamped
    numerator = P5 + square * (P7 + square * (P9 + square * (P11 + square * P13)))
    numerator = clamped * (P1 + square * (P3 + square * numerator))
    return numerator / (Q0 + square * (Q2 + square * (Q4 + square * Q6)))


@njit_no_refcount
def sigmoid_(values: Flat) -> None:
    """Replace every value v by σ(v) = ½ + ½ tanh(v / 2).

    Args:
        values: Array to change in place.
    """
    for i in range(values.shape[0]):
        values[i] = HALF + HALF * tanh(HALF * values[i])


@njit_no_refcount
def tanh_(values: Flat) -> None:
    """Replace every value by its tanh.

    Args:
        values: Array to change in place.
    """
    for i in range(values.shape[0]):
        values[i] = tanh(values[i])


@njit_no_refcount
def add_(values: Flat, addend: Flat) -> None:
    """Compute values += addend in place.

    Args:
        values: Array to change.
        addend: Array of at least as many numbers.
    """
    for i in range(values.shape[0]):
        values[i] += addend[i]


@njit_no_refcount
def copy_(values: Flat, source: Flat) -> None:
    """Compute values = source in place.

    Args:
        values: Array to change.
        source: Array of at least as many numbers.
    """
    for i in range(values.shape[0]):
        values[i] = source[i]
