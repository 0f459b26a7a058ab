"""`pathgrad plot RUN ...`."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from pathgrad._errors import UserError

from . import compare
from .arguments import parse
from .compare.summary import Summary, names_of, read_evaluation, read_runs

if TYPE_CHECKING:
    from pathgrad._plots import Evaluated


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw a figure of one or several runs from what they have written; nothing is computed anew.

    All figures but those of the training are of lattice runs, and need `pathgrad evaluate RUN` before.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Directories of runs."""
    out: Path
    """Picture to write (.png, .svg, .pdf)."""
    figure: Literal["all", "training", "time", "fields", "two-point", "weights", "observables"] = (
        "all"
    )
    """training: ESS against step and time, and gradient norm. time: ESS against time on a logarithmic scale,
    for methods whose steps cannot be compared; the time of the runs they began with is counted. fields:
    draws of a lattice run. two-point: its two-point function. weights: histogram of log-weights.
    observables: deviations from known values. all: the training of several runs, everything about a single
    lattice run."""


def run(prog: str, words: list[str]) -> int:
    """Draw the figure."""
    given = parse(Plot, prog, words)
    compare.check_picture(given.out, "--out")
    summaries = read_runs(given.runs)
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
    try:
        _plots.save(figure, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def _read(s: Summary, name: str) -> "Evaluated":
    """Read what evaluation left of a run."""
    from pathgrad import _plots

    if s.size is None:
        raise UserError(
            f"{s.path} is not a lattice run, and only of those more is kept than the training: take --figure "
            f"training, or look at evaluation.png after `pathgrad evaluate {s.path}`."
        )
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


def _read_arrays(file: Path, remedy: str) -> dict[str, Any]:
    import zipfile

    import numpy as np

    if not file.is_file():
        raise UserError(f"{file.parent} was evaluated without keeping its draws: {remedy}")
    try:
        with file.open("rb") as stream, np.load(stream) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{file} cannot be read ({error}): {remedy}") from error
