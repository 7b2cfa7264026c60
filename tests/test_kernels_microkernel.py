"""Matrix products in AVX-512, compared with NumPy in double precision and with PyTorch's rounding to bfloat16."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import SEEDS
from llvmlite import binding
from numba import config

from pellucid.kernels.arithmetic import gemm, gemm_add, gemm_nt, gemm_tn
from pellucid.kernels.microkernel import (
    BLOCK_ROWS,
    BLOCK_STEPS,
    HAS_BFLOAT16,
    HAS_FLOAT32,
    PANEL_COLUMNS,
    TILE_ROWS,
    VECTOR,
    add_product_bfloat16,
    add_product_float32,
    find_instruction_sets,
)

needs_float32 = pytest.mark.skipif(not HAS_FLOAT32, reason="needs AVX-512 on a processor of AMD")
needs_bfloat16 = pytest.mark.skipif(not HAS_BFLOAT16, reason="needs avx512_bf16")
Product = Callable[[np.ndarray, np.ndarray, tuple[bool, bool], np.ndarray], None]
PRODUCTS = [
    pytest.param(add_product_float32, False, marks=needs_float32, id="float32"),
    pytest.param(add_product_bfloat16, True, marks=needs_bfloat16, id="bfloat16"),
]
ROWS = st.sampled_from([0, 1, 2, 3, 5, TILE_ROWS[0], VECTOR + 1, 31, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 9])
STEPS = st.sampled_from([0, 1, 2, 3, 15, VECTOR, 33, BLOCK_STEPS - 1, BLOCK_STEPS, 2 * BLOCK_STEPS + 35])
COLUMNS = st.sampled_from([0, 1, 2, VECTOR - 1, VECTOR, VECTOR + 1, PANEL_COLUMNS, 2 * PANEL_COLUMNS + 3])
TRANSPOSED = st.sampled_from([(False, False), (True, False), (False, True), (True, True)])


def round_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return the values rounded by PyTorch, in double precision."""
    return torch.from_numpy(values).bfloat16().double().numpy()


def strided_copy(matrix: np.ndarray, transposed: bool) -> np.ndarray:
    """Return a copy, transposed or not, whose rows are apart; between them are NaN."""
    source = matrix.T if transposed else matrix
    wide = np.full((source.shape[0], source.shape[1] + 5), np.nan, np.float32)
    wide[:, : source.shape[1]] = source
    return wide[:, : source.shape[1]]


@pytest.mark.slow
@pytest.mark.parametrize(("product", "uses_bfloat16"), PRODUCTS)
@given(rows=ROWS, steps=STEPS, columns=COLUMNS, transposed=TRANSPOSED, seed=SEEDS)
@settings(max_examples=150)
def test_products_equal_those_in_double_precision(
    product: Product, uses_bfloat16: bool, rows: int, steps: int, columns: int, transposed: tuple[bool, bool], seed: int
) -> None:
    """Sums of bfloat16 products are in float32: the error is as small as that of float32, for rounded operands."""
    generator = np.random.default_rng(seed)
    left = generator.standard_normal((rows, steps)).astype(np.float32)
    right = generator.standard_normal((steps, columns)).astype(np.float32)
    wide = np.full((rows, columns + 3), np.float32(7))
    product(strided_copy(left, transposed[0]), strided_copy(right, transposed[1]), transposed, wide[:, :columns])
    operands = (
        (round_to_bfloat16(left), round_to_bfloat16(right)) if uses_bfloat16 else (left.astype(np.float64), right)
    )
    np.testing.assert_allclose(wide[:, :columns], 7 + operands[0] @ operands[1], rtol=0, atol=1e-5 * (1 + steps**0.5))
    assert (wide[:, columns:] == 7).all()


@needs_bfloat16
@given(values=st.lists(st.floats(width=32, allow_subnormal=False), min_size=1, max_size=70))
def test_numbers_are_rounded_as_in_pytorch(values: list[float]) -> None:
    """Times one, the sum is the rounded number itself: ties to even, infinity and NaN as PyTorch rounds them.

    The instruction counts subnormal numbers as zero, which the rounding of a normal number never gives.
    """
    numbers = np.array(values, np.float32)[:, None]
    expected = torch.from_numpy(numbers).bfloat16().float().numpy()
    one, results = np.ones((1, 1), np.float32), [np.zeros((len(numbers), 1), np.float32) for _ in range(4)]
    gemm(numbers, one, results[0], True)
    gemm_tn(np.ascontiguousarray(numbers.T), one, results[1], True)
    gemm(one, np.ascontiguousarray(numbers.T), results[2].T.reshape(1, -1), True)
    gemm_nt(one, numbers, results[3].T.reshape(1, -1), True)
    for result in results:
        np.testing.assert_array_equal(result, expected)


