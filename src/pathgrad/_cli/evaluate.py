"""`pathgrad evaluate RUN`."""

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from pathgrad._errors import UserError

from .arguments import parse


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Say how good a trained flow is: numbers with errors, a verdict, a picture.

    Divergences are exact, and a part of the draws is repeated with twice the solver steps. Prints one
    JSON object last; also writes evaluation.json and evaluation.png into the run.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    samples: int = 65536
    """Number of draws."""
    seed: int = 0
    """Decides the draws; independent of those of training."""


def run(prog: str, words: list[str]) -> int:
    """Evaluate and print."""
    given = parse(Evaluate, prog, words)
    if given.samples < 1:
        raise UserError(f"--samples must be at least 1, got {given.samples}.")
    result = evaluate_run(given.run, given.samples, given.seed)
    _print_table(result)
    print(json.dumps({name: _json(value) for name, value in result.items()}))
    return 0


def evaluate_run(path: Path, samples: int, seed: int) -> dict[str, Any]:
    """Evaluate a run, write evaluation.json and evaluation.png into it, and return what was found."""
    import jax

    import pathgrad as pg
    from pathgrad import _plots
    from pathgrad.experiments.problem import evaluation_key

    from .loading import load_run

    trained = load_run(path)
    problem, flow = trained.problem, trained.state.flow
    key = evaluation_key(trained.options.training.seed, seed)
    with _counting(samples) as tell:
        draws = pg.weighted_draws(flow, problem.target, key=key, n=samples, tell=tell)
        found = pg.evaluate(
            flow, problem.target, key=key, sample_target=problem.sample_target, draws=draws
        )
    result = dataclasses.asdict(found)
    if problem.log_z is not None:
        result["log_z_exact"] = problem.log_z
    result |= {"seed": seed, "step": int(trained.state.step), "run": str(path)}
    trained.run.write_json("evaluation.json", result)
    log_prob = jax.jit(jax.vmap(problem.target.log_prob)) if flow.shape == (2,) else None
    picture = trained.run.output("evaluation.png")
    _plots.plot_evaluation(trained.run.read_metrics(), draws, log_prob, picture)
    return result


def _counting(samples: int):
    """Show progress on a terminal; say nothing elsewhere, evaluation is short."""
    from contextlib import contextmanager

    @contextmanager
    def bar():
        if not sys.stderr.isatty():
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("drawing", total=samples)
            yield lambda done: progress.update(task, completed=done)

    return bar()


def _print_table(result: dict[str, Any]) -> None:
    def error(value: str) -> str:
        return f"{result[value]:.5f} ± {result[value + '_err']:.5f}"

    rows = [
        ("draws", f"{result['samples']} ({result['failed']} failed)"),
        ("ESS", f"{result['ess']:.3%}"),
        ("reverse KL", error("kl")),
        ("log Z", error("log_z")),
        ("ELBO", f"{result['elbo']:.5f}"),
        ("k-hat", f"{result['khat']:.2f}"),
        ("solver shift", f"{result['solver_shift']:+.1e} (log Z with twice the steps)"),
    ]
    if result["forward_ess"] is not None:
        rows.insert(2, ("forward ESS", f"{result['forward_ess']:.3%}"))
    if "log_z_exact" in result:
        rows.insert(5, ("exact log Z", f"{result['log_z_exact']:.5f}"))
    for name, value in rows:
        print(f"{name:>13}  {value}")
    print(f"{'verdict':>13}  {result['verdict']}")
    print(f"{'picture':>13}  {Path(result['run']) / 'evaluation.png'}")


def _json(value: Any) -> Any:
    """Strict JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
