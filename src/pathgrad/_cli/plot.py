"""`pathgrad plot RUN ...`."""

import dataclasses
import sys
from pathlib import Path

import pathgrad as pg
from pathgrad._runs.panel import Panel
from pathgrad._show.curves import curve_panel, length_of
from pathgrad._show.figure import overview_figure, panel_figure, time_figure, training_figure
from pathgrad._words.errors import UserError

from .arguments import parse
from .compare import Runs, print_comparisons, read_groups
from .outputs import PICTURES, check_output, write_picture

_GENERAL = ("all", "training", "time")


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw a figure of one or several runs from their files; nothing is computed again.

    Besides training and time, each experiment has its own figures, such as weights and draws of a flow. Run
    `pathgrad evaluate RUN` before you draw those.
    """

    runs: Runs
    """Directories of runs, or folders that contain such directories."""
    out: Path
    """Picture to write (.png, .svg, .pdf)."""
    figure: str = "all"
    """training: curves against step (or epoch) and time. time: curves against time on a logarithmic scale,
    for methods whose steps cannot be compared; the time of runs from which they started counts too. all:
    everything about a single run, or the training of several. Or the name of one of the experiment's figures,
    or of a number that its training logs; a wrong name prints the list."""


def run(prog: str, words: list[str]) -> int:
    """Draw the figure."""
    given = parse(Plot, prog, words)
    check_output(given.out, *PICTURES)
    groups, _ = read_groups(given.runs)
    runs = [run for group in groups for run in group.runs]
    if given.figure in ("training", "time") or (given.figure == "all" and len(runs) > 1):
        figure = time_figure(groups) if given.figure == "time" else training_figure(groups)
        print_comparisons(groups)
    else:
        panel = None if given.figure == "all" else _panel(given.figure, groups)
        _warn_of_old(runs)
        figure = panel_figure(panel, groups) if panel else overview_figure(runs[0])
    write_picture(figure, given.out)
    return 0


def _panel(name: str, groups: list[pg.Group]) -> Panel:
    """Return the panel with this name; raise unless every group's experiment has it."""
    for group in groups:
        known = _offered(group.first)
        if name not in known:
            raise UserError(
                f"There is no --figure {name} for {group.problem}. Choose from "
                f"{', '.join([*_GENERAL, *known])}."
            )
    return _offered(groups[0].first)[name]


def _offered(run: pg.Run) -> dict[str, Panel]:
    """Return the panels of a run's experiment, and a curve for each number that its training logs."""
    curves = {q.name: curve_panel(q, length_of(run)) for q in run.experiment.curves(run.options)}
    return curves | dict(run.experiment.panels())


def _warn_of_old(runs: list[pg.Run]) -> None:
    for run in runs:
        if run.evaluation and not run.is_evaluated:
            print(
                f"pathgrad: the evaluation of {run.path} is from step {run.evaluation.get('step')}; the run "
                f"is now at step {run.last.step if run.last else 0}. To update it: {run.evaluate_command}",
                file=sys.stderr,
            )
