"""The states of many examples in the plane of their two greatest principal components.

n points, D a state's size.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pellucid.inspection.plane import Plane, plane
from pellucid.inspection.states import states
from pellucid.search.predictor import Predictor
from pellucid.search.trace import Trace
from pellucid.search.trace_schema import encode_array
from pellucid.viewer.choosing import evenly
from pellucid.viewer.contents import Cloud, Point, Space

POINTS = 2000
"""Of a cloud, at most."""
SOURCES = 500
"""Examples whose states are looked at, at most."""
AROUND = 4
"""Symbols shown on each side of a point's own."""
NEAREST = 20
"""Points kept beside a state of a file."""


class Stored(NamedTuple):
    """One cloud's plane, and the vectors of its points, each of length one."""

    plane: Plane
    vectors: Float[np.ndarray, "n D"]
    points: list[Point]


class Planes(NamedTuple):
    """Both clouds."""

    encoder: Stored
    decoder: Stored


class Placed(NamedTuple):
    """A symbol in its sequence: the example's number, and where the symbol stands."""

    number: int
    position: int


def seen(transducer: Predictor, traces: Sequence[Trace], places: dict[int, int]) -> tuple[Space, Planes] | None:
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
    items = [places.get(number, -1) for number in picked]
    read, written = spacing(transducer, "encoder"), spacing(transducer, "decoder")
    encoder, one = _cloud([each.source for each in own], [each.encoder for each in found], items, read)
    decoder, other = _cloud([each.target for each in own], [each.decoder for each in found], items, written)
    return Space(encoder=encoder, decoder=decoder), Planes(one, other)


def near(side: Stored, vectors: Float[np.ndarray, "n D"], item: int) -> Float[np.ndarray, "n k"]:
    """Of an item's states, the places of the nearest points of a cloud, nearest first, and then their cosines.

    A state is not its own neighbour, nor is any other of the item at the same position.
    """
    cosines = _unit(vectors) @ side.vectors.T
    for at, each in enumerate(side.points):
        if each.item == item and each.position < len(cosines):
            cosines[each.position, at] = -2.0
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(NEAREST, max(0, len(side.points) - 1))]
    return np.concatenate([order, np.take_along_axis(cosines, order, 1)], axis=1).astype(np.float32)


def _unit(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
    """The same directions, of length one."""
    unit: Float[np.ndarray, "n D"] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    return unit


def _cloud(
    sequences: Sequence[Sequence[str]], vectors: Sequence[Float[np.ndarray, "_ D"]], items: Sequence[int], space: str
) -> tuple[Cloud, Stored]:
    """One side's states: of each example its symbols, their vectors and its place among the items."""
    all_placed = [Placed(number, position) for number, own in enumerate(vectors) for position in range(len(own))]
    picked = evenly(range(len(all_placed)), POINTS)
    joined = np.concatenate(vectors)
    fitted = plane(joined)
    placed = (all_placed[at] for at in picked)
    points = [point(sequences[number], position, items[number], space) for number, position in placed]
    first, second = (float(share) for share in fitted.explained)
    cloud = Cloud(plane=encode_array(fitted.project(joined[picked])), points=points, explained=(first, second))
    return cloud, Stored(fitted, _unit(joined[picked]), points)


def spacing(transducer: Predictor, side: str) -> str:
    """What stands between the symbols of a side, for each example alike: nothing where each symbol is a letter."""
    segmenters = transducer.segmenters
    kind = segmenters.source.kind if side == "encoder" else segmenters.target.kind
    features = side == "encoder" and transducer.config.data.features_column
    return "" if kind == "characters" and not features else " "


def point(symbols: Sequence[str], position: int, item: int, space: str) -> Point:
    """A symbol with those around it, and `space` between them."""
    before = space.join(symbols[max(0, position - AROUND) : position])
    after = space.join(symbols[position + 1 : position + 1 + AROUND])
    text = f"{before}‹{symbols[position]}›{after}"
    following = symbols[position + 1] if position + 1 < len(symbols) else ""
    return Point(item=item, text=text, symbol=symbols[position], position=position, following=following)
