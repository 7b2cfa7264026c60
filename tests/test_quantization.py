"""export/quantization.py: matrices as 8-bit integers with one scale per row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pellucid.export.quantization import MAX_INT8, quantize_rows


@given(st.integers(1, 5), st.integers(1, 7), st.floats(1e-6, 1e6), st.integers(0, 2**31))
def test_every_number_is_within_half_a_scale(rows: int, columns: int, size: float, seed: int) -> None:
    matrix = (np.random.default_rng(seed).normal(size=(rows, columns)) * size).astype(np.float32)
    quantized = quantize_rows(matrix)
    assert quantized.values.dtype == np.int8 and quantized.scales.dtype == np.float32
    error = np.abs(quantized.dequantize() - matrix)
    assert (error <= quantized.scales[:, None] * (0.5 + 1e-4)).all()
    assert (np.abs(quantized.values).max(axis=1) == MAX_INT8).all()


def test_each_row_has_its_own_scale() -> None:
    quantized = quantize_rows(np.array([[1.27, 0.01], [-127, 1], [0, 0]], np.float32))
    np.testing.assert_allclose(quantized.scales, [0.01, 1, 1], rtol=1e-6)
    assert quantized.values.tolist() == [[127, 1], [-127, 1], [0, 0]]
    assert quantized.dequantize()[2].tolist() == [0, 0]
