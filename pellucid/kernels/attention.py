"""Attention scores, forward and backward: the only place where kernels compute them.

Stepping, searching and unrolling call `attention_weights`; unrolling calls `attention_backward` too. Which equations
they take is `Scorer.score`, one of the numbers of types.py.

B rows, S source positions, n real ones, A units of the keys, D memory, F filters, N positions that a filter covers.
Keys and memory have the positions innermost, so that few units still fill the vectors; what lies beyond a row's n is
never read.

**Dot product.** e_s = q · k_s.

**Additive.** e_s = vᵀ tanh(q + k_s) needs B S A tanh a step, more than anything else in the network. It costs one
division each:

    tanh(q + k) = 1 − 2 u,  u = 1 / (1 + e^{2q} e^{2k})

where e^{2k} is computed once a source and e^{2q} once a step. u is computed again in the backward pass instead of
stored. Summands beyond ±43 count as ±43, where e^{2k} ends; that changes nothing unless two such cancel.

**Location-sensitive.** e_s = Σ_a v_a tanh(q_a + k_as + Σ_f L_af f_fs), with f_fs = Σ_j F_fj α'_{s+j} over the weights
α' of the step before, which count as zero beyond a row's positions. What is added to q + k is different at every step,
so no exponential can be shared between steps: keys and queries are left as they are.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.aligned_memory import contiguous
from pellucid.kernels.arithmetic import ONE, TWO, ZERO, Flat, add_, copy_, exp, tanh
from pellucid.kernels.gemm import gemm, gemm_add
from pellucid.kernels.jit import njit, njit_no_refcount
from pellucid.kernels.types import ADDITIVE, LOCATION_SENSITIVE, DecoderWeights

KeyMatrix = Float[np.ndarray, "B U S"]
BLOCK = 16
"""Units that are transposed together: their numbers of one position fill a line of the cache."""
NEGATIVE, POSITIVE, SIGN = np.int32(-(2**31)), np.int32(2**31 - 1), np.int32(31)
HIGHEST = np.float32(1e18)
"""Upper bound of 1 + e^{2q} e^{2k}, so that the product of two stays finite; u is then at least 10⁻¹⁸."""


class Scorer(NamedTuple):
    """A score and its parameters; those that it does not have are empty."""

    score: int
    query: Float[np.ndarray, "A H"]
    """W of the query; the state itself is the query where it is empty."""
    query_t: Float[np.ndarray, "H A"]
    energy: Flat
    """v."""
    location: Float[np.ndarray, "A F"]
    """L."""
    location_t: Float[np.ndarray, "F A"]
    filters: Float[np.ndarray, "F N"]
    filters_t: Float[np.ndarray, "N F"]


class ScorerGradients(NamedTuple):
    """Gradients of keys, v, L, F and the weights before the first step, summed over the steps."""

    keys: Float[np.ndarray, "K A S"]
    """Without rows for dot products, whose gradients are one product over all steps."""
    energy: Flat
    location: Float[np.ndarray, "A F"]
    filters: Float[np.ndarray, "F N"]
    initial_weights: Float[np.ndarray, "L S"]


class LocationBuffers(NamedTuple):
    """Memory that the location-sensitive score works in, for one row at a time; empty for other scores."""

    pad: Flat
    """α' with N − 1 zeros around it; later, its gradient."""
    windows: Flat
    """α'_{s+j} for each place j of a filter: N rows of n numbers. Later, their gradient."""
    features: Flat
    """f: F rows of n numbers. Later, their gradient."""
    added: Flat
    """L f: A rows of n numbers. Later, its gradient."""
    transposed: Flat
    """Features, then windows, with the positions outermost."""


class Source(NamedTuple):
    """Keys and memory that the unrolled decoder attends to."""

    scorer: Scorer
    keys: KeyMatrix
    """Keys as `prepare_keys` returns them."""
    memory: KeyMatrix
    lengths: Int[np.ndarray, " B"]
    initial_weights: Float[np.ndarray, "L S"]
    """The weights before the first step; without rows where no score reads them."""


class AttentionGradients(NamedTuple):
    """Gradients of one step's attention: of contexts and weights given, of energies and queries computed."""

    contexts: Float[np.ndarray, "B D"]
    weights: Float[np.ndarray, "B T S"]
    energies: Float[np.ndarray, "B T S"]
    queries: Float[np.ndarray, "B A"]


def scorer_of(weights: DecoderWeights) -> Scorer:
    """Return the score and its parameters as contiguous arrays."""
    query, location, filters = (contiguous(each) for each in (weights.query, weights.location, weights.filters))
    query_t, location_t, filters_t = (contiguous(each.T) for each in (query, location, filters))
    return Scorer(weights.score, query, query_t, contiguous(weights.energy), location, location_t, filters, filters_t)


