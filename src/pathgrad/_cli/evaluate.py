"""`pathgrad evaluate RUN`."""

import dataclasses
import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from pathgrad._errors import UserError, as_options
from pathgrad._verdict import read_verdict, table_rows

from .arguments import parse
from .evaluate_vae import check_arguments, evaluate_autoencoder, print_autoencoder
from .processes import Processes, is_first

if TYPE_CHECKING:
    import numpy as np

    from .loading import Trained

_SHOWN = 2**20  # how many numbers of the draws are kept for the picture
_KEPT = 2**14  # how many draws of a flow go into evaluation.npz


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Say how good a trained flow is: numbers with errors, a picture, warnings, a verdict.

    Divergences are exact, and a part of the draws is repeated with twice the solver steps. Prints one
    JSON object last; also writes evaluation.json, evaluation.png and evaluation.npz into the run (with some
    draws and their log-weights; of a lattice its two-point function too, of an autoencoder images).
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    samples: int | None = None
    """Number of draws, by default 65536. Of an autoencoder: draws for each image of the NLL, by default 5000
    (2000 for caltech)."""
    nll_images: int = 0
    """Of an autoencoder: how many test images, chosen at random, to estimate the likelihood of by importance
    sampling. This takes long; the ELBO is always of all test images."""
    data: Path | None = None
    """Of an autoencoder: folder of the images, if not where they were in training."""
    seed: int = 0
    """Decides the draws; independent of those of training."""
    refine: int | None = None
    """Times the solver steps of training to take. By default what the experiment recommends: 2 for lattice
    runs, else 1."""
    together: Processes = Processes()


def run(prog: str, words: list[str]) -> int:
    """Evaluate and print."""
    given = parse(Evaluate, prog, words)
    if given.samples is not None and given.samples < 1:
        raise UserError(f"--samples must be at least 1, got {given.samples}.")
    check_refine(given.refine)
    with given.together.together("Evaluate again."):
        result = evaluate_run(
            given.run, given.samples, given.seed, given.refine, given.nll_images, given.data
        )
        if is_first():
            _print(result)
    return 0


def _print(result: dict[str, Any]) -> None:
    """Print what was found, as JSON last."""
    if result.get("experiment") == "vae":
        print_autoencoder(result)
    else:
        _print_table(result)
    if result.get("observables"):
        _print_observables(result)
    print(json.dumps(result, allow_nan=False))


def check_refine(refine: int | None) -> None:
    """Raise unless solver steps can be multiplied by it."""
    if refine is not None and refine < 1:
        raise UserError(f"--refine must be at least 1, got {refine}.")


def evaluate_run(
    path: Path,
    samples: int | None,
    seed: int,
    refine: int | None = None,
    nll_images: int = 0,
    data: Path | None = None,
) -> dict[str, Any]:
    """Evaluate a run, write what was found and its picture into it, and return it as it is in JSON."""
    from .loading import load_run

    trained = load_run(path, data)
    # Before the long work, not after it.
    if not os.access(path, os.W_OK):
        raise UserError(f"{path} cannot be written to, and evaluation leaves its results there.")
    if trained.experiment != "vae":
        result, arrays, draws = _evaluate_flow(trained, samples or 65536, seed, refine)
        return _write(trained, result | {"seed": seed}, arrays, draws)
    check_arguments(samples, nll_images)
    found = {}
    for result, arrays in evaluate_autoencoder(
        trained, samples=samples, nll_images=nll_images, seed=seed, refine=refine or 1
    ):
        found = _write(trained, result | {"seed": seed}, arrays, {})
    return found


def _write(
    trained: "Trained",
    result: dict[str, Any],
    arrays: "dict[str, np.ndarray] | None",
    draws: "dict[str, np.ndarray]",
) -> dict[str, Any]:
    """Write what was found and its picture into the run, and return it as it is in JSON."""
    from pathgrad._train.rundir import provenance

    if not is_first():
        return result
    result |= {"run": str(trained.run.path), "provenance": provenance()}
    _write_arrays(trained, _some(draws) if arrays is None else arrays)
    # What is printed and returned is what a reader of the file finds: JSON without NaN.
    result = json.loads(trained.run.write_json("evaluation.json", result).read_text("utf-8"))
    try:
        _draw_picture(trained, draws, arrays, result)
    except OSError as error:
        # The numbers are there; do not lose them for a picture.
        print(f"pathgrad: the picture could not be written: {error.strerror}.", file=sys.stderr)
    return result


def _evaluate_flow(
    trained: "Trained", samples: int, seed: int, refine: int | None
) -> "tuple[dict[str, Any], dict[str, np.ndarray] | None, dict[str, np.ndarray]]":
    """Return the numbers, what was measured beyond weights, and the draws."""
    import pathgrad as pg
    from pathgrad.experiments.problem import evaluation_key

    problem, flow = trained.problem, trained.model
    factor: int = problem.evaluation_refine if refine is None else refine
    key = evaluation_key(trained.options.training.seed, seed)
    measurement = None if problem.measure is None else problem.measure(samples)
    with _counting(samples) as tell:
        chunks = pg.weighted_chunks(
            flow.refined(factor), problem.target, key=key, n=samples, tell=tell
        )
        draws = _draw(chunks, measurement)
        found = pg.evaluate(
            flow,
            problem.target,
            key=key,
            sample_target=problem.sample_target,
            refine=factor,
            draws=draws,
        )
    result = {"experiment": trained.experiment} | dataclasses.asdict(found)
    result["warnings"] = found.verdict.explain(result, as_options)
    result["verdict"] = found.verdict.to_json()
    result["solver_evaluations"] = round(found.evaluations * samples)  # of all draws
    result["refine"] = factor
    log_z, log_z_err = problem.objective.log_z, problem.objective.log_z_err
    if log_z is not None and log_z_err == 0:
        result["log_z_exact"] = log_z
    elif log_z is not None:
        result |= {"log_z_known": log_z, "log_z_known_err": log_z_err}
    result["step"] = int(trained.state.step)
    arrays = None
    if measurement is not None:
        more, arrays = measurement.finish(found)
        result |= more
    return result, arrays, draws


