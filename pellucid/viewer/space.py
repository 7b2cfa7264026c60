"""The states of many examples in the plane of their two greatest principal components.

n points, D a state's size.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pellucid.inspection.plane import Plane, plane
from pellucid.inspection.states import States, states
from pellucid.search.trace import Trace
from pellucid.search.transducer import Transducer
from pellucid.viewer.blocks import block
from pellucid.viewer.choosing import evenly
from pellucid.viewer.contents import Cloud, Point, Space

POINTS = 2000
"""Of a cloud, at most."""
SOURCES = 500
"""Examples whose states are looked at, at most."""
AROUND = 4
"""Symbols shown on each side of a point's own."""


class Planes(NamedTuple):
    """The planes of both clouds."""

    encoder: Plane
    decoder: Plane


class Placed(NamedTuple):
    """A symbol in its sequence: the example's number, and where the symbol stands."""

    number: int
    position: int


def seen(transducer: Transducer, traces: Sequence[Trace], places: dict[int, int]) -> tuple[Space, Planes] | None:
    """The clouds of the best outputs of a file; None where there is nothing to see.

    `places` tells of an example's number its place among those shown; these come first.
    """
    usable = [number for number, trace in enumerate(traces) if trace.target and trace.origin == "search"]
    shown = [number for number in usable if number in places]
    rest = [number for number in usable if number not in places]
    picked = [*evenly(shown, SOURCES), *evenly(rest, SOURCES - len(shown))]
    if not picked:
        return None
    own = [traces[number] for number in picked]
    found = states(transducer, own)
    encoder, one = _cloud(own, found, "encoder", [places.get(number, -1) for number in picked])
    decoder, other = _cloud(own, found, "decoder", [places.get(number, -1) for number in picked])
    return Space(encoder=encoder, decoder=decoder), Planes(one, other)


def _cloud(traces: Sequence[Trace], found: Sequence[States], side: str, shown: Sequence[int]) -> tuple[Cloud, Plane]:
    """One side's states."""
    vectors: list[Float[np.ndarray, "n D"]] = [each.encoder if side == "encoder" else each.decoder for each in found]
    all_placed = [Placed(number, position) for number, own in enumerate(vectors) for position in range(len(own))]
    picked = evenly(range(len(all_placed)), POINTS)
    joined = np.concatenate(vectors)
    fitted = plane(joined)
    points = []
    for at in picked:
        number, position = all_placed[at]
        symbols = traces[number].source if side == "encoder" else traces[number].target
        points.append(point(symbols, position, shown[number]))
    first, second = (float(share) for share in fitted.explained)
    cloud = Cloud(plane=block(fitted.project(joined[picked])), points=points, explained=(first, second))
    return cloud, fitted


def point(symbols: Sequence[str], position: int, item: int) -> Point:
    """A symbol with those around it."""
    between = "" if all(len(symbol) == 1 for symbol in symbols[:-1]) else " "
    before = between.join(symbols[max(0, position - AROUND) : position])
    after = between.join(symbols[position + 1 : position + 1 + AROUND])
    return Point(item=item, text=f"{before}‹{symbols[position]}›{after}", symbol=symbols[position], position=position)
