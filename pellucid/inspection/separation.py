"""Whether some vectors lie apart from the others: measured, and beside what chance would give.

n vectors, D their size, k those of the group.
"""

from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

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
