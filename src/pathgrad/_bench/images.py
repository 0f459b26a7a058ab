"""The training step of an autoencoder, and its flow alone, as programs to measure."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

import pathgrad as pg
from pathgrad.experiments.problem import ESTIMATORS
from pathgrad.experiments.vae.data.sources import SOURCES
from pathgrad.experiments.vae.model import Autoencoder
from pathgrad.experiments.vae.options import AutoencoderOptions
from pathgrad.experiments.vae.problem import make_model

from .gradients import Say, counted, described, precision, told_to_users
from .measure import Work, measure
from .options import ImagesOptions


def measure_images(options: ImagesOptions, say: Say) -> dict[str, Any]:
    """Return the record of one configuration: whole steps, and under `flow_alone` the flow's gradient."""
    how = options.measure
    how.check()
    with precision(how.dtype):
        model, images = untrained(options)
        flow = eqx.filter_jit(model.posterior)(images)
        steps = measure(
            training_steps(model, images, how.estimators),
            say=lambda text: say(f"whole step: {text}"),
            repetitions=how.repetitions,
            seed=how.seed,
        )
        alone = measure(
            flow_gradients(flow, how.batch, how.estimators),
            say=lambda text: say(f"flow alone: {text}"),
            repetitions=how.repetitions,
            seed=how.seed,
        )
        about = described("vae", options, how, flow)
        parameters = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
        about["parameters"] = sum(leaf.size for leaf in parameters)
        about["images"] = f"random, {'x'.join(map(str, images.shape[1:]))} pixels"
        return about | steps | {"flow_alone": alone}


def untrained(options: ImagesOptions) -> tuple[Autoencoder, Any]:
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


def training_steps(model: Autoencoder, images: Any, estimators: Sequence[str]) -> dict[str, Work]:
    """Return a whole training step with Adamax, by each estimator."""
    method = pg.FirstOrder(optax.adamax(5e-4, eps=1e-7), len(images))
    data = pg.Data(np.asarray(images))

    def work(name: str) -> Work:
        objective = pg.NegativeELBO(data, ESTIMATORS[name]())
        state = pg.Trainer(objective, method, key=jr.key(0)).init(model)
        moving, static = eqx.partition(state, eqx.is_array)

        def run(arrays: Any, key: Any) -> Any:
            moving, images = arrays
            after, info, _ = method.step(
                eqx.combine(moving, static), objective, key=key, data=images
            )
            return eqx.filter(after, eqx.is_array), (info.evaluations, info.evaluations_backward)

        return Work(run, (moving, images))

    return {name: work(name) for name in estimators}


def flow_gradients(flow: pg.Flow, batch: int, estimators: Sequence[str]) -> dict[str, Work]:
    """Return the gradient through the flow alone, with respect to all that the encoder gives it."""
    moving, static = eqx.partition(flow, eqx.is_inexact_array)

    def work(name: str) -> Work:
        def loss(moving: Any, tally: pg.Tally, key: Any) -> Any:
            whole = counted(eqx.combine(moving, static), tally)
            draw = ESTIMATORS[name]().draw(whole, key=key, n=batch)
            assert draw.log_q is not None
            return jnp.mean(draw.log_q + jnp.sum(draw.x**2, 1)), draw.solve

        def run(moving: Any, key: Any) -> Any:
            differentiated = jax.value_and_grad(loss, (0, 1), has_aux=True)
            (value, solve), (gradient, tally) = differentiated(moving, pg.Tally(jnp.zeros(())), key)
            return (value, gradient), (solve.evaluations, tally.value)

        return Work(run, moving)

    return {name: work(name) for name in estimators}
