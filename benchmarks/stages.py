"""Compare Adam with path gradients, Gauss-Newton, and both in one run, for the same training time.

    taskset -c 0 python -m benchmarks.stages funnel 10 --rate 0.015 --out funnel.json
    taskset -c 1 python -m benchmarks.stages correlated 20 --rate 0.03 --out correlated.json
    taskset -c 1 python -m benchmarks.stages phi4 8 --rate 0.01 --batch 128 --shares 0.5 --out phi4.json

Toy targets use an `MLPField` of width 32 and depth 1 with ten solver steps, as in
results/phi4/second_order.md, but with a learning rate that suits Adam and decays to zero within the given
time; lattices use the flow of the `fast` preset. A first run measures how many steps fit into that time. The
ESS of a funnel jumps from one set of draws to the next, so the result has its median over nine sets, and the
KL divergence, which does not jump.
"""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path

import jax.random as jr
import numpy as np
import optax

import pathgrad as pg
from pathgrad._runs.problem import evaluation_key, run_keys
from pathgrad._runs.provenance import provenance
from pathgrad.experiments.flows.making import make_flow
from pathgrad.experiments.options import FlowOptions, TrainOptions
from pathgrad.experiments.phi4.options import Phi4Options
from pathgrad.experiments.phi4.problem import build
from pathgrad.experiments.toy.targets import TARGETS

FOREVER = 10**6


def adam(rate: float, steps: int, batch: int) -> pg.FirstOrder:
    """Return Adam with a learning rate that decays to zero."""
    return pg.FirstOrder(optax.adam(optax.cosine_decay_schedule(rate, steps)), batch)


def seconds_a_step(flow: pg.Flow, target: pg.Target, rate: float, batch: int) -> float:
    """Return the time of a step of Adam in seconds, from a thousand steps without the first block."""
    trainer = pg.Trainer(pg.ReverseKL(target), adam(rate, FOREVER, batch), key=jr.key(0))
    rows = [row for _, row in trainer.blocks(trainer.init(flow), 1000)]
    return (rows[-1].seconds - rows[0].seconds) / (rows[-1].step - rows[0].step)


def problem(name: str, size: int, seed: int) -> tuple[pg.Flow, pg.Target, float]:
    """Return the untrained flow, its target, and the exact log normaliser."""
    if name == "phi4":
        lattice = build(Phi4Options(size, training=TrainOptions(seed=seed)))
        assert lattice.objective.log_z is not None
        return lattice.training.model, lattice.target, lattice.objective.log_z
    target = TARGETS[name](size)
    options = FlowOptions(width=32, depth=1, solver_steps=10)
    return make_flow(options, target.shape, key=run_keys(seed)[0]), target, float(target.log_z)


def judged(flow: pg.Flow, target: pg.Target, log_z: float, seed: int) -> dict[str, float]:
    """Return the KL divergence over all draws, and the median ESS over nine sets of them."""
    found = [pg.evaluate(flow, target, key=evaluation_key(seed, i), n=8192, refine=2) for i in range(9)]
    sizes, kls = ([getattr(f, name) for f in found] for name in ("ess", "kl"))
    # With the exact log Z: an estimate from weights with a heavy tail is too low.
    elbo = float(np.mean([f.elbo for f in found]))
    return {
        "ess_median": float(np.median(sizes)),
        "ess_lowest": float(min(sizes)),
        "ess_highest": float(max(sizes)),
        "kl": log_z - elbo,
        "kl_err": float(np.std(kls, ddof=1) / len(kls) ** 0.5),
    }


def main() -> None:
    """Run all methods with all seeds, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=[*sorted(TARGETS), "phi4"])
    parser.add_argument("dim", type=int, help="dimensions, or sites along an axis of the lattice")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument(
        "--margin",
        type=float,
        default=0.95,
        help="share of the steps that fit into the time, so that the decay reaches its end",
    )
    parser.add_argument("--methods", nargs="+", default=["adam", "gauss-newton"])
    parser.add_argument(
        "--shares",
        type=float,
        nargs="*",
        default=[0.98],
        help="shares of Adam's steps to take before Gauss-Newton takes over",
    )
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = []
    for seed in range(given.seeds):
        flow, target, log_z = problem(given.target, given.dim, seed)
        cost = seconds_a_step(flow, target, given.rate, given.batch)
        steps = int(given.margin * given.seconds / cost)
        methods = {"adam": adam(given.rate, steps, given.batch), "gauss-newton": pg.GaussNewton()}
        methods = {name: methods[name] for name in given.methods}
        for share in given.shares:
            first = int(share * steps)
            both = [(adam(given.rate, first, given.batch), first), (pg.GaussNewton(), FOREVER)]
            methods[f"stages {share:.0%}"] = pg.Stages(both)
        for name, method in methods.items():
            began = time.monotonic()
            # Adam stops when its rate has reached zero; the others use all of their time.
            end = steps if name == "adam" else FOREVER
            fit = pg.fit(flow, target, method, key=run_keys(seed)[1], steps=end, max_seconds=given.seconds)
            found = {"steps": fit.history[-1].step, "seconds": fit.seconds}
            found |= judged(fit.flow, target, log_z, seed)
            rows.append({"seed": seed, "method": name, "adam_steps": steps} | found)
            print(rows[-1], f"{time.monotonic() - began:.0f} s in all", flush=True)
            about = {name: value for name, value in vars(given).items() if name != "out"}
            given.out.parent.mkdir(parents=True, exist_ok=True)
            command = shlex.join(["python", "-m", "benchmarks.stages", *sys.argv[1:]])
            made = about | {"runs": rows, "provenance": provenance() | {"command": command}}
            given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
