"""The default fit beside what else people use, on the eight real posteriors: NumPyro, BlackJAX and NUTS.

    taskset -c 0 python -m benchmarks.posteriors --out results/posteriors --seeds 1

It needs NumPyro and BlackJAX. Each fit has a process of its own. NumPyro's guides get as many CPU seconds as
the default fit took on the same posterior, all compiling included; Pathfinder and NUTS take what they take.
It writes a record for each fit, and posteriors.md; after an interruption, the same command does what is
missing. A quarter of an hour a seed on one core.
"""

import argparse
import json
import math
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from pathgrad._bench.record import stopwatch
from pathgrad._runs.files import write_atomically

POSTERIORS = (
    "eight_schools_noncentered", "arK", "garch11", "one_comp_mm_elim_abs",
    "low_dim_gauss_mix", "hmm_example", "logearn_interaction", "nes2000",
)  # fmt: skip
ORDER = ("pathgrad", "normal", "iaf", "bnaf", "pathfinder", "nuts")
HEAD = (
    "posterior", "method", "seed", "error of means", "weighted", "error of sds", "weighted",
    "ESS, %", "k-hat", "gradients", "CPU s",
)  # fmt: skip
OVERALL = (
    "method", "means", "worst", "weighted means", "worst", "weighted sds", "worst", "ESS, %", "k-hat < 0.7",
    "gradients", "CPU s",
)  # fmt: skip
Record = dict[str, Any]


def main(words: list[str] | None = None) -> int:
    """Run the command and return the exit code: 1 if a fit failed."""
    given = parser().parse_args(words)
    say, records, failed = stopwatch(), [], 0
    command = shlex.join(
        ["python", "-m", "benchmarks.posteriors", *(sys.argv[1:] if words is None else words)]
    )
    for seed in range(given.seeds):
        for name in given.only or POSTERIORS:
            seconds = None
            for method in [one for one in ORDER if one in given.methods]:
                path = given.out / f"{name}-{method}-s{seed}.json"
                if given.overwrite or not path.exists():
                    job = json.dumps([name, method, seed, seconds, str(path), command])
                    line = [sys.executable, "-m", "benchmarks.posteriors", "--job", job]
                    failed += subprocess.run(line).returncode != 0
                if not path.exists():
                    continue
                record = json.loads(path.read_text())
                records.append(record)
                seconds = record["seconds"] if method == ORDER[0] else seconds
                say(" | ".join(row(record)))
                write_atomically(given.out / "posteriors.md", [markdown(records).encode()])
    return int(failed > 0)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, required=True, help="folder for the results")
    made.add_argument("--seeds", type=int, default=1, help="number of seeds, from 0 (default: 1)")
    made.add_argument("--only", nargs="+", default=[], choices=POSTERIORS, metavar="NAME", help="only these")
    made.add_argument("--methods", nargs="+", default=ORDER, choices=ORDER, help="only these (default: all)")
    made.add_argument("--overwrite", action="store_true", help="do again what is recorded")
    return made


def work(job: str) -> None:
    """Do one fit, and write its record."""
    name, method, seed, seconds, path, command = json.loads(job)
    import jax

    import pathgrad as pg
    from pathgrad._runs.provenance import package_version, provenance

    from .posterior_methods import METHODS, measured

    jax.config.update("jax_enable_x64", True)
    target = pg.targets.load(name)
    run, text = METHODS[method]
    drawn = run(target, jax.random.key(seed), seconds)
    numbers = {key: _number(value) for key, value in measured(target, drawn).items()}
    record = {
        "target": name, "dim": target.shape[0], "method": method, "text": text, "seed": seed,
        "numbers": numbers, "draws": len(drawn.x), "seconds": drawn.seconds, "given_seconds": seconds,
        "gradients": drawn.gradients, "more": drawn.more,
        "versions": {package: package_version(package) for package in ("numpyro", "blackjax")},
        "provenance": provenance() | {"command": command},
    }  # fmt: skip
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), [json.dumps(record, indent=1, allow_nan=False).encode() + b"\n"])


def _number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))


def row(record: Record) -> list[str]:
    """Return the cells of a record."""
    numbers = {key: float(value) for key, value in record["numbers"].items()}

    def cell(name: str, digits: int) -> str:
        value = numbers.get(name)
        if value is None:
            return "-"
        return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.1e}"

    gradients = f"{record['gradients']:,}" if record["gradients"] else "-"
    return [
        record["target"], record["text"], str(record["seed"]),
        *(cell(name, 3) for name in ("mean_error", "mean_error_weighted", "sd_error", "sd_error_weighted")),
        f"{100 * numbers['ess']:.2f}", cell("khat", 2), gradients, f"{record['seconds']:.1f}",
    ]  # fmt: skip


def overall(records: list[Record]) -> list[list[str]]:
    """Return a row for each method: medians over all posteriors and seeds, and the worst.

    Where there are no weights, weighted averages are plain ones.
    """
    rows = []
    for method in ORDER:
        mine = [record for record in records if record["method"] == method]
        if not mine:
            continue
        numbers = [{key: float(value) for key, value in record["numbers"].items()} for record in mine]
        errors = [
            [one.get(f"{what}_error{how}", one[f"{what}_error"]) for one in numbers]
            for what, how in (("mean", ""), ("mean", "_weighted"), ("sd", "_weighted"))
        ]
        worst = [f"{f(of):.3f}" if f(of) < 100 else f"{f(of):.1e}" for of in errors for f in (median, max)]
        good = [one["khat"] < 0.7 for one in numbers if "khat" in one]
        gradients = median(record["gradients"] for record in mine)
        rows.append([
            mine[0]["text"], *worst, f"{100 * median(one['ess'] for one in numbers):.2f}",
            f"{sum(good)} of {len(good)}" if good else "-", f"{gradients:,.0f}" if gradients else "-",
            f"{median(record['seconds'] for record in mine):.1f}",
        ])  # fmt: skip
    return rows


def markdown(records: list[Record]) -> str:
    """Return the tables."""
    lines = ["# Beside other methods", ""]
    for title, top, rows in (("", OVERALL, overall(records)), ("## All", HEAD, [row(r) for r in records])):
        lines += [title, ""] if title else []
        rule = ["---", *["---:"] * (len(top) - 1)]
        lines += [f"| {' | '.join(cells)} |" for cells in (top, rule, *rows)]
        lines.append("")
    commits = sorted({str(record["provenance"]["commit"]) for record in records})
    commands = sorted({str(record["provenance"]["command"]) for record in records})
    made = f"Made by {', '.join(f'`{c}`' for c in commands)} at {', '.join(f'`{c}`' for c in commits)}."
    return "\n".join([*lines, made, ""])


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--job":
        work(sys.argv[2])
    else:
        sys.exit(main())
