"""`pathgrad bench targets`: the default fit, on densities with known answers."""

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import tyro

import pathgrad as pg
from pathgrad._bench.fit_tables import HEAD, remarks, row
from pathgrad._bench.fits import jobs_for, run_jobs
from pathgrad._bench.record import stopwatch
from pathgrad._words.errors import as_options
from pathgrad._words.paths import expanded

from .arguments import parse
from .tables import print_table

_Names = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...]")]


@dataclasses.dataclass(frozen=True)
class BenchTargets:
    """Fit targets with known answers, with nothing chosen, and compare with what others have published.

    Each fit runs in a process of its own, so that compile time counts and memory is given back, and is then
    measured by 65,536 fresh draws (8,192 in more than 500 dimensions). There is one JSON file for each target
    and seed; the same command after an interruption does what is missing.

    Quickest to try: `pathgrad bench targets banana arK`. Without names, all targets; they take about a minute
    each.
    """

    names: _Names = ()
    """Targets: funnel-10, banana, correlated-20, ring, two-modes, many-well-32, gmm40-2, gmm40-50; with data,
    credit, credit-prior, ionosphere, sonar, seeds (which has none), cox-1600, cox-1024; and the posteriors
    eight_schools_noncentered, arK, garch11, one_comp_mm_elim_abs, low_dim_gauss_mix, hmm_example,
    logearn_interaction, nes2000. By default all."""
    seeds: int = 1
    """Number of seeds: 3 means 0, 1 and 2."""
    max_seconds: float | None = None
    """Time that each fit may take. By default that of `fit`."""
    out: Path = Path("runs/targets")
    """Folder for the records."""
    overwrite: bool = False
    """Fit again what is recorded there."""
    data: Path | None = None
    """Folder of the data. By default the environment variable PATHGRAD_DATA, else one in your cache. To fetch
    them: `pathgrad data download targets`."""
    json: bool = False
    """Print the records as one JSON list instead of a table. (Progress goes to stderr.)"""


def run(prog: str, words: list[str]) -> int:
    """Fit what is missing; print all records that were asked for. The exit code is 1 if a fit failed."""
    given = parse(BenchTargets, prog, words)
    jobs = jobs_for(
        given.names, pg.targets.NAMES, given.seeds, given.out,
        max_seconds=given.max_seconds, data=None if given.data is None else str(expanded(given.data)),
        command=shlex.join([*prog.split(), *words]),
    )  # fmt: skip
    records, failed = run_jobs(jobs, stopwatch(), overwrite=given.overwrite)
    if given.json:
        print(json.dumps(records, indent=1, allow_nan=False))
    else:
        print_table(HEAD, [row(record) for record in records])
        for line in remarks(records):
            print(line)
        print(f"records: {given.out}")
    for job in failed:
        text = f"{job.target}, seed {job.seed}: the fit failed; what it said stands above."
        print(f"pathgrad: {as_options(text)}", file=sys.stderr)
    return 1 if failed else 0
