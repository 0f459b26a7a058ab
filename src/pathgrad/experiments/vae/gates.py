"""A field whose hidden units an encoder opens, closes and shifts: a vector per image instead of matrices."""

import math

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

import pathgrad as pg
from pathgrad._words.tree import Leaf

from .amortised import AbstractFieldFamily, per_draw
from .options import check_least


class GatedField(pg.AbstractTractableField):
    r"""One hidden layer, $v = W_2\,(g \circ \tanh(W_1 z + t\,a + b)) + t\,c + d$.

    $W_1, W_2, a, c$ are shared; gates $g$ and biases $b, d$ belong to the image. The divergence is
    $\sum_k g_k\,(1 - \tanh^2 h_k)\,(W_1 W_2)_{kk}$: a vector for each image, made once per solve.
    """

    inner: Float[Array, "width latent"]
    inner_time: Float[Array, " width"]
    outer: Float[Array, "latent width"]
    outer_time: Float[Array, " latent"]
    gate: Leaf
    bias: Leaf
    shift: Leaf

    def __call__(self, t, x):
        hidden = jnp.tanh(self.inner @ x + t * self.inner_time + self.bias)
        return self.outer @ (self.gate * hidden) + t * self.outer_time + self.shift

    def prepare(self):
        return self.gate * jnp.sum(self.inner * self.outer.T, axis=1)

    def velocity_and_divergence(self, t, x, prepared):
        hidden = jnp.tanh(self.inner @ x + t * self.inner_time + self.bias)
        velocity = self.outer @ (self.gate * hidden) + t * self.outer_time + self.shift
        return velocity, jnp.vdot(prepared, 1 - hidden**2)


class Gates(AbstractFieldFamily):
    """Fields with one hidden layer; the encoder gives each image gates and biases of the hidden units."""

    inner: Float[Array, "width latent"]
    inner_time: Float[Array, " width"]
    outer: Float[Array, "latent width"]
    outer_time: Float[Array, " latent"]

    def __init__(self, latent: int, width: int, *, key: Key[Array, ""], output_scale: float = 0.3) -> None:
        """Build fields of `width` hidden units; they begin as small changes, by `output_scale`."""
        check_least(1, latent=latent, width=width)
        keys = jr.split(key, 3)
        self.inner = jr.normal(keys[0], (width, latent)) / math.sqrt(latent)
        self.inner_time = jr.normal(keys[1], (width,))
        self.outer = output_scale * jr.normal(keys[2], (latent, width)) / math.sqrt(width)
        self.outer_time = jnp.zeros(latent)

    @property
    def size(self) -> int:
        """Gates and biases of the hidden units, and a bias of the velocity."""
        latent, width = self.outer.shape
        return 2 * width + latent

    @property
    def prepared_size(self) -> int:
        return self.outer.shape[1]

    def __call__(self, numbers):
        width = self.outer.shape[1]
        gate, bias, shift = jnp.split(numbers, [width, 2 * width], axis=1)
        own = per_draw(1 + gate), per_draw(bias), per_draw(shift)
        return GatedField(self.inner, self.inner_time, self.outer, self.outer_time, *own)
