"""Transfer a flow trained on a small lattice to a larger lattice, or to a larger model."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import pathgrad as pg
from pathgrad._runs.checkpoint import read_header

from .lattice import orbit_means, orbits
from .origin import open_source


def enlarging_matrix(small: int, large: int) -> np.ndarray:
    """Return the matrix that maps a kernel, by orbits, from a small lattice to a large one, zero-padded.

    Displacements keep their values; those that the small lattice lacks get zero. On an even lattice the
    displacement L/2 stands for both +L/2 and -L/2: each gets half of its weight (a corner a quarter).
    """
    if large < small:
        raise ValueError(f"a flow can grow, not shrink: from size {small} to {large}.")
    index, count = orbits(small)
    # Along one axis, from displacements of the small lattice to those of the large one.
    along = np.zeros((large, small))
    for d in range(-(small // 2), small // 2 + 1):
        edge = small % 2 == 0 and abs(d) == small // 2
        along[d % large, d % small] += 0.5 if edge else 1.0
    taps = np.eye(count)[:, index]  # one kernel per orbit
    # Weights are averaged over an orbit (gradients would be summed).
    return orbit_means(along @ taps @ along.T).T


def _padded(x: Float[Array, "..."], fill: Float[Array, "..."]) -> Array:
    """Put an array into the leading corner of a larger one."""
    return fill.at[tuple(slice(0, n) for n in x.shape)].set(x.astype(fill.dtype))


def _spread(old: Float[Array, "..."], new: Float[Array, "..."], columns: list[int]) -> Array:
    """Copy the columns of old mixtures to their places in new ones, with zeros between them.

    Mixtures are divided by the number of their columns when used, so they are rescaled to act as before.
    """
    scaled = old * (new.shape[1] / old.shape[1])
    rows = jnp.zeros((len(old), new.shape[1]), old.dtype).at[:, jnp.array(columns)].set(scaled)
    return new.at[: len(old)].set(rows)


def grow(source: pg.Flow, like: pg.Flow) -> pg.Flow:
    """Return the flow `like` with the trained velocity of `source`.

    Base, solver and lattice are those of `like`. Where its model is larger, the new features and time kernels
    start with zero weight, and the new channels with a zero kernel.
    """
    old, new = source.transforms[0].field, like.transforms[0].field  # pyright: ignore[reportAttributeAccessIssue]
    for name in ("omega", "time_bond", "feature_bond"):
        before, after = getattr(old, name).shape, getattr(new, name).shape
        if any(a > b for a, b in zip(before, after, strict=True)):
            raise ValueError(
                f"a model can grow, not shrink: its {name.replace('_', ' ')} has shape {before}, "
                f"the new one {after}."
            )
    before, after = old.fastest_frequency, new.fastest_frequency
    times = [*range(before), *range(after, after + before), 2 * after]  # sines, cosines, the constant
    features = [*range(len(old.omega)), len(new.omega)]  # sines, and the linear feature last
    matrix = jnp.asarray(enlarging_matrix(old.size, new.size), old.kernel.dtype)
    grown = (
        _padded(old.omega, new.omega),
        _spread(old.time_bond, new.time_bond, times),
        _spread(old.feature_bond, new.feature_bond, features),
        _padded(jnp.einsum("no,ocd->ncd", matrix, old.kernel), jnp.zeros_like(new.kernel)),
    )
    field = eqx.tree_at(lambda f: (f.omega, f.time_bond, f.feature_bond, f.kernel), new, grown)
    return pg.Flow(like.base, [like.transforms[0].replace(field=field)])  # pyright: ignore[reportAttributeAccessIssue]


def begin(source: str, flow: pg.Flow) -> tuple[pg.Flow, dict[str, Any]]:
    """Return an untrained flow with the velocity trained in a run, and what to record about that run."""
    run = open_source(source)
    trained = run.flow()
    try:
        grown = grow(trained, flow)
    except ValueError as error:
        raise pg.ArgumentError(f"{pg.named('init_from')} {source}: {error}") from error
    newest = run.directory.checkpoints.newest()
    assert newest is not None  # it has just been read
    # From the checkpoint: a run that was killed may have metrics of later steps.
    header = read_header(newest)
    return grown, {
        "init_from_step": header.step,
        "init_from_seconds": float(header.meta["seconds"]),
        "init_from_commit": run.provenance.get("commit", ""),
    }
