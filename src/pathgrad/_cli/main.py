"""The door: find the command, run it, and turn what goes wrong into one line."""

import difflib
import importlib
import sys
from typing import NamedTuple

from pathgrad._errors import UserError, as_options


class Command(NamedTuple):
    """Where a command lives and what it is for."""

    module: str
    summary: str


COMMANDS = {
    "train toy": Command("train", "fit a flow to a small target with known answers"),
    "train phi4": Command("train_phi4", "fit a flow to lattice phi^4 theory, as in the paper"),
    "train vae": Command("train_vae", "train a variational autoencoder on images, as in the paper"),
    "fit": Command("fit", "fit a flow to your own JAX log density"),
    "evaluate": Command(
        "evaluate", "ESS, KL, log Z, k-hat (of an autoencoder ELBO and NLL), with a picture"
    ),
    "sample": Command(
        "sample", "draw from a trained flow, with log-weights, or images, into an .npz file"
    ),
    "compare": Command("compare", "a table, and a picture, of several runs"),
    "report": Command("report", "one self-contained HTML page of one or many runs"),
    "plot": Command("plot", "one figure of one or several runs: training, fields, weights, ..."),
    "data list": Command("data", "the image data sets, and which of them are there"),
    "data verify": Command("data", "check the image files against their known hashes"),
    "data download": Command("data", "fetch image data sets from where they were published"),
    "bench cnf": Command("bench", "cost of a training gradient: time, FLOPs, memory, by estimator"),
    "bench phi4": Command("bench", "the same of a lattice flow"),
    "bench vae": Command("bench", "the same of an autoencoder"),
    "bench all": Command("bench", "a study of all costs, with tables and pictures"),
    "demo": Command("demo", "path against total gradient on one small target, in a minute"),
}

_HEAD = """\
usage: pathgrad COMMAND [OPTIONS]     (pathgrad COMMAND --help explains every option)

Trains normalizing flows with path gradients: the same mean as the usual gradient, and no noise where the
flow has reached its target.
"""

_TAIL = """\
A first session:
  pathgrad train toy --target banana --out runs/path
  pathgrad train toy --target banana --out runs/total --estimator total
  pathgrad compare runs/path runs/total --plot compare.png
  pathgrad evaluate runs/path
  pathgrad report runs/path runs/total --out report.html
Few, large steps by least squares on the log-weights, for small flows:
  pathgrad train phi4 --size 6 --optimizer gauss-newton --out runs/L6
"""


def usage(prefix: str = "") -> str:
    """Return the overview, of all commands or of those that begin with a word."""
    chosen = {n: c for n, c in COMMANDS.items() if not prefix or n.split()[0] == prefix}
    width = max(map(len, chosen))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in chosen.items()]
    return "\n".join([_HEAD, "commands:", *lines, "", _TAIL])


def find(words: list[str]) -> tuple[str, list[str]]:
    """Split the arguments into the name of a command and the rest."""
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in COMMANDS:
            return name, words[length:]
    first = words[0]
    inner = [n.split()[1] for n in COMMANDS if n.split()[0] == first and " " in n]
    if inner:
        given = words[1] if len(words) > 1 else ""
        said = f"there is no `{first} {given}`." if given else f"`{first}` needs one word more."
        raise UserError(f"{said} Choose from: {', '.join(inner)}.{_hint(given, inner)}")
    known = list(dict.fromkeys(n.split()[0] for n in COMMANDS))
    raise UserError(
        f"there is no command {first!r}. Choose from: {', '.join(known)}.{_hint(first, known)}"
    )


def _hint(given: str, known: list[str]) -> str:
    near = difflib.get_close_matches(given, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code: 2 for bad input, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] == "--version":
        from pathgrad._train.rundir import package_version

        print(f"pathgrad {package_version('pathgrad')}")
        return 0
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    if words[0] in groups and words[1:2] in (["-h"], ["--help"]):
        print(usage(words[0]))
        return 0
    try:
        name, rest = find(words)
        module = importlib.import_module(f"pathgrad._cli.{COMMANDS[name].module}")
        return module.run(f"pathgrad {name}", rest)
    except UserError as error:
        print(f"pathgrad: {as_options(error.text)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pathgrad: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
