"""Evaluate a trained autoencoder: ELBO and likelihood of images, with exact divergences."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key

import pathgrad as pg
from pathgrad._words.tree import one_draw

from .model import Autoencoder

Tell = Callable[[int], None]

# Limit, in bytes, for the matrices of exact divergences and for the logits that are in memory at a time.
_BYTES = 2**28
_BATCH = 100  # the authors average over batches of this size


class Bound(NamedTuple):
    """The two terms of each image's negative ELBO, in nats, from one draw."""

    reconstruction: np.ndarray
    kl: np.ndarray
    evaluations: np.ndarray  # field evaluations, for each batch

    @property
    def each(self) -> np.ndarray:
        """The negative ELBO of each image."""
        return self.reconstruction + self.kl

    def mean_of_batches(self, batch: int) -> float:
        """Return the mean over batches of their means, as the authors report it.

        If the last batch is smaller this is not the mean over images: those of the last batch count for more.
        """
        parts = [self.each[i : i + batch].mean() for i in range(0, len(self.each), batch)]
        return float(np.mean(parts))

    def numbers(self, pixels: int) -> dict[str, Any]:
        """Return means over images; their errors do not include the variation between trainings."""
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
        """Return how far the negative ELBOs move at twice the solver accuracy."""
        shift = fine.each - self.each
        return {"solver_shift": float(np.mean(shift)), "solver_shift_rms": float(np.sqrt(np.mean(shift**2)))}


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
    batches, mesh = [], pg.devices.mesh_for(None)
    model = pg.devices.replicated(model, mesh)
    for i, (part, _) in enumerate(pg.Data(images).in_turn(batch)):
        inputs = pg.devices.replicated((part, jr.fold_in(key, i)), mesh)
        terms = _exact_terms(model, *inputs, refine, _chunk(model), mesh)
        batches.append(jax.tree.map(np.asarray, terms))
        tell(min(len(images), (i + 1) * batch))
    n = len(images)
    reconstruction, kl = (np.concatenate([b[k] for b in batches]).astype(np.float64)[:n] for k in (0, 1))
    return Bound(reconstruction, kl, np.stack([b[2] for b in batches]))


def _terms(model: Autoencoder, flow: pg.Flow, images: Array, keys: Array, chunk: int) -> tuple[Array, ...]:
    """Return both terms of each negative ELBO, from one draw, and the number of field evaluations."""
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
    """Return how many draws, each with its own numbers for the divergence, to solve at a time."""
    most = max((family.prepared_size for family in model.flow.families), default=1)
    return max(1, _BYTES // (4 * most))


def divergence_error(model: Autoencoder, images: np.ndarray, *, key: Key[Array, ""]) -> float | None:
    """Return the largest relative error in closed-form divergences of fields; `None` if there are none."""
    check = pg.check_divergence(eqx.filter_jit(model.posterior)(jnp.asarray(images)), key=key)
    return check.worst if check.fields else None


class Likelihood(NamedTuple):
    """The likelihood of one image by importance sampling."""

    log_p: float  # log of the mean weight, in nats
    effective: float  # how many equally weighted draws it is worth


def likelihood_numbers(
    estimates: Sequence[Likelihood], bound: np.ndarray, *, samples: int, pixels: int
) -> dict[str, Any]:
    """Return means over the images with a likelihood, beside their `bound`; `None` if there are none."""
    if not estimates:
        names = ("err", "bits_per_dim", "images", "samples", "effective_samples", "images_negative_elbo")
        return {"nll": None} | dict.fromkeys(f"nll_{name}" for name in names)
    nll = -np.array([one.log_p for one in estimates])
    return {
        "nll": float(nll.mean()),
        "nll_err": _error(nll),
        "nll_bits_per_dim": float(nll.mean()) / (pixels * math.log(2)),
        "nll_images": len(estimates),
        "nll_samples": samples,
        "nll_effective_samples": float(np.median([one.effective for one in estimates])),
        # For comparison with the NLL.
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
    r"""Estimate $\ln p(x)$ of images one by one, with one chunk of draws in memory.

    The log of a mean of weights is biased downwards, less so with more draws: it is a bound between the ELBO
    and the likelihood. (With a noisy divergence it would be biased upwards, and be no bound.)
    """
    # Of a decoder's widest layer at full resolution.
    numbers = math.prod(images.shape[1:]) * max(model.likelihood.outputs, 64)
    chunk = max(1, min(samples, _BYTES // (4 * numbers)))
    mesh = pg.devices.mesh_for(None)
    model = pg.devices.replicated(model, mesh)
    for i, image in enumerate(images):
        pixels = pg.devices.replicated(jnp.asarray(image), mesh)
        flow, image_key, parts = _flow_of_one(model, pixels), jr.fold_in(key, i), []
        for j in range(math.ceil(samples / chunk)):
            part_key = pg.devices.replicated(jr.fold_in(image_key, j), mesh)
            part = _log_weights(model, flow, pixels, part_key, refine, chunk, mesh)
            parts.append(np.asarray(part, np.float64))
            tell(i * samples + min(samples, (j + 1) * chunk))
        log_weight = np.concatenate(parts)[:samples]
        weight = np.exp(log_weight - log_weight.max())
        effective = weight.sum() ** 2 / np.square(weight).sum()
        yield Likelihood(float(log_weight.max() + np.log(weight.mean())), float(effective))


@eqx.filter_jit
def _flow_of_one(model: Autoencoder, image: Array) -> pg.Flow:
    """Return the flow of one image, from which any number of draws can be taken."""
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
def reconstructions(
    model: Autoencoder, images: Array, *, key: Any
) -> tuple[Float[Array, "n latent"], Float[Array, "n h w"]]:
    """Return one draw from each image's posterior, and the decoder's mean pixels for it."""
    z = model.posterior(images).draw("x", key=key, n=images.shape[0], chunk=images.shape[0]).x
    return z, model.likelihood.mean(model.decoder(z))


@eqx.filter_jit
def traversals(
    model: Autoencoder, z: Float[Array, " latent"], values: Float[Array, " value"], most: int
) -> tuple[Int[Array, " row"], Float[Array, "row value h w"]]:
    """Move one latent number at a time through `values`, and leave the others as they are in `z`.

    Returns:
        The numbers that change the mean pixels most between the first value and the last, the strongest
        first, and the mean pixels along each of them.
    """
    places = jnp.arange(z.size)
    moved = jnp.broadcast_to(z, (z.size, values.size, z.size)).at[places, :, places].set(values)
    first, last = (model.likelihood.mean(model.decoder(moved[:, i])) for i in (0, -1))
    rows = jnp.argsort(-jnp.sum(jnp.square(last - first), axis=(1, 2)))[:most]
    means = model.likelihood.mean(model.decoder(moved[rows].reshape(-1, z.size)))
    return rows, means.reshape(rows.size, values.size, *means.shape[1:])


@eqx.filter_jit
def prior_draws(
    model: Autoencoder, *, key: Any, n: int
) -> tuple[Float[Array, "n latent"], Float[Array, "n h w"], Array]:
    """Draw from the prior: latent vectors, their mean pixels, and images."""
    latent_key, pixel_key = jr.split(key)
    z = jax.vmap(lambda k: model.prior.draw(key=k)[0])(jr.split(latent_key, n))
    outputs = model.decoder(z)
    return z, model.likelihood.mean(outputs), model.likelihood.sample(outputs, key=pixel_key)
