"""Default fits of the benchmark's targets, each in a process of its own. No JAX here."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from pathgrad._words.errors import ArgumentError, UserError, check_at_least_one, check_at_most, named

from .record import Record, Say

DEFAULT_FIT = "pathgrad:fit"
DEFAULT_TARGETS = "pathgrad.targets"
_WORKER = "pathgrad._bench.fit_worker"
_MOST_SEEDS = 1000
# What a record must have in common with a job to count as done.
_SAME = ("target", "seed", "max_seconds", "fit")


@dataclasses.dataclass(frozen=True)
class FitJob:
    """One fit of one target.

    Attributes:
        target: Name of the target.
        seed: Seed of all random numbers.
        out: The file that the record is written to.
        max_seconds: Passed on to the fit; `None`: its own default.
        data: The data folder; `None`: the usual one.
        fit: Where the function is that fits, as `module:function`. It is called as `pathgrad.fit(target,
            key=key, max_seconds=max_seconds)`, and its result has `flow` and `evaluation`.
        command: The command line that asked for it, for the record.
        targets: The module whose `load(name, data)` returns the target.
    """

    target: str
    seed: int
    out: str
    max_seconds: float | None = None
    data: str | None = None
    fit: str = DEFAULT_FIT
    command: str | None = None
    targets: str = DEFAULT_TARGETS


def jobs_for(
    names: Iterable[str], known: Iterable[str], seeds: int, out: Path, **options: str | float | None
) -> list[FitJob]:
    """Return a job for each target and each seed from 0; by default for all targets that are known."""
    check_at_least_one(seeds=seeds)
    check_at_most(_MOST_SEEDS, seeds=seeds)
    known, chosen = tuple(known), list(dict.fromkeys(names))
    for name in chosen:
        if name not in known:
            raise UserError(f"There is no target {name!r}. Choose from: {', '.join(known)}.")
    limit = options.get("max_seconds")
    if isinstance(limit, float | int) and limit <= 0:
        raise ArgumentError(f"{named('max_seconds')} must be positive, got {limit}.")
    chosen = chosen or list(known)
    return [
        FitJob(name, seed, str(out / f"{name}-s{seed}.json"), **options)  # pyright: ignore[reportArgumentType]
        for name in chosen
        for seed in range(seeds)
    ]


def run_jobs(
    jobs: Iterable[FitJob], say: Say, *, overwrite: bool = False
) -> tuple[list[Record], list[FitJob]]:
    """Do the jobs that are not recorded yet; return the records of all, and the jobs that failed."""
    jobs = list(jobs)
    # All of them first, so that no fit is made in vain.
    done = {job: None if overwrite else _recorded(job) for job in jobs}
    records, failed = [], []
    for job in jobs:
        record = done[job]
        if record is not None:
            say(f"{job.target}, seed {job.seed}: kept")
        else:
            say(f"{job.target}, seed {job.seed}: fit")
            _in_new_process(job)
            record = _recorded(job)
        if record is None:
            failed.append(job)
        else:
            records.append(record)
    return records, failed


def _in_new_process(job: FitJob) -> None:
    path = Path(job.out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error
    # A compiled program would be used again, and memory would stay taken.
    subprocess.run([sys.executable, "-m", _WORKER, json.dumps(dataclasses.asdict(job))], stdout=sys.stderr)


def _recorded(job: FitJob) -> Record | None:
    """Return the record of a job; raise if there is one of another job, or if it is damaged."""
    path = Path(job.out)
    if not path.exists():
        return None
    again = f"Take another folder with {named('out')}, or measure it again with {named('overwrite')}."
    try:
        record = json.loads(path.read_text())
        other = [name for name in _SAME if record[name] != getattr(job, name)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as the record of a fit ({error}). {again}") from error
    if other:
        raise UserError(f"{path} was made with another {' and another '.join(other)}. {again}")
    return record