@needs_bfloat16
@pytest.mark.parametrize("bits", [0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFF7FFF, 0x7FFF8000, 0x7FFFFFFF])
@pytest.mark.parametrize("sign", [0, 1 << 31])
def test_every_nan_stays_one(bits: int, sign: int) -> None:
    """Rounding by integer sums would carry some to infinity, and some to zero with the other sign."""
    numbers, one = np.full((3, 5), bits | sign, np.uint32).view(np.float32), np.ones((5, 2), np.float32)
    for left, transposed in ((numbers, False), (np.ascontiguousarray(numbers.T), True)):
        result = np.zeros((3, 2), np.float32)
        add_product_bfloat16(left, one, (transposed, False), result)
        assert np.isnan(result).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [("CPU_NAME", "generic"), ("CPU_FEATURES", ""), ("CPU_FEATURES", "+avx2"), ("ENABLE_AVX", 0)],
)
def test_no_instructions_are_used_that_numba_does_not_compile(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """LLVM ends the process at an instruction that its target lacks."""
    features = dict.fromkeys(("avx512f", "avx512bf16"), True)
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(binding, "get_host_cpu_name", lambda: "znver5")
    for each, default in (("CPU_NAME", None), ("CPU_FEATURES", None), ("ENABLE_AVX", True)):
        monkeypatch.setattr(config, each, default)
    monkeypatch.setattr(binding, "llvm_version_info", (16, 0, 0))
    assert find_instruction_sets() == (True, True)
    monkeypatch.setattr(binding, "llvm_version_info", (15, 0, 7))
    assert find_instruction_sets() == (True, False)
    monkeypatch.setattr(config, name, value)
    assert find_instruction_sets() == (False, False)


@pytest.mark.parametrize(("product", "uses_bfloat16"), PRODUCTS)
def test_what_is_not_a_number_stays_in_its_rows_and_columns(product: Product, uses_bfloat16: bool) -> None:
    left, right = np.ones((19, 300), np.float32), np.ones((300, 40), np.float32)
    left[3, 299], right[7, 33] = np.nan, -np.inf
    result = np.zeros((19, 40), np.float32)
    product(left, right, (False, False), result)
    assert np.isnan(result[3]).all() and np.isneginf(np.delete(result[:, 33], 3)).all()
    assert (np.delete(np.delete(result, 3, 0), 33, 1) == 300).all()


@pytest.mark.parametrize(("product", "uses_bfloat16"), PRODUCTS)
def test_a_row_does_not_depend_on_the_others(product: Product, uses_bfloat16: bool) -> None:
    generator = np.random.default_rng(1)
    left = generator.standard_normal((37, 300)).astype(np.float32)
    right = generator.standard_normal((300, 50)).astype(np.float32)
    whole, part = np.zeros((37, 50), np.float32), np.zeros((1, 50), np.float32)
    product(left, right, (False, False), whole)
    for row in range(37):
        part[:] = 0
        product(left[row : row + 1], right, (False, False), part)
        np.testing.assert_array_equal(part[0], whole[row])


@needs_bfloat16
def test_bfloat16_is_computed_on_request_only() -> None:
    left, right = np.full((5, 2), np.float32(1 + 2**-12)), np.ones((2, 3), np.float32)
    exact, rounded = np.zeros((5, 3), np.float32), np.zeros((5, 3), np.float32)
    gemm(left, right, exact)
    gemm(left, right, rounded, True)
    assert (exact == 2 + 2**-11).all() and (rounded == 2).all()
    gemm_add(left, right, rounded, True)
    assert (rounded == 4).all()


@pytest.mark.parametrize("uses_bfloat16", [False, True])
def test_empty_sums_are_zero_whatever_the_result_was(uses_bfloat16: bool) -> None:
    result = np.full((6, 2), np.nan, np.float32)
    gemm(np.zeros((6, 0), np.float32), np.zeros((0, 2), np.float32), result, uses_bfloat16)
    assert (result == 0).all()
    result[:] = np.nan
    gemm(np.zeros((6, 1), np.float32), np.ones((1, 2), np.float32), result, uses_bfloat16)
    assert (result == 0).all()
