"""How good a trained autoencoder is: ELBO and likelihood of images, without noise in the divergence."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

import pathgrad as pg
from pathgrad._words.tree import one_draw

from .model import Autoencoder

Tell = Callable[[int], None]

# Bytes of the matrices that exact divergences need, and of logits: what is computed at a time.
_BYTES = 2**28
_BATCH = 100  # by which the authors average


class Bound(NamedTuple):
    """The two terms of the negative ELBO of each image, in nats, from one draw."""

    reconstruction: np.ndarray
    kl: np.ndarray
    evaluations: np.ndarray  # of the fields, in each batch

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

    def numbers(self, pixels: int) -> dict[str, Any]:
        """Return means over images; their errors say nothing about another training."""
        return {
            "images": len(self.each),
            "failed": int(np.sum(~np.isfinite(self.each))),
            "pixels": pixels,
            "negative_elbo": float(self.each.mean()),
            "negative_elbo_err": _error(self.each),
            "negative_elbo_by_batch": self.mean_of_batches(_BATCH),
            "reconstruction": float(self.reconstruction.mean()),
            "kl": float(self.kl.mean()),
            "bits_per_dim": float(self.each.mean()) / (pixels * math.log(2)),
            "evaluations": float(np.mean(self.evaluations)),
        }

    def shift(self, fine: "Bound") -> dict[str, float]:
        """Say how far the negative ELBOs move with twice the solver's accuracy."""
        moved = fine.each - self.each
        return {"solver_shift": float(np.mean(moved)), "solver_shift_rms": float(np.sqrt(np.mean(moved**2)))}


def _error(values: np.ndarray) -> float:
    return float(values.std() / math.sqrt(len(values)))


def negative_elbos(
    model: Autoencoder,
    images: np.ndarray,
    *,
    key: Key[Array, ""],
    batch: int = _BATCH,
    refine: int = 1,
    tell: Tell = lambda done: None,
) -> Bound:
    """Return the negative ELBO of each image, with exact divergences."""
    found, mesh = [], pg.devices.mesh_for(None)
    model = pg.devices.replicated(model, mesh)
    for i, (part, _) in enumerate(pg.Data(images).in_turn(batch)):
        given = pg.devices.replicated((part, jr.fold_in(key, i)), mesh)
        terms = _exact_terms(model, *given, refine, _chunk(model), mesh)
        found.append(jax.tree.map(np.asarray, terms))
        tell(min(len(images), (i + 1) * batch))
    n = len(images)
    reconstruction, kl = (np.concatenate([f[k] for f in found]).astype(np.float64)[:n] for k in (0, 1))
    return Bound(reconstruction, kl, np.stack([f[2] for f in found]))


def _terms(model: Autoencoder, flow: pg.Flow, images: Array, keys: Array, chunk: int) -> tuple[Array, ...]:
    """Return both terms of the negative ELBO of each image from a draw of its flow, and field evaluations."""
    draw = flow.draw("log_q", key=keys, n=keys.shape[0], chunk=chunk)
    assert draw.log_q is not None
    kl = draw.log_q - jax.vmap(model.log_prior)(draw.x)
    evaluations = jnp.zeros((), jnp.int32) if draw.solve is None else draw.solve.evaluations
    return -model.log_likelihood(draw.x, images), kl, evaluations


@eqx.filter_jit
def _exact_terms(model: Autoencoder, images: Array, key: Any, refine: int, chunk: int, mesh: Mesh | None):
    arrays, static = eqx.partition(model, eqx.is_array)

    def part(arrays, images, keys):
        model = eqx.combine(arrays, static)
        return _terms(model, model.posterior(images).exact().refined(refine), images, keys, chunk)

    return pg.devices.for_each_draw(part, mesh)(arrays, images, jr.split(key, images.shape[0]))


