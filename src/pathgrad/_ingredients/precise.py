"""Targets in double precision, for programs in single precision."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import batching, mlir
from jaxtyping import Array, Float

from .._words.errors import ArgumentError, named
from .._words.tree import over_draws
from .bases import floating
from .target import Target, check_is_target, log_prob_of

# JAX decides in three places whether doubles exist: where it traces a function, where it maps an operation
# over a batch, and where it translates to machine code. Around tracing, `jax.enable_x64(True)` is enough for
# most functions, but some (incomplete gamma functions, Bessel functions, ODE solvers) are expanded only when
# they are translated, long after that `with` has ended, and then fail with mixed types. So the function in
# double precision is one operation, with rules that switch doubles on in the other two places as well.
_in_double_p = Primitive("in_double")
_in_double_p.multiple_results = True


def in_double(function: Callable[..., Any], *args: Array) -> tuple[Array, ...]:
    """Call a function of arrays with doubles switched on. It returns a tuple of arrays."""
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(function)(*args)
        # What the function has closed over may be traced by the program around it.
        return tuple(_in_double_p.bind(*closed.consts, *args, jaxpr=closed.jaxpr))


def _function(jaxpr: Any) -> Callable[..., Any]:
    """Return the function of a jaxpr, with what it has closed over as the first arguments."""
    first = len(jaxpr.constvars)
    return lambda *args: jaxpr_as_fun(ClosedJaxpr(jaxpr, args[:first]))(*args[first:])


@_in_double_p.def_impl
def _run(*args, jaxpr):
    with jax.enable_x64(True):
        return jax.jit(_function(jaxpr))(*args)


@_in_double_p.def_abstract_eval
def _shapes(*args, jaxpr):
    return [variable.aval for variable in jaxpr.outvars]


def _batch(args, axes, *, jaxpr):
    with jax.enable_x64(True):
        mapped = jax.vmap(_function(jaxpr), in_axes=axes)
        closed = jax.make_jaxpr(mapped)(*args)
        results = _in_double_p.bind(*closed.consts, *args, jaxpr=closed.jaxpr)
    return results, [0] * len(results)


def _lower(context, *args, jaxpr):
    with jax.enable_x64(True):
        return mlir.lower_fun(_function(jaxpr), multiple_results=True)(context, *args)


batching.primitive_batchers[_in_double_p] = _batch
mlir.register_lowering(_in_double_p, _lower)


class Precise(eqx.Module):
    r"""The same target, with its log density computed in double precision.

    A log density of $-10^9$ has no digits after the point in single precision, and differences of one nat
    matter. This wrapper works inside programs in single precision, where `jax_enable_x64` is off: a point is
    converted, the log density and its gradient are computed in double precision and rounded at the end.
    Everything around it, such as a flow in training, stays in single precision.

    It can be differentiated once, with respect to the point. Arrays of the target are not trained.

    Attributes:
        target: An object with `log_prob(x)` for one point.
    """

    target: Target

    def __check_init__(self):
        check_is_target(self.target)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point, if the target knows it."""
        return self.target.shape  # pyright: ignore[reportAttributeAccessIssue]

    def log_prob(self, x: Float[Array, "*event"]) -> Float[Array, ""]:
        """Return the log density of one point, in the precision of the point."""
        arrays, static = eqx.partition(self.target, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)

        def density(x, *leaves):
            target = eqx.combine(jax.tree.unflatten(structure, leaves), static)
            return log_prob_of(target, x.astype(jnp.float64))

        @jax.custom_jvp
        def rounded(x, *leaves):
            (value,) = in_double(lambda *args: (density(*args).astype(x.dtype),), x, *leaves)
            return value

        @rounded.defjvp
        def with_tangent(primals, tangents):
            def value_and_score(*args):
                value, score = jax.value_and_grad(density)(*args)
                return value.astype(x.dtype), score.astype(x.dtype)

            value, score = in_double(value_and_score, *primals)
            return value, jnp.vdot(score, tangents[0])

        return rounded(x, *leaves)


class Precision(NamedTuple):
    """What single precision does to a target's log density at some draws.

    Attributes:
        error: Largest error in nats, where both precisions give a finite number.
        lost: Share of the draws at which only double precision gives a finite number.
    """

    error: float
    lost: float

    @property
    def is_enough(self) -> bool:
        """Whether single precision will do: a flow trained with it cannot tell the difference."""
        return self.error < 0.01 and self.lost == 0


def compare_precisions(target: Target, draws: Any) -> Precision:
    """Compare the log density in single with that in double precision.

    Args:
        target: An object with `log_prob(x)` for one point.
        draws: Points where the target has its mass, batch axis first. A few dozen are enough.
    """
    check_is_target(target)
    draws = np.asarray(floating(draws, "draws"), np.float32)  # the same points for both
    known = getattr(target, "shape", draws.shape[1:])
    if not draws.ndim or draws.shape[1:] != known:
        raise ArgumentError(
            f"{named('draws')} must be points of the {named('target')}, of shape {known}, batch axis first, "
            f"got shape {draws.shape}."
        )
    single, double = (_log_probs(target, draws.astype(dtype)) for dtype in (np.float32, np.float64))
    known = np.isfinite(double)
    lost = known & ~np.isfinite(single)
    both = known & ~lost
    difference = np.abs(single[both] - double[both])
    return Precision(float(difference.max(initial=0.0)), float(np.mean(lost)))


def needs_float64(target: Target, draws: Any) -> bool:
    """Say whether single precision is too coarse for a target, judged at some draws.

    It is if the log density is wrong by a hundredth of a nat, or not finite, at a point where double
    precision has a value. `compare_precisions` returns the numbers. The remedy is `Precise(target)`.

    Args:
        target: An object with `log_prob(x)` for one point.
        draws: Points where the target has its mass, batch axis first. A few dozen are enough.
    """
    return not compare_precisions(target, draws).is_enough


def _log_probs(target: Target, draws: np.ndarray) -> np.ndarray:
    with jax.enable_x64(draws.dtype == np.float64):
        values = eqx.filter_jit(lambda t, x: over_draws(log_prob_of, t, x))(target, draws)
        return np.asarray(values, np.float64)
