"""Arguments and results of kernels, and the tables of cells and scores that kernels compute.

Neither Numba nor PyTorch is needed to import this module. Kernels take and return arrays; tensor_functions.py passes
PyTorch's tensors in the same fields. Numbers are float32, ids and lengths int64, masks bool; kernels refuse arrays of
other types.

B sources, S source positions, R hypotheses of a search, A units of the keys, D memory, H hidden, G numbers of all gates
(Q gates times H), L layers of the decoder, U = L − 1 layers above the first, V symbols, T steps, F filters of N
positions. In `RecurrentOutput`, N directions; in `KernelDecoderState`, N rows; in `KernelSearchOutput`, N outputs and C
candidates of a step. Elsewhere N, M and C are lengths of optional arrays, and 0 where the class or the field says that
there is none.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pellucid.shapes import Bool, Float, Int

Array = Any
"""An array, or a tensor."""
NO_ROWS = np.empty((0, 0), np.float32)
NO_UNITS = np.empty(0, np.float32)
NO_LAYERS = np.empty((0, 0, 0), np.float32)
"""Empty arrays in place of the parameters that a score or a decoder does not have."""


class CellLayout(NamedTuple):
    """Layout of a recurrent cell in kernels. All fields are integers, which compiled code reads."""

    cell_type: int
    """Number by which `cells.cell_forward` and `cells.cell_backward` select the equations."""
    gates: int
    """Q, the number of gates, the candidate included: 3 for a GRU, 4 for an LSTM."""
    states: int
    """Number of state vectors: 1 for h; 2 for h and c."""
    buffers: int
    """Number of vectors that a step stores for the backward pass, those of the gates first."""
    gated: int
    """Index of the gate whose U h another gate multiplies (n of a GRU), which must be the last gate; −1 for none. Its
    U h has the buffer after the gates, and its hidden bias, `bias_n`, is added there."""


GRU = CellLayout(cell_type=0, gates=3, states=1, buffers=4, gated=2)
LSTM = CellLayout(cell_type=1, gates=4, states=2, buffers=5, gated=-1)
CELL_LAYOUTS: Mapping[str, CellLayout] = {"gru": GRU, "lstm": LSTM}
"""The cells that Numba kernels compute, by their name in the settings."""


class ScoreLayout(NamedTuple):
    """Properties of an attention score on which kernels depend. Compiled code reads all fields."""

    score: int
    """Number by which attention.py selects the equations."""
    projects_query: bool
    """True if the query is W h, which `attention.project_queries` computes; False if it is the decoder state h."""
    adds_key_gradients: bool
    """True if `attention.attention_backward` adds the gradients of the keys step by step; False if they are one product
    over all steps, Σ_t de_ts q_t, because e is q · k."""
    reads_weights: bool
    """True if the score reads the attention weights of the previous step."""


DOT_PRODUCT = ScoreLayout(score=0, projects_query=False, adds_key_gradients=False, reads_weights=False)
ADDITIVE = ScoreLayout(score=1, projects_query=True, adds_key_gradients=True, reads_weights=False)
LOCATION_SENSITIVE = ScoreLayout(score=2, projects_query=True, adds_key_gradients=True, reads_weights=True)
SCORES: Mapping[str, ScoreLayout] = {
    "additive": ADDITIVE,
    "location": LOCATION_SENSITIVE,
    "dot": DOT_PRODUCT,
    "general": DOT_PRODUCT,
    "scaled-dot": DOT_PRODUCT,
}
"""The scores that Numba kernels compute, by the kind of attention; dot products differ only in their keys."""


class DirectionParameters(NamedTuple):
    """Parameters of one direction of a recurrent layer: its projected inputs and its recurrent parameters."""

    layout: CellLayout
    projected_inputs: Float[Array, "V G"]
    """W x + b of each distinct input vector, one per row, gate by gate, with every bias except `bias_n`."""
    weight: Float[Array, "G H"]
    """U of all gates, one below the other."""
    bias_n: Float[Array, " C"]
    """Hidden bias of the gate `layout.gated`; empty where the cell has no such gate."""


class DecoderParameters(NamedTuple):
    """Parameters of one decoder step: those of the cells and of the attention score.

    Each layer above the first reads the output of the one below: the hidden state, with layer normalization if there
    is one, and with residuals added to the output of the layer below it. Attention reads the top layer's hidden state.

    Additive score: e = energyᵀ tanh(query h + key). Location-sensitive: e = energyᵀ tanh(query h + key + location f),
    where f are the filters over the attention weights of the previous step. Dot products: e = h · key.
    """

    cell_layout: CellLayout
    score_layout: ScoreLayout
    projected_inputs: Float[Array, "V G"]
    """W x + b of the embedding x of each target symbol, gate by gate, with every bias except `bias_n`."""
    bias_n: Float[Array, " C"]
    """Hidden bias of the gate `cell_layout.gated`; empty where the cell has no such gate."""
    recurrent: Float[Array, "G H"]
    """U, the weights of the previous hidden state."""
    context: Float[Array, "G D"]
    """C, the weights of the context."""
    query: Float[Array, "A H"] = NO_ROWS
    energy: Float[Array, " A"] = NO_UNITS
    location: Float[Array, "A F"] = NO_ROWS
    filters: Float[Array, "F N"] = NO_ROWS
    upper_inputs: Float[Array, "U G H"] = NO_LAYERS
    """W of each layer above the first."""
    upper_biases: Float[Array, "U G"] = NO_ROWS
    """b of each layer above the first: every bias except `upper_bias_n`."""
    upper_bias_n: Float[Array, "U C"] = NO_ROWS
    """`bias_n` of each layer above the first."""
    upper_recurrent: Float[Array, "U G H"] = NO_LAYERS
    """U of each layer above the first."""
    norm_weights: Float[Array, "N H"] = NO_ROWS
    """Weight of the layer normalization of every layer's output, N = L; without rows if there is none. Unrolled steps
    do not read that of the top layer, whose output is normalized after all steps."""
    norm_biases: Float[Array, "N H"] = NO_ROWS
    residual: bool = False
    """Whether the output of the layer below is added to that of each layer above the first."""
    bfloat16: bool = False
    """Whether products of training are in bfloat16, with sums in float32."""


class RecurrentOutput(NamedTuple):
    """States of all directions of a recurrent layer."""

    states: Float[Array, "B S N H"]
    """Hidden states, zero beyond a row's length."""
    final: Float[Array, "B N H"]
    """Final state of each direction: forward at the last position of a row, backward at the first."""


