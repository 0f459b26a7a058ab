"""Elementwise affine bijections."""

import equinox as eqx
import jax.numpy as jnp

from ..._ingredients.bases import trainable
from ..._words.arguments import shape_of_point
from ..._words.tree import Leaf
from .abstract import AbstractBijection


class Affine(AbstractBijection):
    r"""Shift and scale every coordinate of a point separately: $y = e^{s} x + b$.

    As the last transform it gives a flow the location and scale of its target directly, which a field would
    have to learn. With `PerDraw` leaves every draw has its own.

    Attributes:
        shift: $b$, which may have fewer axes than a point: the usual broadcasting applies.
        log_scale: $s$, likewise.
    """

    shift: Leaf = eqx.field(converter=trainable("shift"))
    log_scale: Leaf = eqx.field(converter=trainable("log_scale"))

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Affine":
        """Return the identity map."""
        shape = shape_of_point("shape", shape)
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def forward(self, x):
        return x * jnp.exp(self.log_scale) + self.shift, self._log_det(x)

    def inverse(self, y):
        return (y - self.shift) * jnp.exp(-self.log_scale), -self._log_det(y)

    def _log_det(self, x):
        return jnp.sum(jnp.broadcast_to(self.log_scale, x.shape))
