"""States of a model: PCA projections, nearest neighbors, and details of one example."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pellucid.config.settings import reads_features
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_array
from pellucid.inspection.attribution import attribute
from pellucid.inspection.state_space import PrincipalPlane, pca
from pellucid.inspection.states import DecodingStates, trace_states
from pellucid.shapes import Float
from pellucid.viewer.examples import attribution_arrays
from pellucid.viewer.inputs import ViewedRun, sample_with_ends
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
    """PCA fitted to encoder or decoder states, with the states that the page shows as points."""

    plane: PrincipalPlane
    vectors: Float[np.ndarray, "n D"]
    """States of the points, scaled to length one."""
    points: list[StatePoint]
    """Symbol and context of each row of `vectors`."""


class FittedProjections(NamedTuple):
    """PCA fitted to the encoder states, and PCA fitted to the decoder states."""

    encoder: FittedProjection
    decoder: FittedProjection


class SymbolPosition(NamedTuple):
    """Position of a symbol in the source or the output of an example."""

    example_index: int
    """Index of its example."""
    position: int
    """Position in the source or in the output, from 0."""


def project_states(
    predictor: Predictor, traces: Sequence[Trace], page_indices: dict[int, int]
) -> tuple[StateSpace, FittedProjections] | None:
    """Project the states of the best outputs of a file on their first two principal components.

    Encoder and decoder states are projected separately: all states of at most `MAX_EXAMPLES` outputs are fitted, and
    at most `MAX_POINTS` of them become points.

    Args:
        predictor: Model of the outputs, whose states can be inspected.
        traces: Best output of each example; lexicon entries and empty outputs are left out.
        page_indices: Indices of the shown examples on the page, by their index in the file; these are preferred.

    Returns:
        Projected states for the page, and the fitted projections for further states; None if there are no states.
    """
    decoded = [file_index for file_index, trace in enumerate(traces) if trace.target and trace.origin == "search"]
    shown_indices = [file_index for file_index in decoded if file_index in page_indices]
    other_indices = [file_index for file_index in decoded if file_index not in page_indices]
    sampled = [
        *sample_with_ends(shown_indices, MAX_EXAMPLES),
        *sample_with_ends(other_indices, MAX_EXAMPLES - len(shown_indices)),
    ]
    if not sampled:
        return None
    sampled_traces = [traces[file_index] for file_index in sampled]
    states = trace_states(predictor, sampled_traces)
    examples = [page_indices.get(file_index, -1) for file_index in sampled]
    source_separator, target_separator = symbol_separator(predictor, "encoder"), symbol_separator(predictor, "decoder")
    encoder, encoder_fit = _project_side(
        [each.source for each in sampled_traces], [each.encoder for each in states], examples, source_separator
    )
    decoder, decoder_fit = _project_side(
        [each.target for each in sampled_traces], [each.decoder for each in states], examples, target_separator
    )
    return StateSpace(encoder=encoder, decoder=decoder), FittedProjections(encoder_fit, decoder_fit)


def nearest_points(
    side: FittedProjection, vectors: Float[np.ndarray, "n D"], page_index: int
) -> Float[np.ndarray, "n k"]:
    """Find the points of a projection that are nearest to each state of an example, by cosine.

    A state is not a neighbor of itself.

    Args:
        side: Fitted projection of encoder or decoder states.
        vectors: States of the example in the order of their positions.
        page_index: Index of the example on the page, by which its own points are recognized.

    Returns:
        Array n × 2k, k at most `NUM_NEIGHBORS`: indices of the k nearest points, nearest first, then their cosines.
    """
    cosines = _normalize(vectors) @ side.vectors.T
    for index, point in enumerate(side.points):
        if point.example == page_index and point.position < len(cosines):
            cosines[point.position, index] = -2.0
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(NUM_NEIGHBORS, max(0, len(side.points) - 1))]
    return np.concatenate([order, np.take_along_axis(cosines, order, 1)], axis=1).astype(np.float32)


def _normalize(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
    """Return vectors of unit length."""
    unit: Float[np.ndarray, "n D"] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    return unit


def _project_side(
    sequences: Sequence[Sequence[str]],
    vectors: Sequence[Float[np.ndarray, "_ D"]],
    page_indices: Sequence[int],
    separator: str,
) -> tuple[StateProjection, FittedProjection]:
    """Fit a PCA on the states of one side and project them."""
    all_positions = [
        SymbolPosition(example_index, position)
        for example_index, states in enumerate(vectors)
        for position in range(len(states))
    ]
    sampled = sample_with_ends(range(len(all_positions)), MAX_POINTS)
    joined = np.concatenate(vectors)
    fitted = pca(joined)
    sampled_positions = (all_positions[index] for index in sampled)
    points = [
        state_point(sequences[example_index], position, page_indices[example_index], separator)
        for example_index, position in sampled_positions
    ]
    first, second = (float(share) for share in fitted.explained_variance_ratio)
    projection = StateProjection(
        coordinates=encode_array(fitted.project(joined[sampled])),
        points=points,
        explained_variance_ratio=(first, second),
    )
    return projection, FittedProjection(fitted, _normalize(joined[sampled]), points)


def symbol_separator(predictor: Predictor, side: str) -> str:
    """Return the text with which source or target symbols are joined for display.

    Args:
        predictor: Model, for its tokenizers.
        side: "encoder" for source symbols, "decoder" for target symbols.

    Returns:
        "" for characters and phones (of sources without features), else a space.
    """
    tokenizers = predictor.tokenizers
    kind = tokenizers.source.kind if side == "encoder" else tokenizers.target.kind
    features = side == "encoder" and reads_features(predictor.config.data)
    return "" if kind in ("characters", "ipa") and not features else " "


def state_point(symbols: Sequence[str], position: int, page_index: int, separator: str) -> StatePoint:
    """Return the page's description of a state: its symbol with `CONTEXT_SYMBOLS` symbols on each side.

    Args:
        symbols: Symbols of the source or of the output.
        position: Position of the symbol, from 0.
        page_index: Index of the example on the page; −1 if it is not shown.
        separator: Text between symbols, from `symbol_separator`.
    """
    before = separator.join(symbols[max(0, position - CONTEXT_SYMBOLS) : position])
    after = separator.join(symbols[position + 1 : position + 1 + CONTEXT_SYMBOLS])
    context = f"{before}‹{symbols[position]}›{after}"
    next_symbol = symbols[position + 1] if position + 1 < len(symbols) else ""
    return StatePoint(
        example=page_index, context=context, symbol=symbols[position], position=position, next_symbol=next_symbol
    )


MAX_DETAILED_EXAMPLES = 20
"""Number of examples of a saved page with attribution scores and states."""
MAX_OCCLUSION_WEIGHTS = 4_000
"""Maximum number of attention weights of an output with occlusion scores, which decode once per source position."""


def add_states(
    model: ViewedRun,
    examples: Sequence[tuple[PageExample, Trace]],
    projections: FittedProjections | None,
    exported: bool,
) -> list[PageExample]:
    """Add the projected states of the first output of each example, and for a saved page also other details.

    The details are states, nearest points and attributions. They are added to the first `MAX_DETAILED_EXAMPLES`
    examples, if the output has at most `MAX_OCCLUSION_WEIGHTS` attention weights.

    Args:
        model: Run of the examples.
        examples: Examples in page order, each with its first output.
        projections: Fitted projections; None if the run has no states, and then nothing is added.
        exported: Whether the page is saved as a file, which cannot ask a server for details.

    Returns:
        New examples, in order; lexicon entries and empty outputs are unchanged.
    """
    if projections is None:
        return [example for example, _ in examples]
    traces_with_states = [trace for _, trace in examples if has_states(trace)]
    states = iter(trace_states(model.loaded_predictor, traces_with_states))
    results = []
    for page_index, (example, trace) in enumerate(examples):
        if not has_states(trace):
            results.append(example)
            continue
        trace_state, is_small = next(states), trace.attention.size <= MAX_OCCLUSION_WEIGHTS
        is_detailed = exported and page_index < MAX_DETAILED_EXAMPLES and is_small
        page_trace = msgspec.structs.replace(
            example.traces[0],
            states=hidden_states(trace_state, projections, is_detailed, page_index if is_detailed else None),
        )
        if is_detailed:
            page_trace = msgspec.structs.replace(
                page_trace, attribution=attribution_arrays(attribute(model.loaded_predictor, trace))
            )
        results.append(msgspec.structs.replace(example, traces=[page_trace, *example.traces[1:]]))
    return results


def has_states(trace: Trace) -> bool:
    """Return whether the network has states for an output: it has none for lexicon entries and empty outputs.

    Args:
        trace: Output.
    """
    return bool(trace.target) and trace.origin != "lexicon"


def add_requested_details(
    page_trace: PageTrace,
    trace: Trace,
    predictor: Predictor,
    projections: FittedProjections | None,
    request: DecodeRequest,
) -> PageTrace:
    """Add attribution scores, states and gates to an output, as a request asks for.

    Args:
        page_trace: Output in the page's schema, which is not changed.
        trace: The same output.
        predictor: Model of the output.
        projections: Fitted projections, to add projected states; None if there is none.
        request: Request with the flags `attribution`, `states` and `gates`.

    Returns:
        Output with details; unchanged for a lexicon entry and an empty output.
    """
    if not has_states(trace):
        return page_trace
    if request.attribution:
        page_trace = msgspec.structs.replace(page_trace, attribution=attribution_arrays(attribute(predictor, trace)))
    if request.states or request.gates:
        (states,) = trace_states(predictor, [trace], gates=request.gates)
        page_trace = msgspec.structs.replace(page_trace, states=hidden_states(states, projections, include_states=True))
    return page_trace


def hidden_states(
    states: DecodingStates,
    projections: FittedProjections | None,
    include_states: bool,
    page_index: int | None = None,
) -> HiddenStates:
    """Return the states of one output in the page's schema.

    Args:
        states: States of the output, with gates if they were requested.
        projections: Fitted projections, to add projected states; None if there is none.
        include_states: Whether to add the states themselves; else their arrays are empty.
        page_index: Index of the example on the page, to add the nearest points of its states; None if there is none.
    """
    empty = np.zeros((0, 0), np.float32)
    return HiddenStates(
        encoder=encode_array(states.encoder if include_states else empty),
        decoder=encode_array(states.decoder if include_states else empty),
        encoder_order=_order_units(states.encoder) if include_states else [],
        decoder_order=_order_units(states.decoder) if include_states else [],
        gates={name: encode_array(values) for name, values in states.gates.items()},
        encoder_pca=encode_array(projections.encoder.plane.project(states.encoder)) if projections else None,
        decoder_pca=encode_array(projections.decoder.plane.project(states.decoder)) if projections else None,
        encoder_neighbors=encode_array(nearest_points(projections.encoder, states.encoder, page_index))
        if projections and page_index is not None
        else None,
        decoder_neighbors=encode_array(nearest_points(projections.decoder, states.decoder, page_index))
        if projections and page_index is not None
        else None,
    )


def _order_units(vectors: Float[np.ndarray, "n D"]) -> list[int]:
    """Return the units in the order of their loading on the first principal component."""
    if len(vectors) < 2:
        return list(range(vectors.shape[1]))
    order: list[int] = np.argsort(-pca(vectors).axes[0], kind="stable").tolist()
    return order
