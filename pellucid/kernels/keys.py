"""The keys of attention: a projection of the memory, with the positions innermost in memory.

B rows, S positions, A units, D memory. Row by row, K = W Mᵀ + b, so that nothing is turned afterwards, neither the keys
nor, on the way back, their gradients.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pellucid.kernels.aligned_memory import empty
from pellucid.kernels.arithmetic import ZERO, Flat
from pellucid.kernels.compiling import in_place
from pellucid.kernels.gemm import add_product, product_of_rows, product_over
from pellucid.kernels.parallel import for_each, parts_of, slices

Rows = Float[np.ndarray, "B S D"]
Laid = Float[np.ndarray, "B A S"]
Matrix = Float[np.ndarray, "A D"]


class Projected(NamedTuple):
    """What is projected, and by what."""

    memory: Rows
    weight: Matrix
    bias: Flat


def project(given: Projected) -> Laid:
    """The keys, with the positions innermost."""
    laid: Laid = empty((len(given.memory), len(given.weight), given.memory.shape[1]))
    for_each(partial(_forward, given, laid), _parts(given))
    return laid


def project_back(given: Projected, gradients: Laid, memory: Rows) -> tuple[Matrix, Flat]:
    """From the gradient of the keys to those of weight and bias; that of the memory is written into `memory`."""
    task = partial(_backward, given, gradients, memory)
    weights, biases = zip(*for_each(task, _parts(given)), strict=True)
    return sum(weights[1:], weights[0]), sum(biases[1:], biases[0])


def _parts(given: Projected) -> list[slice]:
    """The rows of each thread."""
    return slices(len(given.memory), parts_of(len(given.memory)))


def _forward(given: Projected, laid: Laid, rows: slice) -> None:
    """One part's keys."""
    project_rows(given.memory[rows], given.weight, given.bias, laid[rows])


def _backward(given: Projected, gradients: Laid, memory: Rows, rows: slice) -> tuple[Matrix, Flat]:
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
def project_rows_back(given: Projected, gradients: Laid, memory: Rows, weight: Matrix, bias: Flat) -> None:
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
    one = np.zeros((1, 1, 1), np.float32)
    given = Projected(one, one[0], one[0, 0])
    project_back(given, project(given), one.copy())
