"""Ranges and labels of the axes of charts."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pellucid.evaluation.metrics import Accuracy


def percent_range(accuracies: Sequence[Accuracy]) -> tuple[float, float]:
    """Return the range of an axis of accuracies: up to 100, down to the multiple of ten below the lowest interval."""
    lowest = min((group.low for group in accuracies if group.total), default=0.0)
    return min(math.floor(lowest / 10) * 10.0, 80.0), 100.0


def values(log: Sequence[Mapping[str, Any]], event: str, key: str) -> list[tuple[float, float]]:
    """Return (samples, value) of the log's records of one event, where the value is present and finite."""
    found = [(record["samples"], record.get(key)) for record in log if record.get("event") == event]
    return [(float(x), float(y)) for x, y in found if y is not None and math.isfinite(y)]


def round_up(value: float) -> float:
    """Return the next round number at or above a positive value, for the top of an axis."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        factor * power for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if factor * power >= value * (1 - 1e-9)
    )


def short_number(value: float) -> str:
    """Return a number for an axis: 1.5M, 20k, 300, 0.05."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{letter}"
    return f"{value:.4g}"
