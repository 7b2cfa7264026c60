"""The decoder layers above the first, one step forward and backward; equations as in model/decoder.py.

Decoder layer l reads the output y of the layer below, with dropout m: x_l = m ⊙ y_{l−1}. The output is y_l = LN(h_l),
with residuals y_l = y_{l−1} + LN(h_l); LN is layer normalization, or the identity. The first layer, which reads symbols
and contexts, is in unroll.py and decoder_step.py.

U upper layers, L = U + 1 layers, B rows, T steps, T1 = T + 1, H hidden, P buffers of a step, Q gates, G = Q·H,
F = T·B·H, K steps of the dropout masks: 1 or T. N, C and M are lengths of optional arrays, and 0 without them: N = L
with layer normalization, C = B for cell states, C = H for `bias_n`, M = U with dropout. Upper layer 0 is the second
layer of the decoder.
"""

from typing import NamedTuple

import numpy as np

from pellucid.kernels.arithmetic import ONE, ZERO, Flat, add_, copy_, gemm, gemm_add
from pellucid.kernels.cells import FlatState, GateBuffers, cell_backward, cell_forward
from pellucid.kernels.compilation import njit_no_refcount
from pellucid.kernels.recurrence import add_recurrent, add_recurrent_backward
from pellucid.kernels.runtime import contiguous
from pellucid.kernels.types import CellLayout, DecoderParameters
from pellucid.shapes import Float

NORM_EPSILON = np.float32(1e-5)
"""ε of layer normalization, as in `torch.nn.LayerNorm`."""


class UpperCells(NamedTuple):
    """Parameters of the upper layers, gate by gate, and of the layer normalization of all layers.

    Those ending in `_t` are transposed, for the forward pass.
    """

    layout: CellLayout
    biases: Float[np.ndarray, "U G"]
    """b, every bias except `bias_n`."""
    bias_n: Float[np.ndarray, "U C"]
    """Hidden bias of the gate `layout.gated`; empty where the cell has no such gate."""
    inputs: Float[np.ndarray, "U Q H H"]
    """W of each gate."""
    recurrent: Float[np.ndarray, "U Q H H"]
    """U of each gate."""
    inputs_t: Float[np.ndarray, "U Q H H"]
    recurrent_t: Float[np.ndarray, "U Q H H"]
    norm_weights: Float[np.ndarray, "N H"]
    norm_biases: Float[np.ndarray, "N H"]
    residual: bool
    bfloat16: bool
    """Whether products are in bfloat16, with sums in float32."""


class UpperTape(NamedTuple):
    """States of the upper layers, and values for the backward pass. The states begin with the initial one."""

    hidden: Float[np.ndarray, "U T1 B H"]
    cell_state: Float[np.ndarray, "U T1 C H"]
    inputs: Float[np.ndarray, "U T B H"]
    """x of each step."""
    buffers: Float[np.ndarray, "U P F"]
    masks: Float[np.ndarray, "M B K H"]
    """Dropout masks m, of one step that all share, or of all steps; M is U, or 0 without dropout."""
    outputs: Float[np.ndarray, "B H"]
    """y of the present step and layer; in the backward pass, its gradient."""


class UpperGradients(NamedTuple):
    """Gradients of the upper layers' states and of the layer normalization, and scratch memory."""

    hidden: Float[np.ndarray, "U T1 B H"]
    """Gradients of the hidden states after each step, at the indices from 1 on; index 0 becomes the initial state's."""
    cell_state: Float[np.ndarray, "U C H"]
    """Gradient of the last cell state; becomes that of the initial one."""
    norm_weights: Float[np.ndarray, "N H"]
    norm_biases: Float[np.ndarray, "N H"]
    inputs: Float[np.ndarray, "B H"]
    """Gradient of x of the present step and layer."""


class LayerOutput(NamedTuple):
    """h of the first layer of the decoder after a step, and its gradient."""

    hidden: Float[np.ndarray, "B H"]
    gradient: Float[np.ndarray, "B H"]


def upper_cells(parameters: DecoderParameters) -> UpperCells:
    """Return the parameters of the upper layers as contiguous arrays, gate by gate.

    Args:
        parameters: Parameters of a decoder step.
    """
    layers = len(parameters.upper_inputs)
    size = parameters.upper_inputs.shape[2]
    shape = layers, parameters.cell_layout.gates, size, size
    inputs = contiguous(parameters.upper_inputs).reshape(shape)
    recurrent = contiguous(parameters.upper_recurrent).reshape(shape)
    return UpperCells(
        layout=parameters.cell_layout,
        biases=contiguous(parameters.upper_biases),
        bias_n=contiguous(parameters.upper_bias_n),
        inputs=inputs,
        recurrent=recurrent,
        inputs_t=contiguous(inputs.transpose(0, 1, 3, 2)),
        recurrent_t=contiguous(recurrent.transpose(0, 1, 3, 2)),
        norm_weights=contiguous(parameters.norm_weights),
        norm_biases=contiguous(parameters.norm_biases),
        residual=parameters.residual,
        bfloat16=parameters.bfloat16,
    )


