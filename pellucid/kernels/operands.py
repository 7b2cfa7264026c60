"""What kernels are given and give, as tensors; to know them, Numba is not needed.

B sources, S source positions, R hypotheses of a search, A units of the keys, D memory, H hidden, G all gates (3H or
4H), V symbols, T steps, N and M as many or 0 (in `Searched`, N outputs), Q units of the query, F filters, C as many as
there are cells or biases, 0 where the kind of cell has none (in `Searched`, candidates of a step).
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

with torch.inference_mode(False):
    NOTHING = torch.empty(0, 0)
    """Stands for the parameters that a score does not have."""


class Direction(NamedTuple):
    """One direction of an encoder: its inputs, projected, and its recurrent parameters."""

    table: Float[Tensor, "V G"]
    """W x + b of every input, with every bias that nothing multiplies."""
    weight: Float[Tensor, "G H"]
    candidate_bias: Float[Tensor, " C"]
    """c_n of a GRU, which the reset gate multiplies; empty for an LSTM."""


class Parameters(NamedTuple):
    """The parameters of a decoder's step. Additive score: e = energyᵀ tanh(query h + key); both empty: e = h · key.

    By location: e = energyᵀ tanh(query h + key + location f), f the filters over the weights of the step before.
    """

    table: Float[Tensor, "V G"]
    """The projected symbols, with every bias that nothing multiplies."""
    candidate_bias: Float[Tensor, " C"]
    """c_n of a GRU, which the reset gate multiplies; empty for an LSTM."""
    recurrent: Float[Tensor, "G H"]
    context: Float[Tensor, "G D"]
    query: Float[Tensor, "Q H"]
    energy: Float[Tensor, " Q"]
    location: Float[Tensor, "Q F"] = NOTHING
    filters: Float[Tensor, "F N"] = NOTHING


class Head(NamedTuple):
    """What turns a state and a context into logits: W_h h + W_c c + b. A part that is not read has no rows."""

    state: Float[Tensor, "N H"]
    context: Float[Tensor, "M D"]
    bias: Float[Tensor, " V"]


class Looked(NamedTuple):
    """What is looked at. `lengths` count the real positions, at least 1; nothing beyond them is read."""

    keys: Float[Tensor, "B S A"]
    memory: Float[Tensor, "B S D"]
    lengths: Int[Tensor, " B"]


class First(NamedTuple):
    """The states that a search begins with: the cell of an LSTM, and the weights before the first look, if read."""

    hidden: Float[Tensor, "N H"]
    cell: Float[Tensor, "N H"] | None
    looked: Float[Tensor, "N S"] | None


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

    hidden: Float[Tensor, "R H"]
    cell: Float[Tensor, "C H"]
    contexts: Float[Tensor, "R D"]
    looks: Float[Tensor, "R S"]
    logits: Float[Tensor, "R V"]


@runtime_checkable
class Prepared(Protocol):
    """What all steps of a search read, laid out once, and the step itself."""

    def take(self, rows: Int[Tensor, " r"]) -> "Prepared":
        """The chosen of the running sources, in their order; nothing but their numbers is copied."""

    def running(self) -> Int[Tensor, " b"]:
        """The numbers of the running sources."""

    def step(
        self,
        symbols: Int[Tensor, " R"],
        hidden: Float[Tensor, "R H"],
        cell: Float[Tensor, "R H"] | None,
        looked: Float[Tensor, "R S"] | None = None,
    ) -> Taken:
        """One step of all hypotheses, those of a source one after the other; by location, given the weights before."""
