"""Print the cost of one training gradient: FLOPs and temporary bytes of the compiled program.

    python -m benchmarks.gradient_costs > results/core/gradient_costs.json

The field is a 64-1024-1024-64 perceptron, batch 64, ten Runge-Kutta steps, float32. Counts are exact and the
same on every run; `tests/test_costs.py` holds the bars they are measured against.
"""

import json

from tests.helpers import ADJOINTS, ESTIMATORS
from tests.test_costs import (
    BATCH,
    DIM,
    WIDTH,
    flops,
    once_per_solve,
    temporary_bytes,
    training_gradient,
)

import pathgrad as pg
from pathgrad._train.rundir import provenance


def main() -> None:
    """Count and print."""
    rows = []
    for divergence in ("hutchinson", "closed"):
        for adjoint in ADJOINTS:
            programs = {e: training_gradient(e, divergence, adjoint) for e in ESTIMATORS}
            row = {"divergence": divergence, "adjoint": adjoint}
            for name, count in (("flops", flops), ("temporary_bytes", temporary_bytes)):
                row[name] = {e: int(count(p)) for e, p in programs.items()}
                row[f"{name}_path_over_total"] = count(programs["path"]) / count(programs["total"])
                row[f"{name}_two_copy_over_path"] = count(programs["two-copy"]) / count(
                    programs["path"]
                )
            if divergence == "closed":
                loops = {e: flops(programs[e]) - once_per_solve(e) for e in ("path", "total")}
                row["flops_path_over_total_many_steps"] = loops["path"] / loops["total"]
            rows.append(row)
    memory = {
        steps: int(
            temporary_bytes(training_gradient("path", "closed", "backsolve", pg.FixedStep(steps)))
        )
        for steps in (10, 100, 1000)
    }
    sizes = {"dim": DIM, "width": WIDTH, "batch": BATCH, "solver_steps": 10}
    result = {"sizes": sizes, "rows": rows, "backsolve_bytes_by_steps": memory}
    made = provenance() | {"command": "python -m benchmarks.gradient_costs"}
    print(json.dumps(result | {"provenance": made}, indent=2))


if __name__ == "__main__":
    main()
