r"""Fields made of one function for each of many directions: $v = A^\top \varphi(A z)$, and its relatives.

A posterior that is nearly normal often differs from it along known directions, one datum or one latent number
at a time: $\ln p$ is a quadratic form and a sum of functions of single numbers $A_j \cdot z$. Its gradient
then has the form of these fields.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from .._words.arguments import whole
from .._words.constant import Constant
from .._words.errors import ArgumentError, named
from .._words.keys import one_key
from .._words.tree import Leaf, one_draw
from .activations import tanh_log_cosh
from .bases import floating
from .fields import AbstractTractableField

_FEATURES = 5


class Profiles(eqx.Module):
    r"""Functions of one number each, $\varphi_j(u_j)$, all zero at first.

    $$\varphi_j(u) = a_{j0} u + a_{j1} \ln\cosh(u + 1) + a_{j2} \ln\cosh(u - 1) + a_{j3} \tanh u + a_{j4}$$

    The coefficients are linear in time. The two logarithms bend like $|u|$ far away, each around a place of
    its own, so that both tails can be changed separately, and their difference is a step.

    Attributes:
        start: The coefficients at time zero, one row for each function.
        rate: How fast they change with time.
    """

    start: Leaf
    rate: Leaf

    @classmethod
    def zero(cls, size: int, dtype: Any = None) -> "Profiles":
        """Return `size` functions that are zero."""
        return cls(jnp.zeros((size, _FEATURES), dtype), jnp.zeros((size, _FEATURES), dtype))

    def __call__(self, t: Array, u: Float[Array, " size"]) -> Float[Array, " size"]:
        """Return the values of all functions."""
        return self.with_slopes(t, u)[0]

    def with_slopes(
        self, t: Array, u: Float[Array, " size"]
    ) -> tuple[Float[Array, " size"], Float[Array, " size"]]:
        """Return values and derivatives of all functions."""
        linear, right, left, step, constant = jnp.moveaxis(self.start + t * self.rate, -1, 0)
        right_slope, right_value = tanh_log_cosh(u + 1)
        left_slope, left_value = tanh_log_cosh(u - 1)
        middle = jnp.tanh(u)
        value = linear * u + right * right_value + left * left_value + step * middle + constant
        return value, linear + right * right_slope + left * left_slope + step * (1 - middle**2)


class TiedField(AbstractTractableField):
    r"""A sum of waves across learned directions: $v(z) = A^\top \varphi(A z)$, one smooth function for each.

    The Jacobian is $A^\top \varphi' A$, so the divergence is $\sum_j \varphi_j'\, |A_j|^2$, in closed form.
    It begins as zero, the identity map, and is meant for densities that are near a standard normal already.
    Changes are gentle: one or two Runge-Kutta steps are often enough,
    `pg.CNF(pg.TiedField(dim, key=key), integrator=pg.FixedStep(2))`. Check it by `flow.refined(2)`, as
    `evaluate` does.

    For a generalised linear model or a Gaussian process, directions are known: the rows of the design matrix,
    in the coordinates of the flow. For anything else, learned ones do about as well.

    Attributes:
        rows: The matrix $A$, one direction in each row; a `Constant` is not trained.
        profiles: The functions $\varphi_j$.
    """

    rows: Any
    profiles: Profiles

    def __init__(self, dim: int, rows: Any = None, *, key: Key[Array, ""] | None = None) -> None:
        """Build a field that is zero everywhere, for points with `dim` entries.

        Args:
            dim: Number of entries of a point, whatever its shape.
            rows: Number of directions, which are random at first and trained; by default three for each
                entry. Or the matrix of directions, one in each row: trained as an array, and kept as a
                `Constant`.
            key: Source of random directions.
        """
        dim = whole("dim", dim)
        if rows is None or (np.ndim(rows) == 0 and not isinstance(rows, Constant)):
            rows = _random_rows(dim, 3 * dim if rows is None else rows, key)
        self.rows = rows if isinstance(rows, Constant) else floating(rows, "rows")
        if len(self.rows.shape) != 2 or self.rows.shape[1] != dim:
            raise ArgumentError(
                f"{named('rows')} must have one direction of {dim} entries in each row, got shape "
                f"{self.rows.shape}."
            )
        kept = self.rows.value if isinstance(self.rows, Constant) else self.rows
        self.profiles = Profiles.zero(self.rows.shape[0], kept.dtype)

    def __call__(self, t, x):
        matrix = self._matrix(x)
        return (self.profiles(t, matrix @ x.ravel()) @ matrix).reshape(x.shape)

    def prepare(self):
        matrix = self.rows.value if isinstance(self.rows, Constant) else self.rows
        return jnp.sum(matrix**2, axis=1)

    def velocity_and_divergence(self, t, x, prepared):
        matrix = self._matrix(x)
        value, slope = self.profiles.with_slopes(t, matrix @ x.ravel())
        return (value @ matrix).reshape(x.shape), jnp.vdot(prepared.astype(x.dtype), slope)

    def _matrix(self, x: Array) -> Array:
        return self.rows.read(x.dtype) if isinstance(self.rows, Constant) else self.rows.astype(x.dtype)


def _random_rows(dim: int, rows: Any, key: Key[Array, ""] | None) -> Array:
    rows = whole("rows", rows)
    if key is None:
        raise ArgumentError(
            f"Random directions need {named('key')}; or give the matrix of directions as {named('rows')}."
        )
    return jr.normal(one_key(key), (rows, dim)) / dim**0.5


class CorrelatedField(AbstractTractableField):
    r"""One smooth function of each coordinate, spread by given correlations: $v(u) = R\, \varphi(u)$.

    For a base that is a normal with covariance $R$, this is the `TiedField` of the standard normal with
    $A A^\top = R$, in other coordinates: where a latent Gaussian process has a datum at each of its points,
    as in a Cox process. The divergence is $\sum_j R_{jj}\, \varphi_j'$. It begins as zero.

    Attributes:
        correlation: What multiplies by $R$: called with a vector, with its diagonal as `diagonal()`.
        profiles: The functions $\varphi_j$.
    """

    correlation: Any
    profiles: Profiles

    def __init__(self, correlation: Any) -> None:
        """Build a field that is zero everywhere.

        Args:
            correlation: The symmetric matrix $R$, which is not trained; or an Equinox module that multiplies
                by it, called with a vector, with a method `diagonal()`. A covariance will do, but the
                functions suit coordinates with a scale of about one.
        """
        self.correlation = (
            correlation
            if hasattr(correlation, "diagonal") and callable(correlation)
            else _Matrix(correlation)
        )
        diagonal = one_draw(self.correlation).diagonal()
        self.profiles = Profiles.zero(diagonal.size, diagonal.dtype)

    def __call__(self, t, x):
        return self.correlation(self.profiles(t, x.ravel())).reshape(x.shape)

    def prepare(self):
        return self.correlation.diagonal()

    def velocity_and_divergence(self, t, x, prepared):
        value, slope = self.profiles.with_slopes(t, x.ravel())
        return self.correlation(value).reshape(x.shape), jnp.vdot(prepared.astype(x.dtype), slope)


class _Matrix(eqx.Module):
    """A symmetric matrix that is not trained."""

    matrix: Constant

    def __init__(self, matrix: Any) -> None:
        # In the precision of the flow: it is read in every evaluation of the field.
        self.matrix = Constant(floating(matrix, "correlation"))
        if len(self.matrix.shape) != 2 or self.matrix.shape[0] != self.matrix.shape[1]:
            raise ArgumentError(
                f"{named('correlation')} must be a square matrix, or a module that multiplies by one; got "
                f"shape {self.matrix.shape}."
            )

    def __call__(self, x: Array) -> Array:
        return self.matrix.read(x.dtype) @ x

    def diagonal(self) -> Array:
        return jnp.diagonal(self.matrix.value)
