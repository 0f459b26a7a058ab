"""A shift and a scale for every number of a point."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from .._bases.normal import floating
from .._tree import Leaf, PerDraw
from .bijection import AbstractBijection


def _trainable(leaf: Any) -> Any:
    """Return an array also for a number, which would not be trained; leave what is marked as it is."""
    return leaf if isinstance(leaf, PerDraw) else floating(leaf)


class Affine(AbstractBijection):
    r"""Shift and stretch every number of a point by itself: $y = e^{s} x + b$.

    As the last transform it gives a flow the place and the width of its target at once, which a field would
    have to learn. With `PerDraw` leaves every draw has its own.

    Attributes:
        shift: $b$. It and the next may be of fewer axes than a point, like any two arrays that are added.
        log_scale: $s$.
    """

    shift: Leaf = eqx.field(converter=_trainable)
    log_scale: Leaf = eqx.field(converter=_trainable)

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Affine":
        """Begin by changing nothing."""
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def forward(self, x):
        return x * jnp.exp(self.log_scale) + self.shift, self._log_det(x)

    def inverse(self, y):
        return (y - self.shift) * jnp.exp(-self.log_scale), -self._log_det(y)

    def _log_det(self, x):
        return jnp.sum(jnp.broadcast_to(self.log_scale, x.shape))
