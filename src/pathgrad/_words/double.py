"""Double precision for a while, in a program that has single precision otherwise."""

import contextlib
import gc
from collections.abc import Iterator

import jax
import jax.numpy as jnp


@contextlib.contextmanager
def doubled() -> Iterator[None]:
    """Trace and compute in double precision.

    JAX (0.10) converts a NumPy array that a traced function refers to once, to the precision of that moment,
    and uses the result in whatever else it traces as long as the first program lives. Data would be rounded
    to single precision in a program in double precision, and indices would have the wrong type. So programs
    in single precision are forgotten first, and those traced here should not live long.
    """
    if jnp.result_type(float) == jnp.float32:
        gc.collect()
        jax.clear_caches()
    with jax.enable_x64(True):
        yield
