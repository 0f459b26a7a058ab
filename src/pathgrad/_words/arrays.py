"""Checks of arguments that are arrays."""

from typing import Any

import numpy as np

from .arguments import shown
from .errors import ArgumentError, named


def real_array(name: str, value: Any) -> np.ndarray:
    """Return an array of real numbers in the precision that they have."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
            raise TypeError
    except (TypeError, ValueError):
        raise ArgumentError(f"{named(name)} must be an array of real numbers, got {shown(value)}.") from None
    return array


def doubles(name: str, value: Any) -> np.ndarray:
    """Return an array of doubles; one that has them already is not copied."""
    return real_array(name, value).astype(np.float64, copy=False)
