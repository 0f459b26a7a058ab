"""Learning rates over a training whose length may be known in steps, or only in seconds."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._words.errors import ArgumentError, named


class AbstractRate(eqx.Module):
    """A factor on the updates of an optimiser."""

    @abstractmethod
    def __call__(self, step: Int[Array, ""], progress: Float[Array, ""]) -> Float[Array, ""]:
        """Return the factor of a step, counted from zero.

        `progress` is the share of the training that is done, from 0 to 1. It stays 0 until the length of the
        training is known, which may take a twentieth of it.
        """


class Trapezoid(AbstractRate):
    """Grow over some steps, hold, and fall linearly to zero at the end of the training.

    Attributes:
        warmup: Steps over which the factor grows to one.
        hold: Progress at which it begins to fall; 1 for never.
    """

    warmup: int = eqx.field(static=True, default=0)
    hold: float = eqx.field(static=True, default=0.25)

    def __check_init__(self):
        if self.warmup < 0 or not 0 <= self.hold <= 1:
            raise ArgumentError(
                f"{named('warmup')} must be at least 0 and {named('hold')} from 0 to 1; got {self.warmup} "
                f"and {self.hold}."
            )

    def __call__(self, step, progress):
        grown = jnp.minimum((step + 1) / max(self.warmup, 1), 1.0)
        left = (1 - progress) / max(1 - self.hold, 1e-6)
        return grown * (jnp.clip(left, 0.0, 1.0) if self.hold < 1 else 1.0)
