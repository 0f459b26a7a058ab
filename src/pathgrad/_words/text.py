"""Format numbers for people to read, in plain characters; report pages refine the typography."""

import math
import statistics
from collections.abc import Sequence
from typing import TypeGuard

Number = int | float

UNKNOWN = "-"


def is_number(value: object) -> TypeGuard[Number]:
    """Return whether a value read from a file is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an integer too large for a float
        return False


def plain(value: Number | None, form: str = ".4g") -> str:
    """Write a number, or a dash if it is not known."""
    return UNKNOWN if value is None else format(value, form)


def with_error(value: Number | None, error: Number | None, unit: str = "", most: int = 8) -> str:
    """Write a number with its error, to two digits of the error; without an error, to five digits.

    There are at most `most` decimals, unless it takes more to show one digit of the error.
    """
    if value is None:
        return UNKNOWN
    unit = f" {unit}" if unit else ""
    if not error or error < 0:
        return f"{value:.7g}{unit} (exact)" if error == 0 else f"{value:.5g}{unit}"
    if error < 1e-6 and abs(value) < 1e-3:
        return f"{value:.2g} ± {error:.1g}{unit}"
    first = -math.floor(math.log10(error))
    decimals = max(0, min(first + 1, max(most, first)))
    return f"{value:.{decimals}f} ± {error:.{decimals}f}{unit}"


def percent(value: Number | None, error: Number | None = None) -> str:
    """Write a share as a percentage; without an error, with enough digits to tell it from 100 %."""
    if value is None:
        return UNKNOWN
    if error:
        return with_error(100 * value, 100 * error, "%", most=3)
    missing = 100 * max(1 - value, 1e-7)
    decimals = min(5, max(2, 1 - math.floor(math.log10(missing))))
    return f"{100 * value:.{decimals}f} %"


def several(values: Sequence[Number], form: str) -> str:
    """Write the mean, and the standard deviation if there are several values."""
    spread = f" ± {form.format(statistics.stdev(values))}" if len(values) > 1 else ""
    return form.format(statistics.mean(values)) + spread


def duration(seconds: Number | None) -> str:
    """Write a time in hours, minutes and seconds."""
    if seconds is None:
        return UNKNOWN
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def count(value: Number | None) -> str:
    """Write a number without decimals, with commas between thousands."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def listed(names: Sequence[str]) -> str:
    """Write `a, b and c`."""
    names = list(names)
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def sentence(text: str) -> str:
    """Make the text begin with a capital letter and end with a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def first_line(error: object) -> str:
    """Return what an error says first, without a full stop."""
    lines = str(error).strip().splitlines()
    said = lines[0].rstrip(". ") if lines else ""
    if isinstance(error, Exception):
        return f"{type(error).__name__}: {said}" if said else type(error).__name__
    return said


def written_point(point: object, most: int = 6) -> str:
    """Write the first coordinates of a point that was read from a file."""
    if not isinstance(point, Sequence) or isinstance(point, str) or not all(map(is_number, point)):
        return "an unknown point"
    shown = ", ".join(f"{x:.4g}" for x in point[:most])
    return f"({shown}, ...)" if len(point) > most else f"({shown})"
