"""States of a model: in a plane, and of one example."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from pellucid.decoding import trace as search
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_array
from pellucid.inspection import states as inspected
from pellucid.inspection.attribution import evidence
from pellucid.inspection.state_space import Plane, plane
from pellucid.inspection.states import states
from pellucid.viewer.examples import attribution_arrays
from pellucid.viewer.inputs import ViewedRun, sample_evenly
from pellucid.viewer.schema import (
    DecodeRequest,
    HiddenStates,
    PageExample,
    PageTrace,
    StatePoint,
    StateProjection,
    StateSpace,
)

MAX_POINTS = 2000
"""Of a cloud, at most."""
MAX_EXAMPLES = 500
"""Examples whose states are looked at, at most."""
CONTEXT_SYMBOLS = 4
"""Symbols shown on each side of a point's own."""
NUM_NEIGHBORS = 20
"""Points kept beside a state of a file."""


class FittedProjection(NamedTuple):
    """One cloud's plane, and the vectors of its points, each of length one."""

    plane: Plane
    vectors: Float[np.ndarray, "n D"]
    points: list[StatePoint]


class FittedProjections(NamedTuple):
    """Both clouds."""

    encoder: FittedProjection
    decoder: FittedProjection


class SymbolPosition(NamedTuple):
    """A symbol in its sequence: the example's number, and where the symbol stands."""

    number: int
    position: int


def project_states(
    transducer: Predictor, traces: Sequence[Trace], places: dict[int, int]
) -> tuple[StateSpace, FittedProjections] | None:
    """The clouds of the best outputs of a file; None where there is nothing to see.

    `places` tells of an example's number its place among those shown; these come first.
    """
    usable = [number for number, trace in enumerate(traces) if trace.target and trace.origin == "search"]
    shown = [number for number in usable if number in places]
    rest = [number for number in usable if number not in places]
    picked = [*sample_evenly(shown, MAX_EXAMPLES), *sample_evenly(rest, MAX_EXAMPLES - len(shown))]
    if not picked:
        return None
    own = [traces[number] for number in picked]
    found = states(transducer, own)
    items = [places.get(number, -1) for number in picked]
    read, written = symbol_separator(transducer, "encoder"), symbol_separator(transducer, "decoder")
    encoder, one = _project_side([each.source for each in own], [each.encoder for each in found], items, read)
    decoder, other = _project_side([each.target for each in own], [each.decoder for each in found], items, written)
    return StateSpace(encoder=encoder, decoder=decoder), FittedProjections(one, other)


def nearest_points(side: FittedProjection, vectors: Float[np.ndarray, "n D"], item: int) -> Float[np.ndarray, "n k"]:
    """Of an item's states, the places of the nearest points of a cloud, nearest first, and then their cosines.

    A state is not its own neighbor, nor is any other of the item at the same position.
    """
    cosines = _normalize(vectors) @ side.vectors.T
    for at, each in enumerate(side.points):
        if each.example == item and each.position < len(cosines):
            cosines[each.position, at] = -2.0
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(NUM_NEIGHBORS, max(0, len(side.points) - 1))]
    return np.concatenate([order, np.take_along_axis(cosines, order, 1)], axis=1).astype(np.float32)


