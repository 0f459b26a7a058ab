"""Carry what a flow has learnt on a small lattice over to a larger one, or to a larger model."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import pathgrad as pg

from .field import LatticeField
from .lattice import orbits


def enlarging_matrix(small: int, large: int) -> np.ndarray:
    """Return the matrix from a kernel on the orbits of a small lattice to the one padded to a large lattice.

    Displacements keep their meaning; those that the small lattice does not have get zero. On an even
    lattice the displacement L/2 is both +L/2 and -L/2: each gets half of it (a corner a quarter).
    """
    if large < small:
        raise ValueError(f"a flow can grow, not shrink: from size {small} to {large}.")
    small_index, small_count = orbits(small)
    large_index, large_count = orbits(large)
    # One axis: from displacements of the small lattice to those of the large one.
    along = np.zeros((large, small))
    for d in range(-(small // 2), small // 2 + 1):
        edge = small % 2 == 0 and abs(d) == small // 2
        along[d % large, d % small] += 0.5 if edge else 1.0
    taps = np.eye(small_count)[:, small_index]  # a kernel for each orbit
    padded = along @ taps @ along.T
    members = np.eye(large_count)[large_index.ravel()]
    # Weights are averaged over an orbit (gradients would be summed).
    return (padded.reshape(small_count, -1) @ (members / members.sum(axis=0))).T


def _padded(x: Float[Array, "..."], fill: Float[Array, "..."]) -> Array:
    """Put an array into the leading corner of a larger one."""
    return fill.at[tuple(slice(0, n) for n in x.shape)].set(x.astype(fill.dtype))


def grow(source: pg.Flow, like: pg.Flow) -> pg.Flow:
    """Return the flow `like` with the velocity that `source` has learnt.

    Base, solver and lattice are those of `like`. Where its model is larger, the new features and time kernels
    begin with zero weight, and the new channels with a zero kernel.
    """
    old, new = source.transforms[0].field, like.transforms[0].field  # pyright: ignore[reportAttributeAccessIssue]
    for name in ("omega", "time_bond", "feature_bond"):
        before, after = getattr(old, name).shape, getattr(new, name).shape
        if any(a > b for a, b in zip(before, after, strict=True)):
            raise ValueError(
                f"a model can grow, not shrink: its {name.replace('_', ' ')} has shape {before}, "
                f"the new one {after}."
            )
    field = eqx.tree_at(
        lambda f: (f.omega, f.time_bond, f.feature_bond, f.kernel),
        new,
        (
            _padded(old.omega, new.omega),
            _grown_time_bond(old, new),
            _grown_feature_bond(old, new),
            _grown_kernel(old, new),
        ),
    )
    return pg.Flow(like.base, [like.transforms[0].replace(field=field)])  # pyright: ignore[reportAttributeAccessIssue]


def _grown_kernel(old: LatticeField, new: LatticeField) -> Array:
    matrix = jnp.asarray(enlarging_matrix(old.size, new.size), old.kernel.dtype)
    kernel = jnp.einsum("no,ocd->ncd", matrix, old.kernel)
    return _padded(kernel, jnp.zeros_like(new.kernel))


def _grown_time_bond(old: LatticeField, new: LatticeField) -> Array:
    """Old mixtures keep their time dependence; it is divided by the number of kernels when used."""
    before, after = old.fastest_frequency, new.fastest_frequency
    columns = [*range(before), *range(after, after + before), 2 * after]
    scaled = old.time_bond * ((2 * after + 1) / (2 * before + 1))
    rows = (
        jnp.zeros((len(scaled), 2 * after + 1), scaled.dtype).at[:, jnp.array(columns)].set(scaled)
    )
    return new.time_bond.at[: len(rows)].set(rows)


def _grown_feature_bond(old: LatticeField, new: LatticeField) -> Array:
    """Old channels keep their functions: new sines get no weight, the linear feature stays last."""
    before, after = old.feature_bond.shape[1], new.feature_bond.shape[1]
    columns = [*range(before - 1), after - 1]
    scaled = old.feature_bond * (after / before)
    rows = jnp.zeros((len(scaled), after), scaled.dtype).at[:, jnp.array(columns)].set(scaled)
    return new.feature_bond.at[: len(rows)].set(rows)
