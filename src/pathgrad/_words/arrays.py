"""Checks of arguments that are arrays."""

from typing import Any

import numpy as np

from .arguments import shown
from .errors import ArgumentError, named


def doubles(name: str, value: Any) -> np.ndarray:
    """Return an array of doubles."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(f"{named(name)} must be an array of real numbers, got {shown(value)}.") from None
