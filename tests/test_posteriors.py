"""The eight real posteriors: densities, maps to named parameters, and their reference draws."""

import functools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad.targets.compartment import OneCompartment
from pathgrad.targets.regressions import NormalRegression

from .target_helpers import DESIGNS, HERE, POSTERIORS, needs_data

pytestmark = needs_data
# Whose two simplexes have two columns each, which add to one.
REDUNDANT = {"hmm_example": [1, 3]}


@functools.cache
def loaded(name):
    target = pg.targets.load(name, HERE)
    assert isinstance(target.density, pg.targets.AbstractPosterior)
    return target


@functools.cache
def programs(name):
    target = loaded(name)
    return jax.jit(jax.vmap(jax.value_and_grad(target.log_prob)))


def log_det(name, x):
    """Of the derivative of the named parameters, by brute force."""
    free = np.delete(np.arange(len(loaded(name).reference.names)), REDUNDANT.get(name, []))
    jacobian = jax.jit(jax.vmap(jax.jacfwd(lambda point: loaded(name).constrain(point)[free])))(x)
    return np.linalg.slogdet(np.asarray(jacobian))[1]


@pytest.mark.parametrize("name", POSTERIORS)
def test_log_density_against_another_implementation(name):
    target = loaded(name)
    drawn = np.asarray(target.reference_points())
    spread = 0.5 * drawn.std(axis=0) * np.asarray(jr.normal(jr.key(1), (2, *target.shape)))
    x = np.concatenate([drawn[[17, 4711, 9876]], drawn[[1, 2]] + spread])
    columns = np.asarray(jax.vmap(target.constrain)(jnp.asarray(x)))
    expected = [POSTERIORS[name](c) for c in columns] + log_det(name, x)
    values = np.asarray(programs(name)(x)[0])
    # The compartment's equation is solved to a few hundredths of a posterior sd.
    tolerance = 1e-2 if name == "one_comp_mm_elim_abs" else 1e-7
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=tolerance)


@pytest.mark.parametrize("name", POSTERIORS)
def test_reference_draws_are_of_this_density(name):
    r"""Stein's identities: the mean gradient is zero, that of $y g^\top$ minus the identity."""
    x = np.asarray(loaded(name).reference_points())
    gradients = np.asarray(programs(name)(x)[1])
    root = np.linalg.cholesky(np.cov(x.T))
    y, g = np.linalg.solve(root, (x - x.mean(axis=0)).T).T, gradients @ root
    error = g.std(axis=0) / math.sqrt(len(g))
    assert np.abs(g.mean(axis=0) / error).max() < 4
    assert error.max() < 0.05  # sharp: a lost Jacobian is a shift by about one
    products = y[:, :, None] * g[:, None, :]
    error = products.std(axis=0) / math.sqrt(len(g))
    assert np.abs((products.mean(axis=0) + np.eye(len(root))) / error).max() < 4


@pytest.mark.parametrize("name", POSTERIORS)
def test_maps_are_inverse_and_the_summaries_those_of_the_file(name):
    target = loaded(name)
    reference = target.reference
    points = target.reference_points()
    assert points is not None
    back = np.asarray(jax.vmap(target.constrain)(points))
    draws = reference.draws.reshape(back.shape)
    np.testing.assert_allclose(back, draws, rtol=1e-6)
    with np.load(HERE / "posteriors" / name / "reference.npz") as arrays:
        assert tuple(arrays["names"]) == reference.names
        np.testing.assert_allclose(reference.mean, arrays["mean"], rtol=1e-6)
        np.testing.assert_allclose(reference.sd, arrays["sd"], rtol=1e-5)


@pytest.mark.parametrize("name", POSTERIORS)
def test_single_precision(name):
    target = loaded(name)
    x = np.asarray(target.reference_points())[::500]
    exact, _ = programs(name)(x)
    values, gradients = programs(name)(jnp.asarray(x, jnp.float32))
    assert values.dtype == gradients.dtype == jnp.float32
    # Coefficients near 8 whose combinations matter to 1e-3 are themselves rounded.
    np.testing.assert_allclose(values, exact, atol=0.05 if name == "logearn_interaction" else 0.01)
    far = 2 * np.asarray(jr.normal(jr.key(2), (64, *target.shape)), np.float32)
    values, gradients = programs(name)(far)
    assert np.isfinite(values).all()
    assert np.isfinite(gradients).all()


@pytest.mark.parametrize("name", DESIGNS)
def test_normaliser_of_a_flat_regression(name):
    """By the determinant of X'X and a gamma function."""
    x, y = DESIGNS[name]()
    n, d = x.shape
    beta = np.linalg.lstsq(x, y)[0]
    s = np.sum((y - x @ beta) ** 2)
    log_z = -0.5 * (n - d) * math.log(2 * math.pi) - 0.5 * np.linalg.slogdet(x.T @ x)[1]
    log_z += math.lgamma((n - d - 1) / 2) - math.log(2) - (n - d - 1) / 2 * math.log(s / 2)
    target = loaded(name)
    assert target.log_z == pytest.approx(log_z, abs=1e-4)
    assert target.log_z_err == 0
    # The mean of the reference is the least-squares estimate.
    error = np.abs(target.reference.mean[:-1] - beta) / target.reference.sd[:-1]
    assert error.max() < 0.04


def test_regression_with_priors_depends_on_every_row():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=7)
    one = NormalRegression.of(x, y, ("a", "b", "sigma"), 2.0, 3.0)
    for row in range(7):
        less = NormalRegression.of(np.delete(x, row, 0), np.delete(y, row), ("a", "b", "sigma"), 2.0, 3.0)
        point = jnp.array([0.3, -0.4, 0.2])
        sigma = math.exp(0.2)
        missing = -0.5 * ((y[row] - x[row] @ point[:2]) / sigma) ** 2 - 0.2 - 0.5 * math.log(2 * math.pi)
        assert one.log_prob(point) - less.log_prob(point) == pytest.approx(float(missing), abs=1e-12)


def test_concentrations_stay_positive_and_finite():
    density = loaded("one_comp_mm_elim_abs").density
    assert isinstance(density, OneCompartment)
    corners = np.stack(np.meshgrid(*[[-12.0, 0.0, 9.0]] * 3), axis=-1).reshape(-1, 3)
    x = np.concatenate([corners, np.zeros((27, 1))], axis=1)
    for dtype in (np.float64, np.float32):
        assert np.isfinite(jax.jit(jax.vmap(density.log_concentrations))(x.astype(dtype))).all()
    with pytest.raises(ValueError, match="equal steps"):
        OneCompartment(np.array([1.0, 3.0]), np.ones(2), 1.0, 1.0)
