"""Axes: where a number lies on one, and which numbers stand beside it."""

import dataclasses
import math

import numpy as np

from pathgrad._plots.style import ess_ticks, ess_to_height, height_to_ess

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclasses.dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, drawn from `start` to `end` (in pixels; y grows downwards).

    `kind` is `linear`, `log`, or `ess`, on which each unit up is a tenth of what is missing to 100 %.
    """

    kind: str
    low: float
    high: float
    start: float
    end: float

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return where values lie; NaN for those that lie nowhere, as zero on a logarithmic axis."""
        bottom, top = _heights(self.kind, np.array([self.low, self.high]))
        share = (_heights(self.kind, np.asarray(values, float)) - bottom) / (top - bottom)
        return self.start + (self.end - self.start) * share

    @property
    def ticks(self) -> list[float]:
        """Numbers to write beside the axis."""
        if self.kind == "ess":
            return ess_ticks(self.low, self.high)
        return (
            log_ticks(self.low, self.high)
            if self.kind == "log"
            else nice_ticks(self.low, self.high)
        )

    def label(self, tick: float) -> str:
        """Write a tick."""
        if self.kind == "ess":
            return f"{round(100 * tick, 6):g} %"
        return power_of_ten(tick) if self.kind == "log" else short(tick)


def _heights(kind: str, values: np.ndarray) -> np.ndarray:
    if kind == "linear":
        return values
    if kind == "ess":
        return ess_to_height(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        heights = np.log10(values)
    return np.where(values > 0, heights, np.nan)


def fitting(kind: str, values: np.ndarray, start: float, end: float, room: float = 0.05) -> Scale:
    """Return an axis on which all finite values are seen, with some room around them."""
    values = values[np.isfinite(values)]
    values = values[values > 0] if kind == "log" else values
    if not values.size:
        low, high = (0.0, 0.9) if kind == "ess" else (1.0, 10.0)
        return Scale(kind, low, high, start, end)
    bottom, top = _heights(kind, np.array([values.min(), values.max()]))
    least = {"ess": 0.2, "log": 0.3}.get(kind, 0.02 * max(abs(top), abs(bottom)) or 1.0)
    more = max(room * (top - bottom), (least - (top - bottom)) / 2)
    bottom, top = bottom - more, top + more
    if kind == "ess":
        low, high = height_to_ess([max(bottom, -0.02), top])
    elif kind == "log":
        low, high = 10.0**bottom, 10.0**top
    else:
        low, high = bottom, top
    return Scale(kind, float(low), float(high), start, end)


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten within two numbers, at most so many."""
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 5, 10, 20):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [round(i * step, 12) for i in range(first, last + 1)]
    raise AssertionError("twenty times the power leaves at most five")


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return powers of ten within two numbers; where these span less than two, other round numbers too."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first >= 2:
        every = math.ceil((last - first + 1) / most)
        return [10.0**i for i in range(first, last + 1, every)]
    for factors in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        ticks = [f * 10.0**i for i in range(first - 1, last + 1) for f in factors]
        ticks = [t for t in ticks if low <= t * (1 + 1e-9) and t <= high * (1 + 1e-9)]
        if len(ticks) >= 3:
            return ticks
    return nice_ticks(low, high)


def short(value: float) -> str:
    """Write a number of an axis: 1,400 and 25k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = {"k": 1e3}.get(letter, size)
            return f"{value / unit:g}{letter}".replace("-", "−")
    return (f"{value:,.0f}" if value == round(value) else f"{value:g}").replace("-", "−")


def power_of_ten(value: float) -> str:
    """Write a number of a logarithmic axis: 0.05, 200, or 10⁻⁶."""
    exponent = math.log10(value)
    if 1e-3 <= value < 1e5 or abs(exponent - round(exponent)) > 1e-9:
        return short(float(f"{value:.3g}"))
    return "10" + str(round(exponent)).translate(_SUPERSCRIPTS)
