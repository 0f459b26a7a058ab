"""`pathgrad compare RUN RUN ...`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from pathgrad._errors import UserError
from pathgrad._train.row import Row

from ..arguments import parse
from .elbo_table import print_elbo_table
from .equal_time import equal_times
from .summary import Summary, grouped, labels_of, plain_labels, read_runs
from .summary import summarise as summarise
from .table import print_table

if TYPE_CHECKING:
    from pathgrad._plots import Training


@dataclasses.dataclass(frozen=True)
class Compare:
    """Put runs side by side: a table, and with --plot a picture of their training.

    ESS and KL are those of `pathgrad evaluate` where a run has been evaluated as it is, else of the last
    block of its training (marked *). Runs that differ by their seed only are also summed up as mean ±
    standard deviation, and groups that differ by their estimator are compared at equal training time.

    Variational autoencoders are compared among themselves, by their negative ELBO and log-likelihood: in nats
    per image, for Frey Faces in bits per pixel.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Directories of runs, finished or not."""
    plot: Path | None = None
    """Write ESS and gradient norm against step and time into this picture (.png, .svg, .pdf); of autoencoders
    the negative ELBO of the validation against epoch and time, and field evaluations."""
    markdown: bool = False
    """Print the table as Markdown."""


def run(prog: str, words: list[str]) -> int:
    """Print the table and draw the picture."""
    given = parse(Compare, prog, words)
    if given.plot is not None:
        check_picture(given.plot, "--plot")
    summaries = read_runs(given.runs)
    (print_elbo_table if summaries[0].dataset else print_table)(summaries, markdown=given.markdown)
    for found in equal_times(summaries):
        print(f"\n{found.sentence()}")
    if given.plot is not None:
        plot(summaries, given.plot)
        print(f"{'' if not given.markdown else chr(10)}picture: {given.plot}")
    return 0


def check_picture(path: Path, option: str) -> None:
    """Refuse endings for which there is no picture."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{option} must end in .png, .svg or .pdf, got {path}.")


def plot(summaries: list[Summary], path: Path, *, time_alone: bool = False) -> None:
    """Draw the training of the runs, panels for each problem, or one panel with time alone."""
    from pathgrad import _plots

    check_picture(path, "--plot")
    runs = trainings(summaries, time_alone=time_alone)
    draw = _plots.plot_time if time_alone else _plots.plot_comparison
    if any(s.dataset for s in summaries):
        draw = _plots.plot_elbo
    try:
        draw(runs, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def trainings(summaries: list[Summary], *, time_alone: bool = False) -> "list[Training]":
    """Return the training of the runs as the pictures see it, groups together."""
    from pathgrad._plots import Training

    labels = (plain_labels(summaries) if time_alone else None) or labels_of(summaries)
    several = len({s.problem for s in summaries}) > 1
    return [
        Training(
            labels[s.group],
            s.estimator,
            _since_the_beginning(s) if time_alone else s.rows,
            s.problem if several or s.dataset else "",
        )
        for group in grouped(summaries)
        for s in group
    ]


def _since_the_beginning(s: Summary) -> list[Row]:
    """Return rows whose seconds include those of the runs that this one began with."""
    return [dataclasses.replace(row, seconds=row.seconds + s.seconds_before) for row in s.rows]
