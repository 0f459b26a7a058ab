"""Evaluate a trained autoencoder: the ELBO of images, with exact divergences, and images to look at."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key

import pathgrad as pg

from .model import Autoencoder

Tell = Callable[[int], None]

# Limit, in bytes, for the matrices of exact divergences that are in memory at a time.
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
            "negative_elbo_err": standard_error(self.each),
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


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of a mean."""
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


def terms(model: Autoencoder, flow: pg.Flow, images: Array, keys: Array, chunk: int) -> tuple[Array, ...]:
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
        return terms(model, model.posterior(images).exact().refined(refine), images, keys, chunk)

    return pg.devices.for_each_draw(part, mesh)(arrays, images, jr.split(key, images.shape[0]))


def _chunk(model: Autoencoder) -> int:
    """Return how many draws, each with its own numbers for the divergence, to solve at a time."""
    most = max((family.prepared_size for family in model.flow.families), default=1)
    return max(1, _BYTES // (4 * most))


def divergence_error(model: Autoencoder, images: np.ndarray, *, key: Key[Array, ""]) -> float | None:
    """Return the largest relative error in closed-form divergences of fields; `None` if there are none."""
    check = pg.check_divergence(eqx.filter_jit(model.posterior)(jnp.asarray(images)), key=key)
    return check.worst if check.fields else None


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
