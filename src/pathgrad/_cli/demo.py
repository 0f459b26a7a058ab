"""`pathgrad demo`: the difference that the path gradient makes, in a minute."""

import dataclasses
import shlex
import time
from pathlib import Path

import pathgrad as pg
from pathgrad._show.figure import training_figure
from pathgrad._words.errors import UserError
from pathgrad.experiments.flows.experiment import FlowEvaluateOptions
from pathgrad.experiments.options import FlowOptions, TrainOptions
from pathgrad.experiments.toy.experiment import TOY, ToyOptions

from .arguments import parse
from .compare import print_comparisons, print_runs
from .evaluate import evaluate
from .outputs import write_picture
from .train import Where, train


@dataclasses.dataclass(frozen=True)
class Demo:
    """Train the same small flow twice, with the path and with the total gradient, and compare.

    Everything else is the same: target, flow, initial weights, noise, optimiser, number of steps.
    """

    out: Path = Path("demo")
    """Directory for both runs and the picture."""
    overwrite: bool = False
    """Replace an earlier demo there."""
    steps: int = 500
    """Training steps of each run."""
    seed: int = 0
    """Seed of all random numbers."""


_RUNS, _PICTURE = ("path", "total"), "comparison.png"


def run(prog: str, words: list[str]) -> int:
    """Train, evaluate, print the table, draw the picture."""
    began = time.monotonic()
    given = parse(Demo, prog, words)
    _check_free(given.out, overwrite=given.overwrite)
    where = Where(overwrite=given.overwrite)
    # A constant learning rate: a falling one would hide the noise that the demo is about.
    training = TrainOptions(steps=given.steps, seed=given.seed, decay="none", block=25)
    paths = [given.out / name for name in _RUNS]
    for estimator, path in zip(_RUNS, paths, strict=True):
        print(f"\n{estimator} gradient, a correlated and skewed target in two dimensions:", flush=True)
        chosen = dataclasses.replace(training, estimator=estimator)
        options = ToyOptions("correlated", flow=FlowOptions(solver_steps=8), training=chosen)
        again = f"pathgrad demo --out {shlex.quote(str(given.out))} --overwrite"
        if code := train(TOY, options, path, where, again=again):
            return code
        if estimator == "path":
            print(f"First result {time.monotonic() - began:.1f} s after the start.")
    for path in paths:
        evaluate(pg.Run.open(path), FlowEvaluateOptions(), seed=0, quiet=True)
    groups = pg.group_runs([pg.Run.open(path) for path in paths])
    print()
    print_runs(groups)
    print_comparisons(groups)
    norms = {group.method: group.first.at_end("gradient_norm") or 0.0 for group in groups}
    if all(norms.values()):
        ratio = f"{norms['total'] / norms['path']:.1f} times as long as the path gradient"
        print(f"\nAt the end the total gradient is {ratio}; the excess is noise.")
    write_picture(training_figure(groups), given.out / _PICTURE)
    print(f"Finished in {time.monotonic() - began:.0f} s.")
    return 0


def _check_free(out: Path, *, overwrite: bool) -> None:
    """Raise a `UserError` unless a demo may be written here."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file. Name a directory.")
    # (Not hidden files: a demo that was killed may have left an unfinished one, which the next one removes.)
    held = {path.name for path in out.iterdir() if path.name[0] != "."} if out.exists() else set()
    if held - {*_RUNS, _PICTURE}:
        raise UserError(f"{out} holds other files, so nothing was written there. Choose another --out.")
    if held and not overwrite:
        raise UserError(f"{out} already holds a demo. Choose another --out, or replace it with --overwrite.")
