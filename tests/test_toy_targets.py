import functools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pathgrad.experiments.toy.targets import TARGETS

NUM_DRAWS = 50_000
ANY_DIM = ["funnel", "correlated"]


def per_target(test):
    return pytest.mark.parametrize("name", TARGETS)(test)


@functools.cache
def grid():
    """Points and weights of a product trapezoid rule that is even in arsinh(x).

    Fine near the origin, where the funnel is thin, and wide where it is wide: +-27 and +-548.
    """
    u0, u1 = np.arange(-200, 201) * 0.02, np.arange(-700, 701) * 0.01
    x0, x1 = np.meshgrid(np.sinh(u0), np.sinh(u1), indexing="ij")
    weight = 0.02 * np.cosh(u0)[:, None] * 0.01 * np.cosh(u1)
    return jnp.asarray(np.stack([x0.ravel(), x1.ravel()], axis=1)), jnp.asarray(weight.ravel())


@functools.cache
def draws(name, dim=2):
    target = TARGETS[name](dim)
    return jax.jit(jax.vmap(lambda key: target.sample(key=key)))(jr.split(jr.key(11), NUM_DRAWS))


def log_prob(name, x):
    return jax.jit(jax.vmap(TARGETS[name](2).log_prob))(x)


@per_target
def test_log_z_is_the_integral_over_the_plane(name):
    x, weight = grid()
    integral = jnp.vdot(weight, jnp.exp(log_prob(name, x)))
    log_z = TARGETS[name](2).log_z
    assert isinstance(log_z, float)
    assert math.log(integral) == pytest.approx(log_z, abs=1e-9)
    assert abs(log_z) > 0.1  # a forgotten constant would show


@per_target
def test_draws_have_the_moments_of_the_density(name):
    @jax.jit
    def features(x, log_p):
        a, b = x[:, 0], x[:, 1]
        waves = jnp.sin(2 * a + b), jnp.cos(a - 2 * b), jnp.tanh(a) * jnp.tanh(b) ** 2
        return jnp.stack([a, b, a**2, b**2, a * b, log_p, *waves], axis=1)

    x, weight = grid()
    log_p = log_prob(name, x)
    density = weight * jnp.exp(log_p - TARGETS[name](2).log_z)
    exact = density @ features(x, log_p)
    drawn = features(draws(name), log_prob(name, draws(name)))
    error = jnp.std(drawn, axis=0) / math.sqrt(NUM_DRAWS)
    z = (jnp.mean(drawn, axis=0) - exact) / error
    assert jnp.max(jnp.abs(z)) < 5, z
    # The means must be sharp enough to tell these densities from their mirror images.
    mirrored = jnp.array([-1, -1, 1, 1, 1, 1, -1, 1, -1]) * exact
    assert jnp.max(jnp.abs(mirrored - exact) / error) > 50


@pytest.mark.parametrize("name", ANY_DIM)
def test_log_z_in_five_dimensions(name):
    # E_p[g / exp(log_prob)] = 1/Z for any normalised g; a narrow one keeps the variance small.
    target = TARGETS[name](5)
    centre, scale = {"funnel": (0.3, 0.6), "correlated": (math.sinh(0.5), 0.3)}[name]

    @jax.jit
    @jax.vmap
    def ratio(x):
        log_g = jnp.sum(jax.scipy.stats.norm.logpdf(x, centre, scale))
        return jnp.exp(log_g - target.log_prob(x) + target.log_z)

    value = ratio(draws(name, 5))
    error = jnp.std(value) / math.sqrt(NUM_DRAWS)
    assert error < 0.03
    assert abs(jnp.mean(value) - 1) < 5 * error


def test_funnel_is_a_product_of_normals():
    target, x = TARGETS["funnel"](5), draws("funnel", 5)[0]
    normal = jax.scipy.stats.norm.logpdf
    expected = normal(x[0]) + jnp.sum(normal(x[1:], 0.5 * x[0], jnp.exp(x[0] / 2)))
    assert target.log_prob(x) - target.log_z == pytest.approx(float(expected), abs=1e-12)


def test_correlated_is_a_pushed_forward_normal():
    target, x = TARGETS["correlated"](5), draws("correlated", 5)[0]
    covariance = 0.8 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5)))

    def back(x):
        return jnp.sinh(jnp.arcsinh(x) - 0.5)

    log_det = jnp.linalg.slogdet(jax.jacfwd(back)(x))[1]
    normal = jax.scipy.stats.multivariate_normal.logpdf(back(x), jnp.zeros(5), covariance)
    assert target.log_prob(x) - target.log_z == pytest.approx(float(normal + log_det), abs=1e-12)


def test_correlated_chain_in_five_dimensions():
    z = np.sinh(np.arcsinh(np.asarray(draws("correlated", 5))) - 0.5)
    lag = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    # A correlation r over N draws is known to (1 - r^2) / sqrt(N), a variance to sqrt(2 / N).
    np.testing.assert_allclose(np.corrcoef(z.T), 0.8**lag, atol=5 / math.sqrt(NUM_DRAWS))
    np.testing.assert_allclose(np.var(z, axis=0), 1.0, atol=5 * math.sqrt(2 / NUM_DRAWS))


@per_target
def test_gradient_agrees_with_finite_differences_at_draws(name):
    x = draws(name)[:200]
    gradient = jax.jit(jax.vmap(jax.grad(TARGETS[name](2).log_prob)))(x)
    step = 1e-5
    shifts = step * jnp.concatenate([jnp.eye(2), -jnp.eye(2)])
    values = log_prob(name, (x[:, None] + shifts).reshape(-1, 2)).reshape(-1, 4)
    numeric = (values[:, :2] - values[:, 2:]) / (2 * step)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)


@per_target
@pytest.mark.parametrize("signs", [(-1, -1), (-1, 1), (1, -1)])
def test_no_reflection_is_a_symmetry(name, signs):
    x = draws(name)[:200]
    change = log_prob(name, x * jnp.array(signs)) - log_prob(name, x)
    assert jnp.median(jnp.abs(change)) > 0.1


def test_ring_is_smooth_at_the_origin():
    gradient = jax.grad(TARGETS["ring"](2).log_prob)(jnp.zeros(2))
    np.testing.assert_allclose(gradient, 0.6 * np.array([np.cos(0.7), np.sin(0.7)]), atol=1e-12)


@per_target
def test_nothing_to_train(name):
    target = TARGETS[name](2)
    assert target.shape == (2,)
    assert jax.tree.leaves(target) == []


@pytest.mark.parametrize("name", ANY_DIM)
def test_shape_follows_the_dimension(name):
    assert TARGETS[name](7).shape == (7,)
    assert draws(name, 5).shape == (NUM_DRAWS, 5)


@pytest.mark.parametrize("name", ["banana", "ring", "mixture"])
def test_planar_targets_refuse_other_dimensions(name):
    with pytest.raises(ValueError, match=rf"`{name}` is two-dimensional; got dim=3\. Use dim=2"):
        TARGETS[name](3)


@pytest.mark.parametrize("name", ANY_DIM)
def test_one_dimension_is_refused(name):
    with pytest.raises(ValueError, match=r"got dim=1\. Use dim=2 or more"):
        TARGETS[name](1)