def prepare_keys(keys: Float[np.ndarray, "B S A"], lengths: Int[np.ndarray, " B"], score: int) -> KeyMatrix:
    """Return the keys as the score reads them: e^{2k} for the additive score, else k; the positions innermost.

    Keys as keys.py leaves them have that order already.
    """
    ordered = keys.transpose(0, 2, 1)
    if not ordered.flags.c_contiguous:
        return positions_innermost(contiguous(keys), lengths, score == ADDITIVE)
    return double_exp(ordered) if score == ADDITIVE else ordered


@njit
def positions_innermost(
    values: Float[np.ndarray, "B S U"], lengths: Int[np.ndarray, " B"], as_double_exp: bool
) -> KeyMatrix:
    """Return the values with the positions innermost, as they are or as e^{2v}; undefined beyond the lengths."""
    ordered = np.empty((values.shape[0], values.shape[2], values.shape[1]), np.float32)
    for row in range(values.shape[0]):
        for first in range(0, values.shape[2], BLOCK):
            for unit in range(first, min(first + BLOCK, values.shape[2])):
                own = ordered[row, unit]
                for position in range(lengths[row]):
                    own[position] = values[row, position, unit]
        if as_double_exp:
            for unit in range(values.shape[2]):
                double_exp_(ordered[row, unit, : lengths[row]])
    return ordered


@njit
def double_exp(keys: KeyMatrix) -> KeyMatrix:
    """Return e^{2k} of keys that have the positions innermost."""
    result = np.empty_like(keys)
    given, exponentials = keys.reshape(-1), result.reshape(-1)
    for i in range(given.shape[0]):
        exponentials[i] = exp(TWO * given[i])
    return result


@njit_no_refcount
def double_exp_(values: Flat) -> None:
    """Replace every value v by e^{2v}."""
    for i in range(values.shape[0]):
        values[i] = exp(TWO * values[i])


@njit
def location_buffers(scorer: Scorer, positions: int) -> LocationBuffers:
    """Return memory for a score's work on rows of at most this many positions."""
    (count, width), units = scorer.filters.shape, scorer.location.shape[0]
    return LocationBuffers(
        np.empty(positions + width if width else 0, np.float32),
        np.empty(width * positions, np.float32),
        np.empty(count * positions, np.float32),
        np.empty(units * positions, np.float32),
        np.empty(max(count, width) * positions, np.float32),
    )


@njit_no_refcount
def project_queries(scorer: Scorer, states: Float[np.ndarray, "R H"], queries: Float[np.ndarray, "R A"]) -> None:
    """Compute queries as the score reads them: e^{2 W s} for the additive score, W s for the location-sensitive one."""
    gemm(states, scorer.query_t, queries)
    if scorer.score == ADDITIVE:
        double_exp_(queries.reshape(-1))


@njit_no_refcount
def attention_weights(
    scorer: Scorer,
    keys: Float[np.ndarray, "A S"],
    query: Flat,
    before: Flat,
    buffers: LocationBuffers,
    weights: Flat,
) -> None:
    """Compute α = softmax(e) of one query in place of zeros.

    Args:
        scorer: The score.
        keys: Keys of the source.
        query: The query.
        before: α of the step before; read by the location-sensitive score alone.
        buffers: Memory to work in.
        weights: Zeros that become α, one for each real position.
    """
    if scorer.score == ADDITIVE:
        _additive_energies(keys, query, scorer.energy, weights)
    elif scorer.score == LOCATION_SENSITIVE:
        _location_energies(scorer, keys, query, before, buffers, weights)
    else:
        add_weighted(keys, query, weights)
    softmax(weights)


@njit_no_refcount
def attention_forward(
    source: Source,
    queries: Float[np.ndarray, "B A"],
    step: int,
    buffers: LocationBuffers,
    weights: Float[np.ndarray, "B T S"],
    contexts: Float[np.ndarray, "B D"],
) -> None:
    """Compute α of all rows into `weights`, which are zero before, at this step, and Σ α h into `contexts`."""
    for row in range(queries.shape[0]):
        n = source.lengths[row]
        own, before = weights[row, step, :n], weights[row, max(step - 1, 0), :n]
        if step == 0 and source.scorer.score == LOCATION_SENSITIVE:
            before = source.initial_weights[row, :n]
        attention_weights(source.scorer, source.keys[row], queries[row], before, buffers, own)
        row_products(source.memory[row], own, contexts[row])


