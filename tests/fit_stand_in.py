"""Something that fits as `pathgrad.fit(target)` does, at once: a normal distribution with known moments."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr

import pathgrad as pg


class StandIn(NamedTuple):
    flow: pg.Flow
    evaluation: pg.Evaluation
    gradients: int


def fit(target, *, key, max_seconds=None):
    """Take the moments of the reference, else of exact samples."""
    if max_seconds == 13:
        raise pg.UserError("thirteen seconds are unlucky")
    points = target.reference_points()
    if points is None:
        points = jax.vmap(lambda key: target.sample(key=key))(jr.split(key, 1000))
    mean, covariance = jnp.mean(points, axis=0), jnp.atleast_2d(jnp.cov(points.T))
    flow = pg.Flow(pg.FullNormal.from_covariance(mean, covariance), [])
    return StandIn(flow, pg.evaluate(flow, target, key=key, n=2048), 1000)
