"""Adam with path gradients, Gauss-Newton, and one after the other in one run, for the same training time.

    taskset -c 0 python -m benchmarks.stages funnel 10 --rate 0.015 --out funnel.json
    taskset -c 1 python -m benchmarks.stages correlated 20 --rate 0.03 --out correlated.json

Two targets that are no lattices, an `MLPField` of width 32 and depth 1 with ten solver steps, as in
results/phi4/second_order.md, but with a learning rate that suits Adam and decays to zero within its time.
Some hundred steps tell first how many that is. The ESS of a funnel jumps between sets of draws: its median
over nine of them is given, with the KL divergence, which does not.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax.random as jr
import numpy as np
import optax

import pathgrad as pg
from pathgrad._train.rundir import provenance
from pathgrad.experiments.options import FlowOptions
from pathgrad.experiments.problem import evaluation_key, keys, make_flow
from pathgrad.experiments.toy_targets import TARGETS

MARGIN = 0.85  # of the steps that seem to fit into the time: the decay has to reach its end
SHARES = (0.9, 0.75)  # of Adam's steps, before Gauss-Newton takes over
FOR_EVER = 10**6


def adam(rate: float, steps: int, batch: int) -> pg.FirstOrder:
    """Return Adam with a learning rate that decays to zero."""
    return pg.FirstOrder(optax.adam(optax.cosine_decay_schedule(rate, steps)), batch)


def seconds_a_step(flow: pg.Flow, target: pg.Target, rate: float, batch: int) -> float:
    """Return what a step of Adam takes, from some hundred of them after the first."""
    trainer = pg.Trainer(pg.ReverseKL(target), adam(rate, FOR_EVER, batch), key=jr.key(0))
    rows = [row for _, row in trainer.blocks(trainer.init(flow), 1000)]
    return (rows[-1].seconds - rows[0].seconds) / (rows[-1].step - rows[0].step)


def judged(flow: pg.Flow, target: pg.Target, seed: int) -> dict[str, float]:
    """Return the KL divergence over all draws, and the median ESS over nine sets of them."""
    found = [
        pg.evaluate(flow, target, key=evaluation_key(seed, i), n=8192, refine=2) for i in range(9)
    ]
    sizes, kls = ([getattr(f, name) for f in found] for name in ("ess", "kl"))
    # Of the exact constant: log Z from weights with a heavy tail is low.
    elbo = float(np.mean([f.elbo for f in found]))
    return {
        "ess_median": float(np.median(sizes)),
        "ess_lowest": float(min(sizes)),
        "ess_highest": float(max(sizes)),
        "kl": float(target.log_z) - elbo,
        "kl_err": float(np.std(kls, ddof=1) / len(kls) ** 0.5),
    }


def train(
    flow: pg.Flow,
    target: pg.Target,
    method: pg.AbstractMethod,
    seed: int,
    seconds: float,
    steps: int,
) -> dict[str, float]:
    """Train for so long, and say what became of it."""
    fit = pg.fit(
        flow,
        target,
        method,
        key=keys(seed)[1],
        steps=steps,
        max_seconds=seconds,
    )
    took = {"steps": fit.history[-1].step, "seconds": fit.seconds}
    return took | judged(fit.flow, target, seed)


def main() -> None:
    """Run all methods for all seeds and write down what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("dim", type=int)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    target = TARGETS[given.target](given.dim)
    options = FlowOptions(width=32, depth=1, solver_steps=10)
    rows = []
    for seed in range(given.seeds):
        flow = make_flow(options, target.shape, key=keys(seed)[0])
        cost = seconds_a_step(flow, target, given.rate, given.batch)
        steps = int(MARGIN * given.seconds / cost)
        methods = {"adam": adam(given.rate, steps, given.batch), "gauss-newton": pg.GaussNewton()}
        for share in SHARES:
            first = int(share * steps)
            both = [(adam(given.rate, first, given.batch), first), (pg.GaussNewton(), FOR_EVER)]
            methods[f"stages {share:.0%}"] = pg.Stages(both)
        for name, method in methods.items():
            began = time.monotonic()
            # Adam stops where its rate has become zero; the others use up their time.
            end = steps if name == "adam" else FOR_EVER
            found = train(flow, target, method, seed, given.seconds, end)
            rows.append({"seed": seed, "method": name, "adam_steps": steps} | found)
            print(rows[-1], f"{time.monotonic() - began:.0f} s in all", flush=True)
            about = {"target": given.target, "dim": given.dim, "flow": dataclasses.asdict(options)}
            about |= {"rate": given.rate, "batch": given.batch, "seconds": given.seconds}
            given.out.parent.mkdir(parents=True, exist_ok=True)
            made = about | {"runs": rows, "provenance": provenance()}
            given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
