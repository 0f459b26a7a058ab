"""The eight real posteriors as functions of named parameters and as NumPyro models, beside our densities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._numbers.summary import quantile_name

from .posterior_models import COLUMNS, LOG_2, MODELS, NAMED, columns_of, numpyro, values_in
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


def errors_by_name(name, summary, probabilities):
    """Largest errors of means and of quantiles, in standard deviations of the reference, by name.

    Columns with heavy tails are compared by their logarithms, whose mean the summary does not have.
    """
    reference = pg.targets.load(name, HERE).reference
    truth = reference.draws.reshape(-1, len(reference.names)).astype(float)
    rows = [row for key in COLUMNS[name] for row in summary if row.split("[")[0] == key]
    assert len(rows) == truth.shape[1]
    means, quantiles = [], []
    for row, column, label in zip(rows, truth.T, reference.names, strict=True):
        found = np.array([summary[row][quantile_name(p)] for p in probabilities])
        if label in reference.heavy:
            column, found = np.log(column), np.log(found)
        else:
            means.append(abs(summary[row]["mean"] - column.mean()) / column.std())
        quantiles.append(np.abs(found - np.quantile(column, probabilities)).max() / column.std())
    return max(means), max(quantiles)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["function", pytest.param("model", marks=needs_numpyro)])
@pytest.mark.parametrize("name", NAMED)
def test_default_fit_by_name(name, form):
    probabilities = (0.1, 0.25, 0.5, 0.75, 0.9)
    with jax.enable_x64(False):
        target = NAMED[name]() if form == "function" else pg.from_numpyro(MODELS[name][0])
        fit = pg.fit(target, max_seconds=600.0)
        summary = fit.summary(65536, probabilities=probabilities)
    mean, quantile = errors_by_name(name, summary, probabilities)
    found = fit.evaluation
    print(f"{name} as a {form}: ESS {found.ess:.4f}, k-hat {found.khat:.2f}, {mean:.3f}, {quantile:.3f}")
    # The flat densities reach 99.79 % and more.
    assert found.ess > 0.99
    assert max(mean, quantile) < 0.1
