"""Pickles of NumPy arrays, read without running what a stranger wrote into them."""

import io
import pickle
from typing import Any

import numpy as np

from pathgrad._words.errors import UserError


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles NumPy arrays and nothing else: a pickle can otherwise call any function."""

    def find_class(self, module: str, name: str):
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            # The function that builds arrays. Its import path changes between versions; arrays return it.
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise UserError(f"it asks for `{module}.{name}`, but only NumPy arrays are allowed in a pickle")


def unpickled(contents: bytes) -> Any:
    """Return what a pickle (also of Python 2) holds: arrays, and lists, tuples or dictionaries of them.

    A bad pickle can raise anything.
    """
    # Python 2 wrote bytes as text; latin1 turns every character back into its byte.
    return _ArrayUnpickler(io.BytesIO(contents), encoding="latin1").load()
