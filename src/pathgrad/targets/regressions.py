"""Posteriors of regressions: normal with unknown scale, and logistic."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .density import LOG_2_PI, AbstractDensity, AbstractPosterior, cauchy_of_log, indexed, like, normal


class NormalRegression(AbstractPosterior):
    r"""Coefficients and noise of a regression, $y \sim N(X \beta, \sigma^2)$.

    Free coordinates are $\beta$ and $\log \sigma$. The data enter by the triangular factor of $X = QR$:
    $|y - X \beta|^2 = |Q^\top y - R \beta|^2 + s$, so an evaluation does not grow with the number of rows.

    Attributes:
        root: The factor $R$.
        projected: $Q^\top y$.
        rest: The smallest sum of squares, $s$.
        rows: Number of observations.
        labels: Names of the coefficients and of the noise.
        prior_sd: Standard deviation of the normal prior of each coefficient; `None` for a flat one.
        prior_scale: Scale of the half-Cauchy prior of the noise; `None` for a flat one.
    """

    root: np.ndarray | Array
    projected: np.ndarray | Array
    rest: float = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    labels: tuple[str, ...] = eqx.field(static=True)
    prior_sd: float | None = eqx.field(static=True, default=None)
    prior_scale: float | None = eqx.field(static=True, default=None)

    @staticmethod
    def of(
        x: np.ndarray,
        y: np.ndarray,
        labels: tuple[str, ...],
        prior_sd: float | None = None,
        prior_scale: float | None = None,
    ) -> "NormalRegression":
        """Return the posterior for a design matrix, one row for each observation, and the observations."""
        q, root = np.linalg.qr(x)
        projected = q.T @ y
        rest = float(np.sum((y - q @ projected) ** 2))
        return NormalRegression(root, projected, rest, len(y), labels, prior_sd, prior_scale)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (len(self.labels),)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return self.labels

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of coefficients and log noise."""
        beta, log_sigma = x[:-1], x[-1]
        squares = self.rest + jnp.sum((like(x, self.projected) - like(x, self.root) @ beta) ** 2)
        fit = -0.5 * squares * jnp.exp(-2 * log_sigma) - self.rows * (log_sigma + 0.5 * LOG_2_PI)
        prior = log_sigma  # the derivative of sigma
        if self.prior_sd is not None:
            prior += jnp.sum(normal(beta, sd=self.prior_sd))
        if self.prior_scale is not None:
            prior += cauchy_of_log(log_sigma, self.prior_scale)
        return fit + prior

    def constrain(self, x: Float[Array, " dim"]) -> Float[Array, " columns"]:
        """Return coefficients and noise."""
        return x.at[-1].set(jnp.exp(x[-1]))

    def unconstrain(self, columns: Float[Array, " columns"]) -> Float[Array, " dim"]:
        """Return coefficients and log noise."""
        return columns.at[-1].set(jnp.log(columns[-1]))


class LogisticRegression(AbstractDensity):
    r"""Weights of a logistic regression.

    Attributes:
        signed: Features, one row for each observation, times 1 or -1: $\log p$ has
            $\sum_i \log \mathrm{sigmoid}(\text{signed}_i \cdot w)$.
        prior_sd: Standard deviation of the normal prior of each weight; `None` for a flat one.
    """

    signed: np.ndarray | Array
    prior_sd: float | None = eqx.field(static=True, default=None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (self.signed.shape[1],)

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of weights."""
        fit = -jnp.sum(jax.nn.softplus(-(like(x, self.signed) @ x)))
        return fit if self.prior_sd is None else fit + jnp.sum(normal(x, sd=self.prior_sd))


def auto_regression(data: dict) -> NormalRegression:
    """Return the posterior of an autoregression, given its first values."""
    y, order = np.asarray(data["y"], float), data["K"]
    lagged = [y[order - k : len(y) - k] for k in range(1, order + 1)]
    design = np.column_stack([np.ones(len(y) - order), *lagged])
    return NormalRegression.of(design, y[order:], ("alpha", *indexed("beta", order), "sigma"), 10.0, 2.5)


def earnings(data: dict) -> NormalRegression:
    """Return the posterior of log earnings, given height, sex, and their product."""
    height, male = (np.asarray(data[name], float) for name in ("height", "male"))
    design = np.column_stack([np.ones(len(height)), height, male, height * male])
    return NormalRegression.of(design, np.log(data["earn"]), (*indexed("beta", 4), "sigma"))


def party(data: dict) -> NormalRegression:
    """Return the posterior of party identification in an election study."""
    age = np.asarray(data["age_discrete"])
    first, last = ("real_ideo", "race_adj"), ("educ1", "gender", "income")
    columns = [np.ones(len(age)), *(data[n] for n in first), *(age == k for k in (2, 3, 4))]
    design = np.column_stack([*columns, *(data[n] for n in last)]).astype(float)
    return NormalRegression.of(design, np.asarray(data["partyid7"], float), (*indexed("beta", 9), "sigma"))


def credit(table: np.ndarray, prior_sd: float | None) -> LogisticRegression:
    """Return the posterior of German credit: features divided by their standard deviation, not centred.

    The last column of the table is 1 for a good customer and 2 for a bad one.
    """
    features, bad = table[:, :-1] / np.std(table[:, :-1], axis=0), table[:, -1] == 2
    return LogisticRegression(_with_ones(features) * np.where(bad, -1.0, 1.0)[:, None], prior_sd)


def standardised(x: np.ndarray, y: np.ndarray) -> LogisticRegression:
    """Return the posterior for labels 1 and -1, with standardised features and a standard normal prior."""
    spread = np.std(x, axis=0)
    features = (x - np.mean(x, axis=0)) / np.where(spread == 0, 1.0, spread)
    return LogisticRegression(_with_ones(features) * np.asarray(y, float)[:, None], 1.0)


def _with_ones(features: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(features)), features])
