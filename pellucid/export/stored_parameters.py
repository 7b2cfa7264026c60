"""Parameters as bytes for a web page: float32, float16 or int8, compressed, in base64.

N numbers, R rows. web/src/model/modelFile.ts reads this form.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Literal

import numpy as np

from pellucid.errors import ConfigError, quote
from pellucid.export.quantization import quantize_rows
from pellucid.shapes import Float, UInt
from pellucid.viewer.schema import PageStruct

Precision = Literal["float32", "float16", "int8"]
"""Number format of stored parameters."""

MAX_FLOAT16 = float(np.finfo(np.float16).max)
"""Greatest number that float16 holds."""


class StoredArray(PageStruct, frozen=True, kw_only=True):
    """Name, shape and number format of one array of parameters."""

    name: str
    shape: tuple[int, ...]
    kind: Precision


class StoredParameters(PageStruct, frozen=True, kw_only=True):
    """Parameters of a network."""

    arrays: list[StoredArray]
    """Arrays in the order of their bytes."""
    data: str
    """Bytes of all arrays, compressed with raw deflate, in base64."""


def store_parameters(arrays: Mapping[str, Float[np.ndarray, "..."]], precision: Precision) -> StoredParameters:
    """Return parameters in a number format.

    Vectors, such as biases, are always stored as float32. The other arrays are matrices, whose first axis is that of
    the rows.

    Args:
        arrays: Parameters by name.
        precision: Number format of the matrices.

    Raises:
        ConfigError: A number is infinite, NaN, or too large for float16.
    """
    stored, parts = list[StoredArray](), list[bytes]()
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise ConfigError(f"{quote(name)} has a number that is infinite or NaN: train the model again")
        kind = precision if values.ndim > 1 else "float32"
        stored.append(StoredArray(name=name, shape=values.shape, kind=kind))
        parts.append(_encode(name, values.astype(np.float32), kind))
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    compressed = compressor.compress(b"".join(parts)) + compressor.flush()
    return StoredParameters(arrays=stored, data=base64.b64encode(compressed).decode("ascii"))


def _encode(name: str, values: Float[np.ndarray, "..."], kind: Precision) -> bytes:
    """Return the bytes of an array."""
    match kind:
        case "float32":
            return _byte_planes(values.ravel().view(np.uint32), 4)
        case "float16":
            if np.abs(values).max(initial=0) > MAX_FLOAT16:
                raise ConfigError(f"{quote(name)} has a number that is too large for float16: use --weights float32")
            return _byte_planes(values.astype(np.float16).ravel().view(np.uint16), 2)
        case "int8":
            quantized = quantize_rows(values.reshape(len(values), -1))
            return _byte_planes(quantized.scales.view(np.uint32), 4) + quantized.values.tobytes()


def _byte_planes(bits: UInt[np.ndarray, " N"], size: int) -> bytes:
    """Return the bytes of numbers, first those with the sign of all numbers, then the next ones.

    Bytes of one plane have similar values, which compress better.
    """
    planes = bits.astype(bits.dtype.newbyteorder(">")).view(np.uint8).reshape(-1, size)
    return np.ascontiguousarray(planes.T).tobytes()
