"""Affine bijections: elementwise ones, and coupling layers."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from ..._ingredients.bases import floating
from ..._words.errors import ArgumentError, named
from ..._words.tree import Leaf, PerDraw
from .abstract import AbstractBijection


def _trainable(leaf: Any) -> Any:
    """Turn a number into an array, since only arrays are trained; leave `PerDraw` leaves alone."""
    return leaf if isinstance(leaf, PerDraw) else floating(leaf)


class Affine(AbstractBijection):
    r"""Shift and scale every coordinate of a point separately: $y = e^{s} x + b$.

    As the last transform it gives a flow the location and scale of its target directly, which a field would
    have to learn. With `PerDraw` leaves every draw has its own.

    Attributes:
        shift: $b$, which may have fewer axes than a point: the usual broadcasting applies.
        log_scale: $s$, likewise.
    """

    shift: Leaf = eqx.field(converter=_trainable)
    log_scale: Leaf = eqx.field(converter=_trainable)

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Affine":
        """Return the identity map."""
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def forward(self, x):
        return x * jnp.exp(self.log_scale) + self.shift, self._log_det(x)

    def inverse(self, y):
        return (y - self.shift) * jnp.exp(-self.log_scale), -self._log_det(y)

    def _log_det(self, x):
        return jnp.sum(jnp.broadcast_to(self.log_scale, x.shape))


class AffineCoupling(AbstractBijection):
    r"""Transform one half of a point by an affine map that a network computes from the other half.

    $$y_k = x_k, \qquad y_m = e^{s(x_k)}\, x_m + b(x_k).$$

    One half is kept as it is, so a flow needs at least two couplings, every other one with `flip=True`.

    Attributes:
        network: Maps the kept half to the shifts and log-scales of the other half.
    """

    network: eqx.nn.MLP
    dim: int = eqx.field(static=True)
    flip: bool = eqx.field(static=True)
    bound: float = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        width: int,
        depth: int = 2,
        *,
        key: Key[Array, ""],
        flip: bool = False,
        bound: float = 3.0,
        output_scale: float = 0.1,
    ) -> None:
        """Build a coupling for points with `dim` entries.

        Args:
            dim: Number of entries of a point, whatever its shape; at least two.
            width: Units in each hidden layer.
            depth: Number of hidden layers.
            key: Source of the initial weights.
            flip: Whether the first half is transformed instead of the second.
            bound: Largest absolute value of a log-scale. No coordinate is stretched by more than its
                exponential, so that a bad training step does not make draws overflow.
            output_scale: Factor on the initial weights of the last layer. Small, so that training
                starts near the identity; not zero, so that every weight has a gradient.
        """
        if dim < 2:
            raise ArgumentError(
                f"{named('dim')} must be at least 2, got {dim}: a coupling transforms one part of a point "
                "depending on the other. For a single number use `Affine`, or a `CNF`."
            )
        for name, value in (("width", width), ("depth", depth), ("bound", bound)):
            if not value > 0:
                raise ArgumentError(f"{named(name)} must be positive, got {value}.")
        self.dim, self.flip, self.bound = dim, flip, float(bound)
        moved = self._first if flip else dim - self._first
        # The activation is smooth because the score contains its second derivative.
        network = eqx.nn.MLP(dim - moved, 2 * moved, width, depth, jnp.tanh, key=key)
        self.network = eqx.tree_at(
            lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, replace_fn=lambda a: output_scale * a
        )

    @property
    def _first(self) -> int:
        return self.dim // 2

    def forward(self, x):
        kept, moved = self._split(x)
        shift, log_scale = self._read(kept)
        return self._join(kept, moved * jnp.exp(log_scale) + shift, x.shape), jnp.sum(log_scale)

    def inverse(self, y):
        kept, moved = self._split(y)
        shift, log_scale = self._read(kept)
        return self._join(kept, (moved - shift) * jnp.exp(-log_scale), y.shape), -jnp.sum(log_scale)

    def _read(self, kept):
        shift, raw = jnp.split(self.network(kept), 2)
        return shift, self.bound * jnp.tanh(raw / self.bound)

    # Slices, not masks: with them the compiler sees that both directions give the network the same
    # numbers, and evaluates it once.
    def _split(self, x):
        if x.size != self.dim:
            raise ValueError(f"it was built for points with {self.dim} entries, not {x.size}.")
        first, second = x.ravel()[: self._first], x.ravel()[self._first :]
        return (second, first) if self.flip else (first, second)

    def _join(self, kept, moved, shape):
        return jnp.concatenate((moved, kept) if self.flip else (kept, moved)).reshape(shape)
