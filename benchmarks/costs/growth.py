"""How a cost grows: the exponent of a power law, fitted at large sizes."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .records import Row

QUANTITIES = ("seconds", "flops", "temporary_bytes")


class Exponent(NamedTuple):
    """A fit of log y = exponent * log x + constant.

    Attributes:
        exponent: Exponent of x.
        standard_error: Standard error from the scatter about the line; `None` for two points.
        points: Number of points in the fit.
        first: Smallest x among them.
    """

    exponent: float
    standard_error: float | None
    points: int
    first: float


def fit_exponent(x: Sequence[float | int], y: Sequence[float | int | None]) -> Exponent | None:
    """Fit a power law by least squares to the larger half of the range, on logarithmic scales.

    At small x constant costs dominate, whatever the law. The fit uses at least the three largest x, if there
    are so many. Points without y > 0 are left out; returns `None` if fewer than two x remain.
    """
    points = sorted((a, b) for a, b in zip(x, y, strict=True) if a > 0 and b and b > 0)
    if len({a for a, _ in points}) < 2:
        return None
    middle = math.sqrt(points[0][0] * points[-1][0])
    large = [p for p in points if p[0] >= middle * (1 - 1e-9)]
    large = large if len(large) >= 3 else points[-3:]
    log_x, log_y = np.log(np.array(large, float)).T
    centred = log_x - log_x.mean()
    slope = float(centred @ log_y / (centred @ centred))
    error = None
    if len(large) > 2:
        residual = log_y - log_y.mean() - slope * centred
        error = math.sqrt(float(residual @ residual) / (len(large) - 2) / float(centred @ centred))
    return Exponent(slope, error, len(large), large[0][0])


def growth(rows: Sequence[Row], variable: str, series_by: Sequence[str]) -> list[Row]:
    """Return the exponents of all costs of all programs, for each series of rows.

    Args:
        rows: Records, each with the costs of the programs under `estimators`.
        variable: Name of the growing variable.
        series_by: Names of the variables that distinguish the series.
    """
    fits: list[Row] = []
    for series in dict.fromkeys(tuple(row[name] for name in series_by) for row in rows):
        members = [row for row in rows if tuple(row[name] for name in series_by) == series]
        for program in members[0]["estimators"]:
            for quantity in QUANTITIES:
                values = [row["estimators"][program][quantity] for row in members]
                fit = fit_exponent([row[variable] for row in members], values)
                if fit is not None:
                    named = dict(zip(series_by, series, strict=True))
                    about = {"estimator": program, "quantity": quantity, "of": variable}
                    fits.append(named | about | fit._asdict())
    return fits
