"""Additive attention on a GPU: a Triton kernel forward, and one backward.

One program computes one query and holds its scores in registers; energies are not stored, the backward kernel computes
them again. No sum uses atomic additions, so the same inputs give the same bits. Positions beyond a source's length are
never read. Sums are in float32 for all types of inputs.

The kernels are tested in Triton's interpreter and compile for GPUs of compute capability 8.0 and 9.0. They have not yet
run on a GPU. Triton is an extra (`pip install 'pellucid[gpu]'`), so this module is imported only where it is used.

B sources, S source positions, A attention units, D memory, R queries: those of a source one after the other.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.shapes import Float, Int

TILE = 4096
"""Entries of a tile: all source positions by as many units as fit."""


class AttentionArguments(NamedTuple):
    """Arguments of `attend`, as contiguous tensors."""

    queries: Tensor
    energy: Tensor
    keys: Tensor
    states: Tensor
    lengths: Tensor


class AttentionResults(NamedTuple):
    """Contexts and attention weights, in float32, which the forward kernel writes."""

    context: Tensor
    weights: Tensor


class BackwardArguments(NamedTuple):
    """Arguments of the backward kernel: three that it reads, then the gradients that it writes."""

    context_gradient: Tensor
    weights: Tensor
    weights_gradient: Tensor | None
    queries: Tensor
    energy: Tensor
    """One row for each source; their sum is the gradient."""
    keys: Tensor
    states: Tensor


class AttentionShape(NamedTuple):
    """Queries of a source R / B, source positions S, attention units A and memory size D."""

    num_queries: int
    num_positions: int
    num_units: int
    memory_size: int


def attend_additive(
    queries: Float[Tensor, "R A"],
    energy: Float[Tensor, " A"],
    keys: Float[Tensor, "B S A"],
    states: Float[Tensor, "B S D"],
    lengths: Int[Tensor, " B"],
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R S"]]:
    """Return the contexts Σ_s α_s h_s, and α = softmax(energyᵀ tanh(q + key_s)) over the real positions, in float32.

    The weights α beyond a source's length are zero. Gradients flow to all arguments except the lengths, for one query a
    source; with several queries a source, the backward pass raises NotImplementedError.

    Args:
        queries: q, the projected decoder states; those of a source one after the other.
        energy: v, the weight of each unit.
        keys: Projected encoder states.
        states: h, the encoder states.
        lengths: Number of real positions of each source, at least 1.
    """
    context, weights = _Attend.apply(queries, energy, keys, states, lengths)  # type: ignore[no-untyped-call]
    return context, weights


class _Attend(torch.autograd.Function):
    """Forward and backward by the kernels."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the contexts and the weights.

        Args:
            ctx: Context of autograd.
            *tensors: The fields of `AttentionArguments`.
        """
        arguments = AttentionArguments(*(tensor.contiguous() for tensor in tensors))
        num_queries = len(arguments.queries)
        _, positions, memory_size = arguments.states.shape
        context = arguments.states.new_empty(num_queries, memory_size, dtype=torch.float32)
        weights = arguments.states.new_empty(num_queries, positions, dtype=torch.float32)
        _launch(_attention_forward, arguments, AttentionResults(context, weights))
        ctx.save_for_backward(*arguments, weights)
        ctx.set_materialize_grads(False)
        return context, weights

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        context: Tensor | None,
        weights_gradient: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        """Return the gradients of the arguments.

        Args:
            ctx: Context of autograd.
            context: Gradients of the contexts.
            weights_gradient: Gradients of the weights.
        """
        *saved, weights = ctx.saved_tensors
        arguments = AttentionArguments(*saved)
        if len(arguments.queries) != len(arguments.keys):
            raise NotImplementedError("the Triton kernel has gradients for one query a source only: disable kernels")
        if context is None:
            context = arguments.states.new_zeros(arguments.states.shape[::2], dtype=torch.float32)
        weights_gradient_rows = None if weights_gradient is None else weights_gradient.contiguous()
        energy_rows = torch.empty_like(arguments.queries, dtype=torch.float32)
        query_gradient, keys, states = (
            torch.empty_like(tensor) for tensor in (arguments.queries, arguments.keys, arguments.states)
        )
        _launch(
            _attention_backward,
            arguments,
            BackwardArguments(
                context.contiguous(), weights, weights_gradient_rows, query_gradient, energy_rows, keys, states
            ),
        )
        return query_gradient, energy_rows.sum(dim=0).to(arguments.energy.dtype), keys, states, None


def _launch(kernel: Any, arguments: AttentionArguments, results: AttentionResults | BackwardArguments) -> None:  # noqa: ANN401 (Triton's functions have no type)
    """Run one program for each query. A tile holds all positions, and as many units as fit beside them."""
    sources, positions, units = arguments.keys.shape
    shape = AttentionShape(len(arguments.queries) // sources, positions, units, arguments.states.shape[2])
    positions_tile = triton.next_power_of_2(positions)
    units_tile, memory_tile = (
        min(max(1, TILE // positions_tile), triton.next_power_of_2(size)) for size in (units, shape.memory_size)
    )
    kernel[(len(arguments.queries),)](arguments, results, shape, positions_tile, units_tile, memory_tile)


def _compiled(function: Callable[..., object]) -> Any:  # noqa: ANN401
    """Return the function compiled by Triton; `unwrap` removes the checks of shapes that tests wrap around it."""
    return triton.jit(inspect.unwrap(function))


@_compiled
def _tanh(x: tl.tensor) -> tl.tensor:
    """Return tanh in float32, to an absolute error of 1e-7."""
    exponential = tl.exp(-2 * tl.abs(x))  # never overflows
    magnitude = (1 - exponential) / (1 + exponential)
    return tl.where(x < 0, -magnitude, magnitude)


@_compiled
def _tile(matrix: tl.tensor, rows: tl.tensor, columns: tl.tensor, width: int, inside: tl.tensor) -> tl.tensor:
    """Return rows × columns of a matrix of this width, in float32; zero outside."""
    return tl.load(matrix + rows[:, None] * width + columns, mask=inside, other=0).to(tl.float32)


@_compiled
def _attention_forward(
    arguments: AttentionArguments,
    results: AttentionResults,
    shape: AttentionShape,
    positions_tile: tl.constexpr,
    units_tile: tl.constexpr,
    memory_tile: tl.constexpr,
) -> None:
    """Compute scores, their softmax, and the mean of the states weighted by it, for one query."""
    row = tl.program_id(0).to(tl.int64)
    source = row // shape.num_queries
    position = tl.arange(0, positions_tile)
    is_real = position < tl.load(arguments.lengths + source)
    keys = arguments.keys + source * shape.num_positions * shape.num_units
    scores = tl.zeros([positions_tile], tl.float32)
    for start in range(0, shape.num_units, units_tile):
        unit = start + tl.arange(0, units_tile)
        in_range = unit < shape.num_units
        query = tl.load(arguments.queries + row * shape.num_units + unit, mask=in_range, other=0).to(tl.float32)
        energy = tl.load(arguments.energy + unit, mask=in_range, other=0).to(tl.float32)
        key = _tile(keys, position, unit, shape.num_units, is_real[:, None] & in_range)
        scores += tl.sum(_tanh(key + query) * energy, axis=1)
    scores = tl.where(is_real, scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=0))
    weights = weights / tl.sum(weights, axis=0)
    tl.store(results.weights + row * shape.num_positions + position, weights, mask=position < shape.num_positions)
    states = arguments.states + source * shape.num_positions * shape.memory_size
    for start in range(0, shape.memory_size, memory_tile):
        unit = start + tl.arange(0, memory_tile)
        in_range = unit < shape.memory_size
        state = _tile(states, position, unit, shape.memory_size, is_real[:, None] & in_range)
        tl.store(
            results.context + row * shape.memory_size + unit, tl.sum(weights[:, None] * state, axis=0), mask=in_range
        )


@_compiled
def _attention_backward(
    arguments: AttentionArguments,
    gradients: BackwardArguments,
    shape: AttentionShape,
    positions_tile: tl.constexpr,
    units_tile: tl.constexpr,
    memory_tile: tl.constexpr,
) -> None:
    """Compute the gradients of one source's attention.

    ∂α_s = ∂c · h_s + the given ∂α_s, ∂e = α (∂α − Σ α ∂α), ∂h_s = α_s ∂c. With t = tanh(q + key_s):
    ∂key_s = ∂e_s energy (1 − t²), ∂q = Σ_s ∂key_s, ∂energy = Σ_s ∂e_s t.
    """
    row = tl.program_id(0).to(tl.int64)
    position = tl.arange(0, positions_tile)
    is_real = position < tl.load(arguments.lengths + row)
    in_row = position < shape.num_positions
    weights = tl.load(gradients.weights + row * shape.num_positions + position, mask=in_row, other=0)
    weights_gradient = tl.zeros([positions_tile], tl.float32)
    if gradients.weights_gradient is not None:
        weights_gradient += tl.load(
            gradients.weights_gradient + row * shape.num_positions + position, mask=is_real, other=0
        )
    offset = row * shape.num_positions * shape.memory_size
    for start in range(0, shape.memory_size, memory_tile):
        unit = start + tl.arange(0, memory_tile)
        in_range = unit < shape.memory_size
        context = tl.load(gradients.context_gradient + row * shape.memory_size + unit, mask=in_range, other=0)
        state = _tile(arguments.states + offset, position, unit, shape.memory_size, is_real[:, None] & in_range)
        weights_gradient += tl.sum(state * context, axis=1)
        pointer = gradients.states + offset + position[:, None] * shape.memory_size + unit
        tl.store(pointer, weights[:, None] * context, mask=in_row[:, None] & in_range)
    scores = weights * (weights_gradient - tl.sum(weights * weights_gradient, axis=0))
    offset = row * shape.num_positions * shape.num_units
    for start in range(0, shape.num_units, units_tile):
        unit = start + tl.arange(0, units_tile)
        in_range = unit < shape.num_units
        query = tl.load(arguments.queries + row * shape.num_units + unit, mask=in_range, other=0).to(tl.float32)
        energy = tl.load(arguments.energy + unit, mask=in_range, other=0).to(tl.float32)
        activation = _tanh(
            _tile(arguments.keys + offset, position, unit, shape.num_units, is_real[:, None] & in_range) + query
        )
        key = scores[:, None] * energy * (1 - activation * activation)
        pointer = gradients.keys + offset + position[:, None] * shape.num_units + unit
        tl.store(pointer, key, mask=in_row[:, None] & in_range)
        tl.store(gradients.queries + row * shape.num_units + unit, tl.sum(key, axis=0), mask=in_range)
        pointer = gradients.energy + row * shape.num_units + unit
        tl.store(pointer, tl.sum(scores[:, None] * activation, axis=0), mask=in_range)


def warm_up() -> None:
    """Compile both kernels by running the smallest example forward and backward."""
    one = torch.ones(1, 1, 1, device="cuda", requires_grad=True)
    context, _ = attend_additive(one[0], one[0, 0], one, one, torch.ones(1, dtype=torch.int64, device="cuda"))
    torch.autograd.grad(context.sum(), one)
