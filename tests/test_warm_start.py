"""The best Gaussian of a target: exact where the target is one, from anywhere, and why there is none."""

import itertools
import types
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax

import pathgrad as pg
from pathgrad._train.warm_start import budget

from .helpers import has_marks

KEY = jr.key(4)


def normal(dim=5, decades=3, shift=2.0, seed=0):
    """A normal without structure: target, mean, covariance and log normaliser."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(2))
    factor = left * np.logspace(-decades, 0, dim) @ right
    mean = factor @ (shift * left[0])
    inverse = np.linalg.inv(factor)

    def log_prob(x):
        z = inverse @ (x - mean)
        return 3.0 - 0.5 * z @ z

    log_z = 3.0 + 0.5 * dim * np.log(2 * np.pi) + np.linalg.slogdet(factor)[1]
    return pg.LogDensity(log_prob, (dim,)), mean, factor, log_z


def skewed(x):
    """Smooth, and not symmetric in any coordinate."""
    return -jnp.sum(jnp.cosh(x) + 0.4 * jnp.sin(x)) - 0.3 * x[0] * x[1] - 0.1 * x[2] ** 2 * x[0]


def is_normal(map, mean, factor, atol=1e-6):
    """Whether mean and covariance agree, in the coordinates in which the covariance is one."""
    near = np.abs(np.linalg.solve(factor, map.shift - mean)).max() < atol
    whole = np.linalg.solve(factor, map.matrix)
    return near and np.abs(whole @ whole.T - np.eye(len(mean))).max() < atol


@pytest.mark.parametrize(("decades", "shift"), [(0, 0.0), (3, 2.0), (6, 100.0)])
def test_a_normal_target_is_found_exactly_wherever_it_is(decades, shift):
    target, mean, factor, log_z = normal(decades=decades, shift=shift)
    found = pg.warm_start(target, key=KEY)
    assert found.outcome is pg.StartOutcome.CONVERGED
    assert found.kind is pg.StartKind.FULL
    assert is_normal(found.map, mean, factor)
    assert found.elbo == pytest.approx(log_z, abs=1e-8)
    assert found.elbo_err < 1e-6
    assert found.modes == ()
    assert found.outside == 0
    assert not np.triu(found.map.matrix, 1).any()
    assert (np.diag(found.map.matrix) > 0).all()


def test_the_same_gaussian_is_found_in_other_coordinates():
    """A target that is no Gaussian, after an affine map of condition 10^6 with the origin 100 sd away."""
    plain = pg.warm_start(pg.LogDensity(skewed, (3,)), key=KEY)
    _, shift, matrix, _ = normal(dim=3, decades=6, shift=100.0, seed=3)
    inverse = np.linalg.inv(matrix)
    moved = pg.LogDensity(lambda x: skewed(inverse @ (x - shift)), (3,))
    found = pg.warm_start(moved, key=KEY)
    assert found.outcome is pg.StartOutcome.CONVERGED
    assert found.elbo - np.linalg.slogdet(matrix)[1] == pytest.approx(plain.elbo, abs=0.03)
    # The draws are the same, but belong to other points, so the Gaussians differ as two samples do.
    assert is_normal(found.map, matrix @ plain.map.shift + shift, matrix @ plain.map.matrix, atol=0.3)


def test_the_gaussian_is_the_one_of_least_divergence():
    """One coordinate, against a search of the two parameters by quadrature."""
    found = pg.warm_start(pg.LogDensity(lambda x: -jnp.exp(x) + 2.5 * x, ()), key=KEY)
    # E[-exp(x) + 2.5 x] + log s for N(m, s^2): the mean is log 2.5 - s^2/2 and the variance 1/2.5.
    assert float(found.map.shift) == pytest.approx(np.log(2.5) - 0.2, abs=0.01)
    assert float(found.map.matrix[0, 0]) == pytest.approx(0.4**0.5, abs=0.01)
    best = -2.5 + 2.5 * (np.log(2.5) - 0.2) + 0.5 * np.log(2 * np.pi * np.e * 0.4)
    assert abs(found.elbo - best) < 5 * found.elbo_err


def test_a_start_or_draws_of_the_user_are_taken():
    """Two modes, of which each is found from nearby, and the other one is kept."""

    def log_prob(x):
        return jnp.logaddexp(-0.5 * jnp.sum((x - 9) ** 2), 1.5 - 0.5 * jnp.sum((x + 9) ** 2))

    target = pg.LogDensity(log_prob, (2,))
    found = pg.warm_start(target, key=KEY)
    np.testing.assert_allclose(found.map.shift, [-9, -9], atol=1e-3)
    assert any(np.allclose(mode.location, 9, atol=1e-3) for mode in found.modes)
    there = next(mode for mode in found.modes if np.allclose(mode.location, 9, atol=1e-3))
    np.testing.assert_allclose(there.scale, 1, atol=1e-3)
    assert there.elbo == pytest.approx(np.log(2 * np.pi), abs=1e-3)
    draws = 9 + np.asarray(jr.normal(jr.key(1), (50, 2)))
    for again in (
        pg.warm_start(target, key=KEY, start=[8.0, 8.5]),
        pg.warm_start(target, key=KEY, draws=draws),
    ):
        np.testing.assert_allclose(again.map.shift, 9, atol=1e-3)


def test_the_same_key_gives_the_same_bits_in_either_precision():
    target = pg.LogDensity(skewed, (4,))
    first = pg.warm_start(target, key=KEY)
    with jax.enable_x64(False):
        second = pg.warm_start(target, key=KEY)
    np.testing.assert_array_equal(first.map.matrix, second.map.matrix)
    assert first.gradients == second.gradients < 30_000


def test_regions_without_a_value_are_left_out():
    def log_prob(x):
        whole = -0.5 * jnp.sum((x - 3) ** 2) / 0.01
        return jnp.where(x[0] < 1, jnp.nan, jnp.where(x[1] > 9, -jnp.inf, whole))

    found = pg.warm_start(pg.LogDensity(log_prob, (3,)), key=KEY)  # the origin is one of the holes
    assert found.outcome is pg.StartOutcome.CONVERGED
    assert is_normal(found.map, np.full(3, 3.0), 0.1 * np.eye(3))


FAILURES = {
    "nan": (lambda x: jnp.nan * jnp.sum(x), "NOWHERE_FINITE"),
    "minus infinity": (lambda x: -jnp.inf + jnp.sum(x), "NOWHERE_FINITE"),
    "no gradient": (lambda x: jnp.sqrt(0 * x @ x) - x @ x, "NO_GRADIENT"),
    "flat": (lambda x: -(x[0] ** 2), "IMPROPER"),
    "rising": (lambda x: x[1] - x[0] ** 2, "IMPROPER"),
    "heavy": (lambda x: -0.4 * jnp.log1p(x @ x), "IMPROPER"),
    "spike": (lambda x: -6 * jnp.log(x @ x) - x @ x, "UNBOUNDED"),
    "jump": (lambda x: -0.5 * x @ x + 2.0 * (x[0] > 0.3), "DISCONTINUOUS"),
    "blocked": (
        lambda x: -0.5 * x[0] ** 2 - 0.1 * x[1] ** 2 - lax.stop_gradient(x[1] ** 2) - x[2] ** 2,
        "DISCONTINUOUS",
    ),
    "box": (lambda x: jnp.where(jnp.all(jnp.abs(x) < 1), -x[0], -jnp.inf), "BOUNDED"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_have_a_name(name):
    log_prob, outcome = FAILURES[name]
    found = pg.warm_start(pg.LogDensity(log_prob, (3,)), key=KEY)
    assert found.outcome is pg.StartOutcome[outcome]
    assert not found.outcome.is_usable
    assert not has_marks(found.outcome.message)
    assert np.isfinite(found.map.shift).all()


@pytest.mark.parametrize(
    "tail", [lambda x: -jnp.sum(jnp.abs(x)), lambda x: -2.5 * jnp.sum(jnp.log1p(x**2 / 4))]
)
def test_kinks_and_heavy_tails_are_no_failures(tail):
    assert pg.warm_start(pg.LogDensity(tail, (3,)), key=KEY).outcome is pg.StartOutcome.CONVERGED


def test_hundreds_of_coordinates_take_second_derivatives():
    """Exact for a normal target, which a cubic term then moves as a Newton step of quadrature says."""
    dim = 210
    target, mean, factor, log_z = normal(dim=dim, decades=2)
    found = pg.warm_start(target, key=KEY)
    assert found.kind is pg.StartKind.HESSIAN
    assert found.outcome is pg.StartOutcome.CONVERGED
    assert is_normal(found.map, mean, factor)
    assert found.elbo == pytest.approx(log_z, abs=1e-6)
    # For exp(2.5 x - exp(x)) the best Gaussian is known: mean log 2.5 - 1/5, variance 1/2.5.
    bent = pg.LogDensity(lambda x: jnp.sum(2.5 * x - jnp.exp(x)), (dim,))
    found = pg.warm_start(bent, key=KEY)
    variance = np.diag(found.map.matrix @ found.map.matrix.T)
    np.testing.assert_allclose([found.map.shift.mean(), variance.mean()], [np.log(2.5) - 0.2, 0.4], atol=0.02)
    best = dim * (-2.5 + 2.5 * (np.log(2.5) - 0.2) + 0.5 * np.log(2 * np.pi * np.e * 0.4))
    assert found.elbo > best - 2.0


def test_draws_give_hundreds_of_coordinates_their_scales():
    """Skewed coordinates, mixed with condition 1e6, and far from the origin."""
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.standard_normal((210, 210)))[0] for _ in range(2))
    matrix, shift = left * np.logspace(-6, 0, 210) @ right, 1e3 * rng.standard_normal(210)
    inverse = np.linalg.inv(matrix)

    def log_prob(x):
        u = inverse @ (x - shift)
        return jnp.sum(2.5 * u - jnp.exp(u))

    draws = shift + (1.0 + 0.5 * rng.standard_normal((600, 210))) @ matrix.T
    found = pg.warm_start(pg.LogDensity(log_prob, (210,)), key=KEY, draws=draws)
    assert found.kind is pg.StartKind.HESSIAN
    inside = inverse @ np.concatenate([(found.map.shift - shift)[:, None], found.map.matrix], axis=1)
    assert inside[:, 0].mean() == pytest.approx(np.log(2.5) - 0.2, abs=0.02)
    assert np.sum(inside[:, 1:] ** 2) / 210 == pytest.approx(0.4, abs=0.02)
    assert found.gradients < 2200  # in the coordinates of the draws, the way to the mode is short


def test_flat_directions_are_seen_among_hundreds():
    found = pg.warm_start(pg.LogDensity(lambda x: -jnp.sum(x[1:] ** 2), (201,)), key=KEY)
    assert found.outcome is pg.StartOutcome.IMPROPER


def test_thousands_of_coordinates_are_independent_but_for_a_few_directions():
    scale = np.logspace(-1, 1, 5000)
    target = pg.LogDensity(lambda x: -0.5 * jnp.sum(((x - 3) / scale) ** 2), (5000,))
    found = pg.warm_start(target, key=KEY)
    assert (found.kind, found.outcome) == (pg.StartKind.DIAGONAL, pg.StartOutcome.CONVERGED)
    assert isinstance(found.map, pg.LowRankAffine)
    np.testing.assert_allclose(found.map.scale, scale, rtol=1e-6)
    np.testing.assert_allclose(found.map.shift, 3, rtol=1e-6)
    long, narrow = np.linalg.qr(np.random.default_rng(0).standard_normal((2600, 2)))[0].T

    def log_prob(x):
        return -0.5 * x @ x + 0.475 * (long @ x) ** 2 - 4 * (narrow @ x) ** 2

    found = pg.warm_start(pg.LogDensity(log_prob, (2600,)), key=KEY)
    assert found.kind is pg.StartKind.LOW_RANK
    log_z = 1300 * np.log(2 * np.pi) - 0.5 * np.log(0.05 * 9)
    assert abs(found.elbo - log_z) < 0.4


def test_time_is_kept_to():
    target, *_ = normal(decades=6, shift=100.0)
    found = pg.warm_start(target, key=KEY, max_seconds=0.0)
    assert found.outcome is pg.StartOutcome.TIME_USED_UP
    assert found.outcome.is_usable
    assert found.gradients < 3000


def test_a_search_that_its_clock_ended_can_be_ended_at_the_same_place(monkeypatch):
    target, *_ = normal(decades=6, shift=100.0)
    tick = itertools.count()
    monkeypatch.setattr(budget, "time", types.SimpleNamespace(perf_counter=lambda: next(tick)))
    first = pg.warm_start(target, key=KEY, max_seconds=4.5)
    assert (first.cut, first.outcome) == (5, pg.StartOutcome.TIME_USED_UP)
    monkeypatch.undo()
    again = pg.warm_start(target, key=KEY, cut=first.cut)
    assert again.cut == first.cut
    np.testing.assert_array_equal(again.map.matrix, first.map.matrix)
    whole = pg.warm_start(target, key=KEY)
    assert whole.cut is None
    assert whole.elbo > again.elbo


def test_data_of_a_density_keep_their_digits_in_a_program_in_single_precision():
    """NumPy arrays that a density refers to, as data and as indices, while programs in single live."""
    group = np.repeat(np.arange(3), 4)
    level = 1e6 + group + np.random.default_rng(0).standard_normal(12)
    target = pg.LogDensity(lambda x: -0.5 * jnp.sum((jnp.asarray(level) - x[group]) ** 2), (3,))
    with jax.enable_x64(False):
        single = jax.jit(jax.vmap(target.log_prob))
        for _ in range(2):
            found = pg.warm_start(target, key=KEY)
            np.testing.assert_allclose(found.map.shift, level.reshape(3, 4).mean(axis=1), rtol=1e-11)
            assert pg.needs_float64(target, found.map.shift + np.zeros((4, 3)))
            assert np.isfinite(single(np.full((2, 3), 1e6, np.float32))).all()


def map_of(fit) -> Any:
    return fit.flow.transforms[0]


def first_flow(dim, scale=1.0):
    return pg.Flow(pg.StandardNormal((dim,)), [pg.FullAffine(np.zeros(dim), scale * np.eye(dim))])


def test_the_method_finds_a_normal_and_resumes_to_the_same_bits():
    target, mean, factor, log_z = normal()
    method = pg.ScoreRegression()
    whole = pg.fit(first_flow(5), target, method, key=KEY, steps=12)
    assert is_normal(map_of(whole), mean, factor)
    losses = [row.value("loss") or 0.0 for row in whole.history]
    assert losses == sorted(losses, reverse=True)
    last = whole.history[-1]
    assert last.more["elbo"] == pytest.approx(log_z, abs=1e-8) == pytest.approx(-losses[-1], abs=1e-8)
    assert last.ess == pytest.approx(1)
    target = pg.LogDensity(skewed, (4,))
    whole, half = (pg.fit(first_flow(4), target, method, key=KEY, steps=steps) for steps in (6, 3))
    again = pg.fit(half.flow, target, method, key=KEY, steps=6, state=half.state)
    np.testing.assert_array_equal(map_of(again).matrix, map_of(whole).matrix)
    assert [row.loss for row in again.history] == [row.loss for row in whole.history[3:]]


def test_the_method_can_keep_coordinates_independent():
    scale = np.array([0.01, 1.0, 30.0])
    target = pg.LogDensity(lambda x: -0.5 * jnp.sum(((x - 5) / scale) ** 2), (3,))
    flow = pg.Flow(pg.StandardNormal((3,)), [pg.LowRankAffine(np.zeros(3), np.ones(3))])
    found = map_of(pg.fit(flow, target, pg.ScoreRegression(n=64), key=KEY, steps=15))
    np.testing.assert_allclose(found.scale, scale, rtol=1e-6)
    np.testing.assert_allclose(found.shift, 5, rtol=1e-6)


def test_a_target_without_any_value_stops_the_method():
    target = pg.LogDensity(lambda x: jnp.sum(x) * jnp.nan, (2,))
    with pytest.raises(pg.TrainingDiverged) as stopped:
        pg.fit(first_flow(2), target, pg.ScoreRegression(), key=KEY, steps=30)
    assert stopped.value.outcome is pg.Outcome.TARGET_NOT_FINITE


SHAPELESS: Any = type("Shapeless", (), {"log_prob": staticmethod(lambda x: -x @ x)})()
REFUSED = {
    "no shape": (lambda: pg.warm_start(SHAPELESS, key=KEY), "give `dim`"),
    "two shapes": (lambda: pg.warm_start(SHAPELESS, key=KEY, dim=2, start=np.zeros(3)), "must agree"),
    "one draw": (lambda: pg.warm_start(SHAPELESS, key=KEY, draws=np.zeros((1, 2))), "at least two"),
    "another flow": (
        lambda: pg.fit(pg.Flow(pg.StandardNormal((2,))), SHAPELESS, pg.ScoreRegression(), key=KEY, steps=1),
        "trains a `model` of the form",
    ),
    "another objective": (
        lambda: pg.ScoreRegression().runner(pg.ReverseKL(), key=KEY),
        "needs the objective",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_is_wrong(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()
