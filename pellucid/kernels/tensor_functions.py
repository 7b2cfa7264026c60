"""The CPU kernels as functions of PyTorch tensors, most of them with gradients.

The other modules of the CPU kernels take NumPy arrays. A function that exists for both has the suffix `_numpy` for
arrays: `beam_search` is here, `beam_search_numpy` in search.py.

B rows, S positions, N directions (1 or 2), T steps, A units of the keys, D memory, H hidden, G numbers of all gates, L
layers of the decoder, U = L − 1 layers above the first, V rows of projected inputs or symbols, R hypotheses of a
search, M rows of a product or real positions of a group, K inputs of a projection or steps of dropout masks, P buffers
of a step. C is the length of an optional array, and 0 without it: B for cell states, H for `bias_n`.
"""

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.kernels import attention, decoder_step, search, unroll
from pellucid.kernels.arithmetic import gemm, gemm_nt, gemm_tn
from pellucid.kernels.attention import AttentionScorer, KeyProjection, attention_scorer
from pellucid.kernels.cross_entropy import cross_entropy_and_gradient
from pellucid.kernels.dispatch import are_products_bfloat16
from pellucid.kernels.recurrence import (
    RecurrentParameters,
    RecurrentTape,
    RowGroup,
    recurrence_backward,
    recurrent_buffer_index,
    recurrent_parameters,
    row_groups,
    run_groups,
)
from pellucid.kernels.runtime import Result, defer_signals, empty, in_one_thread, num_slices, split_rows, thread_map
from pellucid.kernels.stacked_layers import UpperTape
from pellucid.kernels.types import (
    AttentionInputs,
    CellLayout,
    DecoderOutput,
    DecoderParameters,
    DirectionParameters,
    KernelDecoderState,
    KernelSearchOutput,
    KernelStepOutput,
    OutputLayerParameters,
    RecurrentOutput,
    ScoreLayout,
    SearchLimits,
)
from pellucid.kernels.unroll import MemoryGradients
from pellucid.shapes import Float, Int


def _array(tensor: Tensor | np.ndarray) -> np.ndarray:
    """Return the array of a tensor without a copy; an array as it is."""
    return tensor.detach().numpy() if isinstance(tensor, Tensor) else tensor


