"""A number that runs have: what it is called, how it is written, and how it is drawn."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from .._words.text import UNKNOWN, Number, count, is_number, percent, several, with_error

Numbers = Mapping[str, object]
"""Numbers by name, out of a file, which may hold anything."""


def number_in(numbers: Numbers | None, name: str) -> float | None:
    """Return a finite number out of a file that may hold anything, `None` if there is none."""
    value = (numbers or {}).get(name)
    return float(value) if is_number(value) else None


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One number of a run. Tables, curves, comparisons and pages are made of these.

    Attributes:
        name: Where it stands: in a row of metrics, or in evaluation.json (its error there is `NAME_err`).
        title: What people call it.
        form: How it is written, as by `str.format`; `share` for percentages and `count` for whole numbers.
        unit: Behind the number.
        scale: How much of what stands in the file is one unit.
        axis: What a curve of it is drawn on; on `share` each step up is a tenth of what is missing to 100 %.
        means: What a curve of it says, in a few words.
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
        """Return it in its unit, `None` where it is not known."""
        found = number_in(numbers, self.name)
        return None if found is None else found / self.scale

    def error(self, numbers: Numbers) -> float | None:
        """Return its standard error in its unit, `None` where it is not known."""
        found = number_in(numbers, f"{self.name}_err")
        return None if found is None else found / self.scale

    def of(self, numbers: Numbers) -> str:
        """Write it as it stands in a file, with its error where there is one."""
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
        """Write the mean of values, and their standard deviation if they are several."""
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
    """Return names and values for a table, without what is not known."""
    rows = [(quantity.title, quantity.of(numbers)) for quantity in quantities]
    return [(name, text) for name, text in rows if text != UNKNOWN]