@njit_no_refcount
def upper_preactivations(
    cells: UpperCells,
    layer: int,
    inputs: Float[np.ndarray, "B H"],
    before: Float[np.ndarray, "B H"],
    buffers: GateBuffers,
    offset: int,
) -> None:
    """Compute the preactivations of all gates of an upper layer: W x + b and U h, as `cells.cell_forward` reads them.

    Args:
        cells: Parameters of the upper layers.
        layer: Index of the upper layer.
        inputs: x.
        before: h, before the step.
        buffers: Output: one buffer per gate.
        offset: Index at which the step begins in each buffer.
    """
    layout = cells.layout
    size = before.shape[1]
    for gate in range(layout.gates):
        buffer = buffers[gate, offset : offset + before.size].reshape(before.shape)
        _fill_rows(buffer, cells.biases[layer, gate * size : (gate + 1) * size])
        gemm_add(inputs, cells.inputs_t[layer, gate], buffer, cells.bfloat16)
    if layout.gated >= 0:
        _fill_rows(buffers[layout.gates, offset : offset + before.size].reshape(before.shape), cells.bias_n[layer])
    add_recurrent(layout, before, cells.recurrent_t[layer], buffers, offset, cells.bfloat16)


@njit_no_refcount
def _fill_rows(values: Float[np.ndarray, "B H"], row_values: Flat) -> None:
    """Write a vector to every row."""
    for row in range(values.shape[0]):
        copy_(values[row], row_values)


@njit_no_refcount
def layer_output(
    cells: UpperCells, layer: int, hidden: Float[np.ndarray, "B H"], outputs: Float[np.ndarray, "B H"]
) -> None:
    """Replace y_{l−1} by y_l = LN(h_l), or with residuals by y_{l−1} + LN(h_l).

    Args:
        cells: Residual connections and layer normalization.
        layer: l, index of the layer of the decoder, of which the first, 0, has no residual connection.
        hidden: h_l.
        outputs: y_{l−1}, replaced by y_l.
    """
    adds = cells.residual and layer > 0
    if cells.norm_weights.shape[0] > 0:
        for row in range(hidden.shape[0]):
            if not adds:
                outputs[row] = ZERO
            _add_normalized(hidden[row], cells.norm_weights[layer], cells.norm_biases[layer], outputs[row])
    elif adds:
        add_(outputs.reshape(-1), hidden.reshape(-1))
    else:
        copy_(outputs.reshape(-1), hidden.reshape(-1))


@njit_no_refcount
def _moments(values: Flat) -> tuple[np.float32, np.float32]:
    """Return the mean of the values, and 1 / √(variance + ε)."""
    count = np.float32(values.shape[0])
    total = ZERO
    squares = ZERO
    for i in range(values.shape[0]):
        total += values[i]
    mean = total / count
    for i in range(values.shape[0]):
        squares += (values[i] - mean) * (values[i] - mean)
    return mean, ONE / np.sqrt(squares / count + NORM_EPSILON)


@njit_no_refcount
def _add_normalized(values: Flat, weight: Flat, bias: Flat, outputs: Flat) -> None:
    """Compute outputs += LN(values)."""
    mean, scale = _moments(values)
    for i in range(values.shape[0]):
        outputs[i] += (values[i] - mean) * scale * weight[i] + bias[i]


@njit_no_refcount
def _layer_output_backward(
    cells: UpperCells,
    layer: int,
    hidden: Float[np.ndarray, "B H"],
    outputs: Float[np.ndarray, "B H"],
    hidden_gradient: Float[np.ndarray, "B H"],
    gradients: UpperGradients,
) -> None:
    """Add the gradient of h_l through y_l = … + LN(h_l), whose gradient `outputs` has; add those of LN's parameters."""
    if cells.norm_weights.shape[0] == 0:
        add_(hidden_gradient.reshape(-1), outputs.reshape(-1))
        return
    weight_gradient, bias_gradient = gradients.norm_weights[layer], gradients.norm_biases[layer]
    for row in range(hidden.shape[0]):
        add_(bias_gradient, outputs[row])
        _normalize_backward(hidden[row], cells.norm_weights[layer], outputs[row], weight_gradient, hidden_gradient[row])


@njit_no_refcount
def _normalize_backward(
    values: Flat, weight: Flat, gradient: Flat, weight_gradient: Flat, value_gradient: Flat
) -> None:
    """Add the gradient of the weight, and that of the values v through n = (v − mean v) / σ.

    It is (dn − mean dn − n mean(n dn)) / σ.
    """
    mean, scale = _moments(values)
    count = np.float32(values.shape[0])
    total = ZERO
    product = ZERO
    for i in range(values.shape[0]):
        normalized, change = (values[i] - mean) * scale, gradient[i] * weight[i]
        weight_gradient[i] += gradient[i] * normalized
        total += change
        product += change * normalized
    total, product = total / count, product / count
    for i in range(values.shape[0]):
        normalized = (values[i] - mean) * scale
        value_gradient[i] += (gradient[i] * weight[i] - total - normalized * product) * scale


