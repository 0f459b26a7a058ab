"""Families in closed form, without any ODE (Roeder, Wu, Duvenaud 2017), and a mixture under a CNF."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg

from .helpers import ESTIMATORS, T0, T1, TOLERANCE, SkewedTarget, affine_solution, bent_field, ravel

N = 4
BATCHES = 600

MEAN, COVARIANCE = np.array([0.6, -0.9]), np.array([[1.3, 0.5], [0.5, 0.7]])
PRECISION = np.linalg.inv(COVARIANCE)


def diagonal():
    return pg.DiagonalNormal(jnp.array([0.3, -0.5]), jnp.array([-0.2, 0.4]))


def full():
    lower = jnp.array([[0.9, 0.4], [-0.7, 0.1]])  # only -0.7 counts
    return pg.FullNormal(jnp.array([0.3, -0.5]), lower, jnp.array([-0.2, 0.4]))


def mixture():
    means = jnp.array([[0.9, -0.4], [-1.1, 0.8], [0.2, 1.6]])
    log_scales = jnp.array([[-0.5, 0.1], [0.0, -0.3], [-0.2, -0.6]])
    return pg.NormalMixture(jnp.array([0.7, -0.4, 0.1]), means, log_scales)


FAMILIES = {"diagonal": diagonal, "full": full, "mixture": mixture}


@functools.cache
def target(skew):
    normal = pg.FullNormal.from_covariance(MEAN, COVARIANCE)
    return SkewedTarget(jnp.array([0.8, -0.4]), jnp.asarray(skew), normal)


class Mirror(eqx.Module):
    """The density of the base itself, times a constant."""

    base: pg.AbstractBase

    def log_prob(self, x):
        return self.base.log_prob(x) + 2.7


@functools.cache
def compiled(estimator, n=N):
    """Compile once for each shape of base and target: loss and gradient of many batches."""

    @eqx.filter_jit
    def run(base, target, keys):
        @eqx.filter_value_and_grad
        def loss(base, key):
            flow = pg.Flow(base)
            return pg.reverse_kl(flow, target, key=key, n=n, estimator=ESTIMATORS[estimator])

        return jax.vmap(loss, (None, 0))(base, keys)

    return run


@functools.cache
def batches(estimator, family, skew, n=N):
    """Return values, and gradients as trees of arrays, batch axis first."""
    run = compiled(estimator, n)
    return as_numpy(run(FAMILIES[family](), target(skew), jr.split(jr.key(3), BATCHES)))


def as_numpy(tree):
    return jax.tree.map(np.asarray, tree)


def flat(gradients):
    return np.concatenate([g.reshape(len(g), -1) for g in jax.tree.leaves(gradients)], axis=1)


def assert_mean(samples, expected):
    """Sample means, within Monte Carlo error of what they should be (or equal, without any)."""
    error = samples.std(0, ddof=1) / len(samples) ** 0.5
    assert np.all(np.abs(samples.mean(0) - expected) <= TOLERANCE["z"] * error + 1e-12)


@functools.cache
def draws(family):
    """Return the draws behind every batch, and their `log q`."""
    base = FAMILIES[family]()
    sample = jax.vmap(lambda key: pg.Flow(base).sample_and_log_prob(key=key, n=N))
    return as_numpy(jax.jit(sample)(jr.split(jr.key(3), BATCHES)))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_value_is_honest_for_every_estimator(family):
    """It is the mean of log q - log p, also where a choice has a gradient to give."""
    x, log_q = draws(family)
    log_p = jax.jit(jax.vmap(jax.vmap(target(1.0).log_prob)))(x)
    for estimator in ESTIMATORS:
        values, _ = batches(estimator, family, 1.0)
        np.testing.assert_allclose(values, (log_q - log_p).mean(1), atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_path_gradient_is_the_two_copy_gradient(family):
    path, two_copy = (flat(batches(e, family, 1.0)[1]) for e in ("path", "two-copy"))
    assert np.linalg.norm(path, axis=1).min() > 0.01
    np.testing.assert_allclose(path, two_copy, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_path_and_total_agree_in_the_mean(family):
    path, total = (flat(batches(e, family, 1.0)[1]) for e in ("path", "total"))
    assert_mean(total - path, 0.0)
    assert (total - path).std(0).max() > 0.1


def gaussian_kl_gradient(family):
    """Return the gradient of KL(N(m, L L^T) | N(mu, P^-1)) in mean and scales.

    KL = (tr(P L L^T) + (m - mu)^T P (m - mu)) / 2 - ln det L + constant, so that dKL/dm = P (m - mu) and
    dKL/dL = P L - L^-T, whose part below the diagonal is that of P L.
    """
    base = as_numpy(FAMILIES[family]())
    in_mean = PRECISION @ (base.mean - MEAN)
    if family == "diagonal":
        return pg.DiagonalNormal(*map(jnp.asarray, (in_mean, scale_gradient(base.log_scale))))
    factor = np.tril(base.lower, -1) + np.diag(np.exp(base.log_diagonal))
    in_factor = PRECISION @ factor
    in_log_diagonal = np.diag(factor) * np.diag(in_factor) - 1
    parts = (in_mean, np.tril(in_factor, -1), in_log_diagonal)
    return pg.FullNormal(*map(jnp.asarray, parts))


def scale_gradient(log_scale):
    return np.exp(2 * log_scale) * np.diag(PRECISION) - 1


@pytest.mark.parametrize("family", ["diagonal", "full"])
@pytest.mark.parametrize("estimator", ["path", "total"])
def test_mean_gradient_of_a_normal_is_that_of_the_divergence(estimator, family):
    _, gradients = batches(estimator, family, 0.0)
    expected = np.asarray(ravel(gaussian_kl_gradient(family)))
    assert np.abs(expected).max() > 0.5
    assert_mean(flat(gradients), expected)


def test_path_gradient_of_a_normal_draw_by_draw():
    """With x = m + s e: cotangent c = -e / s + P (x - mu), gradient c in m and c s e in ln s."""
    _, gradients = batches("path", "diagonal", 0.0)
    x, _ = draws("diagonal")
    base = as_numpy(diagonal())
    scale = np.exp(base.log_scale)
    noise = (x - base.mean) / scale
    cotangent = -noise / scale + (x - MEAN) @ PRECISION
    np.testing.assert_allclose(gradients.mean, cotangent.mean(1), atol=1e-12)
    in_scale = (cotangent * scale * noise).mean(1)
    np.testing.assert_allclose(gradients.log_scale, in_scale, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_path_gradients_vanish_where_q_is_p(family):
    """In every batch, the weights of the mixture included: all log-weights are equal there."""
    base, keys = FAMILIES[family](), jr.split(jr.key(3), 50)
    for estimator in ESTIMATORS:
        values, gradients = compiled(estimator)(base, Mirror(base), keys)
        np.testing.assert_allclose(values, -2.7, atol=1e-12)
        leaves = as_numpy(jax.tree.leaves(gradients))
        if estimator == "total":
            # Every leaf has noise of its own.
            assert min(np.abs(leaf).max() for leaf in leaves) > 0.1
        else:
            assert max(np.abs(leaf).max() for leaf in leaves) < 1e-12


@functools.cache
def mixture_kl_gradient():
    """Return the gradient of KL(q | p) by quadrature: no draws, no path, no score function."""
    side = np.arange(-9.0, 9.0, 0.12)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

    @jax.jit
    def divergence(base):
        log_q = jax.vmap(base.log_prob)(grid)
        log_p = jax.vmap(target(1.0).log_prob)(grid)
        return jnp.vdot(jnp.exp(log_q), log_q - log_p) * 0.12**2

    return as_numpy(jax.grad(divergence)(mixture()))


@pytest.mark.parametrize(
    ("estimator", "n"), [("path", N), ("total", N), ("path", 1)], ids=["path", "total", "one draw"]
)
def test_mean_gradient_of_a_mixture_is_that_of_the_divergence(estimator, n):
    """Weights, means and scales; `n` of one has no other draws to make a baseline of."""
    _, gradients = batches(estimator, "mixture", 1.0, n)
    expected = mixture_kl_gradient()
    assert np.abs(expected.logits).max() > 0.05
    assert_mean(gradients.logits, expected.logits)
    assert_mean(gradients.means, expected.means)
    assert_mean(gradients.log_scales, expected.log_scales)


def test_estimate_reports_the_log_weights():
    estimate = pg.estimate_reverse_kl(
        pg.Flow(mixture()), target(1.0), key=jr.split(jr.key(3), BATCHES)[7], n=N
    )
    x, log_q = draws("mixture")
    expected = jax.vmap(target(1.0).log_prob)(x[7]) - log_q[7]
    np.testing.assert_allclose(estimate.log_weight, expected, atol=1e-12)
    assert bool(estimate.log_prob_finite)
    assert estimate.solve is None


@functools.cache
def compiled_carried(estimator):
    """As `compiled`, for a base carried by a CNF; gradients are in base and field."""

    @eqx.filter_jit
    def run(base, field, keys):
        @eqx.filter_value_and_grad
        def loss(parts, key):
            base, field = parts
            cnf = pg.CNF(field, integrator=pg.FixedStep(40), t0=T0, t1=T1)
            flow = pg.Flow(base, [cnf])
            chosen = ESTIMATORS[estimator]
            return pg.reverse_kl(flow, target(1.0), key=key, n=N, estimator=chosen)

        return jax.vmap(loss, (None, 0))((base, field), keys)

    return run


@functools.cache
def carried_batches(estimator, bend):
    run = compiled_carried(estimator)
    return as_numpy(run(mixture(), bent_field(bend), jr.split(jr.key(5), BATCHES)))


def test_mixture_under_a_flow_has_equal_path_and_two_copy_gradients():
    (values, path), (other_values, two_copy) = (
        carried_batches(e, 1.0) for e in ("path", "two-copy")
    )
    np.testing.assert_allclose(values, other_values, atol=TOLERANCE["two solves"])
    assert np.abs(path[0].logits).max() > 0.1
    error = np.abs(flat(path) - flat(two_copy)).max()
    assert error < TOLERANCE["two solves"] * np.abs(flat(path)).max()


def test_mixture_under_a_flow_has_path_and_total_gradients_equal_in_the_mean():
    path, total = (flat(carried_batches(e, 1.0)[1]) for e in ("path", "total"))
    assert_mean(total - path, 0.0)
    assert (total - path).std(0).max() > 0.1


@functools.cache
def carried_kl_gradient():
    """Return the gradient of KL(q | p) of a mixture under an affine flow, by quadrature over the base.

    The flow is x = M z + s by one matrix exponential, and ln|det M| = (t1 - t0) tr A.
    """
    side = np.arange(-9.0, 9.0, 0.12)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

    @jax.jit
    def divergence(parts):
        base, field = parts
        matrix, shift = affine_solution(field, T0, T1)
        log_q0 = jax.vmap(base.log_prob)(grid)
        log_q = log_q0 - (T1 - T0) * jnp.trace(field.matrix)
        log_p = jax.vmap(target(1.0).log_prob)(grid @ matrix.T + shift)
        return jnp.vdot(jnp.exp(log_q0), log_q - log_p) * 0.12**2

    return as_numpy(jax.grad(divergence)((mixture(), bent_field(0.0))))


@pytest.mark.parametrize("estimator", ["path", "total"])
def test_mean_gradient_of_a_mixture_under_a_flow_is_that_of_the_divergence(estimator):
    _, (in_base, in_field) = carried_batches(estimator, 0.0)
    base, field = carried_kl_gradient()
    assert np.abs(base.logits).max() > 0.05
    for mine, expected in zip(jax.tree.leaves(in_base), jax.tree.leaves(base), strict=True):
        assert_mean(mine, expected)
    assert_mean(in_field.matrix, field.matrix)
    assert_mean(in_field.shift, field.shift)
