"""The eight real posteriors as functions of named parameters and as NumPyro models, beside our densities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathgrad as pg

from .posterior_models import LOG_2, MODELS, NAMED, columns_of, numpyro, values_in
from .target_helpers import HERE, needs_data

pytestmark = needs_data
needs_numpyro = pytest.mark.skipif(numpyro is None, reason="NumPyro is not installed")


@functools.cache
def points(name):
    """A few points of the flat density: near draws of the reference, and somewhat off."""
    target = pg.targets.load(name, HERE)
    drawn = np.asarray(target.reference_points())
    spread = 0.7 * drawn.std(axis=0)
    x = np.concatenate([drawn[[17, 4711]], drawn[[1, 2]] + spread * np.array([[1.0], [-1.5]])])
    log_p, columns = jax.jit(jax.vmap(lambda x: (target.log_prob(x), target.constrain(x))))(jnp.asarray(x))
    return np.asarray(log_p), np.asarray(columns)


def assert_same_density(name, target, constant):
    """Points whose named parameters are the given ones have the same log density, but for a constant."""
    log_p, columns = points(name)

    def all_of_it(row):
        x = target.unconstrain(values_in(name, target, row))
        return target.log_prob(x), columns_of(name, target.constrain(x))

    values, back = jax.jit(jax.vmap(all_of_it))(jnp.asarray(columns))
    np.testing.assert_allclose(back, columns, rtol=1e-9)
    np.testing.assert_allclose(values, log_p + constant, rtol=1e-11, atol=1e-8)


def some_daily(names, daily):
    """All of them, of which only some are tried every day."""
    return [pytest.param(name, marks=[] if name in daily else [pytest.mark.slow]) for name in names]


@pytest.mark.parametrize("name", some_daily(NAMED, ("garch11",)))
def test_function_of_named_parameters(name):
    assert_same_density(name, NAMED[name](), 0.0)


@needs_numpyro
@pytest.mark.parametrize("name", some_daily(MODELS, ("eight_schools_noncentered",)))
def test_numpyro_model(name):
    model, halves = MODELS[name]
    assert_same_density(name, pg.from_numpyro(model), halves * LOG_2)
