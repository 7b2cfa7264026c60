"""Weight-only quantization: a matrix as 8-bit integers with one scale per row.

R rows, C columns.

References:
    Symmetric quantization by output channel: Krishnamoorthi 2018, "Quantizing deep convolutional networks for
    efficient inference: A whitepaper", sections 2.2 and 3.1.
"""

from typing import NamedTuple

import numpy as np

from pellucid.shapes import Float, Int

MAX_INT8 = 127


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

    Args:
        matrix: Matrix in float32. A row of zeros has the scale 1.
    """
    greatest = np.abs(matrix).max(axis=1, initial=0.0)
    scales = np.where(greatest > 0, greatest / np.float32(MAX_INT8), np.float32(1)).astype(np.float32)
    values = np.rint(matrix / scales[:, None]).clip(-MAX_INT8, MAX_INT8).astype(np.int8)
    return QuantizedMatrix(values, scales)
