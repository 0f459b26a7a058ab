"""Log densities of trees of arrays, as other packages have them, and of programs outside JAX."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

import pathgrad as pg

from .docs_helpers import DOCS, blocks


class State(NamedTuple):
    """What a user of BlackJAX samples."""

    scale: jax.Array
    groups: dict


def log_prob(state):
    spread = jnp.exp(state.scale)
    effects = jax.scipy.stats.norm.logpdf(state.groups["effect"], state.groups["Mean"], spread)
    return jnp.sum(effects) - 0.5 * state.scale**2 - 0.5 * state.groups["Mean"] ** 2


EXAMPLE = State(jnp.zeros(()), {"effect": jnp.zeros((2, 2)), "Mean": jnp.zeros(())})


def test_a_tree_of_arrays():
    target = pg.from_pytree(log_prob, EXAMPLE)
    assert target.shape == (6,)
    places = [f"groups.effect[{i},{j}]" for i in (0, 1) for j in (0, 1)]
    assert target.names == ("scale", "groups.Mean", *places)
    x = np.array([0.3, -0.2, 1.0, 2.0, 3.0, 4.0])
    expected = stats.norm.logpdf(x[2:], -0.2, np.exp(0.3)).sum() - 0.5 * 0.3**2 - 0.5 * 0.2**2
    assert float(target.log_prob(jnp.asarray(x))) == pytest.approx(expected, abs=1e-12)
    values = target.constrain(jnp.asarray(x))
    np.testing.assert_array_equal(values["groups.effect"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(target.unconstrain(values), x)
    single = jax.jit(pg.Precise(target).log_prob)(jnp.asarray(x, jnp.float32))
    assert single.dtype == jnp.float32


def test_a_model_with_its_own_bijector():
    """As with a joint distribution of TFP: a density of values, and a map with its log-determinant."""

    def constrain(free):
        return {"rate": jax.nn.softplus(free[0]), "mean": free[1]}

    def density(free):
        values = constrain(free)
        log_det = jax.nn.log_sigmoid(free[0])
        return -2 * values["rate"] - 0.5 * values["mean"] ** 2 + log_det

    target = pg.from_pytree(density, [jnp.zeros(()), jnp.zeros(())], constrain)
    assert target.names == ("rate", "mean")
    axis = jnp.linspace(-30.0, 12.0, 4001)
    weight = np.exp(jax.vmap(lambda t: target.log_prob(jnp.stack([t, jnp.zeros(())])))(axis)) * 42 / 4000
    assert weight.sum() == pytest.approx(0.5, abs=1e-6)
    assert float(target.constrain(jnp.array([0.0, 3.0]))["rate"]) == pytest.approx(np.log(2))
    with pytest.raises(pg.ArgumentError, match="give `from_pytree` `unconstrain`"):
        target.unconstrain({"rate": 1.0, "mean": 0.0})
    back = pg.from_pytree(
        density, [0.0, 0.0], constrain, lambda v: [jnp.log(jnp.expm1(v["rate"])), v["mean"]]
    )
    x = jnp.array([0.7, -2.0])
    np.testing.assert_allclose(back.unconstrain(back.constrain(x)), x, rtol=1e-12)
    with pytest.raises(pg.ArgumentError, match="no arrays"):
        pg.from_pytree(density, [])


class Stan:
    """Stands in for `bridgestan.StanModel`: NumPy alone, one point at a time."""

    def param_unc_num(self):
        return 2

    def log_density_gradient(self, theta):
        residual = theta[0] - 1.5
        value = -0.5 * residual**2 * np.exp(-2 * theta[1]) - theta[1] - 2 * theta[1] ** 2
        slope = residual**2 * np.exp(-2 * theta[1]) - 1 - 4 * theta[1]
        return value, np.array([-residual * np.exp(-2 * theta[1]), slope])


def from_stan(model):
    """The recipe of the documentation."""
    [recipe] = [block.text for block in blocks(DOCS / "posteriors.md") if "def from_stan" in block.text]
    names: dict[str, Any] = {"jax": jax, "np": np, "pg": pg}
    exec(recipe, names)
    return names["from_stan"](model)


def test_a_program_outside_jax():
    target = from_stan(Stan())
    x = jr.normal(jr.key(0), (3, 2))
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(target.log_prob)))(x)
    for point, value, slope in zip(np.asarray(x), values, slopes, strict=True):
        expected = Stan().log_density_gradient(point)
        assert float(value) == pytest.approx(expected[0], rel=1e-12)
        np.testing.assert_allclose(slope, expected[1], rtol=1e-12)


@pytest.mark.slow
def test_a_program_outside_jax_is_fitted():
    recipe = pg.Recipe(kinds=[pg.Kind.COUPLINGS], n=64, first=50, rounds=1, look_draws=1000)
    fit = pg.fit(from_stan(Stan()), recipe=recipe)
    row = fit.summary(1000)["x[0]"]
    assert fit.evaluation.ess > 0.5
    assert abs(row["mean"] - 1.5) < 5 * row["mean_err"]
