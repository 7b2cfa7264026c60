"""The separation of a group equals an enumeration of all groups, and is invariant to scaling and rotation."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Bool, Float

from pellucid.inspection.state_space import isolation, separation


def distance_ratio(vectors: Float[np.ndarray, "n D"], group: set[int]) -> float:
    """Return the mean distance between groups over that within the group, computed pair by pair."""
    pairs = list(combinations(range(len(vectors)), 2))
    distances = {pair: float(np.linalg.norm(vectors[pair[0]] - vectors[pair[1]])) for pair in pairs}
    within = [distances[pair] for pair in pairs if set(pair) <= group]
    between = [distances[pair] for pair in pairs if len(set(pair) & group) == 1]
    return float(np.mean(between) / np.mean(within))


def group_mask(n: int, group: set[int]) -> Bool[np.ndarray, " n"]:
    return np.array([index in group for index in range(n)])


@given(st.integers(0, 999), st.integers(2, 4))
def test_p_equals_counting_every_group(seed: int, k: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(7, 2))
    members = set(range(k))
    result = separation(vectors, group_mask(7, members))
    assert result.ratio == pytest.approx(distance_ratio(vectors, members))
    ratios = [distance_ratio(vectors, set(group)) for group in combinations(range(7), k)]
    assert result.p == pytest.approx(np.mean([other >= distance_ratio(vectors, members) - 1e-9 for other in ratios]))


def test_a_distant_group_has_the_smallest_p() -> None:
    vectors = np.random.default_rng(1).normal(size=(26, 2))
    group = {0, 4, 8, 14, 20}
    vectors[list(group)] = vectors[list(group)] / 10 + 9
    result = separation(vectors, group_mask(26, group))
    assert result.p == pytest.approx(1 / 65_780) and result.nearest == 1 and result.ratio > 5


@given(st.integers(0, 99), st.floats(0.1, 10), st.floats(0, 6))
def test_scaling_and_rotation_change_nothing(seed: int, scale: float, angle: float) -> None:
    vectors = np.random.default_rng(seed).normal(size=(8, 2))
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    one, two = (separation(each, group_mask(8, {1, 5})) for each in (vectors, scale * vectors @ rotation + 3))
    assert one.ratio == pytest.approx(two.ratio) and one.p == two.p and one.nearest == two.nearest


def test_the_most_isolated_vector_has_rank_1() -> None:
    distances, ranks = isolation(np.array([[0.0], [1.0], [5.0], [6.5]]))
    assert distances.tolist() == [1.0, 1.0, 1.5, 1.5] and ranks.tolist() == [3, 3, 1, 1]


@pytest.mark.parametrize(("n", "k"), [(5, 1), (5, 5), (60, 30)])
def test_invalid_groups_are_refused(n: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"^members: expected .* got a group of {k} among {n}$"):
        separation(np.zeros((n, 2)), group_mask(n, set(range(k))))
