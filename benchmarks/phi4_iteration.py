"""Time one training gradient of the published lattice model, by estimator (the paper's Table 3).

    python -m benchmarks.phi4_iteration > results/phi4/iteration.json

The `paper` preset (21/20 time kernels, 50/20 features, unit normal, 50 Runge-Kutta steps, backsolve) with a
batch that fits a small machine. The estimators take turns, so that whatever else the machine does meets all
of them. Times compare within one run of this program only; FLOPs and bytes are exact.
"""

import json
import statistics
import sys
import time

import equinox as eqx
import jax
import jax.random as jr

import pathgrad as pg
from pathgrad._train.rundir import provenance
from pathgrad.experiments.phi4.options import PRESETS
from pathgrad.experiments.phi4.problem import make_flow
from pathgrad.experiments.phi4.reference import COUPLINGS
from pathgrad.experiments.phi4.theory import Phi4

BATCHES = {12: 64, 20: 32, 32: 16}
REPETITIONS = 7
ESTIMATORS = {
    "path": pg.PathGradient(),
    "total": pg.TotalGradient(),
    "two-copy": pg.TwoCopyGradient(),
}


def measure(size: int, batch: int) -> dict:
    """Compile the gradient of each estimator and let them take turns."""
    target = Phi4(size, COUPLINGS[size])
    flow = make_flow(PRESETS["paper"].flow, target, jr.key(0))
    parameters, static = eqx.partition(flow, eqx.is_inexact_array)

    def program(estimator):
        def loss(parameters, key):
            whole = eqx.combine(parameters, static)
            return pg.reverse_kl(whole, target, key=key, n=batch, estimator=estimator)

        return jax.jit(jax.value_and_grad(loss)).lower(parameters, jr.key(0)).compile()

    programs = {name: program(estimator) for name, estimator in ESTIMATORS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for i in range(REPETITIONS + 1):  # the first round warms up
        for name, run in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(run(parameters, jr.key(i)))
            if i:
                seconds[name].append(time.perf_counter() - began)
    ratios = {
        "path / total": [a / b for a, b in zip(seconds["path"], seconds["total"], strict=True)],
        "two-copy / path": [
            a / b for a, b in zip(seconds["two-copy"], seconds["path"], strict=True)
        ],
    }
    return {
        "size": size,
        "batch": batch,
        "seconds": seconds,
        "median_seconds": {n: statistics.median(t) for n, t in seconds.items()},
        "median_ratio": {n: statistics.median(r) for n, r in ratios.items()},
        "ratio_range": {n: [min(r), max(r)] for n, r in ratios.items()},
        "flops": {n: p.cost_analysis()["flops"] for n, p in programs.items()},
        "temporary_bytes": {n: p.memory_analysis().temp_size_in_bytes for n, p in programs.items()},
    }


def main() -> None:
    """Measure and print."""
    rows = []
    for size, batch in BATCHES.items():
        rows.append(measure(size, batch))
        print(size, rows[-1]["median_seconds"], rows[-1]["median_ratio"], file=sys.stderr)
    made = provenance() | {"command": "python -m benchmarks.phi4_iteration"}
    print(json.dumps({"rows": rows, "provenance": made}, indent=2))


if __name__ == "__main__":
    main()
