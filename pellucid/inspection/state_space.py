"""Geometry of states: principal components, nearest neighbors, conicity, separation of groups."""

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Annotated, NamedTuple

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from pellucid.argument_checks import Count, argument_error, check_arguments
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.errors import ArgumentError
from pellucid.inspection.replay import check_finite
from pellucid.inspection.states import empty_states, trace_states
from pellucid.model.device import disable_autocast
from pellucid.shapes import Bool, Float, Int


class PrincipalPlane(NamedTuple):
    """Plane of the first two principal components, with which vectors are projected."""

    mean: Float[np.ndarray, " D"]
    """Mean of the vectors to which the plane was fitted."""
    axes: Float[np.ndarray, "2 D"]
    """Orthonormal axes, of greatest variance first; the entry of greatest absolute value of each is positive. The
    second is zero for D = 1.
    """
    explained_variance_ratio: tuple[float, float]
    """Fraction of the total variance along each axis, 0 to 1."""

    @check_arguments
    def project(self, vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n 2"]:
        """Return the two coordinates of each vector v: (v − mean) · axes.

        Args:
            vectors: Vectors with as many numbers as those to which the plane was fitted.

        Raises:
            ArgumentError: The vectors have another number of columns, or a number is not finite.
        """
        if vectors.shape[1] != len(self.mean):
            raise argument_error("vectors", f"vectors of {len(self.mean)} numbers", vectors)
        coordinates: Float[np.ndarray, "n 2"] = (vectors.astype(np.float64) - self.mean) @ self.axes.T
        return coordinates


def _magnitude(values: Float[np.ndarray, "..."]) -> float:
    """Return a power of two near the largest absolute value, by which numbers are divided before they are squared.

    The squares then neither underflow nor overflow, and dividing by a power of two does not round.
    """
    return float(np.ldexp(1.0, np.frexp(np.abs(values).max(initial=0))[1]))


MAX_COVARIANCE = 1024
"""Number of columns up to which `pca` forms the covariance of fewer vectors."""


@check_arguments
def pca(vectors: Float[np.ndarray, "n D"]) -> PrincipalPlane:
    """Return the first two principal components: eigenvectors of the covariance Σ (v − mean)(v − mean)ᵀ / n.

    The result does not depend on the order of the vectors, except for rounding. A missing second axis (D = 1) is zero;
    without variance both fractions are zero.

    Args:
        vectors: One vector per row.

    Raises:
        ArgumentError: There are no vectors, or they have no numbers.

    References:
        Pearson 1901; Hotelling 1933.
    """
    _check_vectors(vectors)
    values = vectors.astype(np.float64)
    mean = values.mean(axis=0)
    centered = (values - mean) / _magnitude(values - mean)
    if values.shape[1] <= max(MAX_COVARIANCE, len(values)):
        variances, columns = np.linalg.eigh(centered.T @ centered / len(values))
    else:  # the covariance would need much memory
        singular_values, right = np.linalg.svd(centered, full_matrices=False)[1:]
        variances, columns = (singular_values**2 / len(values))[::-1], right.T[:, ::-1]
    axes, explained = np.zeros((2, values.shape[1])), [0.0, 0.0]
    total = float(np.maximum(variances, 0).sum())
    for index in range(min(2, len(variances))):
        axis = columns[:, -1 - index]
        axes[index] = axis * np.sign(axis[np.abs(axis).argmax()])
        explained[index] = float(max(variances[-1 - index], 0) / total) if total else 0.0
    return PrincipalPlane(mean, axes, (explained[0], explained[1]))


@check_arguments
def procrustes(points: Float[np.ndarray, "n 2"], reference: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
    """Return points translated, rotated and possibly reflected to be closest to other points, without scaling.

        Q = argmin ‖(P − p̄) Q − (O − ō)‖, Q orthogonal:  Q = U Vᵀ of the singular value decomposition of (P − p̄)ᵀ(O −
        ō)

    Reflection is allowed since the sign of a principal axis has no meaning.

    Args:
        points: Points P, to be moved.
        reference: Points O, in the same order.

    Returns:
        The moved points, (P − p̄) Q + ō; empty for no points.

    Raises:
        ArgumentError: The numbers of points differ.

    References:
        Schönemann 1966, "A generalized solution of the orthogonal Procrustes problem".
    """
    if not len(points):
        return points.astype(np.float64)
    center, reference_center = points.mean(axis=0, dtype=np.float64), reference.mean(axis=0, dtype=np.float64)
    centered, centered_reference = points - center, reference - reference_center
    left, _, right = np.linalg.svd(
        (centered / _magnitude(centered)).T @ (centered_reference / _magnitude(centered_reference))
    )
    moved: Float[np.ndarray, "n 2"] = centered @ (left @ right) + reference_center
    return moved


TRACES_PER_CHUNK = 256
"""Number of traces whose states are computed together."""


class StateVectors(NamedTuple):
    """Encoder or decoder states of many traces, one per row."""

    vectors: Float[Tensor, "n D"]
    """States scaled to length one (zero stays zero), so that products are cosines."""
    traces: Int[np.ndarray, " n"]
    """Index of the trace of each state."""
    positions: Int[np.ndarray, " n"]
    """Source position (encoder) or step (decoder) of each state, from 0."""


class CorpusStates(NamedTuple):
    """Encoder and top decoder states of many traces, for `nearest_states`."""

    encoder: StateVectors
    decoder: StateVectors


@check_arguments
@check_finite
def collect_states(
    predictor: Predictor, traces: Sequence[Trace], max_states: Annotated[int, Meta(ge=1)] = 200_000
) -> CorpusStates:
    """Return the encoder and the decoder states of traces, in order.

    Args:
        predictor: A single model that decodes symbol by symbol.
        traces: Traces of the model; those without source or output have no states.
        max_states: Each side (encoder, decoder) ends with the trace that reaches this number of states. That trace is
            complete, so there may be more.

    Raises:
        ConfigError: The model does not decode symbol by symbol.
        ArgumentError: The model is an ensemble, a field of a trace is wrong, a trace is of another model, or
            `max_states` is below 1.
    """
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    counts = [0, 0]
    for start in range(0, len(traces), TRACES_PER_CHUNK):
        for states in trace_states(predictor, traces[start : start + TRACES_PER_CHUNK]):
            for i, vectors in enumerate((states.encoder, states.decoder)):
                if counts[i] < max_states:
                    sides[i].append(vectors)
                    counts[i] += len(vectors)
        if min(counts) >= max_states:
            break
    empty = empty_states(predictor)
    encoder, decoder = sides[0] or [empty.encoder], sides[1] or [empty.decoder]
    return CorpusStates(_state_vectors(encoder), _state_vectors(decoder))


def _state_vectors(vectors: list[np.ndarray]) -> StateVectors:
    """Return the states of one side with their traces and positions."""
    joined = torch.from_numpy(np.concatenate(vectors)).float()
    positions = [np.arange(len(states)) for states in vectors]
    numbers = np.repeat(np.arange(len(vectors)), [len(states) for states in vectors])
    # States of a network are small, so that no square overflows.
    unit_states = torch.nn.functional.normalize(joined, dim=-1, eps=1e-30)
    return StateVectors(unit_states, numbers, np.concatenate(positions))


def _unit_vectors(vectors: Float[np.ndarray, "*shape D"]) -> Float[np.ndarray, "*shape D"]:
    """Return the vectors scaled to length one, in double precision; zero stays zero.

    Vectors of a caller may have numbers whose squares overflow, so they are first divided by their maximum.
    """
    values = vectors.astype(np.float64)
    values = _divide_lengths(values, np.abs(values).max(axis=-1, initial=0, keepdims=True))
    return _divide_lengths(values, np.linalg.norm(values, axis=-1, keepdims=True))


def _divide_lengths(
    values: Float[np.ndarray, "*shape D"], lengths: Float[np.ndarray, "*shape 1"]
) -> Float[np.ndarray, "*shape D"]:
    """Return the vectors divided by their lengths; zero where the length is zero."""
    scaled: Float[np.ndarray, "*shape D"] = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    return scaled


class NearestState(NamedTuple):
    """A state near a vector."""

    trace: int
    """Index of its trace."""
    position: int
    """Source position or step, from 0."""
    cosine: float
    """Cosine of state and vector, −1 to 1."""


@check_arguments
def nearest_states(states: StateVectors, vector: Float[np.ndarray, " D"], count: Count) -> list[NearestState]:
    """Return the states nearest to a vector by the cosine u · v / (‖u‖ ‖v‖), nearest first.

    The search is exact, and ties keep the order of the states. The vector itself is found too if it is one of them.

    Args:
        states: Encoder or decoder states, from `collect_states`.
        vector: Vector of the same dimension. A zero vector has cosine 0 with every state.
        count: Maximum number of states to return, at least 0.
    """
    if not len(states.vectors) or not count:
        return []
    direction = torch.from_numpy(_unit_vectors(vector)).float()
    with disable_autocast(states.vectors.device):
        cosines = (states.vectors @ direction).clamp(-1, 1)
    order = cosines.sort(descending=True, stable=True).indices[:count].tolist()
    return [NearestState(int(states.traces[row]), int(states.positions[row]), float(cosines[row])) for row in order]


def _check_vectors(vectors: Float[np.ndarray, "n D"]) -> None:
    """Raise `ArgumentError` if there is no vector, or the vectors have no numbers."""
    if not vectors.size:
        raise argument_error("vectors", "at least one vector", vectors)


@check_arguments
def conicity(vectors: Float[np.ndarray, "S D"]) -> float:
    """Return the conicity: the mean over s of cos(h_s, h̄), where h̄ is the mean of all h_s.

    It is 1 if all vectors have one direction, and near 0 if their directions cancel. If states are nearly equal,
    attention may choose any of them, and permuting its weights changes little. One vector has conicity 1; a zero vector
    has cosine 0.

    Args:
        vectors: States h_s, one per row, such as the encoder states of one source.

    Raises:
        ArgumentError: There are no vectors, or they have no numbers.

    References:
        Mohankumar et al. 2020, section 3.1, after Chandrahas et al. 2018.
    """
    _check_vectors(vectors)
    mean = vectors.mean(axis=0, dtype=np.float64)
    cosines = (_unit_vectors(vectors) @ _unit_vectors(mean)).clip(-1, 1)  # rounding may exceed 1
    return float(cosines.mean()) + 0.0


MAX_GROUPS = 1_000_000
"""Maximum number of groups compared."""
CHUNK = 10_000


class Separation(NamedTuple):
    """Separation of a group of vectors (the members) from the others."""

    between: float
    """Mean Euclidean distance between members and others."""
    within: float
    """Mean Euclidean distance between members."""
    p: float
    """p-value: fraction of all groups of this size with an equal or larger ratio; one of them is the group itself."""
    nearest: float
    """Fraction of members whose nearest neighbor among all vectors is a member."""

    @property
    def ratio(self) -> float:
        """`between` divided by `within`: about 1 for a random group, greater for a separate one; infinite if only
        `within` is 0.
        """
        return float(_ratios(np.array([[self.between, self.within]]))[0])


@check_arguments
def separation(vectors: Float[np.ndarray, "n D"], members: Bool[np.ndarray, " n"]) -> Separation:
    """Return the separation of a group of vectors from the others, with an exact permutation test over all groups of
    its size.

    Args:
        vectors: All vectors, one per row.
        members: True for the members of the group.

    Raises:
        ArgumentError: The group has fewer than two members or all vectors, there are more than `MAX_GROUPS` groups of
            its size, or the numbers of rows differ.

    References:
        Test: Fisher 1935, "The Design of Experiments", section 21. Ratio of distances: Mielke & Berry 2007,
            "Permutation Methods", chapter 2.
    """
    _check_vectors(vectors)
    n, k = len(vectors), int(members.sum())
    if not 2 <= k < n or comb(n, k) > MAX_GROUPS:
        expected = f"at least 2 members, and at most {MAX_GROUPS:,} groups of the same size"
        raise ArgumentError(f"members: expected {expected}, got a group of {k} among {n}")
    pair_distances = pairwise_distances(vectors)
    means = _means(pair_distances, members[None])[0]
    indices = (index for group in combinations(range(n), k) for index in group)
    groups = np.fromiter(indices, np.int64).reshape(-1, k)
    ratios = [_means(pair_distances, _membership(part, n)) for part in np.array_split(groups, -(-len(groups) // CHUNK))]
    ratio = _ratios(means[None])[0]
    others = _ratios(np.concatenate(ratios))
    closest = pair_distances[members].copy()
    closest[np.arange(k), np.flatnonzero(members)] = np.inf
    # With the tolerance, rounding does not exclude the group itself.
    p_value = float((others >= ratio * (1 - 1e-9)).mean())
    return Separation(float(means[0]), float(means[1]), p_value, float(members[closest.argmin(axis=1)].mean()))


def _ratios(means: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, " m"]:
    """Return the first mean over the second; infinite if the second is zero, and 1 if both are."""
    between, within = means.T
    otherwise = np.where(between > 0, np.inf, 1.0)
    ratios: Float[np.ndarray, " m"] = np.divide(between, within, out=otherwise, where=within > 0)
    return ratios


@check_arguments
def isolation(vectors: Float[np.ndarray, "n D"]) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Return the Euclidean distance of each vector to its nearest neighbor, and the rank of this distance.

    Args:
        vectors: At least two vectors, one per row.

    Returns:
        Distances, and ranks: 1 for the most isolated vector; equal distances share the better rank.

    Raises:
        ArgumentError: There are fewer than two vectors.
    """
    if len(vectors) < 2:
        raise argument_error("vectors", "at least two vectors", vectors)
    pair_distances = pairwise_distances(vectors)
    np.fill_diagonal(pair_distances, np.inf)
    nearest = pair_distances.min(axis=1)
    return nearest, 1 + (nearest[None] > nearest[:, None]).sum(axis=1)


@check_arguments
def pairwise_distances(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n n"]:
    """Return the Euclidean distances ‖v_i − v_j‖ of all pairs, zero on the diagonal.

    Args:
        vectors: One vector per row.
    """
    scale = _magnitude(vectors)
    values = vectors.astype(np.float64) / scale
    result: Float[np.ndarray, "n n"] = scale * np.linalg.norm(values[:, None] - values[None], axis=2)
    return result


def _membership(groups: Int[np.ndarray, "m k"], n: int) -> Bool[np.ndarray, "m n"]:
    """Return which vectors are in each group."""
    inside = np.zeros((len(groups), n), np.bool_)
    np.put_along_axis(inside, groups, True, axis=1)
    return inside


def _means(pair_distances: Float[np.ndarray, "n n"], membership: Bool[np.ndarray, "m n"]) -> Float[np.ndarray, "m 2"]:
    """Return the mean distances between members and others, and among members, of each group."""
    k, n = int(membership[0].sum()), len(pair_distances)
    within_sums = ((membership @ pair_distances) * membership).sum(axis=1)
    all_sums = membership @ pair_distances.sum(axis=1)
    return np.stack([(all_sums - within_sums) / (k * (n - k)), within_sums / (k * (k - 1))], axis=1)