def _arrays(*tensors: Tensor | np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the arrays of several tensors."""
    return tuple(_array(tensor) for tensor in tensors)


def run_recurrence(
    directions: list[DirectionParameters], input_rows: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]
) -> RecurrentOutput:
    """Return the states of each direction, run from zero over every row on projected_inputs[row] = W x + b.

    The first direction runs from a row's first position to its last, the second from its last to its first. Gradients
    flow to the tensors of the directions, unless gradients are disabled. The backward pass runs once: a second one
    raises RuntimeError.

    Args:
        directions: Projected inputs and parameters of one or two directions of the same size.
        input_rows: Row of the projected inputs for each position.
        lengths: Number of real positions of each row, at least 1.
    """
    groups = row_groups(_array(input_rows), _array(lengths), len(directions))
    layouts = [direction.layout for direction in directions]
    tensors = [
        tensor
        for direction in directions
        for tensor in (direction.projected_inputs, direction.weight, direction.bias_n)
    ]
    shape = (*input_rows.shape, len(directions))
    if not torch.is_grad_enabled():
        output, _ = run_groups(_recurrent_parameters(layouts, tensors, False), groups, shape, False)
        return RecurrentOutput(*map(torch.from_numpy, output))
    settings = _RecurrenceSettings(layouts, groups, shape, are_products_bfloat16())
    return RecurrentOutput(*_RecurrenceFunction.apply(settings, *tensors))  # type: ignore[no-untyped-call]


class _RecurrenceSettings(NamedTuple):
    """Arguments of recurrent layers that are not tensors."""

    layouts: list[CellLayout]
    """Layout of each direction's cell."""
    groups: list[RowGroup]
    """Rows that run together."""
    shape: tuple[int, int, int]
    """B, S and N."""
    bfloat16: bool
    """Whether products are in bfloat16, with sums in float32."""


class _RecurrenceFunction(torch.autograd.Function):
    """Forward and backward by the kernels; each parameter's gradient is one product over all positions."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        settings: _RecurrenceSettings,
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return all states and the final ones.

        Args:
            ctx: Context of autograd.
            settings: Layouts, groups of rows, and type of the products.
            *tensors: Projected inputs, weight and `bias_n` of each direction.
        """
        parameters = _recurrent_parameters(settings.layouts, tensors, settings.bfloat16)
        output, ctx.tapes = run_groups(parameters, settings.groups, settings.shape, True)
        ctx.settings = settings
        ctx.save_for_backward(*tensors)
        return torch.from_numpy(output.states), torch.from_numpy(output.final)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the arguments of `forward`.

        Args:
            ctx: Context of autograd.
            grad_states: Gradients of all states.
            grad_final: Gradients of the final states.
        """
        settings: _RecurrenceSettings = ctx.settings
        weights = _recurrent_parameters(settings.layouts, ctx.saved_tensors, settings.bfloat16)
        if ctx.tapes is None:
            raise RuntimeError(
                "the backward pass ran already: its buffers are freed, so it runs only once for each forward pass"
            )
        tapes, ctx.tapes = ctx.tapes, None
        grad_outputs = (grad_states.contiguous().flatten(0, 2).numpy(), grad_final.numpy())
        pairs = list(zip(settings.groups, tapes, strict=True))
        results = thread_map(partial(_run_group_backward, weights, grad_outputs), pairs)
        summed_gradients: list[Tensor] = []
        for direction in range(len(weights)):
            group_gradients = [
                gradients
                for group, gradients in zip(settings.groups, results, strict=True)
                if group.direction == direction
            ]
            summed_gradients += [reduce(torch.add, tensors) for tensors in zip(*group_gradients, strict=True)]
        return None, *summed_gradients


def _recurrent_parameters(
    layouts: list[CellLayout],
    tensors: Any,  # noqa: ANN401 (a sequence)
    bfloat16: bool,
) -> list[RecurrentParameters]:
    """Return the weights of each direction, as the kernels read them, from the flat list that PyTorch passes."""
    arrays = _arrays(*tensors)
    return [
        recurrent_parameters(DirectionParameters(layout, *arrays[3 * index : 3 * index + 3]), bfloat16)
        for index, layout in enumerate(layouts)
    ]


def _run_group_backward(
    weights: list[RecurrentParameters],
    grad_outputs: tuple[Float[np.ndarray, "M H"], Float[np.ndarray, "B N H"]],
    group_and_tape: tuple[RowGroup, RecurrentTape],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return one group's gradients of projected inputs, weight and `bias_n` of its direction."""
    (group, tape), (grad_states, grad_final) = group_and_tape, grad_outputs
    direction_weights = weights[group.direction]
    grad_projected_inputs = recurrence_backward(
        direction_weights, group.packed, tape, grad_states, grad_final[group.rows, group.direction]
    )
    layout = direction_weights.layout
    size = direction_weights.recurrent.shape[1]
    factors = torch.from_numpy(tape.buffers).view(layout.buffers, -1, size)
    grad_weight = _recurrent_gradient(layout, factors, torch.from_numpy(tape.before), direction_weights.bfloat16)
    return torch.from_numpy(grad_projected_inputs), grad_weight, _bias_n_gradient(layout, factors)


def _recurrent_gradient(
    layout: CellLayout, buffers: Float[Tensor, "P M H"], before: Float[Tensor, "M H"], bfloat16: bool
) -> Float[Tensor, "G H"]:
    """Return the gradient of U from those of the preactivations and the states before the steps."""
    size = before.shape[1]
    weight = torch.empty(layout.gates * size, size, dtype=torch.float32)
    for gate in range(layout.gates):
        buffer = buffers[recurrent_buffer_index(layout, gate)]
        _multiply_t(buffer, before, weight[gate * size : (gate + 1) * size], bfloat16)
    return weight


def _input_gradient(
    layout: CellLayout, buffers: Float[Tensor, "P M H"], inputs: Float[Tensor, "M D"], bfloat16: bool
) -> Float[Tensor, "G D"]:
    """Return the gradient of input weights from those of the preactivations and the inputs."""
    size = buffers.shape[2]
    weight = torch.empty(layout.gates * size, inputs.shape[1], dtype=torch.float32)
    for gate in range(layout.gates):
        _multiply_t(buffers[gate], inputs, weight[gate * size : (gate + 1) * size], bfloat16)
    return weight


def _multiply_t(
    left: Float[Tensor, "M n"], right: Float[Tensor, "M N"], result: Float[Tensor, "n N"], bfloat16: bool
) -> None:
    """Compute result = leftᵀ right of contiguous tensors in the calling thread."""
    gemm_tn(left.numpy(), right.numpy(), result.numpy(), bfloat16)


def _bias_n_gradient(layout: CellLayout, buffers: Float[Tensor, "P M H"]) -> Float[Tensor, " C"]:
    """Return the gradient of the bias of the gate whose U h another gate multiplies; empty without such a gate."""
    return buffers[layout.gates].sum(dim=0) if layout.gated >= 0 else torch.empty(0, dtype=torch.float32)


def linear(inputs: Float[Tensor, "*shape K"], weight: Float[Tensor, "N K"], bias: Tensor | None) -> Tensor:
    """Return `nn.functional.linear(inputs, weight, bias)`. Gradients flow to all arguments.

    Args:
        inputs: Vectors to multiply.
        weight: W.
        bias: b, of N numbers; None if there is none.
    """
    result: Tensor = _LinearFunction.apply(are_products_bfloat16(), inputs, weight, bias)  # type: ignore[no-untyped-call]
    return result


class _LinearFunction(torch.autograd.Function):
    """Forward and backward by matrix products, one slice of the rows per thread."""

    @staticmethod
    def forward(ctx: Any, bfloat16: bool, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: ANN401
        """Return W x + b.

        Args:
            ctx: Context of autograd.
            bfloat16: Whether products are in bfloat16, with sums in float32.
            inputs: Vectors to multiply.
            weight: W.
            bias: b; None if there is none.
        """
        rows = _as_matrix(inputs)
        matrix = weight.contiguous()
        ctx.save_for_backward(rows, matrix)
        ctx.bfloat16 = bfloat16
        ctx.input_shape = inputs.shape
        ctx.has_bias = bias is not None
        result = torch.empty(len(rows), len(matrix), dtype=torch.float32)
        arrays = _arrays(rows, matrix, result)
        _map_rows(partial(_linear_rows, arrays, bfloat16), len(rows))
        if bias is not None:
            result += bias
        return result.view(*inputs.shape[:-1], len(matrix))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the arguments of `forward`.

        Args:
            ctx: Context of autograd.
            grad_output: Gradients of the result.
        """
        rows, matrix = ctx.saved_tensors
        gradients = _as_matrix(grad_output)
        grad_inputs = grad_weight = None
        if ctx.needs_input_grad[1]:
            row_gradients = torch.empty(rows.shape, dtype=torch.float32)
            arrays = _arrays(gradients, matrix, row_gradients)
            _map_rows(partial(_linear_inputs_backward, arrays, ctx.bfloat16), len(rows))
            grad_inputs = row_gradients.view(ctx.input_shape)
        if ctx.needs_input_grad[2]:
            task = partial(_linear_weight_backward, _arrays(gradients, rows), ctx.bfloat16)
            grad_weight = torch.from_numpy(reduce(np.add, _map_rows(task, len(rows))))
        grad_bias = gradients.sum(dim=0) if ctx.has_bias and ctx.needs_input_grad[3] else None
        return None, grad_inputs, grad_weight, grad_bias


def _as_matrix(vectors: Float[Tensor, "*shape K"]) -> Float[Tensor, "M K"]:
    """Return the vectors as the rows of a contiguous matrix; they may have no numbers."""
    return vectors.reshape(math.prod(vectors.shape[:-1]), vectors.shape[-1]).contiguous()


def _map_rows(task: Callable[[slice], Result], rows: int) -> list[Result]:
    """Return the results of a task for one slice of the rows per thread.

    A product returns no array, so a single one needs no deferral of signals, which takes longer than a small product.
    """
    slices = split_rows(rows, num_slices(rows))
    if len(slices) > 1:
        return thread_map(task, slices)
    with in_one_thread():
        return [task(slices[0])]


def _linear_rows(arrays: tuple[np.ndarray, ...], bfloat16: bool, rows: slice) -> None:
    """Write W x of some rows, from the arrays of the inputs, the weight and the result."""
    inputs, weight, result = arrays
    gemm_nt(inputs[rows], weight, result[rows], bfloat16)


def _linear_inputs_backward(arrays: tuple[np.ndarray, ...], bfloat16: bool, rows: slice) -> None:
    """Write the gradients of some inputs, from the arrays of the gradients, the weight and the result."""
    gradients, weight, result = arrays
    gemm(gradients[rows], weight, result[rows], bfloat16)


def _linear_weight_backward(arrays: tuple[np.ndarray, ...], bfloat16: bool, rows: slice) -> Float[np.ndarray, "N K"]:
    """Return the summand of the weight's gradient from some rows, from the arrays of the gradients and the inputs."""
    gradients, inputs = arrays
    weight = empty((gradients.shape[1], inputs.shape[1]))
    gemm_tn(gradients[rows], inputs[rows], weight, bfloat16)
    return weight


def project_keys(
    memory: Float[Tensor, "B S D"], weight: Float[Tensor, "A D"], bias: Tensor | None
) -> Float[Tensor, "B S A"]:
    """Return `nn.functional.linear(memory, weight, bias)` with the positions innermost in memory.

    Gradients flow to all arguments.

    Args:
        memory: Encoder states.
        weight: Weight of the projection.
        bias: Bias of the projection; None if there is none.
    """
    arguments = memory, weight, weight.new_zeros(0) if bias is None else bias
    keys: Tensor = _ProjectKeysFunction.apply(are_products_bfloat16(), *arguments)  # type: ignore[no-untyped-call]
    return keys


class _ProjectKeysFunction(torch.autograd.Function):
    """Forward and backward by the kernels, one slice of the rows per thread."""

    @staticmethod
    def forward(ctx: Any, bfloat16: bool, *tensors: Tensor) -> Tensor:  # noqa: ANN401
        """Return the keys, transposed.

        Args:
            ctx: Context of autograd.
            bfloat16: Whether products are in bfloat16, with sums in float32.
            *tensors: Memory, weight and bias.
        """
        ctx.save_for_backward(*tensors)
        ctx.bfloat16 = bfloat16
        return torch.from_numpy(attention.project_keys_numpy(_projection(tensors, bfloat16))).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_keys: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:  # noqa: ANN401
        """Return the gradients of memory, weight and bias.

        Args:
            ctx: Context of autograd.
            grad_keys: Gradients of the keys.
        """
        projection = _projection(ctx.saved_tensors, ctx.bfloat16)
        grad_memory = torch.empty(projection.memory.shape, dtype=torch.float32)
        grad_weight, grad_bias = attention.project_keys_backward(
            projection, grad_keys.transpose(1, 2).contiguous().numpy(), grad_memory.numpy()
        )
        return None, grad_memory, torch.from_numpy(grad_weight), torch.from_numpy(grad_bias)


def _projection(tensors: tuple[Tensor, ...], bfloat16: bool) -> KeyProjection:
    """Return the arguments of the projection as the arrays that kernels take."""
    memory, weight, bias = (tensor.detach().contiguous().numpy() for tensor in tensors)
    return KeyProjection(memory, weight, bias, bfloat16)


def unroll_decoder(
    parameters: DecoderParameters,
    symbols: Int[Tensor, "B T"],
    inputs: AttentionInputs,
    initial_state: KernelDecoderState,
    masks: Float[Tensor, "U B K H"] | None = None,
) -> DecoderOutput:
    """Return the results of all decoder steps over known symbols; each step attends from the previous state.

    Gradients flow to all floating-point arguments but the masks. The backward pass runs once: a second one raises
    RuntimeError.

    Args:
        parameters: Parameters of a decoder step.
        symbols: Decoder input ids, which are rows of `parameters.projected_inputs`.
        inputs: Keys, memory and lengths of the sources, one per row of `symbols`.
        initial_state: State before the first step, one row per source.
        masks: Dropout masks of the outputs that each layer above the first reads: of all steps, or of one step that all
            share; default none.

    Raises:
        AssertionError: The score is location-sensitive and `initial_state.attention_state` is None.
    """
    hidden, cell_state, initial_weights = initial_state
    has_weights = not parameters.score_layout.reads_weights or initial_weights is not None
    assert has_weights, "a location-sensitive score needs the initial weights"
    initial_cell_state = hidden[:0] if cell_state is None else cell_state
    weights_before = hidden.new_empty(0, 0) if initial_weights is None else initial_weights
    tensors = _UnrollTensors(
        **{name: torch.as_tensor(getattr(parameters, name)) for name in PARAMETER_NAMES},
        keys=inputs.keys,
        memory=inputs.memory,
        hidden=hidden,
        cell_state=initial_cell_state,
        initial_weights=weights_before,
    )
    settings = _DecoderSettings(
        parameters.cell_layout, parameters.score_layout, parameters.residual, are_products_bfloat16()
    )
    results = _UnrollFunction.apply(settings, symbols, inputs.lengths, masks, *tensors)  # type: ignore[no-untyped-call]
    return DecoderOutput(*results)


class _DecoderSettings(NamedTuple):
    """Fields of `DecoderParameters` that are not tensors."""

    cell_layout: CellLayout
    score_layout: ScoreLayout
    residual: bool
    bfloat16: bool
    """Whether products are in bfloat16, with sums in float32."""


PARAMETER_NAMES = tuple(name for name in DecoderParameters._fields if name not in _DecoderSettings._fields)
"""Fields of `DecoderParameters` that are tensors."""


class _UnrollTensors(NamedTuple):
    """All arguments of the steps except settings, ids, lengths and masks; or the gradients of these arguments."""

    projected_inputs: Tensor
    bias_n: Tensor
    recurrent: Tensor
    context: Tensor
    query: Tensor
    energy: Tensor
    location: Tensor
    filters: Tensor
    upper_inputs: Tensor
    upper_biases: Tensor
    upper_bias_n: Tensor
    upper_recurrent: Tensor
    norm_weights: Tensor
    norm_biases: Tensor
    keys: Tensor
    memory: Tensor
    hidden: Tensor
    cell_state: Tensor
    initial_weights: Tensor


def _decoder_parameters(settings: _DecoderSettings, tensors: DecoderParameters | _UnrollTensors) -> DecoderParameters:
    """Return the parameters of a decoder as arrays."""
    arrays: dict[str, Any] = {name: _array(getattr(tensors, name)) for name in PARAMETER_NAMES}
    return DecoderParameters(**settings._asdict(), **arrays)


class _UnrollFunction(torch.autograd.Function):
    """Forward and backward by the kernels; each weight's gradient is one product over all steps."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        settings: _DecoderSettings,
        symbols: Tensor,
        lengths: Tensor,
        masks: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the fields of `DecoderOutput`.

        Args:
            ctx: Context of autograd.
            settings: Layouts of the cells and of the attention score, and residual connections.
            symbols: Row of the projected inputs for each step.
            lengths: Number of source positions of each row.
            masks: Dropout masks between the layers; None if there is none.
            *tensors: The fields of `_UnrollTensors`.
        """
        arguments = _UnrollTensors(*tensors)
        parameters = _decoder_parameters(settings, arguments)
        ctx.parameters = unroll.cell_parameters(parameters)
        ctx.scorer = attention_scorer(parameters)
        inputs = unroll.UnrollInputs(
            keys=_array(arguments.keys),
            memory=_array(arguments.memory),
            hidden=_array(arguments.hidden),
            cell_state=_array(arguments.cell_state),
            initial_weights=_array(arguments.initial_weights),
            masks=unroll.NO_MASK_ARRAY if masks is None else masks.numpy(),
        )
        ctx.slices = unroll.unroll_slices(ctx.parameters, ctx.scorer, inputs, symbols.numpy(), lengths.numpy())
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple(torch.from_numpy(array) for array in unroll.join_slices(ctx.slices))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the arguments of `forward`.

        Args:
            ctx: Context of autograd.
            *grad_outputs: Gradients of the results; None where nothing depends on a result.
        """
        arguments = _UnrollTensors(
            *ctx.saved_tensors
        )  # raises if a parameter was changed in place: the slices hold arrays
        if ctx.slices is None:
            raise RuntimeError(
                "the backward pass ran already: its buffers are freed, so it runs only once for each forward pass"
            )
        slices, ctx.slices = ctx.slices, None
        memory_gradients = _memory_gradients(arguments, ctx.scorer)
        gradients = unroll.DecoderOutputGradients(
            *(None if gradient is None else gradient.numpy() for gradient in grad_outputs)
        )
        task = partial(_slice_gradients, ctx.parameters, gradients, memory_gradients)
        slice_gradients = thread_map(task, slices)
        return None, None, None, None, *map(_joined, _UnrollTensors._fields, zip(*slice_gradients, strict=True))


def _memory_gradients(arguments: _UnrollTensors, scorer: AttentionScorer) -> MemoryGradients:
    """Return uninitialized tensors for the gradients of all rows."""
    keys = torch.empty(arguments.keys.shape, dtype=torch.float32)
    if scorer.layout.adds_key_gradients:
        keys = torch.empty(arguments.keys.transpose(1, 2).shape, dtype=torch.float32).transpose(1, 2)
    return MemoryGradients(keys, torch.empty(arguments.memory.shape, dtype=torch.float32))


def _slice_gradients(
    parameters: unroll.DecoderCellParameters,
    gradients: unroll.DecoderOutputGradients,
    memory_gradients: MemoryGradients,
    unrolled: unroll.UnrolledSlice,
) -> _UnrollTensors:
    """Return the gradients of one slice of the rows; those of parameters are products over its steps, summed later."""
    state_gradients, factors = unroll.unroll_slice_backward(
        parameters, gradients, MemoryGradients(*_arrays(*memory_gradients)), unrolled
    )
    layout = parameters.layout
    size = parameters.recurrent.shape[1]
    scorer = factors.scorer
    buffers = torch.from_numpy(unrolled.tape.buffers).view(layout.buffers, -1, size)
    contexts = torch.from_numpy(unrolled.tape.contexts).flatten(0, 1)
    states = torch.from_numpy(unrolled.tape.hidden[:-1]).flatten(0, 1)
    query_states = torch.from_numpy(unroll.query_states(unrolled.tape)).flatten(0, 1)
    query = torch.zeros(0, 0, dtype=torch.float32)
    if unrolled.attention.scorer.layout.projects_query:
        query_gradients = torch.from_numpy(factors.queries).flatten(0, 1)
        query = torch.empty(query_gradients.shape[1], query_states.shape[1], dtype=torch.float32)
        _multiply_t(query_gradients, query_states, query, parameters.bfloat16)
    upper = state_gradients.upper
    return _UnrollTensors(
        projected_inputs=torch.from_numpy(factors.projected_inputs),
        bias_n=_bias_n_gradient(layout, buffers),
        recurrent=_recurrent_gradient(layout, buffers, states, parameters.bfloat16),
        context=_input_gradient(layout, buffers, contexts, parameters.bfloat16),
        query=query,
        energy=torch.from_numpy(scorer.energy),
        location=torch.from_numpy(scorer.location),
        filters=torch.from_numpy(scorer.filters),
        **_upper_layer_gradients(layout, unrolled.tape.upper, parameters.bfloat16),
        norm_weights=torch.from_numpy(upper.norm_weights),
        norm_biases=torch.from_numpy(upper.norm_biases),
        keys=memory_gradients.keys,
        memory=memory_gradients.memory,
        hidden=_stack_layers(state_gradients.hidden[0], upper.hidden[:, 0]),
        cell_state=_stack_layers(state_gradients.cell_state, upper.cell_state),
        initial_weights=torch.from_numpy(scorer.initial_weights),
    )


def _upper_layer_gradients(layout: CellLayout, tape: UpperTape, bfloat16: bool) -> dict[str, Tensor]:
    """Return the gradients of the parameters of the layers above the first, stacked, by their names."""
    if not len(tape.hidden):
        empty = torch.zeros(0, 0, dtype=torch.float32)
        return {
            "upper_inputs": empty[None, :0],
            "upper_biases": empty,
            "upper_bias_n": empty,
            "upper_recurrent": empty[None, :0],
        }
    size = tape.hidden.shape[3]
    layers = [torch.from_numpy(array).view(layout.buffers, -1, size) for array in tape.buffers]
    inputs = (torch.from_numpy(array).flatten(0, 1) for array in tape.inputs)
    states = (torch.from_numpy(array[:-1]).flatten(0, 1) for array in tape.hidden)
    return {
        "upper_inputs": torch.stack(
            [_input_gradient(layout, buffers, array, bfloat16) for buffers, array in zip(layers, inputs, strict=True)]
        ),
        "upper_biases": torch.stack([buffers[: layout.gates].sum(dim=1).flatten() for buffers in layers]),
        "upper_bias_n": torch.stack([_bias_n_gradient(layout, buffers) for buffers in layers]),
        "upper_recurrent": torch.stack(
            [
                _recurrent_gradient(layout, buffers, before, bfloat16)
                for buffers, before in zip(layers, states, strict=True)
            ]
        ),
    }


def _stack_layers(first: Float[np.ndarray, "C H"], upper: Float[np.ndarray, "U C H"]) -> Float[Tensor, "C L H"]:
    """Return the gradients of the state of all layers, rows first."""
    return torch.from_numpy(np.stack([first, *upper], axis=1))


def _joined(name: str, gradients: tuple[Tensor, ...]) -> Tensor:
    """Return one gradient of all slices: rows concatenated, parameters summed; those of keys and memory are whole."""
    if len(gradients) == 1 or name in MemoryGradients._fields:
        return gradients[0]
    return (
        torch.cat(gradients)
        if name in ("hidden", "cell_state", "initial_weights")
        else torch.stack(gradients).sum(dim=0)
    )


class NumbaDecoder(NamedTuple):
    """A decoder with its sources, prepared once for all steps of a search; implements `model.memory.DecoderKernel`."""

    decoder: decoder_step.PreparedDecoder

    def index_select(self, rows: Int[Tensor, " r"]) -> "NumbaDecoder":
        """Return the decoder with a selection of the active sources; neither keys nor memory are copied.

        Args:
            rows: Indices among the active sources.
        """
        return NumbaDecoder(self.decoder.index_select(_array(rows)))

    def active_sources(self) -> Int[Tensor, " b"]:
        """Return the indices of the active sources, among those with which the decoder was prepared."""
        return torch.from_numpy(self.decoder.attention.rows)

    def step(
        self,
        symbols: Int[Tensor, " R"],
        hidden: Float[Tensor, "R L H"],
        cell_state: Float[Tensor, "R L H"] | None,
        attention_state: Float[Tensor, "R S"] | None = None,
    ) -> KernelStepOutput:
        """Return states, contexts, attention weights and logits of one step of all hypotheses, without gradients.

        Each active source has the same number of hypotheses, which are consecutive.

        Args:
            symbols: Previous symbol of each hypothesis.
            hidden: h.
            cell_state: c; None where the cell has none.
            attention_state: Attention weights of the previous step; only the location-sensitive score reads them.

        Raises:
            AssertionError: The score is location-sensitive and `attention_state` is None.
        """
        optional_arrays = tuple(None if tensor is None else _array(tensor) for tensor in (cell_state, attention_state))
        return KernelStepOutput(
            *map(torch.from_numpy, self.decoder.step(_array(symbols), _array(hidden), *optional_arrays))
        )


def prepare_decoder(
    parameters: DecoderParameters, output_layer: OutputLayerParameters, inputs: AttentionInputs
) -> NumbaDecoder:
    """Return a decoder with all sources active, arranged as kernels read it at every step of a search.

    Args:
        parameters: Parameters of the decoder's step.
        output_layer: Parameters of the output layer.
        inputs: Keys, memory and lengths of the sources.
    """
    settings = _DecoderSettings(parameters.cell_layout, parameters.score_layout, parameters.residual, False)
    weights = _decoder_parameters(settings, parameters)
    return NumbaDecoder(
        decoder_step.prepare_decoder_numpy(
            weights, OutputLayerParameters(*_arrays(*output_layer)), AttentionInputs(*_arrays(*inputs))
        )
    )


def greedy_search(
    prepared: object, initial_state: KernelDecoderState, limits: SearchLimits
) -> list[KernelSearchOutput]:
    """Return the outputs of greedy search for all sources: one result per thread, each for a slice of the sources.

    The slices are consecutive and in the order of the sources.

    Args:
        prepared: The decoder and its sources, all of them active: a `NumbaDecoder`.
        initial_state: State before the first step.
        limits: Suppressed symbols, length limits and number of recorded candidates.

    Raises:
        AssertionError: The decoder is of another class.
    """
    assert isinstance(prepared, NumbaDecoder), "expected the decoder that `prepare_decoder` returns"
    return search.greedy_search_numpy(prepared.decoder, _initial_arrays(initial_state), limits)


def beam_search(
    prepared: object, initial_state: KernelDecoderState, limits: SearchLimits, sizes: search.BeamSizes
) -> list[search.KernelBeamOutput]:
    """Return the outputs of beam search for all sources: one result per thread, each for a slice of the sources.

    The slices are consecutive and in the order of the sources.

    Args:
        prepared: The decoder and its sources, all of them active: a `NumbaDecoder`.
        initial_state: State before the first step.
        limits: Suppressed symbols, length limits and number of recorded candidates.
        sizes: Beam size and number of outputs.

    Raises:
        AssertionError: The decoder is of another class.
    """
    assert isinstance(prepared, NumbaDecoder), "expected the decoder that `prepare_decoder` returns"
    return search.beam_search_numpy(prepared.decoder, _initial_arrays(initial_state), limits, sizes)


def _initial_arrays(initial_state: KernelDecoderState) -> KernelDecoderState:
    """Return the initial state of a search as arrays."""
    return KernelDecoderState(*(None if part is None else _array(part) for part in initial_state))


class CrossEntropyFunction(torch.autograd.Function):
    """`cross_entropy_and_gradient` as a PyTorch function; the gradient is computed with the loss."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        logits: Float[Tensor, "M V"],
        targets: Int[Tensor, " M"],
        ignore_index: int,
        smoothing: float,
    ) -> Float[Tensor, ""]:
        """Return the mean loss over the positions whose target is not `ignore_index`; NaN if there are none.

        Args:
            ctx: Context of autograd.
            logits: Logits of each position.
            targets: Target id of each position.
            ignore_index: Target id of positions that do not contribute.
            smoothing: ε of label smoothing.
        """
        logit_array = logits.detach().contiguous().numpy()
        with defer_signals():
            loss, gradient = cross_entropy_and_gradient(
                logit_array, targets.numpy(), ignore_index, np.float32(smoothing)
            )
        ctx.save_for_backward(torch.from_numpy(gradient))
        return logits.new_tensor(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Float[Tensor, ""]) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        """Return the stored gradient times the gradient of the loss.

        Args:
            ctx: Context of autograd.
            grad_output: Gradient of the loss.
        """
        (gradient,) = ctx.saved_tensors
        return gradient * grad_output, None, None, None
