"""`pathgrad compare RUN RUN ...`."""

import dataclasses
import json
import statistics
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from pathgrad._errors import UserError
from pathgrad._train.rundir import RunDir

from .arguments import parse

# Column, where it is found, and how it is written. What evaluation found comes before training's last row.
_COLUMNS = (
    ("steps", "step", "{:.0f}"),
    ("train s", "seconds", "{:.1f}"),
    ("ESS", "ess", "{:.2%}"),
    ("KL", "kl", "{:.5f}"),
    ("k-hat", "khat", "{:.2f}"),
    ("grad norm", "gradient_norm", "{:.3g}"),
    ("skipped", "skipped", "{:.0f}"),
)


@dataclasses.dataclass(frozen=True)
class Compare:
    """Put runs side by side: a table, and with --plot a picture of their training.

    ESS and KL are those of `pathgrad evaluate` where a run has been evaluated as it is, else of the last
    block of its training (marked *). Runs that differ by their seed only are also summed up as mean ±
    standard deviation.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Directories of runs, finished or not."""
    plot: Path | None = None
    """Write ESS and gradient norm against step and time into this picture (.png, .svg, .pdf)."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """One run, read without JAX."""

    label: str
    group: str
    estimator: str
    numbers: dict[str, float | int | None]
    evaluated: bool
    rows: list[dict[str, Any]]


def run(prog: str, words: list[str]) -> int:
    """Print the table and draw the picture."""
    given = parse(Compare, prog, words)
    if not given.runs:
        raise UserError("name at least one run directory to compare.")
    summaries = [summarise(path) for path in given.runs]
    print_table(summaries)
    if given.plot is not None:
        plot(summaries, given.plot)
        print(f"picture: {given.plot}")
    return 0


def summarise(path: Path) -> Summary:
    """Read what a run says of itself."""
    found = RunDir.open(path)
    options = found.config.get("options", {})
    training = options.get("training", {})
    rows = found.read_metrics()
    numbers: dict[str, float | int | None] = dict(rows[-1]) if rows else {}
    evaluation = path / "evaluation.json"
    evaluated = False
    if evaluation.is_file():
        try:
            report = json.loads(evaluation.read_text())
        except (OSError, ValueError) as error:
            raise UserError(
                f"{evaluation} cannot be read ({error}); evaluate the run again."
            ) from error
        # An evaluation of an earlier step says nothing about a run that has gone on.
        evaluated = report.get("step") == numbers.get("step")
        if evaluated:
            numbers |= {name: report.get(name) for name in ("ess", "kl", "khat")}
    alike = json.dumps(_without_seed(found.config), sort_keys=True)
    return Summary(path.name, alike, training.get("estimator", "?"), numbers, evaluated, rows)


def _without_seed(config: dict[str, Any]) -> dict[str, Any]:
    options = dict(config.get("options", {}))
    options["training"] = {k: v for k, v in options.get("training", {}).items() if k != "seed"}
    return {"experiment": config.get("experiment"), "options": options}


def plot(summaries: list[Summary], path: Path) -> None:
    """Draw the training of the runs."""
    from pathgrad import _plots

    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"--plot must end in .png, .svg or .pdf, got {path}.")
    try:
        _plots.plot_comparison([(s.label, s.estimator, s.rows) for s in summaries], path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def print_table(summaries: list[Summary]) -> None:
    """Print a row for each run, and one for each group of seeds."""
    from rich.console import Console
    from rich.table import Table

    table = Table("run", "estimator", *[c[0] for c in _COLUMNS])
    for column in table.columns[2:]:
        column.justify = "right"
    for s in summaries:
        cells = [_cell(s, name, form) for _, name, form in _COLUMNS]
        table.add_row(s.label, s.estimator, *cells)
    groups: dict[str, list[Summary]] = {}
    for s in summaries:
        groups.setdefault(s.group, []).append(s)
    several = [group for group in groups.values() if len(group) > 1]
    if several:
        table.add_section()
    for group in several:
        table.add_row(
            f"mean of {len(group)} seeds",
            group[0].estimator,
            *[_mean(group, *c[1:]) for c in _COLUMNS],
        )
    # Elsewhere than on a terminal, wide enough never to wrap.
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    if not all(s.evaluated for s in summaries):
        print("* from the last block of training; `pathgrad evaluate RUN` measures it properly.")


def _cell(s: Summary, name: str, form: str) -> str:
    value = s.numbers.get(name)
    if value is None:
        return "-"
    return form.format(value) + ("*" if name in ("ess", "kl") and not s.evaluated else "")


def _mean(group: list[Summary], name: str, form: str) -> str:
    values = [v for s in group if (v := s.numbers.get(name)) is not None]
    if len(values) < 2:
        return "-"
    mark = "*" if name in ("ess", "kl") and not all(s.evaluated for s in group) else ""
    return f"{form.format(statistics.mean(values))} ± {form.format(statistics.stdev(values))}{mark}"
