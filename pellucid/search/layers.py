"""What a beam search leaves, step by step, and the way back from the end of an output to its first symbol.

b sources that ran, k hypotheses of each, E extensions considered, S source positions, C candidates kept for
inspection, n outputs, M heads of attention.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from pellucid.errors import NotFiniteError
from pellucid.search.decoded import Decoded, Written, blank
from pellucid.search.lattice import Tree
from pellucid.search.trace_schema import Fate


class Layer(NamedTuple):
    """One step of all hypotheses: what was seen before it, and which extensions were considered."""

    sources: Int[np.ndarray, " b"]
    weights: Float[np.ndarray, "b k S"]
    top_ids: Int[np.ndarray, "b k C"]
    top_log_probabilities: Float[np.ndarray, "b k C"]
    parents: Int[np.ndarray, "b E"]
    """The hypothesis that each extends."""
    origins: Int[np.ndarray, "b E"]
    """Which extension of the layer before that hypothesis is."""
    ids: Int[np.ndarray, "b E"]
    log_probabilities: Float[np.ndarray, "b E"]
    sums: Float[np.ndarray, "b E"]
    """ln p up to here; they fall."""
    ended: Bool[np.ndarray, "b E"]
    """Which of them are whole outputs."""
    kept: Bool[np.ndarray, "b E"]
    """Which of them may be extended."""
    heads: Float[np.ndarray, "b k M S"] | None = None


class End(NamedTuple):
    """Where an output ends in the layers; the best outputs sort first: those that wrote EOS, by their scores."""

    cut: bool
    loss: float
    """Minus the score."""
    step: int
    place: int


class Found(NamedTuple):
    """One output of a source."""

    decoded: Decoded
    score: float
    tree: Tree | None = None
    leaf: int = -1
    """The node of the tree in which it ends."""


def finite_outputs(outputs: Sequence[list[Found]], name: str) -> Sequence[list[Found]]:
    """Return the outputs of each source as they are; every output of a network passes here on its way out.

    Numbers that are none spread from wherever they arise (attention, cells, scores) to the probabilities of what is
    written, or leave a search with nothing to write.

    Args:
        outputs: The outputs of each source. Each source has one at least.
        name: The run folder of the network.

    Raises:
        NotFiniteError: Where a probability is none, or a source has no output.
    """
    for found in outputs:
        if not found or any(math.isnan(each.score) or np.isnan(each.decoded.log_probabilities).any() for each in found):
            raise NotFiniteError(
                f"{name or 'the model'} gives numbers that are not finite: its parameters are damaged, or too large "
                "for float32"
            )
    return outputs


def outputs_from(
    layers: list[Layer], ends: list[list[End]], lengths: list[int], lattice: bool = False
) -> list[list[Found]]:
    """Each output from its end back to its first symbol, all of them together."""
    flat = [(source, end) for source, each in enumerate(ends) for end in each]
    sources = np.array([source for source, _ in flat], np.int64)
    last, places = (np.array(each, np.int64) for each in ([e.step for _, e in flat], [e.place for _, e in flat]))
    heads = 0 if layers[0].heads is None else layers[0].heads.shape[2]
    written = blank(len(flat), len(layers), layers[0].weights.shape[2], layers[0].top_ids.shape[2], heads)
    for step in range(len(layers) - 1, -1, -1):
        rows = (last >= step).nonzero()[0]
        places[rows] = _trace_back(layers[step], written, (rows, step), sources[rows], places[rows])
    grown = [_grow(layers, source, each) if lattice and ends[source] else None for source, each in enumerate(lengths)]
    found: list[list[Found]] = [[] for _ in ends]
    for at, (source, end) in enumerate(flat):
        decoded, tree = written.output(at, end.step + 1, lengths[source]), grown[source]
        leaf = -1 if tree is None else tree[1].get((end.step, end.place), -1)
        found[source].append(Found(decoded, -end.loss, None if tree is None else tree[0], leaf))
    return found


def _trace_back(
    layer: Layer,
    written: Written,
    at: tuple[Int[np.ndarray, " n"], int],
    sources: Int[np.ndarray, " n"],
    places: Int[np.ndarray, " n"],
) -> Int[np.ndarray, " n"]:
    """Write one step of some outputs; the places of their hypotheses in the layer before it."""
    rows = np.searchsorted(layer.sources, sources)
    parents = layer.parents[rows, places]
    written.ids[at], written.log_probabilities[at] = layer.ids[rows, places], layer.log_probabilities[rows, places]
    written.weights[at], written.top_ids[at] = layer.weights[rows, parents], layer.top_ids[rows, parents]
    written.top_log_probabilities[at] = layer.top_log_probabilities[rows, parents]
    if written.heads is not None and layer.heads is not None:
        written.heads[at[0], :, at[1]] = layer.heads[rows, parents]
    origins: Int[np.ndarray, " n"] = layer.origins[rows, places]
    return origins


def _grow(layers: list[Layer], source: int, length: int) -> tuple[Tree, dict[tuple[int, int], int]]:
    """The tree of one source, and the node of each (step, extension) in it."""
    nodes: dict[tuple[int, int], int] = {}
    looks: dict[tuple[int, int], int] = {}
    rows: list[tuple[int, int, int, float, float]] = []
    fates, attention = list[Fate](), list[Float[np.ndarray, " S"]]()
    for step, layer in enumerate(layers):
        row = int(np.searchsorted(layer.sources, source))
        if row == len(layer.sources) or layer.sources[row] != source:
            break
        for place in np.isfinite(layer.sums[row]).nonzero()[0].tolist():
            parent = int(layer.parents[row, place])
            if (step, parent) not in looks:
                looks[step, parent] = len(attention)
                attention.append(layer.weights[row, parent, :length])
            nodes[step, place] = len(rows)
            above = nodes[step - 1, int(layer.origins[row, place])] if step else -1
            numbers = float(layer.log_probabilities[row, place]), float(layer.sums[row, place])
            rows.append((int(layer.ids[row, place]), above, looks[step, parent], *numbers))
            fates.append("ended" if layer.ended[row, place] else "kept" if layer.kept[row, place] else "pruned")
    ids, parents, seen, likely, sums = (np.array(column) for column in zip(*rows, strict=True))
    return Tree(ids, parents, seen, likely, sums, tuple(fates), np.stack(attention)), nodes
