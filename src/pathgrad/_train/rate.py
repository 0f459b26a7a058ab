"""Learning rates over a training whose length may be known in steps, or only in seconds."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from .._words.arguments import number, whole

_GROWTH = 0.05  # share of a round in which the rate grows


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

    warmup: int = eqx.field(static=True, default=0, converter=lambda value: whole("warmup", value, 0))
    hold: float = eqx.field(
        static=True,
        default=0.25,
        converter=lambda value: number("hold", value, lambda x: 0 <= x <= 1, "from 0 to 1"),
    )

    def __call__(self, step, progress):
        grown = jnp.minimum((step + 1) / max(self.warmup, 1), 1.0)
        left = (1 - progress) / max(1 - self.hold, 1e-6)
        return grown * (jnp.clip(left, 0.0, 1.0) if self.hold < 1 else 1.0)


class Restarts(AbstractRate):
    """Rounds, each twice as long as the one before, in which the rate grows and falls to zero as a cosine.

    A training may end after any round, at a rate of zero; so it can go on until it is good enough.

    Attributes:
        first: Steps of the first round.
    """

    first: int = eqx.field(static=True, converter=lambda value: whole("first", value))

    def end(self, rounds: int) -> int:
        """Return the number of steps in so many rounds."""
        return self.first * (2**rounds - 1)

    def ended(self, step: int) -> int:
        """Return the number of rounds that are over after so many steps."""
        return (step // self.first + 1).bit_length() - 1

    def __call__(self, step, progress):
        # With whole numbers: a logarithm that is rounded down would begin a round one step late.
        doublings = 31 - lax.clz(jnp.asarray(step // self.first + 1, jnp.int32))
        length = self.first * 2**doublings
        share = (step - (length - self.first) + 1) / (length + 1)
        fall = 0.5 * (1 + jnp.cos(jnp.pi * (share - _GROWTH) / (1 - _GROWTH)))
        return jnp.where(share < _GROWTH, share / _GROWTH, fall)
