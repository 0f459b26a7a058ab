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
from .processes import Processes
from .tables import print_table

_DOC = """Say how good a run is: numbers with errors, a picture, warnings, a verdict.

Divergences are exact, and a part of the work is repeated with a finer solver. Prints one JSON object last;
also writes evaluation.json, evaluation.npz (arrays for other pictures) and evaluation.png into the run.
"""

RunArgument = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN", help="Its directory.")]


def command_for(kind: type) -> type:
    """Return the dataclass of the command, for runs whose evaluation has these options."""
    said = "Decides the draws; independent of those of training."
    fields: list[Any] = [
        ("run", RunArgument),
        ("how", kind, kind()),
        ("seed", Annotated[int, tyro.conf.arg(help=said)], 0),
        ("together", Processes, Processes()),
    ]
    return dataclasses.make_dataclass("Evaluate", fields, frozen=True, namespace={"__doc__": _DOC})


def run(prog: str, words: list[str]) -> int:
    """Evaluate and print."""
    places = [i for i, word in enumerate(words) if (Path(word) / "config.toml").is_file()]
    places = places or bare_words(words, flags=set())
    if not places:
        return _explain(prog, words)
    opened = pg.Run.open(words[places[0]])
    given: Any = parse(command_for(opened.experiment.EvaluateOptions), prog, words)
    with given.together.together("Evaluate again."):
        evaluate(opened, given.how, seed=given.seed)
    return 0


def _explain(prog: str, words: list[str]) -> int:
    """Explain the options of all kinds of runs: which there are depends on what was trained."""
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


def evaluate(opened: pg.Run, how: Any, *, seed: int, quiet: bool = False) -> None:
    """Evaluate a run, draw its picture, and print what was found."""
    talks = pg.devices.is_first()
    with progress(visible=talks, passing=True) as show:

        def tell(what: str, done: int, total: int) -> None:
            show(f"{what}: {done} of {total}", [done / total])

        result = opened.evaluate(how, seed=seed, tell=tell)
    if not talks:
        return
    found = pg.Run.open(opened.path, opened.experiment)
    picture = found.directory.output("evaluation.png")
    try:
        save(overview_figure(found), picture)
    except OSError as error:
        # The numbers are there; do not lose them for a picture.
        print(f"pathgrad: the picture could not be written: {error.strerror}.", file=sys.stderr)
    if not quiet:
        _print(found, picture)
        print(json.dumps(result, allow_nan=False))


def _print(found: pg.Run, picture: Path) -> None:
    """Print what was found, and what it is worth last."""
    experiment, numbers = found.experiment, found.evaluation
    rows = [*measured_rows(experiment.measured(found.options), numbers), ("picture", str(picture))]
    if found.verdict is not None:
        rows += found.verdict.rows(numbers, as_options)
    rows += [("warning", as_options(text)) for text in experiment.warnings(found)]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:>{width}}  {value}")
    for table in experiment.tables(found):
        print(f"\n{table.title}")
        rows = [list(row) for row in table.rows]
        for i in table.doubtful:
            rows[i][-1] += " !"
        print_table(table.heads, rows)
        if table.note:
            print(table.note)