def _normalize(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
    """The same directions, of length one."""
    unit: Float[np.ndarray, "n D"] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    return unit


def _project_side(
    sequences: Sequence[Sequence[str]], vectors: Sequence[Float[np.ndarray, "_ D"]], items: Sequence[int], space: str
) -> tuple[StateProjection, FittedProjection]:
    """One side's states: of each example its symbols, their vectors and its place among the items."""
    all_placed = [
        SymbolPosition(number, position) for number, own in enumerate(vectors) for position in range(len(own))
    ]
    picked = sample_evenly(range(len(all_placed)), MAX_POINTS)
    joined = np.concatenate(vectors)
    fitted = plane(joined)
    placed = (all_placed[at] for at in picked)
    points = [state_point(sequences[number], position, items[number], space) for number, position in placed]
    first, second = (float(share) for share in fitted.explained)
    cloud = StateProjection(
        coordinates=encode_array(fitted.project(joined[picked])),
        points=points,
        explained_variance_ratio=(first, second),
    )
    return cloud, FittedProjection(fitted, _normalize(joined[picked]), points)


def symbol_separator(transducer: Predictor, side: str) -> str:
    """What stands between the symbols of a side, for each example alike: nothing where each symbol is a letter."""
    segmenters = transducer.segmenters
    kind = segmenters.source.kind if side == "encoder" else segmenters.target.kind
    features = side == "encoder" and transducer.config.data.features_column
    return "" if kind == "characters" and not features else " "


def state_point(symbols: Sequence[str], position: int, item: int, space: str) -> StatePoint:
    """A symbol with those around it, and `space` between them."""
    before = space.join(symbols[max(0, position - CONTEXT_SYMBOLS) : position])
    after = space.join(symbols[position + 1 : position + 1 + CONTEXT_SYMBOLS])
    text = f"{before}‹{symbols[position]}›{after}"
    following = symbols[position + 1] if position + 1 < len(symbols) else ""
    return StatePoint(example=item, context=text, symbol=symbols[position], position=position, next_symbol=following)


MAX_DETAILED_EXAMPLES = 20
"""Items of a file that hold evidence and all numbers of their states: there is nobody who could be asked for them."""
MAX_OCCLUSION_WEIGHTS = 4_000
"""Weights of attention beyond which an output has none: each source position would be decoded anew."""


def add_states(
    model: ViewedRun, listed: Sequence[tuple[PageExample, search.Trace]], planes: FittedProjections | None, kept: bool
) -> list[PageExample]:
    """Items with where their states lie; where they are `kept` in a file, the first `MAX_DETAILED_EXAMPLES` with all details."""
    if planes is None:
        return [item for item, _ in listed]
    usable = [trace for _, trace in listed if is_searched(trace)]
    found = iter(inspected.states(model.ready, usable))
    items = []
    for place, (item, trace) in enumerate(listed):
        if not is_searched(trace):
            items.append(item)
            continue
        own, small = next(found), trace.attention.size <= MAX_OCCLUSION_WEIGHTS
        whole = kept and place < MAX_DETAILED_EXAMPLES and small
        told = msgspec.structs.replace(
            item.traces[0], states=hidden_states(own, planes, whole, place if whole else None)
        )
        if whole:
            told = msgspec.structs.replace(told, attribution=attribution_arrays(evidence(model.ready, trace)))
        items.append(msgspec.structs.replace(item, traces=[told, *item.traces[1:]]))
    return items


def is_searched(trace: search.Trace) -> bool:
    """Whether a model wrote it, symbol by symbol."""
    return bool(trace.target) and trace.origin != "lexicon"


def add_requested_details(
    told: PageTrace, trace: search.Trace, transducer: Predictor, planes: FittedProjections | None, asked: DecodeRequest
) -> PageTrace:
    """An output with what is asked for: evidence, states, gates."""
    if not is_searched(trace):
        return told
    if asked.attribution:
        told = msgspec.structs.replace(told, attribution=attribution_arrays(evidence(transducer, trace)))
    if asked.states or asked.gates:
        (own,) = inspected.states(transducer, [trace], gates=asked.gates)
        told = msgspec.structs.replace(told, states=hidden_states(own, planes, whole=True))
    return told


def hidden_states(
    own: inspected.States, planes: FittedProjections | None, whole: bool, place: int | None = None
) -> HiddenStates:
    """States with their places in the planes; where they are not told whole, their own blocks are empty.

    Those nearest to them stand beside those of the item at a `place`: a file has nobody who could be asked for them.
    """
    nothing = np.zeros((0, 0), np.float32)
    return HiddenStates(
        encoder=encode_array(own.encoder if whole else nothing),
        decoder=encode_array(own.decoder if whole else nothing),
        encoder_order=_order_units(own.encoder) if whole else [],
        decoder_order=_order_units(own.decoder) if whole else [],
        gates={name: encode_array(values) for name, values in own.gates.items()},
        encoder_pca=encode_array(planes.encoder.plane.project(own.encoder)) if planes else None,
        decoder_pca=encode_array(planes.decoder.plane.project(own.decoder)) if planes else None,
        encoder_neighbors=encode_array(nearest_points(planes.encoder, own.encoder, place))
        if planes and place is not None
        else None,
        decoder_neighbors=encode_array(nearest_points(planes.decoder, own.decoder, place))
        if planes and place is not None
        else None,
    )


def _order_units(vectors: Float[np.ndarray, "n D"]) -> list[int]:
    """The units in the order of their weight in the first principal component."""
    if len(vectors) < 2:
        return list(range(vectors.shape[1]))
    order: list[int] = np.argsort(-plane(vectors).axes[0], kind="stable").tolist()
    return order
