"""Affine bijections that are found once, and then not trained: the coordinates in which a flow lives."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.linalg import solve_triangular

from ..._words.arrays import doubles
from ..._words.constant import Constant
from ..._words.errors import ArgumentError, named
from .abstract import AbstractBijection

_EXACT = lax.Precision.HIGHEST  # graphics cards round the factors of products if they are not told


class FullAffine(AbstractBijection):
    r"""A fixed affine map of the whole point: $y = m + L x$.

    As the last transform it gives a flow the location, scale and correlation of its target, found by
    `warm_start`. No method trains it: one learning rate cannot suit coordinates of very different scale, and
    this map is there to make them alike. It is stored in double precision and computes in that of the point.

    The density of a draw does not depend on the point where it ends, and its score only through $L^{-1}$,
    so both are accurate even in single precision and with a badly conditioned $L$. A point itself is
    rounded: going back from it, as `log_prob` does, can be no more accurate than the point.
    """

    _shift: Constant
    _matrix: Constant
    _inverse: Constant
    _log_det: Constant

    def __init__(self, shift: Any, matrix: Any) -> None:
        """Make the map from plain numbers.

        Args:
            shift: $m$, with the shape of a point.
            matrix: $L$, one row and one column for each number of a point, in their order in memory.
        """
        shift, matrix = doubles("shift", shift), doubles("matrix", matrix)
        if matrix.shape != (shift.size, shift.size):
            raise ArgumentError(
                f"{named('matrix')} must have shape {(shift.size, shift.size)} for a {named('shift')} of "
                f"{shift.size} numbers, got {matrix.shape}."
            )
        sign, log_det = np.linalg.slogdet(matrix)
        if not np.isfinite(shift).all() or not np.isfinite(log_det) or sign == 0:
            raise ArgumentError(
                f"{named('matrix')} has no inverse, or {named('shift')} is not finite: the map cannot be "
                "undone."
            )
        is_lower = not np.triu(matrix, 1).any()
        one = np.eye(len(matrix))
        inverse = solve_triangular(matrix, one, lower=True) if is_lower else np.linalg.inv(matrix)
        self._shift, self._matrix = Constant(shift), Constant(matrix)
        self._inverse, self._log_det = Constant(inverse), Constant(log_det)

    @property
    def shift(self) -> np.ndarray:
        """The shift $m$, with the shape of a point."""
        return self._shift.numpy()

    @property
    def matrix(self) -> np.ndarray:
        """The matrix $L$."""
        return self._matrix.numpy()

    def forward(self, x):
        moved = jnp.matmul(self._matrix.read(x.dtype), x.ravel(), precision=_EXACT)
        return moved.reshape(x.shape) + self._shift.read(x.dtype), self._log_det.read(x.dtype)

    def inverse(self, y):
        centred = (y - self._shift.read(y.dtype)).ravel()
        # Not a triangular solve: for a batch, a product with the inverse is much faster, and as accurate.
        x = jnp.matmul(self._inverse.read(y.dtype), centred, precision=_EXACT)
        return x.reshape(y.shape), -self._log_det.read(y.dtype)


class LowRankAffine(AbstractBijection):
    r"""A fixed affine map for large points: $y = m + D\,(1 + V (S - 1) V^\top)\,x$.

    $D$ and $S$ are diagonal and the columns of $V$ orthonormal, so that every coordinate is scaled, and
    then a few directions once more. Without directions the map is diagonal. Otherwise as `FullAffine`.
    """

    _shift: Constant
    _scale: Constant
    _directions: Constant
    _stretch: Constant

    def __init__(self, shift: Any, scale: Any, directions: Any = None, stretch: Any = ()) -> None:
        """Make the map from plain numbers.

        Args:
            shift: $m$, with the shape of a point.
            scale: The diagonal of $D$, positive, with the shape of a point.
            directions: $V$, one row for each number of a point and one orthonormal column for each direction.
            stretch: The diagonal of $S$, positive: one number for each direction.
        """
        shift, scale, stretch = doubles("shift", shift), doubles("scale", scale), doubles("stretch", stretch)
        columns = np.zeros((shift.size, 0)) if directions is None else doubles("directions", directions)
        if stretch.ndim != 1 or columns.ndim != 2 or columns.shape[1] != stretch.size:
            raise ArgumentError(
                f"{named('stretch')} must have one number for each column of {named('directions')}, got "
                f"shapes {stretch.shape} and {columns.shape}."
            )
        if scale.shape != shift.shape or columns.shape != (shift.size, stretch.size):
            raise ArgumentError(
                f"{named('scale')} must have the shape of {named('shift')}, {shift.shape}, and "
                f"{named('directions')} the shape {(shift.size, stretch.size)}, got {scale.shape} and "
                f"{columns.shape}."
            )
        if not (scale > 0).all() or not (stretch > 0).all():
            raise ArgumentError(f"{named('scale')} and {named('stretch')} must be positive.")
        if np.abs(columns.T @ columns - np.eye(stretch.size)).max(initial=0.0) > 1e-8:
            raise ArgumentError(f"The columns of {named('directions')} must be orthonormal.")
        self._shift, self._scale = Constant(shift), Constant(scale)
        self._directions, self._stretch = Constant(columns), Constant(stretch)

    @property
    def shift(self) -> np.ndarray:
        """The shift $m$, with the shape of a point."""
        return self._shift.numpy()

    @property
    def scale(self) -> np.ndarray:
        """The diagonal of $D$, with the shape of a point."""
        return self._scale.numpy()

    @property
    def rank(self) -> int:
        """Number of directions."""
        return self._stretch.shape[0]

    @property
    def matrix(self) -> np.ndarray:
        """The whole matrix, which may be large."""
        columns = self._directions.numpy()
        inner = np.eye(len(columns)) + columns * (self._stretch.numpy() - 1) @ columns.T
        return self._scale.numpy().reshape(-1, 1) * inner

    def forward(self, x):
        stretch = self._stretch.read(x.dtype)
        moved = self._stretched(x, stretch - 1)
        return moved * self._scale.read(x.dtype) + self._shift.read(x.dtype), self._log_det(x)

    def inverse(self, y):
        stretch = self._stretch.read(y.dtype)
        plain = (y - self._shift.read(y.dtype)) / self._scale.read(y.dtype)
        return self._stretched(plain, 1 / stretch - 1), -self._log_det(y)

    def _stretched(self, x, more):
        columns = self._directions.read(x.dtype)
        along = jnp.matmul(x.ravel(), columns, precision=_EXACT)
        return x + jnp.matmul(columns, more * along, precision=_EXACT).reshape(x.shape)

    def _log_det(self, x):
        logs = [jnp.sum(jnp.log(part.read(x.dtype))) for part in (self._scale, self._stretch)]
        return logs[0] + logs[1]
