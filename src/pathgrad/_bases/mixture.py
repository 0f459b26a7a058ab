"""A mixture of normals."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float

from .abstract import AbstractBase
from .normal import DiagonalNormal


class NormalMixture(AbstractBase):
    """A mixture of diagonal normals with trainable weights, means and scales.

    A draw picks a component, then a point of it. The point is differentiated along its path; the
    pick, which has no path, through its log-probability (`Draw.log_choice`).

    Attributes:
        logits: Logarithms of the weights, up to a common constant.
        means: One mean for each component, component axis first.
        log_scales: Logarithms of the standard deviations.
    """

    logits: Float[Array, " component"]
    means: Float[Array, "component *event"]
    log_scales: Float[Array, "component *event"]

    @classmethod
    def at(cls, means: ArrayLike, scale: float = 1.0) -> "NormalMixture":
        """Begin with equal weights, the given means and one scale."""
        means = jnp.asarray(means)
        return cls(
            jnp.zeros(means.shape[0], means.dtype), means, jnp.full_like(means, jnp.log(scale))
        )

    def __check_init__(self):
        if (
            not self.means.shape == self.log_scales.shape
            or self.logits.shape != self.means.shape[:1]
        ):
            raise ValueError(
                "A mixture needs one logit, one mean and one log-scale for each component; got "
                f"logits {self.logits.shape}, means {self.means.shape}, "
                f"log-scales {self.log_scales.shape}."
            )

    @property
    def shape(self):
        return self.means.shape[1:]

    def draw(self, key):
        pick_key, point_key = jr.split(key)
        pick = jr.categorical(pick_key, jax.lax.stop_gradient(self.logits))
        x, _ = DiagonalNormal(self.means[pick], self.log_scales[pick]).draw(point_key)
        return x, jax.nn.log_softmax(self.logits)[pick]

    def log_prob(self, x):
        each = jax.vmap(lambda m, s: DiagonalNormal(m, s).log_prob(x))(self.means, self.log_scales)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + each)
