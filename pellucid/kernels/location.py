"""One look of every row that sees where the look before went, forward and backward.

e_s = Σ_a v_a tanh(q_a + k_as + Σ_f L_af f_fs), with f_fs = Σ_j F_fj α'_{s+j} over the weights α' of the step before,
which count as zero beyond a row's positions.

B rows, S source positions, n real ones, A units of the keys, D memory, F filters, N positions that a filter covers.
What is added to q + k is another at every step, so that no exponential is left to be shared between steps: keys and
queries stand as they are.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pellucid.kernels.arithmetic import ZERO, Flat, add, tangent
from pellucid.kernels.attention import (
    Location,
    LocationGradients,
    LookGradients,
    Source,
    SourceGradients,
    add_weighted,
    row_products,
    softmax,
    softmax_back,
)
from pellucid.kernels.compiling import compiled
from pellucid.kernels.gemm import add_product, product


class Filtered(NamedTuple):
    """What the score of one row reads of the look before, and what comes of it."""

    seen: Float[np.ndarray, "N n"]
    """α'_{s+j}, for each place j of a filter."""
    features: Float[np.ndarray, "F n"]
    added: Float[np.ndarray, "A n"]
    """L f."""


@compiled
def look_located(
    source: Source,
    queries: Float[np.ndarray, "B A"],
    step: int,
    weights: Float[np.ndarray, "B T S"],
    contexts: Float[np.ndarray, "B D"],
) -> None:
    """α = softmax(e) into `weights`, which are zero before, at this step; Σ α h into `contexts`."""
    for row in range(queries.shape[0]):
        own = weights[row, step, : source.lengths[row]]
        before = _before(source, weights, row, step)
        weigh_located(source.keys[row], queries[row], source.energy, source.location, before, own)
        row_products(source.memory[row], own, contexts[row])


@compiled
def _before(source: Source, weights: Float[np.ndarray, "B T S"], row: int, step: int) -> Flat:
    """The weights of the step before."""
    if step == 0:
        return source.location.looked[row, : source.lengths[row]]
    return weights[row, step - 1, : source.lengths[row]]


@compiled
def weigh_located(
    keys: Float[np.ndarray, "A S"], query: Flat, energy: Flat, location: Location, before: Flat, weights: Flat
) -> None:
    """α = softmax(e) of one query in place of zeros, as many as there are real positions."""
    added = _filtered(location, before).added
    for unit in range(query.shape[0]):
        key, more, asked, share = keys[unit], added[unit], query[unit], energy[unit]
        for s in range(weights.shape[0]):
            weights[s] += share * tangent(asked + key[s] + more[s])
    softmax(weights)


@compiled
def _filtered(location: Location, before: Flat) -> Filtered:
    """F ∗ α' and L (F ∗ α')."""
    n, (count, width) = before.shape[0], location.filters.shape
    around, seen = np.zeros(n + width - 1, np.float32), np.empty((width, n), np.float32)
    around[width // 2 : width // 2 + n] = before
    for place in range(width):
        seen[place] = around[place : place + n]
    features, added = np.empty((count, n), np.float32), np.empty((location.projection.shape[0], n), np.float32)
    product(location.filters, seen, features)
    product(location.projection, features, added)
    return Filtered(seen, features, added)


@compiled
def look_located_back(
    source: Source,
    gradients: LookGradients,
    sums: SourceGradients,
    step: int,
    queries: Float[np.ndarray, "B A"],
    weights: Float[np.ndarray, "B T S"],
) -> None:
    """The way back of `look_located`, to whose gradient of weights the step after has added its share in `energies`."""
    for row in range(queries.shape[0]):
        n, before = source.lengths[row], _before(source, weights, row, step)
        energies = gradients.energies[row, step, :n]
        if gradients.weights.shape[0] > 0:
            add(energies, gradients.weights[row, step, :n])
        add_weighted(source.memory[row], gradients.contexts[row], energies)
        softmax_back(weights[row, step, :n], energies)
        filtered = _filtered(source.location, before)
        gradients.queries[row] = queries[row]
        _score_back(source, sums, row, filtered.added, energies, gradients.queries[row])
        if step == 0:
            _filters_back(source.location, sums.location, filtered, sums.location.looked[row, :n])
        else:
            _filters_back(source.location, sums.location, filtered, gradients.energies[row, step - 1, :n])


@compiled
def _score_back(
    source: Source, sums: SourceGradients, row: int, added: Float[np.ndarray, "A n"], energies: Flat, query: Flat
) -> None:
    """With t the tanh: dv_a += Σ_s de_s t, dk_a += g = v_a de (1 − t²), dq_a = Σ_s g. g takes the place of L f."""
    keys, gradients, taken_sums = source.keys[row], sums.keys[row], sums.energy
    for unit in range(query.shape[0]):
        key, gradient, own, asked, share = keys[unit], gradients[unit], added[unit], query[unit], source.energy[unit]
        through, taken = ZERO, ZERO
        for s in range(energies.shape[0]):
            bent = tangent(asked + key[s] + own[s])
            entered = energies[s] * bent
            taken += entered
            entered = share * (energies[s] - entered * bent)
            through += entered
            gradient[s] += entered
            own[s] = entered
        query[unit] = through
        taken_sums[unit] += taken


@compiled
def _filters_back(location: Location, sums: LocationGradients, filtered: Filtered, looked: Flat) -> None:
    """From g: dL += g fᵀ, df = Lᵀ g, dF_fj += Σ_s df_s α'_{s+j}, and dα'_{s+j} += Σ_f F_fj df_fs into `looked`."""
    n, (count, width) = looked.shape[0], location.filters.shape
    features, seen = np.empty((count, n), np.float32), np.empty((width, n), np.float32)
    add_product(filtered.added, np.ascontiguousarray(filtered.features.T), sums.projection)
    product(location.projection_across, filtered.added, features)
    add_product(features, np.ascontiguousarray(filtered.seen.T), sums.filters)
    product(location.filters_across, features, seen)
    around = np.zeros(n + width - 1, np.float32)
    for place in range(width):
        add(around[place : place + n], seen[place])
    add(looked, around[width // 2 : width // 2 + n])
