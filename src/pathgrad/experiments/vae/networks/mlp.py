"""Gated dense networks, which know nothing about neighbouring pixels: the quickest step on a CPU."""

import itertools
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..layers import Affine, GatedAffine
from .abstract import AbstractDecoder, AbstractEncoder


def _layers(sizes: list[int], *, key: Key[Array, ""]) -> tuple[GatedAffine, ...]:
    keys = jr.split(key, len(sizes) - 1)
    return tuple(GatedAffine(*pair, key=k) for pair, k in zip(itertools.pairwise(sizes), keys, strict=True))


class MLPEncoder(AbstractEncoder):
    """Gated dense layers from the pixels to features."""

    layers: tuple[GatedAffine, ...]
    features: int = eqx.field(static=True)

    def __init__(
        self, shape: tuple[int, int], *, key: Key[Array, ""], width: int = 400, depth: int = 2
    ) -> None:
        """Build `depth` layers of `width` units; the last one gives the features."""
        self.layers = _layers([math.prod(shape), *[width] * depth], key=key)
        self.features = width

    def __call__(self, images):
        h = images.reshape(images.shape[0], -1)
        for layer in self.layers:
            h = layer(h)
        return h


class MLPDecoder(AbstractDecoder):
    """Gated dense layers from the latent vector to pixels, and a bias for each pixel."""

    layers: tuple[GatedAffine, ...]
    last: Affine
    bias: Float[Array, "height width outputs"]

    def __init__(
        self,
        shape: tuple[int, int],
        latent: int,
        outputs: int,
        *,
        key: Key[Array, ""],
        width: int = 400,
        depth: int = 2,
    ) -> None:
        """Build `depth` layers of `width` units, and an affine map to the pixels."""
        hidden_key, last_key = jr.split(key)
        self.layers = _layers([latent, *[width] * depth], key=hidden_key)
        self.last = Affine.normal(width, math.prod(shape) * outputs, key=last_key)
        self.bias = jnp.zeros((*shape, outputs))

    def __call__(self, z):
        for layer in self.layers:
            z = layer(z)
        return self.last(z).reshape(-1, *self.bias.shape) + self.bias
