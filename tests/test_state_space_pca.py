"""Principal components equal a singular value decomposition; Procrustes alignment undoes rotations."""

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
    result = pca(vectors)
    centered = vectors - vectors.mean(axis=0)
    _, values, axes = np.linalg.svd(centered, full_matrices=False)
    explained = (values**2 / (values**2).sum())[:2]
    np.testing.assert_allclose(result.explained_variance_ratio, explained, atol=1e-9)
    for index in range(2):
        assert result.axes[index][np.abs(result.axes[index]).argmax()] > 0
        if values[index] ** 2 - (values[index + 1] ** 2 if index + 1 < len(values) else 0) > 1e-3 * values[0] ** 2 and (
            index == 0 or values[0] ** 2 - values[1] ** 2 > 1e-3 * values[0] ** 2
        ):
            assert abs(result.axes[index] @ axes[index]) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(result.axes @ result.axes.T, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(result.project(vectors), centered @ result.axes.T, atol=1e-9)
    np.testing.assert_allclose(result.project(vectors).mean(axis=0), 0, atol=1e-9)


def test_signs_do_not_depend_on_the_order() -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 4)) * [4, 3, 2, 1]
    np.testing.assert_allclose(pca(vectors).axes, pca(vectors[::-1]).axes, atol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_vectors_of_very_many_columns_need_no_covariance(count: int) -> None:
    vectors = np.random.default_rng(1).normal(size=(count, 200_000))  # the covariance would have 320 GB
    result = pca(vectors)
    centered = vectors - vectors.mean(axis=0)
    values = np.linalg.svd(centered, compute_uv=False) ** 2
    np.testing.assert_allclose(
        result.explained_variance_ratio, [*values[:2] / max(values.sum(), 1e-300), 0, 0][:2], atol=1e-9
    )
    np.testing.assert_allclose(result.project(vectors), centered @ result.axes.T, atol=1e-9)


def test_few_dimensions_and_few_vectors_have_a_plane() -> None:
    line = pca(np.array([[1.0], [3.0]]))
    assert line.explained_variance_ratio == (1, 0) and line.project(np.array([[4.0]])).tolist() == [[2, 0]]
    point = pca(np.array([[1.0, 2.0, 3.0]]))
    assert point.explained_variance_ratio == (0, 0) and not point.project(np.array([[1.0, 2.0, 3.0]])).any()
    with pytest.raises(ValueError, match=r"^vectors: expected at least one vector"):
        pca(np.zeros((0, 3)))


@given(st.integers(3, 10), st.floats(0, 6.28), st.booleans(), SEEDS)
def test_rotation_reflection_and_translation_are_undone(count: int, angle: float, mirror: bool, seed: int) -> None:
    generator = np.random.default_rng(seed)
    reference = generator.normal(size=(count, 2))
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.diag(
        [1, -1 if mirror else 1]
    )
    np.testing.assert_allclose(procrustes(reference @ matrix + [5, -3], reference), reference, atol=1e-9)


def test_procrustes_is_the_closest_rotation_without_scaling() -> None:
    generator = np.random.default_rng(1)
    points, reference = generator.normal(size=(2, 12, 2))
    result = procrustes(points, reference)
    before, after = (np.linalg.norm(each[:, None] - each[None], axis=2) for each in (points, result))
    np.testing.assert_allclose(after, before, atol=1e-9)
    centered = points - points.mean(axis=0)
    for degrees in range(360):
        matrix = Rotation.from_euler("z", degrees, degrees=True).as_matrix()[:2, :2]
        for sign in (1, -1):
            other = centered @ (matrix * [1, sign]) + reference.mean(axis=0)
            assert ((result - reference) ** 2).sum() <= ((other - reference) ** 2).sum() + 1e-9


def test_unequal_numbers_of_points_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^reference: expected an array of shape \(3, 2\)"):
        procrustes(np.zeros((3, 2)), np.zeros((2, 2)))
    assert procrustes(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0, 2)
