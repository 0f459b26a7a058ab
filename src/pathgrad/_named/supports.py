"""Where parameters may be: maps from free numbers, which can be anything, to their supports.

All are written so that draws far out stay finite: logarithms of probabilities are computed from the free
side, and no value rounds to the end of an interval.
"""

import abc
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._words.arguments import shape_of_point, whole
from .._words.arrays import doubles
from .._words.errors import ArgumentError, named

Shape = int | tuple[int, ...]
Bound = float | int | Array | np.ndarray | Callable[[Mapping[str, Array]], Any] | None


class AbstractSupport(eqx.Module):
    """Where a parameter may be, as a map from free numbers to it. The ready-made ones are functions: `real`,
    `positive`, `bounded`, `ordered`, `simplex`, `correlation_cholesky`.

    Attributes:
        shape: Shape of the parameter.
    """

    shape: eqx.AbstractVar[tuple[int, ...]]

    @property
    @abc.abstractmethod
    def free_shape(self) -> tuple[int, ...]:
        """Shape of the free numbers."""

    @abc.abstractmethod
    def constrain(self, free: Array, before: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return the parameter, and the log-determinant of its derivative.

        Args:
            free: Free numbers, of `free_shape`.
            before: The parameters that come before this one.
        """

    @abc.abstractmethod
    def unconstrain(self, value: Array, before: Mapping[str, Array]) -> Array:
        """Return the free numbers of a parameter."""


_shape = functools.partial(shape_of_point, "shape")


def _size(size: int, at_least: int, what: str) -> int:
    size = whole("size", size)
    if size < at_least:
        raise ArgumentError(f"{what} needs a {named('size')} of at least {at_least}, got {size}.")
    return size


def _tiny(x: Array) -> float:
    return float(jnp.finfo(x.dtype).tiny)


class _Real(AbstractSupport):
    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def free_shape(self):
        return self.shape

    def constrain(self, free, before):
        return free, jnp.zeros((), free.dtype)

    def unconstrain(self, value, before):
        return value


class _Bounded(AbstractSupport):
    low: Bound
    high: Bound
    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def free_shape(self):
        return self.shape

    def constrain(self, free, before):
        low, high = self._bounds(before, free.dtype)
        # An exponential that is zero would make logarithms infinite.
        away = jnp.maximum(jnp.exp(free), _tiny(free))
        if high is None:
            return jnp.maximum(low + away, _next(low, math.inf)), jnp.sum(free)
        if low is None:
            return jnp.minimum(high - away, _next(high, -math.inf)), jnp.sum(free)
        width = _width(low, high)
        value = jnp.where(free > 0, high - width * jax.nn.sigmoid(-free), low + width * jax.nn.sigmoid(free))
        log_det = jnp.log(width) - jax.nn.softplus(free) - jax.nn.softplus(-free)
        return _inside(value, low, high), jnp.sum(log_det)

    def unconstrain(self, value, before):
        low, high = self._bounds(before, value.dtype)
        if high is None:
            return jnp.log(value - low)
        if low is None:
            return jnp.log(high - value)
        return jnp.log(value - low) - jnp.log(high - value)

    def _bounds(self, before: Mapping[str, Array], dtype: Any) -> tuple[Any, Any]:
        def value(bound: Bound) -> Any:
            bound = bound(before) if callable(bound) else bound
            return None if bound is None else jnp.broadcast_to(jnp.asarray(bound, dtype), self.shape)

        return value(self.low), value(self.high)


def _next(bound: Array, towards: float) -> Array:
    """Return the number next to a bound, which may depend on other parameters: it has no derivative."""
    return jnp.nextafter(jax.lax.stop_gradient(bound), towards)


def _width(low: Array, high: Array) -> Array:
    """Return the width of an interval: NaN if its ends are in the wrong order, and never quite zero."""
    width = high - low
    return jnp.where(width < 0, jnp.nan, jnp.maximum(width, _tiny(width)))


def _inside(value: Array, low: Array, high: Array) -> Array:
    """Keep a value from rounding to an end of its interval, where logarithms are infinite."""
    low, high = jax.lax.stop_gradient((low, high))
    tiny = _tiny(value)  # numbers next to zero would count as zero
    return jnp.clip(value, jnp.nextafter(low + tiny, high), jnp.nextafter(high - tiny, low))


class _Ordered(AbstractSupport):
    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def free_shape(self):
        return self.shape

    def constrain(self, free, before):
        steps = jnp.concatenate([free[..., :1], jnp.exp(free[..., 1:])], axis=-1)
        return jnp.cumsum(steps, axis=-1), jnp.sum(free[..., 1:])

    def unconstrain(self, value, before):
        return jnp.concatenate([value[..., :1], jnp.log(jnp.diff(value, axis=-1))], axis=-1)


class _Simplex(AbstractSupport):
    """By breaking a stick: each number says how much of the rest is broken off, zero for an even share."""

    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def free_shape(self):
        return (*self.shape[:-1], self.shape[-1] - 1)

    @property
    def _even(self) -> np.ndarray:
        return np.log(np.arange(self.shape[-1] - 1, 0, -1))

    def constrain(self, free, before):
        logit = free - jnp.asarray(self._even, free.dtype)
        log_off, log_left = -jax.nn.softplus(-logit), -jax.nn.softplus(logit)
        none = jnp.zeros_like(free[..., :1])
        log_stick = jnp.concatenate([none, jnp.cumsum(log_left, axis=-1)], axis=-1)
        log_value = log_stick + jnp.concatenate([log_off, none], axis=-1)
        log_det = jnp.sum(log_value[..., :-1] + log_left)
        return jnp.maximum(jnp.exp(log_value), _tiny(free)), log_det

    def unconstrain(self, value, before):
        rest = jnp.flip(jnp.cumsum(jnp.flip(value, axis=-1), axis=-1), axis=-1)
        return jnp.log(value[..., :-1]) - jnp.log(rest[..., 1:]) + jnp.asarray(self._even, value.dtype)


class _CorrelationCholesky(AbstractSupport):
    """By partial correlations, row by row, each the hyperbolic tangent of a free number."""

    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def free_shape(self):
        size = self.shape[-1]
        return (*self.shape[:-2], size * (size - 1) // 2)

    @property
    def _below(self) -> tuple[np.ndarray, np.ndarray]:
        return np.tril_indices(self.shape[-1], -1)

    def constrain(self, free, before):
        rows, columns = self._below
        square = jnp.zeros(self.shape, free.dtype)
        partial = square.at[..., rows, columns].set(jnp.tanh(free))
        # Logarithms of 1 - tanh^2, and their sums over the columns before.
        log_rest = square.at[..., rows, columns].set(2 * (math.log(2) - free - jax.nn.softplus(-2 * free)))
        used = jnp.cumsum(log_rest, axis=-1) - log_rest
        root = jnp.maximum(jnp.exp(0.5 * used), _tiny(free))
        value = (partial + jnp.eye(self.shape[-1], dtype=free.dtype)) * root
        log_det = log_rest + 0.5 * used
        return value * _lower(self.shape[-1]), jnp.sum(log_det[..., rows, columns])

    def unconstrain(self, value, before):
        rows, columns = self._below
        squares = value**2
        # What is left of a row, from its end: its squares add to one.
        left = jnp.flip(jnp.cumsum(jnp.flip(squares, axis=-1), axis=-1), axis=-1)
        return jnp.arctanh((value / jnp.sqrt(left))[..., rows, columns])


def _lower(size: int) -> np.ndarray:
    return np.tril(np.ones((size, size), bool))


def real(shape: Shape = ()) -> AbstractSupport:
    """Any number.

    Args:
        shape: Shape of the parameter: `real()` is one number, `real(8)` a vector.
    """
    return _Real(_shape(shape))


def positive(shape: Shape = ()) -> AbstractSupport:
    """A positive number, the exponential of a free one.

    Args:
        shape: Shape of the parameter.
    """
    return _Bounded(low=0.0, high=None, shape=_shape(shape))


def bounded(low: Bound = None, high: Bound = None, shape: Shape = ()) -> AbstractSupport:
    """A number between two bounds, or on one side of one.

    Args:
        low: Lower bound; `None` if there is none. A number, an array, or a function of a dictionary of the
            parameters that come before this one: `bounded(0, lambda before: 1 - before["alpha"])`.
        high: Upper bound, likewise.
        shape: Shape of the parameter.
    """
    if low is None and high is None:
        raise ArgumentError(f"Give {named('low')}, {named('high')} or both; without bounds, write `real()`.")
    for name, bound in (("low", low), ("high", high)):
        if not callable(bound) and bound is not None and not np.isfinite(doubles(name, bound)).all():
            raise ArgumentError(f"{named(name)} must be finite, got {bound}. Leave out what bounds nothing.")
    numbers = not callable(low) and not callable(high) and low is not None and high is not None
    if numbers and not np.all(np.asarray(low) < np.asarray(high)):  # pyright: ignore
        raise ArgumentError(f"{named('low')} must be below {named('high')}, got {low} and {high}.")
    arrays = [np.shape(bound) for bound in (low, high) if not callable(bound) and bound is not None]
    return _Bounded(low=low, high=high, shape=_shape(shape) or np.broadcast_shapes(*arrays))


def ordered(size: int, shape: Shape = ()) -> AbstractSupport:
    """Numbers in increasing order: the first is free, and the gaps are exponentials.

    Args:
        size: How many.
        shape: Shape of an array of such vectors, if there are several.
    """
    return _Ordered((*_shape(shape), _size(size, 1, "A vector in order")))


def simplex(size: int, shape: Shape = ()) -> AbstractSupport:
    """Positive numbers that add to one. The density is one of all but the last.

    Args:
        size: How many; one less is free.
        shape: Shape of an array of such vectors, if there are several.
    """
    return _Simplex((*_shape(shape), _size(size, 2, "A simplex")))


def correlation_cholesky(size: int, shape: Shape = ()) -> AbstractSupport:
    """The lower triangular Cholesky factor of a correlation matrix: its rows have length one.

    The density is one of the entries below the diagonal.

    Args:
        size: Number of rows; `size * (size - 1) / 2` numbers are free.
        shape: Shape of an array of such matrices, if there are several.
    """
    size = _size(size, 2, "A correlation matrix")
    return _CorrelationCholesky((*_shape(shape), size, size))
