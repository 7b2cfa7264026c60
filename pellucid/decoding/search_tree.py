"""Search tree of a beam: everything that the search considered for one source.

N nodes, L rows of attention weights, S source positions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.decoding.trace_schema import Fate, LatticeRecord, decode_field, encode_array, list_array
from pellucid.errors import DataError


class SearchTreeIds(NamedTuple):
    """Search tree of one source in ids. Parents precede their children; −1 is the root."""

    ids: Int[np.ndarray, " N"]
    parents: Int[np.ndarray, " N"]
    looks: Int[np.ndarray, " N"]
    log_probabilities: Float[np.ndarray, " N"]
    sums: Float[np.ndarray, " N"]
    fates: tuple[Fate, ...]
    attention: Float[np.ndarray, "L S"]

    def named(self, symbols: np.ndarray, leaf: int) -> "SearchTree":
        """Return the search tree with symbols.

        Args:
            symbols: Symbol of each node.
            leaf: Node at which the output ends; −1 for an empty output.
        """
        arrays = (self.parents, self.log_probabilities, self.sums)
        return SearchTree(tuple(symbols.tolist()), *arrays, self.fates, self.looks, self.attention, leaf)


@dataclass(frozen=True, eq=False)
class SearchTree:
    """All extensions that a beam considered for one source, kept or pruned, as a tree."""

    symbols: tuple[str, ...]
    """Symbol of each node, step by step and in the order of falling score."""
    parents: Int[np.ndarray, " N"]
    """Parent of each node; −1 at the root."""
    log_probabilities: Float[np.ndarray, " N"]
    """Log-probability of each symbol given the source and the symbols before it."""
    scores: Float[np.ndarray, " N"]
    """Log-probability of the path to each node, by which the beam is pruned."""
    fates: tuple[Fate, ...]
    """kept: continued by the beam, or active at the end of the search. ended: a finished output. pruned: dropped."""
    looks: Int[np.ndarray, " N"]
    """Row of `attention` of each node; siblings share it."""
    attention: Float[np.ndarray, "L S"]
    """Attention weights of the decoder steps."""
    leaf: int
    """Last node of this trace's own output; −1 for an empty output."""

    def path(self) -> list[int]:
        """Return the nodes of this trace's own output, from the first symbol."""
        nodes, node = list[int](), self.leaf
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def to_record(self, compact: bool) -> LatticeRecord:
        """Return the JSON form.

        Args:
            compact: Write arrays in base64 instead of lists.
        """
        encode = encode_array if compact else list_array
        return LatticeRecord(
            symbols=list(self.symbols),
            parents=self.parents.tolist(),
            log_probabilities=encode(self.log_probabilities),
            scores=encode(self.scores),
            fates=list(self.fates),
            looks=self.looks.tolist(),
            attention=encode(self.attention),
            leaf=self.leaf,
        )

    @classmethod
    def from_record(cls, record: LatticeRecord, positions: int) -> "SearchTree":
        """Return the search tree of a record.

        Args:
            record: The JSON form.
            positions: Number of source positions.

        Raises:
            DataError: The fields of the record do not agree.
        """
        nodes, attention = len(record.symbols), decode_field(record, "attention", (None, positions))
        rows, indexed_parents = range(len(attention)), enumerate(record.parents)
        if not nodes == len(record.parents) == len(record.fates) == len(record.looks):
            raise DataError(f"lattice: expected a parent, a fate and a look for each of {nodes} symbols")
        if not all(-1 <= parent < node for node, parent in indexed_parents) or not -1 <= record.leaf < nodes:
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
