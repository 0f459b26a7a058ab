"""A mixture of normals."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

from .._tree import Leaf, one_draw
from .abstract import AbstractBase
from .normal import DiagonalNormal, floating


class NormalMixture(AbstractBase):
    """A mixture of diagonal normals with trainable weights, means and scales.

    A draw picks a component, then a point of it. The point is differentiated along its path; the
    pick, which has no path, through its log-probability (`Draw.log_choice`).

    Attributes:
        logits: Logarithms of the weights, up to a common constant.
        means: One mean for each component, component axis first.
        log_scales: Logarithms of the standard deviations.
    """

    logits: Leaf
    means: Leaf
    log_scales: Leaf

    @classmethod
    def at(cls, means: Any, scale: float = 1.0) -> "NormalMixture":
        """Begin with equal weights, the given means and one scale."""
        means = floating(means)
        return cls(
            jnp.zeros(means.shape[0], means.dtype), means, jnp.full_like(means, jnp.log(scale))
        )

    def __check_init__(self):
        own = one_draw(self)
        if own.means.shape != own.log_scales.shape or own.logits.shape != own.means.shape[:1]:
            raise ValueError(
                "A mixture needs one logit, one mean and one log-scale for each component; got "
                f"logits {own.logits.shape}, means {own.means.shape}, log-scales {own.log_scales.shape}."
            )

    @property
    def shape(self):
        return self.means.shape[1:]

    def draw(self, *, key):
        pick_key, point_key = jr.split(key)
        pick = jr.categorical(pick_key, jax.lax.stop_gradient(self.logits))
        x, _ = DiagonalNormal(self.means[pick], self.log_scales[pick]).draw(key=point_key)
        return x, jax.nn.log_softmax(self.logits)[pick]

    def log_prob(self, x):
        each = jax.vmap(lambda m, s: DiagonalNormal(m, s).log_prob(x))(self.means, self.log_scales)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + each)
