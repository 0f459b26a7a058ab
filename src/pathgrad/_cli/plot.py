"""`pathgrad plot RUN ...`."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from pathgrad._errors import UserError

from . import compare
from .arguments import parse
from .compare.summary import Summary, names_of, read_evaluation, read_runs

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from pathgrad._plots import Evaluated


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw a figure of one or several runs from what they have written; nothing is computed anew.

    Fields, two-point, weights and observables are of lattice runs, images and evaluations of variational
    autoencoders. All but training, time and evaluations need `pathgrad evaluate RUN` before.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Directories of runs."""
    out: Path
    """Picture to write (.png, .svg, .pdf)."""
    figure: Literal[
        "all",
        "training",
        "time",
        "fields",
        "two-point",
        "weights",
        "observables",
        "images",
        "evaluations",
    ] = "all"
    """training: ESS against step and time, and gradient norm; of autoencoders the negative ELBO of the
    validation against epoch and time, and field evaluations. time: ESS against time on a logarithmic scale,
    for methods whose steps cannot be compared; the time of the runs they began with is counted. fields:
    draws of a lattice run. two-point: its two-point function. weights: histogram of log-weights.
    observables: deviations from known values. images: reconstructions by an autoencoder, and its draws.
    evaluations: field evaluations of its steps. all: the training of several runs, everything about a single
    lattice run or autoencoder."""


def run(prog: str, words: list[str]) -> int:
    """Draw the figure."""
    given = parse(Plot, prog, words)
    compare.check_picture(given.out, "--out")
    summaries = read_runs(given.runs)
    if summaries[0].dataset:
        _draw_autoencoders(given.figure, summaries, given.out)
        print(f"picture: {given.out}")
        return 0
    if given.figure in ("images", "evaluations"):
        raise UserError(
            f"{summaries[0].path} is not a variational autoencoder, and only of those there is --figure "
            f"{given.figure}: take --figure training."
        )
    single_lattice = len(summaries) == 1 and summaries[0].size is not None
    if given.figure == "time":
        compare.plot(summaries, given.out, time_alone=True)
    elif given.figure == "training" or (given.figure == "all" and not single_lattice):
        compare.plot(summaries, given.out)
    else:
        _draw(given.figure, summaries, given.out)
    print(f"picture: {given.out}")
    return 0


def _draw(kind: str, summaries: list[Summary], path: Path) -> None:
    from pathgrad import _plots

    names = names_of(summaries)
    runs = [_read(s, name) for s, name in zip(summaries, names, strict=True)]
    whole = kind == "all"
    figure = _plots.lattice_figure(*runs[0][1:4]) if whole else _plots.single_figure(kind, runs)
    _save(figure, path)


def _draw_autoencoders(kind: str, summaries: list[Summary], path: Path) -> None:
    from pathgrad import _plots

    if kind not in ("all", "training", "images", "evaluations"):
        raise UserError(
            f"{summaries[0].path} is a variational autoencoder, of which there is no --figure {kind}: take "
            "all, training, images or evaluations."
        )
    if kind == "images" and len(summaries) > 1:
        raise UserError(f"--figure images is of a single run, and {len(summaries)} are named.")
    if kind == "evaluations":
        _save(_plots.evaluations_figure(compare.trainings(summaries)), path)
    elif kind == "training" or len(summaries) > 1:
        compare.plot(summaries, path)
    else:
        _, rows, arrays, result, _ = _read_evaluated(summaries[0], "")
        if kind == "images":
            _save(_plots.pictures_figure(arrays, result), path)
        else:
            _save(_plots.images_figure(rows, arrays, result), path)


def _save(figure: "Figure", path: Path) -> None:
    from pathgrad import _plots

    try:
        _plots.save(figure, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def _read(s: Summary, name: str) -> "Evaluated":
    """Read what evaluation left of a lattice run."""
    if s.size is None:
        raise UserError(
            f"{s.path} is not a lattice run, and only of those more is kept than the training: take --figure "
            f"training, or look at evaluation.png after `pathgrad evaluate {s.path}`."
        )
    return _read_evaluated(s, name)


def _read_evaluated(s: Summary, name: str) -> "Evaluated":
    from pathgrad import _plots

    remedy = f"pathgrad evaluate {s.path}"
    result = read_evaluation(s.path)
    if result is None:
        raise UserError(f"{s.path} has not been evaluated: {remedy}")
    arrays = _read_arrays(s.path / "evaluation.npz", remedy)
    if not s.evaluated:
        print(
            f"pathgrad: the evaluation of {s.path} is of step {result.get('step')}, the run now at step "
            f"{s.numbers.get('step')}: {remedy}",
            file=sys.stderr,
        )
    return _plots.Evaluated(name, s.rows, arrays, result, s.estimator)


def _read_arrays(file: Path, remedy: str) -> "dict[str, np.ndarray]":
    import zipfile

    import numpy as np

    if not file.is_file():
        raise UserError(f"{file.parent} was evaluated without keeping its draws: {remedy}")
    try:
        with file.open("rb") as stream, np.load(stream) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{file} cannot be read ({error}): {remedy}") from error
