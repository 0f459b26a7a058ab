"""Activations against NumPy in extended precision, and their derivatives in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._ingredients.activations import tanh_log_cosh

POINTS = np.array([0.0, 1e-9, -1e-4, 0.3, -1.7, 5.0, -19.0, 40.0, -700.0, 1e5])


def log_cosh(x):
    """Return ln cosh by its definition, where that does not overflow: in half of the exponent's range."""
    x = np.asarray(x, np.longdouble)
    return np.where(np.abs(x) < 5000, np.log(np.cosh(np.clip(x, -5000, 5000))), np.abs(x) - np.log(2.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values(dtype):
    slope, value = tanh_log_cosh(jnp.asarray(POINTS, dtype))
    x = POINTS.astype(dtype).astype(np.longdouble)
    assert slope.dtype == value.dtype == dtype
    epsilon = np.finfo(dtype).eps
    np.testing.assert_allclose(slope, np.tanh(x), rtol=8 * epsilon)
    np.testing.assert_allclose(value, log_cosh(x), rtol=8 * epsilon, atol=8 * epsilon)


@pytest.mark.parametrize("differentiate", [jax.grad, jax.jacfwd], ids=["reverse", "forward"])
def test_derivatives_up_to_the_third(differentiate):
    def value(x):
        return tanh_log_cosh(x)[1]

    expected = [np.tanh, lambda x: np.cosh(x) ** -2.0, lambda x: -2 * np.tanh(x) / np.cosh(x) ** 2]
    for by_hand in expected:
        value = differentiate(value)
        points = np.clip(POINTS, -300, 300)
        np.testing.assert_allclose(jax.vmap(value)(jnp.asarray(points)), by_hand(points), atol=1e-14)


def test_both_features_of_every_unit():
    units = np.array([0.4, -2.0, 0.0])
    expected = [*np.tanh(units), *(0.5 * np.log(np.cosh(units)))]
    np.testing.assert_allclose(pg.tanh_and_log_cosh(jnp.asarray(units)), expected, atol=1e-15)
