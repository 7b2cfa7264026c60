"""The lattice of a beam: everything that was considered for one source, as a tree.

N nodes, L looks at the source, S source positions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.decoding.trace_schema import Fate, LatticeRecord, decode_field, encode_array, list_array
from pellucid.errors import DataError


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

    def to_record(self, compact: bool) -> LatticeRecord:
        """Return the JSON form, its arrays compact or as lists."""
        write = encode_array if compact else list_array
        return LatticeRecord(
            symbols=list(self.symbols),
            parents=self.parents.tolist(),
            log_probabilities=write(self.log_probabilities),
            scores=write(self.scores),
            fates=list(self.fates),
            looks=self.looks.tolist(),
            attention=write(self.attention),
            leaf=self.leaf,
        )

    @classmethod
    def from_record(cls, record: LatticeRecord, positions: int) -> "Lattice":
        """Return the lattice of a record, over so many source positions.

        Raises:
            DataError: The fields of the record do not belong together.
        """
        nodes, attention = len(record.symbols), decode_field(record, "attention", (None, positions))
        rows, before = range(len(attention)), enumerate(record.parents)
        if not nodes == len(record.parents) == len(record.fates) == len(record.looks):
            raise DataError(f"lattice: expected a parent, a fate and a look for each of {nodes} symbols")
        if not all(-1 <= parent < node for node, parent in before) or not -1 <= record.leaf < nodes:
            raise DataError("lattice: expected parents that come before their nodes, and a leaf among the nodes")
        if not all(row in rows for row in record.looks):
            raise DataError(f"lattice: expected looks that are rows of its attention, 0 to {len(attention) - 1}")
        return cls(
            symbols=tuple(record.symbols),
            parents=np.array(record.parents, np.int64),
            log_probabilities=decode_field(record, "log_probabilities", (nodes,)),
            scores=decode_field(record, "scores", (nodes,)),
            fates=tuple(record.fates),
            looks=np.array(record.looks, np.int64),
            attention=attention,
            leaf=record.leaf,
        )
