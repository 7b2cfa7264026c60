"""Geometry of states: principal components, nearest neighbors, conicity, separation of groups."""

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Annotated, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from msgspec import Meta
from torch import Tensor

from pellucid.arguments import argument_error, check_arguments
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.errors import ArgumentError
from pellucid.inspection.states import nothing, trace_states


class PrincipalPlane(NamedTuple):
    """Plane of the first two principal components."""

    mean: Float[np.ndarray, " D"]
    axes: Float[np.ndarray, "2 D"]
    """Orthonormal axes; the largest entry of each in absolute value is positive."""
    explained: tuple[float, float]
    """Fraction of the variance along each axis."""

    @check_arguments
    def project(self, vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n 2"]:
        """Return the coordinates of vectors: (v − mean) · axes."""
        if vectors.shape[1] != len(self.mean):
            raise argument_error("vectors", f"vectors of {len(self.mean)} numbers", vectors)
        points: Float[np.ndarray, "n 2"] = (vectors.astype(np.float64) - self.mean) @ self.axes.T
        return points


Count = Annotated[int, Meta(ge=0)]


def _magnitude(values: Float[np.ndarray, "..."]) -> float:
    """A power of two near the greatest number in size: squares of numbers over it neither vanish nor overflow.

    Dividing by a power of two does not round.
    """
    return float(np.ldexp(1.0, np.frexp(np.abs(values).max(initial=0))[1]))


@check_arguments
def pca(vectors: Float[np.ndarray, "n D"]) -> PrincipalPlane:
    """Return the first two principal components: eigenvectors of the covariance Σ (v − mean)(v − mean)ᵀ / n.

    The result does not depend on the order of the vectors, except for rounding. A missing second axis (D = 1) has
    coordinate zero; without variance both fractions are zero.

    Raises:
        ValueError: There are no vectors.

    References:
        Pearson 1901; Hotelling 1933.
    """
    _check_vectors(vectors)
    values = vectors.astype(np.float64)
    mean = values.mean(axis=0)
    centred = (values - mean) / _magnitude(values - mean)
    variances, columns = np.linalg.eigh(centred.T @ centred / len(values))
    axes, shares = np.zeros((2, values.shape[1])), [0.0, 0.0]
    total = float(np.maximum(variances, 0).sum())
    for at in range(min(2, values.shape[1])):
        axis = columns[:, -1 - at]
        axes[at] = axis * np.sign(axis[np.abs(axis).argmax()])
        shares[at] = float(max(variances[-1 - at], 0) / total) if total else 0.0
    return PrincipalPlane(mean, axes, (shares[0], shares[1]))


@check_arguments
def procrustes(points: Float[np.ndarray, "n 2"], onto: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
    """Return points translated, rotated and possibly reflected to be closest to other points, without scaling.

        Q = argmin ‖(P − p̄) Q − (O − ō)‖, Q orthogonal:  Q = U Vᵀ of the singular value decomposition of (P − p̄)ᵀ(O −
        ō)

    Reflection is allowed since the sign of a principal axis has no meaning.

    Raises:
        ValueError: The numbers of points differ.

    References:
        Schönemann 1966, "A generalized solution of the orthogonal Procrustes problem".
    """
    if not len(points):
        return points.astype(np.float64)
    centre, goal = points.mean(axis=0, dtype=np.float64), onto.mean(axis=0, dtype=np.float64)
    own, others = points - centre, onto - goal
    left, _, right = np.linalg.svd((own / _magnitude(own)).T @ (others / _magnitude(others)))
    moved: Float[np.ndarray, "n 2"] = own @ (left @ right) + goal
    return moved


AT_ONCE = 256
"""Number of traces whose states are computed together."""


class StateVectors(NamedTuple):
    """Encoder or decoder states of many traces."""

    vectors: Float[Tensor, "n D"]
    """States scaled to length one (zero stays zero), so that products are cosines."""
    traces: Int[np.ndarray, " n"]
    """Index of the trace of each state."""
    positions: Int[np.ndarray, " n"]
    """Source position or step of each state."""


class CorpusStates(NamedTuple):
    """Encoder and decoder states of a corpus."""

    encoder: StateVectors
    decoder: StateVectors


@check_arguments
def collect_states(
    transducer: Predictor, traces: Sequence[Trace], most: Annotated[int, Meta(ge=1)] = 200_000
) -> CorpusStates:
    """Return the states of traces in order, until one side has `most`; the last trace is complete."""
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for start in range(0, len(traces), AT_ONCE):
        for each in trace_states(transducer, traces[start : start + AT_ONCE]):
            sides[0].append(each.encoder)
            sides[1].append(each.decoder)
        if max(sum(map(len, side)) for side in sides) >= most:
            break
    empty = nothing(transducer)
    return CorpusStates(
        _side(_limited(sides[0], most) or [empty.encoder]), _side(_limited(sides[1], most) or [empty.decoder])
    )


def _limited(vectors: list[np.ndarray], most: int) -> list[np.ndarray]:
    """Return the states of the first traces up to a number."""
    counts = np.cumsum([0, *map(len, vectors)])
    return [each for each, before in zip(vectors, counts.tolist(), strict=False) if before < most]


def _side(vectors: list[np.ndarray]) -> StateVectors:
    """Return the states of one side with their traces and positions."""
    joined = torch.from_numpy(np.concatenate(vectors)).float()
    positions = [np.arange(len(each)) for each in vectors]
    numbers = np.repeat(np.arange(len(vectors)), [len(each) for each in vectors])
    return StateVectors(_unit(joined), numbers, np.concatenate(positions))


def _directions(vectors: Float[np.ndarray, "*shape D"]) -> Float[np.ndarray, "*shape D"]:
    """Vectors in double precision and of length one, however short or long they are; zero stays zero."""
    values = vectors.astype(np.float64)
    values = _over(values, np.abs(values).max(axis=-1, initial=0, keepdims=True))
    return _over(values, np.linalg.norm(values, axis=-1, keepdims=True))


def _over(
    values: Float[np.ndarray, "*shape D"], lengths: Float[np.ndarray, "*shape 1"]
) -> Float[np.ndarray, "*shape D"]:
    """Vectors over their lengths; zero where a length is."""
    scaled: Float[np.ndarray, "*shape D"] = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    return scaled


def _unit(vectors: Float[Tensor, "*shape D"]) -> Float[Tensor, "*shape D"]:
    """Return the vectors scaled to length one."""
    unit: Tensor = vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    return unit


@check_arguments
def nearest_states(side: StateVectors, vector: Float[np.ndarray, " D"], count: Count) -> list[tuple[int, int, float]]:
    """Return trace, position and cosine u · v / (‖u‖ ‖v‖) of the states nearest to a vector, nearest first.

    The search is exact, and ties keep the order of the states. The vector itself is found too if it is one of them.
    """
    if not len(side.vectors) or not count:
        return []
    asked = torch.from_numpy(_directions(vector)).float()
    cosines = (side.vectors @ asked).clamp(-1, 1)
    order = cosines.sort(descending=True, stable=True).indices[:count].tolist()
    return [(int(side.traces[at]), int(side.positions[at]), float(cosines[at])) for at in order]


def _check_vectors(vectors: Float[np.ndarray, "n D"]) -> None:
    """Raise an `ArgumentError` where there is no vector, or they have no numbers."""
    if not vectors.size:
        raise argument_error("vectors", "at least one vector", vectors)


@check_arguments
def conicity(vectors: Float[np.ndarray, "S D"]) -> float:
    """Return the conicity: the mean over s of cos(h_s, h̄), where h̄ is the mean of all h_s.

    It is 1 if all vectors have one direction, and near 0 if they do not. If states are nearly equal, attention may
    choose any of them, and permuting its weights changes little. One vector has conicity 1; a zero vector has cosine 0.

    Raises:
        ValueError: There are no vectors.

    References:
        Mohankumar et al. 2020, section 3.1, after Chandrahas et al. 2018.
    """
    _check_vectors(vectors)
    mean = vectors.mean(axis=0, dtype=np.float64)
    return float((_directions(vectors) @ _directions(mean)).mean())


MOST = 1_000_000
"""Maximum number of groups compared."""
CHUNK = 10_000


class Separation(NamedTuple):
    """Separation of a group of vectors from the others."""

    between: float
    """Mean distance between members and others."""
    within: float
    """Mean distance between members."""
    p: float
    """p-value: fraction of all groups of this size with an equal or larger ratio; one of them is the group itself."""
    nearest: float
    """Fraction of members whose nearest neighbor is a member."""

    @property
    def ratio(self) -> float:
        """Ratio of between to within distances: 1 for a group that is spread like the others."""
        return float(_ratios(np.array([[self.between, self.within]]))[0])


@check_arguments
def separation(vectors: Float[np.ndarray, "n D"], members: Bool[np.ndarray, " n"]) -> Separation:
    """Return the separation of a group, with an exact permutation test over every group of its size.

    Raises:
        ValueError: The group has fewer than two members or all vectors, or there are more than a million groups.

    References:
        Test: Fisher 1935, "The Design of Experiments", section 21. Ratio of distances: Mielke & Berry 2007,
            "Permutation Methods", chapter 2.
    """
    _check_vectors(vectors)
    n, k = len(vectors), int(members.sum())
    if not 2 <= k < n or comb(n, k) > MOST:
        expected = f"at least 2 members and at most {MOST:,} groups of as many"
        raise ArgumentError(f"members: expected {expected}, got a group of {k} among {n}")
    apart = distances(vectors)
    own = _means(apart, members[None])[0]
    groups = np.fromiter((at for group in combinations(range(n), k) for at in group), np.int64).reshape(-1, k)
    ratios = [_means(apart, _membership(part, n)) for part in np.array_split(groups, -(-len(groups) // CHUNK))]
    ratio = _ratios(own[None])[0]
    others = _ratios(np.concatenate(ratios))
    closest = apart[members].copy()
    closest[np.arange(k), np.flatnonzero(members)] = np.inf
    # Rounding must not part the group from itself.
    share = float((others >= ratio * (1 - 1e-9)).mean())
    return Separation(float(own[0]), float(own[1]), share, float(members[closest.argmin(axis=1)].mean()))


def _ratios(means: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, " m"]:
    """The first over the second; infinite over zero, and 1 where both are zero."""
    between, within = means.T
    otherwise = np.where(between > 0, np.inf, 1.0)
    ratios: Float[np.ndarray, " m"] = np.divide(between, within, out=otherwise, where=within > 0)
    return ratios


@check_arguments
def isolation(vectors: Float[np.ndarray, "n D"]) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Return the distance of each vector to its nearest neighbor, and its rank: 1 is the most isolated."""
    if len(vectors) < 2:
        raise argument_error("vectors", "at least two vectors", vectors)
    apart = distances(vectors)
    np.fill_diagonal(apart, np.inf)
    alone = apart.min(axis=1)
    return alone, 1 + (alone[None] > alone[:, None]).sum(axis=1)


@check_arguments
def distances(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n n"]:
    """Return the distances ‖v_i − v_j‖."""
    scale = _magnitude(vectors)
    values = vectors.astype(np.float64) / scale
    apart: Float[np.ndarray, "n n"] = scale * np.linalg.norm(values[:, None] - values[None], axis=2)
    return apart


def _membership(groups: Int[np.ndarray, "m k"], n: int) -> Bool[np.ndarray, "m n"]:
    """Return which vectors are in each group."""
    inside = np.zeros((len(groups), n), np.bool_)
    np.put_along_axis(inside, groups, True, axis=1)
    return inside


def _means(apart: Float[np.ndarray, "n n"], inside: Bool[np.ndarray, "m n"]) -> Float[np.ndarray, "m 2"]:
    """Return the mean distances between members and others, and among members, of each group."""
    k, n = int(inside[0].sum()), len(apart)
    among = ((inside @ apart) * inside).sum(axis=1)
    total = inside @ apart.sum(axis=1)
    return np.stack([(total - among) / (k * (n - k)), among / (k * (k - 1))], axis=1)
