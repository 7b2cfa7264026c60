"""Weight-only quantization: a matrix as 8-bit integers with one scale per row.

R rows, C columns.

References:
    Symmetric quantization by output channel: Krishnamoorthi 2018, "Quantizing deep convolutional networks for
    efficient inference: A whitepaper", sections 2.2 and 3.1.
"""

from typing import NamedTuple

import numpy as np

from pellucid.errors import ConfigError
from pellucid.shapes import Float, Int

MAX_INT8 = 127
TINY = np.finfo(np.float32).tiny
"""Smallest positive number of float32 that is not subnormal: 2⁻¹²⁶."""


class QuantizedMatrix(NamedTuple):
    """A matrix W ≈ scales ⊙ values, row by row."""

    values: Int[np.ndarray, "R C"]
    scales: Float[np.ndarray, " R"]
    """Scale of each row, above 0; float32."""

    def dequantize(self) -> Float[np.ndarray, "R C"]:
        """Return the matrix in float32."""
        result: Float[np.ndarray, "R C"] = self.values.astype(np.float32) * self.scales[:, None]
        return result


def quantize_rows(matrix: Float[np.ndarray, "R C"]) -> QuantizedMatrix:
    """Return a matrix as 8-bit integers from −127 to 127; the greatest magnitude of a row becomes 127.

    The scale of a row is never subnormal: in a row of numbers below 127 · 2⁻¹²⁶ = 1.5 · 10⁻³⁶, the greatest magnitude
    becomes less.

    Args:
        matrix: Matrix in float32. A row of zeros has the scale 1.

    Raises:
        ConfigError: A number is infinite or NaN.
    """
    if not np.isfinite(matrix).all():
        raise ConfigError("a matrix has a number that is infinite or NaN, which 8-bit integers cannot hold")
    greatest = np.abs(matrix).max(axis=1, initial=0.0)
    scales = np.where(greatest > 0, np.maximum(greatest / np.float32(MAX_INT8), TINY), np.float32(1)).astype(np.float32)
    values = np.rint(matrix / scales[:, None]).clip(-MAX_INT8, MAX_INT8).astype(np.int8)
    return QuantizedMatrix(values, scales)
