"""Mixtures of normal distributions, as densities and as a posterior."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .density import LOG_2_PI, AbstractDensity, AbstractPosterior, indexed, like, log_sigmoids, normal


class NormalBlobs(AbstractDensity):
    """Mixture of normal distributions whose covariance is the identity. Normalised.

    Attributes:
        means: Their means, one row for each.
        shares: Their probabilities.
    """

    means: np.ndarray | Array
    shares: tuple[float, ...] = eqx.field(static=True)

    def __check_init__(self):
        if len(self.shares) != len(self.means):
            raise ValueError(f"`shares` must have {len(self.means)} entries, got {len(self.shares)}.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (self.means.shape[1],)

    @property
    def log_z(self) -> float:
        """Log of the normalising constant."""
        return math.log(sum(self.shares))

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density at one point."""
        squares = jnp.sum((x - like(x, self.means)) ** 2, axis=1)
        log_shares = like(x, np.log(self.shares))
        return jax.nn.logsumexp(log_shares - 0.5 * squares) - 0.5 * len(x) * LOG_2_PI

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """Return one exact sample."""
        choice_key, normal_key = jr.split(key)
        chosen = jr.categorical(choice_key, jnp.log(jnp.array(self.shares)))
        return jnp.asarray(self.means)[chosen] + jr.normal(normal_key, self.shape)


@functools.cache
def forty_blobs(dim: int) -> NormalBlobs:
    """Return forty equal normal distributions with means in a cube from -40 to 40 (Midgley et al. 2023)."""
    # The papers drew the means with this key, in single precision, when JAX split its random bits otherwise.
    with jax.threefry_partitionable(False):
        means = 40 * jr.uniform(jr.PRNGKey(0), (40, dim), jnp.float32, -1.0, 1.0)
    return NormalBlobs(np.asarray(means, float), (1 / 40,) * 40)


def two_blobs(distance: float = 4.0, shares: tuple[float, float] = (0.7, 0.3)) -> NormalBlobs:
    """Return two unequal modes in the plane, with standard deviations of one."""
    angle = 0.6  # so that no axis is special
    half = 0.5 * distance * np.array([math.cos(angle), math.sin(angle)])
    return NormalBlobs(np.stack([-half, half]), shares)


class TwoNormals(AbstractPosterior):
    r"""Posterior of a mixture of two normal distributions on the line, with the memberships summed out.

    $\mu_k \sim N(0, 2^2)$ with $\mu_1 < \mu_2$, $\sigma_k$ half-normal of scale 2, and the share of the first
    $\theta \sim \mathrm{Beta}(5, 5)$. Free coordinates are $\mu_1$, $\log(\mu_2 - \mu_1)$, both
    $\log \sigma_k$, and the logit of $\theta$.

    Attributes:
        y: The observations.
    """

    y: np.ndarray | Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (5,)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return (*indexed("mu", 2), *indexed("sigma", 2), "theta")

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of a free point."""
        log_gap, log_sigma = x[1], x[2:4]
        mu = jnp.stack([x[0], x[0] + jnp.exp(log_gap)])
        shares = jnp.stack(log_sigmoids(x[4]))
        parts = normal((like(x, self.y)[:, None] - mu) * jnp.exp(-log_sigma)) - log_sigma + shares
        fit = jnp.sum(jnp.logaddexp(parts[:, 0], parts[:, 1]))
        # Beta(5, 5) has powers of 4; the derivative of theta adds one to each.
        log_beta = 2 * math.lgamma(5) - math.lgamma(10)
        prior = jnp.sum(normal(mu, sd=2.0)) + jnp.sum(normal(jnp.exp(log_sigma), sd=2.0))
        return fit + prior + 5 * jnp.sum(shares) - log_beta + log_gap + jnp.sum(log_sigma)

    def constrain(self, x: Float[Array, " dim"]) -> Float[Array, " columns"]:
        """Return means, standard deviations, and the share of the first."""
        share = jnp.exp(log_sigmoids(x[4])[0])[None]
        return jnp.concatenate([x[:1], x[:1] + jnp.exp(x[1:2]), jnp.exp(x[2:4]), share])

    def unconstrain(self, columns: Float[Array, " columns"]) -> Float[Array, " dim"]:
        """Return the free point of parameters."""
        gap, share = columns[1:2] - columns[:1], columns[4:]
        logit = jnp.log(share) - jnp.log1p(-share)
        return jnp.concatenate([columns[:1], jnp.log(gap), jnp.log(columns[2:4]), logit])
