"""Targets: the densities to approximate."""

import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import all_leaves
from jaxtyping import Array, Float

from .._words.arguments import function, shape_of_point, shown
from .._words.errors import ArgumentError, named
from .._words.numpy_constants import separate_precisions
from .._words.tree import one_draw

separate_precisions()

# JAX calls a function without numbers, to learn what it does.
_NEEDS_VALUES = (
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.ConcretizationTypeError,
)
NEEDS_VALUES = (
    "The log density uses NumPy or SciPy, `float` or `if` on the point, which JAX cannot compile or "
    "differentiate. Write it with `jax.numpy`, `jax.scipy` and `jnp.where`."
)


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
        shape: Shape of one point; a single number for a vector.
    """

    log_prob: Callable[[Array], Any]
    shape: tuple[int, ...] = eqx.field(static=True, converter=functools.partial(shape_of_point, "shape"))

    def __check_init__(self):
        function("log_prob", self.log_prob, "log_prob(x)")
        check_density(self.log_prob, self.shape)


def check_density(log_prob: Callable[[Array], Any], shape: tuple[int, ...]) -> None:
    """Raise unless a function returns one real number for one point."""
    point = jax.ShapeDtypeStruct(shape, jnp.result_type(float))
    try:
        result = eqx.filter_eval_shape(log_prob, point)
    except _NEEDS_VALUES as error:
        error.add_note(NEEDS_VALUES)
        raise
    except Exception as error:
        error.add_note(f"The log density was called with one point of shape {shape}.")
        raise
    if not isinstance(result, jax.ShapeDtypeStruct):
        raise ArgumentError(
            f"The log density must return one real number, got {type(result).__name__}. "
            "Return a scalar JAX array."
        )
    if result.shape != ():
        raise ArgumentError(
            f"The log density of a point of shape {shape} must be a scalar, got shape "
            f"{result.shape}. It is called with one point at a time; sum over the coordinates."
        )
    check_real(result.dtype)


def check_real(dtype: Any) -> None:
    """Raise unless numbers of a type are real and can be differentiated."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ArgumentError(
            f"The log density must be a real number, got dtype {dtype}. Return a "
            "floating-point number: others have no gradient."
        )


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", "function")
    return name if name.isidentifier() else "function"  # `<lambda>` is none


def check_is_target(target: Any, shape: tuple[int, ...] | str = "(dim,)", name: str = "target") -> None:
    """Raise unless a target, which was given as some argument, has a log density."""
    if not hasattr(target, "log_prob") or isinstance(target, type):
        what, remedy = shown(target), "such as a `LogDensity`"
        if callable(target) and not isinstance(target, type):
            what, remedy = "a bare function", f"such as `LogDensity({_name_of(target)}, shape={shape})`"
        raise ArgumentError(f"{named(name)} must be an object with `log_prob(x)`, {remedy}; got {what}.")
    if all_leaves([target]) and not _is_hashable(target):
        raise ArgumentError(
            f"The {named(name)}, a {type(target).__name__}, cannot be compiled, since it has no hash. Make "
            "its class an `equinox.Module`, or `@dataclass(frozen=True)` if it holds no arrays."
        )


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def check_target(target: Any, shape: tuple[int, ...]) -> None:
    """Raise unless a target has a log density, of points of the flow's shape if it says which it takes."""
    check_is_target(target, shape)
    own = getattr(one_draw(target), "shape", shape)
    if isinstance(own, tuple) and own != shape:
        raise ArgumentError(
            f"The {named('target')} has points of shape {own}, and the {named('flow')} of shape {shape}: "
            "they must agree."
        )


def log_prob_of(target: Target, x: Float[Array, "*event"]) -> Float[Array, ""]:
    """Return the target's log density of one point, after checking that it is a real number."""
    value = jnp.asarray(target.log_prob(x))
    if value.shape != ():
        raise ArgumentError(
            f"`target.log_prob` must return a scalar for one point; for shape {x.shape} it returned "
            f"shape {value.shape}. It is called with one point at a time: no batch axis."
        )
    check_real(value.dtype)
    return value