@njit_no_refcount
def attention_backward(
    source: Source,
    gradients: AttentionGradients,
    sums: ScorerGradients,
    step: int,
    forward: tuple[Float[np.ndarray, "B A"], Float[np.ndarray, "B T S"]],
    buffers: LocationBuffers,
) -> None:
    """Compute the gradients of `attention_forward`: dα += dα' + h · dc, de = α ⊙ (dα − α · dα), then of the score.

    `forward` are its queries and weights. Before, `gradients.energies` of a step hold what the step after adds to dα,
    and zero if it adds nothing.
    """
    (queries, weights), scorer = forward, source.scorer
    for row in range(queries.shape[0]):
        n = source.lengths[row]
        own, energies = weights[row, step, :n], gradients.energies[row, step, :n]
        if gradients.weights.shape[0] > 0:
            add_(energies, gradients.weights[row, step, :n])
        add_weighted(source.memory[row], gradients.contexts[row], energies)
        softmax_backward(own, energies)
        if scorer.score == ADDITIVE:
            _additive_backward(source, sums, row, queries[row], energies, gradients.queries[row])
        elif scorer.score == LOCATION_SENSITIVE:
            before, before_gradient = weights[row, max(step - 1, 0), :n], gradients.energies[row, max(step - 1, 0), :n]
            if step == 0:
                before, before_gradient = source.initial_weights[row, :n], sums.initial_weights[row, :n]
            _filter(scorer, before, buffers)
            _location_backward(source, sums, row, (queries[row], energies, buffers.added), gradients.queries[row])
            _filter_backward(scorer, sums, buffers, before_gradient)
        else:
            row_products(source.keys[row], energies, gradients.queries[row])


