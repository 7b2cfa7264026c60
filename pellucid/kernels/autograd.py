"""The kernels as PyTorch functions: tensors in and out, and gradients. The other kernels for CPUs take arrays.

B rows, S positions, N directions (1 or 2), T steps, A units of the keys, D memory, H hidden, G numbers of all gates, V
rows of a table or symbols, R hypotheses of a search.
"""

from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.kernels import beam, decoder_step, greedy, training, unroll
from pellucid.kernels.attention import Scorer, scorer_of
from pellucid.kernels.keys import KeyProjection, project_backward
from pellucid.kernels.keys import project as project_arrays
from pellucid.kernels.parallel import for_each
from pellucid.kernels.recurrence import (
    RecurrentTape,
    RecurrentWeights,
    RowGroup,
    backward,
    recurrent_buffer,
    recurrent_weights,
    row_groups,
    run_groups,
)
from pellucid.kernels.types import (
    DOT_PRODUCT,
    LOCATION_SENSITIVE,
    AttentionInputs,
    CellLayout,
    DecoderWeights,
    Direction,
    Head,
    InitialState,
    RawStepOutput,
    SearchLimits,
    SearchResult,
)


def _array(tensor: Tensor | np.ndarray) -> np.ndarray:
    """Return the numbers of a tensor, which are not copied; an array as it is."""
    return tensor.detach().numpy() if isinstance(tensor, Tensor) else tensor


