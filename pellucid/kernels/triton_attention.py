"""Additive attention on a GPU: a Triton kernel forward, and one backward.

One program takes one query and holds its scores in registers; energies are not stored, the backward kernel computes
them again. No sum uses atomic additions, so the same inputs give the same bits. Positions beyond a source's length are
never read. Sums are in float32, whatever the inputs are in.

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
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = 4096
"""Entries of a tile: all source positions by as many units as fit."""


class AttentionArguments(NamedTuple):
    """Arguments of the attention of all queries."""

    asked: Tensor
    energy: Tensor
    keys: Tensor
    states: Tensor
    lengths: Tensor


class AttentionResults(NamedTuple):
    """Contexts and weights, in float32."""

    context: Tensor
    weights: Tensor


class BackwardArguments(NamedTuple):
    """Arguments of the backward kernel: three that it reads, then the gradients that it writes."""

    context_gradient: Tensor
    weights: Tensor
    weights_gradient: Tensor | None
    asked: Tensor
    energy: Tensor
    """A row for each source, still to be summed."""
    keys: Tensor
    states: Tensor


class AttentionSizes(NamedTuple):
    """R / B, S, A and D."""

    queries: int
    positions: int
    units: int
    memory: int


def attend(
    asked: Float[Tensor, "R A"],
    energy: Float[Tensor, " A"],
    keys: Float[Tensor, "B S A"],
    states: Float[Tensor, "B S D"],
    lengths: Int[Tensor, " B"],
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R S"]]:
    """Return the context Σ_s α_s h_s and α = softmax(energyᵀ tanh(asked + key_s)) over the real positions, in float32.

    `asked` is W q, projected already. Lengths are at least 1. There are gradients for one query a source only.
    """
    context, weights = _Attend.apply(asked, energy, keys, states, lengths)  # type: ignore[no-untyped-call]
    return context, weights


class _Attend(torch.autograd.Function):
    """Forward and backward by the kernels."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the context and the weights."""
        given = AttentionArguments(*(tensor.contiguous() for tensor in tensors))
        queries, (_, positions, size) = len(given.asked), given.states.shape
        context = given.states.new_empty(queries, size, dtype=torch.float32)
        weights = given.states.new_empty(queries, positions, dtype=torch.float32)
        _launch(_attention_forward, given, AttentionResults(context, weights))
        ctx.save_for_backward(*given, weights)
        ctx.set_materialize_grads(False)
        return context, weights

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        context: Tensor | None,
        weights_gradient: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        """Return the gradients of the arguments from those of the results."""
        *saved, weights = ctx.saved_tensors
        given = AttentionArguments(*saved)
        if len(given.asked) != len(given.keys):
            raise NotImplementedError("gradients of several queries a source")
        if context is None:
            context = given.states.new_zeros(given.states.shape[::2], dtype=torch.float32)
        arrived = None if weights_gradient is None else weights_gradient.contiguous()
        rows = torch.empty_like(given.asked, dtype=torch.float32)
        asked, keys, states = (torch.empty_like(tensor) for tensor in (given.asked, given.keys, given.states))
        _launch(
            _attention_backward,
            given,
            BackwardArguments(context.contiguous(), weights, arrived, asked, rows, keys, states),
        )
        return asked, rows.sum(dim=0).to(given.energy.dtype), keys, states, None


