"""Any log density of a tree of free arrays as a target."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._ingredients.target import LogDensity
from .._words.arguments import function
from .._words.arrays import real_array
from .._words.errors import ArgumentError, named
from .abstract import AbstractNamedTarget, shapes_of, size_of


class TreeTarget(AbstractNamedTarget):
    """A target made from a log density of a tree of free arrays, as `from_pytree` makes it."""

    _density: Callable[[Any], Any]
    _constrain: Callable[[Any], Mapping[str, Any]] | None
    _unconstrain: Callable[[Mapping[str, Any]], Any] | None
    _leaves: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    _structure: Any = eqx.field(static=True)
    _shapes: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int]:
        """Shape of a free vector: all leaves in a row."""
        return (sum(size_of(shape) for _, shape in self._leaves),)

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what `constrain` returns."""
        return dict(self._shapes)

    def log_prob(self, x: Float[Array, " dim"]) -> Array:
        """Return the log density of a free vector."""
        return self._density(self._tree(x))

    def constrain(self, x: Float[Array, " dim"]) -> dict[str, Array]:
        """Return named values of a free vector."""
        tree = self._tree(x)
        if self._constrain is not None:
            return {name: jnp.asarray(value) for name, value in self._constrain(tree).items()}
        return {name: leaf for (name, _), leaf in zip(self._leaves, jax.tree.leaves(tree), strict=True)}

    def unconstrain(self, values: Mapping[str, Any]) -> Float[Array, " dim"]:
        """Return the free vector of named values."""
        if self._constrain is None:
            leaves = [values[name] for name, _ in self._leaves]
        elif self._unconstrain is not None:
            leaves = jax.tree.leaves(self._unconstrain(values))
        else:
            raise ArgumentError(
                f"The way back is not known: give `from_pytree` {named('unconstrain')} as well."
            )
        return jnp.concatenate([jnp.ravel(jnp.asarray(leaf, float)) for leaf in leaves])

    def _tree(self, x: Array) -> Any:
        leaves, begin = list[Array](), 0
        for _, shape in self._leaves:
            end = begin + size_of(shape)
            leaves.append(x[begin:end].reshape(shape))
            begin = end
        return jax.tree.unflatten(self._structure, leaves)


def from_pytree(
    log_prob: Callable[[Any], Any],
    example: PyTree,
    constrain: Callable[[Any], Mapping[str, Any]] | None = None,
    unconstrain: Callable[[Mapping[str, Any]], Any] | None = None,
) -> TreeTarget:
    """Return a target for a log density of a tree of arrays: a dictionary, a list, a named tuple.

    This is what BlackJAX samples from, and what a TFP model is together with its bijector.

    Args:
        log_prob: The log density of a tree like `example`, up to a constant, as a scalar. Each number in the
            tree can be anything: what is bounded must be transformed, with the log-determinant added. For
            parameters with supports, see `Posterior`.
        example: A tree of arrays of the right shapes.
        constrain: A function of such a tree that returns named values to report, by default the leaves. They
            are called by their places in the tree, such as `group.mean`.
        unconstrain: The way back, from named values to a tree, if anyone needs it.
    """
    function("log_prob", log_prob, "log_prob(tree)")
    for name, given in (("constrain", constrain), ("unconstrain", unconstrain)):
        if given is not None:
            function(name, given, f"{name}(...)")
    placed, structure = jax.tree_util.tree_flatten_with_path(example)
    if not placed:
        raise ArgumentError(f"The {named('example')} has no arrays, and so no coordinates.")
    for _, leaf in placed:
        real_array("example", leaf)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") or "x" for path, _ in placed]
    leaves = tuple((name, np.shape(leaf)) for name, (_, leaf) in zip(names, placed, strict=True))
    made = TreeTarget(log_prob, constrain, unconstrain, leaves, structure, leaves)
    if constrain is not None:
        shapes = shapes_of(made.constrain, made.shape)
        made = TreeTarget(log_prob, constrain, unconstrain, leaves, structure, shapes)
    LogDensity(made.log_prob, made.shape)  # checks the result
    return made
