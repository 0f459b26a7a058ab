"""`pathgrad compare RUN RUN ...`."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

import pathgrad as pg
from pathgrad._show.figure import training_figure
from pathgrad._words.errors import UserError, as_options
from pathgrad._words.text import UNKNOWN

from .arguments import parse
from .outputs import PICTURES, check_output, write_picture
from .tables import escaped, print_table

_NOTE = "* from the last block of training; `pathgrad evaluate RUN` measures it properly."

Runs = Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]


@dataclasses.dataclass(frozen=True)
class Compare:
    """Compare runs: a table, which method is ahead, and with --plot a picture of their training.

    The table shows the results of `pathgrad evaluate` if they are up to date, otherwise those of the last
    block of training (marked *). Runs that differ only in their seed are also summarised as mean ± standard
    deviation. Groups that differ in their method are compared at equal steps and at equal training time, with
    a verdict on whether the difference is more than chance.
    """

    runs: Runs
    """Directories of runs, finished or not, or folders that contain such directories."""
    plot: Path | None = None
    """File for a picture of the training curves, against step (or epoch) and time (.png, .svg, .pdf)."""
    markdown: bool = False
    """Print the table as Markdown."""


def run(prog: str, words: list[str]) -> int:
    """Print the table and draw the picture."""
    given = parse(Compare, prog, words)
    if given.plot is not None:
        check_output(given.plot, *PICTURES, option="--plot")
    groups, _ = read_groups(given.runs)
    print_runs(groups, markdown=given.markdown)
    print_comparisons(groups)
    if given.plot is not None:
        print()
        write_picture(training_figure(groups), given.plot)
    return 0


def read_groups(paths: tuple[Path, ...]) -> tuple[list[pg.Group], list[tuple[Path, str]]]:
    """Return the runs at these paths in groups that differ only in their seed, and what cannot be read."""
    runs: list[pg.Run] = []
    broken: list[tuple[Path, str]] = []
    for path in pg.find_runs(paths):
        try:
            runs.append(pg.Run.open(path))
        except UserError as error:
            broken.append((path, error.text))
    if not runs:
        raise UserError(broken[0][1])
    for path, why in broken:
        print(f"not shown: {path}: {as_options(why)}", file=sys.stderr)
    return pg.group_runs(runs), broken


def print_comparisons(groups: list[pg.Group]) -> None:
    """Print which method is ahead, and by how much."""
    for comparison in pg.compare_groups(groups):
        print(f"\n{comparison.title}.")
        for sentence in comparison.sentences:
            print(f"  {sentence}")


def print_runs(groups: Sequence[pg.Group], *, markdown: bool = False) -> None:
    """Print a row for each run and one for each group of seeds, with warnings below."""
    results = {g.first.experiment.result(g.first.options).name: g for g in groups}
    if len(results) > 1:
        one, other = list(results.values())[:2]
        raise UserError(
            f"{one.first.path} ({one.problem}) and {other.first.path} ({other.problem}) have no number in "
            "common. Name runs of one kind."
        )
    columns = _columns(groups)
    problems = len({group.problem for group in groups}) > 1

    def row(name: str, group: pg.Group, runs: Sequence[pg.Run]) -> list[str]:
        where = [group.problem] if problems else []
        seeds = ", ".join(str(run.seed) for run in runs)
        return [name, *where, group.label, seeds, *(_cell(q, runs) for q in _as_written(columns, runs[0]))]

    rows = [row(n, g, [run]) for g in groups for n, run in zip(g.names, g.runs, strict=True)]
    means = [
        row(f"mean of {len(g.runs)} {'seeds' if g.has_other_seeds else 'runs'}", g, g.runs)
        for g in groups
        if len(g.runs) > 1
    ]
    heads = ["run", *(["problem"] if problems else []), "method", "seeds"]
    heads += [quantity.title for quantity in _as_written(columns, groups[0].first)]
    print_table(heads, rows, means, markdown=markdown)
    starred = any(cell.endswith("*") for row in (*rows, *means) for cell in row)
    for note in [*([_NOTE] if starred else []), *_notes(groups)]:
        print(f"\n{escaped(note)}" if markdown else note)


def _columns(groups: Sequence[pg.Group]) -> list[str]:
    """Return the names of the columns that have something to show."""
    every: dict[str, bool] = {}
    for group in groups:
        experiment, options = group.first.experiment, group.first.options
        for quantity in experiment.columns(options):
            values = [quantity.value(run.numbers) for run in group.runs]
            shown = any(values) if quantity.name == "skipped" else any(v is not None for v in values)
            shown = shown or quantity.name == experiment.result(options).name
            every[quantity.name] = every.get(quantity.name, False) or shown
    return [name for name, shown in every.items() if shown]


def _as_written(columns: list[str], run: pg.Run) -> list[pg.Quantity]:
    """Return the columns as the experiment of a run writes them, with its units."""
    known = {q.name: q for q in run.experiment.columns(run.options)}
    return [known.get(name, pg.Quantity(name, name)) for name in columns]


def _cell(quantity: pg.Quantity, runs: Sequence[pg.Run]) -> str:
    values = [v for run in runs if (v := quantity.value(run.numbers)) is not None]
    if len(values) < len(runs):  # a mean over fewer seeds than the row names would mislead
        return UNKNOWN
    text = quantity.write(values[0]) if len(values) == 1 else quantity.write_several(values)
    return text + ("*" if any(_is_provisional(quantity, run) for run in runs) else "")


def _is_provisional(quantity: pg.Quantity, run: pg.Run) -> bool:
    measured = [q.name for q in run.experiment.measured(run.options) if q.compared]
    return quantity.name in measured and not run.is_evaluated


def _notes(groups: Sequence[pg.Group]) -> list[str]:
    """Return the warnings that a reader of the table must know."""
    runs = [(n, r) for group in groups for n, r in zip(group.names, group.runs, strict=True)]
    return [f"{name}: {as_options(text)}" for name, run in runs for text in run.warnings]
