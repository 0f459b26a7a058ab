"""Arrays that are not trained."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Integer


class Constant(eqx.Module):
    """An array of a model that is not trained, such as the correlations of a known problem.

    All floating-point arrays of a model are its parameters: they get gradients, and a place in the memory of
    the optimiser. So the bits of this one are stored as integers, and read as what they mean.

    Attributes:
        bits: The numbers, their bits read as integers.
        dtype: What the bits mean.
    """

    bits: Integer[Array, "..."]
    dtype: Any = eqx.field(static=True)

    def __init__(self, value: Any) -> None:
        """Take an array out of training."""
        value = jnp.asarray(value)
        if not jnp.issubdtype(value.dtype, jnp.floating):
            value = value.astype(jnp.result_type(float))
        self.dtype = value.dtype
        self.bits = lax.bitcast_convert_type(value, f"int{8 * value.dtype.itemsize}")

    @property
    def value(self) -> Array:
        """The array."""
        return lax.bitcast_convert_type(self.bits, self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.bits.shape


def value_of(leaf: Any) -> Array:
    """Return the array of a leaf that may be a `Constant`."""
    return leaf.value if isinstance(leaf, Constant) else leaf
