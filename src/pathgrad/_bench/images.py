"""The training step of an autoencoder, and its flow alone, as programs to measure."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, PyTree

import pathgrad as pg
from pathgrad.experiments.flows.making import ESTIMATORS
from pathgrad.experiments.vae.data.sources import SOURCES
from pathgrad.experiments.vae.model import Autoencoder
from pathgrad.experiments.vae.options import AutoencoderOptions
from pathgrad.experiments.vae.problem import make_model

from .gradients import described, gradient, measuring, parameter_count, told_to_users
from .measure import Count, Work, measure
from .options import ImagesOptions
from .record import Record, Say


def measure_images(options: ImagesOptions, say: Say, count: Count | None = None) -> Record:
    """Measure whole training steps, and the gradient of the flow alone."""
    how = options.measure
    with measuring(how):
        model, images = untrained(options)
        flow = eqx.filter_jit(model.posterior)(images)
        steps = {name: training_step(model, images, ESTIMATORS[name]()) for name in how.estimators}
        alone = {name: flow_gradient(flow, how.batch, ESTIMATORS[name]()) for name in how.estimators}
        about = described("vae", options, flow) | {
            "parameters": parameter_count(model),
            "images": f"random, {'x'.join(map(str, images.shape[1:]))} pixels",
        }
        record = about | measure(steps, how, lambda text: say(f"whole step: {text}"), count)
        record["flow_alone"] = measure(alone, how, lambda text: say(f"flow alone: {text}"), count)
        return record


def untrained(options: ImagesOptions) -> tuple[Autoencoder, Array]:
    """Return the model, and random images of the size and grey levels of the data set."""
    source, how = SOURCES[options.dataset], options.measure
    whole = AutoencoderOptions(
        options.dataset, latent=options.latent, channels=options.channels, flow=options.flow
    )
    with told_to_users():
        model = make_model(whole, source.pixels, source.levels, key=jr.key(how.seed))
    shape = (how.batch, *source.pixels)
    drawn = np.random.default_rng(how.seed).integers(0, source.levels, shape, np.uint8)
    return model, jnp.asarray(drawn)


def training_step(model: Autoencoder, images: Array, estimator: pg.AbstractEstimator) -> Work:
    """Return a whole training step with Adamax."""
    method = pg.FirstOrder(optax.adamax(5e-4, eps=1e-7), len(images))
    objective = pg.NegativeELBO(pg.Data(np.asarray(images)), estimator)
    state = pg.Trainer(objective, method, key=jr.key(0)).init(model)
    moving, static = eqx.partition(state, eqx.is_array)

    def run(arrays: PyTree, key: Array) -> tuple[PyTree, tuple[ArrayLike, ArrayLike]]:
        moving, images = arrays
        state = eqx.combine(moving, static)
        after, info, _ = method.step(state, objective, key=key, data=images)
        return eqx.filter(after, eqx.is_array), (info.evaluations, info.evaluations_backward)

    return Work(run, (moving, images))


def flow_gradient(flow: pg.Flow, batch: int, estimator: pg.AbstractEstimator) -> Work:
    """Return the gradient through the flow alone, with respect to all that the encoder gives it."""

    def loss(flow: pg.Flow, key: Array) -> tuple[Array, pg.SolveInfo | None]:
        draw = estimator.draw(flow, key=key, n=batch)
        assert draw.log_q is not None
        return jnp.mean(draw.log_q + jnp.sum(draw.x**2, 1)), draw.solve

    return gradient(flow, loss)
