"""Recurrent cells in NumPy; the equations are those of `pellucid.model.cells`.

B rows, I inputs, H hidden units, G numbers of all gates, N numbers of a row.
"""

from typing import NamedTuple

import numpy as np

from pellucid.runtime.parameters import CellArrays, LayerNormArrays
from pellucid.shapes import Float

EPSILON = 1e-5
"""Added to the variance by layer normalization, as in PyTorch."""


class CellState(NamedTuple):
    """State of one layer: h, and c of an LSTM."""

    hidden: Float[np.ndarray, "B H"]
    cell: Float[np.ndarray, "B H"] | None = None

    def take(self, rows: np.ndarray) -> "CellState":
        """Return the state of some rows.

        Args:
            rows: Indices of the rows, in the order of the result.
        """
        return CellState(self.hidden[rows], None if self.cell is None else self.cell[rows])


def sigmoid(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return σ(x) = (1 + tanh(x / 2)) / 2, which overflows for no x.

    Args:
        values: x.
    """
    result: Float[np.ndarray, ...] = np.tanh(values * np.float32(0.5)) * np.float32(0.5) + np.float32(0.5)
    return result


def normalize(values: Float[np.ndarray, "*rows N"]) -> Float[np.ndarray, "*rows N"]:
    """Return values with mean 0 and variance 1 in each row.

    Args:
        values: Numbers of each row.
    """
    centered = values - values.mean(axis=-1, keepdims=True)
    variance = (centered * centered).mean(axis=-1, keepdims=True)
    result: Float[np.ndarray, "*rows N"] = centered / np.sqrt(variance + np.float32(EPSILON))
    return result


def layer_norm(values: Float[np.ndarray, "*rows H"], norm: LayerNormArrays | None) -> Float[np.ndarray, "*rows H"]:
    """Return the layer normalization of each row; the values unchanged without one.

    Args:
        values: Numbers of each row.
        norm: Parameters of the normalization; None if there is none.
    """
    return values if norm is None else normalize(values) * norm.weight + norm.bias


def project_inputs(cell: CellArrays, inputs: Float[np.ndarray, "*rows I"]) -> Float[np.ndarray, "*rows G"]:
    """Return W x + b of all gates; W x for a cell with normalization, which adds b later.

    Args:
        cell: Parameters of the cell.
        inputs: x.
    """
    projected: Float[np.ndarray, "*rows G"] = inputs @ cell.input_weight.T
    return projected if cell.normalization is not None else projected + cell.input_bias


def step_cell(cell: CellArrays, projected: Float[np.ndarray, "B G"], state: CellState) -> CellState:
    """Return the state after a step.

    Args:
        cell: Parameters of the cell.
        projected: The input's part of the preactivations (`project_inputs`), with that of the context added.
        state: State before the step.
    """
    recurrent = state.hidden @ cell.hidden_weight.T
    if cell.normalization is None:
        recurrent = recurrent + cell.hidden_bias
    else:
        projected = _normalize_gates(cell, projected) * cell.normalization.input_gain + cell.input_bias
        recurrent = _normalize_gates(cell, recurrent) * cell.normalization.hidden_gain + cell.hidden_bias
    if cell.kind == "gru":
        return CellState(_step_gru(projected, recurrent, state.hidden))
    return _step_lstm(
        projected, recurrent, state, None if cell.normalization is None else cell.normalization.cell_state
    )


def _step_gru(
    projected: Float[np.ndarray, "B G"], recurrent: Float[np.ndarray, "B G"], hidden: Float[np.ndarray, "B H"]
) -> Float[np.ndarray, "B H"]:
    """Return h' of a GRU."""
    size = hidden.shape[1]
    gates = sigmoid(projected[:, : 2 * size] + recurrent[:, : 2 * size])
    reset, update = gates[:, :size], gates[:, size:]
    candidate = np.tanh(projected[:, 2 * size :] + reset * recurrent[:, 2 * size :])
    new_hidden: Float[np.ndarray, "B H"] = candidate + update * (hidden - candidate)
    return new_hidden


def _step_lstm(
    projected: Float[np.ndarray, "B G"],
    recurrent: Float[np.ndarray, "B G"],
    state: CellState,
    norm: LayerNormArrays | None,
) -> CellState:
    """Return h' and c' of an LSTM; `norm` is that of c' where h' is computed from it."""
    assert state.cell is not None, "an LSTM has a cell state"
    inputs, forget, candidate, output = np.split(projected + recurrent, 4, axis=1)
    cell = sigmoid(forget) * state.cell + sigmoid(inputs) * np.tanh(candidate)
    return CellState(sigmoid(output) * np.tanh(layer_norm(cell, norm)), cell)


def _normalize_gates(cell: CellArrays, preactivations: Float[np.ndarray, "B G"]) -> Float[np.ndarray, "B G"]:
    """Return preactivations normalized over all gates; of a GRU over r and z together, and over n."""
    if cell.kind == "lstm":
        return normalize(preactivations)
    size = preactivations.shape[1] // 3 * 2
    return np.concatenate([normalize(preactivations[:, :size]), normalize(preactivations[:, size:])], axis=1)
