"""Normal densities: standard, diagonal, full."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from .._tree import Leaf, one_draw
from .abstract import AbstractBase


def floating(x: Any) -> Array:
    """Return an array of real numbers, also from integers: those could not be trained."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))


def standard_log_prob(z: Array) -> Array:
    """Return the log density of independent standard normals, summed over the point."""
    return -0.5 * jnp.vdot(z, z) - 0.5 * math.log(2 * math.pi) * z.size


class StandardNormal(AbstractBase):
    """Independent standard normals, in points of any shape. Nothing to train.

    Attributes:
        event_shape: Shape of one point, such as `(2,)` or `(L, L)`.
    """

    event_shape: tuple[int, ...] = eqx.field(static=True, converter=tuple)

    @property
    def shape(self):
        return self.event_shape

    def draw(self, *, key):
        return jr.normal(key, self.event_shape), None

    def log_prob(self, x):
        return standard_log_prob(x)


class DiagonalNormal(AbstractBase):
    """Independent normals with trainable mean and scale.

    Attributes:
        mean: One entry for each of the point.
        log_scale: Logarithm of the standard deviation.
    """

    mean: Leaf
    log_scale: Leaf

    def __check_init__(self):
        own = one_draw(self)
        if own.mean.shape != own.log_scale.shape:
            raise ValueError(
                f"`mean` and `log_scale` must have the same shape, got {own.mean.shape} and "
                f"{own.log_scale.shape}."
            )

    @classmethod
    def standard(cls, shape: tuple[int, ...]) -> "DiagonalNormal":
        """Begin with mean zero and scale one."""
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    @property
    def shape(self):
        return self.mean.shape

    def draw(self, *, key):
        noise = jr.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_scale) * noise, None

    def log_prob(self, x):
        z = (x - self.mean) * jnp.exp(-self.log_scale)
        return standard_log_prob(z) - jnp.sum(self.log_scale)


class FullNormal(AbstractBase):
    r"""A normal with trainable mean and full covariance $L L^\top$.

    Attributes:
        mean: Of the shape of a point.
        lower: Below the diagonal the entries of $L$; the part above is ignored.
        log_diagonal: Logarithm of the diagonal of $L$.
    """

    mean: Leaf
    lower: Leaf
    log_diagonal: Leaf

    def __check_init__(self):
        own = one_draw(self)
        size = own.mean.size
        if own.lower.shape != (size, size) or own.log_diagonal.shape != (size,):
            raise ValueError(
                f"A mean of {size} numbers needs `lower` of shape {(size, size)} and `log_diagonal` of shape "
                f"{(size,)}, got {own.lower.shape} and {own.log_diagonal.shape}."
            )

    @classmethod
    def standard(cls, shape: tuple[int, ...]) -> "FullNormal":
        """Begin with mean zero and unit covariance."""
        size = math.prod(shape)
        return cls(jnp.zeros(shape), jnp.zeros((size, size)), jnp.zeros(size))

    @classmethod
    def from_covariance(cls, mean: Any, covariance: Any) -> "FullNormal":
        """Begin with a given mean and covariance."""
        factor = jnp.linalg.cholesky(floating(covariance))
        return cls(floating(mean), jnp.tril(factor, -1), jnp.log(jnp.diagonal(factor)))

    @property
    def shape(self):
        return self.mean.shape

    @property
    def factor(self) -> Float[Array, "size size"]:
        """The Cholesky factor of the covariance."""
        return jnp.tril(self.lower, -1) + jnp.diag(jnp.exp(self.log_diagonal))

    def draw(self, *, key):
        noise = jr.normal(key, self.log_diagonal.shape, self.mean.dtype)
        return self.mean + (self.factor @ noise).reshape(self.mean.shape), None

    def log_prob(self, x):
        z = solve_triangular(self.factor, (x - self.mean).ravel(), lower=True)
        return standard_log_prob(z) - jnp.sum(self.log_diagonal)
