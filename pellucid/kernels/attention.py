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

from pellucid.kernels.arithmetic import ONE, TWO, ZERO, Flat, exponential, put
from pellucid.kernels.compiling import compiled, in_place

Laid = Float[np.ndarray, "B U S"]
BLOCK = 16
"""Units that are laid out together: their numbers of one position fill a line of the cache."""
NEGATIVE, POSITIVE, SIGN = np.int32(-(2**31)), np.int32(2**31 - 1), np.int32(31)
HIGHEST = np.float32(1e18)
"""What 1 + e^{2q} e^{2k} counts as at most, so that the product of two stays finite; u is then 10⁻¹⁸, not less."""


class Location(NamedTuple):
    """What the score by location reads of the look before (see location.py); without filters, nothing."""

    filters: Float[np.ndarray, "F N"]
    projection: Float[np.ndarray, "A F"]
    filters_across: Float[np.ndarray, "N F"]
    projection_across: Float[np.ndarray, "F A"]
    looked: Float[np.ndarray, "B S"]
    """The weights before the first step."""


class LocationGradients(NamedTuple):
    """The gradients of filters and projection, and of the weights before the first step."""

    filters: Float[np.ndarray, "F N"]
    projection: Float[np.ndarray, "A F"]
    looked: Float[np.ndarray, "B S"]


class Source(NamedTuple):
    """What is looked at. `energy` is v of the additive score; where it is empty, the score is q · k."""

    keys: Laid
    """e^{2k} for the additive score, else k."""
    memory: Laid
    lengths: Int[np.ndarray, " B"]
    energy: Flat
    location: Location


class SourceGradients(NamedTuple):
    """The gradients of keys and v, summed over the steps; those of q · k and Σ α h come after all steps, outside."""

    keys: Laid
    energy: Flat
    location: LocationGradients


class LookGradients(NamedTuple):
    """The gradients of one look of all rows: of contexts and weights given, of energies and queries made."""

    contexts: Float[np.ndarray, "B D"]
    weights: Float[np.ndarray, "B T S"]
    energies: Float[np.ndarray, "B T S"]
    queries: Float[np.ndarray, "B A"]


@compiled
def laid_out(values: Float[np.ndarray, "B S U"], lengths: Int[np.ndarray, " B"], doubled_exponent: bool) -> Laid:
    """Values with the positions innermost, as they are or as e^{2v}; beyond the lengths, anything."""
    laid = np.empty((values.shape[0], values.shape[2], values.shape[1]), np.float32)
    for row in range(values.shape[0]):
        for first in range(0, values.shape[2], BLOCK):
            for unit in range(first, min(first + BLOCK, values.shape[2])):
                own = laid[row, unit]
                for position in range(lengths[row]):
                    own[position] = values[row, position, unit]
        if doubled_exponent:
            for unit in range(values.shape[2]):
                double_exponents(laid[row, unit, : lengths[row]])
    return laid


@compiled
def doubled_exponents(keys: Laid) -> Laid:
    """e^{2k} of keys that stand with the positions innermost."""
    laid = np.empty_like(keys)
    given, result = keys.reshape(-1), laid.reshape(-1)
    for i in range(given.shape[0]):
        result[i] = exponential(TWO * given[i])
    return laid


@in_place
def double_exponents(values: Flat) -> None:
    """Every value v becomes e^{2v}."""
    for i in range(values.shape[0]):
        values[i] = exponential(TWO * values[i])


@in_place
def look(
    source: Source,
    queries: Float[np.ndarray, "B A"],
    step: int,
    weights: Float[np.ndarray, "B T S"],
    contexts: Float[np.ndarray, "B D"],
) -> None:
    """α = softmax(e) into `weights`, which are zero before, at this step; Σ α h into `contexts`."""
    for row in range(queries.shape[0]):
        own = weights[row, step, : source.lengths[row]]
        weigh(source.keys[row], queries[row], source.energy, own)
        row_products(source.memory[row], own, contexts[row])


@in_place
def weigh(keys: Float[np.ndarray, "A S"], query: Flat, energy: Flat, weights: Flat) -> None:
    """α = softmax(e) of one query in place of zeros, as many as there are real positions."""
    if energy.shape[0] > 0:
        _additive_energies(keys, query, energy, weights)
    else:
        add_weighted(keys, query, weights)
    softmax(weights)


