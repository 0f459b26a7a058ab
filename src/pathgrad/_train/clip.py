"""Clip gradients relative to their recent norm."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from .._words.arguments import number, share, whole
from ..metrics import gradient_norm


class ClipState(NamedTuple):
    """Running mean of the logarithm of the gradient norm, and how many steps are in it."""

    mean_log_norm: Float[Array, ""]
    steps: Int[Array, ""]


def clip_by_measured_norm(
    factor: float = 5.0, decay: float = 0.98, warmup: int = 20
) -> optax.GradientTransformation:
    """Shrink gradients that are more than `factor` times as long as recent ones.

    A fixed threshold has to be guessed again for every target, and for path gradients, which shrink as the
    flow improves, no fixed one stays right. This one follows the geometric mean of the norms.

    Args:
        factor: Largest norm allowed, as a multiple of the recent mean.
        decay: Decay of the running mean per step.
        warmup: Number of steps before anything is clipped.
    """
    # At one and below, the threshold could only fall.
    factor = number("factor", factor, lambda x: 1 < x < math.inf, "larger than 1")
    decay, warmup = share("decay", decay), whole("warmup", warmup, 0)

    def init(params):
        return ClipState(jnp.zeros(()), jnp.zeros((), jnp.int32))

    def update(updates, state, params=None):
        norm = gradient_norm(updates)
        # The mean began with zero: correct that bias, as Adam does.
        usual = jnp.exp(state.mean_log_norm / (1 - decay ** jnp.maximum(state.steps, 1)))
        limit = jnp.where(state.steps < warmup, jnp.inf, factor * usual)
        scale = jnp.minimum(1.0, limit / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny))
        # The clipped norm enters the mean: an outlier must not raise the threshold for the next.
        log_norm = jnp.log(jnp.maximum(norm * scale, jnp.finfo(norm.dtype).tiny))
        mean = decay * state.mean_log_norm + (1 - decay) * log_norm
        clipped = jax.tree.map(lambda g: g * scale.astype(g.dtype), updates)
        return clipped, ClipState(mean.astype(state.mean_log_norm.dtype), state.steps + 1)

    return optax.GradientTransformation(init, update)
