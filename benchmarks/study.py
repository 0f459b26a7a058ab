"""Measure what gradients cost, in several studies with tables and pictures.

They cover growth with dimension, steps, batch and volume, every divergence and adjoint, the published lattice
model, autoencoders, and other packages.

    python -m benchmarks.study --out results/bench --rivals
    python -m benchmarks.study --out runs/bench --quick --only steps

Each study writes STUDY.json and STUDY.png when it is done; bench.md has all tables. After an interruption,
the same command continues with the studies that are missing. It takes about twenty minutes on two idle CPU
cores; leave the machine alone meanwhile.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

from pathgrad._bench.record import stopwatch
from pathgrad._runs.files import write_atomically
from pathgrad._words.errors import UserError, as_options

from .costs.figures import plot_costs
from .costs.records import StudyRecord
from .costs.rivals import check_installed
from .costs.studies import STUDIES, run_study
from .costs.tables import markdown


class Options(argparse.Namespace):
    """The options of the command."""

    out: Path
    only: list[str]
    quick: bool
    rivals: bool
    overwrite: bool


def main(words: list[str] | None = None) -> int:
    """Run the command and return the exit code: 2 for bad input, 130 after Ctrl-C."""
    given = parser().parse_args(words, Options())
    command = ["python", "-m", "benchmarks.study", *(sys.argv[1:] if words is None else words)]
    try:
        run(given, shlex.join(command))
        return 0
    except UserError as error:
        print(f"benchmarks.study: {as_options(error.text)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("benchmarks.study: interrupted", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, required=True, help="folder for the results")
    made.add_argument(
        "--only", nargs="+", choices=STUDIES, default=[], metavar="STUDY",
        help=f"do only these of {', '.join(STUDIES)}; by default all, rivals only with --rivals",
    )  # fmt: skip
    flags = {
        "quick": "small sizes, a few minutes: to see that it works, not to be quoted",
        "rivals": "also measure the lattice gradient in those of bijx and flowjax that are installed",
        "overwrite": "measure again what is there; without this, it is kept",
    }
    for name, explained in flags.items():
        made.add_argument(f"--{name}", action="store_true", help=explained)
    return made


def run(given: Options, command: str) -> None:
    """Measure the studies that were asked for and do not exist yet; write the tables of all that exist."""
    if "rivals" in given.only and not given.rivals:
        raise UserError("--only rivals needs --rivals.")
    names = [n for n in STUDIES if n in (given.only or STUDIES) and (n != "rivals" or given.rivals)]
    if "rivals" in names:
        check_installed()
    try:
        given.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {given.out} cannot be made: {error.strerror}.") from error
    # Check all of them first, so that no measurement is made in vain.
    kept = [] if given.overwrite else [name for name in names if is_there(given, name)]
    say = stopwatch()
    for name in names:
        if name in kept:
            say(f"{name}: kept, --overwrite measures it again")
        else:
            study = run_study(name, quick=given.quick, say=say)
            study["provenance"] = {**study["provenance"], "command": command}
            write(given.out, study)
    files = {name: given.out / f"{name}.json" for name in STUDIES}
    studies = {name: load(file) for name, file in files.items() if file.exists()}
    (given.out / "bench.md").write_text(markdown(studies))
    print(f"results: {given.out / 'bench.md'}")


def is_there(given: Options, name: str) -> bool:
    """Return whether a study has been measured; raise if that was with other options, or if it is damaged."""
    file = given.out / f"{name}.json"
    if not file.exists():
        return False
    quick = load(file)["quick"]
    if quick != given.quick:
        kind = "--quick" if quick else "whole"
        raise UserError(f"{file} is of a {kind} run: take another --out, or --overwrite to measure it again.")
    return True


def load(file: Path) -> StudyRecord:
    """Read a study."""
    try:
        study = json.loads(file.read_text())
        if study["study"] != file.stem:
            raise ValueError(f"it is the study {study['study']!r}")
        return study
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} cannot be read as a study ({error}): --overwrite measures it again."
        ) from error


def write(out: Path, study: StudyRecord) -> None:
    """Write a study and its picture."""
    text = json.dumps(study, indent=1, allow_nan=False) + "\n"
    try:
        write_atomically(out / f"{study['study']}.json", [text.encode()])
        plot_costs(study, out / f"{study['study']}.png")
    except OSError as error:
        raise UserError(f"{out} cannot be written to: {error.strerror}.") from error


if __name__ == "__main__":
    sys.exit(main())
