"""Bases against SciPy, quadrature, closed-form Jacobians and their own draws."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest
import scipy.special
import scipy.stats

import pathgrad as pg

from .helpers import TOLERANCE

SHAPES = {"vector": (2,), "lattice": (2, 3)}
DRAWS = 4000


def as_numpy(tree) -> Any:
    return jax.tree.map(np.asarray, tree)


def arrays(*values):
    return [jnp.asarray(value) for value in values]


def standard(shape):
    return pg.StandardNormal(shape)


def diagonal(shape):
    rng = np.random.default_rng(1)
    return pg.DiagonalNormal(*arrays(rng.normal(size=shape), 0.4 * rng.normal(size=shape)))


def full(shape):
    rng = np.random.default_rng(2)
    size = int(np.prod(shape))
    # Entries on and above the diagonal too, which must not matter.
    lower = 0.6 * rng.normal(size=(size, size))
    return pg.FullNormal(*arrays(rng.normal(size=shape), lower, 0.3 * rng.normal(size=size)))


def mixture(shape):
    rng = np.random.default_rng(3)
    logits = [0.2, 1.5, 0.9]  # not normalised, all different
    means, log_scales = 1.5 * rng.normal(size=(3, *shape)), 0.2 * rng.normal(size=(3, *shape))
    return pg.NormalMixture(*arrays(logits, means, log_scales - 0.5))


def defensive(shape):
    return pg.DefensiveNormal(shape, 0.25, 1.6)


BASES = {"standard": standard, "diagonal": diagonal, "full": full, "mixture": mixture, "defensive": defensive}
ALL = [(kind, shape) for kind in BASES for shape in SHAPES]


def components(base) -> Any:
    """Return weights, means and covariances of any of the bases, of points as vectors."""
    base = as_numpy(base)
    if isinstance(base, pg.NormalMixture):
        weights = scipy.special.softmax(base.logits)
        means = np.reshape(base.means, (len(weights), -1))
        scales = np.exp(np.reshape(base.log_scales, means.shape))
        return weights, means, [np.diag(s**2) for s in scales]
    size = int(np.prod(base.shape))
    if isinstance(base, pg.DefensiveNormal):
        scales = np.array([1.0, base.factor])
        weights = np.array([1 - base.share, base.share])
        return weights, np.zeros((2, size)), [np.eye(size) * scale**2 for scale in scales]
    if isinstance(base, pg.StandardNormal):
        return np.ones(1), np.zeros((1, size)), [np.eye(size)]
    if isinstance(base, pg.DiagonalNormal):
        covariance = np.diag(np.exp(2 * np.ravel(base.log_scale)))
    else:
        factor = np.tril(base.lower, -1) + np.diag(np.exp(base.log_diagonal))
        covariance = factor @ factor.T
    return np.ones(1), np.ravel(base.mean)[None], [covariance]


def reference_log_prob(base, x) -> Any:
    weights, means, covariances = components(base)
    points = np.reshape(x, (len(x), -1))
    each = [
        scipy.stats.multivariate_normal.logpdf(points, m, c) for m, c in zip(means, covariances, strict=True)
    ]
    return scipy.special.logsumexp(np.stack(each), axis=0, b=weights[:, None])


@jax.jit
def draw_with_score(base, keys):
    x, log_choice = jax.vmap(lambda key: base.draw(key=key))(keys)
    return x, log_choice, *jax.vmap(jax.value_and_grad(base.log_prob))(x)


@jax.jit
def log_probs(base, x):
    return jax.vmap(base.log_prob)(x)


@jax.jit
def draw_with_jacobian(base, key):
    return base.draw(key=key), jax.jacrev(lambda base: base.draw(key=key))(base)


@functools.cache
def draws(kind, shape):
    """Return a base, and its draws as NumPy arrays with the score of each by autodiff."""
    base = BASES[kind](SHAPES[shape])
    keys = jr.split(jr.key(4), DRAWS)
    return base, *as_numpy(draw_with_score(base, keys))


def assert_mean(samples, expected):
    """Sample means, within Monte Carlo error of what they should be."""
    error = samples.std(0, ddof=1) / len(samples) ** 0.5
    assert np.all(np.abs(samples.mean(0) - expected) < TOLERANCE["z"] * error)


@pytest.mark.parametrize(("kind", "shape"), ALL)
def test_log_prob_is_scipys(kind, shape):
    base, x, _, log_prob, _ = draws(kind, shape)
    assert base.shape == SHAPES[shape]
    np.testing.assert_allclose(log_prob, reference_log_prob(base, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", BASES)
def test_density_integrates_to_one(kind):
    # The rectangle rule is spectrally accurate for densities that fade at the edge.
    side = np.arange(-14.0, 14.0, 0.1)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    density = np.exp(log_probs(BASES[kind]((2,)), grid))
    assert abs(density.sum() * 0.01 - 1) < 1e-10


@pytest.mark.parametrize(("kind", "shape"), ALL)
def test_draws_have_the_moments_of_the_density(kind, shape):
    base, x, *_ = draws(kind, shape)
    x = x.reshape(len(x), -1)
    weights, means, covariances = components(base)
    mean = weights @ means
    seconds = np.stack([c + np.outer(m, m) for m, c in zip(means, covariances, strict=True)])
    covariance = np.tensordot(weights, seconds, 1) - np.outer(mean, mean)
    assert_mean(x, mean)
    away = x - mean
    assert_mean(away[:, :, None] * away[:, None, :], covariance)


@pytest.mark.parametrize(("kind", "shape"), ALL)
def test_draws_and_log_prob_belong_together(kind, shape):
    """Stein: under the density, the score has mean zero, and E[x s] is minus the identity."""
    _, x, _, _, score = draws(kind, shape)
    x, score = x.reshape(len(x), -1), score.reshape(len(x), -1)
    assert_mean(score, 0.0)
    assert_mean(x[:, :, None] * score[:, None, :], -np.eye(x.shape[1]))


def test_jacobian_of_a_diagonal_draw():
    base, size = diagonal(SHAPES["lattice"]), 6
    (x, log_choice), (jacobian, _) = as_numpy(draw_with_jacobian(base, jr.key(5)))
    assert log_choice is None
    np.testing.assert_array_equal(jacobian.mean.reshape(size, size), np.eye(size))
    np.testing.assert_allclose(
        jacobian.log_scale.reshape(size, size), np.diag(np.ravel(x - base.mean)), atol=1e-12
    )


def test_jacobian_of_a_full_draw():
    base, size = full(SHAPES["lattice"]), 6
    (x, log_choice), (jacobian, _) = as_numpy(draw_with_jacobian(base, jr.key(5)))
    base = as_numpy(base)
    factor = np.tril(base.lower, -1) + np.diag(np.exp(base.log_diagonal))
    noise = np.linalg.solve(factor, np.ravel(x - base.mean))
    assert log_choice is None
    np.testing.assert_array_equal(jacobian.mean.reshape(size, size), np.eye(size))
    # dx_i / dL_jk is delta_ij noise_k below the diagonal, and nothing above.
    lower = np.einsum("ij,k->ijk", np.eye(size), noise) * np.tril(np.ones((size, size)), -1)
    np.testing.assert_allclose(jacobian.lower.reshape(size, size, size), lower, atol=1e-12)
    np.testing.assert_allclose(
        jacobian.log_diagonal.reshape(size, size), np.diag(np.exp(base.log_diagonal) * noise), atol=1e-12
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_jacobian_of_a_mixture_draw_moves_the_picked_component_only(seed):
    base = mixture((2,))
    (x, log_choice), (of_x, of_choice) = as_numpy(draw_with_jacobian(base, jr.key(seed)))
    base = as_numpy(base)
    weights = scipy.special.softmax(base.logits)
    pick = int(np.argmin(np.abs(np.log(weights) - log_choice)))
    picked = np.eye(3)[pick]
    np.testing.assert_array_equal(of_x.logits, np.zeros((2, 3)))
    np.testing.assert_array_equal(of_x.means, np.einsum("ij,k->ikj", np.eye(2), picked))
    away = np.diag(x - base.means[pick])
    np.testing.assert_allclose(of_x.log_scales, np.einsum("ij,k->ikj", away, picked), rtol=0, atol=1e-12)
    np.testing.assert_allclose(of_choice.logits, picked - weights, atol=1e-12)
    assert not np.any(of_choice.means)
    assert not np.any(of_choice.log_scales)


def test_mixture_reports_the_log_weight_of_the_component_it_picked():
    # Narrow and far apart: where a point lies tells which component it came from.
    logits, means = np.array([1.0, 2.0, 0.3]), np.array([[0.0, 0.0], [4.0, 1.0], [-3.0, 6.0]])
    base = pg.NormalMixture(*arrays(logits, means, np.full((3, 2), -4.0)))
    x, log_choice, *_ = as_numpy(draw_with_score(base, jr.split(jr.key(6), DRAWS)))
    pick = np.argmin(np.linalg.norm(x[:, None] - means, axis=-1), axis=1)
    weights = scipy.special.softmax(logits)
    np.testing.assert_allclose(log_choice, np.log(weights)[pick], atol=1e-12)
    assert_mean(np.eye(3)[pick], weights)


def test_mixture_logits_have_no_origin():
    _, x, log_choice, log_prob, _ = draws("mixture", "vector")
    base = mixture((2,))
    moved = pg.NormalMixture(base.logits + 7.0, base.means, base.log_scales)
    again = draw_with_score(moved, jr.split(jr.key(4), DRAWS))
    for mine, before in zip(again[:3], (x, log_choice, log_prob), strict=True):
        np.testing.assert_allclose(mine, before, atol=1e-12)


@pytest.fixture
def unchecked():
    """Switch off run-time type checks: users have none, and see our own message."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "shapes",
    [((3,), (2, 2), (2, 2)), ((2,), (2, 2), (2, 3)), ((2,), (2, 2), (3, 2)), ((), (2,), (2,))],
    ids=str,
)
def test_mixture_refuses_shapes_that_do_not_fit(shapes):
    with pytest.raises(ValueError, match="one logit, one mean and one log-scale") as error:
        pg.NormalMixture(*map(jnp.zeros, shapes))
    for shape in shapes:
        assert str(shape) in str(error.value)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", [pg.DiagonalNormal, pg.FullNormal])
