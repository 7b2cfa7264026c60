"""Types of arrays with their shapes: Float[np.ndarray, "B S"] is an array of floating-point numbers of two dimensions.

They are those of jaxtyping in a process that has imported it, as the tests do, which check shapes. Elsewhere they are
`ShapedArray`, with the same attributes, by which public functions check arguments: jaxtyping takes as long to import as
NumPy.
"""

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

INTEGERS = ("int2", "int4", "int8", "int16", "int32", "int64")
UNSIGNED = tuple(f"u{name}" for name in INTEGERS)
FLOATS = ("float16", "bfloat16", "float32", "float64")


class _ShapedArrayType(type):
    """Class of the types of arrays, for `isinstance`."""

    array_type: Any

    def __instancecheck__(cls, instance: object) -> bool:
        """Return whether a value is such an array, whatever its shape and its numbers are."""
        return cls.array_type is Any or isinstance(instance, cls.array_type)


class ShapedArray(metaclass=_ShapedArrayType):
    """Base of the types of arrays, with the attributes of jaxtyping's."""

    array_type: Any = Any
    """Class of the arrays, such as np.ndarray."""
    dim_str: str = ""
    """Names of the dimensions, separated by spaces."""
    dtypes: tuple[str, ...] = ()
    """Names of the types of numbers."""
    index_variadic: int | None = None
    """Index of the dimension that stands for several; None without one."""


@cache
def shaped_array(name: str, dtypes: tuple[str, ...], array_type: Any, dim_str: str) -> type[ShapedArray]:  # noqa: ANN401
    """Return the type of arrays of some numbers and dimensions.

    Args:
        name: Name of the kind of numbers, such as Float.
        dtypes: Names of the types of these numbers.
        array_type: Class of the arrays.
        dim_str: Names of the dimensions, separated by spaces.
    """
    dims = dim_str.split()
    variadic = next((index for index, dim in enumerate(dims) if dim.startswith(("*", "..."))), None)
    fields = {"array_type": array_type, "dim_str": " ".join(dims), "dtypes": dtypes, "index_variadic": variadic}
    return _ShapedArrayType(f"{name}[{getattr(array_type, '__name__', 'Any')}, '{dim_str}']", (ShapedArray,), fields)


if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Int, Integer, UInt, UInt32
else:

    class _NumberKind:
        """Kind of numbers: `_NumberKind(...)[kind, shape]` is the type of arrays of them."""

        def __init__(self, name: str, dtypes: tuple[str, ...]) -> None:
            """Store the name and the types of the numbers."""
            self.name, self.dtypes = name, dtypes

        def __getitem__(self, parameters: tuple[Any, str]) -> type[ShapedArray]:
            """Return the type of the arrays."""
            return shaped_array(self.name, self.dtypes, *parameters)

    Bool = _NumberKind("Bool", ("bool",))
    Float = _NumberKind("Float", FLOATS)
    Int = _NumberKind("Int", INTEGERS)
    Integer = _NumberKind("Integer", INTEGERS + UNSIGNED)
    UInt = _NumberKind("UInt", UNSIGNED)
    UInt32 = _NumberKind("UInt32", ("uint32",))

__all__ = ["Bool", "Float", "Int", "Integer", "UInt", "UInt32"]
