"""Small convolutional networks for a CPU: nothing but 3x3 kernels at a half and a quarter of the resolution.

At full resolution a convolution costs most and learns least. So images are cut into patches whose pixels
become channels, and decoders turn channels back into pixels ("pixel shuffle").
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..layers import Affine, Convolution, GatedAffine
from .abstract import AbstractDecoder, AbstractEncoder

_RESIDUAL = 0.7  # factor on the initial weights of residual convolutions


class Residual(eqx.Module):
    """A convolution of the activated input, added to the input."""

    convolution: Convolution

    def __init__(self, channels: int, *, key: Key[Array, ""]) -> None:
        """Begin with normal weights."""
        self.convolution = Convolution(channels, channels, key=key, scale=_RESIDUAL)

    def __call__(self, h: Float[Array, "batch h w channels"]) -> Float[Array, "batch h w channels"]:
        return h + self.convolution(jax.nn.silu(h))


def to_patches(x: Float[Array, "batch height width channels"], side: int) -> Float[Array, "batch h w patch"]:
    """Turn the pixels of each square patch into channels."""
    b, h, w, c = x.shape
    x = x.reshape(b, h // side, side, w // side, side, c).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(b, h // side, w // side, side * side * c)


def from_patches(
    x: Float[Array, "batch h w patch"], side: int
) -> Float[Array, "batch height width channels"]:
    """Turn channels into the pixels of square patches: the inverse of `to_patches`."""
    b, h, w, c = x.shape
    x = x.reshape(b, h, w, side, side, c // side**2).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(b, h * side, w * side, c // side**2)


class CompactEncoder(AbstractEncoder):
    """Patches, a convolution at half the resolution, residual ones at a quarter, and a gated dense layer."""

    fine: Convolution | None
    mix: Affine
    blocks: tuple[Residual, ...]
    last: GatedAffine
    features: int = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        key: Key[Array, ""],
        fine: int = 16,
        coarse: int = 32,
        blocks: int = 1,
        features: int = 256,
    ) -> None:
        """Build an encoder of images whose sides are multiples of four.

        Args:
            shape: Height and width of the images.
            key: Source of the initial weights.
            fine: Channels at half the resolution. With 0, patches of 4x4 pixels go straight to a quarter.
            coarse: Channels at a quarter of the resolution.
            blocks: Residual convolutions there.
            features: Numbers that describe an image.
        """
        keys = iter(jr.split(key, blocks + 3))
        self.fine = Convolution(4, fine, key=next(keys)) if fine else None
        self.mix = Affine.normal(4 * fine or 16, coarse, key=next(keys))
        self.blocks = tuple(Residual(coarse, key=next(keys)) for _ in range(blocks))
        self.last = GatedAffine(math.prod(shape) // 16 * coarse, features, key=next(keys))
        self.features = features

    def __call__(self, images):
        x = images[..., None]
        h = to_patches(x, 4)
        if self.fine is not None:
            h = to_patches(jax.nn.silu(self.fine(to_patches(x, 2))), 2)
        h = self.mix(h)
        for block in self.blocks:
            h = block(h)
        return self.last(jax.nn.silu(h).reshape(h.shape[0], -1))


class CompactDecoder(AbstractDecoder):
    """The encoder turned around, and a bias for each pixel."""

    hidden: GatedAffine | None
    first: Affine
    blocks: tuple[Residual, ...]
    mix: Affine | None
    fine_blocks: tuple[Residual, ...]
    last: Convolution
    bias: Float[Array, "height width outputs"]
    coarse_shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int],
        latent: int,
        outputs: int,
        *,
        key: Key[Array, ""],
        hidden: int = 256,
        coarse: int = 32,
        blocks: int = 1,
        fine: int = 32,
        fine_blocks: int = 2,
    ) -> None:
        """Build a decoder of images whose sides are multiples of four.

        Args:
            shape: Height and width of the images.
            latent: Size of the latent vector.
            outputs: Numbers for each pixel.
            key: Source of the initial weights.
            hidden: Units of a gated dense layer that comes first; 0 for none.
            coarse: Channels at a quarter of the resolution.
            blocks: Residual convolutions there.
            fine: Channels at half the resolution; with 0, a quarter goes straight to pixels.
            fine_blocks: Residual convolutions at half the resolution.
        """
        keys = iter(jr.split(key, blocks + fine_blocks + 4))
        self.coarse_shape = (shape[0] // 4, shape[1] // 4, coarse)
        self.hidden = GatedAffine(latent, hidden, key=next(keys)) if hidden else None
        self.first = Affine.normal(hidden or latent, math.prod(self.coarse_shape), key=next(keys))
        self.blocks = tuple(Residual(coarse, key=next(keys)) for _ in range(blocks))
        self.mix = Affine.normal(coarse, 4 * fine, key=next(keys)) if fine else None
        self.fine_blocks = tuple(Residual(fine, key=next(keys)) for _ in range(fine_blocks if fine else 0))
        pixels = 4 if fine else 16  # of a patch
        self.last = Convolution(fine or coarse, pixels * outputs, key=next(keys))
        self.bias = jnp.zeros((*shape, outputs))

    def __call__(self, z):
        h = self.first(z if self.hidden is None else self.hidden(z)).reshape(-1, *self.coarse_shape)
        for block in self.blocks:
            h = block(h)
        if self.mix is None:
            return from_patches(self.last(jax.nn.silu(h)), 4) + self.bias
        h = from_patches(self.mix(jax.nn.silu(h)), 2)
        for block in self.fine_blocks:
            h = block(h)
        return from_patches(self.last(jax.nn.silu(h)), 2) + self.bias
