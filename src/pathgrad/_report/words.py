"""Numbers as people read them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pathgrad._train.row import is_number


def number(mapping: Mapping[str, Any] | None, name: str) -> float | None:
    """Return a finite number out of a file that may hold anything, `None` if there is none."""
    value = (mapping or {}).get(name)
    return float(value) if is_number(value) else None


def plain(value: int | float | None, form: str = ".4g") -> str:
    """Write a number, or a dash for what is not known."""
    return "–" if value is None else format(value, form).replace("-", "−")


def with_error(value: float | None, error: float | None, unit: str = "", most: int = 8) -> str:
    """Write a number with its error, to two digits of the error; without one, to five digits.

    Beyond `most` decimals, one digit of the error has to do.
    """
    if value is None:
        return "–"
    unit = f"\u00a0{unit}" if unit else ""  # not to be parted from its number
    if not error or error < 0:
        return f"{plain(value, '.5g')}{unit}" + (" (exact)" if error == 0 else "")
    first = -math.floor(math.log10(error))
    decimals = max(0, min(first + 1, max(most, first)))
    return f"{plain(value, f'.{decimals}f')} ± {error:.{decimals}f}{unit}"


def percent(value: float | None, error: float | None = None) -> str:
    """Write a share; without an error, with as many digits as tell it from 100 %."""
    if value is None:
        return "–"
    if error:
        return with_error(100 * value, 100 * error, "%", most=3)
    missing = 100 * max(1 - value, 1e-7)
    decimals = min(5, max(2, 1 - math.floor(math.log10(missing))))
    return f"{100 * value:.{decimals}f}\u00a0%"


def several(values: Sequence[float], form: str) -> str:
    """Write the mean, and the standard deviation if there are several values."""
    spread = f" ± {form.format(statistics.stdev(values))}" if len(values) > 1 else ""
    return form.format(statistics.mean(values)).replace("-", "−") + spread


def duration(seconds: float | None) -> str:
    """Write a time in the units of a clock."""
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def count(value: int | float | None) -> str:
    """Write a whole number, thousands set apart."""
    return "–" if value is None else f"{value:,.0f}"


def listed(names: Sequence[str]) -> str:
    """Write `a, b and c`."""
    names = list(names)
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def sentence(text: str) -> str:
    """Begin with a capital letter, and end with a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."
