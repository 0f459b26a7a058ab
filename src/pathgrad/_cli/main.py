"""The entry point: find the command, run it, and turn errors into one line."""

import difflib
import importlib
import itertools
import sys
from collections.abc import Sequence

import pathgrad as pg
from pathgrad._runs.experiment import experiment_names
from pathgrad._runs.provenance import package_version
from pathgrad._words.errors import UserError, as_options

from . import streams
from .failures import HelpShown, explained

# Commands that do not train, and what they are for; the first word names the module that runs them.
COMMANDS = {
    "evaluate": "measure how good a run is: numbers with errors, a picture, a verdict",
    "sample": "draw from a run, with log-weights, into an .npz file",
    "compare": "compare several runs in a table and a picture",
    "report": "write one self-contained HTML page about one or many runs",
    "plot": "draw one figure of one or several runs: training, draws, weights, ...",
    "data list": "list image data sets and data of targets, and which of them you have",
    "data verify": "check data files against their known hashes",
    "data download": "download data sets from their original sources",
    "demo": "compare path and total gradient on one small target, in a minute",
    "bench targets": "fit densities with known answers, and compare with published numbers",
    "bench cnf": "measure the time and memory of a training gradient, by estimator",
}

# Commands of earlier versions, and what to type instead.
GONE = {"bench all": "`python -m benchmarks.study --out DIR`, at the root of a checkout of the repository"}

_HEAD = """\
usage: pathgrad COMMAND [OPTIONS]     (pathgrad COMMAND --help explains every option)

Trains normalizing flows with path gradients. They have the same mean as the usual gradient, and no noise
once the flow has reached its target.
"""

_TAIL = """\
A first session:
  pathgrad train toy --target banana --out runs/path
  pathgrad train toy --target banana --out runs/total --estimator total
  pathgrad compare runs/path runs/total --plot compare.png
  pathgrad evaluate runs/path
  pathgrad report runs/path runs/total --out report.html
A few large steps (least squares on the log-weights) instead of many small ones, for small flows:
  pathgrad train phi4 --size 6 --optimizer gauss-newton --out runs/L6
"""


def training_commands() -> dict[str, str]:
    """Return the commands that train, one for each installed experiment, and what they are for."""
    commands = {}
    for name in experiment_names():
        try:
            experiment = pg.find_experiment(name)
            commands[experiment.command] = experiment.summary
        except UserError as error:  # a broken package must not stop the other experiments
            commands[f"train {name}"] = str(error)
    return commands


def usage(prefix: str = "") -> str:
    """Return the overview of all commands, or of those that begin with a word."""
    every = training_commands() | COMMANDS
    every |= {f"bench {name}": f"the same for the experiment {name}" for name in experiment_names()}
    chosen = {n: text for n, text in every.items() if prefix in ("", n.split()[0])}
    width = max(map(len, chosen))
    lines = [f"  {name:<{width}}  {text}" for name, text in chosen.items()]
    return "\n".join([_HEAD, "commands:", *lines, "", _TAIL])


def find(words: list[str]) -> tuple[str, list[str]]:
    """Split the arguments into the name of a command and the rest.

    `train NAME` trains an experiment; so does `NAME` alone, unless it is the name of a command. `bench NAME`
    measures it.
    """
    experiments = experiment_names()
    known = [*COMMANDS, *(f"{verb} {name}" for verb in ("train", "bench") for name in experiments)]
    for typed in (words, ["train", *words]):
        for length in (2, 1):
            name = " ".join(typed[:length])
            if name in known:
                return name, typed[length:]
    if (gone := " ".join(words[:2])) in GONE:
        raise UserError(f"`{gone}` is no longer part of pathgrad. Use {GONE[gone]}.")
    first, given = words[0], " ".join(words[1:2])
    inner = [name.split()[1] for name in known if name.startswith(f"{first} ")]
    if inner:
        problem = f"there is no `{first} {given}`." if given else f"`{first}` needs a second word."
        raise UserError(f"{problem} Choose from: {', '.join(inner)}.{_hint(given, inner)}")
    firsts = list(dict.fromkeys(["train", *experiments, *(name.split()[0] for name in COMMANDS)]))
    raise UserError(f"there is no command {first!r}. Choose from: {', '.join(firsts)}.{_hint(first, firsts)}")


def _hint(given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 2 for what the user can change, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    streams.prepare()
    try:
        try:
            code = _run(words)
        finally:
            sys.stdout.flush()
    except UserError as error:
        return _refused(as_options(error.text))
    except KeyboardInterrupt:
        print("pathgrad: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        streams.give_up()
        return 1
    except HelpShown:
        raise
    except (Exception, SystemExit) as error:
        if (text := explained(error, words)) is None:
            raise
        return _refused(text)
    return code


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] == "--version":
        print(f"pathgrad {package_version('pathgrad')}")
        return 0
    groups = {"train", *(name.split()[0] for name in COMMANDS if " " in name)}
    if words[0] in groups and words[1:2] in (["-h"], ["--help"]):
        print(usage(words[0]))
        return 0
    if any(word == "" and before != "--title" for before, word in itertools.pairwise(["", *words])):
        raise UserError("One of the arguments is empty. Leave it out, or write what belongs there.")
    name, rest = find(words)
    try:
        module = importlib.import_module(f"pathgrad._cli.{name.split()[0]}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "pathgrad":
            raise
        raise UserError(
            f"the command line needs the package {error.name}, which is not installed: "
            'pip install "pathgrad[cli]"'
        ) from error
    return module.run(f"pathgrad {name}", rest)


def _refused(text: str) -> int:
    """Say why on one line, even if nothing can be printed any more where results go."""
    streams.give_up_if_full()
    print(f"pathgrad: {' '.join(text.splitlines())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
