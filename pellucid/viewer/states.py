"""States of a model: PCA projections, nearest neighbors, and details of one example."""

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
from pellucid.inspection.attribution import attribute
from pellucid.inspection.state_space import PrincipalPlane, pca
from pellucid.inspection.states import trace_states
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
"""Maximum number of points of a projection."""
MAX_EXAMPLES = 500
"""Maximum number of examples whose states are projected."""
CONTEXT_SYMBOLS = 4
"""Number of context symbols on each side of a point."""
NUM_NEIGHBORS = 20
"""Number of neighbors of a state in a saved page."""


class FittedProjection(NamedTuple):
    """Fitted PCA of one side, with the normalized vectors of its points."""

    plane: PrincipalPlane
    vectors: Float[np.ndarray, "n D"]
    points: list[StatePoint]


class FittedProjections(NamedTuple):
    """Fitted PCA of both sides."""

    encoder: FittedProjection
    decoder: FittedProjection


class SymbolPosition(NamedTuple):
    """Symbol of an example: index of the example, and position in its sequence."""

    number: int
    position: int


def project_states(
    predictor: Predictor, traces: Sequence[Trace], places: dict[int, int]
) -> tuple[StateSpace, FittedProjections] | None:
    """Project the states of the best outputs of a file on their first two principal components.

    Args:
        predictor: Model of the outputs.
        traces: Best output of each example.
        places: Places of the shown examples by their index in the file; these are preferred.

    Returns:
        Projected states and fitted projections, or None if there are no states.
    """
    usable = [number for number, trace in enumerate(traces) if trace.target and trace.origin == "search"]
    shown = [number for number in usable if number in places]
    rest = [number for number in usable if number not in places]
    picked = [*sample_evenly(shown, MAX_EXAMPLES), *sample_evenly(rest, MAX_EXAMPLES - len(shown))]
    if not picked:
        return None
    own = [traces[number] for number in picked]
    found = trace_states(predictor, own)
    items = [places.get(number, -1) for number in picked]
    read, written = symbol_separator(predictor, "encoder"), symbol_separator(predictor, "decoder")
    encoder, one = _project_side([each.source for each in own], [each.encoder for each in found], items, read)
    decoder, other = _project_side([each.target for each in own], [each.decoder for each in found], items, written)
    return StateSpace(encoder=encoder, decoder=decoder), FittedProjections(one, other)


def nearest_points(side: FittedProjection, vectors: Float[np.ndarray, "n D"], item: int) -> Float[np.ndarray, "n k"]:
    """Find the nearest points of a projection by cosine similarity.

    A state is no neighbor of itself, nor is any state of the same example at the same position.

    Args:
        side: Fitted projection.
        vectors: States of an example, n × D.
        item: Place of the example.

    Returns:
        Indices of the nearest points, nearest first, then their cosines: n × 2k.
    """
    cosines = _normalize(vectors) @ side.vectors.T
    for at, each in enumerate(side.points):
        if each.example == item and each.position < len(cosines):
            cosines[each.position, at] = -2.0
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(NUM_NEIGHBORS, max(0, len(side.points) - 1))]
    return np.concatenate([order, np.take_along_axis(cosines, order, 1)], axis=1).astype(np.float32)


