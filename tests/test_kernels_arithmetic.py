"""exp, tanh, σ, and matrix products of contiguous and of strided rows, compared with NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import SEEDS, SIZES

from pellucid.kernels import arithmetic, runtime
from pellucid.kernels.arithmetic import add_, exp, gemm, gemm_add, gemm_nt, gemm_tn, sigmoid_, tanh_


def test_exp_and_tanh_over_their_range() -> None:
    x = np.linspace(-86, 86, 4001, dtype=np.float32)
    np.testing.assert_allclose([exp(value) for value in x], np.exp(x.astype(np.float64)), rtol=5e-7)
    for function, expected in ((tanh_, np.tanh(x)), (sigmoid_, 1 / (1 + np.exp(-x.astype(np.float64))))):
        values = x.copy()
        function(values)
        np.testing.assert_allclose(values, expected, rtol=1e-6, atol=2e-7)
    small = np.array([0, 1e-30, -3e-4, np.nan, np.inf, -np.inf], np.float32)
    tanh_(small)
    np.testing.assert_allclose(small, [0, 1e-30, -3e-4, np.nan, 1, -1], rtol=1e-6)
    assert np.isnan(exp(np.float32("nan")))
    total = np.ones(3, np.float32)
    add_(total, total.copy())
    assert (total == 2).all()


@pytest.mark.slow
@given(SIZES, st.sampled_from([0, 1, 2, 17, 40]), SIZES, SEEDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_products_equal_numpy(rows: int, inner: int, columns: int, seed: int, strided: bool) -> None:
    generator = np.random.default_rng(seed)
    step = 3 if strided else 1
    left = generator.standard_normal((rows, step, inner)).astype(np.float32)[:, 0]
    right = generator.standard_normal((inner, step, columns)).astype(np.float32)[:, 0]
    result = np.full((rows, step, columns), np.float32(7))
    gemm(left, right, result[:, 0])
    expected = left.astype(np.float64) @ right
    np.testing.assert_allclose(result[:, 0], expected, rtol=1e-5, atol=1e-5)
    gemm_add(left, right, result[:, 0])
    np.testing.assert_allclose(result[:, 0], 2 * expected, rtol=1e-5, atol=1e-5)
    assert (result[:, 1:] == 7).all()
    result[:] = 7
    gemm_nt(left, transpose(right), result[:, 0])
    np.testing.assert_allclose(result[:, 0], expected, rtol=1e-5, atol=1e-5)
    assert (result[:, 1:] == 7).all()
    result[:] = 7
    gemm_tn(transpose(left), right, result[:, 0])
    np.testing.assert_allclose(result[:, 0], expected, rtol=1e-5, atol=1e-5)
    assert (result[:, 1:] == 7).all()


def transpose(matrix: np.ndarray) -> np.ndarray:
    """Return a transposed copy with strided rows."""
    strided = np.empty((matrix.shape[1], 2, matrix.shape[0]), np.float32)
    strided[:, 0] = matrix.T
    return strided[:, 0]


def test_nan_propagates() -> None:
    left, right, result = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), np.zeros((2, 2), np.float32)
    left[1, 1] = np.nan
    gemm(left, right, result)
    assert np.isnan(result[1]).all() and (result[0] == 3).all()


def test_products_use_scipy_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (arithmetic, runtime):
        monkeypatch.setattr(module, "torch_library", lambda: None)
    assert arithmetic._address() > 0
    with runtime.in_one_thread():
        result = np.zeros((2, 2), np.float32)
        gemm(np.eye(2, dtype=np.float32), np.ones((2, 2), np.float32), result)
    assert (result == 1).all()
