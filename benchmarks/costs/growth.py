"""How a cost grows: the exponent of a power law, fitted where it has come out."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .records import Row

QUANTITIES = ("seconds", "flops", "temporary_bytes")


class Exponent(NamedTuple):
    """A fit of log y = exponent * log x + constant.

    Attributes:
        exponent: Of x.
        standard_error: From the scatter about the line; `None` for two points, which leave none.
        points: How many the fit is of.
        first: The smallest x among them.
    """

    exponent: float
    standard_error: float | None
    points: int
    first: float


def fit_exponent(x: Sequence[float | int], y: Sequence[float | int | None]) -> Exponent | None:
    """Fit a power law by least squares to the larger half of the range, on logarithmic scales.

    At small x a cost is a constant and hardly grows, whatever its law. At least the three largest x are used,
    where there are so many. Points without a y > 0 are left out; `None` if there are not two.
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
        left = log_y - log_y.mean() - slope * centred
        error = math.sqrt(float(left @ left) / (len(large) - 2) / float(centred @ centred))
    return Exponent(slope, error, len(large), large[0][0])


def growth(rows: Sequence[Row], variable: str, series_by: Sequence[str]) -> list[Row]:
    """Return the exponents of all costs of all programs, for each series of rows.

    Args:
        rows: Records, each with the programs' costs under `estimators`.
        variable: Name of what grows.
        series_by: Names of what tells series apart.
    """
    found: list[Row] = []
    for series in dict.fromkeys(tuple(row[name] for name in series_by) for row in rows):
        own = [row for row in rows if tuple(row[name] for name in series_by) == series]
        for program in own[0]["estimators"]:
            for quantity in QUANTITIES:
                values = [row["estimators"][program][quantity] for row in own]
                fit = fit_exponent([row[variable] for row in own], values)
                if fit is not None:
                    named = dict(zip(series_by, series, strict=True))
                    told = {"estimator": program, "quantity": quantity, "of": variable}
                    found.append(named | told | fit._asdict())
    return found
