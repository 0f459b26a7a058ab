"""How good a trained autoencoder is: ELBO and likelihood of images, without noise in the divergence."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

import pathgrad as pg

from .likelihood import log_likelihood, mean_pixel
from .model import Autoencoder

Tell = Callable[[int], None]

# Bytes of the matrices that exact divergences need, and of logits: what is computed at a time.
_BYTES = 2**28


class Bound(NamedTuple):
    """The negative ELBO of each image, in nats, from one draw.

    Attributes:
        reconstruction: Its first term.
        kl: Its second term.
        evaluations: Field evaluations of each batch.
    """

    reconstruction: np.ndarray
    kl: np.ndarray
    evaluations: np.ndarray

    @property
    def each(self) -> np.ndarray:
        """The negative ELBOs."""
        return self.reconstruction + self.kl

    def mean_of_batches(self, batch: int) -> float:
        """Return the mean over batches of their means, as the authors report it.

        It is not the mean over images where the last batch is smaller: its images then count for more.
        """
        parts = [self.each[i : i + batch].mean() for i in range(0, len(self.each), batch)]
        return float(np.mean(parts))


def negative_elbos(
    model: Autoencoder,
    images: np.ndarray,
    *,
    key: Key[Array, ""],
    batch: int = 100,
    refine: int = 1,
    tell: Tell = lambda done: None,
) -> Bound:
    """Return the negative ELBO of each image, with exact divergences."""
    found = []
    mesh = pg.devices.mesh_for(None)
    model = pg.devices.replicated(model, mesh)
    for i, (part, _) in enumerate(pg.Data(images).in_turn(batch)):
        given = pg.devices.replicated((part, jr.fold_in(key, i)), mesh)
        terms = _exact_terms(model, *given, refine, _chunk(model), mesh)
        found.append(jax.tree.map(np.asarray, terms))
        tell(min(len(images), (i + 1) * batch))
    reconstruction, kl = (
        np.concatenate([f[k] for f in found]).astype(np.float64)[: len(images)] for k in (0, 1)
    )
    return Bound(reconstruction, kl, np.stack([f[2] for f in found]))


@eqx.filter_jit
def _exact_terms(
    model: Autoencoder, images: Array, key: Any, refine: int, chunk: int, mesh: Mesh | None
):
    arrays, static = eqx.partition(model, eqx.is_array)

    def part(arrays, images, keys):
        model = eqx.combine(arrays, static)
        flow = model.posterior(images).exact().refined(refine)
        draw = flow.draw("log_q", key=keys, n=images.shape[0], chunk=chunk)
        assert draw.log_q is not None
        kl = draw.log_q - jax.vmap(model.prior.log_prob)(draw.x)
        return -log_likelihood(model.decoder(draw.x), images), kl, _evaluations(draw)

    keys = jr.split(key, images.shape[0])
    return pg.devices.for_each_draw(part, mesh)(arrays, images, keys)


def _evaluations(draw: pg.Draw) -> Array:
    return jnp.zeros((), jnp.int32) if draw.solve is None else draw.solve.evaluations


def _chunk(model: Autoencoder) -> int:
    """Return how many draws with updates of their own to solve at a time."""
    hidden = max((layer.weight.size for layers in model.fields for layer in layers), default=1)
    return max(1, _BYTES // (4 * hidden))


class Likelihood(NamedTuple):
    """The likelihood of one image by importance sampling.

    Attributes:
        log_p: Log of the mean weight, in nats.
        effective: Effective number of draws behind it.
    """

    log_p: float
    effective: float


def likelihoods(
    model: Autoencoder,
    images: np.ndarray,
    *,
    key: Key[Array, ""],
    samples: int,
    refine: int = 1,
    tell: Tell = lambda done: None,
) -> Iterator[Likelihood]:
    r"""Estimate $\ln p(x)$ of images one by one, in the memory of a chunk of draws.

    The log of a mean of weights is biased downwards, less so with more draws: a bound between the ELBO and
    the likelihood. (With a noisy divergence it would be biased upwards, and no bound.)
    """
    numbers = math.prod(images.shape[1:]) * (
        model.encoder.levels if model.encoder.levels > 2 else 64
    )
    chunk = max(1, min(samples, _BYTES // (4 * numbers)))
    mesh = pg.devices.mesh_for(None)
    model = pg.devices.replicated(model, mesh)
    for i, image in enumerate(images):
        pixels = pg.devices.replicated(jnp.asarray(image), mesh)
        flow = _flow_of_one(model, pixels)
        own_key = jr.fold_in(key, i)
        found: list[np.ndarray] = []
        for j in range(math.ceil(samples / chunk)):
            part_key = pg.devices.replicated(jr.fold_in(own_key, j), mesh)
            part = _log_weights(model, flow, pixels, part_key, refine, chunk, mesh)
            found.append(np.asarray(part, np.float64))
            tell(i * samples + min(samples, (j + 1) * chunk))
        yield _likelihood(np.concatenate(found)[:samples])


def _likelihood(log_weight: np.ndarray) -> Likelihood:
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    effective = weight.sum() ** 2 / np.square(weight).sum()
    return Likelihood(float(top + np.log(weight.mean())), float(effective))


@eqx.filter_jit
def _flow_of_one(model: Autoencoder, image: Array) -> pg.Flow:
    """Return the flow of an image as one of which any number can be drawn."""
    marked = model.posterior(image[None]).exact()
    return jax.tree.map(
        lambda n: n.value[0] if isinstance(n, pg.PerDraw) else n,
        marked,
        is_leaf=lambda n: isinstance(n, pg.PerDraw),
    )


@eqx.filter_jit
def _log_weights(
    model: Autoencoder,
    flow: pg.Flow,
    image: Array,
    key: Any,
    refine: int,
    n: int,
    mesh: Mesh | None = None,
) -> Float[Array, " draw"]:
    arrays, static = eqx.partition((model, flow, image), eqx.is_array)

    def part(arrays, keys):
        model, flow, image = eqx.combine(arrays, static)
        own = keys.shape[0]
        draw = flow.refined(refine).draw("log_q", key=keys, n=own, chunk=own)
        assert draw.log_q is not None
        images = jnp.broadcast_to(image, (own, *image.shape))
        log_p = log_likelihood(model.decoder(draw.x), images)
        return log_p + jax.vmap(model.prior.log_prob)(draw.x) - draw.log_q

    return pg.devices.for_each_draw(part, mesh)(arrays, jr.split(key, n))


@eqx.filter_jit
def reconstructions(model: Autoencoder, images: Array, *, key: Any) -> Float[Array, "n h w"]:
    """Return the mean pixels that the decoder makes of one draw of each image's posterior."""
    z = model.posterior(images).draw("x", key=key, n=images.shape[0], chunk=images.shape[0]).x
    return mean_pixel(model.decoder(z))


@eqx.filter_jit
def prior_draws(
    model: Autoencoder, *, key: Any, n: int
) -> tuple[Float[Array, "n latent"], Float[Array, "n h w"], Array]:
    """Draw from the prior: latent vectors, the mean pixels that they stand for, and images."""
    latent_key, pixel_key = jr.split(key)
    z = jax.vmap(lambda k: model.prior.draw(key=k)[0])(jr.split(latent_key, n))
    logits = model.decoder(z)
    if logits.ndim == 3:
        drawn = jr.bernoulli(pixel_key, jax.nn.sigmoid(logits))
    else:
        drawn = jr.categorical(pixel_key, logits, axis=-1)
    return z, mean_pixel(logits), drawn.astype(jnp.uint8)
