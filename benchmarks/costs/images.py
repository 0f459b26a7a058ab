"""The training step of an autoencoder, and its flow alone, as programs to measure."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, PyTree

import pathgrad as pg
from pathgrad._bench.gradients import described, gradient
from pathgrad._bench.measure import Work
from pathgrad._bench.options import MeasureOptions
from pathgrad._bench.record import Record, Say
from pathgrad.experiments.flows.making import ESTIMATORS
from pathgrad.experiments.vae.data.sources import find
from pathgrad.experiments.vae.making import make_model
from pathgrad.experiments.vae.model import Autoencoder
from pathgrad.experiments.vae.options import AutoencoderOptions

from .measure import measured

PUBLISHED = optax.adamax(5e-4, eps=1e-7)


def measure_images(options: AutoencoderOptions, how: MeasureOptions, say: Say) -> Record:
    """Measure whole training steps, and the gradient of the flow alone, on random images."""
    training = options.training
    with jax.enable_x64(False):
        model, images = untrained(options)
        flow = eqx.filter_jit(model.posterior)(images)
        estimators = {name: ESTIMATORS[name]() for name in how.estimators}
        steps = {name: training_step(model, images, e) for name, e in estimators.items()}
        # With a target that costs almost nothing instead of the decoder.
        target = pg.LogDensity(lambda z: -jnp.sum(z**2), flow.shape)
        alone = {n: gradient(flow, pg.ReverseKL(target, e), training.batch) for n, e in estimators.items()}
        record = {"what": "vae"} | described(options, model) | {"dtype": how.dtype}
        record["images"] = f"random, {'x'.join(map(str, images.shape[1:]))} pixels"
        record |= measured(steps, how, lambda text: say(f"whole step: {text}"), seed=training.seed)
        record["flow_alone"] = measured(
            alone, how, lambda text: say(f"flow alone: {text}"), seed=training.seed
        )
        return record


def untrained(options: AutoencoderOptions) -> tuple[Autoencoder, Array]:
    """Return the model, and random images of the size and grey levels of the data set."""
    source, training = find(options.dataset), options.training
    model = make_model(options, source.pixels, source.levels, key=jr.key(training.seed))
    shape = (training.batch, *source.pixels)
    drawn = np.random.default_rng(training.seed).integers(0, source.levels, shape, np.uint8)
    return model, jnp.asarray(drawn)


def training_step(
    model: Autoencoder,
    images: Array,
    estimator: pg.AbstractEstimator,
    optimizer: optax.GradientTransformation = PUBLISHED,
    average: float | None = None,
) -> Work:
    """Return a whole training step as a program."""
    method = pg.FirstOrder(optimizer, len(images), average=average)
    objective = pg.NegativeELBO(pg.Data(np.asarray(images)), estimator)
    state = pg.Trainer(objective, method, key=jr.key(0)).init(model)
    moving, static = eqx.partition(state, eqx.is_array)

    def run(arrays: PyTree, key: Array) -> tuple[PyTree, tuple[ArrayLike, ArrayLike]]:
        moving, images = arrays
        state = eqx.combine(moving, static)
        after, info, _ = method.step(state, objective, key=key, data=images)
        return eqx.filter(after, eqx.is_array), (info.evaluations, info.evaluations_backward)

    return Work(run, (moving, images))
