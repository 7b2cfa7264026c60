"""The encoder in NumPy; the equations are those of `pellucid.model.encoder`.

B sources, S source positions, E embedding, D memory (an encoder state), H hidden units of a direction, I inputs of a
layer, F filters.
"""

from typing import NamedTuple

import numpy as np

from pellucid.config.settings import EncoderConfig
from pellucid.data.vocabulary import UNK
from pellucid.runtime.cells import CellState, layer_norm, project_inputs, step_cell
from pellucid.runtime.parameters import CellArrays, ConvolutionArrays, EncoderArrays, EncoderLayerArrays
from pellucid.shapes import Bool, Float, Int


class EncodedSources(NamedTuple):
    """Output of the encoder for a batch, which attention reads."""

    states: Float[np.ndarray, "B S D"]
    """State of the top layer at each source position; zero beyond a row's length."""
    lengths: Int[np.ndarray, " B"]
    """Number of positions of each source."""
    final: Float[np.ndarray, "B D"]
    """Final state of the top layer, both directions merged."""
    source: Int[np.ndarray, "B S"]
    """Source ids, for a decoder that copies."""

    def length_mask(self) -> Bool[np.ndarray, "B S"]:
        """Return True at real positions, False at padding."""
        return length_mask(self.lengths, self.states.shape[1])

    def take(self, rows: Int[np.ndarray, " b"]) -> "EncodedSources":
        """Return some sources.

        Args:
            rows: Rows of the sources.
        """
        return EncodedSources(*(values[rows] for values in self))


def length_mask(lengths: Int[np.ndarray, " B"], num_positions: int) -> Bool[np.ndarray, "B S"]:
    """Return True at the real positions of each row, False beyond its length.

    Args:
        lengths: Number of real positions of each row.
        num_positions: S.
    """
    mask: Bool[np.ndarray, "B S"] = np.arange(num_positions) < lengths[:, None]
    return mask


def encode(
    encoder: EncoderArrays, config: EncoderConfig, source: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"]
) -> EncodedSources:
    """Encode sources. Ids beyond a row's length change nothing.

    Args:
        encoder: Parameters of the encoder.
        config: Its settings.
        source: Ids of each source, features first. Ids outside the table are read as UNK.
        lengths: Number of real positions of each row, at least 1.
    """
    known = np.where(source < len(encoder.embedding), source, UNK)
    states: Float[np.ndarray, "B S E"] = encoder.embedding[known]
    if config.feature_merge == "sum":
        states, source, lengths = _sum_features(states, source, lengths, known >= encoder.num_symbols)
    mask = length_mask(lengths, states.shape[1])[:, :, None]
    if encoder.convolutions:
        states = _convolve(encoder.convolutions, states, mask)
    final = states[:, 0]
    for index, layer in enumerate(encoder.layers):
        output, final = _run_layer(layer, config, states, lengths)
        output = layer_norm(output, layer.normalization) * mask
        states = states + output if config.residual and index else output
    return EncodedSources(states, lengths, final, source)


def _run_layer(
    layer: EncoderLayerArrays,
    config: EncoderConfig,
    inputs: Float[np.ndarray, "B S I"],
    lengths: Int[np.ndarray, " B"],
) -> tuple[Float[np.ndarray, "B S D"], Float[np.ndarray, "B D"]]:
    """Return the states and the final state of one layer, both directions merged."""
    states = [run_cell(layer.directions[0], inputs)]
    finals = [states[0][np.arange(len(lengths)), lengths - 1]]
    for cell in layer.directions[1:]:
        order = _reversed_positions(lengths, inputs.shape[1])[:, :, None]
        backward = np.take_along_axis(run_cell(cell, np.take_along_axis(inputs, order, axis=1)), order, axis=1)
        states.append(backward)
        finals.append(backward[:, 0])
    return _merge(states, config), _merge(finals, config)


def _merge(directions: list[np.ndarray], config: EncoderConfig) -> np.ndarray:
    """Return the states of all directions as one."""
    match config.merge:
        case "concatenate":
            return np.concatenate(directions, axis=-1)
        case "sum":
            return np.asarray(sum(directions))
        case "product":
            return directions[0] if len(directions) == 1 else directions[0] * directions[1]


def run_cell(cell: CellArrays, inputs: Float[np.ndarray, "B S I"]) -> Float[np.ndarray, "B S H"]:
    """Return the hidden states of a cell run from zero over all positions of every row; lengths are ignored.

    Args:
        cell: Parameters of the cell.
        inputs: Vectors of each row.
    """
    projected, size = project_inputs(cell, inputs), cell.hidden_weight.shape[1]
    zero = np.zeros((len(inputs), size), np.float32)
    state = CellState(zero, zero if cell.kind == "lstm" else None)
    states = np.empty((*inputs.shape[:2], size), np.float32)
    for position in range(inputs.shape[1]):
        state = step_cell(cell, projected[:, position], state)
        states[:, position] = state.hidden
    return states


def _reversed_positions(lengths: Int[np.ndarray, " B"], num_positions: int) -> Int[np.ndarray, "B S"]:
    """Return the positions that reverse each row within its length; padding keeps its positions."""
    positions = np.arange(num_positions)
    mirrored = lengths[:, None] - 1 - positions
    return np.where(mirrored >= 0, mirrored, positions)


def _sum_features(
    vectors: Float[np.ndarray, "B S E"],
    source: Int[np.ndarray, "B S"],
    lengths: Int[np.ndarray, " B"],
    features: Bool[np.ndarray, "B S"],
) -> tuple[Float[np.ndarray, "B S E"], Int[np.ndarray, "B S"], Int[np.ndarray, " B"]]:
    """Return the symbols, from position 0 on, each plus the sum of its row's features; with their ids and lengths."""
    counts = features.sum(axis=1)
    indices = np.minimum(np.arange(source.shape[1]) + counts[:, None], source.shape[1] - 1)
    summed = (vectors * features[:, :, None]).sum(axis=1, keepdims=True, dtype=np.float32)
    combined = np.take_along_axis(vectors, indices[:, :, None], axis=1) + summed
    return combined, np.take_along_axis(source, indices, axis=1), lengths - counts


def _convolve(
    convolutions: tuple[ConvolutionArrays, ...], vectors: Float[np.ndarray, "B S E"], mask: Bool[np.ndarray, "B S 1"]
) -> Float[np.ndarray, "B S F"]:
    """Return all filters' outputs at every position, zero beyond each row's length."""
    maps = []
    for layer in convolutions:
        width = layer.weight.shape[2]
        padded = np.pad(vectors * mask, ((0, 0), ((width - 1) // 2, width // 2), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)  # B S E W
        flat = windows.reshape(*windows.shape[:2], -1)
        maps.append(np.maximum(flat @ layer.weight.reshape(len(layer.weight), -1).T + layer.bias, 0))
    result: Float[np.ndarray, "B S F"] = np.concatenate(maps, axis=2) * mask
    return result