def _arrays(*tensors: Tensor | np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the numbers of several tensors."""
    return tuple(_array(tensor) for tensor in tensors)


class RecurrentTensors(NamedTuple):
    """The hidden states of each direction, zero beyond a row's length, and each row's last."""

    states: Float[Tensor, "B S N H"]
    hidden: Float[Tensor, "B N H"]


def run_recurrence(
    directions: list[Direction], symbols: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]
) -> RecurrentTensors:
    """Return the states of each direction run from zero over every row, on W x + b = table[symbol].

    The first runs from a row's first position to its last, the second from its last to its first. Lengths are at
    least 1.
    """
    groups = row_groups(_array(symbols), _array(lengths), len(directions))
    cells = [direction.cell for direction in directions]
    tensors = [tensor for direction in directions for tensor in direction[1:]]
    shape = (*symbols.shape, len(directions))
    if not torch.is_grad_enabled():
        ran, _ = run_groups(_recurrent_weights(cells, tensors), groups, shape, False)
        return RecurrentTensors(torch.from_numpy(ran.states), torch.from_numpy(ran.hidden))
    return RecurrentTensors(*_Recurrence.apply(cells, groups, shape, *tensors))  # type: ignore[no-untyped-call]


class _Recurrence(torch.autograd.Function):
    """Forward and backward by the kernels; the gradients of the parameters are one product each over all positions."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        cells: list[CellLayout],
        groups: list[RowGroup],
        shape: tuple[int, int, int],
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the states and the last ones."""
        ran, ctx.tapes = run_groups(_recurrent_weights(cells, tensors), groups, shape, True)
        ctx.cells, ctx.groups = cells, groups
        ctx.save_for_backward(*tensors)
        return torch.from_numpy(ran.states), torch.from_numpy(ran.hidden)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, states: Tensor, hidden: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the arguments from those of the results."""
        weights = _recurrent_weights(ctx.cells, ctx.saved_tensors)
        if ctx.tapes is None:
            raise RuntimeError("these gradients were taken already, and are taken only once")
        tapes, ctx.tapes = ctx.tapes, None
        arrived = (states.contiguous().flatten(0, 2).numpy(), hidden.numpy())
        pairs = list(zip(ctx.groups, tapes, strict=True))
        parts = for_each(partial(_run_group_backward, weights, arrived), pairs)
        sums: list[Tensor] = []
        for at in range(len(weights)):
            own = [gradients for group, gradients in zip(ctx.groups, parts, strict=True) if group.direction == at]
            sums += [reduce(torch.add, tensors) for tensors in zip(*own, strict=True)]
        return None, None, None, *sums


def _recurrent_weights(cells: list[CellLayout], tensors: Any) -> list[RecurrentWeights]:  # noqa: ANN401 (a sequence)
    """Return the directions from the flat list that PyTorch passes, as the kernels read them."""
    arrays = _arrays(*tensors)
    return [recurrent_weights(Direction(cell, *arrays[3 * at : 3 * at + 3])) for at, cell in enumerate(cells)]


def _run_group_backward(
    weights: list[RecurrentWeights],
    arrived: tuple[Float[np.ndarray, "M H"], Float[np.ndarray, "B N H"]],
    done: tuple[RowGroup, RecurrentTape],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return one group's gradients of table, weight and `bias_n` of its direction."""
    (group, tape), (states, hidden) = done, arrived
    own = weights[group.direction]
    table = backward(own, group.packed, tape, states, hidden[group.rows, group.direction])
    layout, size = own.layout, own.recurrent.shape[1]
    factors = torch.from_numpy(tape.buffers).view(layout.buffers, -1, size)
    weight, before = torch.empty(layout.gates * size, size), torch.from_numpy(tape.before)
    for gate in range(layout.gates):
        buffer = factors[recurrent_buffer(layout, gate)]
        torch.mm(buffer.T, before, out=weight[gate * size : (gate + 1) * size])
    return torch.from_numpy(table), weight, _bias_n_gradient(layout, factors)


def _bias_n_gradient(layout: CellLayout, buffers: Float[Tensor, "P M H"]) -> Float[Tensor, " C"]:
    """Return the gradient of the bias of the gate whose U h another multiplies; empty without one."""
    return buffers[layout.gates].sum(dim=0) if layout.gated >= 0 else torch.empty(0)


def project(
    memory: Float[Tensor, "B S D"], weight: Float[Tensor, "A D"], bias: Tensor | None
) -> Float[Tensor, "B S A"]:
    """Return `nn.functional.linear(memory, weight, bias)`, the positions innermost; gradients flow to all three."""
    given = memory, weight, weight.new_zeros(0) if bias is None else bias
    keys: Tensor = _Projected.apply(*given)  # type: ignore[no-untyped-call]
    return keys


class _Projected(torch.autograd.Function):
    """Forward and backward by the kernels, each part of the rows by a thread."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:  # noqa: ANN401
        """Return the keys, transposed."""
        ctx.save_for_backward(*tensors)
        return torch.from_numpy(project_arrays(_projection(tensors))).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arrived: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        """Return the gradients of memory, weight and bias from that of the keys."""
        given = _projection(ctx.saved_tensors)
        memory = torch.empty(given.memory.shape)
        weight, bias = project_backward(given, arrived.transpose(1, 2).contiguous().numpy(), memory.numpy())
        return memory, torch.from_numpy(weight), torch.from_numpy(bias)


def _projection(tensors: tuple[Tensor, ...]) -> KeyProjection:
    """Return tensors as the arrays that kernels take."""
    return KeyProjection(*(tensor.detach().contiguous().numpy() for tensor in tensors))


class DecoderTensors(NamedTuple):
    """Results of all steps, and the last state; the cell is empty where the cell has none."""

    hidden: Float[Tensor, "B T H"]
    contexts: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"]
    last: Float[Tensor, "B H"]
    cell: Float[Tensor, "C H"]


def unroll_decoder(
    parameters: DecoderWeights,
    symbols: Int[Tensor, "B T"],
    inputs: AttentionInputs,
    hidden: Float[Tensor, "B H"],
    cell: Float[Tensor, "B H"] | None,
    initial_weights: Float[Tensor, "B S"] | None = None,
) -> DecoderTensors:
    """Attend from the state before, then step, over known symbols; gradients flow to and from everything.

    The location-sensitive score reads the weights before the first step.
    """
    given = parameters.score != LOCATION_SENSITIVE or initial_weights is not None
    assert given, "a location-sensitive score needs the weights before"
    start = hidden[:0] if cell is None else cell
    weights_before = hidden.new_empty(0, 0) if initial_weights is None else initial_weights
    own = (torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in parameters[2:])
    tensors = [*own, inputs.keys, inputs.memory, hidden, start, weights_before]
    done = _Unrolled.apply(parameters.cell, parameters.score, symbols, inputs.lengths, *tensors)  # type: ignore[no-untyped-call]
    hiddens, contexts, weights, cells = done
    return DecoderTensors(hiddens, contexts, weights, hiddens[:, -1], cells)


class _Gradients(NamedTuple):
    """Gradients of all that the steps are a function of, ids and lengths apart."""

    table: Tensor
    bias_n: Tensor
    recurrent: Tensor
    context: Tensor
    query: Tensor
    energy: Tensor
    location: Tensor
    filters: Tensor
    keys: Tensor
    memory: Tensor
    hidden: Tensor
    cell: Tensor
    initial_weights: Tensor


PARAMETERS = _Gradients._fields.index("keys")
"""Tensors of the decoder's parameters; those after them belong to rows."""


class _MemoryGradients(NamedTuple):
    """`unroll.MemoryGradients`, as tensors."""

    keys: Float[Tensor, "B S A"]
    memory: Float[Tensor, "B S D"]


class _Unrolled(torch.autograd.Function):
    """Forward and backward by the kernels; the gradients of weights are one product each over all steps."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        cell: CellLayout,
        score: int,
        symbols: Tensor,
        lengths: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return hidden states, contexts and weights of all steps, and the last cell state."""
        arrays = _arrays(*tensors)
        parameters = DecoderWeights(cell, score, *arrays[:PARAMETERS])
        ctx.weights, ctx.scorer = unroll.step_weights(parameters), scorer_of(parameters)
        start = unroll.DecoderStart(*arrays[PARAMETERS:])
        ctx.parts = unroll.unroll_parts(ctx.weights, ctx.scorer, start, symbols.numpy(), lengths.numpy())
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple(torch.from_numpy(array) for array in unroll.join_parts(ctx.parts))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *arrived: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the arguments from those of the results."""
        given = _Gradients(*ctx.saved_tensors)  # refuses parameters that were changed since: the parts hold arrays
        if ctx.parts is None:
            raise RuntimeError("these gradients were taken already, and are taken only once")
        parts, ctx.parts = ctx.parts, None
        whole = _memory_gradients(given, ctx.scorer)
        gradients = tuple(None if gradient is None else gradient.numpy() for gradient in arrived)
        own = for_each(partial(_unroll_part_backward, ctx.weights, gradients, whole), parts)
        return None, None, None, None, *map(_joined, _Gradients._fields, zip(*own, strict=True))


def _memory_gradients(given: _Gradients, scorer: Scorer) -> _MemoryGradients:
    """Return room for the gradients of all rows."""
    keys = torch.empty(given.keys.shape)
    if scorer.score != DOT_PRODUCT:
        keys = torch.empty(given.keys.transpose(1, 2).shape).transpose(1, 2)
    return _MemoryGradients(keys, torch.empty(given.memory.shape))


def _unroll_part_backward(
    weights: unroll.StepWeights,
    arrived: tuple[np.ndarray | None, ...],
    whole: _MemoryGradients,
    part: unroll.UnrolledPart,
) -> _Gradients:
    """Return one part's gradients, of parameters the part's share: products over all steps of the kernel's factors."""
    given, factors = unroll.unroll_part_backward(weights, arrived, unroll.MemoryGradients(*_arrays(*whole)), part)
    layout, size, scorer = weights.layout, weights.recurrent.shape[1], factors.scorer
    buffers = torch.from_numpy(part.tape.buffers).view(layout.buffers, -1, size)
    contexts = torch.from_numpy(part.tape.contexts).flatten(0, 1)
    states = torch.from_numpy(part.tape.hidden[:-1]).flatten(0, 1)
    recurrent, context = torch.empty(layout.gates, size, size), torch.empty(layout.gates, size, contexts.shape[1])
    for gate in range(layout.gates):
        torch.mm(buffers[recurrent_buffer(layout, gate)].T, states, out=recurrent[gate])
        torch.mm(buffers[gate].T, contexts, out=context[gate])
    projected = part.source.scorer.score != DOT_PRODUCT
    return _Gradients(
        table=torch.from_numpy(factors.table),
        bias_n=_bias_n_gradient(layout, buffers),
        recurrent=recurrent.flatten(0, 1),
        context=context.flatten(0, 1),
        query=torch.from_numpy(factors.queries).flatten(0, 1).T @ states if projected else torch.zeros(0, 0),
        energy=torch.from_numpy(scorer.energy),
        location=torch.from_numpy(scorer.location),
        filters=torch.from_numpy(scorer.filters),
        keys=whole.keys,
        memory=whole.memory,
        hidden=torch.from_numpy(given.hidden[0]),
        cell=torch.from_numpy(given.cell),
        initial_weights=torch.from_numpy(scorer.initial_weights),
    )


def _joined(name: str, parts: tuple[Tensor, ...]) -> Tensor:
    """Return the gradient from those of all parts: rows end to end, parameters summed; some have all rows already."""
    if len(parts) == 1 or name in _MemoryGradients._fields:
        return parts[0]
    return torch.cat(parts) if name in ("hidden", "cell", "initial_weights") else torch.stack(parts).sum(dim=0)


class NumbaDecoder(NamedTuple):
    """A decoder with the sources that it reads, laid out once for all steps of a search; see `model.memory`."""

    decoder: decoder_step.PreparedDecoder

    def index_select(self, rows: Int[Tensor, " r"]) -> "NumbaDecoder":
        """Return the decoder with the chosen of the running sources; only their numbers are copied."""
        return NumbaDecoder(self.decoder.index_select(_array(rows)))

    def running(self) -> Int[Tensor, " b"]:
        """Return the numbers of the running sources."""
        return torch.from_numpy(self.decoder.sources.rows)

    def step(
        self,
        symbols: Int[Tensor, " R"],
        hidden: Float[Tensor, "R H"],
        cell: Float[Tensor, "R H"] | None,
        attention_state: Float[Tensor, "R S"] | None = None,
    ) -> RawStepOutput:
        """Take one step of all hypotheses, those of a source one after the other."""
        before = tuple(None if each is None else _array(each) for each in (cell, attention_state))
        return RawStepOutput(*map(torch.from_numpy, self.decoder.step(_array(symbols), _array(hidden), *before)))


def prepare(parameters: DecoderWeights, head: Head, inputs: AttentionInputs) -> NumbaDecoder:
    """Lay out the arrays that every step reads."""
    weights = DecoderWeights(parameters.cell, parameters.score, *_arrays(*parameters[2:]))
    return NumbaDecoder(decoder_step.prepare(weights, Head(*_arrays(*head)), AttentionInputs(*_arrays(*inputs))))


def search_greedily(prepared: object, first: InitialState, limits: SearchLimits) -> list[SearchResult]:
    """Return the most probable symbol at every step for all sources, in consecutive parts of the rows."""
    assert isinstance(prepared, NumbaDecoder), "made by `prepare`"
    return greedy.search_greedily(prepared.decoder, _initial_arrays(first), limits)


def search_beams(
    prepared: object, first: InitialState, limits: SearchLimits, sizes: beam.BeamSizes
) -> list[beam.BeamResult]:
    """Return the most probable outputs of all sources, in consecutive parts of the rows."""
    assert isinstance(prepared, NumbaDecoder), "made by `prepare`"
    return beam.search_beams(prepared.decoder, _initial_arrays(first), limits, sizes)


def _initial_arrays(first: InitialState) -> InitialState:
    """Return the state that a search begins with, as arrays."""
    return InitialState(*(None if part is None else _array(part) for part in first))


class CrossEntropy(torch.autograd.Function):
    """`training.loss_and_gradient` as a PyTorch function."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        logits: Float[Tensor, "M V"],
        targets: Int[Tensor, " M"],
        ignored: int,
        smoothing: float,
    ) -> Float[Tensor, ""]:
        """Return the loss, and keep the gradient."""
        given = logits.detach().contiguous().numpy()
        loss, gradient = training.loss_and_gradient(given, targets.numpy(), ignored, np.float32(smoothing))
        ctx.save_for_backward(torch.from_numpy(gradient))
        return logits.new_tensor(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arrived: Float[Tensor, ""]) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        """Return the gradient, times the one that arrives."""
        (gradient,) = ctx.saved_tensors
        return gradient * arrived, None, None, None


def adam_update(
    gradient: Float[Tensor, " P"],
    mean: Float[Tensor, " P"],
    square: Float[Tensor, " P"],
    numbers: tuple[float, float, float, float],
) -> None:
    """Compute `training.optimizer.adam_update` for float32 on a CPU."""
    training.adam_update(gradient.numpy(), mean.numpy(), square.numpy(), numbers)
