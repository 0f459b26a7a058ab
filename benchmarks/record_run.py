"""Turn run directories into small records for `results/`, one JSON file per run.

    python -m benchmarks.record_run runs/phi4/L12-path-s0 --out results/phi4/runs
    python -m benchmarks.record_run runs/phi4/best-s* --out results/phi4/runs

The first command writes L12-path-s0.json. If a folder holds several runs, each gets its own file: the second
command writes best-s0-L6.json, best-s0-L8.json and so on. A record is one JSON object:

    experiment, options, provenance   as in config.toml
    status       how far the run got, in words
    seconds_before   training seconds of the runs that it started from, 0 if there are none in reach
    evaluation   as in evaluation.json; empty if the run was not evaluated
    curve        about 40 rows of metrics.jsonl, by column: the first, the last, the best, some between
    ending       means over the last twentieth of all rows

Numbers in `seconds_before`, `curve` and `ending` are rounded to six digits; the rest is copied unchanged.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pathgrad as pg
from pathgrad._runs.files import write_atomically
from pathgrad._train.row import Row
from pathgrad._words.errors import UserError, as_options

MOST_ROWS = 40
DIGITS = 6


def main(words: list[str] | None = None) -> int:
    """Run the command and return the exit code: 2 for bad input."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="a run, or a folder that holds runs"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the records")
    given = parser.parse_args(words)
    try:
        found = named(given.runs)
        given.out.mkdir(parents=True, exist_ok=True)
        for name, path in found.items():
            write_atomically(given.out / f"{name}.json", [text_of(record(pg.Run.open(path))).encode()])
    except OSError as error:
        print(f"benchmarks.record_run: {error}", file=sys.stderr)
        return 2
    except UserError as error:
        print(f"benchmarks.record_run: {as_options(error.text)}", file=sys.stderr)
        return 2
    print(f"records written to {given.out}: {len(found)}")
    return 0


def named(given: Sequence[Path]) -> dict[str, Path]:
    """Return the runs by the names of their records: folders from the given one down, joined by hyphens."""
    found: dict[str, Path] = {}
    for start in given:
        for path in pg.find_runs([start]):
            name = "-".join(path.resolve().relative_to(start.resolve().parent).parts)
            if found.setdefault(name, path) != path:
                raise UserError(f"{found[name]} and {path} would both become {name}.json.")
    return found


def record(run: pg.Run) -> dict[str, Any]:
    """Return what is kept of a run; refuse one with a damaged file."""
    if run.troubles:
        raise UserError(run.troubles[0])
    rows = thinned(run.rows, run.best)
    last = run.rows[-max(1, len(run.rows) // 20) :]
    return {
        "experiment": run.experiment.name,
        "options": run.options,
        "provenance": dict(run.provenance),
        "status": as_options(run.status.text),
        "seconds_before": rounded(run.seconds_before),
        "evaluation": run.evaluation,
        "curve": {name: [rounded(row.value(name)) for row in rows] for name in columns(rows)},
        "ending": {"rows": len(last)} | {name: mean_of(last, name) for name in columns(last)},
    }


def thinned(rows: Sequence[Row], best: Row | None) -> list[Row]:
    """Return at most `MOST_ROWS` rows, evenly spaced from the first to the last, and the best one."""
    kept = {*np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).round().astype(int).tolist()}
    return [row for i, row in enumerate(rows) if i in kept or row is best]


def columns(rows: Sequence[Row]) -> list[str]:
    """Return the names of the numbers in some rows, in the order in which they first occur."""
    return list(dict.fromkeys(name for row in rows for name in row.to_json()))


def mean_of(rows: Sequence[Row], name: str) -> float | None:
    """Return the mean of a number over the rows that have it."""
    known = [value for row in rows if (value := row.value(name)) is not None]
    return rounded(math.fsum(known) / len(known)) if known else None


def rounded(value: float | None) -> float | None:
    """Return a float with `DIGITS` digits; integers stay as they are."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def text_of(made: dict[str, Any]) -> str:
    """Return a record as JSON, each list of numbers on one line."""
    text = json.dumps(made, indent=1, allow_nan=False, ensure_ascii=False)
    return re.sub(r"\[\s([^][{}\"]*)\]", lambda numbers: f"[{' '.join(numbers[1].split())}]", text) + "\n"


if __name__ == "__main__":
    sys.exit(main())
