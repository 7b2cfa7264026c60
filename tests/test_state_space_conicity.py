"""Conicity equals the mean cosine to the mean vector."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cosine
from small_networks import SEEDS

from pellucid.inspection.state_space import conicity


def test_conicity_has_known_values() -> None:
    assert conicity(np.array([[1.0, 0.0], [2.0, 0.0]])) == pytest.approx(1)
    assert conicity(np.array([[1.0, 0.0], [0.0, 1.0]])) == pytest.approx(np.sqrt(0.5))
    assert conicity(np.array([[1.0, 0.0], [-1.0, 0.0]])) == 0
    assert conicity(np.array([[3.0, 4.0]])) == pytest.approx(1)
    with pytest.raises(ValueError, match=r"^vectors: expected at least one vector"):
        conicity(np.zeros((0, 4)))


@given(st.integers(1, 9), st.integers(2, 5), SEEDS)
def test_conicity_is_the_mean_cosine_to_the_mean(count: int, size: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, size))
    mean = vectors.mean(axis=0)
    assert conicity(vectors) == pytest.approx(np.mean([1 - cosine(each, mean) for each in vectors]))
    assert conicity(vectors * 7) == pytest.approx(conicity(vectors))


def test_conicity_of_equal_vectors_does_not_exceed_one() -> None:
    """Without the limit the mean cosine of equal vectors is often 1.0000000000000002."""
    for seed in range(200):
        vectors = np.tile(np.random.default_rng(seed).normal(size=7), (3, 1))
        assert 1 - 1e-15 <= conicity(vectors) <= 1
