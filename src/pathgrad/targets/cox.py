"""A log-Gaussian Cox process on a grid."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .density import LOG_2_PI, AbstractDensity, like

_POINTS, _VARIANCE, _RANGE = 126, 1.91, 33.0


class CoxProcess(AbstractDensity):
    r"""Where pine saplings stand (Møller, Syversveen and Waagepetersen 1998).

    The unit square has $m \times m$ cells with counts $n_i$. Their log intensities are $f \sim N(\mu, K)$,
    $\mu = \log 126 - 1.91 / 2$ and $K_{ij} = 1.91 \exp(-33 d_{ij} / m)$, where $d$ is the distance in cells.

    $$\log p(f) = \log N(f; \mu, K) + \sum_i \left( n_i f_i - e^{f_i} / m^2 \right)$$

    There is no $\log n_i!$, as in the literature.

    Attributes:
        counts: Points in each cell.
        precision: The inverse of $K$; a gradient takes one product with it.
        log_det: Log determinant of $K$.
    """

    counts: np.ndarray | Array
    precision: np.ndarray | Array
    log_det: float = eqx.field(static=True)

    @staticmethod
    def of(points: np.ndarray, cells: int) -> "CoxProcess":
        """Return the posterior for points of the unit square, one per row, and a number of cells per side."""
        # A point on the upper edge belongs to the last cell.
        column, row = np.minimum((points * cells).astype(int), cells - 1).T
        counts = np.zeros((cells, cells))
        np.add.at(counts, (column, row), 1.0)
        grid = np.indices((cells, cells)).reshape(2, -1).T
        distance = np.sqrt(np.sum((grid[:, None] - grid) ** 2, axis=-1))
        covariance = _VARIANCE * np.exp(-distance * _RANGE / cells)
        precision = np.linalg.inv(covariance)
        log_det = float(np.linalg.slogdet(covariance)[1])
        return CoxProcess(counts.ravel(), 0.5 * (precision + precision.T), log_det)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (len(self.counts),)

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of log intensities."""
        mean = math.log(_POINTS) - 0.5 * _VARIANCE
        prior = -_half_square(x - mean, like(x, self.precision)) - 0.5 * (self.log_det + len(x) * LOG_2_PI)
        return prior + like(x, self.counts) @ x - jnp.sum(jnp.exp(x)) / len(x)


@jax.custom_jvp
def _half_square(x: Array, matrix: Array) -> Array:
    r"""Return half of $x^\top A x$ for a symmetric $A$, which is constant.

    Automatic differentiation would multiply by the matrix three times for value and gradient.
    """
    return 0.5 * x @ (matrix @ x)


@_half_square.defjvp
def _half_square_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    x, matrix = primals
    slope = matrix @ x
    return 0.5 * x @ slope, slope @ tangents[0]