def _write_arrays(trained: "Trained", arrays: "dict[str, np.ndarray]") -> None:
    """Write what was measured, for other pictures."""
    import io

    import numpy as np

    from pathgrad._train.files import write_atomically

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    path = trained.run.output("evaluation.npz")
    try:
        write_atomically(path, [buffer.getbuffer()])
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def _some(draws: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
    """Return as many draws as a histogram and a scatter plot need."""
    n = min(len(draws["x"]), _KEPT)
    return {name: draws[name][:n] for name in ("x", "log_weight")}


def _draw(chunks: Any, measurement: Any) -> "dict[str, np.ndarray]":
    """Go through the chunks once; keep the weights, and of the points only what a picture shows."""
    import numpy as np

    parts: dict[str, list[np.ndarray]] = {"log_weight": [], "evaluations": [], "x": []}
    shown = 0
    for chunk in chunks:
        parts["log_weight"].append(chunk["log_weight"])
        parts["evaluations"].append(chunk["evaluations"])
        if measurement is not None:
            measurement.add(chunk)
        elif shown < _SHOWN:
            parts["x"].append(chunk["x"])
            shown += chunk["x"].size
    draws = {"evaluations": np.stack(parts["evaluations"])}
    return draws | {
        name: np.concatenate(parts[name]) for name in ("log_weight", "x") if parts[name]
    }


def _draw_picture(
    trained: "Trained",
    draws: "dict[str, np.ndarray]",
    arrays: "dict[str, np.ndarray] | None",
    result: dict[str, Any],
) -> None:
    """Draw what was found."""
    import jax

    from pathgrad import _plots

    rows, picture = trained.run.read_metrics(), trained.run.output("evaluation.png")
    if arrays is not None and trained.experiment == "vae":
        _plots.plot_images(rows, arrays, result, picture)
        return
    if arrays is not None:
        _plots.plot_lattice(rows, arrays, result, picture)
        return
    target = trained.problem.target
    log_prob = jax.jit(jax.vmap(target.log_prob)) if draws["x"].shape[1:] == (2,) else None
    # The picture wants a weight for each point.
    draws["log_weight"] = draws["log_weight"][: len(draws["x"])]
    _plots.plot_evaluation(rows, draws, log_prob, picture)


def _counting(samples: int):
    """Show progress on a terminal; say nothing elsewhere, evaluation is short."""
    from contextlib import contextmanager

    @contextmanager
    def bar():
        if not sys.stderr.isatty() or not is_first():
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("drawing", total=samples)

            def tell(done: int) -> None:
                last = "drawing" if done < samples else "checking the solver"
                progress.update(task, completed=done, description=last)

            yield tell

    return bar()


def _print_table(result: dict[str, Any]) -> None:
    """Print the numbers, and what they are worth last."""
    rows = table_rows(result)
    known = [name for name, _ in rows].index("log Z") + 1
    if "log_z_exact" in result:
        rows.insert(known, ("exact log Z", _form(result["log_z_exact"], ".5f")))
    if "log_z_known" in result:
        value = _with_error(result["log_z_known"], result["log_z_known_err"])
        rows.insert(known, ("known log Z", value))
    rows.append(("picture", str(Path(result["run"]) / "evaluation.png")))
    verdict = read_verdict(result)
    if verdict is not None:
        rows += verdict.rows(result, as_options)
    for name, value in rows:
        print(f"{name:>13}  {value}")


def _print_observables(result: dict[str, Any]) -> None:
    """Print what was measured beyond weights: by weighting, by Metropolis, and what is known."""
    rows = {**result["observables"], "ward_identity": result["ward_identity"]}
    widths = (25, 22, 22, 22)
    heads = ("", "weighted", "Metropolis", "known")
    print()
    print("".join(f"{h:>{w}}" for h, w in zip(heads, widths, strict=True)), "  deviation")
    for name, row in rows.items():
        cells = (
            name.replace("_", " ").replace(" z", " Z"),
            _with_error(row["value"], row["error"]),
            _with_error(row["mcmc_value"], row["mcmc_error"]),
            _with_error(row["reference"], row["reference_error"]),
        )
        line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        print(line, f"{_form(row['deviation'], '+.1f'):>10}")
    mcmc = result["mcmc"]
    taus = [row["mcmc_tau"] for row in rows.values() if row["mcmc_tau"] is not None]
    print(
        f"Metropolis accepts {_form(mcmc['acceptance'], '.2%')} (normal log-weights: "
        f"{_form(mcmc['acceptance_gaussian'], '.2%')}); autocorrelation time "
        f"{_form(mcmc['tau_rejections'], '.3f')} from rejections, "
        f"{_form(max(taus, default=None), '.3f')} at most over the observables."
    )


def _form(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)


def _with_error(value: float | None, error: float | None) -> str:
    """Write a number with its error, to two digits of the error."""
    if value is None:
        return "-"
    if not error:
        return f"{value:.6g}" + ("" if error is None else " exact")
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"