def _normalize(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
    """Return vectors of unit length."""
    unit: Float[np.ndarray, "n D"] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    return unit


def _project_side(
    sequences: Sequence[Sequence[str]], vectors: Sequence[Float[np.ndarray, "_ D"]], items: Sequence[int], space: str
) -> tuple[StateProjection, FittedProjection]:
    """Fit a PCA on the states of one side and project them."""
    all_placed = [
        SymbolPosition(number, position) for number, own in enumerate(vectors) for position in range(len(own))
    ]
    picked = sample_evenly(range(len(all_placed)), MAX_POINTS)
    joined = np.concatenate(vectors)
    fitted = pca(joined)
    placed = (all_placed[at] for at in picked)
    points = [state_point(sequences[number], position, items[number], space) for number, position in placed]
    first, second = (float(share) for share in fitted.explained)
    cloud = StateProjection(
        coordinates=encode_array(fitted.project(joined[picked])),
        points=points,
        explained_variance_ratio=(first, second),
    )
    return cloud, FittedProjection(fitted, _normalize(joined[picked]), points)


def symbol_separator(predictor: Predictor, side: str) -> str:
    """Return the text between the symbols of one side: empty for characters.

    Args:
        predictor: Model.
        side: "encoder" or "decoder".

    Returns:
        "" or a space.
    """
    tokenizers = predictor.tokenizers
    kind = tokenizers.source.kind if side == "encoder" else tokenizers.target.kind
    features = side == "encoder" and predictor.config.data.features_column
    return "" if kind == "characters" and not features else " "


def state_point(symbols: Sequence[str], position: int, item: int, space: str) -> StatePoint:
    """Return a point: a symbol with its context.

    Args:
        symbols: Symbols of a sequence.
        position: Position of the symbol.
        item: Place of the example.
        space: Separator of symbols.

    Returns:
        Point.
    """
    before = space.join(symbols[max(0, position - CONTEXT_SYMBOLS) : position])
    after = space.join(symbols[position + 1 : position + 1 + CONTEXT_SYMBOLS])
    text = f"{before}‹{symbols[position]}›{after}"
    following = symbols[position + 1] if position + 1 < len(symbols) else ""
    return StatePoint(example=item, context=text, symbol=symbols[position], position=position, next_symbol=following)


MAX_DETAILED_EXAMPLES = 20
"""Number of examples of a saved page with attribution scores and states."""
MAX_OCCLUSION_WEIGHTS = 4_000
"""Maximum number of attention weights of an output with occlusion scores, which decode once per source position."""


def add_states(
    model: ViewedRun,
    listed: Sequence[tuple[PageExample, search.Trace]],
    projections: FittedProjections | None,
    kept: bool,
) -> list[PageExample]:
    """Add the projected states of each example; if `kept`, all details of the first `MAX_DETAILED_EXAMPLES` examples.

    Args:
        model: Run of the examples.
        listed: Examples with their first output.
        projections: Fitted projections; None if the run has no states.
        kept: Whether the page is saved as a file, without a server.

    Returns:
        Examples with states.
    """
    if projections is None:
        return [item for item, _ in listed]
    usable = [trace for _, trace in listed if is_searched(trace)]
    found = iter(inspected.trace_states(model.loaded_predictor, usable))
    items = []
    for place, (item, trace) in enumerate(listed):
        if not is_searched(trace):
            items.append(item)
            continue
        own, small = next(found), trace.attention.size <= MAX_OCCLUSION_WEIGHTS
        whole = kept and place < MAX_DETAILED_EXAMPLES and small
        told = msgspec.structs.replace(
            item.traces[0], states=hidden_states(own, projections, whole, place if whole else None)
        )
        if whole:
            told = msgspec.structs.replace(
                told, attribution=attribution_arrays(attribute(model.loaded_predictor, trace))
            )
        items.append(msgspec.structs.replace(item, traces=[told, *item.traces[1:]]))
    return items


def is_searched(trace: search.Trace) -> bool:
    """Return whether an output was written by the model, symbol by symbol.

    Args:
        trace: Output.

    Returns:
        False for lexicon entries and empty outputs.
    """
    return bool(trace.target) and trace.origin != "lexicon"


def add_requested_details(
    told: PageTrace,
    trace: search.Trace,
    predictor: Predictor,
    projections: FittedProjections | None,
    asked: DecodeRequest,
) -> PageTrace:
    """Add attribution scores, states and gates, as requested.

    Args:
        told: Output.
        trace: Its trace.
        predictor: Model.
        projections: Fitted projections, if there are any.
        asked: Request.

    Returns:
        Output with details.
    """
    if not is_searched(trace):
        return told
    if asked.attribution:
        told = msgspec.structs.replace(told, attribution=attribution_arrays(attribute(predictor, trace)))
    if asked.states or asked.gates:
        (own,) = inspected.trace_states(predictor, [trace], gates=asked.gates)
        told = msgspec.structs.replace(told, states=hidden_states(own, projections, whole=True))
    return told


def hidden_states(
    own: inspected.DecodingStates, projections: FittedProjections | None, whole: bool, place: int | None = None
) -> HiddenStates:
    """Return states with their projections; if not `whole`, the states themselves are omitted.

    Args:
        own: States of one output.
        projections: Fitted projections, if there are any.
        whole: Whether to include the states themselves.
        place: Place of the example, to include its nearest neighbors; None omits them.

    Returns:
        States in the page's schema.
    """
    nothing = np.zeros((0, 0), np.float32)
    return HiddenStates(
        encoder=encode_array(own.encoder if whole else nothing),
        decoder=encode_array(own.decoder if whole else nothing),
        encoder_order=_order_units(own.encoder) if whole else [],
        decoder_order=_order_units(own.decoder) if whole else [],
        gates={name: encode_array(values) for name, values in own.gates.items()},
        encoder_pca=encode_array(projections.encoder.plane.project(own.encoder)) if projections else None,
        decoder_pca=encode_array(projections.decoder.plane.project(own.decoder)) if projections else None,
        encoder_neighbors=encode_array(nearest_points(projections.encoder, own.encoder, place))
        if projections and place is not None
        else None,
        decoder_neighbors=encode_array(nearest_points(projections.decoder, own.decoder, place))
        if projections and place is not None
        else None,
    )


def _order_units(vectors: Float[np.ndarray, "n D"]) -> list[int]:
    """Return the units in the order of their loading on the first principal component."""
    if len(vectors) < 2:
        return list(range(vectors.shape[1]))
    order: list[int] = np.argsort(-pca(vectors).axes[0], kind="stable").tolist()
    return order
