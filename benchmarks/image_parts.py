"""Measure where a training step of an autoencoder spends its time: its parts, and both gradients.

    taskset -c 1 python -m benchmarks.image_parts > results/vae/parts_of_a_step.json

The parts are gradients: of the encoder, of the flow with the heads that complete it (path and total), of the
decoder with its likelihood; and the update of the parameters and their average. All parts and whole steps of
a model take turns, as in `pathgrad bench`. Models are untrained, and images random. Seconds are CPU seconds
of the process: pin it to one core.
"""

import argparse
import dataclasses
import json
import shlex
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, PyTree

import pathgrad as pg
from pathgrad._bench.measure import Work
from pathgrad._bench.options import MeasureOptions
from pathgrad._bench.record import Record, stopwatch
from pathgrad._runs.provenance import provenance
from pathgrad.experiments.vae.model import Autoencoder
from pathgrad.experiments.vae.options import AutoencoderOptions, preset

from .costs.images import training_step, untrained
from .costs.measure import measured

ESTIMATORS: dict[str, pg.AbstractEstimator] = {"path": pg.PathGradient(), "total": pg.TotalGradient()}


def parts(model: Autoencoder, images: Array) -> dict[str, Work]:
    """Return the programs of which a step is made."""
    features = model.encoder(images.astype(jnp.float32) / (model.levels - 1))
    latent = jr.normal(jr.key(1), (len(images), model.flow.latent))
    target = pg.LogDensity(lambda z: -jnp.sum(z**2), (model.flow.latent,))

    def encoded(encoder: PyTree, key: Array) -> Array:
        return jnp.sum(encoder(images.astype(jnp.float32) / (model.levels - 1)))

    def decoded(decoding: PyTree, key: Array) -> Array:
        decoder, likelihood, z = decoding
        return jnp.mean(likelihood.log_prob(decoder(z), images))

    def carried(estimator: pg.AbstractEstimator):
        objective = pg.ReverseKL(target, estimator)

        def loss(flowing: PyTree, key: Array) -> Array:
            flow, features = flowing
            return objective(flow(features), pg.Batch(jr.split(key, len(images)))).loss

        return loss

    return {
        "encoder": gradient(encoded, model.encoder),
        **{f"flow, {name}": gradient(carried(e), (model.flow, features)) for name, e in ESTIMATORS.items()},
        "decoder": gradient(decoded, (model.decoder, model.likelihood, latent)),
        "update": update(model),
    }


def gradient(loss, model: PyTree) -> Work:
    """Return the value and gradient of a function of a model and a key, as a program."""
    parameters, static = eqx.partition(model, eqx.is_inexact_array)

    def run(parameters: PyTree, key: Array):
        return jax.value_and_grad(lambda p: loss(eqx.combine(p, static), key))(parameters), None

    return Work(run, parameters)


def update(model: Autoencoder) -> Work:
    """Return a step of the optimiser and of the moving average, as a program."""
    optimizer, parameters = optimiser(), eqx.filter(model, eqx.is_inexact_array)
    average = jax.tree.map(jnp.copy, parameters)

    def run(arrays: PyTree, key: Array):
        parameters, average, memory = arrays
        updates, memory = optimizer.update(parameters, memory, parameters)  # any gradient will do
        parameters = eqx.apply_updates(parameters, updates)
        return (parameters, jax.tree.map(lambda a, p: a + 1e-3 * (p - a), average, parameters), memory), None

    return Work(run, (parameters, average, optimizer.init(parameters)))


def optimiser() -> optax.GradientTransformation:
    """Return an optimiser that costs what that of the preset does."""
    return optax.chain(optax.clip_by_global_norm(100.0), optax.adam(1e-3))


def measure(options: AutoencoderOptions, how: MeasureOptions) -> Record:
    """Return the costs of the parts and of whole steps of the untrained model that options describe."""
    model, images = untrained(options)
    steps = {
        name: training_step(model, images, e, optimiser(), average=0.999) for name, e in ESTIMATORS.items()
    }
    pairs = (("path", "total"), ("flow, path", "flow, total"))
    works = steps | parts(model, images)
    found = measured(
        works, how, stopwatch(), seed=options.training.seed, pairs=pairs, clock=time.process_time
    )
    sizes = eqx.filter(model, eqx.is_inexact_array)
    about = {"dataset": options.dataset, "batch": options.training.batch}
    about["solver_steps"] = options.flow.solver_steps
    return about | {"parameters": sum(np.size(p) for p in jax.tree.leaves(sizes))} | found


def main() -> None:
    """Measure the models of all data sets, and print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=["mnist", "caltech", "freyfaces", "omniglot"])
    parser.add_argument("--solver-steps", nargs="+", type=int, default=[3, 5])
    parser.add_argument("--repetitions", type=int, default=9)
    given = parser.parse_args()
    rows = []
    for dataset in given.datasets:
        for steps in given.solver_steps:
            options = preset("cpu", dataset)
            flow = dataclasses.replace(options.flow, solver_steps=steps)
            how = MeasureOptions(("path", "total"), given.repetitions)
            rows.append(measure(dataclasses.replace(options, flow=flow), how))
    command = shlex.join(["python", "-m", "benchmarks.image_parts", *sys.argv[1:]])
    print(json.dumps({"rows": rows, "provenance": provenance() | {"command": command}}, indent=1))


if __name__ == "__main__":
    main()
