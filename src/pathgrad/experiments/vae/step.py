"""One training step of an autoencoder."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

import pathgrad as pg

from .elbo import negative_elbo, terms
from .model import Autoencoder


class Moving(eqx.Module):
    """What a step changes.

    Attributes:
        model: As trained so far.
        optimizer_state: Of the optimiser.
        step: Steps taken, skipped ones included.
        skipped: Steps that were skipped because something was not finite.
        skipped_in_row: Skipped steps since the last good one.
    """

    model: Autoencoder
    optimizer_state: PyTree
    step: Int[Array, ""]
    skipped: Int[Array, ""]
    skipped_in_row: Int[Array, ""]


class StepNumbers(NamedTuple):
    """What is known of one step.

    Attributes:
        loss: Reconstruction + beta * KL, in nats per image.
        reconstruction: Its first part.
        kl: Its second, without the weight.
        gradient_norm: Euclidean, before the optimiser.
        evaluations: Field evaluations of the forward solves.
        evaluations_backward: Of the way back.
        solved: Whether all forward solves reached their end.
        good: Whether the step was taken.
    """

    loss: Float[Array, ""]
    reconstruction: Float[Array, ""]
    kl: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    evaluations: Int[Array, ""]
    evaluations_backward: Float[Array, ""]
    solved: Bool[Array, ""]
    good: Bool[Array, ""]


def begin(model: Autoencoder, optimizer: optax.GradientTransformation) -> Moving:
    """Return the state before the first step."""
    parameters = eqx.filter(model, eqx.is_inexact_array)
    zeros = [jnp.zeros((), jnp.int32) for _ in range(3)]  # three arrays: each is donated
    return Moving(model, optimizer.init(parameters), *zeros)


def take_step(
    moving: Moving,
    images: Array,
    key: Key[Array, ""],
    beta: Float[Array, ""],
    optimizer: optax.GradientTransformation,
    estimator: pg.AbstractEstimator,
    mesh: Mesh | None = None,
) -> tuple[Moving, StepNumbers]:
    """Take one step on a batch, shared by the devices of a mesh.

    Grey images that should be black and white are drawn anew.
    """
    draw_key, noise_key = jr.split(key)
    if jnp.issubdtype(images.dtype, jnp.floating):
        images = jr.bernoulli(draw_key, images).astype(jnp.uint8)
    parameters, fixed = eqx.partition(moving.model, eqx.is_inexact_array)

    keys = jr.split(noise_key, images.shape[0])
    found = _differentiated(parameters, fixed, images, keys, beta, estimator, mesh)
    (loss, reconstruction, kl, gradient), evaluations, solved = found
    norm = pg.metrics.gradient_norm(gradient)
    updates, optimizer_state = optimizer.update(gradient, moving.optimizer_state, parameters)
    moved = eqx.apply_updates(parameters, updates)
    good = jnp.isfinite(loss) & jnp.isfinite(norm)
    parameters, optimizer_state = jax.tree.map(
        lambda new, old: jnp.where(good, new, old),
        (moved, optimizer_state),
        (parameters, moving.optimizer_state),
    )
    numbers = StepNumbers(loss, reconstruction, kl, norm, *evaluations, solved, good)
    in_row = jnp.where(good, 0, moving.skipped_in_row + 1)
    after = Moving(
        eqx.combine(parameters, fixed),
        optimizer_state,
        moving.step + 1,
        moving.skipped + ~good,
        in_row,
    )
    return after, numbers


def _differentiated(parameters, fixed, images, keys, beta, estimator, mesh):
    """Return means over the batch (loss, its terms, gradient), field evaluations, and success."""
    arrays, static = eqx.partition(fixed, eqx.is_array)

    def part(whole, images, keys):
        parameters, arrays, beta = whole

        def loss_of(parameters, tally):
            model = eqx.combine(parameters, arrays, static)
            found = terms(model, images, key=keys, estimator=estimator, tally=tally)
            return negative_elbo(found, beta), found

        differentiated = jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True)
        (loss, found), (gradient, counted) = differentiated(parameters, pg.Tally(jnp.zeros(())))
        solve = found.solve or pg.SolveInfo(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        means = loss, jnp.mean(found.reconstruction), jnp.mean(found.kl), gradient
        return (
            pg.devices.average(means),
            pg.devices.largest((solve.evaluations, counted.value)),
            pg.devices.everywhere(solve.succeeded),
        )

    return pg.devices.spread(part, mesh)((parameters, arrays, beta), images, keys)
