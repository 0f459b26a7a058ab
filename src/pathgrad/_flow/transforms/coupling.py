"""Coupling layers, and the sequence of them that suits most densities."""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

from ..._ingredients.activations import tanh_and_log_cosh
from ..._words.arguments import function, number, positive, shape_of_point, whole
from ..._words.errors import ArgumentError, named
from ..._words.keys import one_key
from .abstract import AbstractBijection
from .affine import Affine
from .permutation import Permutation

Features = Callable[[Array], Array]


class Conditioner(eqx.Module):
    """The network of a coupling: affine layers, with features of the units in between.

    Attributes:
        layers: The affine maps, from input to output.
        features: What a layer hands to the next.
    """

    layers: tuple[eqx.nn.Linear, ...]
    features: Features

    def __init__(
        self, size_in: int, size_out: int, width: int, depth: int, features: Features, *, key: Key[Array, ""]
    ) -> None:
        """Build a network with `depth` hidden layers of `width` units."""
        read = eqx.filter_eval_shape(features, jnp.zeros(width)).size
        sizes_in, sizes_out = [size_in, *[read] * depth], [*[width] * depth, size_out]
        keys = jr.split(key, depth + 1)
        linear = zip(sizes_in, sizes_out, keys, strict=True)
        self.layers = tuple(eqx.nn.Linear(i, o, key=k) for i, o, k in linear)
        self.features = features

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = self.features(layer(x))
        return self.layers[-1](x)


class AffineCoupling(AbstractBijection):
    r"""Transform one half of a point by an affine map that a network computes from the other half.

    $$y_k = x_k, \qquad y_m = e^{s(x_k)}\, x_m + b(x_k).$$

    One half is kept as it is, so a flow needs at least two couplings, every other one with `flip=True`.

    Attributes:
        network: Maps the kept half to the shifts and log-scales of the other half.
    """

    network: Conditioner
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
        features: Features = jnp.tanh,
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
                starts near the identity; not zero, so that every weight has a gradient. With zero it starts
                at the identity, and in the first step only the last layer learns.
            features: Turns the units of a hidden layer, a vector, into what the next layer reads. It must be
                smooth, since the score contains its second derivative; `pg.tanh_and_log_cosh` gives two
                features for each unit.
        """
        dim, width, depth = whole("dim", dim), whole("width", width), whole("depth", depth)
        bound, output_scale = positive("bound", bound), number("output_scale", output_scale)
        key = one_key(key)
        function("features", features, "features(units)")
        if dim < 2:
            raise ArgumentError(
                f"{named('dim')} must be at least 2, got {dim}: a coupling transforms one part of a point "
                "depending on the other. For a single number use `Affine`, or a `CNF`."
            )
        self.dim, self.flip, self.bound = dim, bool(flip), bound
        moved = self._first if flip else dim - self._first
        network = Conditioner(dim - moved, 2 * moved, width, depth, features, key=key)
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


def coupling_transforms(
    shape: int | tuple[int, ...], *, layers: int = 8, width: int = 32, key: Key[Array, ""]
) -> list[AbstractBijection]:
    """Return couplings in a row that begin as the identity and fit most densities without further choices.

    Every other coupling comes after a random permutation, and the one after it transforms the other half.
    The networks have one hidden layer, and the features `tanh_and_log_cosh`. The last transform is an
    `Affine`, which gives each coordinate a location and a scale. They suit targets of roughly location zero
    and scale one: `pg.Flow(pg.StandardNormal((dim,)), pg.coupling_transforms(dim, key=key))`.

    The layers are not rolled up into a loop. Compiling one took as long as compiling eight, on a CPU, and its
    steps took a third longer.

    Args:
        shape: Shape of one point, or its number of entries: at least two of them.
        layers: Number of couplings.
        width: Units in the hidden layer of each.
        key: Source of permutations and initial weights.
    """
    shape, layers, key = shape_of_point("shape", shape), whole("layers", layers), one_key(key)
    dim = math.prod(shape)
    if dim < 2:
        raise ArgumentError(
            f"The entries of a point, by its {named('shape')}, must be at least 2, got {dim}: a coupling "
            "transforms one part depending on the other. For a single number use `Affine`, or a `CNF`."
        )
    transforms: list[AbstractBijection] = []
    for i, layer_key in enumerate(jr.split(key, layers)):
        order_key, network_key = jr.split(layer_key)
        flip = i % 2 == 1
        if not flip:
            transforms.append(Permutation.random(dim, key=order_key))
        options = {"output_scale": 0.0, "features": tanh_and_log_cosh}
        transforms.append(AffineCoupling(dim, width, 1, key=network_key, flip=flip, **options))
    return [*transforms, Affine.identity(shape)]
