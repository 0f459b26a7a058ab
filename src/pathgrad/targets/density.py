"""What the densities of the benchmark have in common, and the pieces that several are made of."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

LOG_2_PI = math.log(2 * math.pi)


class AbstractDensity(eqx.Module):
    """The log density of one point, with all constants as the literature has them.

    Data are stored in double precision and used in the precision of the point.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""

    @abc.abstractmethod
    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density at one point."""


class AbstractPosterior(AbstractDensity):
    """A density of free coordinates, each of which can be any number, with a map to named parameters."""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in the order of `constrain`."""

    @abc.abstractmethod
    def constrain(self, x: Float[Array, " dim"]) -> Float[Array, " columns"]:
        """Return the named parameters of a free point."""

    @abc.abstractmethod
    def unconstrain(self, columns: Float[Array, " columns"]) -> Float[Array, " dim"]:
        """Return the free point of named parameters, the inverse of `constrain`."""


def like(x: Array, array: np.ndarray | Array) -> Array:
    """Return data in the precision of a point."""
    return jnp.asarray(array, x.dtype)


def indexed(name: str, number: int) -> tuple[str, ...]:
    """Return `name[1]` to `name[number]`: indices count from one, as in Stan."""
    return tuple(f"{name}[{i}]" for i in range(1, number + 1))


def normal(x: Array, mean: float | Array = 0.0, sd: float = 1.0) -> Array:
    """Return the log density of a normal distribution with a known standard deviation."""
    return -0.5 * ((x - mean) / sd) ** 2 - math.log(sd) - 0.5 * LOG_2_PI


def cauchy_of_log(log_x: Array, scale: float) -> Array:
    """Return the log density of a Cauchy distribution at the exponential of a number, without overflow.

    On the positive axis it integrates to one half: a half-Cauchy in Stan's convention, without the factor 2.
    """
    return -math.log(math.pi * scale) - jax.nn.softplus(2 * (log_x - math.log(scale)))


def log_sigmoids(x: Array) -> tuple[Array, Array]:
    """Return the logarithms of a probability and of its complement, given its logit."""
    return -jax.nn.softplus(-x), -jax.nn.softplus(x)
