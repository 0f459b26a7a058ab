"""`pathgrad evaluate RUN`."""

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

import pathgrad as pg
from pathgrad._numbers.quantity import measured_rows
from pathgrad._runs.experiment import experiment_names
from pathgrad._show.figure import overview_figure
from pathgrad._show.style import save
from pathgrad._train.progress import progress
from pathgrad._words.errors import UserError, as_options

from .arguments import bare_words, parse
from .processes import CpuDevices, Processes
from .tables import print_table
from .trusting import Trusting, check_notes, tell_notes

_DOC = """Measure how good a run is: numbers with errors, a picture, warnings, a verdict.

Divergences are exact, and part of the work is repeated with a finer solver. Prints one JSON object at the
end; also writes evaluation.json, evaluation.npz (arrays for further figures) and evaluation.png into the run.

A run that fits code from a file needs that code again. It is asked for (--density or --trust) if it is
outside the working directory or has changed since the training: reading should not run somebody's code.
"""

RunArgument = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN", help="Run directory.")]


def command_for(kind: type) -> type:
    """Return the dataclass of the command, for runs whose evaluation has these options."""
    seed = "Seed of the draws, which are independent of those of training."
    fields: list[Any] = [
        ("run", RunArgument),
        ("evaluation", kind, kind()),
        ("seed", Annotated[int, tyro.conf.arg(help=seed)], 0),
        ("trusting", Trusting, Trusting()),
        ("cpu_devices", CpuDevices, None),
        ("processes", Processes, Processes()),
    ]
    return dataclasses.make_dataclass("Evaluate", fields, frozen=True, namespace={"__doc__": _DOC})


def run(prog: str, words: list[str]) -> int:
    """Evaluate and print."""
    places = [i for i, word in enumerate(words) if (Path(word) / "config.toml").is_file()]
    places = places or bare_words(words, flags={"trust"})
    if not places:
        return _explain(prog, words)
    opened = pg.Run.open(words[places[0]])
    given: Any = parse(command_for(opened.experiment.EvaluateOptions), prog, words)
    opened = given.trusting.open(opened.path)
    check_notes(opened)
    given.processes.split_cpu(opened.experiment, given.cpu_devices, None)
    with given.processes.together("Evaluate again."):
        tell_notes(opened)
        evaluate(opened, given.evaluation, seed=given.seed)
    return 0


def _explain(prog: str, words: list[str]) -> int:
    """Print the help for all kinds of runs: the options depend on what was trained."""
    kinds: dict[type, list[str]] = {}
    for name in experiment_names():
        with contextlib.suppress(UserError):
            kinds.setdefault(pg.find_experiment(name).EvaluateOptions, []).append(name)
    for kind, names in kinds.items():
        if len(kinds) > 1:
            print(f"\n--- Runs of {', '.join(names)} ---\n")
        with contextlib.suppress(SystemExit):
            parse(command_for(kind), prog, words)
    return 0


def evaluate(opened: pg.Run, how: Any, *, seed: int, quiet: bool = False, as_json: bool = True) -> None:
    """Evaluate a run, draw its picture, and print the results."""
    is_first = pg.devices.is_first()
    with progress(visible=is_first, passing=True) as show:

        def tell(what: str, done: int, total: int) -> None:
            show(f"{what}: {done} of {total}", [done / total])

        result = opened.evaluate(how, seed=seed, tell=tell)
    if not is_first:
        return
    evaluated = pg.Run.open(opened.path, opened.experiment)
    picture = evaluated.directory.output("evaluation.png")
    try:
        save(overview_figure(evaluated), picture)
    except OSError as error:
        # The numbers are complete: do not lose them because of a picture.
        print(f"pathgrad: the picture could not be written: {error.strerror}.", file=sys.stderr)
    if not quiet:
        _print(evaluated, picture)
    if not quiet and as_json:
        print(json.dumps(result, allow_nan=False))


def _print(evaluated: pg.Run, picture: Path) -> None:
    """Print the results, with the verdict and the warnings last."""
    experiment, numbers = evaluated.experiment, evaluated.evaluation
    rows = [*measured_rows(experiment.measured(evaluated.options), numbers), ("picture", str(picture))]
    if evaluated.verdict is not None:
        rows += evaluated.verdict.rows(numbers, as_options)
    rows += [("warning", as_options(text)) for text in experiment.warnings(evaluated)]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:>{width}}  {value}")
    for table in experiment.tables(evaluated):
        print(f"\n{table.title}")
        rows = [list(row) for row in table.rows]
        for i in table.doubtful:
            rows[i][-1] += " !"
        print_table(table.heads, rows)
        if table.note:
            print(table.note)
