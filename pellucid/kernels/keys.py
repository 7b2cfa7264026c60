"""The keys of attention: a projection of the memory, with the positions innermost in memory.

B rows, S positions, A units, D memory. Row by row, K = W Mᵀ + b, so that nothing is turned afterwards, neither the keys
nor, on the way back, their gradients.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.kernels.arithmetic import ZERO, Flat
from pellucid.kernels.compiling import in_place
from pellucid.kernels.parallel import for_each, parts_of, slices
from pellucid.kernels.products import add_product, product_of_rows, product_over

Rows = Float[np.ndarray, "B S D"]
Laid = Float[np.ndarray, "B A S"]
Matrix = Float[np.ndarray, "A D"]


class _Arrays(NamedTuple):
    """What is projected, and by what."""

    memory: Rows
    weight: Matrix
    bias: Flat


def project(
    memory: Float[Tensor, "B S D"], weight: Float[Tensor, "A D"], bias: Tensor | None
) -> Float[Tensor, "B S A"]:
    """`nn.functional.linear(memory, weight, bias)`; gradients flow to all three."""
    given = memory, weight, weight.new_zeros(0) if bias is None else bias
    keys: Tensor = _Projected.apply(*given)  # type: ignore[no-untyped-call]
    return keys


class _Projected(torch.autograd.Function):
    """Forward and backward by the kernels, each part of the rows by a thread."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:  # noqa: ANN401
        """The keys, which stand turned."""
        ctx.save_for_backward(*tensors)
        given = _arrays(tensors)
        laid = torch.empty(len(given.memory), len(given.weight), given.memory.shape[1])
        for_each(partial(_forward, given, laid.numpy()), _parts(given))
        return laid.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arrived: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        """From the gradient of the keys to those of memory, weight and bias."""
        given = _arrays(ctx.saved_tensors)
        memory = torch.empty(given.memory.shape)
        task = partial(_backward, given, arrived.transpose(1, 2).contiguous().numpy(), memory.numpy())
        weights, biases = zip(*for_each(task, _parts(given)), strict=True)
        return memory, torch.from_numpy(sum(weights[1:], weights[0])), torch.from_numpy(sum(biases[1:], biases[0]))


def _arrays(tensors: tuple[Tensor, ...]) -> _Arrays:
    """Tensors as the arrays that kernels take."""
    return _Arrays(*(tensor.detach().contiguous().numpy() for tensor in tensors))


def _parts(given: _Arrays) -> list[slice]:
    """The rows of each thread."""
    return slices(len(given.memory), parts_of(len(given.memory)))


def _forward(given: _Arrays, laid: Laid, rows: slice) -> None:
    """One part's keys."""
    project_rows(given.memory[rows], given.weight, given.bias, laid[rows])


def _backward(given: _Arrays, gradients: Laid, memory: Rows, rows: slice) -> tuple[Matrix, Flat]:
    """One part's gradients: those of its memory are written, its shares of weight and bias given."""
    weight, bias = np.zeros_like(given.weight), np.zeros_like(given.bias)
    project_rows_back(given._replace(memory=given.memory[rows]), gradients[rows], memory[rows], weight, bias)
    return weight, bias


@in_place
def project_rows(memory: Rows, weight: Matrix, bias: Flat, laid: Laid) -> None:
    """K = W Mᵀ + b of every row."""
    for row in range(memory.shape[0]):
        product_of_rows(weight, memory[row], laid[row])
        for unit in range(bias.shape[0]):
            keys, added = laid[row, unit], bias[unit]
            for position in range(keys.shape[0]):
                keys[position] += added


@in_place
def project_rows_back(given: _Arrays, gradients: Laid, memory: Rows, weight: Matrix, bias: Flat) -> None:
    """dM = dKᵀ W of every row; dW += dK M; db += Σ dK."""
    for row in range(gradients.shape[0]):
        product_over(gradients[row], given.weight, memory[row])
        add_product(gradients[row], given.memory[row], weight)
        for unit in range(bias.shape[0]):
            arrived, total = gradients[row, unit], ZERO
            for position in range(arrived.shape[0]):
                total += arrived[position]
            bias[unit] += total


def warm_up() -> None:
    """Compile everything here by running the smallest example there and back."""
    weight = torch.zeros(1, 1, requires_grad=True)
    torch.autograd.grad(project(torch.zeros(1, 1, 1), weight, torch.zeros(1)).sum(), weight)
