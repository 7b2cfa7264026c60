"""Attention of kernels: the projection of the keys, and the scores, forward and backward.

Only this module computes scores in the CPU kernels. Stepping, searching and unrolling call `attention_weights`;
unrolling calls `attention_backward` too. `AttentionScorer.layout` selects the equations; it is one of the layouts of
types.py.

B rows, S source positions, n real ones, A units of the keys, D memory, F filters, N positions that a filter covers, R
queries, U units of the keys or of the memory. K and L are lengths of optional arrays, and 0 without them: K = B if
gradients of keys are added, L = B if the score reads weights (in equations, L is a matrix). Keys and memory have the
positions innermost, so that few units still fill the vectors; values beyond a row's n are never read.

**Keys.** K = W Mᵀ + b is computed row by row, with the positions innermost, so that neither the keys nor their
gradients are transposed afterwards.

**Dot product.** e_s = q · k_s.

**Additive.** e_s = vᵀ tanh(q + k_s) needs B S A tanh a step, more than anything else in the network. It costs one
division each:

    tanh(q + k) = 1 − 2 u,  u = 1 / (1 + e^{2q} e^{2k})

where e^{2k} is computed once a source and e^{2q} once a step. u is computed again in the backward pass instead of
stored. Summands beyond ±43 count as ±43, where e^{2k} ends; that changes nothing unless two such cancel.

**Location-sensitive.** e_s = Σ_a v_a tanh(q_a + k_as + Σ_f L_af f_fs), with f_fs = Σ_j F_fj α'_{s+j} over the weights
α' of the previous step, which count as zero beyond a row's positions. The term added to q + k differs at every step,
so no exponential can be shared between steps: keys and queries are left as they are.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from pellucid.kernels.arithmetic import (
    ONE,
    TWO,
    ZERO,
    Flat,
    add_,
    copy_,
    exp,
    gemm,
    gemm_add,
    gemm_nt,
    gemm_tn,
    gemv,
    gemv_t_add,
    softmax_,
    softmax_backward_,
    tanh,
)
from pellucid.kernels.compilation import njit, njit_inlined, njit_no_refcount
from pellucid.kernels.runtime import contiguous, empty, num_slices, split_rows, thread_map
from pellucid.kernels.types import ADDITIVE, LOCATION_SENSITIVE, DecoderParameters, ScoreLayout
from pellucid.shapes import Float, Int

ADDITIVE_SCORE, LOCATION_SCORE = ADDITIVE.score, LOCATION_SENSITIVE.score
KeyMatrix = Float[np.ndarray, "B U S"]
TRANSPOSE_BLOCK = 16
"""Units that are transposed together: their numbers of one position fill a line of the cache."""
MAX_EXPONENTIAL = np.float32(1e18)
"""Upper bound of 1 + e^{2q} e^{2k}, so that the product of two stays finite; u is then at least 10⁻¹⁸."""


class KeyProjection(NamedTuple):
    """Arguments of the projection of the keys: the memory M (encoder states), W and b; b is empty if there is none."""

    memory: Float[np.ndarray, "B S D"]
    weight: Float[np.ndarray, "A D"]
    bias: Flat
    bfloat16: bool = False
    """Whether products are in bfloat16, with sums in float32."""


def project_keys_numpy(projection: KeyProjection) -> KeyMatrix:
    """Return the keys K = W Mᵀ + b of each row, with the positions innermost, computed by all threads.

    Args:
        projection: The memory M, the weight W and the bias b.
    """
    keys: KeyMatrix = empty((len(projection.memory), len(projection.weight), projection.memory.shape[1]))
    thread_map(partial(_project_rows, projection, keys), _row_slices(projection))
    return keys


def project_keys_backward(
    projection: KeyProjection, grad_keys: KeyMatrix, grad_memory: Float[np.ndarray, "B S D"]
) -> tuple[Float[np.ndarray, "A D"], Flat]:
    """Return the gradients of weight and bias (empty if the bias is), and write those of the memory.

    Args:
        projection: The memory, weight and bias.
        grad_keys: Gradients of the keys, with the positions innermost.
        grad_memory: Output: the gradients of the memory.
    """
    task = partial(_project_rows_backward, projection, grad_keys, grad_memory)
    grad_weights, grad_biases = zip(*thread_map(task, _row_slices(projection)), strict=True)
    return sum(grad_weights[1:], grad_weights[0]), sum(grad_biases[1:], grad_biases[0])


def _row_slices(projection: KeyProjection) -> list[slice]:
    """Return one slice of the rows per thread."""
    return split_rows(len(projection.memory), num_slices(len(projection.memory)))


def _project_rows(projection: KeyProjection, keys: KeyMatrix, rows: slice) -> None:
    """Compute the keys of a slice of the rows."""
    project_rows(projection._replace(memory=projection.memory[rows]), keys[rows])


def _project_rows_backward(
    projection: KeyProjection, grad_keys: KeyMatrix, grad_memory: Float[np.ndarray, "B S D"], rows: slice
) -> tuple[Float[np.ndarray, "A D"], Flat]:
    """Write the gradients of the memory of some rows; return the rows' summands of the gradients of weight and bias."""
    grad_weight, grad_bias = np.zeros_like(projection.weight), np.zeros_like(projection.bias)
    project_rows_backward(
        projection._replace(memory=projection.memory[rows]), grad_keys[rows], grad_memory[rows], grad_weight, grad_bias
    )
    return grad_weight, grad_bias


