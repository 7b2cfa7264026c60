"""The lattice of a beam: everything that was considered for one source, as a tree.

N nodes, L looks at the source, S source positions.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

Fate = Literal["kept", "ended", "pruned"]


class Tree(NamedTuple):
    """The nodes of one source in ids; a node's parent comes before it, −1 stands for the beginning."""

    ids: Int[np.ndarray, " N"]
    parents: Int[np.ndarray, " N"]
    looks: Int[np.ndarray, " N"]
    log_probabilities: Float[np.ndarray, " N"]
    sums: Float[np.ndarray, " N"]
    fates: tuple[Fate, ...]
    attention: Float[np.ndarray, "L S"]

    def named(self, symbols: np.ndarray, leaf: int) -> "Lattice":
        """The lattice of an output that ends in a node."""
        numbers = (self.parents, self.log_probabilities, self.sums)
        return Lattice(tuple(symbols.tolist()), *numbers, self.fates, self.looks, self.attention, leaf)


@dataclass(frozen=True, eq=False)
class Lattice:
    """Every symbol that a beam considered for one source, kept or not, as a tree from the first symbols on."""

    symbols: tuple[str, ...]
    """The N symbols, step by step, those of a step by falling score."""
    parents: Int[np.ndarray, " N"]
    """The node that each follows; −1 at the beginning."""
    log_probabilities: Float[np.ndarray, " N"]
    """ln p of each symbol, given the source and the symbols on the way to it."""
    scores: Float[np.ndarray, " N"]
    """ln p of all symbols up to each node: what the beam prunes by."""
    fates: tuple[Fate, ...]
    """kept: the beam went on from it (or could have, when the search was over). ended: a whole output. pruned: left."""
    looks: Int[np.ndarray, " N"]
    """The row of `attention` that the decoder wrote each node from; siblings share theirs."""
    attention: Float[np.ndarray, "L S"]
    """Weights over the source of every look."""
    leaf: int
    """The node in which this trace's own output ends; −1 for an output without symbols."""

    def path(self) -> list[int]:
        """The nodes of this trace's own output, from its first symbol on."""
        nodes, node = list[int](), self.leaf
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, numbers to six decimals."""
        likely, scores, attention = (
            np.round(values.astype(np.float64), 6).tolist()
            for values in (self.log_probabilities, self.scores, self.attention)
        )
        return {
            "symbols": list(self.symbols),
            "parents": self.parents.tolist(),
            "log_probabilities": likely,
            "scores": scores,
            "fates": list(self.fates),
            "looks": self.looks.tolist(),
            "attention": attention,
            "leaf": self.leaf,
        }
