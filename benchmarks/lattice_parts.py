"""Measure where the time of a lattice gradient goes: its parts, and the three gradients.

    python -m benchmarks.lattice_parts > results/bench/lattice_parts.json

The parts are: sampling alone, with the density, and with the score; the backward pass through the sampling
map alone, and through the density too. Programs take turns, as in `pathgrad bench`.
"""

import dataclasses
import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp

from pathgrad._bench.measure import Work
from pathgrad._bench.options import MeasureOptions
from pathgrad._runs.provenance import provenance
from pathgrad.experiments.options import TrainOptions
from pathgrad.experiments.phi4.options import PRESETS, Phi4Options

from .costs.lattice import lattice_problem
from .costs.measure import gradients_of, measured

STEPS, BATCH, SIZE, REPETITIONS = 20, 64, 12, 9


def parts(flow) -> dict[str, Work]:
    """Return the programs of which gradients are made."""
    parameters, static = eqx.partition(flow, eqx.is_inexact_array)

    def draw(carry):
        def run(parameters, key):
            made = eqx.combine(parameters, static).draw(carry, key=key, n=BATCH, chunk=BATCH)
            return (made.x, made.log_q, made.score), None

        return Work(run, parameters)

    def there_and_back(carry):
        def loss(parameters, key):
            made = eqx.combine(parameters, static).draw(carry, key=key, n=BATCH, chunk=BATCH)
            return jnp.mean(made.x**2) + (jnp.mean(made.log_q) if carry == "log_q" else 0.0)

        return Work(lambda p, key: (jax.value_and_grad(loss)(p, key), None), parameters)

    return {
        "draw": draw("x"),
        "draw with density": draw("log_q"),
        "draw with score": draw("score"),
        "draw, and back": there_and_back("x"),
        "draw with density, and back": there_and_back("log_q"),
    }


def main() -> None:
    """Measure and print JSON."""
    flow = dataclasses.replace(PRESETS["paper"].flow, solver_steps=STEPS)
    options = Phi4Options(SIZE, flow=flow, training=TrainOptions(batch=BATCH))
    how = MeasureOptions(repetitions=REPETITIONS)
    works = parts(lattice_problem(options)[0]) | gradients_of(options, how)[1]
    found = measured(works, how, lambda text: print(text, file=sys.stderr), seed=options.training.seed)
    about = {"size": SIZE, "batch": BATCH, "solver_steps": STEPS, "preset": "paper"}
    print(json.dumps(about | found | {"provenance": provenance()}, indent=1))


if __name__ == "__main__":
    main()
