"""One look of every row at its source, forward and backward.

B rows, S source positions, n real ones, A units of the keys, D memory. Keys and memory stand with the positions
innermost, so that few units still fill the vectors; what lies beyond a row's n is never read.

The additive score needs B S A tanh a step, more than anything else in the network. It costs one division each:

    tanh(q + k) = 1 − 2 u,  u = 1 / (1 + e^{2q} e^{2k})

where e^{2k} is computed once a source and e^{2q} once a step. u is computed again on the way back instead of stored.
Summands beyond ±43 count as ±43, where e^{2k} ends; that changes nothing unless two such cancel.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.arithmetic import ONE, TWO, ZERO, Flat, exponential
from pellucid.kernels.compiling import compiled

Laid = Float[np.ndarray, "B U S"]


class Source(NamedTuple):
    """What is looked at. `energy` is v of the additive score; where it is empty, the score is q · k."""

    keys: Laid
    """e^{2k} for the additive score, else k."""
    memory: Laid
    lengths: Int[np.ndarray, " B"]
    energy: Flat


class SourceGradients(NamedTuple):
    """The gradients of keys and v, summed over the steps; those of q · k and Σ α h come after all steps, outside."""

    keys: Laid
    energy: Flat


class LookGradients(NamedTuple):
    """The gradients of one look of all rows: of contexts and weights given, of energies and queries made."""

    contexts: Float[np.ndarray, "B D"]
    weights: Float[np.ndarray, "B T S"]
    energies: Float[np.ndarray, "B T S"]
    queries: Float[np.ndarray, "B A"]


@compiled
def laid_out(values: Float[np.ndarray, "B S U"], lengths: Int[np.ndarray, " B"], doubled_exponent: bool) -> Laid:
    """Values with the positions innermost, as they are or as e^{2v}; zeros beyond the lengths."""
    laid = np.zeros((values.shape[0], values.shape[2], values.shape[1]), np.float32)
    for row in range(values.shape[0]):
        for position in range(lengths[row]):
            for unit in range(values.shape[2]):
                laid[row, unit, position] = values[row, position, unit]
        if doubled_exponent:
            for unit in range(values.shape[2]):
                double_exponents(laid[row, unit, : lengths[row]])
    return laid


@compiled
def double_exponents(values: Flat) -> None:
    """Every value v becomes e^{2v}."""
    for i in range(values.shape[0]):
        values[i] = exponential(TWO * values[i])


@compiled
def look(
    source: Source,
    queries: Float[np.ndarray, "B A"],
    step: int,
    weights: Float[np.ndarray, "B T S"],
    contexts: Float[np.ndarray, "B D"],
) -> None:
    """α = softmax(e) into `weights`, which are zero before, at this step; Σ α h into `contexts`."""
    for row in range(contexts.shape[0]):
        own = weights[row, step, : source.lengths[row]]
        if source.energy.shape[0] > 0:
            _additive_energies(source.keys[row], queries[row], source.energy, own)
        else:
            _add_products(source.keys[row], queries[row], own)
        _softmax(own)
        _products(source.memory[row], own, contexts[row])


@compiled
def look_back(
    source: Source,
    gradients: LookGradients,
    sums: SourceGradients,
    step: int,
    queries: Float[np.ndarray, "B A"],
    weights: Float[np.ndarray, "B T S"],
) -> None:
    """The way back of `look`: dα = dα' + h · dc, de = α ⊙ (dα − α · dα), then through the score."""
    for row in range(queries.shape[0]):
        n = source.lengths[row]
        own, energies = weights[row, step, :n], gradients.energies[row, step, :n]
        if gradients.weights.shape[0] > 0:
            energies[:] = gradients.weights[row, step, :n]
        _add_products(source.memory[row], gradients.contexts[row], energies)
        _softmax_back(own, energies)
        if source.energy.shape[0] > 0:
            _additive_back(source, sums, row, queries[row], energies, gradients.queries[row])
        else:
            _products(source.keys[row], energies, gradients.queries[row])


@compiled
def _additive_energies(keys: Float[np.ndarray, "A S"], query: Flat, energy: Flat, energies: Flat) -> None:
    """e_s = Σ_a −2 v_a u_as: less by Σ v than vᵀ tanh(q + k), to which the softmax is blind."""
    for unit in range(keys.shape[0]):
        key, asked, share = keys[unit], query[unit], -TWO * energy[unit]
        for s in range(energies.shape[0]):
            energies[s] += share / (ONE + asked * key[s])


@compiled
def _additive_back(source: Source, sums: SourceGradients, row: int, query: Flat, energies: Flat, asked: Flat) -> None:
    """With g = de ⊙ 4 (u − u²): dk_a += v_a g, dq_a = v_a Σ_s g, dv_a += Σ_s −2 de u, because Σ de = 0."""
    for unit in range(query.shape[0]):
        key, gradient = source.keys[row, unit], sums.keys[row, unit]
        through, taken = _unit_back(key, query[unit], energies, TWO * TWO * source.energy[unit], gradient)
        asked[unit] = through
        sums.energy[unit] -= TWO * taken


@compiled
def _unit_back(
    key: Flat, asked: np.float32, energies: Flat, share: np.float32, gradient: Flat
) -> tuple[np.float32, np.float32]:
    """One unit of the way back: its key's gradient grows; Σ of what it grew by, and Σ de u."""
    through, taken = ZERO, ZERO
    for s in range(energies.shape[0]):
        u = ONE / (ONE + asked * key[s])
        entered = energies[s] * u
        taken += entered
        entered -= entered * u
        through += entered
        gradient[s] += share * entered
    return share * through, taken


@compiled
def _softmax(values: Flat) -> None:
    """Every value e becomes α = exp(e − max e) / Σ."""
    highest = values[0]
    for s in range(values.shape[0]):
        highest = values[s] if values[s] > highest else highest
    for s in range(values.shape[0]):
        values[s] = exponential(values[s] - highest)
    total = ZERO
    for s in range(values.shape[0]):
        total += values[s]
    share = ONE / total
    for s in range(values.shape[0]):
        values[s] *= share


@compiled
def _softmax_back(weights: Flat, gradients: Flat) -> None:
    """Every dα becomes de = α (dα − Σ α dα)."""
    mean = ZERO
    for s in range(weights.shape[0]):
        mean += weights[s] * gradients[s]
    for s in range(weights.shape[0]):
        gradients[s] = weights[s] * (gradients[s] - mean)


@compiled
def _add_products(matrix: Float[np.ndarray, "U S"], vector: Flat, sums: Flat) -> None:
    """Sums_s += Σ_u vector_u matrix_us."""
    for unit in range(matrix.shape[0]):
        values, share = matrix[unit], vector[unit]
        for s in range(sums.shape[0]):
            sums[s] += share * values[s]


@compiled
def _products(matrix: Float[np.ndarray, "U S"], vector: Flat, results: Flat) -> None:
    """Results_u = Σ_s matrix_us vector_s over as many s as the vector has."""
    for unit in range(matrix.shape[0]):
        values, total = matrix[unit], ZERO
        for s in range(vector.shape[0]):
            total += values[s] * vector[s]
        results[unit] = total
