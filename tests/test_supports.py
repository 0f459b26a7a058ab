"""Supports of parameters: log-determinants by brute force and beside NumPyro's, far out, and mistakes."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._named.abstract import named_values

try:
    import numpyro.distributions as distributions
except ImportError:
    distributions = None

LOW, HIGH = np.array([-3.0, 0.5, 2.0]), np.array([-1.0, 0.75, 40.0])
BELOW = np.tril_indices(4, -1)
# The support, the entries that are free of each other, and NumPyro's constraint.
SUPPORTS = {
    "real": (pg.real((2, 3)), jnp.ravel, lambda c: c.real),
    "positive": (pg.positive(4), jnp.ravel, lambda c: c.positive),
    "above": (pg.bounded(low=-2.5, shape=3), jnp.ravel, lambda c: c.greater_than(-2.5)),
    "below": (pg.bounded(high=0.3, shape=3), jnp.ravel, lambda c: c.less_than(0.3)),
    "interval": (pg.bounded(LOW, HIGH, 3), jnp.ravel, lambda c: c.interval(LOW, HIGH)),
    "ordered": (pg.ordered(4), jnp.ravel, lambda c: c.ordered_vector),
    "simplex": (pg.simplex(4), lambda y: y[:-1], lambda c: c.simplex),
    "correlation": (pg.correlation_cholesky(4), lambda y: y[BELOW], lambda c: c.corr_cholesky),
    "simplexes": (pg.simplex(3, (2, 2)), lambda y: y[..., :-1].ravel(), lambda c: c.simplex),
    "orders": (pg.ordered(2, 3), jnp.ravel, lambda c: c.ordered_vector),
}


def free_point(support, spread=1.3):
    return spread * jr.normal(jr.key(3), support.free_shape) + 0.2


@functools.cache
def computed(name):
    """All that is tested about a support at one point, in one program."""
    support, free_entries, constraint = SUPPORTS[name]
    x = free_point(support)

    def independent(flat):
        value, log_det = support.constrain(flat.reshape(support.free_shape), {})
        return free_entries(value), (value, log_det)

    def beside(x):
        map_ = distributions.biject_to(constraint(distributions.constraints))
        value = map_(x)
        return value, jnp.sum(map_.log_abs_det_jacobian(x, value))

    def all_of_it(x):
        jacobian, (value, log_det) = jax.jacfwd(independent, has_aux=True)(x.ravel())
        back = support.unconstrain(value, {})
        return jacobian.reshape(x.size, x.size), value, log_det, back, distributions and beside(x)

    return x, jax.tree.map(np.asarray, jax.jit(all_of_it)(x))


@pytest.mark.parametrize("name", SUPPORTS)
def test_log_determinant_by_brute_force(name):
    x, (jacobian, value, log_det, back, _) = computed(name)
    assert float(log_det) == pytest.approx(np.linalg.slogdet(jacobian)[1], abs=1e-10)
    assert value.shape == SUPPORTS[name][0].shape
    np.testing.assert_allclose(back, x, atol=1e-10)


@pytest.mark.skipif(distributions is None, reason="NumPyro is not installed")
@pytest.mark.parametrize("name", SUPPORTS)
def test_beside_numpyro(name):
    _, (_, value, log_det, _, (expected, expected_log_det)) = computed(name)
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
    assert float(log_det) == pytest.approx(float(expected_log_det), abs=1e-10)


def test_values_are_where_they_should_be():
    def values(zero, x):
        even, _ = pg.simplex(4).constrain(zero, {})
        factor, _ = pg.correlation_cholesky(3).constrain(x, {})
        inside, _ = pg.bounded(LOW, HIGH, 3).constrain(zero, {})
        return even, factor, inside

    even, factor, inside = jax.tree.map(
        np.asarray, jax.jit(values)(jnp.zeros(3), jnp.array([0.3, -1.0, 2.0]))
    )
    np.testing.assert_allclose(even, 0.25, rtol=1e-12)  # zero is an even share
    np.testing.assert_allclose(np.diag(factor @ factor.T), 1, rtol=1e-12)
    assert factor[1, 0] == pytest.approx(np.tanh(0.3))
    np.testing.assert_allclose(inside, 0.5 * (LOW + HIGH), rtol=1e-12)


@pytest.mark.parametrize("name", SUPPORTS)
def test_far_out_in_single_precision(name):
    """Logarithms of what bounds a value stay finite, and so do the gradients of log-determinants."""
    support = SUPPORTS[name][0]

    def log_det(x):
        value, log_det = support.constrain(x, {})
        return log_det, value

    far = jit_far(log_det)
    for place in (-60.0, 60.0):
        (change, value), slope = far(jnp.full(support.free_shape, place, jnp.float32))
        assert change.dtype == value.dtype == np.float32
        assert np.isfinite(change)
        assert np.isfinite(slope).all()
        assert np.isfinite(value).all()
        if name == "interval":
            low, high = LOW.astype(np.float32), HIGH.astype(np.float32)
            assert np.isfinite(np.log(value - low) + np.log(high - value)).all()
        elif name in ("above", "below"):
            bound = np.float32(-2.5 if name == "above" else 0.3)
            assert np.isfinite(np.log(abs(value - bound))).all()
        elif name.startswith("simplex") or name == "positive":
            assert np.isfinite(np.log(value)).all()


def jit_far(function):
    return jax.jit(jax.value_and_grad(function, has_aux=True))


def test_a_bound_that_depends_on_another_value():
    """Mean of a uniform point in a triangle, and its area, by a sum over the free plane."""
    target = pg.Posterior(
        lambda v: jnp.zeros(()), {"b": pg.bounded(0, 2), "a": pg.bounded(0, lambda before: 2 - before["b"])}
    )
    axis = jnp.linspace(-18.0, 18.0, 241)
    grid = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_p, values = jax.jit(jax.vmap(lambda x: (target.log_prob(x), target.constrain(x))))(grid)
    weight = np.exp(log_p) * 0.15**2
    assert weight.sum() == pytest.approx(2.0, abs=1e-3)
    assert weight @ np.asarray(values["a"]) / 2 == pytest.approx(2 / 3, abs=1e-3)
    x = jnp.array([0.4, -1.1])
    np.testing.assert_allclose(target.unconstrain(target.constrain(x)), x, atol=1e-12)
    backwards = pg.bounded(lambda before: before["a"], 1.0)
    assert np.isnan(backwards.constrain(jnp.zeros(()), {"a": jnp.array(1.5)})[1])


@pytest.mark.parametrize(
    "support",
    [
        pg.bounded(low=lambda before: before["a"]),
        pg.bounded(high=lambda before: before["a"]),
        pg.bounded(lambda before: before["a"], lambda before: before["a"] ** 2 + 3),
    ],
    ids=["above", "below", "between"],
)
def test_gradients_go_through_a_bound_that_depends_on_another_value(support):
    target = pg.Posterior(lambda v: jnp.sin(v["b"]) + v["a"], {"a": pg.real(), "b": support})
    log_prob, x = jax.jit(target.log_prob), np.array([0.7, -0.4])
    slope = np.asarray(jax.jit(jax.grad(target.log_prob))(x))
    step = 1e-6 * np.eye(2)
    expected = [float(log_prob(x + h) - log_prob(x - h)) / 2e-6 for h in step]
    np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_names_keep_the_order_in_which_they_are_given():
    def log_prob(v):
        return -jnp.sum((v["Z"] - jnp.arange(3.0)) ** 2) - (v["a"] - 5.0) ** 2

    target = pg.Posterior(
        log_prob, {"a": pg.real(), "Z": pg.real(3)}, derived=lambda v: {"B": v["Z"][:, None] * v["a"]}
    )
    assert target.shape == (4,)
    assert target.names == ("a", "Z[0]", "Z[1]", "Z[2]", "B[0,0]", "B[1,0]", "B[2,0]")
    x = jnp.array([5.0, 0.0, 1.0, 2.0])
    assert float(eqx.filter_jit(lambda target, x: target.log_prob(x))(target, x)) == 0
    values = target.constrain(x)
    assert list(values) == ["a", "Z", "B"]
    np.testing.assert_array_equal(values["B"].ravel(), [0, 5, 10])
    np.testing.assert_array_equal(target.unconstrain({"Z": [0, 1, 2], "a": 5}), x)


MISTAKES = {
    "no bounds": (lambda: pg.bounded(), "without bounds, write `real"),
    "bounds": (lambda: pg.bounded(np.array([0, 2]), np.array([1, 2]), 2), "`low` must be below `high`"),
    "size": (lambda: pg.simplex(1), "at least 2, got 1"),
    "nothing": (lambda: pg.Posterior(lambda v: 0.0, {}), "at least one parameter"),
    "vector": (lambda: pg.Posterior(lambda v: v["a"], {"a": pg.real(2)}), "must be a scalar"),
    "name": (lambda: pg.Posterior(lambda v: v["b"], {"a": pg.real()}), "'b'"),
    "twice": (
        lambda: pg.Posterior(lambda v: v["a"], {"a": pg.real()}, derived=lambda v: {"a": 1.0}),
        "must not have names of parameters: 'a'",
    ),
    "missing": (
        lambda: pg.Posterior(lambda v: v["a"], {"a": pg.real()}).unconstrain({"b": 1}),
        "'a' is missing",
    ),
    "shape": (
        lambda: pg.Posterior(lambda v: v["a"], {"a": pg.real()}).unconstrain({"a": [1, 2]}),
        r"must have the shape \(\), got \(2,\)",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes(case):
    call, text = MISTAKES[case]
    with pytest.raises((ValueError, KeyError), match=text):
        call()


class Steps(pg.AbstractNamedTarget):
    """A user's own connection to some other package."""

    @property
    def shape(self):
        return (2,)

    @property
    def parameters(self):
        return {"up": (), "down": ()}

    def log_prob(self, x):
        return -0.5 * x @ x

    def constrain(self, x):
        return {"up": x[0], "down": x[1]}

    def unconstrain(self, values):
        return jnp.stack([values["up"], values["down"]])


def test_a_target_of_ones_own():
    assert Steps().names == ("up", "down")
    values = named_values(Steps(), np.arange(6.0).reshape(3, 2))
    assert list(values) == ["up", "down"]
    np.testing.assert_array_equal(values["down"], [1, 3, 5])
    single = named_values(Steps(), np.zeros((3, 2), np.float32))
    assert single["up"].dtype == np.float32


def test_numpy_data_are_read_in_both_precisions():
    """JAX by itself would mix up what it has made of an array in either."""
    data = np.array([1.5, -0.3])
    target = pg.Posterior(lambda v: -jnp.sum((v["a"] - data) ** 2), {"a": pg.real(2)})
    draws = np.zeros((4, 2))
    assert not pg.needs_float64(target, draws)
    assert not pg.needs_float64(target, draws)
