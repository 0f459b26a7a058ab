"""Arrays of a model that no method trains, in a precision of their own."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt32

from .arrays import doubles


class Constant(eqx.Module):
    """An array of real numbers that is not a parameter.

    It is stored as the bits of its numbers. Training methods look for floating-point arrays, so none of them
    changes it, be it by weight decay, and none reserves memory for it. And where JAX has only single
    precision, it would round doubles as soon as a program takes them; bits it leaves alone.

    Attributes:
        bits: Those of each number: of a double, its two halves as the last axis.
        is_double: Whether they are doubles.
    """

    bits: UInt32[Array, "..."]
    is_double: bool = eqx.field(static=True)

    def __init__(self, array: Any) -> None:
        """Store an array: in single precision if it is, and else in double."""
        array = np.asarray(array) if np.asarray(array).dtype == np.float32 else doubles("array", array)
        self.is_double = array.dtype != np.float32
        numbers = np.ascontiguousarray(array, np.float64 if self.is_double else np.float32)
        numbers = numbers.reshape(array.shape)
        self.bits = jnp.asarray((numbers[..., None] if self.is_double else numbers).view(np.uint32))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.bits.shape[:-1] if self.is_double else self.bits.shape

    @property
    def value(self) -> Array:
        """The array, in its own precision or, where JAX has only single precision, in that."""
        return self.read(jnp.result_type(float) if self.is_double else jnp.float32)

    def read(self, dtype: Any) -> Array:
        """Return the array in some precision; in compiled code too."""
        if not self.is_double:
            return lax.bitcast_convert_type(self.bits, jnp.float32).astype(dtype)
        with jax.enable_x64(True):
            return lax.bitcast_convert_type(self.bits, jnp.float64).astype(dtype)

    def numpy(self) -> np.ndarray:
        """Return the array itself, outside of compiled code."""
        bits = np.ascontiguousarray(self.bits)
        return bits.view(np.float64)[..., 0] if self.is_double else bits.view(np.float32)
