"""The convolutional encoder and decoder of Sylvester flows and FFJORD."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, UInt8

from .convolution import convolve
from .layers import Affine, GatedConvolution, uniform

# Of q0, for grey images; as in the authors' code.
_GREY_VARIANCE = (0.01, 7.0)


class Encoder(eqx.Module):
    """Six gated convolutions, then affine heads for q0 and for the update of each field.

    Attributes:
        trunk: The convolutions.
        mean: Head of the mean of q0.
        variance: Head whose softplus is the variance of q0.
        updates: Heads of the fields' updates.
        levels: Grey levels of a pixel; 2 for black and white.
    """

    trunk: tuple[GatedConvolution, ...]
    mean: Affine
    variance: Affine
    updates: tuple[Affine, ...]
    levels: int = eqx.field(static=True)

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
        """Begin with PyTorch's weights.

        Args:
            shape: Of the images; both sides multiples of four.
            key: Source of the weights.
            levels: Grey levels of a pixel.
            channels: Of the first layers; later ones have twice as many, the last eight times.
            latent: Size of the latent vector.
            update_sizes: How many numbers each field gets from an image.
        """
        keys = iter(jr.split(key, 8 + len(update_sizes)))
        c, last = channels, (shape[0] // 4, shape[1] // 4)
        self.trunk = (
            GatedConvolution(1, c, 5, padding=2, key=next(keys)),
            GatedConvolution(c, c, 5, padding=2, stride=2, key=next(keys)),
            GatedConvolution(c, 2 * c, 5, padding=2, key=next(keys)),
            GatedConvolution(2 * c, 2 * c, 5, padding=2, stride=2, key=next(keys)),
            GatedConvolution(2 * c, 2 * c, 5, padding=2, key=next(keys)),
            GatedConvolution(2 * c, 8 * c, last, key=next(keys)),
        )
        self.mean = Affine.random(8 * c, latent, key=next(keys))
        self.variance = Affine.random(8 * c, latent, key=next(keys))
        self.updates = tuple(Affine.random(8 * c, size, key=next(keys)) for size in update_sizes)
        self.levels = levels

    def __call__(
        self, images: UInt8[Array, "batch height width"]
    ) -> tuple[Array, Array, tuple[Array, ...]]:
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
    """Six gated transposed convolutions, then the logits of the pixels.

    Attributes:
        trunk: The convolutions.
        head: For grey images, a 5 x 5 convolution without a gate; `None` for black and white ones.
        last: An affine map of the channels of each pixel.
    """

    trunk: tuple[GatedConvolution, ...]
    head: tuple[Float[Array, "5 5 in out"], Float[Array, " out"]] | None
    last: Affine

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        key: Key[Array, ""],
        levels: int,
        channels: int,
        latent: int,
    ) -> None:
        """Begin with PyTorch's weights; arguments as for `Encoder`."""
        keys = iter(jr.split(key, 8))
        c, first = channels, (shape[0] // 4, shape[1] // 4)

        def up(size_in, size_out, stride=1):
            return GatedConvolution(
                size_in,
                size_out,
                5,
                key=next(keys),
                padding=2,
                stride=stride,
                transposed=True,
                output_padding=stride - 1,
            )

        self.trunk = (
            GatedConvolution(latent, 2 * c, first, transposed=True, key=next(keys)),
            up(2 * c, 2 * c),
            up(2 * c, c, 2),
            up(c, c),
            up(c, c, 2),
            up(c, c),
        )
        self.head = uniform((5, 5, c, levels), 25 * c, key=next(keys)) if levels > 2 else None
        self.last = (
            Affine.random(levels, levels, key=next(keys))
            if levels > 2
            else Affine.random(c, 1, key=next(keys))
        )

    def __call__(
        self, z: Float[Array, "batch latent"]
    ) -> Float[Array, "batch height width *level"]:
        """Return the logits of the pixels' values, for black and white ones that of a one."""
        h = z[:, None, None, :]
        for layer in self.trunk:
            h = layer(h)
        if self.head is None:
            return (h @ self.last.weight + self.last.bias)[..., 0]
        # Two linear maps in a row: multiplied first, they cost as much as one.
        weight, bias = self.head
        merged = weight @ self.last.weight
        return convolve(h, merged, padding=2) + (bias @ self.last.weight + self.last.bias)
