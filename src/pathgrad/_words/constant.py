"""Arrays in double precision that no method trains, whatever the precision of the program."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt32


class Constant(eqx.Module):
    """A real array that is not a parameter.

    It is stored as the bits of its doubles. Training methods look for floating-point arrays, so none of them
    changes it, be it by weight decay, and none reserves memory for it. And where JAX has only single
    precision, it would round doubles as soon as a program takes them; bits it leaves alone.

    Attributes:
        bits: The two halves of each double, as the last axis.
    """

    bits: UInt32[Array, "*shape 2"]

    @classmethod
    def of(cls, array: Any) -> "Constant":
        """Store an array of real numbers."""
        doubles = np.ascontiguousarray(array, np.float64)
        return cls(jnp.asarray(doubles.reshape(np.shape(array))[..., None].view(np.uint32)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.bits.shape[:-1]

    def read(self, dtype: Any) -> Array:
        """Return the array in some precision; in compiled code too."""
        with jax.enable_x64(True):
            return lax.bitcast_convert_type(self.bits, jnp.float64).astype(dtype)

    def numpy(self) -> np.ndarray:
        """Return the array itself, outside of compiled code."""
        return np.ascontiguousarray(self.bits).view(np.float64)[..., 0]
