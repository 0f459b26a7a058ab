r"""What is minimised: the reverse Kullback-Leibler divergence, up to the constant $\ln Z$."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from . import devices
from ._draw import SolveInfo
from ._estimators import AbstractEstimator, PathGradient
from ._flow import Flow
from ._target import Target, log_prob_of
from ._tree import freeze, number_of_draws, over_draws


class Estimate(NamedTuple):
    r"""A loss with what it was made of.

    Attributes:
        loss: Mean of $\ln q - \ln p$; falls as the flow improves. Its gradient is the estimator's.
        log_weight: $\ln p(x) - \ln q(x)$ of each draw, as numbers.
        log_prob_finite: Whether the target was finite at every draw.
        solve: Cost and outcome of the ODE solves, `None` where there were none.
    """

    loss: Float[Array, ""]
    log_weight: Float[Array, " batch"]
    log_prob_finite: Array
    solve: SolveInfo | None


def estimate_reverse_kl(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, "*batch"],
    n: int,
    estimator: AbstractEstimator = PathGradient(),
) -> Estimate:
    """As `reverse_kl`, and return the log-weights and the cost as well."""
    own = number_of_draws(target)
    if own is not None and own != n:
        raise ValueError(
            f"The target has `PerDraw` leaves for {own} draws, and {n} were asked for. "
            "Each draw needs its own entry."
        )
    draw = estimator.draw(flow, key=key, n=n)
    assert draw.log_q is not None
    log_p = over_draws(lambda t, x: log_prob_of(t, x), target, draw.x)
    each = draw.log_q - log_p
    loss = jnp.mean(each)
    if draw.log_choice is not None:
        loss = loss + _choice_term(draw.log_choice, freeze(each))
    return Estimate(loss, freeze(-each), jnp.all(jnp.isfinite(log_p)), draw.solve)


def reverse_kl(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, "*batch"],
    n: int,
    estimator: AbstractEstimator = PathGradient(),
) -> Float[Array, ""]:
    r"""Return the mean of $\ln q(x) - \ln p(x)$ over `n` draws of the flow.

    With an unnormalised target this is the reverse KL divergence less $\ln Z$ (the variational free energy;
    minus the ELBO). The value is the same for every estimator, the gradient is the estimator's. Trainable
    leaves of the target receive their ordinary gradient.

    Args:
        flow: The flow to fit.
        target: An object with `log_prob(x)` for one point.
        key: Source of all noise; or one for each draw.
        n: Number of draws.
        estimator: `PathGradient()`, `TotalGradient()` or `TwoCopyGradient()`.
    """
    return estimate_reverse_kl(flow, target, key=key, n=n, estimator=estimator).loss


def _choice_term(log_choice: Array, each: Array) -> Array:
    """Return zero, with the gradient that the loss has through discrete choices.

    The mean of the other draws is the baseline. It leaves the mean of the gradient as it is and makes
    it vanish draw by draw where q = p, like the path gradient: there all entries of `each` are equal.
    (A single draw has no others; then the gradient is unbiased only.)
    """
    n = each.shape[0] * devices.count()
    others = devices.total(jnp.sum(each)) - each
    baseline = others / (n - 1) if n > 1 else jnp.zeros_like(each)
    return jnp.mean((each - baseline) * (log_choice - freeze(log_choice)))