class DecoderOutput(NamedTuple):
    """States, contexts and attention weights of all steps over known symbols."""

    states: Float[Array, "B T H"]
    """Hidden states of the first layer."""
    contexts: Float[Array, "B T D"]
    weights: Float[Array, "B T S"]
    final_cell_state: Float[Array, "C L H"]
    """Cell state after the last step, C = B; without rows where the cell has none."""
    upper_states: Float[Array, "U B T H"]
    """Hidden states of the layers above the first."""


class OutputLayerParameters(NamedTuple):
    """Parameters of the logits W_h y + W_c c + b, where y is the output of the top layer and c the context.

    N = M = V, but the matrix of an input that the output layer does not read has no rows.
    """

    state: Float[Array, "N H"]
    context: Float[Array, "M D"]
    bias: Float[Array, " V"]


class AttentionInputs(NamedTuple):
    """Keys and memory (encoder states) of all sources, and their numbers of positions.

    `lengths` are at least 1; keys and memory beyond them are never read.
    """

    keys: Float[Array, "B S A"]
    memory: Float[Array, "B S D"]
    lengths: Int[Array, " B"]


class KernelDecoderState(NamedTuple):
    """State of the decoder before a step.

    It has N rows: one per source before the first step of a search or of unrolled steps, and one row per hypothesis in
    `PreparedDecoder.step`.
    """

    hidden: Float[Array, "N L H"]
    cell_state: Float[Array, "N L H"] | None
    """Cell state of an LSTM; None where the cell has none."""
    attention_state: Float[Array, "N S"] | None
    """Attention weights of the previous step; None unless the score is location-sensitive."""


class SearchLimits(NamedTuple):
    """Suppressed symbols and length limits of a search, and the number of candidates that it records."""

    suppressed: Bool[np.ndarray, " V"]
    """Symbols that have probability zero."""
    min_length: int
    """Number of symbols, without EOS, before which EOS is not chosen. It keeps its probability."""
    max_length: int
    """Largest number of symbols, without EOS. EOS may follow as one more step."""
    num_candidates: int
    """C, the number of most probable symbols recorded at each step; at most V."""


class KernelSearchOutput(NamedTuple):
    """Padded outputs of a greedy or beam search, one per row; values beyond an output's `steps` are undefined."""

    ids: Int[np.ndarray, "N T"]
    log_probabilities: Float[np.ndarray, "N T"]
    """Log-probability of each symbol of `ids`."""
    weights: Float[np.ndarray, "N T S"]
    """Attention weights of each step; zero beyond the length of the source."""
    top_ids: Int[np.ndarray, "N T C"]
    """The C most probable symbols of each step, in descending order."""
    top_log_probabilities: Float[np.ndarray, "N T C"]
    steps: Int[np.ndarray, " N"]
    """Number of steps of each output: its symbols, and EOS unless it was truncated at the maximum length."""


class KernelStepOutput(NamedTuple):
    """States, contexts c, attention weights and logits of one decoder step, one row per hypothesis.

    `cell_state` has C = R rows, and none where the cell has no cell state.
    """

    hidden: Float[Array, "R L H"]
    cell_state: Float[Array, "C L H"]
    contexts: Float[Array, "R D"]
    weights: Float[Array, "R S"]
    logits: Float[Array, "R V"]
    outputs: Float[Array, "R H"]
    """Output y of the top layer, which the output layer reads."""
