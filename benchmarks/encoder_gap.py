"""Measure how much of the negative ELBO of new images is due to the encoder alone.

    python -m benchmarks.encoder_gap runs/vae/NAME --state last > gap.json

For some validation and training images, the features that the encoder gives are fitted to the ELBO of each
image by itself: networks and fields stay as they are, so this is what a better encoder could reach. If much
is gained on validation images and little on training images, the encoder has learnt the latter by heart.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array

import pathgrad as pg
from pathgrad._runs import work
from pathgrad._runs.provenance import provenance
from pathgrad.experiments.vae.model import Autoencoder
from pathgrad.experiments.vae.problem import AutoencoderProblem

RATE = 0.05
REPEATED = 10  # draws from each posterior behind a negative ELBO


def negative_elbo(model: Autoencoder, features: Array, images: Array, key: Array) -> Array:
    """Return the mean negative ELBO of images whose encoder would give these features."""
    n = len(images)
    draw = pg.PathGradient().draw(model.flow(features), key=jr.split(key, n), n=n)
    assert draw.log_q is not None
    prior = jax.vmap(model.log_prior)(draw.x)
    return jnp.mean(draw.log_q - prior - model.log_likelihood(draw.x, images))


@eqx.filter_jit
def fitted(model: Autoencoder, features: Array, images: Array, steps: int) -> Array:
    """Return the features after so many steps of Adam, whose rate falls to zero."""
    optimizer = optax.adam(optax.linear_schedule(RATE, 0.0, steps))

    def step(state, key):
        features, memory = state
        gradient = jax.grad(lambda f: len(images) * negative_elbo(model, f, images, key))(features)
        updates, memory = optimizer.update(gradient, memory)
        return (features + updates, memory), None

    start = features, optimizer.init(features)
    return jax.lax.scan(step, start, jr.split(jr.key(1), steps))[0][0]


@eqx.filter_jit
def averaged(model: Autoencoder, features: Array, images: Array) -> Array:
    """Return the negative ELBO, with several draws for each image."""
    keys = jr.split(jr.key(9), REPEATED)
    return jnp.mean(jax.lax.map(lambda key: negative_elbo(model, features, images, key), keys))


def measure(model: Autoencoder, images: np.ndarray, steps: int) -> dict[str, float]:
    """Return the negative ELBO as the encoder has it, and with fitted features."""
    given = jnp.asarray(images)
    features = eqx.filter_jit(model.encoder)(given.astype(jnp.float32) / (model.levels - 1))
    better = fitted(model, features, given, steps)
    before, after = (averaged(model, f, given) for f in (features, better))
    return {"encoded": float(before), "fitted": float(after)}


def main() -> None:
    """Measure one run, and print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument(
        "--state", choices=["best", "last"], default="best", help="of the best validation, or the last"
    )
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    run = pg.Run.open(given.run)
    problem = run.problem()
    assert isinstance(problem, AutoencoderProblem)
    trained, data = work.trained(run), problem.images()
    model = trained.model
    if given.state == "last":
        average = trained.state.memory.average
        model = eqx.combine(average.parameters, trained.state.model) if average else trained.state.model
    rows = {}
    for name, images in (("validation", data.validation), ("training", data.train)):
        chosen = np.random.RandomState(0).permutation(images)[: given.images]
        rows[name] = measure(model, chosen, given.steps)
    command = shlex.join(["python", "-m", "benchmarks.encoder_gap", *sys.argv[1:]])
    about = {"dataset": data.name, "state": given.state, "images": given.images, "steps": given.steps}
    print(json.dumps(about | rows | {"provenance": provenance() | {"command": command}}, indent=1))


if __name__ == "__main__":
    main()
