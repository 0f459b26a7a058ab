"""The free field as base distribution: normal, and correlated like the target."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import pathgrad as pg

from .lattice import momenta_squared, transform


class FreeField(pg.AbstractBase):
    r"""The normal density $\propto \exp\{-\sum_k (\hat k^2 + M^2) |\phi_k|^2\}$ of a free field.

    Its covariance has the spectrum $1 / 2(\hat k^2 + M^2)$, with the 2 because the action has no factor 1/2.
    A draw or a log density costs one transform, the score two. It has no trainable parameters. A good choice
    of the mass is near $M^2 = 1 / 2\chi_2$ of the target.
    """

    size: int = eqx.field(static=True)  # sites along an axis
    mass_squared: float = eqx.field(static=True)

    def __check_init__(self):
        if not 0 < self.mass_squared < math.inf:
            raise ValueError(f"The mass squared of the base must be positive, got {self.mass_squared}.")

    @property
    def shape(self):
        return (self.size, self.size)

    def _precision(self):
        """Return the inverse variance of each mode."""
        return 2 * (momenta_squared(self.size) + self.mass_squared)

    def draw(self, *, key):
        noise = jr.normal(key, self.shape)
        return transform(noise * (self._precision() ** -0.5).astype(noise.dtype)), None

    def log_prob(self, x):
        precision, modes = self._precision(), transform(x)
        constant = 0.5 * np.log(precision / (2 * np.pi)).sum()
        return -0.5 * jnp.sum(precision.astype(x.dtype) * modes * modes) + constant
