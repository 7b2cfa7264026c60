"""Matrix products inside compiled kernels: C = A B, C += A B, C = A Bᵀ and C = Aᵀ B, in single precision.

n rows, K columns of the left, N columns of the right. NumPy's `dot` in a kernel calls SciPy's OpenBLAS. PyTorch
has its own library (Intel's MKL on most processors), which is 1.5 times as fast at 64 rows and twice at 32. It is
called if it is present, through the Fortran interface that both have.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from threadpoolctl import ThreadpoolController

from pellucid.kernels.arithmetic import ONE, ZERO
from pellucid.kernels.jit import njit_no_refcount

SYMBOL = "pellucid_sgemm"
"""Name under which compiled code, loaded from the disk, finds the function in its process."""

PLAIN, TRANSPOSED = ord("N"), ord("T")

Rows = Float[np.ndarray, "n K"]
Across = Float[np.ndarray, "K N"]
Result = Float[np.ndarray, "n N"]


@cache
def _torch_library() -> ctypes.CDLL | None:
    """Return PyTorch's library, if PyTorch is loaded and the library exports SGEMM."""
    torch = sys.modules.get("torch")
    if torch is None or torch.__file__ is None:
        return None
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll"):
        try:
            library = ctypes.CDLL(str(folder / name))
            _ = library.sgemm_, library.MKL_Set_Num_Threads_Local
        except (OSError, AttributeError):
            continue
        return library
    return None


def _address() -> int:
    """Return the address of SGEMM."""
    library = _torch_library()
    if library is not None:
        return ctypes.cast(library.sgemm_, ctypes.c_void_p).value or 0
    address: int = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    return address


binding.add_symbol(SYMBOL, _address())


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Compute products within the block in the calling thread alone, and restore the thread's setting afterwards."""
    library = _torch_library()
    if library is None:
        with _blas().limit(limits=1):
            yield
        return
    former = library.MKL_Set_Num_Threads_Local(1)
    try:
        yield
    finally:
        library.MKL_Set_Num_Threads_Local(former)


@cache
def _blas() -> ThreadpoolController:
    """Return the BLAS libraries of this process."""
    return ThreadpoolController().select(user_api="blas")


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
    a letter for the left and one for the right operand: TRANSPOSED or PLAIN.
    """
    operand = types.Tuple((types.voidptr, types.int64))
    signature = types.void(types.UniTuple(types.int64, 5), operand, operand, types.float32, operand)
    integer, number, letter = ir.IntType(32), ir.FloatType(), ir.IntType(8)
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
def gemm(left: Rows, right: Across, result: Result) -> None:
    """Compute result = left right. The numbers of a row are contiguous; rows may be apart.

    Args:
        left: Left operand.
        right: Right operand.
        result: Output.
    """
    _multiply(left, right, (PLAIN, PLAIN), ZERO, result)


@njit_no_refcount
def gemm_add(left: Rows, right: Across, result: Result) -> None:
    """Compute result += left right.

    Args:
        left: Left operand.
        right: Right operand.
        result: Sum, changed in place.
    """
    _multiply(left, right, (PLAIN, PLAIN), ONE, result)


@njit_no_refcount
def gemm_nt(left: Rows, right: Float[np.ndarray, "N K"], result: Result) -> None:
    """Compute result = left rightᵀ.

    Args:
        left: Left operand.
        right: Right operand, transposed in the product.
        result: Output.
    """
    _multiply(left, right, (PLAIN, TRANSPOSED), ZERO, result)


@njit_no_refcount
def gemm_tn(left: Float[np.ndarray, "K n"], right: Across, result: Result) -> None:
    """Compute result = leftᵀ right.

    Args:
        left: Left operand, transposed in the product.
        right: Right operand.
        result: Output.
    """
    _multiply(left, right, (TRANSPOSED, PLAIN), ZERO, result)


@njit_no_refcount
def _multiply(
    left: Float[np.ndarray, "l L"],
    right: Float[np.ndarray, "r R"],
    transposed: tuple[int, int],
    beta: np.float32,
    result: Result,
) -> None:
    """Compute result = beta result + the product of the operands, each transposed if `transposed` says so."""
    n, columns = result.shape
    k = left.shape[0] if transposed[0] == TRANSPOSED else left.shape[1]
    if n == 0 or columns == 0:
        return
    if k == 0:
        result *= beta
        return
    size = np.int64(left.itemsize)
    _sgemm(
        (n, k, columns, transposed[0], transposed[1]),
        (left.ctypes, max(left.strides[0] // size, left.shape[1])),
        (right.ctypes, max(right.strides[0] // size, right.shape[1])),
        beta,
        (result.ctypes, max(result.strides[0] // size, columns)),
    )
