"""How likely an image is, given what the decoder says of its pixels."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8


def log_likelihood(
    logits: Float[Array, "batch height width *level"], images: UInt8[Array, "batch height width"]
) -> Float[Array, " batch"]:
    """Return the log-probability of each image in nats.

    With one logit a pixel, it is that of a one (Bernoulli). With 256, they are those of the levels, and the
    pixel is one of 256 unordered classes (categorical, as in the literature on Frey Faces).
    """
    if logits.ndim == 3:
        each = jnp.where(images == 1, -jax.nn.softplus(-logits), -jax.nn.softplus(logits))
    else:
        # Comparing with all levels is quicker than gathering, whose derivative scatters.
        level = jnp.arange(logits.shape[-1], dtype=images.dtype)
        chosen = jnp.sum(jnp.where(images[..., None] == level, logits, 0), axis=-1)
        each = chosen - jax.nn.logsumexp(logits, axis=-1)
    return jnp.sum(each, axis=(1, 2))


def mean_pixel(
    logits: Float[Array, "batch height width *level"],
) -> Float[Array, "batch height width"]:
    """Return the expected brightness of each pixel, from 0 to 1."""
    if logits.ndim == 3:
        return jax.nn.sigmoid(logits)
    levels = logits.shape[-1]
    return jax.nn.softmax(logits, axis=-1) @ (jnp.arange(levels) / (levels - 1)).astype(
        logits.dtype
    )
