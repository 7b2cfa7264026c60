"""Measurements around a case: time and memory of a step as the source gets longer, the batch or the network larger."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from pellucid.bench.cases import DIGITS, Asked
from pellucid.bench.child import measured_briefly
from pellucid.bench.results import Measured

Varied = Literal["length", "batch", "hidden"]
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Of each size, the others staying as they are."""
TITLES: dict[Varied, str] = {"length": "source length", "batch": "batch size", "hidden": "hidden units"}


class Point(NamedTuple):
    """One measurement of a curve."""

    varied: Varied
    value: int
    """Source positions of a mean row, rows, or hidden units."""
    measured: Measured


def points(asked: Asked) -> Iterator[Point]:
    """All curves around a case, one measurement after the other; the case itself is measured once."""
    middle = measured_briefly(asked)
    for varied in TITLES:
        for factor in FACTORS:
            result = middle if factor == 1.0 else measured_briefly(varied_by(asked, varied, factor))
            yield Point(varied, _value(result, varied), result)


def varied_by(asked: Asked, varied: Varied, factor: float) -> Asked:
    """The same with one size changed. Longer numbers are longer on both sides; attention's units go with the hidden."""
    case = asked.case
    match varied:
        case "length":
            return msgspec.structs.replace(asked, digits=max(1, round(DIGITS * factor)))
        case "batch":
            changed = msgspec.structs.replace(case, batch=max(1, round(case.batch * factor)))
        case "hidden":
            # Two directions share the units: an even number.
            hidden, units = 2 * max(1, round(case.hidden * factor / 2)), max(1, round(case.units * factor))
            changed = msgspec.structs.replace(case, hidden=hidden, units=units)
    return msgspec.structs.replace(asked, case=changed)


def _value(result: Measured, varied: Varied) -> int:
    """The size that was varied, as it came out."""
    shape = result.shape
    return {"length": round(shape.positions / shape.rows), "batch": shape.rows, "hidden": shape.hidden}[varied]
