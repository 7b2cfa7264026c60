"""Vectors in a plane: principal components, and planes turned onto each other.

n vectors, D their size.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


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
