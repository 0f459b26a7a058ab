"""Quantities of a run: what they are called, how they are written, and how they are plotted."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from .._words.text import UNKNOWN, Number, count, is_number, percent, several, with_error

Numbers = Mapping[str, object]
"""Numbers by name, read from a file that may hold anything."""


def number_in(numbers: Numbers | None, name: str) -> float | None:
    """Return a finite number by its name, or `None` if there is no such number."""
    value = (numbers or {}).get(name)
    return float(value) if is_number(value) else None


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A quantity of a run. Tables, curves, comparisons and pages are made of these.

    Attributes:
        name: Its key in a row of metrics or in evaluation.json (where its error is `NAME_err`).
        title: Its name in tables and figures.
        form: Its format, as for `str.format`; `share` for percentages and `count` for whole numbers.
        unit: The unit, written after the number.
        scale: The value in the file that makes one unit.
        axis: The axis of its curve; on `share` each step up is a tenth of what is missing to 100 %.
        means: What its curve shows, in a few words.
        better: Whether a larger value is better (1), a smaller one (-1), or neither (0).
        best: Whether a run is judged by its best value so far, instead of its last.
        compared: Whether tables of several runs have a column for it.
    """

    name: str
    title: str
    form: str = "{:.4g}"
    unit: str = ""
    scale: float = 1.0
    axis: Literal["linear", "log", "share"] = "linear"
    means: str = ""
    better: Literal[-1, 0, 1] = 0
    best: bool = False
    compared: bool = False

    def value(self, numbers: Numbers) -> float | None:
        """Return its value in its unit, or `None` if it is not known."""
        value = number_in(numbers, self.name)
        return None if value is None else value / self.scale

    def error(self, numbers: Numbers) -> float | None:
        """Return its standard error in its unit, or `None` if it is not known."""
        error = number_in(numbers, f"{self.name}_err")
        return None if error is None else error / self.scale

    def of(self, numbers: Numbers) -> str:
        """Write its value among the numbers of a file, with its error if there is one."""
        value, error = self.value(numbers), self.error(numbers)
        if value is None or error is None:
            return self.write(value)
        return percent(value, error) if self.form == "share" else with_error(value, error, self.unit)

    def write(self, value: Number | None) -> str:
        """Write a value."""
        if value is None:
            return UNKNOWN
        if self.form in ("share", "count"):
            return percent(value) if self.form == "share" else count(value)
        return self._with_unit(self.form.format(value))

    def write_several(self, values: Sequence[Number]) -> str:
        """Write the mean of values, and their standard deviation if there are several."""
        if self.form == "share":
            return f"{several([100 * v for v in values], '{:.2f}')} %"
        if self.form == "count":
            same = len(set(values)) == 1
            return count(values[0]) if same else several(values, "{:,.0f}")
        return self._with_unit(several(values, self.form))

    def write_difference(self, value: Number) -> str:
        """Write a difference of two values, with its sign."""
        if self.form == "share":
            return f"{100 * value:+.2f} points"
        form = "{:,.0f}" if self.form == "count" else self.form
        return self._with_unit(form.replace(":", ":+").format(value))

    def _with_unit(self, text: str) -> str:
        return f"{text} {self.unit}" if self.unit else text


def measured_rows(quantities: Sequence[Quantity], numbers: Numbers) -> list[tuple[str, str]]:
    """Return the titles and values of all known quantities, for a table."""
    rows = [(quantity.title, quantity.of(numbers)) for quantity in quantities]
    return [(name, text) for name, text in rows if text != UNKNOWN]
