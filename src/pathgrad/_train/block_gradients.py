"""Signal and noise of the gradients of a block, without keeping them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ..metrics import gradient_norm


class BlockGradients(NamedTuple):
    """Running mean and scatter (Welford's) of the gradients of the good steps of a block.

    Attributes:
        steps: How many.
        mean: Of the gradients.
        scatter: Sum of squared distances from the mean.
    """

    steps: Array
    mean: PyTree
    scatter: Array

    @classmethod
    def none(cls, like: PyTree) -> "BlockGradients":
        """Begin, with the tree of parameters that the gradients are of."""
        return cls(jnp.zeros(()), jax.tree.map(jnp.zeros_like, like), jnp.zeros(()))

    def add(self, gradient: PyTree, good: Bool[Array, ""]) -> "BlockGradients":
        """Take one more into account, if its step was good."""
        steps = self.steps + good
        new = jax.tree.map(lambda g, m: jnp.where(good, g, m), gradient, self.mean)
        away = jax.tree.map(jnp.subtract, new, self.mean)
        mean = jax.tree.map(lambda m, a: m + a / jnp.maximum(steps, 1), self.mean, away)
        # No difference of large numbers, as the mean square less the square of the mean would be.
        more = jnp.square(gradient_norm(away)) * (steps - 1) / jnp.maximum(steps, 1)
        return BlockGradients(steps, mean, self.scatter + jnp.where(good, more, 0))

    def snr(self) -> Array:
        """Return what `metrics.gradient_snr` makes of them; not finite for fewer than two."""
        return gradient_norm(self.mean) / jnp.sqrt(self.scatter / (self.steps - 1))
