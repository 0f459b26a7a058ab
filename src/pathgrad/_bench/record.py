"""Measurements, as they are written to JSON, and as text."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

# A flat description of what was measured, the costs of the programs by name under `estimators`, and the
# `ratios` of some of them, by names such as `path / total`.
Record = dict[str, Any]
Say = Callable[[str], None]


def stopwatch() -> Say:
    """Return a function that prints progress to standard error, with the time since this call."""
    began = time.monotonic()
    return lambda text: print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)


def spread(values: Sequence[float]) -> Record | None:
    """Return the median of several values, the smallest and the largest; `None` if there are no values."""
    return {"median": statistics.median(values), "spread": (min(values), max(values))} if values else None


def ratio(above: Record, below: Record, counts: Sequence[str]) -> Record:
    """Divide the costs of one program by those of another: times, and the exact counts with these names.

    Times are divided within each round, since a slow moment slows both. Division by zero gives `None`.
    """
    rounds = [a / b for a, b in zip(above["seconds_all"], below["seconds_all"], strict=True)]
    return {"seconds": spread(rounds)} | {n: above[n] / below[n] if below[n] else None for n in counts}


def write_spread(ratio: Record | None) -> str:
    """Write a median with its spread."""
    return "-" if ratio is None else f"{number(ratio['median'])} [{', '.join(map(number, ratio['spread']))}]"


def duration(seconds: float | None) -> str:
    """Write a time in a unit that suits it."""
    if seconds is None:
        return "-"
    unit, name = next((u for u in ((1.0, "s"), (1e-3, "ms")) if seconds >= u[0]), (1e-6, "us"))
    return f"{seconds / unit:.3g} {name}"


def number(ratio: float | None) -> str:
    """Write a ratio."""
    return "-" if ratio is None else f"{ratio:.3g}" if ratio >= 10 else f"{ratio:.2f}"
