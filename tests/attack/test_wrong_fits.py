"""Wrong fits, each with the reason that its verdict must give, and good ones, which must have none."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg

N = 2048  # of all but a few, so that they share compiled functions


class Mixture(eqx.Module):
    """A mixture of two normals in the plane, times a constant; flows and targets differ in numbers alone."""

    parts: pg.NormalMixture
    constant: jax.Array

    shape = (2,)

    def log_prob(self, x):
        return self.parts.log_prob(x) + self.constant

    def draws(self, n=N):
        """Return exact draws."""
        return jax.vmap(lambda k: self.parts.draw(key=k)[0])(jr.split(jr.key(5), n))


def parts(share=0.5, means=((0.0, 0.0), (0.0, 0.0)), scales=(1.0, 1.0)):
    """Return a mixture in which the second part has a share."""
    logits = jnp.log(jnp.array([1 - share, share]))
    return pg.NormalMixture(logits, jnp.array(means), jnp.log(jnp.array(scales))[:, None] * jnp.ones((2, 2)))


def target(constant=0.0, **shape):
    return Mixture(parts(**shape), jnp.asarray(constant))


def flow(**shape):
    return pg.Flow(parts(**shape))


def judged(q, p, n=N, **how):
    return pg.evaluate(q, p, key=jr.key(1), n=n, **how)


def names(found):
    return [reason.name for reason in found.verdict.reasons]


APART = {"means": ((0.0, 0.0), (12.0, 0.0)), "share": 0.9}
FAR_TAIL = {"share": 0.001, "scales": (1.0, 100.0)}
NEEDLE = {"share": 0.5, "means": ((0.0, 0.0), (5.0, 5.0)), "scales": (1.0, 1e-4)}
# What the flow draws, the target, and what must be found once there are draws of the target.
UNSEEN = {"a mode is dropped": ({}, APART), "a faint, wide tail": ({}, FAR_TAIL), "a needle": ({}, NEEDLE)}
WRONG = {
    "too narrow": ({"scales": (0.4, 0.4)}, {}, ["HEAVY_TAIL"]),
    "far away": ({}, {"means": ((30.0, 0.0), (30.0, 0.0))}, ["HEAVY_TAIL"]),
    "a heavy tail": ({"scales": (1.0, 3.0)}, {"share": 0.2, "scales": (1.0, 9.0)}, ["HEAVY_TAIL"]),
    "hardly any of a mode": ({"means": APART["means"], "share": 0.002}, APART, ["HEAVY_TAIL"]),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSEEN)
def test_what_a_flow_never_draws_is_not_vouched_for_and_found_with_draws(name):
    q, p = flow(**UNSEEN[name][0]), target(**UNSEEN[name][1])
    blind = judged(q, p)
    assert "as far as the flow's own draws can tell" in str(blind)
    assert names(judged(q, p, target_draws=p.draws()))[0] == "MISSED_MODE"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_fit_has_its_reason(name):
    q, p, expected = WRONG[name]
    found = judged(flow(**q), target(**p))
    assert names(found) == expected
    assert found.warnings


GOOD = {
    "the same function": ({}, {}),
    "another constant": ({}, {"constant": -7.3}),
    "a large constant": ({}, {"constant": 1e9, "scales": (1.001, 1.0)}),
    "two modes": (APART, APART),
    "shifted a little": ({}, {"means": ((0.03, 0.0), (0.0, 0.03))}),
    "too wide by a fifth": ({"scales": (1.2, 1.2)}, {}),
    "too narrow by a hundredth": ({"scales": (0.99, 0.99)}, {}),
    "modes of other shares": (APART, APART | {"share": 0.88}),
    "another core": ({"share": 0.3, "scales": (1.0, 2.0)}, {"share": 0.28, "scales": (0.97, 2.0)}),
    "tiny": ({"scales": (1e-6, 1e-6)}, {"scales": (1.001e-6, 1e-6), "constant": 3.0}),
    "huge": ({"scales": (1e6, 1e6)}, {"scales": (1.001e6, 1e6), "constant": 3.0}),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_fit_has_no_warning(name):
    q, p = GOOD[name]
    found = judged(flow(**q), target(**p))
    assert found.warnings == []
    assert found.verdict.level is pg.Level.GOOD


def test_a_small_tail_of_any_shape_is_good():
    # The tail of the weights goes on for ever (k = 1 - 1/1.8^2 = 0.69), and matters to nobody.
    found = judged(flow(), target(share=1e-4, scales=(1.0, 1.8)), n=2**16)
    assert found.ess > 0.999
    assert found.warnings == []


def test_draws_of_the_target_say_that_a_good_fit_is_good():
    p = target(**APART)
    found = judged(flow(**APART), p, target_draws=p.draws())
    assert found.warnings == []
    assert "own draws can tell" not in str(found)


@pytest.mark.parametrize(
    ("constant", "mean", "expected"),
    [
        (-1e9, 3.0, ["ROUNDED"]),  # all weights are equal
        (-1e8, 3.0, ["ROUNDED"]),
        (-1e6, 0.0, ["ROUNDED"]),  # a good fit, but who knows
        (-1e4, 0.0, []),
        (1e4, 4.0, ["HEAVY_TAIL"]),
    ],
)
def test_rounding_in_single_precision_is_noticed(constant, mean, expected):
    with jax.enable_x64(False):
        found = judged(flow(), target(constant, means=((mean, 0.0), (mean, 0.03))))
    assert names(found) == expected
    if "ROUNDED" in expected:
        assert found.verdict.level >= pg.Level.UNKNOWN
        assert any("Subtract a constant" in text for text in found.warnings)


def test_rounding_is_noticed_beside_draws_far_out():
    # Beyond 3 the target falls off a cliff: a few log-weights are huge, which says nothing of the rest.
    def cliff(x):
        return 1e7 - 0.65 * jnp.sum(x**2) - 1e3 * jnp.sum(jax.nn.relu(jnp.abs(x) - 3) ** 2)

    with jax.enable_x64(False):
        found = judged(flow(), pg.LogDensity(cliff, (2,)), n=16384)
    assert names(found) == ["ROUNDED"]
    assert found.spread is not None
    assert found.spread < 2


def test_log_weights_of_which_most_are_equal_are_rounded_unless_the_numbers_are_fine():
    log_weight = np.full(N, 1e7)
    log_weight[:100] += np.arange(100)
    for dtype, expected in ((np.float32, "ROUNDED"), (np.float64, None)):
        found = judged(flow(), target(), draws={"log_weight": log_weight.astype(dtype), "evaluations": [0.0]})
        assert found.spread
        assert ("ROUNDED" in names(found)) is (expected is not None)


def test_in_double_precision_the_same_fit_is_judged():
    assert names(judged(flow(), target(-1e9, means=((3.0, 0.0), (3.0, 0.0))))) == ["HEAVY_TAIL"]


def test_weights_that_are_exactly_equal_are_suspicious_where_numbers_are_coarse():
    for constant, expected in ((1e4, ["EQUAL_WEIGHTS"]), (1.5, [])):
        log_weight = np.full(N, constant, np.float32)
        draws = {"log_weight": log_weight, "evaluations": np.zeros(1)}
        assert names(judged(flow(), target(), draws=draws)) == expected


@pytest.mark.parametrize("n", [1, 2, 9, 10, 20])
def test_few_draws_give_no_number_that_looks_exact(n):
    draws = {"log_weight": np.full(n, -0.7), "log_q": np.zeros(n), "evaluations": np.zeros(1)}
    found = judged(flow(), target(), draws=draws)
    assert "FEW_DRAWS" in names(found)
    assert found.warnings
    if n < 10:
        assert all(np.isnan([found.ess, found.ess_err, found.kl, found.log_z, found.log_z_err, found.elbo]))
        assert not {"ESS", "log Z", "reverse KL", "%"} & set(str(found).split())


def normal(x):
    return -0.5 * jnp.sum(x**2)


SHAPES = {
    "evaluate": lambda q, p: judged(q, p),
    "fit": lambda q, p: pg.fit(q, p, key=jr.key(0), steps=1),
    "reverse_kl": lambda q, p: pg.reverse_kl(q, p, key=jr.key(0), n=2),
    "weighted_draws": lambda q, p: pg.weighted_draws(q, p, key=jr.key(0), n=2),
}


@pytest.mark.parametrize("name", SHAPES)
def test_points_of_different_shapes_are_refused(name):
    with pytest.raises(pg.ArgumentError, match=r"shape \(5,\), and the `flow` of shape \(2,\)"):
        SHAPES[name](flow(), pg.LogDensity(normal, (5,)))


@pytest.mark.parametrize("name", ["evaluate", "fit"])
def test_an_index_beyond_the_point_is_refused(name):
    beyond = pg.LogDensity(lambda x: normal(x) - x[3] ** 2, (2,))
    with pytest.raises(pg.UserError, match="index 3 of an axis with 2 entries"):
        SHAPES[name](flow(), beyond)


def test_entries_beyond_the_end_that_are_not_used_can_be_declared():
    table, i = jnp.arange(5.0), jnp.arange(7)

    def masked(x, found):
        return normal(x) + jnp.sum(jnp.where(i < 5, found, 0.0))

    with pytest.raises(pg.UserError, match=r"array.at\[i\].get\(mode='fill', fill_value=0\)"):
        judged(flow(), pg.LogDensity(lambda x: masked(x, table[i]), (2,)), n=16)
    for index in (i, i[-1]):
        declared = table.at[index].get(mode="fill", fill_value=0)
        assert judged(flow(), pg.LogDensity(lambda x, d=declared: masked(x, d), (2,)), n=16).samples == 16


class Squeeze(pg.AbstractTractableField):
    """dx/dt = -r x. The formula for its divergence may be wrong."""

    rate: jax.Array
    error: jax.Array
    velocity_error: jax.Array

    def __call__(self, t, x):
        return -self.rate * x

    def prepare(self):
        return None

    def velocity_and_divergence(self, t, x, prepared):
        return (1 + self.velocity_error) * self(t, x), -self.rate * x.size + self.error


def squeezed(rate, error=0.0, velocity_error=0.0):
    """Return a flow of one shape for all, so that it is compiled once, and its true density."""
    field = Squeeze(*map(jnp.asarray, (rate, error, velocity_error)))
    cnf = pg.CNF(field, pg.ClosedForm(), pg.FixedStep(4))
    return pg.Flow(parts(), [cnf]), target(scales=(float(jnp.exp(-rate)),) * 2)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"rate": 0.5}, []),
        ({"rate": -0.5}, []),
        ({"rate": 6.0}, ["COARSE_SOLVER"]),  # stiff
        ({"rate": 0.5, "error": 1.0}, ["WRONG_DIVERGENCE"]),
        ({"rate": 0.5, "error": 1e-2}, ["WRONG_DIVERGENCE"]),
        ({"rate": 0.5, "velocity_error": 0.1}, ["WRONG_DIVERGENCE"]),
    ],
)
def test_fields_that_are_solved_or_written_wrongly_are_found(how, expected):
    q, p = squeezed(**how)
    found = judged(q, p)
    # A stiff field may show in the tail as well.
    assert [n for n in names(found) if n != "HEAVY_TAIL" or not expected] == expected
    assert bool(found.warnings) == bool(expected)


OUTSIDE = {
    "NaN": lambda x: jnp.where(x[0] > 2, jnp.nan, normal(x)),
    "plus infinity": lambda x: jnp.where(x[0] > 2, jnp.inf, normal(x)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_draws_without_a_weight_are_never_dropped(name):
    found = judged(flow(), pg.LogDensity(OUTSIDE[name], (2,)))
    assert names(found) == ["FAILED_DRAWS"]
    assert found.verdict.level is pg.Level.UNUSABLE


def own_density(q):
    """Return a target that knows a flow by its inverse, solved more finely."""
    return Pulled(q.exact().refined(2), q.shape)


class Pulled(eqx.Module):
    """The density of a flow, up to a constant, computed backwards."""

    flow: pg.Flow
    shape: tuple = eqx.field(static=True)

    def log_prob(self, x):
        return self.flow.log_prob(x[None], throw=False)[0] + 2.5


def network(dim, **how):
    field = pg.MLPField(dim, 8, key=jr.key(0), output_scale=1.0)
    cnf = pg.CNF(field, integrator=pg.FixedStep(12))
    return cnf.replace(**how)


def correlated(dim):
    factor = jnp.tril(0.3 * jnp.ones((dim, dim)), -1) + jnp.eye(dim)
    return pg.FullNormal(jnp.arange(float(dim)), factor, jnp.linspace(-1.0, 1.0, dim))


OTHERS = {
    "no axis": lambda: pg.Flow(pg.StandardNormal(())),
    "one dimension": lambda: pg.Flow(pg.DiagonalNormal(jnp.array([3.0]), jnp.array([2.0]))),
    "two axes": lambda: pg.Flow(pg.StandardNormal((3, 2)), [network(6)]),
    "300 dimensions": lambda: pg.Flow(pg.StandardNormal((300,)), [pg.Affine(1.0, -0.5)]),
    "correlated": lambda: pg.Flow(correlated(4)),
    "defensive": lambda: pg.Flow(pg.DefensiveNormal((2,))),
    "whole map": lambda: pg.Flow(pg.StandardNormal((2,)), [pg.FullAffine([1.0, 2.0], [[1, 0], [3, 2]])]),
    "low rank": lambda: pg.Flow(
        pg.StandardNormal((2,)), [pg.LowRankAffine([1.0, 2.0], [3.0, 4.0], [[0.6], [0.8]], [5.0])]
    ),
    "couplings": lambda: pg.Flow(pg.StandardNormal((3,)), pg.coupling_transforms(3, layers=4, key=jr.key(0))),
    "backwards in time": lambda: pg.Flow(pg.StandardNormal((2,)), [network(2, t0=1.0, t1=-0.5)]),
    "adaptive": lambda: pg.Flow(pg.StandardNormal((2,)), [network(2, integrator=pg.Adaptive(1e-7, 1e-7))]),
    "trained with noise": lambda: pg.Flow(pg.StandardNormal((2,)), [network(2, divergence=pg.Hutchinson())]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("is_double", [True, False], ids=["double", "single"])
@pytest.mark.parametrize("name", OTHERS)
def test_good_fits_of_any_kind_have_no_warning(name, is_double):
    with jax.enable_x64(is_double):
        q = OTHERS[name]()
        assert judged(q, own_density(q)).warnings == []
