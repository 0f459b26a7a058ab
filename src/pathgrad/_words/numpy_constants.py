"""NumPy arrays inside functions that are traced in single and in double precision.

JAX 0.10 remembers what it has made of a NumPy array, as long as a program with it lives, but not in which
precision. A density with `data - x` for NumPy data, used in single precision before, then fails in double
precision with mixed types. So each precision gets a memory of its own.
"""

import importlib

import jax
import numpy as np


def _is_mixed_up(canonical) -> bool:
    array = np.ones(1)
    with jax.enable_x64(True):
        before = canonical(array)  # alive, so that it is remembered
    with jax.enable_x64(False):
        return canonical(array).dtype != np.float32 or before.dtype != np.float64


def separate_precisions() -> None:
    """Let JAX remember NumPy arrays for each precision, where its version does not."""
    try:
        names = ("dtypes", "literals", "lib")
        dtypes, literals, lib = (importlib.import_module(f"jax._src.{name}") for name in names)
        handlers = dtypes.canonicalize_value_handlers
        if not _is_mixed_up(handlers[np.ndarray]):
            return
        # As JAX defines it, once for each precision.
        remembered = {
            is_double: lib.weakref_lru_cache.weak_key_weak_value_cache(
                lambda x: literals.TypedNdArray(np.asarray(x, dtypes.canonicalize_dtype(x.dtype)))
            )
            for is_double in (False, True)
        }
    except (ImportError, AttributeError, KeyError, TypeError):
        return  # another version of JAX, which does this in another way
    handlers[np.ndarray] = lambda x: remembered[bool(jax.config.jax_enable_x64)](x)  # pyright: ignore
