"""Measure programs that do the same in different ways: compile, count, and let them take turns."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.random as jr

from .flops import count_flops, temporary_bytes_of
from .turns import median_and_spread, ratio, take_turns

# Which estimator is compared with which.
RATIOS = (("path", "total"), ("two-copy", "path"))


class Work(NamedTuple):
    """Something to measure.

    Attributes:
        function: Called with `arrays` and a key. Returns any arrays, and the field evaluations there and back
            (`None` where nobody counts).
        arrays: What it works on.
    """

    function: Callable[[Any, Any], tuple[Any, tuple[Any, Any] | None]]
    arrays: Any


def measure(
    works: Mapping[str, Work],
    *,
    repetitions: int,
    seed: int,
    say: Callable[[str], None],
    pairs: tuple[tuple[str, str], ...] = RATIOS,
) -> dict[str, Any]:
    """Return what each program costs, under `estimators`, and their `ratios`."""
    key = jr.key(seed)
    rows: dict[str, dict[str, Any]] = {}
    runs = {}
    for name, work in works.items():
        say(f"compiling {name}")
        began = time.perf_counter()
        compiled = jax.jit(work.function).lower(work.arrays, key).compile()
        rows[name] = {"compile_seconds": time.perf_counter() - began}
        say(f"counting the FLOPs of {name}")
        rows[name] |= _counts(work, compiled, key)
        runs[name] = _runner(compiled, work.arrays, key)
    if repetitions:
        say(f"{repetitions} rounds of {', '.join(works)}")
    seconds, evaluations = take_turns(runs, repetitions)
    each = {name: _per_evaluation(seconds[name], evaluations[name]) for name in works}
    for name, row in rows.items():
        row |= _times(seconds[name], evaluations[name], each[name])
        rows[name] = {field: row[field] for field in sorted(row, key=_ORDER.index)}
    ratios = {
        f"{a} / {b}": _ratios(rows[a], rows[b], seconds, each, (a, b))
        for a, b in pairs
        if a in rows and b in rows
    }
    return {"estimators": rows, "ratios": ratios}


_ORDER = (
    "seconds",
    "seconds_spread",
    "flops",
    "temporary_bytes",
    "compile_seconds",
    "evaluations",
    "evaluations_backward",
    "seconds_per_evaluation",
    "flops_of_program",
    "flops_of_loop_bodies",
    "argument_bytes",
    "seconds_all",
)


def _counts(work: Work, compiled: Any, key: Any) -> dict[str, Any]:
    flops = count_flops(work.function, work.arrays, key)
    return {
        "flops": flops.whole,
        "flops_of_program": flops.program,
        "flops_of_loop_bodies": flops.bodies,
        "temporary_bytes": temporary_bytes_of(compiled),
        "argument_bytes": int(compiled.memory_analysis().argument_size_in_bytes),
    }


def _runner(compiled: Any, arrays: Any, key: Any) -> Callable[[int], tuple[int, int] | None]:
    def run(i: int) -> tuple[int, int] | None:
        _, counts = jax.block_until_ready(compiled(arrays, jr.fold_in(key, i)))
        return None if counts is None else (int(counts[0]), int(counts[1]))

    return run


def _per_evaluation(seconds: list[float], evaluations: list[Any]) -> list[float]:
    if any(counts is None for counts in evaluations):
        return []
    return [s / sum(counts) for s, counts in zip(seconds, evaluations, strict=True)]


def _times(seconds: list[float], evaluations: list[Any], each: list[float]) -> dict[str, Any]:
    """Return times and evaluations; `None` where nothing was run."""
    found = median_and_spread(seconds) if seconds else {"median": None, "spread": None}
    there, back = zip(*evaluations, strict=True) if each else ((), ())
    return {
        "seconds": found["median"],
        "seconds_spread": found["spread"],
        "seconds_all": seconds,
        "evaluations": statistics.mean(there) if there else None,
        "evaluations_backward": statistics.mean(back) if back else None,
        "seconds_per_evaluation": statistics.median(each) if each else None,
    }


def _ratios(
    above: dict[str, Any],
    below: dict[str, Any],
    seconds: dict[str, list[float]],
    each: dict[str, list[float]],
    pair: tuple[str, str],
) -> dict[str, Any]:
    a, b = pair
    timed = {
        "seconds": ratio(seconds[a], seconds[b]) if seconds[a] else None,
        "seconds_per_evaluation": ratio(each[a], each[b]) if each[a] and each[b] else None,
    }
    counted = ("flops", "temporary_bytes")
    return timed | {name: above[name] / below[name] if below[name] else None for name in counted}
