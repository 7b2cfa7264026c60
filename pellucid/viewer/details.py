"""What is shown of an item beside its outputs: where its states lie, and what else says which positions mattered."""

from collections.abc import Sequence

import msgspec
import numpy as np
from jaxtyping import Float

from pellucid.inspection import states as inspected
from pellucid.inspection.evidence import evidence
from pellucid.inspection.plane import plane
from pellucid.search import trace as search
from pellucid.search.predictor import Predictor
from pellucid.search.trace_schema import encode_array
from pellucid.viewer.asking import Asked
from pellucid.viewer.contents import Item, PageTrace, States
from pellucid.viewer.models import Model
from pellucid.viewer.space import Planes, near
from pellucid.viewer.traces import evidence_told

DETAILED = 20
"""Items of a file that hold evidence and all numbers of their states: there is nobody who could be asked for them."""
CELLS = 4_000
"""Weights of attention beyond which an output has none: each source position would be decoded anew."""


def detailed(
    model: Model, listed: Sequence[tuple[Item, search.Trace]], planes: Planes | None, kept: bool
) -> list[Item]:
    """Items with where their states lie; where they are `kept` in a file, the first `DETAILED` with all details."""
    if planes is None:
        return [item for item, _ in listed]
    usable = [trace for _, trace in listed if sighted(trace)]
    found = iter(inspected.states(model.ready, usable))
    items = []
    for place, (item, trace) in enumerate(listed):
        if not sighted(trace):
            items.append(item)
            continue
        own, small = next(found), trace.attention.size <= CELLS
        whole = kept and place < DETAILED and small
        told = msgspec.structs.replace(item.traces[0], states=states_told(own, planes, whole, place if whole else None))
        if whole:
            told = msgspec.structs.replace(told, evidence=evidence_told(evidence(model.ready, trace)))
        items.append(msgspec.structs.replace(item, traces=[told, *item.traces[1:]]))
    return items


def sighted(trace: search.Trace) -> bool:
    """Whether a model wrote it, symbol by symbol."""
    return bool(trace.target) and trace.origin != "lexicon"


def with_details(
    told: PageTrace, trace: search.Trace, transducer: Predictor, planes: Planes | None, asked: Asked
) -> PageTrace:
    """An output with what is asked for: evidence, states, gates."""
    if not sighted(trace):
        return told
    if asked.evidence:
        told = msgspec.structs.replace(told, evidence=evidence_told(evidence(transducer, trace)))
    if asked.states or asked.gates:
        (own,) = inspected.states(transducer, [trace], gates=asked.gates)
        told = msgspec.structs.replace(told, states=states_told(own, planes, whole=True))
    return told


def states_told(own: inspected.States, planes: Planes | None, whole: bool, place: int | None = None) -> States:
    """States with their places in the planes; where they are not told whole, their own blocks are empty.

    Those nearest to them stand beside those of the item at a `place`: a file has nobody who could be asked for them.
    """
    nothing = np.zeros((0, 0), np.float32)
    return States(
        encoder=encode_array(own.encoder if whole else nothing),
        decoder=encode_array(own.decoder if whole else nothing),
        encoder_order=_order(own.encoder) if whole else [],
        decoder_order=_order(own.decoder) if whole else [],
        gates={name: encode_array(values) for name, values in own.gates.items()},
        encoder_plane=encode_array(planes.encoder.plane.project(own.encoder)) if planes else None,
        decoder_plane=encode_array(planes.decoder.plane.project(own.decoder)) if planes else None,
        encoder_near=encode_array(near(planes.encoder, own.encoder, place)) if planes and place is not None else None,
        decoder_near=encode_array(near(planes.decoder, own.decoder, place)) if planes and place is not None else None,
    )


def _order(vectors: Float[np.ndarray, "n D"]) -> list[int]:
    """The units in the order of their weight in the first principal component."""
    if len(vectors) < 2:
        return list(range(vectors.shape[1]))
    order: list[int] = np.argsort(-plane(vectors).axes[0], kind="stable").tolist()
    return order
