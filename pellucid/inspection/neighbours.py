"""States of a corpus, and those nearest to one of them.

n states, D their size.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.inspection.states import states
from pellucid.search.predictor import Predictor
from pellucid.search.trace import Trace

AT_ONCE = 256
"""Traces whose states are taken together."""


class Side(NamedTuple):
    """The states of one side of many traces."""

    vectors: Float[Tensor, "n D"]
    """Each of length one (zero stays zero): their products are cosines."""
    traces: Int[np.ndarray, " n"]
    """The number of each one's trace."""
    positions: Int[np.ndarray, " n"]
    """Its source position, or its step."""


class Gathered(NamedTuple):
    """The states of a corpus."""

    encoder: Side
    decoder: Side


def gather(transducer: Predictor, traces: Sequence[Trace], most: int = 200_000) -> Gathered:
    """The states of traces, in their order, until a side has `most`; the trace in which it does is not cut."""
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for start in range(0, len(traces), AT_ONCE):
        for each in states(transducer, traces[start : start + AT_ONCE]):
            sides[0].append(each.encoder)
            sides[1].append(each.decoder)
        if max(sum(map(len, side)) for side in sides) >= most:
            break
    return Gathered(*(_side(_limited(side, most)) for side in sides))


def _limited(vectors: list[np.ndarray], most: int) -> list[np.ndarray]:
    """Those of the first traces, until there are so many."""
    counts = np.cumsum([0, *map(len, vectors)])
    return [each for each, before in zip(vectors, counts.tolist(), strict=False) if before < most]


def _side(vectors: list[np.ndarray]) -> Side:
    """States of one side, told apart by trace and position."""
    joined = torch.from_numpy(np.concatenate(vectors) if vectors else np.zeros((0, 1))).float()
    positions = [np.arange(len(each)) for each in vectors]
    numbers = np.repeat(np.arange(len(vectors)), [len(each) for each in vectors])
    return Side(_unit(joined), numbers, np.concatenate(positions) if positions else np.zeros(0, np.int64))


def _unit(vectors: Float[Tensor, "*shape D"]) -> Float[Tensor, "*shape D"]:
    """The same directions, of length one."""
    unit: Tensor = vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    return unit


def nearest(side: Side, vector: Float[np.ndarray, " D"], count: int) -> list[tuple[int, int, float]]:
    """Trace, position and cosine u · v / (‖u‖ ‖v‖) of the states nearest to a vector, nearest first.

    Every state is compared; of equal ones the first comes first. The vector itself is found too, if it is one.
    """
    if not len(side.vectors) or count < 1:
        return []
    asked = _unit(torch.from_numpy(np.ascontiguousarray(vector)).float())
    cosines = (side.vectors @ asked).clamp(-1, 1)
    order = cosines.sort(descending=True, stable=True).indices[:count].tolist()
    return [(int(side.traces[at]), int(side.positions[at]), float(cosines[at])) for at in order]
