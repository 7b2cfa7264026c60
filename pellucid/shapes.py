"""Types of arrays with their shapes: Float[np.ndarray, "B S"] is an array of floating-point numbers of two dimensions.

They are those of jaxtyping in a process that has imported it, as the tests do, which check shapes. Elsewhere they are
the types of the arrays alone, because jaxtyping takes as long to import as NumPy.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Int, Integer, UInt, UInt32
else:

    class _ArrayType:
        """Array with numbers of some type; `_ArrayType[kind, shape]` is the kind."""

        def __class_getitem__(cls, parameters: tuple[Any, str]) -> Any:  # noqa: ANN401 (a type)
            """Return the type of the array, whatever its shape is."""
            return parameters[0]

    Bool = Float = Int = Integer = UInt = UInt32 = _ArrayType

__all__ = ["Bool", "Float", "Int", "Integer", "UInt", "UInt32"]
