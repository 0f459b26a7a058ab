"""What all targets with named parameters have in common."""

import abc
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._words.arrays import real_array
from .._words.errors import ArgumentError, named
from .._words.tree import over_draws


class AbstractNamedTarget(eqx.Module):
    """A density of a free vector, whose coordinates can be any numbers, which stands for named parameters.

    Whatever shows results (summaries, ArviZ) needs no more than this. Subclass it to connect another package.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int]:
        """Shape of a free vector."""

    @property
    @abc.abstractmethod
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what `constrain` returns, in the order in which it is shown."""

    @abc.abstractmethod
    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of a free vector, with the log-determinant of the map to the parameters."""

    @abc.abstractmethod
    def constrain(self, x: Float[Array, " dim"]) -> dict[str, Array]:
        """Return the parameters that a free vector stands for, and what is derived from them."""

    @abc.abstractmethod
    def unconstrain(self, values: Mapping[str, Any]) -> Float[Array, " dim"]:
        """Return the free vector of parameters, the inverse of `constrain`; derived values are ignored."""

    @property
    def names(self) -> tuple[str, ...]:
        """A label for each number that `constrain` returns, such as `theta[0]`; indices count from zero."""
        return labels(self.parameters)


def labels(parameters: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Return a label for each number in parameters of these shapes."""
    found = list[str]()
    for name, shape in parameters.items():
        for index in np.ndindex(shape):
            found.append(f"{name}[{','.join(map(str, index))}]" if index else name)
    return tuple(found)


def shapes_of(
    constrain: Callable[[Array], Mapping[str, Array]], shape: tuple[int, ...]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return names and shapes of values in the order in which they are made, which trees of arrays forget."""
    order = list[str]()

    def values_of(x: Array) -> dict[str, Array]:
        values = dict(constrain(x))
        order.extend(values)
        return values

    found = eqx.filter_eval_shape(values_of, jax.ShapeDtypeStruct(shape, jnp.result_type(float)))
    return tuple((name, found[name].shape) for name in order)


@eqx.filter_jit
def _constrained(target: AbstractNamedTarget, x: Array) -> dict[str, Array]:
    return over_draws(lambda target, point: target.constrain(point), target, x)


_AT_ONCE = 2**14  # draws: models may hold large derived values


def named_values(target: Any, x: Any) -> dict[str, np.ndarray]:
    """Return the named parameters of draws, draws first; of a target without names they are called `x`.

    They are computed in the precision of the draws.
    """
    x = real_array("x", x)
    if not x.ndim:
        raise ArgumentError(f"{named('x')} must be draws, batch axis first, got the single number {x}.")
    if not isinstance(target, AbstractNamedTarget):
        return {"x": x}
    if x.shape[1:] != target.shape:
        raise ArgumentError(
            f"{named('x')} must be draws of shape {target.shape}, batch axis first, got shape {x.shape}."
        )
    with jax.enable_x64(x.dtype == np.float64):
        parts = [
            jax.tree.map(np.asarray, _constrained(target, jnp.asarray(x[i : i + _AT_ONCE])))
            for i in range(0, len(x), _AT_ONCE)
        ]
    return {name: np.concatenate([part[name] for part in parts]) for name in target.parameters}


def labelled(target: Any, x: Any) -> tuple[tuple[str, ...], np.ndarray]:
    """Return a label for each number of a draw, and these numbers as columns, in double precision."""
    values = named_values(target, x)
    names = target.names if isinstance(target, AbstractNamedTarget) else labels(
        {name: value.shape[1:] for name, value in values.items()}
    )  # fmt: skip
    flat = [np.asarray(value, np.float64).reshape(len(value), -1) for value in values.values()]
    return names, np.concatenate(flat, axis=1)


def size_of(shape: tuple[int, ...]) -> int:
    """Return how many numbers a shape holds."""
    return math.prod(shape)
