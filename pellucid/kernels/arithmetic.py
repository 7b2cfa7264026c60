"""Arithmetic of kernels in float32: exp, tanh and σ, vectors, softmax, and matrix products.

exp, tanh and σ are written so that compilers vectorize loops of them. Constants are float32 one by one: a Python float
or integer among them would make a whole loop float64. Numba computes with integers of 32 bits in 64 bits, so every
intermediate integer is converted back: otherwise half as many fit into a vector, and the conversion of 64 bits to
float32 is not vectorized by most processors.

Matrix products: C = A B, C += A B, C = A Bᵀ and C = Aᵀ B, of n rows, K columns of the left and N columns of the right.
An operand that may be transposed is l × L (left) or r × R (right). U rows of a matrix, S its columns. NumPy's `dot` in
a kernel calls SciPy's OpenBLAS. PyTorch has its own library (Intel's MKL on most processors), which is 1.5 times as
fast at 64 rows and twice at 32. It is called if it is present, through the Fortran interface that both have. On
processors of AMD with AVX-512, and for bfloat16, the products are those of microkernel.py.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

from pellucid.kernels.compilation import njit_no_refcount
from pellucid.kernels.microkernel import HAS_BFLOAT16, HAS_FLOAT32, add_product_bfloat16, add_product_float32
from pellucid.kernels.runtime import torch_library
from pellucid.shapes import Float

Flat = Float[np.ndarray, " N"]

ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)

PER_LN2 = np.float32(1.4426950408889634)
LN2 = np.float32(0.6931471805599453)
# Numbers above -200 are rounded to the nearest integer by adding 200.5, truncating and subtracting 200.
ROUNDING_INTEGER = 200
ROUNDING_OFFSET = np.float32(200.5)
EXPONENT_LIMIT = np.float32(87)
# Taylor coefficients 1/n! of e^r, n = 2 to 7.
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
    """Return e^x = 2^n e^r with n = round(x / ln 2), |r| ≤ ln 2 / 2 and Taylor's series to r⁷.

    x is clamped to ±87, so the result is never 0 or infinite; e^NaN is NaN.

    Args:
        x: Exponent.
    """
    clamped = clamp(x, EXPONENT_LIMIT)
    n = np.int32(np.int32(clamped * PER_LN2 + ROUNDING_OFFSET) - np.int32(ROUNDING_INTEGER))
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
    """Return tanh x, a quotient of polynomials, with an absolute error of about 1e-7.

    Coefficients: Eigen, MathFunctionsImpl.h.

    Args:
        x: Argument of the function; tanh NaN is NaN.
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


NEGATIVE, POSITIVE, SIGN = np.int32(-(2**31)), np.int32(2**31 - 1), np.int32(31)


@njit_no_refcount
def _ordered_bits(bits: np.int32) -> np.int32:
    """Return the bits of a float32 as an integer of the same order; applied again, it returns the bits."""
    return np.int32(bits ^ np.int32(np.int32(bits >> SIGN) & POSITIVE))


@njit_no_refcount
def max_value(values: Flat) -> np.float32:
    """Return the greatest value by the order of the bits.

    In that order a NaN without a sign bit is greater than all numbers, and one with a sign bit less. A comparison of
    integers fills the vectors; one of floats would need a test for NaN at every step.

    Args:
        values: Numbers; NaN is returned for none.
    """
    bits = values.view(np.int32)
    max_bits = NEGATIVE
    for s in range(bits.shape[0]):
        max_bits = max(max_bits, _ordered_bits(bits[s]))
    return np.int32(_ordered_bits(max_bits)).view(np.float32)


@njit_no_refcount
def softmax_(values: Flat) -> None:
    """Replace every value e by α = exp(e − max e) / Σ exp(e − max e).

    Args:
        values: Energies, replaced in place. A NaN, +∞, or −∞ everywhere makes all α NaN.
    """
    maximum = max_value(values)
    for s in range(values.shape[0]):
        values[s] = exp(values[s] - maximum)
    total = ZERO
    for s in range(values.shape[0]):
        total += values[s]
    scale = ONE / total
    for s in range(values.shape[0]):
        values[s] *= scale


