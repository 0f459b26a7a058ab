"""Random keys as arguments."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from .arguments import shown
from .errors import ArgumentError, named


def any_keys(key: Any, name: str = "key") -> Key[Array, "*batch"]:
    """Return a key, or an array of them, of the new kind; those of `jax.random.PRNGKey` are converted."""
    if isinstance(key, jax.Array | np.ndarray):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            return jnp.asarray(key)
        if key.dtype == np.uint32 and key.ndim:
            # How many numbers a key has depends on the implementation (`jax_default_prng_impl`).
            with contextlib.suppress(TypeError, ValueError):
                return jr.wrap_key_data(jnp.asarray(key))
    raise ArgumentError(f"{named(name)} must be a random key, such as `jax.random.key(0)`, got {shown(key)}.")


def one_key(key: Any, name: str = "key") -> Key[Array, ""]:
    """Return a single key of the new kind."""
    key = any_keys(key, name)
    if key.ndim:
        raise ArgumentError(
            f"{named(name)} must be a single random key, such as `jax.random.key(0)`, got keys of shape "
            f"{key.shape}."
        )
    return key
