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
Keys = Float[np.ndarray, "B A S"]
Matrix = Float[np.ndarray, "A D"]


class KeyProjection(NamedTuple):
    """A memory, and the weight and bias that project it."""

    memory: Rows
    weight: Matrix
    bias: Flat


def project(projection: KeyProjection) -> Keys:
    """Return the keys K = W Mᵀ + b, with the positions innermost.

    Args:
        projection: The memory M, the weight W and the bias b; an empty b adds nothing.
    """
    keys: Keys = empty((len(projection.memory), len(projection.weight), projection.memory.shape[1]))
    for_each(partial(_forward, projection, keys), _parts(projection))
    return keys


def project_backward(projection: KeyProjection, gradients: Keys, memory: Rows) -> tuple[Matrix, Flat]:
    """Return the gradients of weight and bias.

    Args:
        projection: The memory, weight and bias.
        gradients: Gradients of the keys.
        memory: Output: the gradients of the memory.
    """
    task = partial(_backward, projection, gradients, memory)
    weights, biases = zip(*for_each(task, _parts(projection)), strict=True)
    return sum(weights[1:], weights[0]), sum(biases[1:], biases[0])


def _parts(projection: KeyProjection) -> list[slice]:
    """Return the rows of each thread."""
    return slices(len(projection.memory), parts_of(len(projection.memory)))


def _forward(projection: KeyProjection, keys: Keys, rows: slice) -> None:
    """Compute one part's keys."""
    project_rows(projection.memory[rows], projection.weight, projection.bias, keys[rows])


def _backward(projection: KeyProjection, gradients: Keys, memory: Rows, rows: slice) -> tuple[Matrix, Flat]:
    """Write the gradients of one part's memory, and return its summands of the gradients of weight and bias."""
    weight, bias = np.zeros_like(projection.weight), np.zeros_like(projection.bias)
    project_rows_backward(
        projection._replace(memory=projection.memory[rows]), gradients[rows], memory[rows], weight, bias
    )
    return weight, bias


@njit_no_refcount
def project_rows(memory: Rows, weight: Matrix, bias: Flat, keys: Keys) -> None:
    """Compute K = W Mᵀ + b of every row.

    Args:
        memory: M.
        weight: W.
        bias: b; empty for none.
        keys: Output.
    """
    for row in range(memory.shape[0]):
        gemm_nt(weight, memory[row], keys[row])
        for unit in range(bias.shape[0]):
            unit_keys, unit_bias = keys[row, unit], bias[unit]
            for position in range(unit_keys.shape[0]):
                unit_keys[position] += unit_bias


@njit_no_refcount
def project_rows_backward(projection: KeyProjection, gradients: Keys, memory: Rows, weight: Matrix, bias: Flat) -> None:
    """Compute dM = dKᵀ W of every row; dW += dK M; db += Σ dK.

    Args:
        projection: The memory, weight and bias.
        gradients: dK.
        memory: Output: dM.
        weight: Sum: dW.
        bias: Sum: db; empty for none.
    """
    for row in range(gradients.shape[0]):
        gemm_tn(gradients[row], projection.weight, memory[row])
        gemm_add(gradients[row], projection.memory[row], weight)
        for unit in range(bias.shape[0]):
            unit_gradient, bias_sum = gradients[row, unit], ZERO
            for position in range(unit_gradient.shape[0]):
                bias_sum += unit_gradient[position]
            bias[unit] += bias_sum


def warm_up() -> None:
    """Compile every kernel of this module by running the smallest example forward and backward."""
    one = np.zeros((1, 1, 1), np.float32)
    projection = KeyProjection(one, one[0], one[0, 0])
    project_backward(projection, project(projection), one.copy())
