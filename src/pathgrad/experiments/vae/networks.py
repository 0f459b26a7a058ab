"""The convolutional encoder and decoder of Sylvester flows and FFJORD."""

import itertools
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, UInt8

from .convolution import convolve
from .layers import Affine, GatedConvolution, Kernel, uniform

# Bounds on the variance of q0 for grey images, as in the authors' code.
_GREY_VARIANCE = (0.01, 7.0)


def _trunk(
    sizes: list[int], kernels: list[Kernel], strides: list[int], keys: Iterator[Array], *, transposed: bool
) -> tuple[GatedConvolution, ...]:
    """Return layers that map each number of channels in `sizes` to the next."""
    return tuple(
        GatedConvolution(*pair, kernel, stride=stride, transposed=transposed, key=next(keys))
        for pair, kernel, stride in zip(itertools.pairwise(sizes), kernels, strides, strict=True)
    )


class Encoder(eqx.Module):
    """Six gated convolutions, then affine heads for q0 and for the update of each field."""

    trunk: tuple[GatedConvolution, ...]
    mean: Affine  # gives the mean of q0
    variance: Affine  # its softplus is the variance of q0
    updates: tuple[Affine, ...]
    levels: int = eqx.field(static=True)  # number of grey levels; 2 for black-and-white images

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        key: Key[Array, ""],
        levels: int,
        channels: int,
        latent: int,
        update_sizes: list[int],
    ) -> None:
        """Initialise as PyTorch does, with `channels` in the first layers and eight times that in the last.

        Both sides of the images are multiples of four; `update_sizes` counts the numbers for each field.
        """

        def head(size):
            return Affine.random(8 * c, size, key=next(keys))

        keys = iter(jr.split(key, 8 + len(update_sizes)))
        c, last = channels, (shape[0] // 4, shape[1] // 4)
        sizes = [1, c, c, 2 * c, 2 * c, 2 * c, 8 * c]
        self.trunk = _trunk(sizes, [5, 5, 5, 5, 5, last], [1, 2, 1, 2, 1, 1], keys, transposed=False)
        self.mean, self.variance = head(latent), head(latent)
        self.updates = tuple(head(size) for size in update_sizes)
        self.levels = levels

    def __call__(self, images: UInt8[Array, "batch height width"]) -> tuple[Array, Array, tuple[Array, ...]]:
        """Return mean and log standard deviation of q0, and the numbers for the fields."""
        h = images[..., None].astype(self.mean.weight.dtype) / (self.levels - 1)
        for layer in self.trunk:
            h = layer(h)
        h = h.reshape(h.shape[0], -1)
        return self.mean(h), self._log_scale(h), tuple(head(h) for head in self.updates)

    def _log_scale(self, h):
        a = self.variance(h)
        if self.levels > 2:
            return 0.5 * jnp.log(jnp.clip(jax.nn.softplus(a), *_GREY_VARIANCE))
        # ln softplus(a) tends to a, where softplus itself would underflow.
        far = a < -15
        return 0.5 * jnp.where(far, a, jnp.log(jax.nn.softplus(jnp.where(far, 0.0, a))))


class Decoder(eqx.Module):
    """Six gated transposed convolutions, then the logits of the pixels."""

    trunk: tuple[GatedConvolution, ...]
    # A convolution without a gate; `None` for black-and-white images.
    head: tuple[Float[Array, "5 5 in out"], Float[Array, " out"]] | None
    last: Affine  # acts on the channels of each pixel

    def __init__(
        self, shape: tuple[int, int], *, key: Key[Array, ""], levels: int, channels: int, latent: int
    ) -> None:
        """Initialise as PyTorch does; arguments as for `Encoder`."""
        keys = iter(jr.split(key, 8))
        c, first = channels, (shape[0] // 4, shape[1] // 4)
        sizes = [latent, 2 * c, 2 * c, c, c, c, c]
        self.trunk = _trunk(sizes, [first, 5, 5, 5, 5, 5], [1, 1, 2, 1, 2, 1], keys, transposed=True)
        grey = levels > 2
        self.head = uniform((5, 5, c, levels), 25 * c, key=next(keys)) if grey else None
        self.last = Affine.random(levels if grey else c, levels if grey else 1, key=next(keys))

    def __call__(self, z: Float[Array, "batch latent"]) -> Float[Array, "batch height width *level"]:
        """Return the logits of the pixel values; for black-and-white images, one logit per pixel."""
        h = z[:, None, None, :]
        for layer in self.trunk:
            h = layer(h)
        if self.head is None:
            return (h @ self.last.weight + self.last.bias)[..., 0]
        # Two linear maps in a row: multiplied first, they cost no more than one.
        weight, bias = self.head
        merged = weight @ self.last.weight
        return convolve(h, merged, padding=2) + (bias @ self.last.weight + self.last.bias)


def log_likelihood(
    logits: Float[Array, "batch height width *level"], images: UInt8[Array, "batch height width"]
) -> Float[Array, " batch"]:
    """Return the log-probability of each image in nats.

    One logit per pixel is that of the value one (Bernoulli). With 256 logits, a pixel is one of 256 unordered
    classes (categorical, as in the literature on Frey Faces).
    """
    if logits.ndim == 3:
        per_pixel = jnp.where(images == 1, -jax.nn.softplus(-logits), -jax.nn.softplus(logits))
    else:
        # Comparing with all levels is faster than a gather, whose derivative is a scatter.
        level = jnp.arange(logits.shape[-1], dtype=images.dtype)
        chosen = jnp.sum(jnp.where(images[..., None] == level, logits, 0), axis=-1)
        per_pixel = chosen - jax.nn.logsumexp(logits, axis=-1)
    return jnp.sum(per_pixel, axis=(1, 2))


def mean_pixel(logits: Float[Array, "batch height width *level"]) -> Float[Array, "batch height width"]:
    """Return the expected brightness of each pixel, from 0 to 1."""
    if logits.ndim == 3:
        return jax.nn.sigmoid(logits)
    levels = logits.shape[-1]
    return jax.nn.softmax(logits, axis=-1) @ (jnp.arange(levels) / (levels - 1)).astype(logits.dtype)
