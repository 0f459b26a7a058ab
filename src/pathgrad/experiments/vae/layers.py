"""Affine, convolutional and gated layers, initialised as in PyTorch or with normal weights."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from .convolution import convolve, convolve_transposed

Kernel = int | tuple[int, int]  # its side, or its shape


def uniform(
    shape: tuple[int, ...], fan_in: int, *, key: Key[Array, ""]
) -> tuple[Float[Array, "..."], Float[Array, " out"]]:
    """Return weights, and biases for their last axis, uniform within +-1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    weight_key, bias_key = jr.split(key)
    weight = jr.uniform(weight_key, shape, minval=-bound, maxval=bound)
    return weight, jr.uniform(bias_key, shape[-1:], minval=-bound, maxval=bound)


def normal(
    shape: tuple[int, ...], *, key: Key[Array, ""], scale: float = 1.0
) -> tuple[Float[Array, "..."], Float[Array, " out"]]:
    """Return normal weights that keep the size of their input, up to a factor, and biases of zero."""
    fan_in = math.prod(shape[:-1])
    return scale / math.sqrt(fan_in) * jr.normal(key, shape), jnp.zeros(shape[-1:])


class Affine(eqx.Module):
    """An affine map of the last axis."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    @classmethod
    def random(cls, size_in: int, size_out: int, *, key: Key[Array, ""]) -> "Affine":
        """Initialise as PyTorch's linear layer."""
        return cls(*uniform((size_in, size_out), size_in, key=key))

    @classmethod
    def normal(cls, size_in: int, size_out: int, *, key: Key[Array, ""], scale: float = 1.0) -> "Affine":
        """Begin with normal weights, and without a bias."""
        return cls(*normal((size_in, size_out), key=key, scale=scale))

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        return x @ self.weight + self.bias


class GatedAffine(eqx.Module):
    """An affine map times the sigmoid of another one; no other nonlinearity."""

    both: Affine  # the gate after what it opens

    def __init__(self, size_in: int, size_out: int, *, key: Key[Array, ""]) -> None:
        """Begin with normal weights."""
        self.both = Affine.normal(size_in, 2 * size_out, key=key)

    def __call__(self, x: Float[Array, "batch in"]) -> Float[Array, "batch out"]:
        opened, gate = jnp.split(self.both(x), 2, axis=-1)
        return opened * jax.nn.sigmoid(gate)


class Convolution(eqx.Module):
    """A 3x3 convolution with zeros around the image, so that its size stays."""

    weight: Float[Array, "3 3 in out"]
    bias: Float[Array, " out"]

    def __init__(self, size_in: int, size_out: int, *, key: Key[Array, ""], scale: float = 1.0) -> None:
        """Begin with normal weights."""
        self.weight, self.bias = normal((3, 3, size_in, size_out), key=key, scale=scale)

    def __call__(self, x: Float[Array, "batch height width in"]) -> Float[Array, "batch height width out"]:
        return convolve(x, self.weight, padding=1) + self.bias


class GatedConvolution(eqx.Module):
    """A convolution times the sigmoid of another one (the gate); no other nonlinearity.

    Both are computed as one convolution, with the gate's channels last. If the kernel is given by its side,
    images are zero-padded by half of it, so that stride 1 keeps their size. If it is given by its shape there
    is no padding: it turns an image into a single pixel, or the reverse. Transposed, it enlarges images by
    its stride instead of shrinking them.
    """

    weight: Float[Array, "kh kw in out"]
    bias: Float[Array, " out"]
    stride: int = eqx.field(static=True)
    padding: int = eqx.field(static=True)
    transposed: bool = eqx.field(static=True)

    def __init__(
        self,
        size_in: int,
        size_out: int,
        kernel: Kernel,
        *,
        key: Key[Array, ""],
        stride: int = 1,
        transposed: bool = False,
    ) -> None:
        """Initialise as PyTorch does.

        For transposed convolutions its fan-in counts *output* channels, which is odd but kept.
        """
        (kh, kw), self.padding = ((kernel, kernel), kernel // 2) if isinstance(kernel, int) else (kernel, 0)
        fan_in = kh * kw * (size_out if transposed else size_in)
        self.weight, self.bias = uniform((kh, kw, size_in, 2 * size_out), fan_in, key=key)
        self.stride, self.transposed = stride, transposed

    def __call__(self, x: Float[Array, "batch height width in"]) -> Float[Array, "batch h w out"]:
        how = {"stride": self.stride, "padding": self.padding}
        if self.transposed:
            y = convolve_transposed(x, self.weight, **how, output_padding=self.stride - 1)
        else:
            y = convolve(x, self.weight, **how)
        opened, gate = jnp.split(y + self.bias, 2, axis=-1)
        return opened * jax.nn.sigmoid(gate)
