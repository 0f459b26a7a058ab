"""Posteriors of time series."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .density import LOG_2_PI, AbstractPosterior, like, log_sigmoids, normal


class Garch(AbstractPosterior):
    r"""Volatility that depends on the last value and on itself, GARCH(1, 1).

    $y_t \sim N(\mu, s_t^2)$ with $s_t^2 = \alpha_0 + \alpha_1 (y_{t-1} - \mu)^2 + \beta_1 s_{t-1}^2$; flat on
    $\mu$, $\alpha_0 > 0$, $0 < \alpha_1 < 1$ and $0 < \beta_1 < 1 - \alpha_1$. Free coordinates are $\mu$,
    $\log \alpha_0$, and the logits of $\alpha_1$ and $\beta_1 / (1 - \alpha_1)$.

    Attributes:
        y: The series.
        first: Standard deviation of its first value.
    """

    y: np.ndarray | Array
    first: np.ndarray | Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (4,)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return ("mu", "alpha0", "alpha1", "beta1")

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of a free point."""
        mu, alpha0, alpha1, beta1 = self.constrain(x)
        squares = (like(x, self.y) - mu) ** 2

        def step(variance: Array, square: Array) -> tuple[Array, Array]:
            return alpha0 + alpha1 * square + beta1 * variance, variance

        variances = jax.lax.scan(step, like(x, self.first) ** 2, squares)[1]
        fit = -0.5 * jnp.sum(squares / variances + jnp.log(variances) + LOG_2_PI)
        (inside, outside), (share, other) = log_sigmoids(x[2]), log_sigmoids(x[3])
        return fit + x[1] + inside + outside + (outside + share + other)

    def constrain(self, x: Float[Array, " dim"]) -> Float[Array, " columns"]:
        """Return mean, constant, and the weights of the last value and of the last variance."""
        (alpha1, rest), (share, _) = log_sigmoids(x[2]), log_sigmoids(x[3])
        return jnp.concatenate([x[:1], jnp.exp(jnp.stack([x[1], alpha1, rest + share]))])

    def unconstrain(self, columns: Float[Array, " columns"]) -> Float[Array, " dim"]:
        """Return the free point of parameters."""
        mu, alpha0, alpha1, beta1 = columns
        rest = jnp.log1p(-alpha1)
        share = jnp.log(beta1) - jnp.log(1 - alpha1 - beta1)
        return jnp.stack([mu, jnp.log(alpha0), jnp.log(alpha1) - rest, share])


class HiddenMarkov(AbstractPosterior):
    r"""A hidden chain of two states with normal observations, $y_t \sim N(\mu_s, 1)$.

    Rows of the transition matrix are flat on the simplex, $\mu_1 \sim N(3, 1)$ and $\mu_2 \sim N(10, 1)$ with
    $0 < \mu_1 < \mu_2$, and either first state has weight one. Free coordinates are the logits of
    going to the first state, from the first and from the second, then $\log \mu_1$ and $\log(\mu_2 - \mu_1)$.

    Attributes:
        y: The observations.
    """

    y: np.ndarray | Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (4,)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters: rows of the transition matrix, and means."""
        return ("theta1[1]", "theta1[2]", "theta2[1]", "theta2[2]", "mu[1]", "mu[2]")

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of a free point, with the hidden states summed out."""
        rows = jnp.stack([jnp.stack(log_sigmoids(x[0])), jnp.stack(log_sigmoids(x[1]))])
        low, gap = jnp.exp(x[2]), jnp.exp(x[3])
        emitted = normal(like(x, self.y)[:, None], jnp.stack([low, low + gap]))

        def step(forward: Array, here: Array) -> tuple[Array, None]:
            return jnp.logaddexp(forward[0] + rows[0], forward[1] + rows[1]) + here, None

        forward = jax.lax.scan(step, emitted[0], emitted[1:])[0]
        prior = normal(low, 3.0) + normal(low + gap, 10.0) + x[2] + x[3] + jnp.sum(rows)
        return jnp.logaddexp(forward[0], forward[1]) + prior

    def constrain(self, x: Float[Array, " dim"]) -> Float[Array, " columns"]:
        """Return both rows of the transition matrix, and the means."""
        low, gap = jnp.exp(x[2]), jnp.exp(x[3])
        rows = [jnp.exp(jnp.stack(log_sigmoids(logit))) for logit in (x[0], x[1])]
        return jnp.concatenate([*rows, jnp.stack([low, low + gap])])

    def unconstrain(self, columns: Float[Array, " columns"]) -> Float[Array, " dim"]:
        """Return the free point of parameters."""
        logs = jnp.log(columns)
        return jnp.stack([logs[0] - logs[1], logs[2] - logs[3], logs[4], jnp.log(columns[5] - columns[4])])
