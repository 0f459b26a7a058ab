r"""The reverse Kullback-Leibler divergence, up to the constant $\ln Z$."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from ... import metrics
from ..._flow.flow import Flow
from ..._ingredients.target import Target, check_is_target, check_target, log_prob_of
from ..._words.arguments import instance, not_negative, number, whole
from ..._words.errors import ArgumentError, named
from ..._words.keys import any_keys
from ..._words.outcome import Outcome
from ..._words.tree import freeze, key_of_each, number_of_draws, over_draws
from ..estimators import AbstractEstimator, PathGradient
from .abstract import AbstractObjective, Batch, Estimate, choice_term, outcome_of


class WithTarget(eqx.Module):
    """A flow and a target that are trained together: the model for `ReverseKL()` without a target.

    Attributes:
        flow: The flow.
        target: The target, whose floating-point arrays are trained as well: a decoder, a temperature.
    """

    flow: Flow
    target: Target

    def __check_init__(self):
        instance("flow", self.flow, Flow, "a `Flow`")
        check_is_target(self.target)


class ReverseKL(AbstractObjective):
    r"""The mean of $\ln q(x) - \ln p(x)$ over draws of the flow.

    With an unnormalised target this is the reverse KL divergence minus $\ln Z$ (the variational free energy,
    or negative ELBO). The value is the same for every estimator.

    Attributes:
        target: An object with `log_prob(x)` for one point; `None` if the model is a `WithTarget`.
        estimator: The estimator of the gradient.
        log_z: The target's log normaliser, if it is known: then the metrics show when the loss falls below
            its bound.
        log_z_err: Standard error of `log_z`; zero where it is exact.
    """

    target: Target | None = None
    estimator: AbstractEstimator = PathGradient()
    log_z: float | None = eqx.field(static=True, default=None)
    log_z_err: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        if self.target is not None:
            check_is_target(self.target)
        instance("estimator", self.estimator, AbstractEstimator, "an estimator, such as `PathGradient()`")
        if self.log_z is not None:
            number("log_z", self.log_z)
        not_negative("log_z_err", self.log_z_err)

    def parts(self, model: PyTree) -> tuple[Flow, Target]:
        """Return the flow of a model, and the target it is fitted to."""
        if self.target is None:
            if not isinstance(model, WithTarget):
                raise ArgumentError(
                    f"`ReverseKL` has no {named('target')}, so the model must have one: train "
                    f"`WithTarget(flow, target)`; got a {type(model).__name__}."
                )
            return model.flow, model.target
        if not isinstance(model, Flow):
            raise ArgumentError(
                f"`ReverseKL(target)` trains a `Flow`, got a {type(model).__name__}. To train the target "
                "too, use `ReverseKL()` on `WithTarget(flow, target)`."
            )
        return model, self.target

    def __call__(self, model, batch):
        flow, target = self.parts(model)
        check_target(target, flow.shape)
        required = number_of_draws(target)
        if required is not None and required != batch.n:
            raise ValueError(
                f"The target has `PerDraw` leaves for {required} draws, and {batch.n} were asked for. "
                "Each draw needs its own entry."
            )
        draw = self.estimator.draw(flow.tallied(batch.tally), key=batch.keys, n=batch.n)
        assert draw.log_q is not None
        log_p = over_draws(log_prob_of, target, draw.x)
        losses = draw.log_q - log_p
        outcome = outcome_of((log_p, Outcome.TARGET_NOT_FINITE), (draw.log_q, Outcome.DENSITY_NOT_FINITE))
        values = freeze(losses)
        loss = jnp.mean(losses) + choice_term(draw.log_choice, values)
        return Estimate(loss, values, outcome, draw.solve)

    @property
    def lower_bound(self):
        return None if self.log_z is None else (-self.log_z, self.log_z_err)

    def summary(self, each: np.ndarray):
        log_weight = jnp.asarray(-each)
        return {
            "ess": metrics.ess(log_weight),
            "log_z": metrics.log_z(log_weight).value,
            "kl": metrics.reverse_kl(log_weight).value,
        }


def reverse_kl(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, "*batch"],
    n: int,
    estimator: AbstractEstimator = PathGradient(),
) -> Float[Array, ""]:
    r"""Return the mean of $\ln q(x) - \ln p(x)$ over `n` draws of the flow, to be differentiated.

    The loss of `ReverseKL`, for your own training loops. Trainable leaves of the target receive their
    ordinary gradient.

    Args:
        flow: The flow to fit.
        target: An object with `log_prob(x)` for one point.
        key: Source of all noise; or one key for each draw.
        n: Number of draws.
        estimator: `PathGradient()`, `TotalGradient()` or `TwoCopyGradient()`.
    """
    instance("flow", flow, Flow, "a `Flow`")
    key, n = any_keys(key), whole("n", n)
    check_target(target, flow.shape)
    return ReverseKL(target, estimator)(flow, Batch(key_of_each(key, n))).loss
