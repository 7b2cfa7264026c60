"""What kernels are given and give; to know it, neither Numba nor PyTorch is needed.

Kernels take and give arrays. PyTorch's tensors stand in the same places where autograd.py takes and gives them.

B sources, S source positions, R hypotheses of a search, A units of the keys, D memory, H hidden, G all gates (3H or
4H), V symbols, T steps, N and M as many or 0 (in `Searched`, N outputs), Q units of the query, F filters, C as many as
there are cells or biases, 0 where the kind of cell has none (in `Searched`, candidates of a step).
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

Array = Any
"""An array, or a tensor."""
NOTHING = np.empty((0, 0), np.float32)
"""Stands for the parameters that a score does not have."""


class Direction(NamedTuple):
    """One direction of an encoder: its inputs, projected, and its recurrent parameters."""

    table: Float[Array, "V G"]
    """W x + b of every input, with every bias that nothing multiplies."""
    weight: Float[Array, "G H"]
    candidate_bias: Float[Array, " C"]
    """c_n of a GRU, which the reset gate multiplies; empty for an LSTM."""


class Parameters(NamedTuple):
    """The parameters of a decoder's step. Additive score: e = energyᵀ tanh(query h + key); both empty: e = h · key.

    By location: e = energyᵀ tanh(query h + key + location f), f the filters over the weights of the step before.
    """

    table: Float[Array, "V G"]
    """The projected symbols, with every bias that nothing multiplies."""
    candidate_bias: Float[Array, " C"]
    """c_n of a GRU, which the reset gate multiplies; empty for an LSTM."""
    recurrent: Float[Array, "G H"]
    context: Float[Array, "G D"]
    query: Float[Array, "Q H"]
    energy: Float[Array, " Q"]
    location: Float[Array, "Q F"] = NOTHING
    filters: Float[Array, "F N"] = NOTHING


class Head(NamedTuple):
    """What turns a state and a context into logits: W_h h + W_c c + b. A part that is not read has no rows."""

    state: Float[Array, "N H"]
    context: Float[Array, "M D"]
    bias: Float[Array, " V"]


class Looked(NamedTuple):
    """What is looked at. `lengths` count the real positions, at least 1; nothing beyond them is read."""

    keys: Float[Array, "B S A"]
    memory: Float[Array, "B S D"]
    lengths: Int[Array, " B"]


class First(NamedTuple):
    """The states that a search begins with: the cell of an LSTM, and the weights before the first look, if read."""

    hidden: Float[Array, "N H"]
    cell: Float[Array, "N H"] | None
    looked: Float[Array, "N S"] | None


class Rules(NamedTuple):
    """What a whole search may write, and what of it is kept."""

    closed_early: Bool[np.ndarray, " V"]
    """Symbols that cannot be written before the shortest output."""
    closed: Bool[np.ndarray, " V"]
    minimum: int
    maximum: int
    candidates: int
    """Likeliest symbols that each step keeps."""


class Searched(NamedTuple):
    """What a whole search gives: outputs side by side; what lies beyond an output's `steps` means nothing."""

    ids: Int[np.ndarray, "N T"]
    log_probabilities: Float[np.ndarray, "N T"]
    weights: Float[np.ndarray, "N T S"]
    top_ids: Int[np.ndarray, "N T C"]
    top_log_probabilities: Float[np.ndarray, "N T C"]
    steps: Int[np.ndarray, " N"]


class Taken(NamedTuple):
    """What one step of a search gives; the cell is empty for a GRU."""

    hidden: Float[Array, "R H"]
    cell: Float[Array, "C H"]
    contexts: Float[Array, "R D"]
    looks: Float[Array, "R S"]
    logits: Float[Array, "R V"]
