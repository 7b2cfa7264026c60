"""The keys of attention: a projection of the memory, with the positions innermost in memory.

B rows, S positions, A units, D memory. K = W Mᵀ + b is computed row by row, so that neither the keys nor their
gradients are transposed afterwards.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pellucid.kernels.aligned_memory import empty
from pellucid.kernels.arithmetic import ZERO, Flat
from pellucid.kernels.gemm import gemm_add, gemm_nt, gemm_tn
from pellucid.kernels.jit import njit_no_refcount
from pellucid.kernels.parallel import for_each, parts_of, slices

Rows = Float[np.ndarray, "B S D"]
Laid = Float[np.ndarray, "B A S"]
Matrix = Float[np.ndarray, "A D"]


class KeyProjection(NamedTuple):
    """A memory, and the weight and bias that project it."""

    memory: Rows
    weight: Matrix
    bias: Flat


def project(given: KeyProjection) -> Laid:
    """Return the keys, with the positions innermost."""
    laid: Laid = empty((len(given.memory), len(given.weight), given.memory.shape[1]))
    for_each(partial(_forward, given, laid), _parts(given))
    return laid


def project_backward(given: KeyProjection, gradients: Laid, memory: Rows) -> tuple[Matrix, Flat]:
    """Return the gradients of weight and bias from that of the keys; that of the memory is written into `memory`."""
    task = partial(_backward, given, gradients, memory)
    weights, biases = zip(*for_each(task, _parts(given)), strict=True)
    return sum(weights[1:], weights[0]), sum(biases[1:], biases[0])


def _parts(given: KeyProjection) -> list[slice]:
    """Return the rows of each thread."""
    return slices(len(given.memory), parts_of(len(given.memory)))


def _forward(given: KeyProjection, laid: Laid, rows: slice) -> None:
    """Compute one part's keys."""
    project_rows(given.memory[rows], given.weight, given.bias, laid[rows])


def _backward(given: KeyProjection, gradients: Laid, memory: Rows, rows: slice) -> tuple[Matrix, Flat]:
    """Write the gradients of one part's memory, and return its shares of those of weight and bias."""
    weight, bias = np.zeros_like(given.weight), np.zeros_like(given.bias)
    project_rows_backward(given._replace(memory=given.memory[rows]), gradients[rows], memory[rows], weight, bias)
    return weight, bias


@njit_no_refcount
def project_rows(memory: Rows, weight: Matrix, bias: Flat, laid: Laid) -> None:
    """Compute K = W Mᵀ + b of every row."""
    for row in range(memory.shape[0]):
        gemm_nt(weight, memory[row], laid[row])
        for unit in range(bias.shape[0]):
            keys, added = laid[row, unit], bias[unit]
            for position in range(keys.shape[0]):
                keys[position] += added


@njit_no_refcount
def project_rows_backward(given: KeyProjection, gradients: Laid, memory: Rows, weight: Matrix, bias: Flat) -> None:
    """Compute dM = dKᵀ W of every row; dW += dK M; db += Σ dK."""
    for row in range(gradients.shape[0]):
        gemm_tn(gradients[row], given.weight, memory[row])
        gemm_add(gradients[row], given.memory[row], weight)
        for unit in range(bias.shape[0]):
            arrived, total = gradients[row, unit], ZERO
            for position in range(arrived.shape[0]):
                total += arrived[position]
            bias[unit] += total


def warm_up() -> None:
    """Compile everything here by running the smallest example there and back."""
    one = np.zeros((1, 1, 1), np.float32)
    given = KeyProjection(one, one[0], one[0, 0])
    project_backward(given, project(given), one.copy())