def _launch(kernel: Any, given: AttentionArguments, done: AttentionResults | BackwardArguments) -> None:  # noqa: ANN401 (Triton's functions have no type)
    """Run one program for each query. A tile holds all positions, and as many units as fit beside them."""
    sources, positions, units = given.keys.shape
    sizes = AttentionSizes(len(given.asked) // sources, positions, units, given.states.shape[2])
    positions_tile = triton.next_power_of_2(positions)
    units_tile, memory_tile = (
        min(max(1, TILE // positions_tile), triton.next_power_of_2(size)) for size in (units, sizes.memory)
    )
    kernel[(len(given.asked),)](given, done, sizes, positions_tile, units_tile, memory_tile)


def _compiled(function: Callable[..., object]) -> Any:  # noqa: ANN401
    """Return the function compiled by Triton; `unwrap` removes the checks of shapes that tests wrap around it."""
    return triton.jit(inspect.unwrap(function))


@_compiled
def _tanh(x: tl.tensor) -> tl.tensor:
    """Return tanh in float32, to an absolute error of 1e-7."""
    shrunk = tl.exp(-2 * tl.abs(x))  # never overflows
    size = (1 - shrunk) / (1 + shrunk)
    return tl.where(x < 0, -size, size)


@_compiled
def _tile(matrix: tl.tensor, rows: tl.tensor, columns: tl.tensor, width: int, inside: tl.tensor) -> tl.tensor:
    """Return rows × columns of a matrix of this width, in float32; zero outside."""
    return tl.load(matrix + rows[:, None] * width + columns, mask=inside, other=0).to(tl.float32)


@_compiled
def _attention_forward(
    given: AttentionArguments,
    looked: AttentionResults,
    sizes: AttentionSizes,
    positions_tile: tl.constexpr,
    units_tile: tl.constexpr,
    memory_tile: tl.constexpr,
) -> None:
    """Compute scores, their softmax, and the mean of the states by it, for one query."""
    row = tl.program_id(0).to(tl.int64)
    source = row // sizes.queries
    at = tl.arange(0, positions_tile)
    real = at < tl.load(given.lengths + source)
    keys = given.keys + source * sizes.positions * sizes.units
    scores = tl.zeros([positions_tile], tl.float32)
    for start in range(0, sizes.units, units_tile):
        unit = start + tl.arange(0, units_tile)
        fits = unit < sizes.units
        asked = tl.load(given.asked + row * sizes.units + unit, mask=fits, other=0).to(tl.float32)
        energy = tl.load(given.energy + unit, mask=fits, other=0).to(tl.float32)
        key = _tile(keys, at, unit, sizes.units, real[:, None] & fits)
        scores += tl.sum(_tanh(key + asked) * energy, axis=1)
    scores = tl.where(real, scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=0))
    weights = weights / tl.sum(weights, axis=0)
    tl.store(looked.weights + row * sizes.positions + at, weights, mask=at < sizes.positions)
    states = given.states + source * sizes.positions * sizes.memory
    for start in range(0, sizes.memory, memory_tile):
        unit = start + tl.arange(0, memory_tile)
        fits = unit < sizes.memory
        state = _tile(states, at, unit, sizes.memory, real[:, None] & fits)
        tl.store(looked.context + row * sizes.memory + unit, tl.sum(weights[:, None] * state, axis=0), mask=fits)


@_compiled
def _attention_backward(
    given: AttentionArguments,
    back: BackwardArguments,
    sizes: AttentionSizes,
    positions_tile: tl.constexpr,
    units_tile: tl.constexpr,
    memory_tile: tl.constexpr,
) -> None:
    """Compute the gradients of one source's attention.

    ∂α_s = ∂c · h_s + ∂α_s from outside, ∂e = α (∂α − Σ α ∂α), ∂h_s = α_s ∂c. With t = tanh(asked + key_s):
    ∂key_s = ∂e_s energy (1 − t²), ∂asked = Σ_s ∂key_s, ∂energy = Σ_s ∂e_s t.
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, positions_tile)
    real = at < tl.load(given.lengths + row)
    stored = at < sizes.positions
    weights = tl.load(back.weights + row * sizes.positions + at, mask=stored, other=0)
    arriving = tl.zeros([positions_tile], tl.float32)
    if back.weights_gradient is not None:
        arriving += tl.load(back.weights_gradient + row * sizes.positions + at, mask=real, other=0)
    offset = row * sizes.positions * sizes.memory
    for start in range(0, sizes.memory, memory_tile):
        unit = start + tl.arange(0, memory_tile)
        fits = unit < sizes.memory
        context = tl.load(back.context_gradient + row * sizes.memory + unit, mask=fits, other=0)
        state = _tile(given.states + offset, at, unit, sizes.memory, real[:, None] & fits)
        arriving += tl.sum(state * context, axis=1)
        place = back.states + offset + at[:, None] * sizes.memory + unit
        tl.store(place, weights[:, None] * context, mask=stored[:, None] & fits)
    scores = weights * (arriving - tl.sum(weights * arriving, axis=0))
    offset = row * sizes.positions * sizes.units
    for start in range(0, sizes.units, units_tile):
        unit = start + tl.arange(0, units_tile)
        fits = unit < sizes.units
        asked = tl.load(given.asked + row * sizes.units + unit, mask=fits, other=0).to(tl.float32)
        energy = tl.load(given.energy + unit, mask=fits, other=0).to(tl.float32)
        squashed = _tanh(_tile(given.keys + offset, at, unit, sizes.units, real[:, None] & fits) + asked)
        key = scores[:, None] * energy * (1 - squashed * squashed)
        place = back.keys + offset + at[:, None] * sizes.units + unit
        tl.store(place, key, mask=stored[:, None] & fits)
        tl.store(back.asked + row * sizes.units + unit, tl.sum(key, axis=0), mask=fits)
        place = back.energy + row * sizes.units + unit
        tl.store(place, tl.sum(scores[:, None] * squashed, axis=0), mask=fits)


def warm_up() -> None:
    """Compile everything here by running the smallest example forward and backward."""
    one = torch.ones(1, 1, 1, device="cuda", requires_grad=True)
    context, _ = attend(one[0], one[0, 0], one, one, torch.ones(1, dtype=torch.int64, device="cuda"))
    torch.autograd.grad(context.sum(), one)