def test_standard_begins_as_the_standard_normal(kind, shape):
    base, reference = kind.standard(shape), pg.StandardNormal(shape)
    x = np.random.default_rng(7).normal(size=(5, *shape))
    assert base.shape == shape
    np.testing.assert_allclose(log_probs(base, x), reference_log_prob(reference, x), atol=1e-12)


def test_from_covariance_has_that_mean_and_covariance():
    covariance = np.array([[2.0, 0.7, -0.3], [0.7, 1.1, 0.4], [-0.3, 0.4, 0.9]])
    mean = np.array([0.4, -1.2, 3.0])
    base = pg.FullNormal.from_covariance(mean, covariance)
    # That `log_prob` uses `factor` is known from the tests above.
    np.testing.assert_allclose(base.factor @ base.factor.T, covariance, atol=1e-12)
    np.testing.assert_array_equal(base.mean, mean)


def test_mixture_at_has_equal_weights_and_one_scale():
    means = np.array([[0.0, 1.0], [2.0, -1.0], [-4.0, 0.5]])
    base = pg.NormalMixture.at(means, scale=0.6)
    x = 3 * np.random.default_rng(10).normal(size=(5, 2))
    each = [np.exp(-0.5 * ((x - m) ** 2).sum(1) / 0.36) / (2 * np.pi * 0.36) for m in means]
    np.testing.assert_allclose(log_probs(base, x), np.log(np.mean(each, axis=0)), rtol=1e-10)


