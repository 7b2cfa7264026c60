"""Search tree of a beam: everything that the search considered for one source.

M nodes, P rows of attention weights, S source positions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pellucid.decoding.trace_schema import NodeStatus, SearchTreeRecord, decode_field, encode_array, list_array
from pellucid.errors import DataError
from pellucid.shapes import Float, Int


class SearchTreeIds(NamedTuple):
    """Search tree of one source in ids; fields as in `SearchTree`, whose `scores` are `cumulative_log_probs` here.

    Parents precede their children.
    """

    ids: Int[np.ndarray, " M"]
    parents: Int[np.ndarray, " M"]
    attention_rows: Int[np.ndarray, " M"]
    log_probabilities: Float[np.ndarray, " M"]
    cumulative_log_probs: Float[np.ndarray, " M"]
    statuses: tuple[NodeStatus, ...]
    attention: Float[np.ndarray, "P S"]

    def named(self, symbols: np.ndarray, leaf: int) -> "SearchTree":
        """Return the search tree with symbols in place of ids.

        Args:
            symbols: Symbol of each node, shape (M,).
            leaf: Node at which the output ends; −1 if the tree does not contain it.
        """
        return SearchTree(
            symbols=tuple(symbols.tolist()),
            parents=self.parents,
            log_probabilities=self.log_probabilities,
            scores=self.cumulative_log_probs,
            statuses=self.statuses,
            attention_rows=self.attention_rows,
            attention=self.attention,
            leaf=leaf,
        )


@dataclass(frozen=True, eq=False)
class SearchTree:
    """All extensions that a beam considered for one source, kept or pruned, as a tree whose nodes are symbols."""

    symbols: tuple[str, ...]
    """Symbol of each node, step by step, and within a step in descending order of the score."""
    parents: Int[np.ndarray, " M"]
    """Parent of each node, which comes before it; −1 for the nodes of the first step."""
    log_probabilities: Float[np.ndarray, " M"]
    """Log-probability of each symbol given the source and the symbols before it."""
    scores: Float[np.ndarray, " M"]
    """Log-probability of the path to each node, by which the beam is pruned."""
    statuses: tuple[NodeStatus, ...]
    """kept: continued by the beam, or active at the end of the search. ended: a finished output. pruned: dropped."""
    attention_rows: Int[np.ndarray, " M"]
    """Row of `attention` for each node: the weights of the decoder step that scored it. Siblings share it."""
    attention: Float[np.ndarray, "P S"]
    """Attention weights, one row for each hypothesis and step."""
    leaf: int
    """Last node of this trace's own output; −1 for an empty output, and for one that the pair n-gram model added."""

    def path(self) -> list[int]:
        """Return the nodes of this trace's own output, from the first symbol; empty if the tree does not contain it."""
        nodes = list[int]()
        node = self.leaf
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def to_record(self, compact: bool) -> SearchTreeRecord:
        """Return the JSON form.

        Args:
            compact: Write arrays of floating-point numbers in base64, to the bit, instead of lists to six decimals.
        """
        encode = encode_array if compact else list_array
        return SearchTreeRecord(
            symbols=list(self.symbols),
            parents=self.parents.tolist(),
            log_probabilities=encode(self.log_probabilities),
            scores=encode(self.scores),
            statuses=list(self.statuses),
            attention_rows=self.attention_rows.tolist(),
            attention=encode(self.attention),
            leaf=self.leaf,
        )

    @classmethod
    def from_record(cls, record: SearchTreeRecord, positions: int) -> "SearchTree":
        """Return the search tree of a record.

        Args:
            record: The JSON form.
            positions: Number of source positions.

        Raises:
            DataError: The fields do not agree in length, an array is malformed, a parent does not come before its node,
                an index is out of range, or a log-probability or weight is. The message begins with "search_tree".
        """
        nodes = len(record.symbols)
        attention = _decode_array(record, "attention", (None, positions))
        rows = range(len(attention))
        indexed_parents = enumerate(record.parents)
        if not nodes == len(record.parents) == len(record.statuses) == len(record.attention_rows):
            raise DataError(
                f"search_tree: expected a parent, a status and a row of attention for each of {nodes} symbols"
            )
        if not all(-1 <= parent < node for node, parent in indexed_parents) or not -1 <= record.leaf < nodes:
            raise DataError("search_tree: expected parents that come before their nodes, and a leaf among the nodes")
        if not all(row in rows for row in record.attention_rows):
            raise DataError(
                f"search_tree: expected attention_rows that are rows of its attention, 0 to {len(attention) - 1}"
            )
        return cls(
            symbols=tuple(record.symbols),
            parents=np.array(record.parents, np.int64),
            log_probabilities=_decode_array(record, "log_probabilities", (nodes,)),
            scores=_decode_array(record, "scores", (nodes,)),
            statuses=tuple(record.statuses),
            attention_rows=np.array(record.attention_rows, np.int64),
            attention=attention,
            leaf=record.leaf,
        )


def _decode_array(record: SearchTreeRecord, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """Return an array of a record; errors name its place in the trace."""
    try:
        return decode_field(record, name, shape)
    except DataError as error:
        raise DataError(f"search_tree.{error}") from None
