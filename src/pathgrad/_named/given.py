"""Draws by name, from elsewhere, as points of a target."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._words.arrays import doubles
from .._words.errors import ArgumentError, named
from .._words.tree import over_draws
from .abstract import AbstractNamedTarget


def points_of(target: Any, draws: Any, name: str) -> Any:
    """Return draws by name as points of a target, batch axis first; anything else is returned as it is.

    Args:
        target: The target. Without names, its points are called `x`.
        draws: A dictionary of arrays, draws first (or chains first, then draws); or an object of ArviZ.
        name: Name of the argument that they were given as.
    """
    if not isinstance(draws, Mapping):
        return draws
    if isinstance(draws.get("posterior"), Mapping):  # an object of ArviZ, of either version
        draws = draws["posterior"]
    if not isinstance(target, AbstractNamedTarget):
        if "x" not in draws:
            raise ArgumentError(
                f"{named(name)} are by name ({_some(draws)}), but the target has no names. Give a single "
                "array of points, or make the target a `Posterior`."
            )
        return np.asarray(draws["x"])
    values = {k: np.asarray(draws[k]) for k in target.parameters if k in draws}
    if not values:
        raise ArgumentError(
            f"{named(name)} have {_some(draws)}, but the target's parameters are "
            f"{_some(target.parameters)}. Give these."
        )
    flat = {k: _one_batch(value, target.parameters[k], k, name) for k, value in values.items()}
    if len({len(value) for value in flat.values()}) > 1:
        raise ArgumentError(f"{named(name)} must have as many draws of one parameter as of another.")
    with jax.enable_x64(True):
        values = {k: jnp.asarray(value, jnp.float64) for k, value in flat.items()}
        return np.asarray(_unconstrained(target, values))


def start_of(target: Any, start: Any) -> Any:
    """Return a start, which may be given by name, as a point of a target; raise if it is none."""
    if isinstance(start, Mapping):
        if not isinstance(target, AbstractNamedTarget):
            raise ArgumentError(f"{named('start')} is by name, but the target has no names. Give a point.")
        with jax.enable_x64(True):
            start = np.asarray(target.unconstrain(start))
    if start is not None and not np.isfinite(doubles("start", start)).all():
        raise ArgumentError(
            f"{named('start')} must be finite, and inside the support of every parameter; as a point it is "
            f"{np.asarray(start)}."
        )
    return start


@eqx.filter_jit
def _unconstrained(target: AbstractNamedTarget, values: dict[str, Array]) -> Array:
    return over_draws(lambda target, one: target.unconstrain(one), target, values)


def _one_batch(value: np.ndarray, shape: tuple[int, ...], parameter: str, name: str) -> np.ndarray:
    """Return draws of a parameter, chains joined."""
    if value.ndim - len(shape) not in (1, 2) or value.shape[value.ndim - len(shape) :] != shape:
        raise ArgumentError(
            f"{named(name)}: {parameter!r} must have the shape {shape} after its draws (or chains and "
            f"draws), got an array of shape {value.shape}."
        )
    return value.reshape(-1, *shape)


def _some(names: Any) -> str:
    found = [str(name) for name in names]
    return ", ".join(found[:6]) + (", ..." if len(found) > 6 else "") if found else "nothing"