@njit_no_refcount
def softmax_backward_(weights: Flat, gradients: Flat) -> None:
    """Replace every dα by de = α (dα − Σ α dα).

    Args:
        weights: α.
        gradients: dα, replaced in place.
    """
    mean = ZERO
    for s in range(weights.shape[0]):
        mean += weights[s] * gradients[s]
    for s in range(weights.shape[0]):
        gradients[s] = weights[s] * (gradients[s] - mean)


@njit_no_refcount
def gemv_t_add(matrix: Float[np.ndarray, "U S"], vector: Flat, sums: Flat) -> None:
    """Compute sums += matrixᵀ vector, over the first columns of the matrix: sums_s += Σ_u matrix_us vector_u.

    Args:
        matrix: Matrix of U rows.
        vector: U numbers.
        sums: At most S numbers, changed in place; later columns of the matrix are not read.
    """
    for unit in range(matrix.shape[0]):
        values, weight = matrix[unit], vector[unit]
        for s in range(sums.shape[0]):
            sums[s] += weight * values[s]


@njit_no_refcount
def gemv(matrix: Float[np.ndarray, "U S"], vector: Flat, results: Flat) -> None:
    """Compute results = matrix vector, over the first columns of the matrix: results_u = Σ_s matrix_us vector_s.

    Args:
        matrix: Matrix of U rows.
        vector: At most S numbers; later columns of the matrix are not read.
        results: Output, U numbers.
    """
    for unit in range(matrix.shape[0]):
        values = matrix[unit]
        total = ZERO
        for s in range(vector.shape[0]):
            total += values[s] * vector[s]
        results[unit] = total


SYMBOL = "pellucid_sgemm"
"""Name under which compiled code, loaded from the disk, finds the function in its process."""

NOT_TRANSPOSED, TRANSPOSED = ord("N"), ord("T")

LeftMatrix = Float[np.ndarray, "n K"]
RightMatrix = Float[np.ndarray, "K N"]
ProductMatrix = Float[np.ndarray, "n N"]


def _address() -> int:
    """Return the address of SGEMM."""
    library = torch_library()
    if library is not None:
        return ctypes.cast(library.sgemm_, ctypes.c_void_p).value or 0
    address: int = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    return address


binding.add_symbol(SYMBOL, _address())


@intrinsic  # type: ignore[untyped-decorator]
def _sgemm(
    typing: Any,  # noqa: ANN401
    sizes: Any,  # noqa: ANN401
    left: Any,  # noqa: ANN401
    right: Any,  # noqa: ANN401
    beta: Any,  # noqa: ANN401
    result: Any,  # noqa: ANN401
) -> tuple[Any, Callable[..., Any]]:
    """Call SGEMM. Each operand is a pointer and the distance between its rows.

    Fortran stores columns where C stores rows, so C = A B is computed as Cᵀ = Bᵀ Aᵀ. `sizes` are n, K and columns, then
    a letter for the left and one for the right operand: TRANSPOSED or NOT_TRANSPOSED.
    """
    operand = types.Tuple((types.voidptr, types.int64))
    signature = types.void(types.UniTuple(types.int64, 5), operand, operand, types.float32, operand)
    integer = ir.IntType(32)
    number = ir.FloatType()
    letter = ir.IntType(8)
    pointer = letter.as_pointer()

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:  # noqa: ANN401
        """Generate the call.

        Args:
            context: Numba's target context.
            builder: LLVM's instruction builder.
            _: Signature of the call.
            arguments: Values of the five arguments.
        """

        def stored(value: Any) -> Any:  # noqa: ANN401
            """Return a pointer to the value, stored on the stack.

            Args:
                value: An LLVM value.
            """
            slot = cgutils.alloca_once(builder, value.type)
            builder.store(value, slot)
            return builder.bitcast(slot, pointer)

        def counted(value: Any) -> Any:  # noqa: ANN401
            """Return a pointer to the integer, truncated to 32 bits and stored on the stack.

            Args:
                value: An LLVM integer of 64 bits.
            """
            return stored(builder.trunc(value, integer))

        n, k, columns = (counted(builder.extract_value(arguments[0], index)) for index in range(3))
        pointers = [builder.extract_value(arguments[index], 0) for index in (1, 2, 4)]
        strides = [counted(builder.extract_value(arguments[index], 1)) for index in (1, 2, 4)]
        transposed = [stored(builder.trunc(builder.extract_value(arguments[0], index), letter)) for index in (4, 3)]
        one = stored(ir.Constant(number, 1.0))
        prefix = [*transposed, columns, n, k, one, pointers[1], strides[1], pointers[0], strides[0]]
        kind = ir.FunctionType(ir.VoidType(), [pointer] * 13)
        function = cgutils.get_or_insert_function(builder.module, kind, SYMBOL)
        builder.call(function, [*prefix, stored(arguments[3]), pointers[2], strides[2]])
        return context.get_dummy_value()

    return signature, generate


