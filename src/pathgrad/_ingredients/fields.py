"""Velocity fields: any Equinox module called as `field(t, x)` for one point."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from .._words.arguments import function, number, whole
from .._words.keys import one_key


class AbstractTractableField(eqx.Module):
    """A field whose divergence has a closed form, so that `ClosedForm` can be used.

    Any other Equinox module called as `field(t, x)` is a field too; it just has no such formula.
    """

    @property
    def why_not_tractable(self) -> str | None:
        """Why this instance has no closed form after all; `None` if it has.

        Not abstract, unlike the rest of our interfaces: hardly any field has a reason to override it.
        """
        return None

    @abstractmethod
    def __call__(self, t: Float[Array, ""], x: Float[Array, "*event"]) -> Float[Array, "*event"]:
        """Return the velocity of one point."""

    @abstractmethod
    def prepare(self) -> PyTree:
        """Return what `velocity_and_divergence` needs that depends on the parameters only."""

    @abstractmethod
    def velocity_and_divergence(
        self, t: Float[Array, ""], x: Float[Array, "*event"], prepared: PyTree
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        """Return velocity and exact divergence at one point."""


class _Layer(eqx.Module):
    """An affine map of `x`, with time as an additional input."""

    weight: Float[Array, "out in"]
    time: Float[Array, " out"]
    bias: Float[Array, " out"]

    def __call__(self, t, x):
        return self.weight @ x + self.time * t + self.bias


def _layer(key: Key[Array, ""], size_in: int, size_out: int, scale: float) -> _Layer:
    bound = scale / (size_in + 1) ** 0.5
    shapes = (size_out, size_in), (size_out,), (size_out,)
    keys = jr.split(key, 3)
    return _Layer(*(jr.uniform(k, s, minval=-bound, maxval=bound) for k, s in zip(keys, shapes, strict=True)))


class MLPField(AbstractTractableField):
    r"""A neural network (MLP) as velocity field for points of any shape; time enters every layer.

    With one hidden layer, $v = W_2\,\sigma(W_1 x)$, the divergence is
    $\sigma'(h) \cdot \mathrm{diag}(W_1 W_2)$. With two, $v = W_3\,\sigma(W_2\,\sigma(W_1 x))$, it is
    $\sigma'(h_2)^\top M\, \sigma'(h_1)$ with $M = W_2 \circ (W_1 W_3)^\top$, computed once per solve: one
    more matrix-vector product per point instead of one pass per dimension, and no noise.

    Attributes:
        layers: The affine maps, from input to output.
        activation: A smooth elementwise function.
    """

    layers: tuple[_Layer, ...]
    activation: Callable[[Array], Array]

    def __init__(
        self,
        dim: int,
        width: int,
        depth: int = 2,
        *,
        key: Key[Array, ""],
        activation: Callable[[Array], Array] = jnp.tanh,
        output_scale: float = 0.1,
    ) -> None:
        """Build a field for points with `dim` entries.

        Args:
            dim: Number of entries of a point, whatever its shape.
            width: Units in each hidden layer.
            depth: Number of hidden layers; the closed form exists for one and two.
            key: Source of the initial weights.
            activation: A smooth elementwise function. (The score needs its second derivative, so `relu`
                does not work.)
            output_scale: Factor on the initial weights of the last layer. Small, so that training
                starts near the identity; not zero, so that every weight has a gradient.
        """
        dim, width, depth = whole("dim", dim), whole("width", width), whole("depth", depth)
        key, output_scale = one_key(key), number("output_scale", output_scale)
        function("activation", activation, "activation(x)")
        sizes = [dim, *[width] * depth, dim]
        scales = [*[1.0] * depth, output_scale]
        keys = jr.split(key, depth + 1)
        self.layers = tuple(map(_layer, keys, sizes, sizes[1:], scales))
        self.activation = activation

    @property
    def why_not_tractable(self) -> str | None:
        hidden = len(self.layers) - 1
        if hidden <= 2:
            return None
        return f"it has {hidden} hidden layers, and only one or two are tractable."

    def __call__(self, t, x):
        h = x.ravel()
        for layer in self.layers[:-1]:
            h = self.activation(layer(t, h))
        return self.layers[-1](t, h).reshape(x.shape)

    def prepare(self):
        first, last = self.layers[0].weight, self.layers[-1].weight
        if len(self.layers) == 2:
            return jnp.sum(first * last.T, axis=1)
        return self.layers[1].weight * (first @ last).T

    def velocity_and_divergence(self, t, x, prepared):
        h = x.ravel()
        slopes = []
        for layer in self.layers[:-1]:
            h = layer(t, h)
            h, slope = jax.jvp(self.activation, (h,), (jnp.ones_like(h),))
            slopes.append(slope)
        velocity = self.layers[-1](t, h).reshape(x.shape)
        if len(slopes) == 1:
            return velocity, jnp.vdot(prepared, slopes[0])
        return velocity, jnp.vdot(slopes[1], prepared @ slopes[0])