@njit_no_refcount
def project_rows(projection: KeyProjection, keys: KeyMatrix) -> None:
    """Compute K = W Mᵀ + b of every row, in the calling thread.

    Args:
        projection: The memory, weight and bias.
        keys: Output.
    """
    bias = projection.bias
    for row in range(projection.memory.shape[0]):
        gemm_nt(projection.weight, projection.memory[row], keys[row], projection.bfloat16)
        for unit in range(bias.shape[0]):
            unit_keys = keys[row, unit]
            unit_bias = bias[unit]
            for position in range(unit_keys.shape[0]):
                unit_keys[position] += unit_bias


@njit_no_refcount
def project_rows_backward(
    projection: KeyProjection,
    grad_keys: KeyMatrix,
    grad_memory: Float[np.ndarray, "B S D"],
    grad_weight: Float[np.ndarray, "A D"],
    grad_bias: Flat,
) -> None:
    """Compute dM = dKᵀ W of every row; dW += dK M; db += Σ dK, in the calling thread.

    Args:
        projection: The memory, weight and bias.
        grad_keys: dK.
        grad_memory: Output: dM.
        grad_weight: dW, changed in place.
        grad_bias: db, changed in place; empty if there is none.
    """
    for row in range(grad_keys.shape[0]):
        gemm_tn(grad_keys[row], projection.weight, grad_memory[row], projection.bfloat16)
        gemm_add(grad_keys[row], projection.memory[row], grad_weight, projection.bfloat16)
        for unit in range(grad_bias.shape[0]):
            unit_gradient = grad_keys[row, unit]
            bias_sum = ZERO
            for position in range(unit_gradient.shape[0]):
                bias_sum += unit_gradient[position]
            grad_bias[unit] += bias_sum


class AttentionScorer(NamedTuple):
    """An attention score and its parameters as contiguous arrays; those that the score does not have are empty.

    The fields ending in `_t` are transposed copies, for products.
    """

    layout: ScoreLayout
    query: Float[np.ndarray, "A H"]
    """W of the query; the decoder state itself is the query where W is empty, for dot products."""
    query_t: Float[np.ndarray, "H A"]
    energy: Flat
    """v."""
    location: Float[np.ndarray, "A F"]
    """L."""
    location_t: Float[np.ndarray, "F A"]
    filters: Float[np.ndarray, "F N"]
    filters_t: Float[np.ndarray, "N F"]
    bfloat16: bool
    """Whether the projection of the queries is in bfloat16, with sums in float32."""


class AttentionScorerGradients(NamedTuple):
    """Gradients of keys, v, L, F and the attention weights before the first step, summed over the steps.

    That of W is computed by the caller, as one product over all steps.
    """

    keys: Float[np.ndarray, "K A S"]
    """Without rows for dot products, whose gradients of the keys are one product over all steps."""
    energy: Flat
    location: Float[np.ndarray, "A F"]
    filters: Float[np.ndarray, "F N"]
    initial_weights: Float[np.ndarray, "L S"]


class LocationBuffers(NamedTuple):
    """Scratch memory of the location-sensitive score, for one row at a time; empty for other scores."""

    padded_weights: Flat
    """α' with N − 1 zeros around it; later, its gradient."""
    windows: Flat
    """α'_{s+j} for each place j of a filter: N rows of n numbers. Later, their gradient."""
    features: Flat
    """f: F rows of n numbers. Later, their gradient."""
    location_terms: Flat
    """L f: A rows of n numbers. Later, its gradient."""
    transposed: Flat
    """Features, then windows, with the positions outermost."""