@njit_no_refcount
def gemm(left: LeftMatrix, right: RightMatrix, result: ProductMatrix, bfloat16: bool = False) -> None:
    """Compute result = left right.

    In each operand of this and the other products, the numbers of a row are contiguous; rows may be apart. None of the
    operands overlaps the result.

    Args:
        left: n rows and K columns.
        right: K rows and N columns.
        result: Output, n rows and N columns.
        bfloat16: Round the operands to bfloat16 and add the products in float32; default False. It is ignored on a
            processor without the instructions.
    """
    _multiply(left, right, (False, False), ZERO, result, bfloat16)


@njit_no_refcount
def gemm_add(left: LeftMatrix, right: RightMatrix, result: ProductMatrix, bfloat16: bool = False) -> None:
    """Compute result += left right.

    Args:
        left: n rows and K columns.
        right: K rows and N columns.
        result: n rows and N columns, changed in place.
        bfloat16: As in `gemm`.
    """
    _multiply(left, right, (False, False), ONE, result, bfloat16)


@njit_no_refcount
def gemm_nt(left: LeftMatrix, right: Float[np.ndarray, "N K"], result: ProductMatrix, bfloat16: bool = False) -> None:
    """Compute result = left rightᵀ.

    Args:
        left: n rows and K columns.
        right: N rows and K columns, transposed in the product.
        result: Output, n rows and N columns.
        bfloat16: As in `gemm`.
    """
    _multiply(left, right, (False, True), ZERO, result, bfloat16)


@njit_no_refcount
def gemm_tn(left: Float[np.ndarray, "K n"], right: RightMatrix, result: ProductMatrix, bfloat16: bool = False) -> None:
    """Compute result = leftᵀ right.

    Args:
        left: K rows and n columns, transposed in the product.
        right: K rows and N columns.
        result: Output, n rows and N columns.
        bfloat16: As in `gemm`.
    """
    _multiply(left, right, (True, False), ZERO, result, bfloat16)


@njit_no_refcount
def _multiply(
    left: Float[np.ndarray, "l L"],
    right: Float[np.ndarray, "r R"],
    transposed: tuple[bool, bool],
    beta: np.float32,
    result: ProductMatrix,
    bfloat16: bool,
) -> None:
    """Compute result = beta result + the product of the operands, each transposed if `transposed` says so."""
    n, columns = result.shape
    k = left.shape[0] if transposed[0] else left.shape[1]
    if n == 0 or columns == 0:
        return
    uses_bfloat16 = HAS_BFLOAT16 and bfloat16
    if beta == ZERO and (k == 0 or uses_bfloat16 or HAS_FLOAT32):
        result[:] = ZERO
    if k == 0:
        return
    if uses_bfloat16:
        add_product_bfloat16(left, right, transposed, result)
        return
    if HAS_FLOAT32:
        add_product_float32(left, right, transposed, result)
        return
    size = np.int64(left.itemsize)
    transpose_flags = TRANSPOSED if transposed[0] else NOT_TRANSPOSED, TRANSPOSED if transposed[1] else NOT_TRANSPOSED
    _sgemm(
        (n, k, columns, transpose_flags[0], transpose_flags[1]),
        (left.ctypes, max(left.strides[0] // size, left.shape[1])),
        (right.ctypes, max(right.strides[0] // size, right.shape[1])),
        beta,
        (result.ctypes, max(result.strides[0] // size, columns)),
    )


def warm_up() -> None:
    """Compile the products that Python calls, by running the smallest examples."""
    one = np.ones((1, 1), np.float32)
    for product in (gemm, gemm_nt, gemm_tn):
        product(one, one, one.copy(), False)
