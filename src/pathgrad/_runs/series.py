"""Curves from rows of metrics: columns, means over seeds, rolling means, the range worth showing."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from .._train.row import Number, Row

Points = tuple[np.ndarray, np.ndarray]  # x and y of a curve


def column(rows: Iterable[Row], x: str, y: str) -> Points:
    """Return two numbers of the rows, by their names, where both are known."""
    return points_of([(row.value(x), row.value(y)) for row in rows])


def points_of(pairs: Sequence[tuple[Number | None, Number | None]]) -> Points:
    """Return the pairs in which both numbers are known."""
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    table = np.array(known, dtype=float).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def rolling_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return means over a window of an odd number of values around each, cut off at both ends."""
    half = window // 2
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    first, last = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def usual_window(count: int) -> int:
    """Return a window for so many values: a twentieth of them, or 1 if they are few."""
    return (count // 20) | 1 if count > 30 else 1


def mean_curve(curves: Sequence[Points]) -> Points:
    """Return the mean of interpolated curves (x, y), where all of them have begun and none has ended.

    Beyond the end of the shortest curve, it would jump to the mean of fewer curves.
    """
    if not curves or any(len(x) == 0 for x, _ in curves):
        return np.empty(0), np.empty(0)
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    grid = grid[(grid >= first) & (grid <= last)]
    return grid, np.mean([np.interp(grid, x, y) for x, y in curves], axis=0).reshape(grid.shape)


def interesting(curves: Sequence[Points]) -> tuple[float, float]:
    """Return the range of values worth showing, for curves that fall.

    It goes from the lowest to the highest value after the first tenth, but where the curves stay low for
    long, not far above most values: else the first fall would fill the panel and hide differences at the end.
    """
    end = max((x[-1] for x, _ in curves if len(x)), default=0.0)
    values = np.concatenate([*(y[x > 0.1 * end] for x, y in curves), np.empty(0)])
    values = values[np.isfinite(values)]
    if not values.size:
        return math.nan, math.nan
    low, mostly = float(values.min()), float(np.quantile(values, 0.75))
    return low, min(float(values.max()), low + 3 * (mostly - low) or math.inf)


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the number of seconds in a time unit that suits a duration, and the unit's name."""
    if seconds > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds > 600 else (1.0, "seconds")