@in_place
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
            put(energies, gradients.weights[row, step, :n])
        add_weighted(source.memory[row], gradients.contexts[row], energies)
        softmax_back(own, energies)
        if source.energy.shape[0] > 0:
            _additive_back(source, sums, row, queries[row], energies, gradients.queries[row])
        else:
            row_products(source.keys[row], energies, gradients.queries[row])


@in_place
def _additive_energies(keys: Float[np.ndarray, "A S"], query: Flat, energy: Flat, energies: Flat) -> None:
    """e_s = Σ_a −2 v_a u_as: less by Σ v than vᵀ tanh(q + k), to which the softmax is blind.

    Two units share a division: a/x + b/y = (a y + b x) / (x y).
    """
    pairs = keys.shape[0] // 2
    for pair in range(pairs):
        first, second = keys[2 * pair], keys[2 * pair + 1]
        asked, other = query[2 * pair], query[2 * pair + 1]
        share, rest = -TWO * energy[2 * pair], -TWO * energy[2 * pair + 1]
        for s in range(energies.shape[0]):
            x, y = ONE + asked * first[s], ONE + other * second[s]
            x, y = HIGHEST if x > HIGHEST else x, HIGHEST if y > HIGHEST else y
            energies[s] += (share * y + rest * x) / (x * y)
    for unit in range(2 * pairs, keys.shape[0]):
        key, asked, share = keys[unit], query[unit], -TWO * energy[unit]
        for s in range(energies.shape[0]):
            energies[s] += share / (ONE + asked * key[s])


@in_place
def _additive_back(source: Source, sums: SourceGradients, row: int, query: Flat, energies: Flat, asked: Flat) -> None:
    """With g = de ⊙ 4 (u − u²): dk_a += v_a g, dq_a = v_a Σ_s g_s, dv_a += Σ_s −2 de u, because Σ de = 0."""
    keys, gradients, energy, taken_sums = source.keys[row], sums.keys[row], source.energy, sums.energy
    for unit in range(query.shape[0]):
        key, gradient, own, share = keys[unit], gradients[unit], query[unit], TWO * TWO * energy[unit]
        through, taken = ZERO, ZERO
        for s in range(energies.shape[0]):
            u = ONE / (ONE + own * key[s])
            entered = energies[s] * u
            taken += entered
            entered -= entered * u
            through += entered
            gradient[s] += share * entered
        asked[unit] = share * through
        taken_sums[unit] -= TWO * taken


@in_place
def highest(values: Flat) -> np.float32:
    """The greatest value, by the order of the bits, in which NaN is greater than all numbers.

    A comparison of integers fills the vectors; one of floats would have to ask for NaN at every step.
    """
    bits = values.view(np.int32)
    top = NEGATIVE
    for s in range(bits.shape[0]):
        ordered = bits[s] ^ ((bits[s] >> SIGN) & POSITIVE)
        top = max(top, ordered)
    return np.int32(top ^ ((top >> SIGN) & POSITIVE)).view(np.float32)


@in_place
def softmax(values: Flat) -> None:
    """Every value e becomes α = exp(e − max e) / Σ."""
    top = highest(values)
    for s in range(values.shape[0]):
        values[s] = exponential(values[s] - top)
    total = ZERO
    for s in range(values.shape[0]):
        total += values[s]
    share = ONE / total
    for s in range(values.shape[0]):
        values[s] *= share


@in_place
def softmax_back(weights: Flat, gradients: Flat) -> None:
    """Every dα becomes de = α (dα − Σ α dα)."""
    mean = ZERO
    for s in range(weights.shape[0]):
        mean += weights[s] * gradients[s]
    for s in range(weights.shape[0]):
        gradients[s] = weights[s] * (gradients[s] - mean)


@in_place
def add_weighted(matrix: Float[np.ndarray, "U S"], vector: Flat, sums: Flat) -> None:
    """Sums_s += Σ_u vector_u matrix_us."""
    for unit in range(matrix.shape[0]):
        values, share = matrix[unit], vector[unit]
        for s in range(sums.shape[0]):
            sums[s] += share * values[s]


@in_place
def row_products(matrix: Float[np.ndarray, "U S"], vector: Flat, results: Flat) -> None:
    """Results_u = Σ_s matrix_us vector_s over as many s as the vector has."""
    for unit in range(matrix.shape[0]):
        values, total = matrix[unit], ZERO
        for s in range(vector.shape[0]):
            total += values[s] * vector[s]
        results[unit] = total
