"""The search for lost modes, and draws of the target: against closed forms."""

import math
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._default.clock import Clock
from pathgrad._default.contender import Contender
from pathgrad._default.inside import Inside
from pathgrad._default.modes import with_search
from pathgrad._default.pipeline import Pipeline
from pathgrad._numbers.target_draws import _bridge, from_target_draws
from pathgrad._train.warm_start.outcome import StartKind, StartOutcome
from pathgrad._train.warm_start.warm_start import LocalMode, WarmStart
from pathgrad.experiments.flows.experiment import FlowEvaluateOptions

FEW = 16_128  # gradients: 60 chains


def phi(x):
    """Distribution function of a standard normal."""
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def standard(dim):
    return pg.Flow(pg.DiagonalNormal.standard((dim,)))


def lopsided(lost, distance, *, constant=3.0):
    """Two modes in three dimensions, on a skewed axis, unnormalised; the second is twice as wide."""
    axis = np.array([2.0, -1.0, 2.0]) / 3

    def log_prob(x):
        second = -0.5 * jnp.sum((x - distance * axis) ** 2) / 4 - 3 * math.log(2)
        first = math.log(1 - lost) - 0.5 * jnp.sum(x**2)
        return constant + jnp.logaddexp(first, math.log(lost) + second) - 1.5 * math.log(2 * math.pi)

    return pg.LogDensity(log_prob, (3,)), distance * axis


def test_a_lost_mode_is_found_and_its_mass_is_right():
    target, mean = lopsided(0.3, 20.0)
    found = pg.search_modes(standard(3), target, key=jr.key(1), gradients=FEW)
    assert abs(found.share - 0.3) < 5 * found.share_err < 0.02
    (region, *_) = found.regions
    assert np.linalg.norm(region.point - mean) < 3
    assert region.log_p == pytest.approx(float(target.log_prob(jnp.asarray(region.point))), abs=1e-9)
    log_q = float(standard(3).log_prob(jnp.asarray(region.point)[None])[0])
    assert region.log_q == pytest.approx(log_q, abs=1e-9)
    assert (found.chains, found.reach) == (60, 100.0)
    assert FEW < found.gradients < 3 * FEW
    result = pg.evaluate(standard(3), target, key=jr.key(2), n=1000, search=found)
    assert result.lost == found.share
    assert result.verdict == pg.Verdict(pg.Level.UNRELIABLE, (pg.Reason.LOST_REGION,))
    assert "30." in result.warnings[0] or "29." in result.warnings[0]


def test_a_wide_faint_tail_is_found():
    # In two dimensions |x|^2 is exponential, so that its mass beyond a radius is known.
    lost, width = 0.1, 6.0

    def log_prob(x):
        wide = math.log(lost / width**2) - 0.5 * jnp.sum(x**2) / width**2
        return jnp.logaddexp(math.log(1 - lost) - 0.5 * jnp.sum(x**2), wide) - math.log(2 * math.pi)

    found = pg.search_modes(standard(2), pg.LogDensity(log_prob, (2,)), key=jr.key(3), gradients=FEW)
    # Lost is where p > 20 (1 - lost) q, q being all that the flow sees: beyond this squared radius.
    squared = 2 * math.log(19 * (1 - lost) * width**2 / lost) / (1 - width**-2)
    known = lost * math.exp(-0.5 * squared / width**2) + (1 - lost) * math.exp(-0.5 * squared)
    # The flow's own log Z varies a little, as the tail begins among its draws.
    assert found.share == pytest.approx(known, rel=0.1)


def test_a_good_fit_is_left_alone_even_where_the_target_has_holes():
    def log_prob(x):  # exact where it is a number
        inside = -0.5 * jnp.sum(x**2)
        return jnp.where(x[0] > 6.0, jnp.nan, jnp.where(x[1] < -6.0, -jnp.inf, inside))

    found = pg.search_modes(standard(2), pg.LogDensity(log_prob, (2,)), key=jr.key(4), gradients=FEW)
    assert found.share == 0.0
    assert found.regions == ()
    result = pg.evaluate(standard(2), pg.LogDensity(log_prob, (2,)), key=jr.key(5), n=1000, search=found)
    assert result.verdict.level is pg.Level.GOOD
    assert "60 chains from outside them" in str(result)


def test_a_needle_is_found_only_by_those_who_know_where_it_is():
    def log_prob(x):
        needle = math.log(0.5) - 0.5 * jnp.sum((x - 5.0) ** 2) / 1e-6 + 6 * math.log(1e3)
        return jnp.logaddexp(math.log(0.5) - 0.5 * jnp.sum(x**2), needle) - 3 * math.log(2 * math.pi)

    target = pg.LogDensity(log_prob, (6,))
    blind = pg.search_modes(standard(6), target, key=jr.key(6), gradients=1000)
    assert blind.share == 0.0
    told = pg.search_modes(standard(6), target, key=jr.key(6), gradients=1000, points=[np.full(6, 5.0005)])
    assert abs(told.share - 0.5) < 5 * told.share_err < 0.05


def test_a_mode_that_outweighs_the_flow_beyond_all_numbers_is_found():
    def log_prob(x):
        return jnp.logaddexp(-0.5 * jnp.sum(x**2), 500.0 - 0.5 * jnp.sum((x - 30.0) ** 2))

    # The size of the search above, whose programs are compiled.
    found = pg.search_modes(standard(2), pg.LogDensity(log_prob, (2,)), key=jr.key(7), gradients=FEW)
    assert found.share == pytest.approx(1.0)
    np.testing.assert_allclose(found.regions[0].point, 30.0, atol=2.0)


