"""The likelihood of images by importance sampling, with the posterior as the proposal.

Thousands of draws are taken for each image, so everything that a gradient would need is left out, draws go
through the decoder in batches that fit into a core's cache, and the solver is as coarse as the result allows.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

import pathgrad as pg
from pathgrad._words.tree import one_draw

from .convolution import forward_only
from .evaluation import Tell, standard_error, terms
from .model import Autoencoder

_AT_ONCE = 50  # draws that are decoded together: more do not fit into the cache
_CHECKED = 16  # images on which the solver is checked
_MOST = 16  # times the solver steps of training
LIMIT = 0.01  # nats by which twice the solver steps may move a likelihood, on average


class Likelihood(NamedTuple):
    """The likelihood of one image by importance sampling."""

    log_p: float  # log of the mean weight, in nats
    effective: float  # how many equally weighted draws it is worth


class Solver(NamedTuple):
    """How finely the flows are solved, and by how much likelihoods move with twice the steps."""

    refine: int
    shift: float


def likelihood_numbers(
    estimates: Sequence[Likelihood], bound: np.ndarray, solver: Solver | None, *, samples: int, pixels: int
) -> dict[str, Any]:
    """Return means over the images with a likelihood, beside their `bound`; `None` if there are none."""
    if not estimates or solver is None:
        names = ("err", "bits_per_dim", "images", "samples", "effective_samples", "effective_fewest")
        names = (*names, "images_negative_elbo", "refine", "solver_shift")
        return {"nll": None} | dict.fromkeys(f"nll_{name}" for name in names)
    nll = -np.array([one.log_p for one in estimates])
    effective = np.array([one.effective for one in estimates])
    return {
        "nll": float(nll.mean()),
        "nll_err": standard_error(nll),
        "nll_bits_per_dim": float(nll.mean()) / (pixels * math.log(2)),
        "nll_images": len(estimates),
        "nll_samples": samples,
        "nll_effective_samples": float(np.median(effective)),
        "nll_effective_fewest": float(np.quantile(effective, 0.05)),
        # For comparison with the NLL.
        "nll_images_negative_elbo": float(bound.mean()),
        "nll_refine": solver.refine,
        "nll_solver_shift": solver.shift,
    }


def likelihoods(
    model: Autoencoder,
    images: np.ndarray,
    *,
    key: Key[Array, ""],
    samples: int,
    refine: int = 1,
    rows: Sequence[int] | np.ndarray | None = None,
    tell: Tell = lambda done: None,
) -> Iterator[Likelihood]:
    r"""Estimate $\ln p(x)$ of images one by one.

    The log of a mean of weights is biased downwards, less so with more draws: it is a bound between the ELBO
    and the likelihood. (With a noisy divergence it would be biased upwards, and be no bound.)

    Args:
        model: A trained autoencoder.
        images: Their values are levels.
        key: Source of the draws. Those of an image also depend on its row, and on nothing else.
        samples: Draws for each image.
        refine: Take this many times the solver steps of training.
        rows: Where the images stand in their data set. Default: in this order.
        tell: Told how many draws have been taken.
    """
    mesh = pg.devices.mesh_for(None)
    model = pg.devices.replicated(model, mesh)
    for i, (image, row) in enumerate(zip(images, range(len(images)) if rows is None else rows, strict=True)):
        given = pg.devices.replicated((jnp.asarray(image), jr.fold_in(key, int(row))), mesh)
        log_weight = np.asarray(_log_weights(model, *given, samples, refine, mesh), np.float64)
        tell((i + 1) * samples)
        weight = np.exp(log_weight - log_weight.max())
        effective = weight.sum() ** 2 / np.square(weight).sum()
        yield Likelihood(float(log_weight.max() + np.log(weight.mean())), float(effective))


def coarsest(
    model: Autoencoder,
    images: np.ndarray,
    *,
    key: Key[Array, ""],
    samples: int,
    limit: float = LIMIT,
    tell: Callable[[int], None] = lambda refine: None,
) -> Solver:
    """Return the fewest solver steps that are enough: twice as many give the same likelihoods up to `limit`.

    They are compared on the same draws of a few images.
    """

    def found(refine: int) -> np.ndarray:
        tell(refine)
        stream = likelihoods(model, images[:_CHECKED], key=key, samples=samples, refine=refine)
        return np.array([one.log_p for one in stream])

    refine, coarse = 1, found(1)
    while True:
        fine = found(2 * refine)
        shift = float(np.mean(coarse - fine))
        if abs(shift) <= limit or 2 * refine > _MOST:  # NaN is no agreement
            return Solver(refine, shift)
        refine, coarse = 2 * refine, fine


@eqx.filter_jit
def _log_weights(
    model: Autoencoder, image: Array, key: Any, samples: int, refine: int, mesh: Mesh | None
) -> Float[Array, " draw"]:
    flow = one_draw(model.posterior(image[None]).exact()).refined(refine)
    arrays, static = eqx.partition((model, flow, image), eqx.is_array)

    def part(arrays, keys):
        model, flow, image = eqx.combine(arrays, static)
        size = min(_AT_ONCE, keys.shape[0])
        images = jnp.broadcast_to(image, (size, *image.shape))

        def some(keys):
            reconstruction, kl, _ = terms(model, flow, images, keys, size)
            return -(reconstruction + kl)

        # The last batch is made as large as the others.
        order = jnp.arange(-(-keys.shape[0] // size) * size) % keys.shape[0]
        return lax.map(some, keys[order].reshape(-1, size)).reshape(-1)[: keys.shape[0]]

    with forward_only():
        return pg.devices.for_each_draw(part, mesh)(arrays, jr.split(key, samples))
