"""`pathgrad demo`: the difference the path gradient makes, in a minute."""

import dataclasses
import time
from pathlib import Path

from pathgrad.experiments.options import FlowOptions, TrainOptions
from pathgrad.experiments.toy import ToyOptions

from .arguments import Where, parse
from .processes import Processes


@dataclasses.dataclass(frozen=True)
class Demo:
    """Train the same small flow twice, by the path and by the total gradient, and compare.

    Everything else is equal: target, flow, first weights, noise, optimiser, number of steps.
    """

    out: Path = Path("demo")
    """Directory for both runs and the picture."""
    overwrite: bool = False
    """Replace an earlier demo there."""
    steps: int = 500
    """Training steps of each."""
    seed: int = 0
    """Decides all random numbers."""


def run(prog: str, words: list[str]) -> int:
    """Train, evaluate, print the table, draw the picture."""
    began = time.monotonic()
    given = parse(Demo, prog, words)
    from .compare import plot, print_table, summarise
    from .evaluate import evaluate_run
    from .training import train

    paths = {}
    for estimator in ("path", "total"):
        # A constant learning rate: a falling one would hide the noise that is the point here.
        training = TrainOptions(
            estimator=estimator, steps=given.steps, seed=given.seed, decay="none", block=25
        )
        paths[estimator] = given.out / estimator
        print(
            f"\n{estimator} gradient, a correlated and skewed target in two dimensions:", flush=True
        )
        flow = FlowOptions(solver_steps=8)
        options = ToyOptions(target="correlated", flow=flow, training=training)
        alone = Processes(processes=1)
        where = Where(paths[estimator], overwrite=given.overwrite, together=alone)
        code = train("toy", options, where)
        if code:
            return code
        if estimator == "path":
            print(f"First result {time.monotonic() - began:.1f} s after the start.")
    for path in paths.values():
        evaluate_run(path, samples=65536, seed=0)
    summaries = [summarise(path) for path in paths.values()]
    print()
    print_table(summaries)
    picture = given.out / "comparison.png"
    plot(summaries, picture)
    path_norm, total_norm = (s.numbers["gradient_norm"] for s in summaries)
    if path_norm and total_norm:
        print(
            f"At the end the total gradient is {total_norm / path_norm:.1f} times as long as the path "
            "gradient; what it has more is noise."
        )
    print(f"Picture: {picture}. All in {time.monotonic() - began:.0f} s.")
    return 0
