r"""A few directions in which coordinates that seem independent are not.

In the coordinates of a diagonal Gaussian the mean Hessian of the target would be $-1$. The eigenvectors in
which it differs most are found by iterating a block of vectors, and get a scale of their own.
"""

import numpy as np

from .curvature import POINTS, Curvature
from .evaluator import Evaluator
from .gaussian import DiagonalGaussian, Look, LowRankGaussian

_BLOCK = 24
_ITERATIONS = 4
_WORTH = 0.2  # change of a variance, in logarithms, from which a direction is worth having


def with_directions(
    look: Look, evaluate: Evaluator, curvature: Curvature, rng: np.random.Generator
) -> Look | None:
    """Return a better Gaussian with a few directions of its own; `None` if there is none."""
    old: DiagonalGaussian = look.gaussian
    half = rng.standard_normal((POINTS // 2, len(old.mean)))
    points = old.points(np.concatenate([half, -half]))

    def excess(rows: np.ndarray) -> np.ndarray:
        return old.whitened(curvature.times(points, old.whitened(rows))) + rows

    def orthonormal(rows: np.ndarray) -> np.ndarray:
        return np.linalg.qr(rows.T)[0]

    basis = orthonormal(rng.standard_normal((min(_BLOCK, len(old.mean)), len(old.mean))))
    for _ in range(_ITERATIONS):
        basis = orthonormal(excess(basis.T))
    rows = excess(basis.T)
    if not np.isfinite(rows).all():
        return None
    small = rows @ basis
    values, vectors = np.linalg.eigh(0.5 * (small + small.T))
    precision = np.clip(1 - values, 1e-8, 1e8)
    worth = np.abs(np.log(precision)) > _WORTH
    if not worth.any():
        return None
    directions = basis @ vectors[:, worth]
    new = LowRankGaussian(old.mean, old.deviation, directions, precision[worth] ** -0.5)
    after = Look.at(new, look.z, evaluate)
    return after if after.is_better(look) else None
