"""Summaries as text. Reading a run needs this, and so no JAX."""

import math
from collections.abc import Mapping
from typing import Any


def table_of(stored: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows of a table, from what `Summary.to_json` wrote."""
    kinds = [n for n in next(iter(stored.values()), {}) if not n.endswith("_err")]
    rows = [
        (name, *(written(row.get(n), row.get(f"{n}_err")) for n in kinds)) for name, row in stored.items()
    ]
    return ("parameter", *kinds), rows


def written(value: float | None, error: float | None) -> str:
    """Write a number to the digits that its error leaves, with the error of the last two in brackets."""
    if value is None or error is None or not (math.isfinite(value) and math.isfinite(error)):
        return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"
    if error <= 0:
        return f"{value:.6g}"
    # Rounded to two digits first: 0.0996 is 0.10.
    decimals = max(0, 1 - math.floor(math.log10(float(f"{error:.1e}"))))
    if decimals > 9:
        return f"{value:.4g}"
    digits = round(error * 10**decimals)
    return f"{value:.{decimals}f}({digits if decimals else round(error)})"
