"""The evidence lower bound, as numbers and as something to differentiate."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt8

import pathgrad as pg

from .likelihood import log_likelihood
from .model import Autoencoder


class Terms(NamedTuple):
    r"""The two terms of the negative ELBO of each image, in nats, from one draw.

    Attributes:
        reconstruction: $-\ln p(x \mid z)$.
        kl: $\ln q(z \mid x) - \ln p(z)$: a single draw's estimate, which can be negative.
        solve: Cost and outcome of the ODE solves.
    """

    reconstruction: Float[Array, " batch"]
    kl: Float[Array, " batch"]
    solve: pg.SolveInfo | None


def terms(
    model: Autoencoder,
    images: UInt8[Array, "batch height width"],
    *,
    key: Key[Array, "*batch"],
    estimator: pg.AbstractEstimator,
    tally: pg.Tally | None = None,
) -> Terms:
    """Draw once from the posterior of each image. Derivatives are those of the estimator."""
    flow = model.posterior(images, tally)
    draw = estimator.draw(flow, key=key, n=images.shape[0])
    assert draw.log_q is not None
    likelihood = log_likelihood(model.decoder(draw.x), images)
    return Terms(-likelihood, draw.log_q - jax.vmap(model.prior.log_prob)(draw.x), draw.solve)


def negative_elbo(found: Terms, beta: Float[Array, ""] | float = 1.0) -> Float[Array, ""]:
    """Return the mean over the images, with the weight `beta` on the second term."""
    return jnp.mean(found.reconstruction + beta * found.kl)
