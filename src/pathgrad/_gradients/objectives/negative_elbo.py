"""The negative evidence lower bound (ELBO) of data, with an amortised posterior."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PyTree

from ..._flow.flow import Flow
from ..._words.arguments import function, instance
from ..._words.outcome import Outcome
from ..._words.tree import freeze, over_draws
from ..estimators import AbstractEstimator, PathGradient
from .abstract import AbstractObjective, Estimate, choice_term, outcome_of
from .data import Data


@runtime_checkable
class LatentModel(Protocol):
    """What `NegativeELBO` trains: a variational autoencoder with any networks."""

    def posterior(self, data: PyTree[Array], /) -> Flow:
        """Return a flow with `PerDraw` leaves: one draw for each datum, from its posterior."""
        ...

    def log_likelihood(
        self, z: Float[Array, "batch *latent"], data: PyTree[Array], /
    ) -> Float[Array, " batch"]:
        """Return the log-likelihood of each datum given its latent vector."""
        ...

    def log_prior(self, z: Float[Array, "*latent"], /) -> Float[Array, ""]:
        """Return the prior log density of one latent vector."""
        ...


class NegativeELBO(AbstractObjective):
    r"""The mean over data of $-\ln p(x \mid z) + \beta\,(\ln q(z \mid x) - \ln p(z))$, from one draw each.

    Attributes:
        entries: The data.
        estimator: The estimator of the gradient of `log q`.
        beta: Weight of the second term as a function of the step, such as a warm-up from 0 to 1 by
            `optax.linear_schedule`; `None` for 1 throughout. Only with weight 1 is the value a bound.
    """

    entries: Data = eqx.field(static=True)
    estimator: AbstractEstimator = PathGradient()
    beta: Callable[[Int[Array, ""] | int], ArrayLike] | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        instance("entries", self.entries, Data, "a `Data`")
        instance("estimator", self.estimator, AbstractEstimator, "an estimator, such as `PathGradient()`")
        if self.beta is not None:
            function("beta", self.beta, "beta(step)")

    def __call__(self, model: LatentModel, batch):
        flow = model.posterior(batch.data).tallied(batch.tally)
        draw = self.estimator.draw(flow, key=batch.keys, n=batch.n)
        assert draw.log_q is not None
        reconstruction = -model.log_likelihood(draw.x, batch.data)
        kl = draw.log_q - over_draws(lambda _, z: model.log_prior(z), None, draw.x)
        beta = jnp.asarray(1.0 if self.beta is None else self.beta(batch.step), kl.dtype)
        losses = reconstruction + beta * kl
        outcome = outcome_of((reconstruction, Outcome.TARGET_NOT_FINITE), (kl, Outcome.DENSITY_NOT_FINITE))
        values = freeze(losses)
        loss = jnp.mean(losses) + choice_term(draw.log_choice, values)
        means = {"reconstruction": jnp.mean(reconstruction), "kl": jnp.mean(kl), "beta": beta}
        return Estimate(loss, values, outcome, draw.solve, freeze(means))

    @property
    def data(self):
        return self.entries
