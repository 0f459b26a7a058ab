"""A neural network (MLP) whose layers an encoder adapts to each image."""

import itertools
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

import pathgrad as pg
from pathgrad._words.tree import Leaf

from .amortised import AbstractFieldFamily, per_draw
from .options import check_least

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"softplus": jax.nn.softplus, "tanh": jnp.tanh}


class Layer(eqx.Module):
    """The part of a layer that all images share: an affine map with time as one more input."""

    weight: Float[Array, "in out"]
    time: Float[Array, " out"]
    bias: Float[Array, " out"]


class Update(eqx.Module):
    """The part of a layer that belongs to an image: a low-rank matrix, as two factors, and a bias."""

    inner: Leaf  # rank, in
    outer: Leaf  # rank, out
    bias: Leaf  # out


class AmortisedField(pg.AbstractTractableField):
    r"""An MLP with a low-rank update of every layer, after Grathwohl et al. (2019).

    Each layer maps $h \mapsto W h + w\,t + b + V^\top U h + \hat b$, where $W, w, b$ are shared and
    $U, V, \hat b$ belong to the image. The update does not act on time. Its factors are arguments of the
    solver, never part of its state. The closed-form divergence is that of `pathgrad.MLPField`, with weights
    $W + V^\top U$; the matrix it needs is computed once per solve and image.
    """

    layers: tuple[Layer, ...]
    updates: tuple[Update, ...]
    activation: str = eqx.field(static=True)  # after all layers but the last

    @property
    def why_not_tractable(self) -> str | None:
        hidden = len(self.layers) - 1
        if hidden <= 2:
            return None
        return f"it has {hidden} hidden layers, and a closed form exists only for one or two."

    def _affine(self, i: int, t, h):
        layer, update = self.layers[i], self.updates[i]
        image_part = (update.inner @ h) @ update.outer + update.bias
        return h @ layer.weight + t * layer.time + layer.bias + image_part

    def __call__(self, t, x):
        h = x
        for i in range(len(self.layers) - 1):
            h = ACTIVATIONS[self.activation](self._affine(i, t, h))
        return self._affine(len(self.layers) - 1, t, h)

    def prepare(self):
        """Return the matrix (or vector) between the slopes of the hidden layers, as in `MLPField`."""
        weights = [
            layer.weight + update.inner.T @ update.outer
            for layer, update in zip(self.layers, self.updates, strict=True)
        ]
        if len(weights) == 2:
            return jnp.sum(weights[0].T * weights[1], axis=1)
        return weights[1] * (weights[2] @ weights[0]).T

    def velocity_and_divergence(self, t, x, prepared):
        h, slopes = x, []
        for i in range(len(self.layers) - 1):
            pre = self._affine(i, t, h)
            h, slope = jax.jvp(ACTIVATIONS[self.activation], (pre,), (jnp.ones_like(pre),))
            slopes.append(slope)
        velocity = self._affine(len(self.layers) - 1, t, h)
        if len(slopes) == 1:
            return velocity, jnp.vdot(prepared, slopes[0])
        return velocity, jnp.vdot(slopes[0] @ prepared, slopes[1])


def layer_sizes(dim: int, width: int, depth: int) -> list[tuple[int, int]]:
    """Return the input and output size of each layer of a field with `depth` hidden layers."""
    check_least(1, latent=dim, width=width, depth=depth)
    return list(itertools.pairwise([dim, *[width] * depth, dim]))


def shared_layers(sizes: list[tuple[int, int]], *, key: Key[Array, ""]) -> tuple[Layer, ...]:
    """Return layers with time as one more input, initialised as in PyTorch."""
    layers = []
    for layer_key, (size_in, size_out) in zip(jr.split(key, len(sizes)), sizes, strict=True):
        bound = 1 / (size_in + 1) ** 0.5
        values = jr.uniform(layer_key, (size_in + 2, size_out), minval=-bound, maxval=bound)
        layers.append(Layer(values[:-2], values[-2], values[-1]))
    return tuple(layers)


def update_size(sizes: Sequence[tuple[int, ...]], rank: int) -> int:
    """Return how many numbers the encoder supplies to one field for each image."""
    check_least(1, rank=rank)
    return sum(rank * (size_in + size_out) + size_out for size_in, size_out in sizes)


def per_draw_updates(
    numbers: Float[Array, "batch update"], sizes: Sequence[tuple[int, ...]], rank: int
) -> tuple[Update, ...]:
    """Split the encoder's numbers into updates: layer by layer, both factors row by row, then the bias."""
    updates, begin = [], 0
    for size_in, size_out in sizes:
        parts = []
        for shape in ((rank, size_in), (rank, size_out), (size_out,)):
            end = begin + math.prod(shape)
            parts.append(per_draw(numbers[:, begin:end].reshape(-1, *shape)))
            begin = end
        updates.append(Update(*parts))
    return tuple(updates)


class LowRank(AbstractFieldFamily):
    """Networks whose layers the encoder adapts to each image by updates of low rank: the published ones."""

    layers: tuple[Layer, ...]
    rank: int = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        latent: int,
        width: int = 512,
        depth: int = 2,
        rank: int = 20,
        activation: str = "softplus",
        *,
        key: Key[Array, ""],
    ) -> None:
        """Begin with PyTorch's weights for `depth` hidden layers of `width` units."""
        check_least(1, rank=rank)
        self.layers = shared_layers(layer_sizes(latent, width, depth), key=key)
        self.rank, self.activation = rank, activation

    @property
    def size(self) -> int:
        """Both factors and a bias, for every layer."""
        return update_size([layer.weight.shape for layer in self.layers], self.rank)

    @property
    def prepared_size(self) -> int:
        return max(layer.weight.size for layer in self.layers)

    def __call__(self, numbers):
        sizes = [layer.weight.shape for layer in self.layers]
        return AmortisedField(self.layers, per_draw_updates(numbers, sizes, self.rank), self.activation)
