"""A fixed reordering of coordinates."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Key

from ..._words.arguments import whole
from ..._words.arrays import doubles
from ..._words.errors import ArgumentError, named
from ..._words.keys import one_key
from .abstract import AbstractBijection


class Permutation(AbstractBijection):
    """Reorder the entries of a point: entry `i` of the result is entry `order[i]` of the argument.

    It has no parameters. Between couplings it mixes which entries are in the same half.

    Attributes:
        order: Where each entry of the result comes from.
        back: Where each entry of the argument went to: the inverse permutation.
    """

    order: Int[Array, " dim"]
    back: Int[Array, " dim"]

    def __init__(self, order: Any) -> None:
        """Make the map of a permutation of `0, 1, ..., dim - 1`, for points with that many entries."""
        order = doubles("order", order)
        if not np.array_equal(np.sort(order, axis=None), np.arange(order.size)) or order.ndim != 1:
            raise ArgumentError(
                f"{named('order')} must contain every number from 0 to {max(0, order.size - 1)} once, "
                f"got {order}."
            )
        # Both as arrays: other permutations need no other program.
        self.order = jnp.asarray(order, jnp.int32)
        self.back = jnp.asarray(np.argsort(order), jnp.int32)

    @classmethod
    def random(cls, dim: int, *, key: Key[Array, ""]) -> "Permutation":
        """Return a random permutation of `dim` entries."""
        return cls(jr.permutation(one_key(key), whole("dim", dim)))

    def forward(self, x):
        return self._reordered(x, self.order), jnp.zeros((), x.dtype)

    def inverse(self, y):
        return self._reordered(y, self.back), jnp.zeros((), y.dtype)

    def _reordered(self, x: jax.Array, order: jax.Array) -> jax.Array:
        if x.size != order.size:
            raise ValueError(f"it was built for points with {order.size} entries, not {x.size}.")
        taken = x.ravel().at[order].get(mode="promise_in_bounds", unique_indices=True)
        return taken.reshape(x.shape)
