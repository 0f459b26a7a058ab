"""Affine bijections: of every number by itself, and of one part of a point by what is read in the other."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from ..._ingredients.bases import floating
from ..._words.errors import ArgumentError, named
from ..._words.tree import Leaf, PerDraw
from .abstract import AbstractBijection


def _trainable(leaf: Any) -> Any:
    """Return an array also for a number, which would not be trained; leave what is marked as it is."""
    return leaf if isinstance(leaf, PerDraw) else floating(leaf)


class Affine(AbstractBijection):
    r"""Shift and stretch every number of a point by itself: $y = e^{s} x + b$.

    As the last transform it gives a flow the place and the width of its target at once, which a field would
    have to learn. With `PerDraw` leaves every draw has its own.

    Attributes:
        shift: $b$. It and the next may be of fewer axes than a point, like any two arrays that are added.
        log_scale: $s$.
    """

    shift: Leaf = eqx.field(converter=_trainable)
    log_scale: Leaf = eqx.field(converter=_trainable)

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Affine":
        """Begin by changing nothing."""
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def forward(self, x):
        return x * jnp.exp(self.log_scale) + self.shift, self._log_det(x)

    def inverse(self, y):
        return (y - self.shift) * jnp.exp(-self.log_scale), -self._log_det(y)

    def _log_det(self, x):
        return jnp.sum(jnp.broadcast_to(self.log_scale, x.shape))


class AffineCoupling(AbstractBijection):
    r"""Move one half of a point by an affine map that a network makes from the other half.

    $$y_k = x_k, \qquad y_m = e^{s(x_k)}\, x_m + b(x_k).$$

    The half that is kept is not changed, so a flow needs at least two couplings, `flip` in every other one.

    Attributes:
        network: From the half that is kept to shifts and log-scales of the other.
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
        """Build a coupling for points with `dim` numbers in all.

        Args:
            dim: Number of entries of a point, whatever its shape; at least two.
            width: Units in each hidden layer.
            depth: Number of hidden layers.
            key: Source of the initial weights.
            flip: Whether the first half is moved instead of the second.
            bound: Log-scales stay between minus and plus this. No draw is stretched by more than its
                exponential, which keeps a bad step of training from throwing draws out of the numbers.
            output_scale: Factor on the initial weights of the last layer. Small, so that training
                starts near the identity; not zero, so that every weight has a gradient.
        """
        if dim < 2:
            raise ArgumentError(
                f"{named('dim')} must be at least 2, got {dim}: a coupling moves one part of a point by what "
                "it reads in the other. For a single number use `Affine`, or a `CNF`."
            )
        for name, value in (("width", width), ("depth", depth), ("bound", bound)):
            if not value > 0:
                raise ArgumentError(f"{named(name)} must be positive, got {value}.")
        self.dim, self.flip, self.bound = dim, flip, float(bound)
        moved = self._first if flip else dim - self._first
        # Of a smooth activation: the score has its second derivative.
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

    # Slices and not masks: through them the compiler sees that both directions give the network the same
    # numbers, and evaluates it once.
    def _split(self, x):
        if x.size != self.dim:
            raise ValueError(f"it was made for {self.dim} numbers, not for {x.size}.")
        first, second = x.ravel()[: self._first], x.ravel()[self._first :]
        return (second, first) if self.flip else (first, second)

    def _join(self, kept, moved, shape):
        return jnp.concatenate((moved, kept) if self.flip else (kept, moved)).reshape(shape)