def _chunk(model: Autoencoder) -> int:
    """Return how many draws with updates of their own to solve at a time."""
    most = max((family.prepared_size for family in model.flow.families), default=1)
    return max(1, _BYTES // (4 * most))


class Likelihood(NamedTuple):
    """The likelihood of one image by importance sampling."""

    log_p: float  # log of the mean weight, in nats
    effective: float  # how many equally weighted draws it is worth


def likelihood_numbers(
    found: Sequence[Likelihood], bound: np.ndarray, *, samples: int, pixels: int
) -> dict[str, Any]:
    """Return means over the images whose likelihood is known, beside their `bound`; nothing without any."""
    if not found:
        names = ("err", "bits_per_dim", "images", "samples", "effective_samples", "images_negative_elbo")
        return {"nll": None} | dict.fromkeys(f"nll_{name}" for name in names)
    nll = -np.array([one.log_p for one in found])
    return {
        "nll": float(nll.mean()),
        "nll_err": _error(nll),
        "nll_bits_per_dim": float(nll.mean()) / (pixels * math.log(2)),
        "nll_images": len(found),
        "nll_samples": samples,
        "nll_effective_samples": float(np.median([one.effective for one in found])),
        # To compare it with.
        "nll_images_negative_elbo": float(bound.mean()),
    }


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
    # Of a decoder's widest layer at full resolution.
    numbers = math.prod(images.shape[1:]) * max(model.likelihood.outputs, 64)
    chunk = max(1, min(samples, _BYTES // (4 * numbers)))
    mesh = pg.devices.mesh_for(None)
    model = pg.devices.replicated(model, mesh)
    for i, image in enumerate(images):
        pixels = pg.devices.replicated(jnp.asarray(image), mesh)
        flow, own_key, found = _flow_of_one(model, pixels), jr.fold_in(key, i), []
        for j in range(math.ceil(samples / chunk)):
            part_key = pg.devices.replicated(jr.fold_in(own_key, j), mesh)
            part = _log_weights(model, flow, pixels, part_key, refine, chunk, mesh)
            found.append(np.asarray(part, np.float64))
            tell(i * samples + min(samples, (j + 1) * chunk))
        log_weight = np.concatenate(found)[:samples]
        weight = np.exp(log_weight - log_weight.max())
        effective = weight.sum() ** 2 / np.square(weight).sum()
        yield Likelihood(float(log_weight.max() + np.log(weight.mean())), float(effective))


@eqx.filter_jit
def _flow_of_one(model: Autoencoder, image: Array) -> pg.Flow:
    """Return the flow of an image as one of which any number can be drawn."""
    return one_draw(model.posterior(image[None]).exact())


@eqx.filter_jit
def _log_weights(
    model: Autoencoder, flow: pg.Flow, image: Array, key: Any, refine: int, n: int, mesh: Mesh | None
) -> Float[Array, " draw"]:
    arrays, static = eqx.partition((model, flow, image), eqx.is_array)

    def part(arrays, keys):
        model, flow, image = eqx.combine(arrays, static)
        images = jnp.broadcast_to(image, (keys.shape[0], *image.shape))
        reconstruction, kl, _ = _terms(model, flow.refined(refine), images, keys, keys.shape[0])
        return -(reconstruction + kl)

    return pg.devices.for_each_draw(part, mesh)(arrays, jr.split(key, n))


@eqx.filter_jit
def reconstructions(model: Autoencoder, images: Array, *, key: Any) -> Float[Array, "n h w"]:
    """Return the mean pixels that the decoder makes of one draw of each image's posterior."""
    z = model.posterior(images).draw("x", key=key, n=images.shape[0], chunk=images.shape[0]).x
    return model.likelihood.mean(model.decoder(z))


@eqx.filter_jit
def prior_draws(
    model: Autoencoder, *, key: Any, n: int
) -> tuple[Float[Array, "n latent"], Float[Array, "n h w"], Array]:
    """Draw from the prior: latent vectors, the mean pixels that they stand for, and images."""
    latent_key, pixel_key = jr.split(key)
    z = jax.vmap(lambda k: model.prior.draw(key=k)[0])(jr.split(latent_key, n))
    outputs = model.decoder(z)
    return z, model.likelihood.mean(outputs), model.likelihood.sample(outputs, key=pixel_key)
