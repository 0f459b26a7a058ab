"""Plant collapses, and see which of them the search of modes finds; and whether it is silent on good fits.

    python -m benchmarks.modes --out results/modes --seeds 20
    python -m benchmarks.modes --out runs/mine --seeds 2 --only two-modes-10

A planted flow is exact on one part of its target: a normal distribution on one mode, or on the core of a wide
tail. Its own draws see nothing wrong. Good fits are those of `pathgrad.fit`, with nothing chosen. It writes
modes.json and modes.md; after an interruption, the same command does what is missing. Half an hour on two
idle cores, most of them for the good fits.
"""

import argparse
import functools
import json
import math
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np

import pathgrad as pg
from pathgrad._bench.record import stopwatch
from pathgrad._default.inside import Inside
from pathgrad._runs.files import write_atomically
from pathgrad._runs.provenance import provenance
from pathgrad.experiments.phi4.theory import Phi4
from pathgrad.targets.mixtures import NormalBlobs, forty_blobs

CALLED = 0.01  # share of the mass in regions of a search that calls a collapse


class Case(NamedTuple):
    """A flow with something wrong, or nothing: what it is, how to make it, and the share that it has lost."""

    text: str
    make: Callable[[int], tuple[pg.Flow, Any]]
    lost: str  # in percent


def normal(mean: Any) -> pg.Flow:
    """Return the normal distribution with unit covariance around a mean."""
    mean = jnp.asarray(mean, float)
    return pg.Flow(pg.DiagonalNormal(mean, jnp.zeros_like(mean)))


def two_modes(dim: int, distance: float, lost: float, seed: int, width: float = 1.0) -> tuple[pg.Flow, Any]:
    """Return two normal distributions in a random direction, of which the flow has the first."""
    direction = np.random.default_rng(seed).standard_normal(dim)
    mean = jnp.asarray(distance * direction / np.linalg.norm(direction), float)

    def log_prob(x):
        first = math.log(1 - lost) - 0.5 * jnp.sum(x**2)
        second = math.log(lost) - 0.5 * jnp.sum((x - mean) ** 2) / width**2 - dim * math.log(width)
        return jnp.logaddexp(first, second)

    return normal(np.zeros(dim)), pg.LogDensity(log_prob, (dim,))


def any_two_modes(dim: int, seed: int) -> tuple[pg.Flow, Any]:
    """Return two modes at one of five distances, of which the flow has lost the one with a certain share."""
    distance, lost = (4.0, 6.0, 8.0, 12.0, 20.0)[seed % 5], (0.05, 0.2, 0.5, 0.95)[seed // 5 % 4]
    return two_modes(dim, distance, lost, seed)


def one_of_forty(dim: int, seed: int) -> tuple[pg.Flow, Any]:
    """Return forty normal distributions, of which the flow has one."""
    blobs: NormalBlobs = forty_blobs(dim)
    return normal(blobs.means[seed % 40]), blobs


def one_sign(size: int, coupling: float, seed: int) -> tuple[pg.Flow, Any]:
    """Return a lattice in the broken phase, and the best Gaussian around the fields of one sign."""
    target, sign = Phi4(size, coupling), 1 - 2 * (seed % 2)
    field = sign * math.sqrt(2 / coupling)  # where the potential is lowest
    found = pg.warm_start(target, key=jr.key(seed), start=np.full(target.shape, field))
    return pg.Flow(pg.StandardNormal(target.shape), [found.map]), target


def wide_tail(dim: int, wide: int, width: float, lost: float, seed: int) -> tuple[pg.Flow, Any]:
    """Return a narrow normal distribution with a wider one around it, in some directions or all."""
    axes = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0].astype(np.float32)
    scale = np.where(np.arange(dim) < wide, width, 1.0).astype(np.float32)

    def log_prob(x):
        u = axes @ x
        narrow = math.log(1 - lost) - 0.5 * jnp.sum(u**2)
        return jnp.logaddexp(narrow, math.log(lost / width**wide) - 0.5 * jnp.sum((u / scale) ** 2))

    return normal(np.zeros(dim)), pg.LogDensity(log_prob, (dim,))


PLANTED: dict[str, Case] = {}
for _dim in (2, 10, 20):
    PLANTED[f"two-modes-{_dim}"] = Case(
        f"one of two modes, 4 to 20 sd apart, in {_dim} dimensions",
        functools.partial(any_two_modes, _dim),
        "5 to 95",
    )
for _dim in (2, 50):
    PLANTED[f"gmm40-{_dim}"] = Case(
        f"39 of 40 modes, in {_dim} dimensions", functools.partial(one_of_forty, _dim), "97.5"
    )
for _size, _coupling in ((4, 0.5), (8, 0.7)):
    PLANTED[f"lattice-{_size}"] = Case(
        f"one sign of a lattice in the broken phase, {_size} x {_size}, coupling {_coupling}",
        functools.partial(one_sign, _size, _coupling),
        "50",
    )
for _dim, _wide, _width, _lost in ((2, 2, 10, 5), (10, 1, 10, 10), (20, 20, 10, 5)):
    PLANTED[f"tail-d{_dim}-{_wide}-{_width}"] = Case(
        f"a tail {_width} times as wide in {_wide} of {_dim} dimensions",
        functools.partial(wide_tail, _dim, _wide, _width, _lost / 100),
        str(_lost),
    )
