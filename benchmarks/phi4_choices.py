"""Try what might help path gradients at size 6: base, decay, Adam's memory, batch, averaging.

    python -m benchmarks.phi4_choices > results/phi4/choices.json

Each trial changes one choice of the `fast` preset and trains with the same number of draws (64,000) and one
seed. The ESS comes from 16,384 fresh draws with twice the solver steps. Times are not recorded, because
trials may share the machine.
"""

import dataclasses
import json
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import pathgrad as pg
from pathgrad._runs.problem import run_keys
from pathgrad._runs.provenance import provenance
from pathgrad.experiments.phi4.options import PRESETS, Phi4Options
from pathgrad.experiments.phi4.problem import build

FAST = PRESETS["fast"]
DRAWS = 64_000


def varied(batch: int = 128, flow: dict[str, Any] | None = None, **training: Any) -> Phi4Options:
    """Return the preset with some options changed."""
    steps = DRAWS // batch
    return dataclasses.replace(
        FAST,
        flow=dataclasses.replace(FAST.flow, **(flow or {})),
        training=dataclasses.replace(FAST.training, steps=steps, batch=batch, block=20, **training),
    )


TRIALS = {
    "fast preset": varied(),
    "unit-normal base": varied(flow={"base": "unit"}),
    "no decay": varied(decay="none"),
    "Adam (0.9, 0.999)": varied(beta1=0.9, beta2=0.999),
    "batch 512": varied(512),
}


def run(options: Phi4Options) -> dict[str, float]:
    """Train; evaluate the last flow, and the average of the parameters over the last third of the blocks."""
    problem = build(options)
    _, key, later = run_keys(options.training.seed)
    trainer = problem.training.trainer(key=key)
    state, flows = trainer.init(problem.training.model), []
    for state, _ in trainer.blocks(state, options.training.steps):
        # Copy them: the next block overwrites these arrays.
        flows.append(jax.tree.map(np.array, eqx.filter(state.model, eqx.is_inexact_array)))
    last = flows[-max(1, len(flows) // 3) :]
    mean = jax.tree.map(lambda *leaves: jnp.asarray(sum(leaves) / len(leaves)), *last)
    averaged = eqx.combine(mean, state.model)
    ess = {}
    for name, flow in (("last", state.model), ("averaged", averaged)):
        found = pg.evaluate(flow.refined(2), problem.target, key=later, n=16384)
        ess |= {f"ess_{name}": found.ess, f"kl_{name}": found.kl}
    return ess


def main() -> None:
    """Run all trials and print the results as JSON."""
    rows = {}
    for name, options in TRIALS.items():
        rows[name] = run(options)
        print(name, rows[name], file=sys.stderr)
    made = provenance() | {"command": "python -m benchmarks.phi4_choices"}
    print(json.dumps({"size": FAST.size, "draws": DRAWS, "trials": rows, "provenance": made}, indent=2))


if __name__ == "__main__":
    main()
