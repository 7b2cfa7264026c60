"""Principal components, compared with a singular value decomposition; and Procrustes alignment."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from small_networks import SEEDS

from pellucid.inspection.state_space import pca, procrustes


@given(st.integers(3, 20), st.integers(2, 6), SEEDS)
def test_components_equal_the_singular_value_decomposition(count: int, size: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, size)) * np.arange(1, size + 1) ** 2
    found = pca(vectors)
    centred = vectors - vectors.mean(axis=0)
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    shares = (values**2 / (values**2).sum())[:2]
    np.testing.assert_allclose(found.explained, shares, atol=1e-9)
    for at in range(2):
        assert found.axes[at][np.abs(found.axes[at]).argmax()] > 0
        if values[at] ** 2 - (values[at + 1] ** 2 if at + 1 < len(values) else 0) > 1e-3 * values[0] ** 2 and (
            at == 0 or values[0] ** 2 - values[1] ** 2 > 1e-3 * values[0] ** 2
        ):
            assert abs(found.axes[at] @ axes[at]) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(found.axes @ found.axes.T, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(found.project(vectors), centred @ found.axes.T, atol=1e-9)
    np.testing.assert_allclose(found.project(vectors).mean(axis=0), 0, atol=1e-9)


def test_signs_do_not_depend_on_the_order() -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 4)) * [4, 3, 2, 1]
    np.testing.assert_allclose(pca(vectors).axes, pca(vectors[::-1]).axes, atol=1e-9)


def test_few_dimensions_and_few_vectors_have_a_plane() -> None:
    line = pca(np.array([[1.0], [3.0]]))
    assert line.explained == (1, 0) and line.project(np.array([[4.0]])).tolist() == [[2, 0]]
    point = pca(np.array([[1.0, 2.0, 3.0]]))
    assert point.explained == (0, 0) and not point.project(np.array([[1.0, 2.0, 3.0]])).any()
    with pytest.raises(ValueError, match=r"^vectors: expected at least one vector"):
        pca(np.zeros((0, 3)))


@given(st.integers(3, 10), st.floats(0, 6.28), st.booleans(), SEEDS)
def test_rotation_reflection_and_translation_are_undone(count: int, angle: float, mirror: bool, seed: int) -> None:
    generator = np.random.default_rng(seed)
    onto = generator.normal(size=(count, 2))
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.diag(
        [1, -1 if mirror else 1]
    )
    np.testing.assert_allclose(procrustes(onto @ matrix + [5, -3], onto), onto, atol=1e-9)


def test_no_rotation_is_closer_and_nothing_is_scaled() -> None:
    generator = np.random.default_rng(1)
    points, onto = generator.normal(size=(2, 12, 2))
    found = procrustes(points, onto)
    before, after = (np.linalg.norm(each[:, None] - each[None], axis=2) for each in (points, found))
    np.testing.assert_allclose(after, before, atol=1e-9)
    centred = points - points.mean(axis=0)
    for degrees in range(360):
        matrix = Rotation.from_euler("z", degrees, degrees=True).as_matrix()[:2, :2]
        for sign in (1, -1):
            other = centred @ (matrix * [1, sign]) + onto.mean(axis=0)
            assert ((found - onto) ** 2).sum() <= ((other - onto) ** 2).sum() + 1e-9


def test_points_without_a_partner_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^reference: expected an array of shape \(3, 2\)"):
        procrustes(np.zeros((3, 2)), np.zeros((2, 2)))
    assert procrustes(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0, 2)
