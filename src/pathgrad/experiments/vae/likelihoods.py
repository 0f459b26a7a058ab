"""Distributions of pixels, given what a decoder says of them."""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key, UInt8

from .layers import Affine

LEVELS = 256  # of grey
_LOG_WIDTH = 30.0  # limit on the log of the width of a logistic, either way
_AT_ONCE = 5  # images whose 256 logits a pixel are in memory together


class AbstractLikelihood(eqx.Module):
    """Pixels that are independent, given the outputs of a decoder.

    Attributes:
        outputs: How many numbers the decoder gives for a pixel.
    """

    outputs: eqx.AbstractVar[int]

    @abstractmethod
    def log_prob(
        self, outputs: Float[Array, "batch height width outputs"], images: UInt8[Array, "batch height width"]
    ) -> Float[Array, " batch"]:
        """Return the log-probability of each image in nats."""

    @abstractmethod
    def mean(self, outputs: Float[Array, "batch height width outputs"]) -> Float[Array, "batch height width"]:
        """Return the expected brightness of each pixel, from 0 to 1."""

    @abstractmethod
    def sample(
        self, outputs: Float[Array, "batch height width outputs"], *, key: Key[Array, ""]
    ) -> UInt8[Array, "batch height width"]:
        """Draw images."""


class Bernoulli(AbstractLikelihood):
    """Black and white pixels: the output is the logit of a one."""

    outputs: int = eqx.field(static=True, default=1)

    def log_prob(self, outputs, images):
        logits = outputs[..., 0]
        each = jnp.where(images == 1, -jax.nn.softplus(-logits), -jax.nn.softplus(logits))
        return jnp.sum(each, axis=(1, 2))

    def mean(self, outputs):
        return jax.nn.sigmoid(outputs[..., 0])

    def sample(self, outputs, *, key):
        return jr.bernoulli(key, jax.nn.sigmoid(outputs[..., 0])).astype(jnp.uint8)


class Softmax(AbstractLikelihood):
    """256 unordered classes (categorical, as in the literature on Frey Faces): the outputs are the logits."""

    outputs: int = eqx.field(static=True, default=LEVELS)

    def log_prob(self, outputs, images):
        # Comparing with all levels is quicker than gathering, whose derivative scatters.
        level = jnp.arange(outputs.shape[-1], dtype=images.dtype)
        chosen = jnp.sum(jnp.where(images[..., None] == level, outputs, 0), axis=-1)
        return jnp.sum(chosen - jax.nn.logsumexp(outputs, axis=-1), axis=(1, 2))

    def mean(self, outputs):
        levels = outputs.shape[-1]
        return jax.nn.softmax(outputs, axis=-1) @ (jnp.arange(levels) / (levels - 1)).astype(outputs.dtype)

    def sample(self, outputs, *, key):
        return _drawn(outputs, key)


class SoftmaxOfFeatures(AbstractLikelihood):
    """The same classes, whose logits are made of fewer outputs: never in memory for more than a few images.

    Attributes:
        head: From the outputs, after an activation, to the logits.
    """

    head: Affine
    outputs: int = eqx.field(static=True)

    def __init__(self, outputs: int, *, key: Key[Array, ""]) -> None:
        """Begin with normal weights."""
        self.head, self.outputs = Affine.normal(outputs, LEVELS, key=key), outputs

    def log_prob(self, outputs, images):
        return _categorical(self.head, jax.nn.silu(outputs), images)

    def mean(self, outputs):
        return _in_chunks(lambda part: Softmax().mean(self.head(jax.nn.silu(part))), outputs)

    def sample(self, outputs, *, key):
        keys = jr.split(key, outputs.shape[0])
        h = jax.nn.silu(outputs)
        return _in_chunks(lambda part, keys: jax.vmap(_drawn)(self.head(part), keys), h, keys)


