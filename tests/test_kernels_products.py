"""Products inside kernels, against NumPy's, of rows that stand side by side or apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import SEEDS, SIZES

from pellucid.kernels import gemm as products
from pellucid.kernels.gemm import add_product, product, product_of_rows, product_over


@given(SIZES, st.sampled_from([0, 1, 2, 17, 40]), SIZES, SEEDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_products_equal_numpys(rows: int, inner: int, columns: int, seed: int, apart: bool) -> None:
    generator = np.random.default_rng(seed)
    step = 3 if apart else 1
    left = generator.standard_normal((rows, step, inner)).astype(np.float32)[:, 0]
    right = generator.standard_normal((inner, step, columns)).astype(np.float32)[:, 0]
    result = np.full((rows, step, columns), np.float32(7))
    product(left, right, result[:, 0])
    wanted = left.astype(np.float64) @ right
    np.testing.assert_allclose(result[:, 0], wanted, rtol=1e-5, atol=1e-5)
    add_product(left, right, result[:, 0])
    np.testing.assert_allclose(result[:, 0], 2 * wanted, rtol=1e-5, atol=1e-5)
    assert (result[:, 1:] == 7).all()
    result[:] = 7
    product_of_rows(left, columns_of(right), result[:, 0])
    np.testing.assert_allclose(result[:, 0], wanted, rtol=1e-5, atol=1e-5)
    assert (result[:, 1:] == 7).all()
    result[:] = 7
    product_over(columns_of(left), right, result[:, 0])
    np.testing.assert_allclose(result[:, 0], wanted, rtol=1e-5, atol=1e-5)
    assert (result[:, 1:] == 7).all()


def columns_of(matrix: np.ndarray) -> np.ndarray:
    """The transposed matrix, in memory of its own; its rows stand apart."""
    apart = np.empty((matrix.shape[1], 2, matrix.shape[0]), np.float32)
    apart[:, 0] = matrix.T
    return apart[:, 0]


def test_what_is_not_a_number_shows() -> None:
    left, right, result = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), np.zeros((2, 2), np.float32)
    left[1, 1] = np.nan
    product(left, right, result)
    assert np.isnan(result[1]).all() and (result[0] == 3).all()


def test_scipys_product_serves_where_pytorch_lends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_torch_library", lambda: None)
    assert products._address() > 0
    with products.in_one_thread():
        result = np.zeros((2, 2), np.float32)
        product(np.eye(2, dtype=np.float32), np.ones((2, 2), np.float32), result)
    assert (result == 1).all()
