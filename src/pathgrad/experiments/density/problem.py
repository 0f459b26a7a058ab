"""Build the flow and the training that the options describe, after a look at the density."""

import jax
import jax.numpy as jnp
import jax.random as jr

import pathgrad as pg

from ..flows.making import make_flow, make_training
from ..flows.problem import FlowProblem
from .experiment import DensityOptions
from .loading import checked, load_density

_PROBES = 256  # random points at which a density is tested before training


def build(options: DensityOptions) -> FlowProblem:
    """Return the problem that the options describe."""
    if options.dim < 1:
        raise pg.ArgumentError(
            f"{pg.named('dim')}, the number of coordinates of a point, must be given: at least 1, got "
            f"{options.dim}."
        )
    target = _tested(checked(load_density(options.density), options.dim, options.density), options)
    flow = make_flow(options.flow, (options.dim,), key=pg.run_keys(options.training.seed)[0])
    return FlowProblem(make_training(options.training, flow, target))


def _tested(target: pg.LogDensity, options: DensityOptions) -> pg.LogDensity:
    """Test the density before training on it, and report any problem in one line."""
    name = options.density
    points = jr.normal(jr.key(0), (_PROBES, options.dim))
    values, gradients = jax.vmap(jax.value_and_grad(target.log_prob))(points)
    for what, array in (("value", values), ("gradient", gradients)):
        bad = int(jnp.sum(~jnp.isfinite(array).reshape(_PROBES, -1).all(axis=1)))
        if bad:
            raise pg.UserError(
                f"The {what} of {name} is NaN or infinite at {bad} of {_PROBES} standard normal points. A "
                "flow can reach every point, so map bounded variables to the real line (log, logit) first."
            )
    return target
