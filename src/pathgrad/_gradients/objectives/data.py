"""Training data in batches, in an order that a resumed run repeats."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from ..._words.arguments import function, shown
from ..._words.errors import ArgumentError, named
from ..._words.tree import over_draws

_AUGMENT = 2**32 - 1  # folded into the key of a change


class Data:
    """Entries to learn from, kept on the host; only batches of them are moved to a device.

    Every epoch goes through all of them in a new order, which depends only on the training key and
    the number of the epoch. The last batch of an epoch may be smaller than the others.

    Attributes:
        rows: A tree of arrays, the axis of the entries first.
        change: Called as `change(entry, key=...)` each time an entry is used, in compiled code: to turn grey
            pixels into random black or white ones, to mirror an image.
        augment: Called before that as `augment(entry, key=..., progress=...)`, with the fraction of the
            training that is done, from 0 to 1: for changes that end before the training does.
    """

    def __init__(
        self,
        rows: PyTree[np.ndarray],
        *,
        change: Callable[..., PyTree] | None = None,
        augment: Callable[..., PyTree] | None = None,
    ) -> None:
        """Take the entries; they are not copied."""
        for name, given in (("change", change), ("augment", augment)):
            if given is not None:
                function(name, given, f"{name}(entry, key=..., ...)")
        for leaf in jax.tree.leaves(rows):
            if not np.ndim(leaf):
                raise ArgumentError(f"{named('rows')} must be arrays with entries, got {shown(leaf)}.")
        self.rows = rows
        self.change = change
        self.augment = augment
        lengths = {len(leaf) for leaf in jax.tree.leaves(rows)}
        if len(lengths) != 1 or lengths == {0}:
            raise ArgumentError(
                f"{named('rows')} needs arrays with one common, non-empty first axis, that of the entries; "
                f"got lengths {sorted(lengths)}."
            )
        (self._length,) = lengths
        self._order: tuple[tuple[int, ...], np.ndarray] | None = None

    def __len__(self) -> int:
        return self._length

    def steps_per_epoch(self, n: int) -> int:
        """Return how many batches of `n` an epoch has, the last smaller one included."""
        return -(-len(self) // n)

    def batches(self, step: int, length: int, n: int, *, key: Key[Array, ""]) -> PyTree[np.ndarray]:
        """Return the batches of `length` steps of one epoch, all of the same size, step axis first."""
        epoch, first = divmod(step, self.steps_per_epoch(n))
        order = self._epoch(key, epoch)[first * n : (first + length) * n]
        width = len(order) // length
        assert width * length == len(order)
        return jax.tree.map(lambda a: a[order].reshape(length, width, *a.shape[1:]), self.rows)

    def _epoch(self, key: Key[Array, ""], epoch: int) -> np.ndarray:
        """Return the order in which an epoch goes through the entries. The last result is cached."""
        name = (epoch, *np.asarray(jr.key_data(key)).ravel().tolist())
        if self._order is None or self._order[0] != name:
            order = np.asarray(jr.permutation(jr.fold_in(key, epoch), len(self)))
            self._order = name, order
        return self._order[1]

    def changed(
        self, rows: PyTree[Array], *, key: Key[Array, ""], progress: Float[Array, ""] | float = 0.0
    ) -> PyTree[Array]:
        """Return entries after `augment` and `change`, as far as there are any, have been applied to each."""
        change, augment = self.change, self.augment
        if augment is not None:
            keys = jr.split(jr.fold_in(key, _AUGMENT), jax.tree.leaves(rows)[0].shape[0])
            done = jnp.asarray(progress, jnp.float32)
            rows = over_draws(lambda _, row, key: augment(row, key=key, progress=done), None, rows, keys)
        if change is not None:
            keys = jr.split(key, jax.tree.leaves(rows)[0].shape[0])
            rows = over_draws(lambda _, row, key: change(row, key=key), None, rows, keys)
        return rows

    def in_turn(self, n: int) -> Iterator[tuple[PyTree[Array], int]]:
        """Yield batches of `n` in the original order, and how many entries of each are new.

        The last is filled up with entries from the start: a batch of another size would be compiled again.
        """
        for begin in range(0, len(self), n):
            index = np.arange(begin, begin + n) % len(self)
            yield (jax.tree.map(lambda a, i=index: jnp.asarray(a[i]), self.rows), min(n, len(self) - begin))
