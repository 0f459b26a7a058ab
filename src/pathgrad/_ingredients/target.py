"""Targets: the densities to approximate."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._words.numpy_constants import separate_precisions

separate_precisions()


@runtime_checkable
class Target(Protocol):
    """Any object with a log density of one point. It may hold trainable arrays (a decoder's)."""

    def log_prob(self, x: Any, /) -> Any:
        """Return the log density of one point, up to a constant."""
        ...


class LogDensity(eqx.Module):
    """A target made from any JAX function of one point.

    Attributes:
        log_prob: Returns the log density of one point as a scalar, up to a constant.
        shape: Shape of one point.
    """

    log_prob: Callable[[Array], Any]
    shape: tuple[int, ...] = eqx.field(static=True, converter=tuple)

    def __check_init__(self):
        point = jax.ShapeDtypeStruct(self.shape, jnp.result_type(float))
        result = eqx.filter_eval_shape(self.log_prob, point)
        if not isinstance(result, jax.ShapeDtypeStruct):
            raise ValueError(
                f"The log density must return one real number, got {type(result).__name__}. "
                "Return a scalar JAX array."
            )
        if result.shape != ():
            raise ValueError(
                f"The log density of a point of shape {self.shape} must be a scalar, got shape "
                f"{result.shape}. It is called with one point at a time; sum over the coordinates."
            )
        if not jnp.issubdtype(result.dtype, jnp.floating):
            raise ValueError(f"The log density must be a real number, got dtype {result.dtype}.")


def log_prob_of(target: Target, x: Float[Array, "*event"]) -> Float[Array, ""]:
    """Return the target's log density of one point, after checking that it is a scalar."""
    value = jnp.asarray(target.log_prob(x))
    if value.shape != ():
        raise ValueError(
            f"`target.log_prob` must return a scalar for one point; for shape {x.shape} it returned "
            f"shape {value.shape}. It is called with one point at a time: no batch axis."
        )
    return value
