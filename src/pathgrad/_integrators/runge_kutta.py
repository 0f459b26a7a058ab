"""One step of an explicit Runge-Kutta method, written out so that it can be differentiated."""

from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree


class Tableau(NamedTuple):
    """Butcher tableau of an explicit method: `a` strictly lower rows, weights `b`, nodes `c`."""

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]


RK4 = Tableau(
    a=((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
    b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    c=(0.0, 0.5, 0.5, 1.0),
)


def combine(state: PyTree, dt: Any, weights: tuple[float, ...], slopes: list[PyTree]) -> PyTree:
    """Return `state + dt * sum(weights * slopes)`, leaving out zero weights."""
    used = [(w, k) for w, k in zip(weights, slopes, strict=True) if w != 0.0]
    if not used:
        return state
    scaled = [jax.tree.map(lambda s, w=w: w * s, k) for w, k in used]
    total = scaled[0]
    for more in scaled[1:]:
        total = jax.tree.map(lambda p, q: p + q, total, more)
    return jax.tree.map(lambda y, s: y + dt.astype(y.dtype) * s, state, total)


def runge_kutta_step(tableau: Tableau, motion, t, dt, state: PyTree, args: PyTree) -> PyTree:
    """Advance `state` by one step of length `dt`."""
    slopes: list[PyTree] = []
    for row, node in zip(tableau.a, tableau.c, strict=True):
        slopes.append(motion(t + node * dt, combine(state, dt, row, slopes), args))
    return combine(state, dt, tableau.b, slopes)
