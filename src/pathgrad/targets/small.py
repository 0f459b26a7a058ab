"""Small targets with a known normalising constant and exact samples.

None is symmetric under a change of sign, so tests notice a wrong sign. All are unnormalised on purpose, so
tests notice a missing constant. Parameters are no arrays, so nothing is trained by accident.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .density import AbstractDensity


class AbstractSmallTarget(AbstractDensity):
    """Density with known normaliser and exact samples, in two dimensions or, unless it is planar, in more."""

    name: ClassVar[str]
    is_planar: ClassVar[bool] = True
    dim: int = eqx.field(default=2, static=True)

    def __check_init__(self):
        if self.is_planar and self.dim != 2:
            raise ValueError(
                f"`{self.name}` is two-dimensional; got dim={self.dim}. Use dim=2, or choose `funnel` or "
                "`correlated`, which work in any dimension from two."
            )
        if self.dim < 2:
            raise ValueError(
                f"`{self.name}` needs at least two dimensions; got dim={self.dim}. Use dim=2 or more."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (self.dim,)

    @property
    @abc.abstractmethod
    def log_z(self) -> float:
        r"""Log of the normalising constant, $\log \int \exp(\texttt{log\_prob}(x))\,dx$."""

    @abc.abstractmethod
    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """Return one exact sample."""


class Banana(AbstractSmallTarget):
    r"""Bent, tilted and off-centre normal distribution in the plane.

    $x_1 \sim N(m, s_1^2)$ and $x_2 \mid x_1 \sim N(a x_1 + b x_1^2 - c,\; s_2^2)$. Bending is a shear and
    keeps volumes, so $Z = 2\pi s_1 s_2$.
    """

    name = "banana"
    centre, width, thickness = 0.5, 1.2, 0.55  # m, s_1 along the banana, s_2 across it
    tilt, bend, drop = 0.3, 0.5, 0.8  # a, b, c of its spine

    def _spine(self, x: Float[Array, ""]) -> Float[Array, ""]:
        return (self.tilt + self.bend * x) * x - self.drop

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        along = (x[0] - self.centre) / self.width
        across = (x[1] - self._spine(x[0])) / self.thickness
        return -0.5 * (along**2 + across**2)

    @property
    def log_z(self) -> float:
        return math.log(2 * math.pi * self.width * self.thickness)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dim"]:
        along, across = jr.normal(key, (2,))
        first = self.centre + self.width * along
        return jnp.stack([first, self._spine(first) + self.thickness * across])


class Ring(AbstractSmallTarget):
    r"""Ring in the plane, with more mass on one side.

    $$\log p(x) = -\tfrac12 \left(\frac{|x|^2 - R^2}{w}\right)^2 + \kappa\, e \cdot x$$

    A polynomial, hence also smooth at the origin. In polar coordinates with $\rho = |x|^2$ the integral over
    the angle is a Bessel function, $Z = \pi \int_0^\infty e^{-(\rho - R^2)^2 / 2w^2} I_0(\kappa \sqrt\rho)\,
    d\rho$, which Gauss-Legendre quadrature computes to rounding error.
    """

    name = "ring"
    radius, spread = 2.0, 1.0  # R and w; the ring is about w / 2R thick
    pull, angle = 0.6, 0.7  # kappa, and the direction of the unit vector e in radians

    def _tilt(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        return self.pull * (math.cos(self.angle) * x[0] + math.sin(self.angle) * x[1])

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        deviation = (jnp.sum(x**2) - self.radius**2) / self.spread
        return -0.5 * deviation**2 + self._tilt(x)

    @property
    def log_z(self) -> float:
        # Twelve spreads beyond the ring, and beyond the shift of its peak by the pull, the integrand is below
        # 1e-30 of its peak; on a bounded range, 200 nodes are exact for such a smooth function.
        end = self.radius**2 + 12 * self.spread + self.pull * self.spread**2 / (2 * self.radius)
        node, weight = np.polynomial.legendre.leggauss(200)
        rho = 0.5 * end * (node + 1)
        radial = np.exp(-0.5 * ((rho - self.radius**2) / self.spread) ** 2)
        return math.log(math.pi * 0.5 * end * (weight @ (radial * np.i0(self.pull * np.sqrt(rho)))))

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dim"]:
        # Exact rejection sampling. Propose a uniform angle and a normal rho. Since e.x <= |x| = sqrt(rho) <=
        # (R^2 + rho) / 2R, weighting rho by the exponential of kappa times this bound gives a normal again,
        # with its mean moved by kappa w^2 / 2R. About four in ten proposals are accepted.
        slope = self.pull / (2 * self.radius)
        mean = self.radius**2 + slope * self.spread**2

        def propose(state: tuple) -> tuple:
            key, radial_key, angle_key, accept_key = jr.split(state[0], 4)
            rho = mean + self.spread * jr.normal(radial_key)
            angle = jr.uniform(angle_key, maxval=2 * math.pi)
            x = jnp.sqrt(jnp.maximum(rho, 0.0)) * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
            log_accept = self._tilt(x) - slope * (self.radius**2 + rho)
            return key, x, (rho > 0) & (-jr.exponential(accept_key) < log_accept)

        start = (key, jnp.zeros(2), jnp.array(False))
        return jax.lax.while_loop(lambda state: ~state[2], propose, start)[1]


class Mixture(AbstractSmallTarget):
    r"""Three unequal normal distributions in the plane, close enough to overlap.

    Their densities lack the factor $1/2\pi$, so $Z = 2\pi \sum_k \text{mass}_k$.
    """

    name = "mixture"
    masses = (1.5, 0.9, 0.6)  # integrals
    means = ((-1.0, -0.6), (1.5, 0.4), (-0.2, 2.0))
    # Entries l_11, l_21, l_22 of the lower Cholesky factors of the covariances.
    roots = ((0.9, 0.5, 0.5), (0.5, -0.3, 0.8), (1.1, 0.0, 0.4))

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        parts = []
        for mass, mean, (l11, l21, l22) in zip(self.masses, self.means, self.roots, strict=True):
            z1 = (x[0] - mean[0]) / l11
            z2 = (x[1] - mean[1] - l21 * z1) / l22
            parts.append(math.log(mass / (l11 * l22)) - 0.5 * (z1**2 + z2**2))
        return jax.nn.logsumexp(jnp.stack(parts))

    @property
    def log_z(self) -> float:
        return math.log(2 * math.pi * sum(self.masses))

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dim"]:
        choice_key, normal_key = jr.split(key)
        chosen = jr.categorical(choice_key, jnp.log(jnp.array(self.masses)))
        l11, l21, l22 = jnp.array(self.roots)[chosen]
        z1, z2 = jr.normal(normal_key, (2,))
        return jnp.array(self.means)[chosen] + jnp.stack([l11 * z1, l21 * z1 + l22 * z2])


class Funnel(AbstractSmallTarget):
    r"""Leaning funnel: the first coordinate sets the scale of the others.

    $v \sim N(0, s^2)$ and $x_i \mid v \sim N(\ell v,\; e^{v})$ for the other $d - 1$. Neal's funnel has
    $s = 3$, $\ell = 0$; by default this one is milder, and leans so that tests notice a change of any sign.
    $Z = (2\pi)^{d/2} s$.

    Attributes:
        width: The standard deviation $s$ of the first coordinate.
        lean: The slope $\ell$ of the means of the others.
    """

    name, is_planar = "funnel", False
    width: float = eqx.field(default=1.0, static=True)
    lean: float = eqx.field(default=0.5, static=True)

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        v, rest = x[0], x[1:]
        squares = (v / self.width) ** 2 + jnp.exp(-v) * jnp.sum((rest - self.lean * v) ** 2)
        return -0.5 * (squares + (self.dim - 1) * v)

    @property
    def log_z(self) -> float:
        return 0.5 * self.dim * math.log(2 * math.pi) + math.log(self.width)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dim"]:
        z = jr.normal(key, (self.dim,))
        v = self.width * z[:1]
        return jnp.concatenate([v, self.lean * v + jnp.exp(v / 2) * z[1:]])


def neals_funnel(dim: int) -> Funnel:
    """Return the funnel of the literature (Neal 2003)."""
    return Funnel(dim, width=3.0, lean=0.0)


class Correlated(AbstractSmallTarget):
    r"""Skewed coordinates, each correlated with the next.

    $x_i = \sinh(\operatorname{arsinh} z_i + \epsilon)$ (Jones and Pewsey 2009), where $z$ is normal with
    unit variances and $\mathrm{Corr}(z_i, z_j) = r^{|i-j|}$: a chain in which $z_{i+1} - r z_i$ is
    independent of the past, with variance $1 - r^2$. Hence $Z = (2\pi)^{d/2} (1 - r^2)^{(d-1)/2}$.
    """

    name, is_planar = "correlated", False
    correlation, skew = 0.8, 0.5  # r between neighbours, and epsilon: positive skews to the right

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        z = jnp.sinh(jnp.arcsinh(x) - self.skew)
        step = z[1:] - self.correlation * z[:-1]
        squares = z[0] ** 2 + jnp.sum(step**2) / (1 - self.correlation**2)
        # dz/dx = cosh(arsinh z) / cosh(arsinh x), and cosh(arsinh u)^2 = 1 + u^2.
        return 0.5 * (jnp.sum(jnp.log1p(z**2) - jnp.log1p(x**2)) - squares)

    @property
    def log_z(self) -> float:
        log_step = 0.5 * math.log1p(-(self.correlation**2))
        return 0.5 * self.dim * math.log(2 * math.pi) + (self.dim - 1) * log_step

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dim"]:
        index = np.arange(self.dim)
        covariance = self.correlation ** np.abs(index[:, None] - index)
        z = np.linalg.cholesky(covariance) @ jr.normal(key, (self.dim,))
        return jnp.sinh(jnp.arcsinh(z) + self.skew)


class Normalised(AbstractDensity):
    """A small target divided by its normalising constant.

    Attributes:
        target: The target.
    """

    target: AbstractSmallTarget

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return self.target.shape

    @property
    def log_z(self) -> float:
        """Log of the normalising constant, which is one."""
        return 0.0

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the normalised log density at one point."""
        return self.target.log_prob(x) - self.target.log_z

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """Return one exact sample."""
        return self.target.sample(key=key)
