"""Affine and gated convolutional layers, with PyTorch's initial weights."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from .convolution import convolve, convolve_transposed


def uniform(
    shape: tuple[int, ...], fan_in: int, *, key: Key[Array, ""]
) -> tuple[Float[Array, "..."], Float[Array, " out"]]:
    """Return weights, and biases for their last axis, uniform within one over the root of the fan-in."""
    bound = 1 / math.sqrt(fan_in)
    weight_key, bias_key = jr.split(key)
    weight = jr.uniform(weight_key, shape, minval=-bound, maxval=bound)
    return weight, jr.uniform(bias_key, shape[-1:], minval=-bound, maxval=bound)


class Affine(eqx.Module):
    """An affine map of each row."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    @classmethod
    def random(cls, size_in: int, size_out: int, *, key: Key[Array, ""]) -> "Affine":
        """Begin with PyTorch's weights for a linear layer."""
        return cls(*uniform((size_in, size_out), size_in, key=key))

    def __call__(self, x: Float[Array, "batch in"]) -> Float[Array, "batch out"]:
        """Map a batch."""
        return x @ self.weight + self.bias


class GatedConvolution(eqx.Module):
    """A convolution times the sigmoid of another one of the same shape; no other nonlinearity.

    Both are one convolution here, with the gate's channels after those that it opens.

    Attributes:
        weight: Its last axis has the channels, then the gates.
        bias: Likewise.
        stride: Along both axes.
        padding: Zeros on all sides.
        transposed: Whether it makes images larger instead of smaller.
        output_padding: Rows and columns more, where a transposed convolution leaves the size open.
    """

    weight: Float[Array, "kh kw in out"]
    bias: Float[Array, " out"]
    stride: int = eqx.field(static=True)
    padding: int = eqx.field(static=True)
    transposed: bool = eqx.field(static=True)
    output_padding: int = eqx.field(static=True)

    def __init__(
        self,
        size_in: int,
        size_out: int,
        kernel: int | tuple[int, int],
        *,
        key: Key[Array, ""],
        stride: int = 1,
        padding: int = 0,
        transposed: bool = False,
        output_padding: int = 0,
    ) -> None:
        """Begin with PyTorch's weights.

        For transposed convolutions its fan-in counts *output* channels, which is odd, and kept.
        """
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        fan_in = kh * kw * (size_out if transposed else size_in)
        self.weight, self.bias = uniform((kh, kw, size_in, 2 * size_out), fan_in, key=key)
        self.stride, self.padding = stride, padding
        self.transposed, self.output_padding = transposed, output_padding

    def __call__(self, x: Float[Array, "batch height width in"]) -> Float[Array, "batch h w out"]:
        """Map a batch of images."""
        if self.transposed:
            y = convolve_transposed(
                x,
                self.weight,
                stride=self.stride,
                padding=self.padding,
                output_padding=self.output_padding,
            )
        else:
            y = convolve(x, self.weight, stride=self.stride, padding=self.padding)
        opened, gate = jnp.split(y + self.bias, 2, axis=-1)
        return opened * jax.nn.sigmoid(gate)