HIDDEN = {
    f"needle-d{dim}": Case(
        f"a mode a hundredth as wide as the flow, 12 sd away, in {dim} dimensions",
        functools.partial(two_modes, dim, 12.0, 0.5, width=0.01),
        "50",
    )
    for dim in (2, 10)
}
GOOD = (
    *((name, seed) for name in ("funnel-10", "banana") for seed in range(3)),
    *((name, 0) for name in ("ring", "correlated-20", "two-modes", "credit", "seeds", "sonar")),
    *((name, 0) for name in ("arK", "eight_schools_noncentered", "garch11", "hmm_example")),
    *((name, 0) for name in ("logearn_interaction", "low_dim_gauss_mix", "nes2000", "one_comp_mm_elim_abs")),
)
_FIT_SECONDS = 45.0
Record = dict[str, Any]


def searched(flow: pg.Flow, target: Any, seed: int) -> Record:
    """Search, and return what is kept of it."""
    began = time.process_time()
    found = pg.search_modes(flow, target, key=jr.key(seed))
    return {
        "share": found.share,
        "share_err": found.share_err,
        "regions": len(found.regions),
        "gradients": found.gradients,
        "seconds": time.process_time() - began,
    }


def planted(case: Case, seeds: int) -> Record:
    """Search for what a planted flow has lost, with several seeds."""
    return summary([searched(*case.make(seed), seed) for seed in range(seeds)]) | {
        "text": case.text,
        "lost": case.lost,
    }


def summary(runs: list[Record]) -> Record:
    """Return what is told of several searches."""
    shares = [run["share"] for run in runs]
    return {
        "runs": len(runs),
        "called": sum(share > CALLED for share in shares),
        "share": statistics.median(shares),
        "shares": [round(share, 5) for share in shares],
        "gradients": statistics.median(run["gradients"] for run in runs),
        "cpu_seconds": statistics.median(run["seconds"] for run in runs),
    }


def good(name: str, seed: int) -> Record:
    """Fit a target with nothing chosen, and search once."""
    target = pg.targets.load(name)
    how = pg.Recipe(mode_search=False)  # it comes after, with more gradients than the time may allow
    fit = pg.fit(target, key=jr.key(seed), max_seconds=_FIT_SECONDS, recipe=how)
    centre = 0.0 if fit.start is None else fit.start.elbo
    inside = Inside(target, fit.start is not None, centre, fit.plan.double)
    found = summary([searched(*inside.of(fit.flow), seed)])
    return found | {"text": f"{name}, seed {seed}", "ess": fit.evaluation.ess, "khat": fit.evaluation.khat}


def main(words: list[str] | None = None) -> int:
    """Run the command and return the exit code: 1 if a collapse was missed or a good fit called."""
    given = parser().parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    file, say = given.out / "modes.json", stopwatch()
    command = shlex.join(["python", "-m", "benchmarks.modes", *(sys.argv[1:] if words is None else words)])
    records: dict[str, dict[str, Record]] = {"planted": {}, "hidden": {}, "good": {}}
    if file.exists() and not given.overwrite:
        records = json.loads(file.read_text())["records"]
    made = provenance()  # of the code that is running, whatever is committed meanwhile
    jobs: list[tuple[str, str, Callable[[], Record]]] = []
    for kind, cases in (("planted", PLANTED), ("hidden", HIDDEN)):
        jobs += [(kind, name, functools.partial(planted, case, given.seeds)) for name, case in cases.items()]
    jobs += [("good", f"{name}-s{seed}", functools.partial(good, name, seed)) for name, seed in GOOD]
    for kind, name, job in jobs:
        if name in records[kind] or (given.only and name not in given.only):
            continue
        record = records[kind][name] = job() | {"commit": made["commit"], "command": command}
        say(f"{name}: called {record['called']} of {record['runs']}, median share {record['share']:.4f}")
        whole = {"provenance": made, "records": records}
        write_atomically(file, [json.dumps(whole, indent=1).encode()])
        write_atomically(given.out / "modes.md", [markdown(records).encode()])
    missed = any(r["called"] < r["runs"] for r in records["planted"].values())
    return int(missed or any(r["called"] for r in records["good"].values()))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, required=True, help="folder for the results")
    made.add_argument("--seeds", type=int, default=20, help="searches of each planted collapse (default: 20)")
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help="do only these")
    made.add_argument("--overwrite", action="store_true", help="do again what is recorded")
    return made


def markdown(records: dict[str, dict[str, Record]]) -> str:
    """Return the tables."""
    lines = ["# Lost modes", ""]
    titles = {"planted": "Planted collapses", "hidden": "What cannot be found", "good": "Good fits"}
    for kind, title in titles.items():
        if not records[kind]:
            continue
        head = ["lost", *(["lost, %"] if kind != "good" else []), "called", "of", "median share found, %"]
        head[0] = "fit" if kind == "good" else head[0]
        rows = [[*head, "gradients", "CPU s"], ["---"] * (len(head) + 2)]
        for record in records[kind].values():
            lost = [record["lost"]] if kind != "good" else []
            share = f"{100 * record['share']:.2f}"
            cost = [f"{record['gradients']:,.0f}", f"{record['cpu_seconds']:.1f}"]
            rows.append([record["text"], *lost, str(record["called"]), str(record["runs"]), share, *cost])
        lines += [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    commits = sorted({str(record["commit"])[:7] for part in records.values() for record in part.values()})
    commands = sorted({record["command"] for part in records.values() for record in part.values()})
    made = f"Made by {', '.join(f'`{c}`' for c in commands)} at {', '.join(f'`{c}`' for c in commits)}."
    return "\n".join([*lines, made, ""])


if __name__ == "__main__":
    sys.exit(main())