class AdditiveGradients(NamedTuple):
    """Gradients of the additive score of one row, which `_additive_backward` writes or adds."""

    keys: Float[np.ndarray, "A S"]
    query: Flat
    energy: Flat


class LocationValues(NamedTuple):
    """Values of one row at one step that the backward pass of the location-sensitive score reads."""

    query: Flat
    score_gradients: Flat
    """de."""
    location_terms: Flat
    """L f; replaced by its gradient."""


class UnrollAttention(NamedTuple):
    """Score, keys and memory of an unrolled decoder. Keys and memory have the positions innermost."""

    scorer: AttentionScorer
    keys: KeyMatrix
    """Keys as `prepare_keys` returns them."""
    memory: KeyMatrix
    lengths: Int[np.ndarray, " B"]
    initial_weights: Float[np.ndarray, "L S"]
    """Attention weights before the first step; without rows unless the score is location-sensitive."""


class AttentionForwardValues(NamedTuple):
    """Values of the forward pass that the backward pass of one step's attention reads."""

    queries: Float[np.ndarray, "B A"]
    """Queries of the step."""
    weights: Float[np.ndarray, "B T S"]
    """Weights of all steps."""


class AttentionGradients(NamedTuple):
    """Gradients of one step's attention. Contexts and weights are given; those of scores and queries are computed."""

    contexts: Float[np.ndarray, "B D"]
    weights: Float[np.ndarray, "B T S"]
    """Gradients of all steps' weights from outside the decoder; without rows if nothing depends on the weights."""
    scores: Float[np.ndarray, "B T S"]
    """Gradients of all steps' scores e."""
    queries: Float[np.ndarray, "B A"]
    """Gradients of W s, or of the state for dot products."""


def attention_scorer(parameters: DecoderParameters) -> AttentionScorer:
    """Return the attention score of a decoder, with its parameters as contiguous arrays.

    Args:
        parameters: Parameters of a decoder step.
    """
    arrays = parameters.query, parameters.location, parameters.filters
    query, location, filters = (contiguous(array) for array in arrays)
    query_t, location_t, filters_t = (contiguous(array.T) for array in (query, location, filters))
    energy = contiguous(parameters.energy)
    return AttentionScorer(
        parameters.score_layout, query, query_t, energy, location, location_t, filters, filters_t, parameters.bfloat16
    )


def prepare_keys(keys: Float[np.ndarray, "B S A"], lengths: Int[np.ndarray, " B"], layout: ScoreLayout) -> KeyMatrix:
    """Return the keys as the score reads them: e^{2k} for the additive score, else k; the positions innermost.

    The result shares memory with keys that are read as they are; values beyond the lengths may be undefined.

    Args:
        keys: Projected memory. The tensors of `tensor_functions.project_keys` have the positions innermost in memory
            already.
        lengths: Number of real positions of each row.
        layout: The score.
    """
    ordered = keys.transpose(0, 2, 1)
    if not ordered.flags.c_contiguous:
        return positions_innermost(contiguous(keys), lengths, layout == ADDITIVE)
    return exp_2x(ordered) if layout == ADDITIVE else ordered


@njit
def positions_innermost(
    values: Float[np.ndarray, "B S U"], lengths: Int[np.ndarray, " B"], as_exp_2x: bool
) -> KeyMatrix:
    """Return a copy of the values with the positions innermost; undefined beyond the lengths.

    Args:
        values: Vectors of the source positions: keys or memory.
        lengths: Number of real positions of each row.
        as_exp_2x: Return e^{2v} instead of v.
    """
    ordered = np.empty((values.shape[0], values.shape[2], values.shape[1]), np.float32)
    for row in range(values.shape[0]):
        for first in range(0, values.shape[2], TRANSPOSE_BLOCK):
            for unit in range(first, min(first + TRANSPOSE_BLOCK, values.shape[2])):
                unit_values = ordered[row, unit]
                for position in range(lengths[row]):
                    unit_values[position] = values[row, position, unit]
        if as_exp_2x:
            for unit in range(values.shape[2]):
                exp_2x_(ordered[row, unit, : lengths[row]])
    return ordered


@njit
def exp_2x(keys: KeyMatrix) -> KeyMatrix:
    """Return e^{2k} of all keys, as a new array.

    Args:
        keys: Keys k with the positions innermost.
    """
    result = np.empty_like(keys)
    flat_keys, exponentials = keys.reshape(-1), result.reshape(-1)
    for i in range(flat_keys.shape[0]):
        exponentials[i] = exp(TWO * flat_keys[i])
    return result


