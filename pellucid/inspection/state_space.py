"""Geometry of states: principal components, nearest neighbors, conicity, separation of groups."""

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.inspection.states import states


class Plane(NamedTuple):
    """The plane of the two greatest principal components."""

    mean: Float[np.ndarray, " D"]
    axes: Float[np.ndarray, "2 D"]
    """Of length one and at right angles; of each, the entry that is greatest in size is positive."""
    explained: tuple[float, float]
    """The share of the variance along each."""

    def project(self, vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n 2"]:
        """Where vectors lie: (v − mean) · axes."""
        points: Float[np.ndarray, "n 2"] = (vectors.astype(np.float64) - self.mean) @ self.axes.T
        return points


def plane(vectors: Float[np.ndarray, "n D"]) -> Plane:
    """Eigenvectors of the covariance Σ (v − mean)(v − mean)ᵀ / n, greatest first. Pearson 1901; Hotelling 1933.

    The same vectors give the same plane, whatever their order but for rounding. Along an axis that does not exist
    (D = 1) everything lies at zero; where nothing varies both shares are zero. `ValueError` without vectors.
    """
    if not vectors.size:
        raise ValueError("a plane needs a vector at least")
    values = vectors.astype(np.float64)
    mean = values.mean(axis=0)
    variances, columns = np.linalg.eigh((values - mean).T @ (values - mean) / len(values))
    axes, shares = np.zeros((2, values.shape[1])), [0.0, 0.0]
    total = float(np.maximum(variances, 0).sum())
    for at in range(min(2, values.shape[1])):
        axis = columns[:, -1 - at]
        axes[at] = axis * np.sign(axis[np.abs(axis).argmax()])
        shares[at] = float(max(variances[-1 - at], 0) / total) if total else 0.0
    return Plane(mean, axes, (shares[0], shares[1]))


def turned(points: Float[np.ndarray, "n 2"], onto: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, "n 2"]:
    """Points moved, turned and, where that fits better, mirrored, so that they lie nearest to others; never scaled.

        Q = argmin ‖(P − p̄) Q − (O − ō)‖, Q orthogonal:  Q = U Vᵀ of the singular value decomposition of (P − p̄)ᵀ(O − ō)

    Mirroring is allowed because the sign of a principal axis means nothing. Source: Schönemann 1966, "A generalized
    solution of the orthogonal Procrustes problem". `ValueError` where there are not as many points as others.
    """
    if points.shape != onto.shape:
        raise ValueError(f"{len(points)} points cannot be turned onto {len(onto)}")
    if not len(points):
        return points.astype(np.float64)
    centre, goal = points.mean(axis=0), onto.mean(axis=0)
    left, _, right = np.linalg.svd((points - centre).T @ (onto - goal))
    moved: Float[np.ndarray, "n 2"] = (points - centre) @ (left @ right) + goal
    return moved


AT_ONCE = 256
"""Traces whose states are taken together."""


class Side(NamedTuple):
    """The states of one side of many traces."""

    vectors: Float[Tensor, "n D"]
    """Each of length one (zero stays zero): their products are cosines."""
    traces: Int[np.ndarray, " n"]
    """The number of each one's trace."""
    positions: Int[np.ndarray, " n"]
    """Its source position, or its step."""


class Gathered(NamedTuple):
    """The states of a corpus."""

    encoder: Side
    decoder: Side


def gather(transducer: Predictor, traces: Sequence[Trace], most: int = 200_000) -> Gathered:
    """The states of traces, in their order, until a side has `most`; the trace in which it does is not cut."""
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for start in range(0, len(traces), AT_ONCE):
        for each in states(transducer, traces[start : start + AT_ONCE]):
            sides[0].append(each.encoder)
            sides[1].append(each.decoder)
        if max(sum(map(len, side)) for side in sides) >= most:
            break
    return Gathered(*(_side(_limited(side, most)) for side in sides))


def _limited(vectors: list[np.ndarray], most: int) -> list[np.ndarray]:
    """Those of the first traces, until there are so many."""
    counts = np.cumsum([0, *map(len, vectors)])
    return [each for each, before in zip(vectors, counts.tolist(), strict=False) if before < most]


def _side(vectors: list[np.ndarray]) -> Side:
    """States of one side, told apart by trace and position."""
    joined = torch.from_numpy(np.concatenate(vectors) if vectors else np.zeros((0, 1))).float()
    positions = [np.arange(len(each)) for each in vectors]
    numbers = np.repeat(np.arange(len(vectors)), [len(each) for each in vectors])
    return Side(_unit(joined), numbers, np.concatenate(positions) if positions else np.zeros(0, np.int64))


def _unit(vectors: Float[Tensor, "*shape D"]) -> Float[Tensor, "*shape D"]:
    """The same directions, of length one."""
    unit: Tensor = vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    return unit


def nearest(side: Side, vector: Float[np.ndarray, " D"], count: int) -> list[tuple[int, int, float]]:
    """Trace, position and cosine u · v / (‖u‖ ‖v‖) of the states nearest to a vector, nearest first.

    Every state is compared; of equal ones the first comes first. The vector itself is found too, if it is one.
    """
    if not len(side.vectors) or count < 1:
        return []
    asked = _unit(torch.from_numpy(np.ascontiguousarray(vector)).float())
    cosines = (side.vectors @ asked).clamp(-1, 1)
    order = cosines.sort(descending=True, stable=True).indices[:count].tolist()
    return [(int(side.traces[at]), int(side.positions[at]), float(cosines[at])) for at in order]


def conicity(vectors: Float[np.ndarray, "S D"]) -> float:
    """Mean over s of cos(h_s, h̄), where h̄ is the mean of all h_s: 1 where all point one way, near 0 where they do not.

    Of states that are nearly one, attention may read any: then permuting its weights changes little. Of one state it is
    1; a zero vector has cosine 0. Source: Mohankumar et al. 2020, section 3.1, after Chandrahas et al. 2018.
    `ValueError` without vectors.
    """
    if not vectors.size:
        raise ValueError("conicity needs a vector at least")
    values = vectors.astype(np.float64)
    mean = values.mean(axis=0)
    lengths = np.linalg.norm(values, axis=1) * np.linalg.norm(mean)
    return float(np.divide(values @ mean, lengths, out=np.zeros(len(values)), where=lengths > 0).mean())


MOST = 1_000_000
"""Groups that are compared at most."""
CHUNK = 10_000


class Separation(NamedTuple):
    """A group among vectors."""

    between: float
    """The mean distance from a member to one that is none."""
    within: float
    """The mean distance between two members."""
    p: float
    """The share of all groups of this size whose ratio of the two is as great or greater: 1 of them is the group."""
    nearest: float
    """The share of the members whose nearest neighbour is a member too."""

    @property
    def ratio(self) -> float:
        """Between over within: 1 where the group is spread like everything else."""
        return self.between / self.within


def separation(vectors: Float[np.ndarray, "n D"], members: Bool[np.ndarray, " n"]) -> Separation:
    """How far a group lies apart, with an exact permutation test over every group of its size.

    Source of the test: Fisher 1935, "The Design of Experiments", section 21; of the ratio as a statistic for
    distances: Mielke and Berry 2007, "Permutation Methods", chapter 2. `ValueError` for a group of less than two or
    of all, or where there are more than a million groups.
    """
    n, k = len(vectors), int(members.sum())
    if not 2 <= k < n or comb(n, k) > MOST:
        raise ValueError(f"a group of {k} among {n} cannot be compared with every other such group")
    apart = distances(vectors)
    own = _means(apart, members[None])[0]
    groups = np.fromiter((at for group in combinations(range(n), k) for at in group), np.int64).reshape(-1, k)
    ratios = [_means(apart, _membership(part, n)) for part in np.array_split(groups, -(-len(groups) // CHUNK))]
    ratio = own[0] / own[1]
    others = np.concatenate([part[:, 0] / part[:, 1] for part in ratios])
    closest = apart[members].copy()
    closest[np.arange(k), np.flatnonzero(members)] = np.inf
    # Rounding must not part the group from itself.
    share = float((others >= ratio * (1 - 1e-9)).mean())
    return Separation(float(own[0]), float(own[1]), share, float(members[closest.argmin(axis=1)].mean()))


def isolation(vectors: Float[np.ndarray, "n D"]) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Of each vector the distance to its nearest neighbour, and its rank by that: 1 is the most alone."""
    apart = distances(vectors)
    np.fill_diagonal(apart, np.inf)
    alone = apart.min(axis=1)
    return alone, 1 + (alone[None] > alone[:, None]).sum(axis=1)


def distances(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n n"]:
    """‖v_i − v_j‖."""
    values = vectors.astype(np.float64)
    apart: Float[np.ndarray, "n n"] = np.linalg.norm(values[:, None] - values[None], axis=2)
    return apart


def _membership(groups: Int[np.ndarray, "m k"], n: int) -> Bool[np.ndarray, "m n"]:
    """Which vectors are in each group."""
    inside = np.zeros((len(groups), n), np.bool_)
    np.put_along_axis(inside, groups, True, axis=1)
    return inside


def _means(apart: Float[np.ndarray, "n n"], inside: Bool[np.ndarray, "m n"]) -> Float[np.ndarray, "m 2"]:
    """The mean distance between members and others, and among members, of each group."""
    k, n = int(inside[0].sum()), len(apart)
    among = ((inside @ apart) * inside).sum(axis=1)
    total = inside @ apart.sum(axis=1)
    return np.stack([(total - among) / (k * (n - k)), among / (k * (k - 1))], axis=1)
