"""Arrays and settings of pair n-gram models. This module imports no compiled function, which takes a second.

N examples, G graphones, M maximum number of target symbols of a graphone, K outputs.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

SOURCE_CHUNK = 2
"""Maximum number of source symbols of a graphone."""


class SymbolPairs(NamedTuple):
    """Sources and targets of examples, as ids in one array each."""

    source: Int[np.ndarray, " source_ids"]
    source_offsets: Int[np.ndarray, " N+1"]
    target: Int[np.ndarray, " target_ids"]
    target_offsets: Int[np.ndarray, " N+1"]


class GraphoneKeys(NamedTuple):
    """Numbering of all possible graphones.

    The key of a graphone is k_s·(V_t + 1)^M + k_t, where k_s and k_t are the ids of its source and target chunk, plus
    one, as digits in the bases V_s + 1 and V_t + 1. Graphones with the same source chunk have successive keys.
    """

    source_size: int
    """V_s, number of source ids."""
    target_size: int
    """V_t, number of target ids."""
    target_chunk: int
    """M, maximum number of target symbols of a graphone."""

    @property
    def fits(self) -> bool:
        """True if every key is an integer of 63 bits."""
        num_keys: int = (self.source_size + 1) ** SOURCE_CHUNK * (self.target_size + 1) ** self.target_chunk
        return num_keys < 2**63


class GraphoneTable(NamedTuple):
    """The graphones of a model in the order of their keys; the graphone number g is token g of the n-gram model."""

    chunks: Int[np.ndarray, " chunks"]
    """Keys of the distinct source chunks, in ascending order."""
    first: Int[np.ndarray, " chunks+1"]
    """First graphone of each source chunk, and the number of graphones."""
    target: Int[np.ndarray, "G M"]
    """Target ids of each graphone."""
    target_length: Int[np.ndarray, " G"]
    """Number of target ids of each graphone."""
    source_size: int
    """Number of source ids."""
    begin: int
    """Node after the begin token."""
    end: int
    """End token."""
    unseen: float
    """Log-probability of a graphone that is not in the table, after the shortest history (given targets only)."""


class SearchSettings(NamedTuple):
    """Settings of a search."""

    beam_size: int
    """Hypotheses that are extended per source position."""
    margin: float
    """A hypothesis is dropped if its score is lower than the best at its position by more than this."""
    num_outputs: int
    """K, maximum number of outputs."""
