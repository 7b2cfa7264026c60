"""How well attention agrees with a known alignment.

B examples, T target positions, S source positions.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Spans(NamedTuple):
    """The source positions first … stop − 1 that each written symbol comes from, where that is known."""

    first: Int[np.ndarray, "B T"]
    stop: Int[np.ndarray, "B T"]
    known: Bool[np.ndarray, "B T"]


class Agreement(NamedTuple):
    """Attention against the spans, over all symbols whose span is known; both are shares of 1."""

    error: float
    """Symbols whose greatest weight lies outside their span: the alignment error rate of Och & Ney 2003 (section 6) for
    one link a symbol, where every position of the span is possible and none is sure."""
    mass: float
    """Mean weight inside the span."""


def agreement(weights: Float[np.ndarray, "B T S"], spans: Spans) -> Agreement:
    """Compare each symbol's weights with its span. `ValueError` where no span is known."""
    if not spans.known.any():
        raise ValueError("no symbol's span is known")
    peak = weights.argmax(axis=2)
    outside = (peak < spans.first) | (peak >= spans.stop)
    sums = np.concatenate([np.zeros((*weights.shape[:2], 1)), weights.cumsum(axis=2, dtype=np.float64)], axis=2)
    first, stop = (np.clip(ends, 0, weights.shape[2])[:, :, None] for ends in (spans.first, spans.stop))
    mass = (np.take_along_axis(sums, stop, 2) - np.take_along_axis(sums, first, 2))[:, :, 0]
    return Agreement(float(outside[spans.known].mean()), float(mass[spans.known].mean()))
