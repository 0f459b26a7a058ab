"""Tries wrong calls of everything public. A program, which prints what each of them said as JSON.

In a process of its own: the tests check types as they go, which users of the library do not.
"""

import enum
import inspect
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import pathgrad as pg

from .api_calls import CALLS
from .api_right import results

SEED, PAIRS = 20, 150

# The library makes these, or code that extends it does: they hold what they are given.
HOLDERS = {
    "Agreement", "ArgumentError", "Batch", "Block", "Chain", "Comparison", "Decided", "Distances",
    "DivergenceCheck", "Draw", "Estimate", "Evaluation", "Expectation", "Findings", "Fit",
    "FlowProblem", "GradientCheck", "Group", "LocalMode", "Measurement", "MissingData",
    "ModeSearch", "NumpyroTarget", "OptionsTable", "Panel", "PerDraw", "Plan", "Precision",
    "Pulled", "Quantity", "Region", "ResultTable", "Row", "Run", "ScoreTerm", "Session",
    "SolveInfo", "Source", "Standing", "Status", "StepInfo", "Summary", "Tally", "TargetFit",
    "TrainState", "Trained", "Training", "TrainingDiverged", "TreeTarget", "UserError", "Verdict",
    "WarmStart", "Weighted",
}  # fmt: skip
# They have no arguments, or take anything; or they are called with arrays in the middle of a density.
FREE = {
    "Backsolve", "ClosedForm", "Exact", "PathGradient", "TotalGradient", "TwoCopyGradient",
    "Numbers", "choice_term", "freeze", "named", "number_in", "outcome_of", "tanh_and_log_cosh",
}  # fmt: skip


def is_left_out(name: str, value: Any) -> bool:
    """Say whether a public name needs no row of its own."""
    if not callable(value) or name in HOLDERS | FREE:
        return True
    is_protocol = getattr(value, "_is_protocol", False)
    return (
        inspect.isabstract(value) or is_protocol or (isinstance(value, type) and issubclass(value, enum.Enum))
    )


def without_a_row() -> list[str]:
    """Return public callables that nobody misuses here."""
    rows = {name.partition(" ")[0] for name in CALLS}
    missing = [n for n in dir(pg) if n not in rows and not is_left_out(n, getattr(pg, n))]
    missing += [
        f"metrics.{n}" for n, f in vars(pg.metrics).items() if _is_own(f) and f"metrics.{n}" not in rows
    ]
    return [n for n in missing if n not in ("metrics.gradient_norm", "metrics.gradient_snr")]  # of any tree


def _is_own(value: Any) -> bool:
    return (
        inspect.isfunction(value)
        and value.__module__ == pg.metrics.__name__
        and not value.__name__.startswith("_")
    )


def misuses() -> list[tuple[str, Callable[..., Any], dict[str, Any], list[str]]]:
    """Return calls with one wrong argument each, then some with two; and the names of the wrong ones."""
    found = []
    for name, (function, right, wrong) in CALLS.items():
        found += [
            (name, function, right | {a: value}, [a]) for a, values in wrong.items() for value in values
        ]
        if name != "from_numpyro":  # whose further arguments are those of the model
            found.append((name, function, right | {"no_such_argument": 1}, ["no_such_argument"]))
    for name in dir(pg):
        value = getattr(pg, name)
        if isinstance(value, type) and issubclass(value, enum.Enum):
            found.append((name, value, {"value": "no such member"}, [name]))
        elif inspect.isabstract(value):
            found.append((name, value, {}, [name]))
    rng = random.Random(SEED)
    for _ in range(PAIRS):
        name = rng.choice([n for n, (_, _, wrong) in CALLS.items() if len(wrong) > 1])
        function, right, wrong = CALLS[name]
        two = rng.sample(sorted(wrong), 2)
        found.append((name, function, right | {a: rng.choice(wrong[a]) for a in two}, two))
    return found


def tried(function: Callable[..., Any], given: dict[str, Any]) -> tuple[str | None, str]:
    """Return the kind of error of a call and its message; `None` if there was no error."""
    try:
        function(**given)
    except (ValueError, TypeError, pg.UserError) as error:
        return type(error).__name__, str(error)
    except Exception as error:
        return f"not an error of arguments: {type(error).__name__}", str(error)
    return None, ""


def main() -> None:
    """Try everything."""
    report = []
    for name, function, given, names in misuses():
        began = time.perf_counter()
        kind, text = tried(function, given)
        values = {n: repr(given.get(n))[:60] for n in names}
        report.append(
            {
                "call": name,
                "wrong": values,
                "kind": kind,
                "text": text,
                "seconds": time.perf_counter() - began,
            }
        )
    json.dump({"misuses": report, "without": without_a_row(), "right": results()}, sys.stdout)


if __name__ == "__main__":
    main()