@njit_no_refcount
def _multiply_mask(
    values: Float[np.ndarray, "B H"], masks: Float[np.ndarray, "M B K H"], layer: int, step: int
) -> None:
    """Multiply every row by its dropout mask of a layer and step; there may be none, or one for all steps."""
    if masks.shape[0] == 0:
        return
    mask_step = min(step, masks.shape[2] - 1)
    for row in range(values.shape[0]):
        row_values = values[row]
        mask = masks[layer, row, mask_step]
        for i in range(row_values.shape[0]):
            row_values[i] *= mask[i]


@njit_no_refcount
def upper_layers_forward(cells: UpperCells, tape: UpperTape, first_layer: Float[np.ndarray, "B H"], step: int) -> None:
    """Take one step of all upper layers.

    Args:
        cells: Parameters of the upper layers.
        tape: States before the step; those after it are written.
        first_layer: h of the first layer of the decoder after the step.
        step: Index of the step.
    """
    below = first_layer
    offset = step * first_layer.size
    for layer in range(cells.inputs.shape[0]):
        inputs = tape.inputs[layer, step]
        layer_output(cells, layer, below, tape.outputs)
        copy_(inputs.reshape(-1), tape.outputs.reshape(-1))
        _multiply_mask(inputs, tape.masks, layer, step)
        upper_preactivations(cells, layer, inputs, tape.hidden[layer, step], tape.buffers[layer], offset)
        before = FlatState(tape.hidden[layer, step].reshape(-1), tape.cell_state[layer, step].reshape(-1))
        after = FlatState(tape.hidden[layer, step + 1].reshape(-1), tape.cell_state[layer, step + 1].reshape(-1))
        cell_forward(cells.layout, tape.buffers[layer], offset, before, after)
        below = tape.hidden[layer, step + 1]


@njit_no_refcount
def upper_layers_backward(
    cells: UpperCells,
    tape: UpperTape,
    gradients: UpperGradients,
    first_layer: LayerOutput,
    step: int,
) -> None:
    """Take the backward pass through one step of all upper layers, from the top.

    Gradients of the preactivations replace the values in `tape.buffers`.

    Args:
        cells: Parameters of the upper layers.
        tape: Results of `upper_layers_forward`, overwritten.
        gradients: Gradients of the states after the step; those of the states before it are added.
        first_layer: h of the first layer of the decoder after the step; its gradient is changed in place.
        step: Index of the step.
    """
    layout = cells.layout
    num_layers = cells.inputs.shape[0]
    offset = step * first_layer.hidden.size
    for layer in range(num_layers - 1, -1, -1):
        hidden = gradients.hidden[layer, step + 1]
        buffers = tape.buffers[layer]
        before = FlatState(tape.hidden[layer, step].reshape(-1), tape.cell_state[layer, step].reshape(-1))
        after = FlatState(hidden.reshape(-1), gradients.cell_state[layer].reshape(-1))
        cell_backward(layout, buffers, offset, after, before)
        _inputs_backward(cells, layer, buffers, offset, gradients.inputs)
        _multiply_mask(gradients.inputs, tape.masks, layer, step)
        if cells.residual and layer < num_layers - 1:
            add_(tape.outputs.reshape(-1), gradients.inputs.reshape(-1))
        else:
            copy_(tape.outputs.reshape(-1), gradients.inputs.reshape(-1))
        below = first_layer.hidden
        below_gradient = first_layer.gradient
        if layer > 0:
            below = tape.hidden[layer - 1, step + 1]
            below_gradient = gradients.hidden[layer - 1, step + 1]
        _layer_output_backward(cells, layer, below, tape.outputs, below_gradient, gradients)
        previous_hidden = gradients.hidden[layer, step]
        add_(previous_hidden.reshape(-1), hidden.reshape(-1))
        add_recurrent_backward(layout, buffers, offset, cells.recurrent[layer], previous_hidden, cells.bfloat16)


@njit_no_refcount
def _inputs_backward(
    cells: UpperCells, layer: int, buffers: GateBuffers, offset: int, inputs: Float[np.ndarray, "B H"]
) -> None:
    """Compute the gradient of x from those of the preactivations."""
    for gate in range(cells.layout.gates):
        buffer = buffers[gate, offset : offset + inputs.size].reshape(inputs.shape)
        if gate == 0:
            gemm(buffer, cells.inputs[layer, gate], inputs, cells.bfloat16)
        else:
            gemm_add(buffer, cells.inputs[layer, gate], inputs, cells.bfloat16)