def test_a_defended_base_keeps_most_draws():
    keys = jr.split(jr.key(4), DRAWS)
    plain, wide = (as_numpy(draw_with_score(b, keys)[0]) for b in (standard((2,)), defensive((2,))))
    ratio = wide / plain
    is_wide = ratio[:, 0] > 1.3
    np.testing.assert_allclose(ratio, np.where(is_wide, 1.6, 1.0)[:, None] * np.ones(2), rtol=1e-12)
    assert_mean(is_wide.astype(float), 0.25)


def test_weights_of_a_defended_flow_are_bounded():
    """A flow that is too narrow by a factor of 1.25: its weights are not bounded."""
    flow = pg.Flow(pg.StandardNormal((2,)), [pg.Affine(jnp.array([0.4, -1.0]), jnp.array([0.3, -0.2]))])
    scales = 1.25 * np.exp([0.3, -0.2])
    wide = pg.DiagonalNormal(jnp.array([0.4, -1.0]), jnp.log(jnp.asarray(scales)))
    target = pg.LogDensity(wide.log_prob, (2,))

    def weights(flow):
        x, log_q = flow.sample_and_log_prob(key=jr.key(3), n=DRAWS)
        return jax.vmap(target.log_prob)(x) - log_q

    # In the coordinates of the base, with r = |z|^2, the largest ratio of the two densities.
    r = np.linspace(0, 400, 100_001)
    log_p = -r / 2 / 1.25**2 - 2 * np.log(1.25)
    narrow, far = np.log(0.9) - r / 2, np.log(0.1) - r / 2 / 1.3**2 - 2 * np.log(1.3)
    bound = np.max(log_p - np.logaddexp(narrow, far))
    plain, safe = weights(flow), weights(pg.defended(flow))
    assert float(jnp.max(safe)) <= bound < float(jnp.max(plain)) - 0.5
    assert pg.metrics.khat(safe) < pg.metrics.khat(plain) - 0.2
    # Of a perfect flow, no weight is larger than 1 / (1 - share).
    x, log_q = pg.defended(pg.Flow(pg.StandardNormal((2,))), 0.3, 2.0).sample_and_log_prob(
        key=jr.key(3), n=DRAWS
    )
    perfect = jax.vmap(pg.StandardNormal((2,)).log_prob)(x) - log_q
    assert float(jnp.max(perfect)) <= -np.log(0.7)
    assert 0.7 <= pg.metrics.ess(perfect) < 0.99


@pytest.mark.parametrize("kind", [pg.StandardNormal, pg.DefensiveNormal])
def test_precision_of_draws_can_be_chosen(kind):
    x, _ = kind((3,), dtype=jnp.float32).draw(key=jr.key(0))
    assert x.dtype == jnp.float32
    assert kind((3,)).draw(key=jr.key(0))[0].dtype == jnp.float64
    flow = pg.Flow(kind((3,), dtype=jnp.float32))
    assert {a.dtype for a in flow.sample_and_log_prob(key=jr.key(0), n=2)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: pg.DefensiveNormal((2,), 1.0), "`share` must be between 0 and 1, got 1.0"),
        (lambda: pg.DefensiveNormal((2,), 0.1, 0.9), "`factor` must be larger than 1"),
        (lambda: pg.defended(pg.Flow(diagonal((2,)))), "base `StandardNormal`.* not one with DiagonalNormal"),
    ],
    ids=["share", "factor", "base"],
)
def test_defences_that_make_no_sense_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
