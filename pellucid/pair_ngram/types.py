"""Arrays and settings of pair n-gram models. This module imports no compiled function, which takes a second.

A graphone is a pair of source symbols and the target symbols that are aligned with them.

G graphones, M maximum number of target symbols of a graphone, K outputs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.alignment.types import ChunkLimits
from pellucid.shapes import Int

MAX_EXTENSIONS = 2**17
"""Maximum number of extensions by the graphones of one source chunk; the beam is smaller where they would be more."""
UNSEEN_GRAPHONE = -1
"""Stands for any graphone that is not in the table. It writes no symbol, or 0 to M symbols of a given target."""
TIE_TOLERANCE = 1e-9
"""Paths whose log-probabilities differ by at most this are tied. Of tied paths, the one whose graphone numbers,
compared from the last to the first, are smaller is kept."""
SCORE_STEPS = 2.0**30
"""Hypotheses are ranked by scores that are rounded down to multiples of 1 / SCORE_STEPS, then by their keys. The
last bits of a score depend on the order in which probabilities were added, which differs between the backends."""
MULTIPLIER, INCREMENT = 6364136223846793005, 1442695040888963407
"""Constants of the linear congruential generator by which outputs are hashed (Knuth's MMIX), modulo 2⁶⁴."""
SOURCE_CHUNK = 2
"""Maximum number of source symbols of a graphone."""


def chunk_limits(target_chunk: int) -> ChunkLimits:
    """Return the sizes of graphones: one source symbol with 0 to M target symbols, or two source symbols with one.

    Args:
        target_chunk: M, maximum number of target symbols of a graphone.
    """
    return ChunkLimits(SOURCE_CHUNK, target_chunk, insertions=False)


class GraphoneTable(NamedTuple):
    """The graphones of a model in the order of their keys; the graphone number g is token g of the n-gram model."""

    chunk_keys: Int[np.ndarray, " chunks"]
    """Keys of the distinct source chunks, in ascending order."""
    first_graphone: Int[np.ndarray, " chunks+1"]
    """First graphone of each source chunk, and the number of graphones."""
    target: Int[np.ndarray, "G M"]
    """Target ids of each graphone."""
    target_length: Int[np.ndarray, " G"]
    """Number of target ids of each graphone."""
    source_size: int
    """Number of source ids."""
    begin_node: int
    """Node after the begin token."""
    end_token: int
    """End token."""
    unseen_log_probability: float
    """Log-probability of a graphone that is not in the table, whatever the history: the lowest of all unigrams. Used
    for given targets, for a source symbol that is no chunk of the table, and, after the backoffs of the history, for
    the end if no n-gram has it."""


class GivenTarget(NamedTuple):
    """Target of a search, if it is given (`given_target`)."""

    exists: bool
    """False for a search of all outputs."""
    ids: Int[np.ndarray, " T"]
    """Target ids; none if `exists` is False."""


def given_target(ids: Sequence[int] | None) -> GivenTarget:
    """Return a given target as the search in Numba reads it.

    Args:
        ids: Target ids; None for a search of all outputs.
    """
    return GivenTarget(ids is not None, np.array(() if ids is None else ids, np.int64))


class SearchSettings(NamedTuple):
    """Settings of a search."""

    beam_size: int
    """Hypotheses that are extended per source position."""
    margin: float
    """A hypothesis is dropped if its score is lower than the best at its position by more than this."""
    num_outputs: int
    """K, maximum number of outputs."""
