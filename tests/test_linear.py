"""Fixed affine maps, targets in their coordinates, and double precision inside programs that have single."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax import lax

import pathgrad as pg
from pathgrad._words.constant import Constant

from .helpers import TOLERANCE, ravel

N = 6


def badly_conditioned(dim=4, decades=6):
    """A factor of condition 10^6 without any structure."""
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(2))
    return left * np.logspace(1 - decades, 1, dim) @ right


def low_rank():
    columns = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 2)))[0]
    scale = np.array([[0.5, 2.0, 1.0], [3.0, 0.1, 1.5]])
    return pg.LowRankAffine(np.arange(6.0).reshape(2, 3), scale, columns, [4.0, 0.3])


MAPS = {
    "full": pg.FullAffine([0.3, -2.0, 5.0], [[1.0, 0, 0.2], [0.5, 2.0, 0], [-1.0, 0.3, 0.7]]),
    "lower": pg.FullAffine(np.ones((2, 2)), np.tril(np.ones((4, 4))) + np.diag([0, 1.0, 2, 3])),
    "low rank": low_rank(),
    "diagonal": pg.LowRankAffine([1.0, 2.0], [0.1, 3.0]),
    "scalar": pg.FullAffine(2.0, [[-3.0]]),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps_and_determinants_are_those_of_the_matrix(name):
    mapping = MAPS[name]
    x = jr.normal(jr.key(0), mapping.shift.shape)
    y, log_det = mapping.forward(x)
    expected = (mapping.matrix @ np.ravel(x)).reshape(x.shape) + mapping.shift
    np.testing.assert_allclose(y, expected, rtol=TOLERANCE["algebra"])
    _, brute = np.linalg.slogdet(mapping.matrix)
    assert float(log_det) == pytest.approx(brute, abs=TOLERANCE["algebra"])
    back, back_log_det = mapping.inverse(y)
    np.testing.assert_allclose(back, x, atol=TOLERANCE["algebra"])
    assert back_log_det == -log_det


def test_a_flow_with_a_fixed_map_is_a_normal_with_its_covariance():
    mapping = MAPS["full"]
    flow = pg.Flow(pg.StandardNormal((3,)), [mapping])
    exact = pg.FullNormal.from_covariance(mapping.shift, mapping.matrix @ mapping.matrix.T)
    draw: Any = flow.sample_with_score(key=jr.key(1), n=N)
    density = jax.vmap(exact.log_prob)(draw.x)
    np.testing.assert_allclose(draw.log_q, density, atol=TOLERANCE["algebra"])
    np.testing.assert_allclose(flow.log_prob(draw.x), density, atol=TOLERANCE["algebra"])
    np.testing.assert_allclose(draw.score, jax.vmap(jax.grad(exact.log_prob))(draw.x), atol=1e-11)


def test_density_and_score_of_a_draw_stay_accurate_in_single_precision():
    """Condition 10^6, location 100. Only going back is limited, by the point itself."""
    factor, mean = badly_conditioned(), np.full(4, 100.0)
    with jax.enable_x64(False):
        flow = pg.Flow(pg.StandardNormal((4,)), [pg.FullAffine(mean, factor)])
        draw: Any = flow.sample_with_score(key=jr.key(1), n=N)
        assert draw.x.dtype == draw.score.dtype == draw.log_q.dtype == jnp.float32
        z = np.asarray(pg.Flow(flow.base).sample(key=jr.key(1), n=N), np.float64)
        back = flow.log_prob(draw.x)
    log_q = -0.5 * np.sum(z**2, axis=1) - 2 * np.log(2 * np.pi) - np.linalg.slogdet(factor)[1]
    np.testing.assert_allclose(draw.log_q, log_q, rtol=1e-6)
    score = -np.linalg.solve(factor.T, z.T).T
    np.testing.assert_allclose(draw.score, score, rtol=1e-5, atol=1e-5 * np.abs(score).max())
    assert np.abs(back - log_q).max() > 0.1  # what a rounded point has lost, no formula brings back


def test_no_method_trains_a_fixed_map():
    mapping = MAPS["full"]
    flow = pg.Flow(pg.DiagonalNormal.standard((3,)), [pg.Affine.identity((3,)), mapping])
    assert ravel(mapping).size == 0
    target = pg.LogDensity(lambda x: -jnp.sum(jnp.cosh(x)), (3,))
    trained = pg.fit(flow, target, key=jr.key(0), steps=50, optimizer=optax.adamw(0.1, weight_decay=0.5))
    assert eqx.tree_equal(trained.flow.transforms[1], mapping)
    assert not eqx.tree_equal(trained.flow.transforms[0], flow.transforms[0])


def test_constants_keep_every_bit_where_there_are_no_doubles():
    exact = np.array([[1 / 3, 1e-300], [np.pi * 1e200, -0.0]])
    with jax.enable_x64(False):
        constant = Constant(exact)
        assert constant.shape == (2, 2)
        np.testing.assert_array_equal(constant.numpy(), exact)
        np.testing.assert_array_equal(
            jax.jit(lambda c: c.read(jnp.float32))(constant)[0, 0], np.float32(1 / 3)
        )
    np.testing.assert_array_equal(constant.read(jnp.float64), exact)


def skewed(x):
    return -jnp.sum(jnp.cosh(0.3 * (x - 1))) - 0.1 * x.ravel()[0] * x.ravel()[-1]


def test_a_whitened_target_has_the_weights_of_the_original_one():
    mapping = low_rank()
    shape = mapping.shift.shape
    target = pg.LogDensity(skewed, shape)
    white = pg.Whitened(target, mapping)
    assert white.shape == shape
    inner = pg.Flow(
        pg.DiagonalNormal.standard(shape), [pg.Affine(jnp.full(shape, 0.2), jnp.full(shape, -0.1))]
    )
    outer = pg.Flow(inner.base, [*inner.transforms, mapping])
    weights = []
    for flow, density in ((inner, white), (outer, target)):
        draw: Any = flow.draw("score", key=jr.key(3), n=N)
        weights.append(jax.vmap(density.log_prob)(draw.x) - draw.log_q)
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-12)
    gradients = [
        ravel(eqx.filter_grad(lambda f, d=d: pg.reverse_kl(f, d, key=jr.key(3), n=N))(f))
        for f, d in ((inner, white), (outer, target))
    ]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-10)


FUNCTIONS = {
    "sum": skewed,
    "far away": lambda x: -1e9 - jnp.sum((x - 1) ** 2),
    "cholesky": lambda x: jnp.log(jnp.linalg.cholesky(jnp.diag(x**2) + 2 * jnp.eye(3))[2, 2]),
    # These three are expanded only when they are translated to machine code.
    "incomplete gamma": lambda x: jnp.sum(jax.scipy.special.gammainc(2.0, jnp.exp(x))),
    "bessel": lambda x: jnp.sum(jnp.log(jax.scipy.special.i0(x))),
    "scan": lambda x: lax.scan(lambda c, a: (jnp.tanh(c + a), c * a), 0.0 * x[0], x)[1].sum(),
}
TRANSFORMS = {
    "at each point": lambda f: jax.jit(jax.vmap(jax.value_and_grad(f))),
    "after compiling": lambda f: jax.vmap(jax.jit(jax.value_and_grad(f))),
    "in a loop": lambda f: jax.jit(lambda x: lax.map(jax.value_and_grad(f), x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_precise_target_is_computed_in_double_inside_single_precision(name):
    target = pg.LogDensity(FUNCTIONS[name], (3,))
    points = np.asarray(jr.normal(jr.key(1), (N, 3)), np.float32)
    expected = jax.vmap(jax.value_and_grad(target.log_prob))(points.astype(np.float64))
    with jax.enable_x64(False):
        for transform in TRANSFORMS.values():
            value, score = transform(pg.Precise(target).log_prob)(points)
            assert value.dtype == score.dtype == jnp.float32
            np.testing.assert_array_equal(value, expected[0].astype(np.float32))
            np.testing.assert_allclose(score, expected[1], rtol=1e-6, atol=1e-7)


def test_numpy_arrays_in_a_density_are_read_in_both_precisions():
    """In turns: what one precision has made of them must not be taken for the other."""
    data, points = np.array([1.0 + 1e-9, 3.0]), np.array([[1.0, 2.5]], np.float32)
    target, seen, alive = pg.LogDensity(lambda x: -jnp.sum((x - data) * 1e6), (2,)), [], []
    for is_double in (False, True, False, True):
        with jax.enable_x64(is_double):
            alive.append(jax.jit(jax.vmap(target.log_prob)))
            seen.append(float(alive[-1](points.astype(float) if is_double else points)[0]))
    np.testing.assert_allclose(seen, [5e5, 5e5 + 1e-3] * 2, rtol=1e-12)


class Shifted(eqx.Module):
    mean: jax.Array

    def log_prob(self, x):
        return -0.5 * jnp.sum((x - self.mean) ** 2 / 1e-12)


def test_training_through_precise_coordinates_needs_no_doubles_outside():
    """A scale of 10^-6 at 1: single precision has no points there."""
    with jax.enable_x64(False):
        map = pg.FullAffine(np.ones(2), 1e-6 * np.eye(2))
        coarse = pg.Whitened(Shifted(jnp.ones(2)), map)
        fine = pg.Precise(coarse)
        draws = pg.Flow(pg.StandardNormal((2,))).sample(key=jr.key(0), n=16)
        assert pg.needs_float64(coarse, draws)
        assert pg.compare_precisions(coarse, draws).error > 0.01
        flow = pg.Flow(pg.DiagonalNormal(jnp.ones(2), jnp.zeros(2)))
        fit = pg.fit(flow, fine, key=jr.key(1), steps=400, optimizer=optax.adam(0.02), n=16)
        base: Any = fit.flow.base
        np.testing.assert_allclose(base.mean, 0, atol=1e-3)


def test_the_need_for_doubles_is_measured():
    draws = np.array(jr.normal(jr.key(0), (32, 2)))
    assert not pg.needs_float64(pg.LogDensity(lambda x: -0.5 * jnp.sum((x - draws[0]) ** 2), (2,)), draws)
    assert not pg.needs_float64(pg.LogDensity(lambda x: -0.5 * x @ x, (2,)), draws)
    assert pg.needs_float64(pg.LogDensity(lambda x: -1e9 - 0.5 * x @ x, (2,)), draws)
    lost = pg.LogDensity(lambda x: -x @ x + 0 * jnp.sum(jnp.exp(100 + x)), (2,))
    assert pg.compare_precisions(lost, draws).lost == 1.0
    # Where double precision has no value either, it is no remedy.
    assert pg.compare_precisions(pg.LogDensity(lambda x: jnp.log(-x @ x), (2,)), draws) == (0.0, 0.0)


REFUSED = {
    "square": (lambda: pg.FullAffine([0.0, 0.0], np.eye(3)), r"`matrix` must have shape \(2, 2\)"),
    "singular": (lambda: pg.FullAffine([0.0, 0.0], np.ones((2, 2))), "no inverse"),
    "infinite": (lambda: pg.FullAffine([0.0, np.inf], np.eye(2)), "not finite"),
    "shape": (lambda: pg.LowRankAffine([0.0, 0.0], [1.0]), "`scale` must have the shape"),
    "negative": (lambda: pg.LowRankAffine([0.0], [-1.0]), "must be positive"),
    "skew": (lambda: pg.LowRankAffine([0.0, 0], [1.0, 1], np.ones((2, 1)), [2.0]), "orthonormal"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_is_wrong(name):
    build, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        build()
