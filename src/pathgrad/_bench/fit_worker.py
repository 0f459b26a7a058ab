"""Do one fit and write its record: what `pathgrad bench targets` starts for each target and seed."""

import dataclasses
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.random as jr

import pathgrad as pg
from pathgrad._runs.files import write_atomically
from pathgrad._runs.machine import check_devices
from pathgrad._runs.provenance import provenance

from .fit_numbers import measured
from .fits import FitJob
from .record import Record

_COMPILING = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")
_MANY = 500  # dimensions
_DRAWS, _DRAWS_OF_MANY = 65_536, 8_192


def main(words: list[str]) -> None:
    """Do the job that the only argument describes, in JSON."""
    job = FitJob(**json.loads(words[0]))
    try:
        check_devices()
        record = done(job)
    except pg.UserError as error:
        raise SystemExit(f"{job.target}, seed {job.seed}: {error}") from error
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    write_atomically(Path(job.out), [text.encode()])


def done(job: FitJob) -> Record:
    """Fit the target, measure the flow with fresh draws, and return the record."""
    target = found(f"{job.targets}:load")(job.target, job.data)
    fit_key, measure_key = jr.split(jr.key(job.seed))
    compiling = _Compiling()
    wall, cpu = time.perf_counter(), time.process_time()
    fit = found(job.fit)(target, key=fit_key, max_seconds=job.max_seconds)
    seconds = {"compile": compiling.seconds, "cpu": time.process_time() - cpu}
    seconds["wall"] = time.perf_counter() - wall
    draws = _DRAWS_OF_MANY if target.shape[0] > _MANY else _DRAWS
    verdict = fit.evaluation.verdict
    return {
        "target": target.name,
        "dim": target.shape[0],
        "seed": job.seed,
        "max_seconds": job.max_seconds,
        "fit": job.fit,
        "known": {"log_z": target.log_z, "log_z_err": target.log_z_err},
        "published": [dataclasses.asdict(p) for p in target.published],
        "draws": draws,
        "numbers": measured(fit.flow, target, key=measure_key, draws=draws),
        "solver_shift": _number(fit.evaluation.solver_shift),
        "verdict": {"level": verdict.level.name, "reasons": [reason.name for reason in verdict.reasons]},
        "gradients": getattr(fit, "gradients", None),  # of the target; `None` if they were not counted
        "seconds": seconds,
        "provenance": provenance() | {"command": job.command},
    }


def found(place: str) -> Any:
    """Return what `module:name` names, such as a function."""
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise pg.UserError(f"There is no {place!r} (written `module:name`): {error}.") from error


def _number(value: Any) -> float | None:
    """Return a number as JSON can hold it; `None` for one that is missing or not finite."""
    return float(value) if value is not None and abs(float(value)) < float("inf") else None


class _Compiling:
    """Counts the seconds that this process spends compiling, from now on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._add)

    def _add(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event in _COMPILING:
            self.seconds += duration_secs


if __name__ == "__main__":
    main(sys.argv[1:])