class DiscretisedLogistic(AbstractLikelihood):
    """256 ordered levels, each with what a logistic density has in its interval, the ends with the tails.

    This is another model than `Softmax`, and its bits per pixel cannot be compared with published ones for
    Frey Faces. The outputs are the mean, from 0 to 1 after a sigmoid, and the log of the width in levels.
    """

    outputs: int = eqx.field(static=True, default=2)

    def _centre_and_width(self, outputs: Array) -> tuple[Array, Array]:
        """Return both in levels; a width is never so far off that its powers overflow."""
        log_width = jnp.clip(outputs[..., 1], -_LOG_WIDTH, _LOG_WIDTH)
        return (LEVELS - 1) * jax.nn.sigmoid(outputs[..., 0]), jnp.exp(log_width)

    def log_prob(self, outputs, images):
        level = images.astype(outputs.dtype)
        centre, width = self._centre_and_width(outputs)
        above, below = (level + 0.5 - centre) / width, (level - 0.5 - centre) / width
        # ln(F(above) - F(below)), written so that neither tail loses its digits, nor a wide distribution.
        inside = jnp.log(-jnp.expm1(-1 / width)) - jax.nn.softplus(-above) - jax.nn.softplus(below)
        low, high = -jax.nn.softplus(-above), -jax.nn.softplus(below)
        each = jnp.where(images == 0, low, jnp.where(images == LEVELS - 1, high, inside))
        return jnp.sum(each, axis=(1, 2))

    def mean(self, outputs):
        """Return the expected level: the sum over all edges of the probability to lie above."""
        edges = jnp.arange(LEVELS - 1, dtype=outputs.dtype) + 0.5

        def expected(part):
            centre, width = self._centre_and_width(part)
            return jnp.mean(jax.nn.sigmoid((centre[..., None] - edges) / width[..., None]), axis=-1)

        return _in_chunks(expected, outputs)

    def sample(self, outputs, *, key):
        noise = jr.logistic(key, outputs.shape[:-1], outputs.dtype)
        centre, width = self._centre_and_width(outputs)
        value = centre + width * noise
        return jnp.clip(jnp.round(value), 0, LEVELS - 1).astype(jnp.uint8)


def _in_chunks(fn, *batched):
    """Call a function on a few images at a time."""
    return lax.map(lambda one: fn(*(x[None] for x in one))[0], batched, batch_size=_AT_ONCE)


def _drawn(logits: Array, key: Key[Array, ""]) -> Array:
    """Draw one class for each pixel: a group of classes first, and then one of the group.

    `jax.random.categorical`, with noise for each of 256 classes, takes nine times as long.
    """
    size = math.isqrt(logits.shape[-1] - 1) + 1
    missing = size * size - logits.shape[-1]
    logits = jnp.pad(logits, [(0, 0)] * (logits.ndim - 1) + [(0, missing)], constant_values=-jnp.inf)
    p = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True)).reshape(*logits.shape[:-1], size, size)
    to_group, within = jr.uniform(key, (2, *logits.shape[:-1], 1), p.dtype)

    def first_beyond(p: Array, share: Array) -> Array:
        total = p @ jnp.triu(jnp.ones((size, size), p.dtype))
        return jnp.sum(total[..., :-1] <= share * total[..., -1:], axis=-1)

    group = first_beyond(jnp.sum(p, axis=-1), to_group)
    one = first_beyond(jnp.take_along_axis(p, group[..., None, None], axis=-2)[..., 0, :], within)
    return (size * group + one).astype(jnp.uint8)


@jax.custom_vjp
def _categorical(head: Affine, outputs: Array, images: Array) -> Array:
    return _in_chunks(lambda part, own: Softmax().log_prob(head(part), own), outputs, images)


def _categorical_forward(head: Affine, outputs: Array, images: Array):
    """Return the log-probabilities, and their gradients: the logits are needed for both, and then forgotten.

    Gradients of the head are kept for each image, since the weight of an image in the loss is not yet known:
    they are small beside the logits.
    """

    def one(part):
        features, image = part

        def value(head, features):
            return Softmax().log_prob(head(features[None]), image[None])[0]

        return jax.value_and_grad(value, argnums=(0, 1))(head, features)

    values, (of_head, of_outputs) = lax.map(one, (outputs, images), batch_size=_AT_ONCE)
    return values, (of_head, of_outputs)


def _categorical_backward(kept, weight: Array):
    of_head, of_outputs = kept
    summed = jax.tree.map(lambda g: jnp.tensordot(weight, g, axes=1), of_head)
    return summed, weight[:, None, None, None] * of_outputs, None


_categorical.defvjp(_categorical_forward, _categorical_backward)


def log_odds(images: np.ndarray) -> Float[Array, "height width 1"]:
    """Return the log-odds of the mean of black and white (or grey, from 0 to 1) images: a first bias."""
    share = (images.sum(axis=0, dtype=np.float64) + 0.5) / (len(images) + 1)
    return jnp.asarray(np.log(share / (1 - share))[..., None], jnp.result_type(float))