def test_a_draw_of_the_target_where_the_flow_has_nothing_is_a_missed_mode():
    own = np.random.default_rng(0).standard_normal(100)
    for nothing in (np.inf, np.nan):
        found = from_target_draws(np.append(own, nothing), own)
        assert (found["forward_ess"], found["eubo"]) == (0.0, np.inf)


def test_draws_of_the_target_bound_log_z_from_above():
    shift, log_z = 0.5, 0.5 * math.log(2 * math.pi)  # of a normal against one that is moved
    target = pg.LogDensity(lambda x: -0.5 * jnp.sum((x - shift) ** 2), (1,))
    draws = shift + np.random.default_rng(0).standard_normal((2, 10_000, 1))  # two chains
    found: Any = pg.evaluate(standard(1), target, key=jr.key(0), n=20_000, target_draws=draws)
    assert abs(found.eubo - (log_z + shift**2 / 2)) < 5 * found.eubo_err < 0.02
    assert abs(found.log_z_both - log_z) < 5 * found.log_z_both_err < 5 * found.log_z_err
    assert found.elbo < found.log_z_both < found.eubo
    assert abs(found.forward_ess - math.exp(-(shift**2))) < 0.03
    assert found.distances.mean_shift[0] == pytest.approx(-shift, abs=0.05)
    assert found.mean_shift == abs(found.distances.mean_shift[0])
    assert found.distances.log_sd_ratio[0] == pytest.approx(0.0, abs=0.03)
    assert found.ks == pytest.approx(2 * phi(shift / 2) - 1, abs=0.02)
    assert "EUBO" in str(found)
    for wrong in (draws[..., 0][..., None, None], draws[0, :5], np.full((100, 1), np.nan)):
        with pytest.raises(ValueError, match="target_draws"):
            pg.evaluate(standard(1), target, key=jr.key(0), n=100, target_draws=wrong)


def test_bridge_sampling_against_many_repetitions():
    # Log-weights that are normal with variance s^2 have mean -s^2/2 under q, and s^2/2 under p.
    rng, s, log_z = np.random.default_rng(1), 1.5, -700.0
    above, below = log_z + s**2 / 2, log_z - s**2 / 2
    noise = [(rng.standard_normal(300), rng.standard_normal(900)) for _ in range(80)]
    pairs = [_bridge(above + s * one, below + s * other) for one, other in noise]
    values, errors = np.array(pairs).T
    assert abs(values.mean() - log_z) < 4 * values.std() / math.sqrt(80)
    assert np.median(errors) == pytest.approx(values.std(), rel=0.3)


@pytest.mark.parametrize("knows", [False, True])
def test_what_a_fit_has_lost_is_told_in_the_coordinates_of_the_target(knows):
    # A flow that ends with an affine map, and a target with a needle where another climb has ended.
    to_target = pg.FullAffine(np.array([40.0, -7.0]), np.array([[3.0, 0.0], [1.0, 0.2]]))
    flow = pg.Flow(pg.StandardNormal((2,)), [to_target])
    place, width = np.array([52.0, -1.0]), 1e-3

    def log_prob(x):
        needle = -0.5 * jnp.sum((x - place) ** 2) / width**2 - 2 * math.log(width)
        log_q = flow.log_prob(x[None])[0] + math.log(2 * math.pi)
        return 30.0 + jnp.logaddexp(log_q, math.log(0.25) + needle)

    inside = Inside(pg.LogDensity(log_prob, (2,)), is_mapped=True, centre=25.0, is_double=False)
    found: Any = inside.shifted(pg.evaluate(*inside.of(flow), key=jr.key(0), n=1000))
    modes = (LocalMode(to_target, place, np.full(2, width), 0.0),) if knows else ()
    start = WarmStart(to_target, 0.0, 0.0, StartKind.FULL, StartOutcome.CONVERGED, modes, 0.0, 0, 0.0, 0.0)
    found = with_search(found, flow, inside, start, key=jr.key(1), gradients=1000)
    if not knows:
        assert (found.lost, found.lost_point) == (0.0, None)
        return
    assert abs(found.lost - 0.2) < 5 * found.lost_err < 0.05
    np.testing.assert_allclose(found.lost_point, place, atol=5 * width)
    assert found.verdict.level is pg.Level.UNRELIABLE


def test_the_search_can_be_left_out(monkeypatch):
    target, flow = lopsided(0.3, 20.0)[0], standard(3)
    quiet = lambda *_: None  # noqa: E731
    draws = {"x": np.zeros((4, 3)), "log_weight": np.zeros(4)}
    problem = pg.FlowProblem(pg.Training(flow, pg.ReverseKL(target), pg.GaussNewton(), 1))
    how = FlowEvaluateOptions(samples=4, mode_search=False)
    assert problem._search(flow, draws, how, jr.key(0), quiet) is None
    recipe = pg.Recipe(warm_start=None, mode_search=False)
    pipeline = Pipeline(target, recipe, Clock(60.0), jr.key(0), quiet)
    found = pg.evaluate(flow, target, key=jr.key(0), n=1000)
    monkeypatch.setattr(Contender, "kept", 1)
    best = object.__new__(Contender)
    best.n = best.first = 1000
    assert pipeline.searched(flow, found, best) is found