@njit_no_refcount
def _additive_energies(keys: Float[np.ndarray, "A S"], query: Flat, energy: Flat, energies: Flat) -> None:
    """Compute e_s = Σ_a −2 v_a u_as: Σ v less than vᵀ tanh(q + k), which does not change the softmax.

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


@njit_no_refcount
def _additive_backward(
    source: Source, sums: ScorerGradients, row: int, query: Flat, energies: Flat, asked: Flat
) -> None:
    """Compute, with g = de ⊙ 4 (u − u²): dk_a += v_a g, dq_a = v_a Σ_s g_s, dv_a += Σ_s −2 de u, because Σ de = 0."""
    keys, gradients, energy, energy_sums = source.keys[row], sums.keys[row], source.scorer.energy, sums.energy
    for unit in range(query.shape[0]):
        key, gradient, own, share = keys[unit], gradients[unit], query[unit], TWO * TWO * energy[unit]
        through, total = ZERO, ZERO
        for s in range(energies.shape[0]):
            u = ONE / (ONE + own * key[s])
            entered = energies[s] * u
            total += entered
            entered -= entered * u
            through += entered
            gradient[s] += share * entered
        asked[unit] = share * through
        energy_sums[unit] -= TWO * total


@njit_no_refcount
def _location_energies(
    scorer: Scorer, keys: Float[np.ndarray, "A S"], query: Flat, before: Flat, buffers: LocationBuffers, energies: Flat
) -> None:
    """Compute e_s = Σ_a v_a tanh(q_a + k_as + (L f)_as)."""
    _filter(scorer, before, buffers)
    n = energies.shape[0]
    for unit in range(query.shape[0]):
        key, more, asked, share = keys[unit], buffers.added[unit * n : unit * n + n], query[unit], scorer.energy[unit]
        for s in range(n):
            energies[s] += share * tanh(asked + key[s] + more[s])


@njit_no_refcount
def _filter(scorer: Scorer, before: Flat, buffers: LocationBuffers) -> None:
    """Compute the windows of α', f = F ∗ α' and L f into the buffers."""
    n, (count, width), units = before.shape[0], scorer.filters.shape, scorer.location.shape[0]
    padded = buffers.pad[: n + width - 1]
    for at in range(padded.shape[0]):
        padded[at] = ZERO
    copy_(padded[width // 2 : width // 2 + n], before)
    for place in range(width):
        copy_(buffers.windows[place * n : place * n + n], padded[place : place + n])
    features = buffers.features[: count * n].reshape((count, n))
    gemm(scorer.filters, buffers.windows[: width * n].reshape((width, n)), features)
    gemm(scorer.location, features, buffers.added[: units * n].reshape((units, n)))


@njit_no_refcount
def _location_backward(
    source: Source, sums: ScorerGradients, row: int, forward: tuple[Flat, Flat, Flat], asked: Flat
) -> None:
    """Compute, with t the tanh: dv_a += Σ_s de_s t, dk_a += g = v_a de (1 − t²), dq_a = Σ_s g; g replaces L f.

    `forward` holds the query, de and L f.
    """
    (query, energies, added), n = forward, forward[1].shape[0]
    keys, gradients, energy_sums = source.keys[row], sums.keys[row], sums.energy
    for unit in range(query.shape[0]):
        key, gradient, own = keys[unit], gradients[unit], added[unit * n : unit * n + n]
        value, share = query[unit], source.scorer.energy[unit]
        through, total = ZERO, ZERO
        for s in range(n):
            squashed = tanh(value + key[s] + own[s])
            entered = energies[s] * squashed
            total += entered
            entered = share * (energies[s] - entered * squashed)
            through += entered
            gradient[s] += entered
            own[s] = entered
        asked[unit] = through
        energy_sums[unit] += total


@njit_no_refcount
def _filter_backward(scorer: Scorer, sums: ScorerGradients, buffers: LocationBuffers, before: Flat) -> None:
    """Compute, from g: dL += g fᵀ, df = Lᵀ g, dF_fj += Σ_s df_s α'_{s+j}, and dα'_{s+j} += Σ_f F_fj df_fs."""
    n, (count, width), units = before.shape[0], scorer.filters.shape, scorer.location.shape[0]
    added = buffers.added[: units * n].reshape((units, n))
    features = buffers.features[: count * n].reshape((count, n))
    windows = buffers.windows[: width * n].reshape((width, n))
    features_t = buffers.transposed[: n * count].reshape((n, count))
    _transpose(features, features_t)
    gemm_add(added, features_t, sums.location)
    gemm(scorer.location_t, added, features)
    windows_t = buffers.transposed[: n * width].reshape((n, width))
    _transpose(windows, windows_t)
    gemm_add(features, windows_t, sums.filters)
    gemm(scorer.filters_t, features, windows)
    padded = buffers.pad[: n + width - 1]
    for at in range(padded.shape[0]):
        padded[at] = ZERO
    for place in range(width):
        add_(padded[place : place + n], windows[place])
    add_(before, padded[width // 2 : width // 2 + n])


@njit_no_refcount
def _transpose(matrix: Float[np.ndarray, "U n"], result: Float[np.ndarray, "n U"]) -> None:
    """Compute result = matrixᵀ."""
    for unit in range(matrix.shape[0]):
        for s in range(matrix.shape[1]):
            result[s, unit] = matrix[unit, s]


@njit_no_refcount
def highest(values: Flat) -> np.float32:
    """Return the greatest value by the order of the bits, in which NaN is greater than all numbers.

    A comparison of integers fills the vectors; one of floats would have to ask for NaN at every step.
    """
    bits = values.view(np.int32)
    top = NEGATIVE
    for s in range(bits.shape[0]):
        ordered = bits[s] ^ ((bits[s] >> SIGN) & POSITIVE)
        top = max(top, ordered)
    return np.int32(top ^ ((top >> SIGN) & POSITIVE)).view(np.float32)


@njit_no_refcount
def softmax(values: Flat) -> None:
    """Replace every value e by α = exp(e − max e) / Σ."""
    top = highest(values)
    for s in range(values.shape[0]):
        values[s] = exp(values[s] - top)
    total = ZERO
    for s in range(values.shape[0]):
        total += values[s]
    share = ONE / total
    for s in range(values.shape[0]):
        values[s] *= share


@njit_no_refcount
def softmax_backward(weights: Flat, gradients: Flat) -> None:
    """Replace every dα by de = α (dα − Σ α dα)."""
    mean = ZERO
    for s in range(weights.shape[0]):
        mean += weights[s] * gradients[s]
    for s in range(weights.shape[0]):
        gradients[s] = weights[s] * (gradients[s] - mean)


@njit_no_refcount
def add_weighted(matrix: Float[np.ndarray, "U S"], vector: Flat, sums: Flat) -> None:
    """Compute sums_s += Σ_u vector_u matrix_us."""
    for unit in range(matrix.shape[0]):
        values, share = matrix[unit], vector[unit]
        for s in range(sums.shape[0]):
            sums[s] += share * values[s]


@njit_no_refcount
def row_products(matrix: Float[np.ndarray, "U S"], vector: Flat, results: Flat) -> None:
    """Compute results_u = Σ_s matrix_us vector_s over the s that the vector has."""
    for unit in range(matrix.shape[0]):
        values, total = matrix[unit], ZERO
        for s in range(vector.shape[0]):
            total += values[s] * vector[s]
        results[unit] = total
