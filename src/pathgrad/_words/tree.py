"""Trees of arrays: freezing them, and mapping over the draws of a batch."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Key, PyTree

from .draw import Tally

T = TypeVar("T")


def freeze(tree: T) -> T:
    """Stop gradients at every floating-point array of a tree, except those of tallies."""
    return jax.tree.map(
        lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x,
        tree,
        is_leaf=lambda node: isinstance(node, Tally),
    )


class PerDraw(eqx.Module):
    """Mark a leaf of a field, base or target as having one value for each draw, batch axis first.

    A field is written for one point and never sees the mark: if `field.shift` was set to `PerDraw(shifts)`,
    then within `field(t, x)` the attribute `self.shift` is the entry that belongs to `x`. Leaves without
    the mark are shared by all draws and have one gradient. This is how an encoder returns an amortised flow.

    Attributes:
        value: An array, or a tree of arrays, with the batch axis first.
    """

    value: PyTree[Array]


# A leaf that may be marked. The code that reads it only ever sees the array.
if TYPE_CHECKING:
    Leaf = Array
else:
    Leaf = Array | PerDraw


def _is_per_draw(node: Any) -> bool:
    return isinstance(node, PerDraw)


def over_draws(fn: Callable[..., Any], tree: PyTree, *batched: PyTree, out_axes: int | None = 0) -> Any:
    """Call `fn(tree, *point)` for every draw: `PerDraw` leaves are mapped, shared ones are not."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_per_draw)
    mapped = [leaf.value if _is_per_draw(leaf) else None for leaf in leaves]

    def one(mapped_leaves, *point):
        of_draw = [
            entry if _is_per_draw(leaf) else leaf for leaf, entry in zip(leaves, mapped_leaves, strict=True)
        ]
        return fn(jax.tree.unflatten(structure, of_draw), *point)

    return jax.vmap(one, out_axes=out_axes)(mapped, *batched)


def once_or_per_draw(fn: Callable[[Any], Any], tree: PyTree) -> Any:
    """Call `fn(tree)` once if the result is the same for all draws, else per draw, as a `PerDraw`."""
    if number_of_draws(tree) is None:
        return fn(tree)
    try:
        return over_draws(fn, tree, out_axes=None)
    except ValueError:  # `vmap` raises this if the result depends on the draw
        return PerDraw(over_draws(fn, tree))


def one_draw(tree: T) -> T:
    """Return the tree of the first draw: every `PerDraw` leaf is replaced by its first entry."""
    return jax.tree.map(
        lambda n: jax.tree.map(lambda a: a[0], n.value) if _is_per_draw(n) else n, tree, is_leaf=_is_per_draw
    )


def number_of_draws(tree: PyTree) -> int | None:
    """Return the common length of all `PerDraw` leaves, or `None` if there are none."""
    marked = [n for n in jax.tree.leaves(tree, is_leaf=_is_per_draw) if _is_per_draw(n)]
    lengths = {leaf.shape[0] for n in marked for leaf in jax.tree.leaves(n.value)}
    if len(lengths) > 1:
        raise ValueError(
            f"`PerDraw` leaves disagree on the number of draws: {sorted(lengths)}. "
            "Each must have the batch axis first, and all must have the same length."
        )
    return lengths.pop() if lengths else None


def map_chunks(fn: Callable[..., T], chunk: int, tree: PyTree, *batched: PyTree) -> T:
    """Call `fn(tree, *batched)` on `chunk` draws at a time and join the results along the first axis.

    Memory is bounded by the chunk, whatever the number of draws. Scalars in the result are stacked, one
    for each chunk.
    """
    n = jax.tree.leaves(batched)[0].shape[0]
    if n <= chunk:
        return jax.tree.map(lambda a: a[None] if a.ndim == 0 else a, fn(tree, *batched))
    full_chunks, rest = divmod(n, chunk)
    marked, shared = eqx.partition(tree, _is_per_draw, is_leaf=_is_per_draw)

    def part(marked_and_batched):
        marked, batched = marked_and_batched
        return fn(eqx.combine(marked, shared, is_leaf=_is_per_draw), *batched)

    end = full_chunks * chunk
    split = jax.tree.map(lambda a: a[:end].reshape(full_chunks, chunk, *a.shape[1:]), (marked, batched))
    results = lax.map(part, split)
    results = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]) if a.ndim > 1 else a, results)
    if rest == 0:
        return results
    last = part(jax.tree.map(lambda a: a[end:], (marked, batched)))
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None] if b.ndim == 0 else b]), results, last)


def key_of_each(key: Key[Array, "*batch"], n: int) -> Key[Array, " {n}"]:
    """Return one key for each of `n` draws: a single key is split, `n` keys are returned as they are."""
    if key.ndim == 0:
        return jr.split(key, n)
    if key.shape != (n,):
        raise ValueError(f"`key` has shape {key.shape}; pass one key, or {n} keys, one for each draw.")
    return key


def inner_products(a: Array, b: Array) -> Array:
    """Return the inner product of each pair of points of two batches."""
    return over_draws(lambda _, a, b: jnp.vdot(a, b), None, a, b)