@njit_no_refcount
def exp_2x_(values: Flat) -> None:
    """Replace every value v by e^{2v}.

    Args:
        values: Array to change in place.
    """
    for i in range(values.shape[0]):
        values[i] = exp(TWO * values[i])


@njit
def location_buffers(scorer: AttentionScorer, positions: int) -> LocationBuffers:
    """Return uninitialized scratch memory of a score; all of it is empty unless the score is location-sensitive.

    Args:
        scorer: The score.
        positions: Largest number of source positions of a row.
    """
    num_filters, width = scorer.filters.shape
    units = scorer.location.shape[0]
    return LocationBuffers(
        np.empty(positions + width if width else 0, np.float32),
        np.empty(width * positions, np.float32),
        np.empty(num_filters * positions, np.float32),
        np.empty(units * positions, np.float32),
        np.empty(max(num_filters, width) * positions, np.float32),
    )


@njit_no_refcount
def project_queries(
    scorer: AttentionScorer, states: Float[np.ndarray, "R H"], queries: Float[np.ndarray, "R A"]
) -> None:
    """Compute queries as the score reads them: e^{2 W s} for the additive score, W s for the location-sensitive one.

    Dot products have no W and do not call this: the state s is the query.

    Args:
        scorer: The score and its W.
        states: Decoder states s.
        queries: Output.
    """
    gemm(states, scorer.query_t, queries, scorer.bfloat16)
    if scorer.layout.score == ADDITIVE_SCORE:
        exp_2x_(queries.reshape(-1))


@njit_inlined
def attention_weights(
    scorer: AttentionScorer,
    keys: Float[np.ndarray, "A S"],
    query: Flat,
    previous_weights: Flat,
    buffers: LocationBuffers,
    weights: Flat,
) -> None:
    """Compute the attention weights α = softmax(e) of one query over the positions of one source.

    Args:
        scorer: The score.
        keys: Keys of the source as `prepare_keys` returns them.
        query: The query as `project_queries` computes it; the state for dot products.
        previous_weights: α of the previous step; read by scores with `reads_weights`.
        buffers: Scratch memory as `location_buffers` returns it.
        weights: Output: zeros that become α, one for each real position.
    """
    if scorer.layout.score == ADDITIVE_SCORE:
        _additive_scores(keys, query, scorer.energy, weights)
    elif scorer.layout.score == LOCATION_SCORE:
        _location_scores(scorer, keys, query, previous_weights, buffers, weights)
    else:
        gemv_t_add(keys, query, weights)
    softmax_(weights)


@njit_no_refcount
def attention_forward(
    attention: UnrollAttention,
    queries: Float[np.ndarray, "B A"],
    step: int,
    buffers: LocationBuffers,
    weights: Float[np.ndarray, "B T S"],
    contexts: Float[np.ndarray, "B D"],
) -> None:
    """Compute α = softmax(e) and the contexts Σ_s α_s h_s of all rows at one step.

    Args:
        attention: Attention score, keys and memory of the rows.
        queries: Queries as `project_queries` computes them; the states for dot products.
        step: Index of the step.
        buffers: Scratch memory as `location_buffers` returns it.
        weights: Output: weights of all steps; zeros at this step, which become α.
        contexts: Output: Σ_s α_s h_s of each row.
    """
    for row in range(queries.shape[0]):
        n = attention.lengths[row]
        row_weights, previous_weights = weights[row, step, :n], weights[row, max(step - 1, 0), :n]
        if step == 0 and attention.scorer.layout.reads_weights:
            previous_weights = attention.initial_weights[row, :n]
        attention_weights(attention.scorer, attention.keys[row], queries[row], previous_weights, buffers, row_weights)
        gemv(attention.memory[row], row_weights, contexts[row])


