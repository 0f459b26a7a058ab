"""Time one training step of the published autoencoders, by estimator.

    python -m benchmarks.vae_iteration > results/vae/iteration.json

The `paper` presets of MNIST and Frey Faces (batch 100, Dopri5 at 1e-5, one Gaussian Hutchinson vector) on
random images and untrained weights: whole steps with Adamax, and the flow alone. The estimators
take turns, so that whatever else the machine does meets all of them. Times compare within one run of this
program only; bytes are exact. `--adjoint backsolve` measures the authors' way back.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

import pathgrad as pg
from pathgrad._train.rundir import provenance
from pathgrad.experiments.problem import ESTIMATORS
from pathgrad.experiments.vae.options import preset
from pathgrad.experiments.vae.problem import make_model
from pathgrad.experiments.vae.step import begin, take_step

IMAGES = {"freyfaces": ((28, 20), 256), "mnist": ((28, 28), 2)}
BATCH = 100


def peak_bytes(compiled) -> dict[str, float]:
    """Return what the compiler plans: temporary arrays, and with arguments (training overwrites those)."""
    found = compiled.memory_analysis()
    return {
        "temporary_megabytes": found.temp_size_in_bytes / 1e6,
        "peak_megabytes": (found.temp_size_in_bytes + found.argument_size_in_bytes) / 1e6,
    }


def steps(model, images):
    """Compile a whole training step for each estimator; yield name, bytes, and what runs it."""
    optimizer = optax.adamax(5e-4, eps=1e-7)
    arrays, static = eqx.partition(begin(model, optimizer), eqx.is_array)
    for name, make in ESTIMATORS.items():

        def run(arrays, images, key, make=make):
            moving = eqx.combine(arrays, static)
            moving, numbers = take_step(moving, images, key, jnp.ones(()), optimizer, make())
            counts = (numbers.evaluations, numbers.evaluations_backward)
            return eqx.filter(moving, eqx.is_array), counts

        # Without donation, so that all estimators can begin with the same arrays again and again.
        compiled = jax.jit(run).lower(arrays, images, jr.key(0)).compile()
        yield name, peak_bytes(compiled), lambda key, c=compiled: c(arrays, images, key)[1]


def flow_gradients(model, images):
    """Compile the gradient through the flow alone, for each estimator."""
    flow = eqx.filter_jit(model.posterior)(images)
    moving, fixed = eqx.partition(flow, eqx.is_inexact_array)
    for name, make in ESTIMATORS.items():

        def loss(moving, tally, key, make=make):
            flow = eqx.combine(moving, fixed)
            counted = [cnf.replace(tally=tally) for cnf in flow.transforms]
            draw = make().draw(pg.Flow(flow.base, counted), key=key, n=BATCH)
            assert draw.log_q is not None
            return jnp.mean(draw.log_q + jnp.sum(draw.x**2, 1)), draw.solve

        def run(moving, key, loss=loss):
            differentiated = jax.value_and_grad(loss, (0, 1), has_aux=True)
            (_, solve), (gradient, tally) = differentiated(moving, pg.Tally(jnp.zeros(())), key)
            return gradient, (solve.evaluations, tally.value)

        compiled = jax.jit(run).lower(moving, jr.key(0)).compile()
        yield name, peak_bytes(compiled), lambda key, c=compiled: c(moving, key)[1]


def take_turns(programs, repetitions: int) -> dict:
    """Run all programs in turn; return medians, spreads and ratios."""
    programs = list(programs)
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in programs}
    counts: dict[str, list[tuple[int, int]]] = {name: [] for name in seconds}
    for i in range(repetitions + 1):  # the first round warms up
        for name, _, run in programs:
            began = time.perf_counter()
            forward, backward = jax.block_until_ready(run(jr.key(i)))
            if i:
                seconds[name].append(time.perf_counter() - began)
                counts[name].append((int(forward), int(backward)))
    each = {
        name: [s / sum(c) for s, c in zip(seconds[name], counts[name], strict=True)]
        for name in seconds
    }
    result: dict = {
        name: {
            "seconds": statistics.median(seconds[name]),
            "seconds_spread": [min(seconds[name]), max(seconds[name])],
            "evaluations": statistics.mean(c[0] for c in counts[name]),
            "evaluations_backward": statistics.mean(c[1] for c in counts[name]),
            "milliseconds_per_evaluation": 1e3 * statistics.median(each[name]),
            **memory,
        }
        for name, memory, _ in programs
    }
    for a, b in (("path", "total"), ("two-copy", "path")):
        for what, numbers in (("", seconds), (" per evaluation", each)):
            ratios = [x / y for x, y in zip(numbers[a], numbers[b], strict=True)]
            result[f"{a} / {b}{what}"] = {
                "median": statistics.median(ratios),
                "spread": [min(ratios), max(ratios)],
            }
    return result


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adjoint", choices=("discrete", "backsolve"), default="discrete")
    parser.add_argument("--datasets", nargs="+", default=list(IMAGES), choices=list(IMAGES))
    parser.add_argument("--repetitions", type=int, default=7)
    given = parser.parse_args()
    result: dict = {"adjoint": given.adjoint, "batch": BATCH, "provenance": provenance()}
    for dataset in given.datasets:
        shape, levels = IMAGES[dataset]
        options = preset("paper", dataset)
        flow = dataclasses.replace(options.flow, adjoint=given.adjoint)
        model = make_model(dataclasses.replace(options, flow=flow), shape, levels, jr.key(0))
        drawn = np.random.RandomState(0).randint(0, levels, (BATCH, *shape)).astype(np.uint8)
        images = jnp.asarray(drawn)
        result[dataset] = {
            "flow": take_turns(flow_gradients(model, images), given.repetitions),
            "step": take_turns(steps(model, images), given.repetitions),
        }
        print(dataset, json.dumps(result[dataset], indent=1), file=sys.stderr)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
