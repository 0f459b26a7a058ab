"""A first look at a target that somebody has written: can it be fitted at all?"""

import re
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental import checkify
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.lax import GatherScatterMode

from .._words.errors import ArgumentError, UserError, named
from .._words.text import first_line
from .._words.tree import one_draw
from .target import LogDensity, Target, check_density, check_is_target

_INDEXING = ("dynamic_slice", "gather", "scatter", "dynamic_update_slice")
# Whoever asks for these wants to read beyond the end: JAX does something sensible there.
_MEANT = {GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP}


def shape_of(target: Any) -> tuple[int, ...]:
    """Return the shape of a target's points; raise if it does not say."""
    shape = getattr(target, "shape", None)
    if isinstance(shape, tuple) and all(isinstance(n, int) and n > 0 for n in shape):
        return shape
    if shape is not None:
        raise ArgumentError(
            f"The `shape` of the {named('target')} must be a tuple, such as (2,), got {shape}."
        )
    check_is_target(target)
    raise ArgumentError(
        f"The {named('target')}, a {type(target).__name__}, does not say what shape a point has. Give it an "
        "attribute `shape`, or wrap its log density: `LogDensity(target.log_prob, shape=(dim,))`."
    )


def inspect_target(target: Target, shape: tuple[int, ...]) -> None:
    """Raise, with a remedy, if a target returns no number, has no gradient, or reads beyond an array."""
    check_is_target(target, shape)
    if not isinstance(target, LogDensity):  # which has looked already
        check_density(target.log_prob, shape)
    _check_gradient(target, jnp.zeros(shape))
    check_indices(target, shape)


def _check_gradient(target: Target, point: Any) -> None:
    try:
        eqx.filter_eval_shape(jax.grad(lambda x: jnp.asarray(target.log_prob(x))), point)
    except Exception as error:
        raise UserError(
            f"The gradient of the log density cannot be computed: {first_line(error)}. Training needs it: "
            "write the density with functions that JAX can differentiate, or give it a gradient with "
            "`jax.custom_jvp`."
        ) from error


@eqx.filter_jit
def _error_of_index(target: Target, point: Any) -> checkify.Error:
    return checkify.checkify(target.log_prob, errors=checkify.index_checks)(point)[0]


def check_indices(target: Target, shape: tuple[int, ...]) -> None:
    """Raise if an index is too large. JAX would take the last entry instead, without a word."""
    target, point = one_draw(target), jnp.zeros(shape)
    try:
        modes = set(_lookups(jax.make_jaxpr(lambda x: target.log_prob(x))(point).jaxpr))
        if not modes or modes & _MEANT:
            return
        found = _error_of_index(target, point).get()
    except Exception:
        return  # not everything can be checked
    if found:
        where = re.search(r"array of shape (\(.*?\)).*?index (-?\d+).*?size (\d+)", found)
        what = first_line(found) if where is None else f"index {where[2]} of an axis with {where[3]} entries"
        raise UserError(
            f"The log density reads {what}, where JAX silently takes the nearest entry instead. Points have "
            f"shape {point.shape}: is that the right number of coordinates, and do indices begin at 0? If "
            "such an entry is not used (`jnp.where`), say so: `array.at[i].get(mode='fill', fill_value=0)`."
        )


def _lookups(jaxpr: Jaxpr) -> Iterator[Any]:
    """Yield, for each place where a program looks up entries, what is to happen beyond the end."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in _INDEXING:
            yield equation.params.get("mode")
        inner = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program)
        for one in inner:
            if _is_program(one):
                yield from _lookups(getattr(one, "jaxpr", one))


def _is_program(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)