@njit_no_refcount
def attention_backward(
    attention: UnrollAttention,
    gradients: AttentionGradients,
    scorer_gradients: AttentionScorerGradients,
    step: int,
    forward_values: AttentionForwardValues,
    buffers: LocationBuffers,
) -> None:
    """Compute the gradients of `attention_forward`: dα += dα' + h · dc, de = α ⊙ (dα − α · dα), then the score's.

    Args:
        attention: Attention score, keys and memory of the rows.
        gradients: Gradients of the step. Before the call, `scores` holds at this step the part of dα that the next
            step computed, else zero; after it, de.
        scorer_gradients: Gradients that are summed over the steps; this step's are added.
        step: Index of the step.
        forward_values: Queries of the step, and weights of all steps.
        buffers: Scratch memory as `location_buffers` returns it; overwritten.
    """
    queries = forward_values.queries
    weights = forward_values.weights
    scorer = attention.scorer
    for row in range(queries.shape[0]):
        n = attention.lengths[row]
        score_gradients = gradients.scores[row, step, :n]
        if gradients.weights.shape[0] > 0:
            add_(score_gradients, gradients.weights[row, step, :n])
        gemv_t_add(attention.memory[row], gradients.contexts[row], score_gradients)
        softmax_backward_(weights[row, step, :n], score_gradients)
        if scorer.layout.score == ADDITIVE_SCORE:
            _additive_backward(
                attention.keys[row],
                queries[row],
                scorer.energy,
                score_gradients,
                AdditiveGradients(scorer_gradients.keys[row], gradients.queries[row], scorer_gradients.energy),
            )
        elif scorer.layout.score == LOCATION_SCORE:
            previous = max(step - 1, 0)
            previous_weights = weights[row, previous, :n]
            previous_gradient = gradients.scores[row, previous, :n]
            if step == 0:
                previous_weights = attention.initial_weights[row, :n]
                previous_gradient = scorer_gradients.initial_weights[row, :n]
            _filter(scorer, previous_weights, buffers)
            location_values = LocationValues(queries[row], score_gradients, buffers.location_terms)
            _location_backward(attention, scorer_gradients, row, location_values, gradients.queries[row])
            _filter_backward(scorer, scorer_gradients, buffers, previous_gradient)
        else:
            gemv(attention.keys[row], score_gradients, gradients.queries[row])


@njit_no_refcount
def _additive_scores(keys: Float[np.ndarray, "A S"], query: Flat, energy: Flat, scores: Flat) -> None:
    """Compute e_s = Σ_a −2 v_a u_as, which is vᵀ tanh(q + k) minus the constant Σ v; the softmax is the same.

    Two units share a division: a/x + b/y = (a y + b x) / (x y).
    """
    pairs = keys.shape[0] // 2
    for pair in range(pairs):
        first_key, second_key = keys[2 * pair], keys[2 * pair + 1]
        first_query, second_query = query[2 * pair], query[2 * pair + 1]
        first_scale, second_scale = -TWO * energy[2 * pair], -TWO * energy[2 * pair + 1]
        for s in range(scores.shape[0]):
            x = ONE + first_query * first_key[s]
            y = ONE + second_query * second_key[s]
            x = MAX_EXPONENTIAL if x > MAX_EXPONENTIAL else x
            y = MAX_EXPONENTIAL if y > MAX_EXPONENTIAL else y
            scores[s] += (first_scale * y + second_scale * x) / (x * y)
    for unit in range(2 * pairs, keys.shape[0]):
        key = keys[unit]
        unit_query = query[unit]
        scale = -TWO * energy[unit]
        for s in range(scores.shape[0]):
            scores[s] += scale / (ONE + unit_query * key[s])


@njit_no_refcount
def _additive_backward(
    keys: Float[np.ndarray, "A S"],
    query: Flat,
    energy: Flat,
    score_gradients: Flat,
    gradients: AdditiveGradients,
) -> None:
    """Compute, with g = de ⊙ 4 (u − u²): dk_a += v_a g, dq_a = v_a Σ_s g_s, dv_a += Σ_s −2 de u, because Σ de = 0."""
    for unit in range(query.shape[0]):
        key = keys[unit]
        gradient = gradients.keys[unit]
        unit_query = query[unit]
        scale = TWO * TWO * energy[unit]
        query_sum, energy_sum = ZERO, ZERO
        for s in range(score_gradients.shape[0]):
            u = ONE / (ONE + unit_query * key[s])
            summand = score_gradients[s] * u
            energy_sum += summand
            summand -= summand * u
            query_sum += summand
            gradient[s] += scale * summand
        gradients.query[unit] = scale * query_sum
        gradients.energy[unit] -= TWO * energy_sum


@njit_no_refcount
def _location_scores(
    scorer: AttentionScorer,
    keys: Float[np.ndarray, "A S"],
    query: Flat,
    previous_weights: Flat,
    buffers: LocationBuffers,
    scores: Flat,
) -> None:
    """Compute e_s = Σ_a v_a tanh(q_a + k_as + (L f)_as)."""
    _filter(scorer, previous_weights, buffers)
    n = scores.shape[0]
    for unit in range(query.shape[0]):
        key = keys[unit]
        location_term = buffers.location_terms[unit * n : unit * n + n]
        unit_query = query[unit]
        scale = scorer.energy[unit]
        for s in range(n):
            scores[s] += scale * tanh(unit_query + key[s] + location_term[s])


