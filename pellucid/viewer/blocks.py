"""Arrays as the page reads them, and numbers that JSON can hold."""

import base64
import math

import numpy as np
from jaxtyping import Float

from pellucid.viewer.contents import Block

LEAST = -1e9
"""Stands for −∞, which JSON does not know."""


def block(values: Float[np.ndarray, "..."]) -> Block:
    """Numbers in rows: little-endian float32 in base64; NaN becomes 0, and what is not finite the greatest there is."""
    plain = np.nan_to_num(np.asarray(values, np.float32)).astype("<f4")
    return Block(shape=list(plain.shape), data=base64.b64encode(plain.tobytes()).decode("ascii"))


def unblocked(given: Block) -> Float[np.ndarray, "..."]:
    """The numbers of a block."""
    return np.frombuffer(base64.b64decode(given.data), "<f4").reshape(given.shape)


def plain(value: float) -> float:
    """A number that JSON can hold."""
    return value if math.isfinite(value) else (LEAST if value < 0 else 0.0)
