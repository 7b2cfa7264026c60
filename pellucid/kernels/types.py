"""Arguments and results of kernels, and the tables of cells and scores that kernels compute.

Neither Numba nor PyTorch is needed to import this module. Kernels take and return arrays; autograd.py passes PyTorch's
tensors in the same fields.

B sources, S source positions, R hypotheses of a search, A units of the keys, D memory, H hidden, G numbers of all gates
(Q gates times H), V symbols, T steps, N and M as many or 0 (in `KernelSearchOutput`, N outputs), F filters, C as many
as there are cells or biases, 0 where the cell has none (in `KernelSearchOutput`, candidates of a step).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

Array = Any
"""An array, or a tensor."""
NO_ROWS = np.empty((0, 0), np.float32)
NO_UNITS = np.empty(0, np.float32)
"""Empty arrays in place of the parameters that a score does not have."""


class CellLayout(NamedTuple):
    """Layout of a recurrent cell in kernels. All fields are integers, which compiled code reads."""

    cell: int
    """Number by which `cells.cell_forward` and `cells.cell_backward` select the equations."""
    gates: int
    states: int
    """Number of state vectors: 1 for h; 2 for h and c."""
    buffers: int
    """Number of vectors that a step stores for the backward pass, those of the gates first."""
    gated: int
    """Gate whose U h another gate multiplies, which must be the last; −1 for none. Its U h has the buffer after the
    gates, and its hidden bias, `bias_n`, is added there."""


GRU = CellLayout(cell=0, gates=3, states=1, buffers=4, gated=2)
LSTM = CellLayout(cell=1, gates=4, states=2, buffers=5, gated=-1)
CELL_LAYOUTS: Mapping[str, CellLayout] = {"gru": GRU, "lstm": LSTM}
"""The cells that Numba kernels compute, by their name in the settings."""

DOT_PRODUCT, ADDITIVE, LOCATION_SENSITIVE = 0, 1, 2
"""Numbers by which attention.py selects the equations of a score."""
SCORES: Mapping[str, int] = {
    "additive": ADDITIVE,
    "location": LOCATION_SENSITIVE,
    "dot": DOT_PRODUCT,
    "general": DOT_PRODUCT,
    "scaled-dot": DOT_PRODUCT,
}
"""The scores that Numba kernels compute, by the kind of attention; dot products differ only in their keys."""


class Direction(NamedTuple):
    """One direction of an encoder: its inputs, projected, and its recurrent parameters."""

    cell: CellLayout
    table: Float[Array, "V G"]
    """W x + b of every input, with every bias that no gate multiplies."""
    weight: Float[Array, "G H"]
    bias_n: Float[Array, " C"]


class DecoderParameters(NamedTuple):
    """Parameters of a decoder's step. Scores: e = energyᵀ tanh(query h + key + location f), or e = h · key.

    f are the filters over the weights of the previous step, where the score is location-sensitive.
    """

    cell: CellLayout
    score: int
    table: Float[Array, "V G"]
    """The projected symbols, with every bias that no gate multiplies."""
    bias_n: Float[Array, " C"]
    recurrent: Float[Array, "G H"]
    context: Float[Array, "G D"]
    query: Float[Array, "N H"] = NO_ROWS
    energy: Float[Array, " N"] = NO_UNITS
    location: Float[Array, "N F"] = NO_ROWS
    filters: Float[Array, "F N"] = NO_ROWS


class Head(NamedTuple):
    """Parameters of the logits W_h h + W_c c + b. A part that is not read has no rows."""

    state: Float[Array, "N H"]
    context: Float[Array, "M D"]
    bias: Float[Array, " V"]


class AttentionInputs(NamedTuple):
    """Keys and memory of all sources. `lengths` are at least 1; nothing beyond them is read."""

    keys: Float[Array, "B S A"]
    memory: Float[Array, "B S D"]
    lengths: Int[Array, " B"]


class InitialState(NamedTuple):
    """State at the first step: h, c if the cell has one, and the initial attention weights if the score reads them."""

    hidden: Float[Array, "N H"]
    cell: Float[Array, "N H"] | None
    attention_state: Float[Array, "N S"] | None


class SearchLimits(NamedTuple):
    """Symbols and lengths that a search allows, and how many candidates it records."""

    suppressed: Bool[np.ndarray, " V"]
    """Symbols that have probability zero."""
    min_length: int
    """Number of symbols before which EOS is not chosen. It keeps its probability."""
    max_length: int
    num_candidates: int
    """Number of most probable symbols recorded at each step."""


class KernelSearchOutput(NamedTuple):
    """Padded outputs of a greedy or beam search, one per row; values beyond an output's `steps` are undefined."""

    ids: Int[np.ndarray, "N T"]
    log_probabilities: Float[np.ndarray, "N T"]
    weights: Float[np.ndarray, "N T S"]
    top_ids: Int[np.ndarray, "N T C"]
    top_log_probabilities: Float[np.ndarray, "N T C"]
    steps: Int[np.ndarray, " N"]


class KernelStepOutput(NamedTuple):
    """Arrays of one decoder step; `cell` is empty where the cell has no cell state."""

    hidden: Float[Array, "R H"]
    cell: Float[Array, "C H"]
    contexts: Float[Array, "R D"]
    weights: Float[Array, "R S"]
    logits: Float[Array, "R V"]
