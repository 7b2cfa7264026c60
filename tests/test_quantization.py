"""export/quantization.py: matrices as 8-bit integers with one scale per row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ConfigError
from pellucid.export.quantization import MAX_INT8, quantize_rows


@given(st.integers(1, 5), st.integers(1, 7), st.floats(1e-6, 1e6), st.integers(0, 2**31))
def test_every_number_is_within_half_a_scale(rows: int, columns: int, size: float, seed: int) -> None:
    matrix = (np.random.default_rng(seed).normal(size=(rows, columns)) * size).astype(np.float32)
    quantized = quantize_rows(matrix)
    assert quantized.values.dtype == np.int8 and quantized.scales.dtype == np.float32
    error = np.abs(quantized.dequantize() - matrix)
    assert (error <= quantized.scales[:, None] * (0.5 + 1e-4)).all()
    assert (np.abs(quantized.values).max(axis=1) == MAX_INT8).all()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    with pytest.raises(ConfigError, match=r"^a matrix has a number that is infinite or NaN"):
        quantize_rows(np.array([[1.0, 2.0], [number, 1.0]], np.float32))


@pytest.mark.parametrize("number", [1.4e-45, 1e-40, 1e-38, 1e-37, 1e-36, 2e-36])
def test_scales_of_tiny_numbers_are_not_subnormal(number: float) -> None:
    matrix = np.array([[number, -number / 2, 0.0]], np.float32)
    quantized = quantize_rows(matrix)
    assert quantized.scales[0] >= np.finfo(np.float32).tiny
    assert (np.abs(quantized.dequantize() - matrix) <= quantized.scales * (0.5 + 1e-4)).all()
    assert (quantized.values[0, 0] == MAX_INT8) == (number > 127 * np.finfo(np.float32).tiny)


def test_each_row_has_its_own_scale() -> None:
    quantized = quantize_rows(np.array([[1.27, 0.01], [-127, 1], [0, 0]], np.float32))
    np.testing.assert_allclose(quantized.scales, [0.01, 1, 1], rtol=1e-6)
    assert quantized.values.tolist() == [[127, 1], [-127, 1], [0, 0]]
    assert quantized.dequantize()[2].tolist() == [0, 0]