@njit_no_refcount
def _filter(scorer: AttentionScorer, previous_weights: Flat, buffers: LocationBuffers) -> None:
    """Compute the windows of α', f = F ∗ α' and L f into the buffers."""
    n = previous_weights.shape[0]
    num_filters, width = scorer.filters.shape
    units = scorer.location.shape[0]
    padded = buffers.padded_weights[: n + width - 1]
    for i in range(padded.shape[0]):
        padded[i] = ZERO
    copy_(padded[width // 2 : width // 2 + n], previous_weights)
    for offset in range(width):
        copy_(buffers.windows[offset * n : offset * n + n], padded[offset : offset + n])
    features = buffers.features[: num_filters * n].reshape((num_filters, n))
    gemm(scorer.filters, buffers.windows[: width * n].reshape((width, n)), features)
    gemm(scorer.location, features, buffers.location_terms[: units * n].reshape((units, n)))


@njit_no_refcount
def _location_backward(
    attention: UnrollAttention,
    scorer_gradients: AttentionScorerGradients,
    row: int,
    values: LocationValues,
    query_gradient: Flat,
) -> None:
    """Compute, with t the tanh: dv_a += Σ_s de_s t, dk_a += g = v_a de (1 − t²), dq_a = Σ_s g; g replaces L f."""
    query = values.query
    score_gradients = values.score_gradients
    n = score_gradients.shape[0]
    keys = attention.keys[row]
    gradients = scorer_gradients.keys[row]
    energy_sums = scorer_gradients.energy
    for unit in range(query.shape[0]):
        key = keys[unit]
        gradient = gradients[unit]
        location_term = values.location_terms[unit * n : unit * n + n]
        unit_query = query[unit]
        scale = attention.scorer.energy[unit]
        query_sum, energy_sum = ZERO, ZERO
        for s in range(n):
            activation = tanh(unit_query + key[s] + location_term[s])
            summand = score_gradients[s] * activation
            energy_sum += summand
            summand = scale * (score_gradients[s] - summand * activation)
            query_sum += summand
            gradient[s] += summand
            location_term[s] = summand
        query_gradient[unit] = query_sum
        energy_sums[unit] += energy_sum


@njit_no_refcount
def _filter_backward(
    scorer: AttentionScorer,
    scorer_gradients: AttentionScorerGradients,
    buffers: LocationBuffers,
    previous_gradient: Flat,
) -> None:
    """Compute, from g: dL += g fᵀ, df = Lᵀ g, dF_fj += Σ_s df_s α'_{s+j}, and dα'_{s+j} += Σ_f F_fj df_fs."""
    n = previous_gradient.shape[0]
    num_filters, width = scorer.filters.shape
    units = scorer.location.shape[0]
    location_terms = buffers.location_terms[: units * n].reshape((units, n))
    features = buffers.features[: num_filters * n].reshape((num_filters, n))
    windows = buffers.windows[: width * n].reshape((width, n))
    features_t = buffers.transposed[: n * num_filters].reshape((n, num_filters))
    _transpose(features, features_t)
    gemm_add(location_terms, features_t, scorer_gradients.location)
    gemm(scorer.location_t, location_terms, features)
    windows_t = buffers.transposed[: n * width].reshape((n, width))
    _transpose(windows, windows_t)
    gemm_add(features, windows_t, scorer_gradients.filters)
    gemm(scorer.filters_t, features, windows)
    padded = buffers.padded_weights[: n + width - 1]
    for i in range(padded.shape[0]):
        padded[i] = ZERO
    for offset in range(width):
        add_(padded[offset : offset + n], windows[offset])
    add_(previous_gradient, padded[width // 2 : width // 2 + n])


@njit_no_refcount
def _transpose(matrix: Float[np.ndarray, "U n"], result: Float[np.ndarray, "n U"]) -> None:
    """Compute result = matrixᵀ."""
    for unit in range(matrix.shape[0]):
        for s in range(matrix.shape[1]):
            result[s, unit] = matrix[unit, s]


def warm_up() -> None:
    """Compile every kernel of this module by running the smallest example forward and backward."""
    one = np.zeros((1, 1, 1), np.float32)
    projection = KeyProjection(one, one[0], one[0, 0])
    project_keys_backward(projection, project_keys_numpy(projection), one.copy())
