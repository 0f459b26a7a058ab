"""Fit all targets with known answers, with several seeds, and write a table of them.

It does what `pathgrad bench targets` does, and more: it takes any function that fits, and writes targets.md.

    python -m benchmarks.targets --out results/targets --seeds 3
    python -m benchmarks.targets --out runs/mine --fit my_module:my_fit banana ring
    python -m benchmarks.targets --out results/targets/others --targets benchmarks.others

A function that fits is called as `pathgrad.fit(target, key=key, max_seconds=max_seconds)`. Its result has
`flow` and `evaluation`, as that of `pathgrad.fit`; if it also has `gradients`, the number of gradients of the
target that it took, that is recorded. Each target and seed gives one JSON file; after an interruption, the
same command does what is missing. Keep the machine quiet if you want to quote times.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pathgrad._bench.fit_tables import HEAD, remarks, row
from pathgrad._bench.fit_worker import found
from pathgrad._bench.fits import DEFAULT_FIT, DEFAULT_TARGETS, jobs_for, run_jobs
from pathgrad._bench.record import Record, stopwatch
from pathgrad._cli.tables import escaped
from pathgrad._runs.files import write_atomically
from pathgrad._words.errors import UserError, as_options
from pathgrad.targets.names import NAMES


class Options(argparse.Namespace):
    """The options of the command."""

    names: list[str]
    out: Path
    seeds: int
    max_seconds: float | None
    fit: str
    targets: str
    data: Path | None
    overwrite: bool


def main(words: list[str] | None = None) -> int:
    """Run the command and return the exit code: 1 if a fit failed, 2 for bad input, 130 after Ctrl-C."""
    given = parser().parse_args(words, Options())
    command = shlex.join(["python", "-m", "benchmarks.targets", *(sys.argv[1:] if words is None else words)])
    try:
        data = None if given.data is None else str(given.data)
        jobs = jobs_for(
            given.names, found(f"{given.targets}:NAMES"), given.seeds, given.out,
            max_seconds=given.max_seconds, data=data, fit=given.fit, command=command, targets=given.targets,
        )  # fmt: skip
        records, failed = run_jobs(jobs, stopwatch(), overwrite=given.overwrite)
        given.out.mkdir(parents=True, exist_ok=True)
        write_atomically(given.out / "targets.md", [markdown(records, command).encode()])
    except UserError as error:
        print(f"benchmarks.targets: {as_options(error.text)}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"benchmarks.targets: --out {given.out} cannot be written: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("benchmarks.targets: interrupted", file=sys.stderr)
        return 130
    for job in failed:
        print(f"benchmarks.targets: {job.target}, seed {job.seed}: the fit failed", file=sys.stderr)
    print(f"results: {given.out / 'targets.md'}")
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; or all")
    made.add_argument("--out", type=Path, required=True, help="folder for the results")
    made.add_argument("--seeds", type=int, default=1, help="number of seeds, from 0 (default: 1)")
    made.add_argument("--max-seconds", type=float, help="time of each fit; by default its own")
    made.add_argument("--fit", default=DEFAULT_FIT, metavar="MODULE:FUNCTION", help="what fits")
    made.add_argument("--targets", default=DEFAULT_TARGETS, metavar="MODULE", help="has NAMES and load(name)")
    made.add_argument("--data", type=Path, help="folder of the data; by default PATHGRAD_DATA")
    made.add_argument("--overwrite", action="store_true", help="fit again what is recorded")
    return made


def markdown(records: Sequence[Record], command: str) -> str:
    """Return the table of all records."""
    rows = [[escaped(cell) for cell in row(record)] for record in records]
    rule = ["---", *["---:"] * (len(HEAD) - 2), "---"]
    lines = [f"| {' | '.join(cells)} |" for cells in (HEAD, rule, *rows)]
    notes = [f"- {escaped(line)}" for line in remarks(records)]
    commits = sorted({str(record["provenance"]["commit"]) for record in records})
    made = f"Made by `{command}` at {', '.join(f'`{commit}`' for commit in commits)}."
    return "\n".join(["# Targets with known answers", "", *lines, "", *notes, "", made, ""])


if __name__ == "__main__":
    sys.exit(main())
