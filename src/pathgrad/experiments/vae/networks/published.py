"""The convolutional networks of Sylvester flows and FFJORD: gated 5x5 kernels up to full resolution."""

import itertools
from collections.abc import Iterator

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..convolution import convolve
from ..layers import Affine, GatedConvolution, Kernel, uniform
from .abstract import AbstractDecoder, AbstractEncoder


def _trunk(
    sizes: list[int], kernels: list[Kernel], strides: list[int], keys: Iterator[Array], *, transposed: bool
) -> tuple[GatedConvolution, ...]:
    """Return a layer from each number of channels to the next."""
    return tuple(
        GatedConvolution(*pair, kernel, stride=stride, transposed=transposed, key=next(keys))
        for pair, kernel, stride in zip(itertools.pairwise(sizes), kernels, strides, strict=True)
    )


class PublishedEncoder(AbstractEncoder):
    """Six gated convolutions; the last one has the size of the whole image."""

    trunk: tuple[GatedConvolution, ...]
    features: int = eqx.field(static=True)

    def __init__(self, shape: tuple[int, int], *, key: Key[Array, ""], channels: int = 32) -> None:
        """Begin with PyTorch's weights, and `channels` in the first layers: the last has eight times as many.

        Both sides of the images are multiples of four.
        """
        keys = iter(jr.split(key, 6))
        c, last = channels, (shape[0] // 4, shape[1] // 4)
        sizes = [1, c, c, 2 * c, 2 * c, 2 * c, 8 * c]
        self.trunk = _trunk(sizes, [5, 5, 5, 5, 5, last], [1, 2, 1, 2, 1, 1], keys, transposed=False)
        self.features = 8 * c

    def __call__(self, images):
        h = images[..., None]
        for layer in self.trunk:
            h = layer(h)
        return h.reshape(h.shape[0], -1)


class PublishedDecoder(AbstractDecoder):
    """Six gated transposed convolutions, then the logits of the pixels."""

    trunk: tuple[GatedConvolution, ...]
    # A convolution without a gate; `None` for black and white images.
    head: tuple[Float[Array, "5 5 in out"], Float[Array, " out"]] | None
    last: Affine  # of the channels of each pixel

    def __init__(
        self, shape: tuple[int, int], latent: int, outputs: int, *, key: Key[Array, ""], channels: int = 32
    ) -> None:
        """Begin with PyTorch's weights; grey images, with several `outputs` a pixel, have one more layer."""
        keys = iter(jr.split(key, 8))
        c, first = channels, (shape[0] // 4, shape[1] // 4)
        sizes = [latent, 2 * c, 2 * c, c, c, c, c]
        self.trunk = _trunk(sizes, [first, 5, 5, 5, 5, 5], [1, 1, 2, 1, 2, 1], keys, transposed=True)
        grey = outputs > 1
        self.head = uniform((5, 5, c, outputs), 25 * c, key=next(keys)) if grey else None
        self.last = Affine.random(outputs if grey else c, outputs, key=next(keys))

    def __call__(self, z):
        h = z[:, None, None, :]
        for layer in self.trunk:
            h = layer(h)
        if self.head is None:
            return self.last(h)
        # Two linear maps in a row: multiplied first, they cost as much as one.
        weight, bias = self.head
        merged = weight @ self.last.weight
        return convolve(h, merged, padding=2) + self.last(bias)
