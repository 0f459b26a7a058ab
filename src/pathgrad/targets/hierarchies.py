"""Posteriors of hierarchical models."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import gammaln

from .density import LOG_2_PI, AbstractDensity, AbstractPosterior, cauchy_of_log, indexed, like, normal


class EightSchools(AbstractPosterior):
    r"""Effects of coaching in schools, with the effects standardised.

    $y_j \sim N(\theta_j, s_j^2)$ with $\theta_j = \mu + \tau t_j$, $t_j \sim N(0, 1)$, $\mu \sim N(0, 5^2)$,
    and $\tau$ half-Cauchy of scale 5. Free coordinates are $t$, $\mu$ and $\log \tau$.

    Attributes:
        y: Measured effects.
        errors: Their standard errors $s$.
    """

    y: np.ndarray | Array
    errors: np.ndarray | Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (len(self.y) + 2,)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters: effects, their mean, their spread."""
        return (*indexed("theta", len(self.y)), "mu", "tau")

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of standardised effects, mean and log spread."""
        t, mu, log_tau = x[:-2], x[-2], x[-1]
        errors = like(x, self.errors)
        residual = (like(x, self.y) - mu - jnp.exp(log_tau) * t) / errors
        fit = jnp.sum(normal(residual) - jnp.log(errors))
        return fit + jnp.sum(normal(t)) + normal(mu, sd=5.0) + cauchy_of_log(log_tau, 5.0) + log_tau

    def constrain(self, x: Float[Array, " dim"]) -> Float[Array, " columns"]:
        """Return effects, their mean, and their spread."""
        tau = jnp.exp(x[-1:])
        return jnp.concatenate([x[-2] + tau * x[:-2], x[-2:-1], tau])

    def unconstrain(self, columns: Float[Array, " columns"]) -> Float[Array, " dim"]:
        """Return standardised effects, mean and log spread."""
        theta, mu, tau = columns[:-2], columns[-2:-1], columns[-1:]
        return jnp.concatenate([(theta - mu) / tau, mu, jnp.log(tau)])


# Seeds that germinated on each plate, and seeds that were sown.
_GERMINATED = (10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3)
_SOWN = (39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7)
_LAST_TEN = np.repeat([0.0, 1.0], (11, 10))  # the kind of seed
_EXTRACT = np.repeat([0.0, 1.0, 0.0, 1.0], (5, 6, 5, 5))  # the kind of root extract


class Seeds(AbstractDensity):
    r"""Germination of seeds on 21 plates (Crowder 1978): logistic regression with an effect of each plate.

    $R_j \sim \mathrm{Binomial}(N_j)$ with logit $a_0 + a_1 u_j + a_2 v_j + a_{12} u_j v_j + b_j$, where
    $b_j \sim N(0, 1 / \tau)$, $\tau \sim \mathrm{Gamma}(0.01, 0.01)$ and each $a \sim N(0, 10^2)$. Free
    coordinates are $a_0, a_1, a_{12}, a_2$, $b_1$ to $b_{21}$, and $\log \tau$.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (len(_SOWN) + 5,)

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of coefficients, effects of plates, and log precision."""
        a, b, log_tau = x[:4], x[4:-1], x[-1]
        design = np.stack([np.ones(len(_SOWN)), _LAST_TEN, _LAST_TEN * _EXTRACT, _EXTRACT], axis=1)
        logits = like(x, design) @ a + b
        hits, tried = np.array(_GERMINATED, float), np.array(_SOWN, float)
        ways = float(np.sum(gammaln(tried + 1) - gammaln(hits + 1) - gammaln(tried - hits + 1)))
        fit = like(x, hits) @ logits - like(x, tried) @ jax.nn.softplus(logits) + ways
        tau = jnp.exp(log_tau)
        spread = 0.5 * jnp.sum(log_tau - tau * b**2 - LOG_2_PI)
        shape = rate = 0.01
        # The exponent of tau is one higher than in the density of tau: its derivative is tau.
        prior = shape * math.log(rate) - math.lgamma(shape) + shape * log_tau - rate * tau
        return fit + spread + prior + jnp.sum(normal(a, sd=10.0))
