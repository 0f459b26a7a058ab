"""An evaluated run, as the figures see it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pathgrad._errors import UserError
from pathgrad._train.row import Number, Row, is_number

from .style import Look, Points, looks_of, points_of, shorten

Arrays = Mapping[str, np.ndarray]  # of `evaluation.npz`
Result = Mapping[str, Any]  # of `evaluation.json`

_WORDS = {"log_weight": "weights", "fields": "fields", "two_point": "two-point function"}


class MissingData(UserError):
    """A run has not what a figure shows."""


class Evaluated(NamedTuple):
    """An evaluated run.

    Attributes:
        label: For the legend; empty where the run is the only one.
        rows: Of `metrics.jsonl`.
        arrays: Of `evaluation.npz`.
        result: Of `evaluation.json`.
        estimator: Decides the colour, where there are several runs.
    """

    label: str
    rows: list[Row]
    arrays: Arrays
    result: Result
    estimator: str = "path"

    @property
    def short(self) -> str:
        """The label, short enough for a legend."""
        return shorten(self.label, 30)


def looks_for(runs: list[Evaluated]) -> list[Look]:
    """Return how each run is drawn."""
    return looks_of([run.estimator if len(runs) > 1 else "path" for run in runs])


def number_of(result: Result, name: str) -> Number | None:
    """Return a number that evaluation found, `None` where it found none."""
    value = result.get(name)
    return value if is_number(value) else None


def point_of(result: Result, x: str, y: str) -> Points:
    """Return what evaluation found as the only point of a curve, or no point."""
    return points_of([(number_of(result, x), number_of(result, y))])


def array_of(run: Evaluated, name: str) -> np.ndarray:
    """Return an array of a run, or say that there is none."""
    if name not in run.arrays:
        raise MissingData(f"the evaluation of {run.label or 'this run'} has no {_WORDS[name]}.")
    return run.arrays[name]
