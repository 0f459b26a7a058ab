"""Build an autoencoder and its training from options, with public names only."""

import dataclasses
import math

import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key, UInt8

import pathgrad as pg

from ..flows.making import ADJOINTS, ESTIMATORS, make_divergence, make_integrator
from .data.datasets import Dataset
from .model import Autoencoder
from .options import AutoencoderOptions, AutoencoderTrainOptions, check_least


@dataclasses.dataclass(frozen=True)
class WarmUp:
    """The weight of the KL term, which grows to one over some epochs, in one step per epoch."""

    epochs: int
    steps_per_epoch: int

    def __call__(self, step: Int[Array, ""] | int) -> Float[Array, ""]:
        """Return the weight at a step, counted from zero."""
        epoch = jnp.asarray(step) // self.steps_per_epoch
        return jnp.minimum((epoch + 1) / max(self.epochs, 1), 1.0)


def draw_pixels(image: Float[Array, "height width"], *, key: Key[Array, ""]) -> UInt8[Array, "height width"]:
    """Draw a black-and-white image from grey levels, taken as probabilities."""
    return jr.bernoulli(key, image).astype(jnp.uint8)


def make_training(options: AutoencoderTrainOptions, model: Autoencoder, dataset: Dataset) -> pg.Training:
    """Return the training that the options describe, of a model on images."""
    data = pg.Data(dataset.train, change=draw_pixels if dataset.binarise_each_batch else None)
    epoch = data.steps_per_epoch(options.batch)
    objective = pg.NegativeELBO(data, ESTIMATORS[options.estimator](), WarmUp(options.warmup_epochs, epoch))
    optimizer = (
        optax.adam(options.rate) if options.optimizer == "adam" else optax.adamax(options.rate, eps=1e-7)
    )
    return pg.Training(
        model,
        objective,
        pg.FirstOrder(optimizer, options.batch, block=options.block, average=options.average),
        options.epochs * epoch,
        pg.Validation(
            # No gradient is needed here, and log q without its score is cheapest.
            pg.NegativeELBO(pg.Data(dataset.validation), pg.TotalGradient()),
            every=epoch,
            n=options.batch,
            patience=options.patience,
            patient_until=options.warmup_epochs * epoch,
        ),
    )


def make_model(
    options: AutoencoderOptions, shape: tuple[int, int], levels: int, *, key: Key[Array, ""]
) -> Autoencoder:
    """Return the untrained model for images of this shape."""
    flow = options.flow
    if not 0 < abs(flow.end_time) < math.inf:
        raise pg.ArgumentError(f"{pg.named('end_time')} must be finite and not zero, got {flow.end_time}.")
    check_least(0, cnfs=flow.cnfs)
    check_least(1, channels=options.channels)
    return Autoencoder(
        shape,
        key=key,
        levels=levels,
        channels=options.channels,
        latent=options.latent,
        divergence=make_divergence(flow.divergence, flow.depth, pg.Hutchinson(flow.probes, flow.noise)),
        integrator=make_integrator(flow.solver, flow.solver_steps, flow.tolerance),
        adjoint=ADJOINTS[flow.adjoint],
        **{
            name: getattr(flow, name) for name in ("cnfs", "width", "depth", "rank", "activation", "end_time")
        },
    )


def check_training(training: AutoencoderTrainOptions) -> None:
    """Raise an error unless the numbers make sense."""
    check_least(1, batch=training.batch, epochs=training.epochs, block=training.block)
    check_least(0, warmup_epochs=training.warmup_epochs, patience=training.patience)
    for name, value in (("learning_rate", training.rate), ("max_seconds", training.max_seconds)):
        if value is not None and not 0 < value < math.inf:
            raise pg.ArgumentError(f"{pg.named(name)} must be a positive number, got {value}.")
