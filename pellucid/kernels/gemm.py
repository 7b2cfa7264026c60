"""Products of matrices inside compiled kernels: C = A B, C += A B, C = A Bᵀ and C = Aᵀ B, in single precision.

n rows, K columns of the left, N columns of the right. NumPy's own `dot` in a kernel goes to SciPy's OpenBLAS. PyTorch
carries a library of its own (Intel's MKL on most processors), which is half as fast again at 64 rows and twice at 32,
so that one is called where it can be found, through the Fortran interface that both have.
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
from pellucid.kernels.compiling import in_place

SYMBOL = "pellucid_sgemm"
"""The name under which compiled code, kept on the disk, finds the product in whatever process it is loaded into."""

PLAIN, TURNED = ord("N"), ord("T")

Rows = Float[np.ndarray, "n K"]
Across = Float[np.ndarray, "K N"]
Result = Float[np.ndarray, "n N"]


@cache
def _torch_library() -> ctypes.CDLL | None:
    """PyTorch's library, if PyTorch is loaded and lends its product."""
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
    """Where the product stands in memory."""
    library = _torch_library()
    if library is not None:
        return ctypes.cast(library.sgemm_, ctypes.c_void_p).value or 0
    address: int = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    return address


binding.add_symbol(SYMBOL, _address())


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Within, a product runs in the thread that asks for it; afterwards the setting of this thread is as it was."""
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
    """The libraries of products in this process."""
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
    """Call SGEMM on rows that stand one after the other, each operand a pointer and the distance between its rows.

    Fortran counts columns where C counts rows: C = A B is asked for as Cᵀ = Bᵀ Aᵀ. After the three sizes
    stands a letter for the left and one for the right: TURNED where the operand is to be transposed, else PLAIN.
    """
    operand = types.Tuple((types.voidptr, types.int64))
    signature = types.void(types.UniTuple(types.int64, 5), operand, operand, types.float32, operand)
    integer, number, letter = ir.IntType(32), ir.FloatType(), ir.IntType(8)
    pointer = letter.as_pointer()

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:  # noqa: ANN401
        def stored(value: Any) -> Any:  # noqa: ANN401
            slot = cgutils.alloca_once(builder, value.type)
            builder.store(value, slot)
            return builder.bitcast(slot, pointer)

        def counted(value: Any) -> Any:  # noqa: ANN401
            return stored(builder.trunc(value, integer))

        n, k, columns = (counted(builder.extract_value(arguments[0], at)) for at in range(3))
        places = [builder.extract_value(arguments[at], 0) for at in (1, 2, 4)]
        strides = [counted(builder.extract_value(arguments[at], 1)) for at in (1, 2, 4)]
        turned = [stored(builder.trunc(builder.extract_value(arguments[0], at), letter)) for at in (4, 3)]
        one = stored(ir.Constant(number, 1.0))
        given = [*turned, columns, n, k, one, places[1], strides[1], places[0], strides[0]]
        kind = ir.FunctionType(ir.VoidType(), [pointer] * 13)
        function = cgutils.get_or_insert_function(builder.module, kind, SYMBOL)
        builder.call(function, [*given, stored(arguments[3]), places[2], strides[2]])
        return context.get_dummy_value()

    return signature, generate


@in_place
def product(left: Rows, right: Across, result: Result) -> None:
    """Result = left right. Within a row, numbers stand side by side; rows may stand apart."""
    _multiply(left, right, (PLAIN, PLAIN), ZERO, result)


@in_place
def add_product(left: Rows, right: Across, result: Result) -> None:
    """Result += left right."""
    _multiply(left, right, (PLAIN, PLAIN), ONE, result)


@in_place
def product_of_rows(left: Rows, right: Float[np.ndarray, "N K"], result: Result) -> None:
    """Result = left rightᵀ."""
    _multiply(left, right, (PLAIN, TURNED), ZERO, result)


@in_place
def product_over(left: Float[np.ndarray, "K n"], right: Across, result: Result) -> None:
    """Result = leftᵀ right."""
    _multiply(left, right, (TURNED, PLAIN), ZERO, result)


@in_place
def _multiply(
    left: Float[np.ndarray, "l L"],
    right: Float[np.ndarray, "r R"],
    turned: tuple[int, int],
    beta: np.float32,
    result: Result,
) -> None:
    """Result = beta result + the product, either operand turned or not; an empty inner size leaves beta result."""
    n, columns = result.shape
    k = left.shape[0] if turned[0] == TURNED else left.shape[1]
    if n == 0 or columns == 0:
        return
    if k == 0:
        result *= beta
        return
    size = np.int64(left.itemsize)
    _sgemm(
        (n, k, columns, turned[0], turned[1]),
        (left.ctypes, max(left.strides[0] // size, left.shape[1])),
        (right.ctypes, max(right.strides[0] // size, right.shape[1])),
        beta,
        (result.ctypes, max(result.strides[0] // size, columns)),
    )
