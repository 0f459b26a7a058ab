"""Bijections alone: determinants against Jacobians, draws that have their own map, and refusals.

What they have in common with all flows is in `test_contracts.py`.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg

from .helpers import ESTIMATORS, TOLERANCE, coupling, spatial_base

N = 5
SHAPES = {"vector": (3,), "odd": (5,), "lattice": (2, 3), "scalar": ()}


def affine(shape):
    shift_key, scale_key = jr.split(jr.key(3))
    return pg.Affine(jr.normal(shift_key, shape), jr.normal(scale_key, shape))


ALL = {
    **{f"affine-{name}": (affine(shape), shape) for name, shape in SHAPES.items()},
    # One scale for all, a shift for each column.
    "affine-broadcast": (pg.Affine(jnp.array([0.3, -0.2, 1.0]), jnp.asarray(0.7)), (2, 3)),
    **{
        f"coupling-{name}-{flip}": (coupling(int(np.prod(SHAPES[name])), flip=flip), SHAPES[name])
        for name in ("vector", "odd", "lattice")
        for flip in (False, True)
    },
    "coupling-features": (coupling(5, features=pg.tanh_and_log_cosh), (5,)),
}


def close(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return np.abs(a - b).max() < TOLERANCE["algebra"] * max(1.0, np.abs(b).max())


@pytest.mark.parametrize("name", ALL)
def test_log_determinants_are_those_of_the_jacobians(name):
    bijection, shape = ALL[name]
    x = jr.normal(jr.key(4), shape)
    y, log_det = bijection.forward(x)
    back, inverse_log_det = bijection.inverse(y)
    assert y.shape == back.shape == shape
    assert close(back, x)
    for mapping, at, found in ((bijection.forward, x, log_det), (bijection.inverse, y, inverse_log_det)):
        jacobian = jax.jacrev(lambda p, m=mapping: m(p)[0])(at).reshape(x.size, x.size)
        sign, brute = np.linalg.slogdet(jacobian)
        assert sign == 1
        assert abs(brute) > 0.01
        assert close(found, brute)


@pytest.mark.parametrize("flip", [False, True])
def test_a_coupling_moves_one_part_and_keeps_the_other(flip):
    bijection = coupling(5, flip=flip)
    x = jr.normal(jr.key(1), (5,))
    moved = np.asarray(bijection.forward(x)[0] != x)
    assert moved.tolist() == ([True] * 2 + [False] * 3 if flip else [False] * 2 + [True] * 3)


def test_a_coupling_begins_near_the_identity_and_stays_within_its_bound():
    x = jr.normal(jr.key(1), (6,))
    near = pg.AffineCoupling(6, 16, key=jr.key(0))
    assert 1e-3 < np.abs(near.forward(x)[0] - x).max() < 0.2
    wild = pg.AffineCoupling(6, 16, key=jr.key(0), bound=0.5, output_scale=1e3)
    # A shift cancels from the difference of two points; what is left is the scale of each number.
    further = x.at[3:].add(1.0)
    scales = (wild.forward(further)[0] - wild.forward(x)[0])[3:]
    np.testing.assert_allclose(np.abs(np.log(scales)), 0.5, rtol=1e-6)  # all of them at the bound
    # Nothing is flat from the start: every weight has a gradient.
    gradient = eqx.filter_grad(lambda b: jnp.sum(b.forward(x)[0] ** 3))(near)
    assert all(np.abs(leaf).min() > 0 for leaf in jax.tree.leaves(gradient))


def per_draw():
    shift_key, scale_key = jr.split(jr.key(3))
    return jr.normal(shift_key, (N, 3)), 0.5 * jr.normal(scale_key, (N, 3))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_each_draw_may_have_a_map_of_its_own(estimator):
    """Against the normal density that each has, and its gradients by hand."""
    shifts, log_scales = per_draw()
    base, target = spatial_base(), pg.LogDensity(lambda x: -jnp.sum(jnp.cosh(x)), (3,))
    weights = jr.normal(jr.key(2), (N,))

    @eqx.filter_jit
    @eqx.filter_value_and_grad(has_aux=True)
    def run(bijection):
        flow = pg.Flow(base, [bijection])
        draw = ESTIMATORS[estimator].draw(flow, key=jr.key(1), n=N)
        log_weight = jax.vmap(target.log_prob)(draw.x) - draw.log_q
        return jnp.vdot(weights, log_weight), draw

    bijection = pg.Affine(pg.PerDraw(shifts), pg.PerDraw(log_scales))
    (_, draw), gradient = run(bijection)
    z = pg.Flow(base).sample(key=jr.key(1), n=N)
    assert close(draw.x, z * np.exp(log_scales) + shifts)

    def density(shift, log_scale):
        mean = base.mean * jnp.exp(log_scale) + shift
        return pg.DiagonalNormal(mean, base.log_scale + log_scale)

    assert close(draw.log_q, jax.vmap(lambda x, *own: density(*own).log_prob(x))(draw.x, *per_draw()))
    score = jax.vmap(lambda x, *own: jax.grad(density(*own).log_prob)(x))(draw.x, *per_draw())
    along = weights[:, None] * (-jnp.sinh(draw.x) - score)
    # The explicit part of the derivative of log q at a fixed point: only the total gradient has it.
    explicit = jax.vmap(lambda x, *own: jax.grad(lambda o: density(*o).log_prob(x))(own))(draw.x, *per_draw())
    less = [weights[:, None] * e * (estimator == "total") for e in explicit]
    assert close(gradient.shift.value, along - less[0])
    assert close(gradient.log_scale.value, along * z * jnp.exp(log_scales) - less[1])


def test_draws_with_maps_of_their_own_do_not_depend_on_chunks():
    flow = pg.Flow(spatial_base(), [pg.Affine(*map(pg.PerDraw, per_draw())), coupling(3)])
    whole = flow.draw("score", key=jr.key(1), n=N)
    parts = flow.draw("score", key=jr.key(1), n=N, chunk=2)
    assert close(parts.score, whole.score)
    assert close(flow.log_prob(whole.x, chunk=3), whole.log_q)


def test_what_a_bijection_does_not_know_passes_through_it():
    solve = pg.SolveInfo(jnp.asarray(12), jnp.asarray(pg.Outcome.TOO_MANY_STEPS))
    draw = pg.Draw(jnp.ones((N, 3)), None, None, jnp.arange(5.0), solve)
    after = affine((3,)).push(draw, keys=jr.split(jr.key(0), N))
    assert (after.log_q, after.score) == (None, None)
    assert after.solve is solve
    assert after.log_choice is draw.log_choice


def test_nothing_is_solved_so_nothing_can_be_refined():
    flow = pg.Flow(spatial_base(), [coupling(3), affine((3,))])
    assert not flow.is_solved
    assert not flow.is_noisy
    assert bool(eqx.tree_equal(flow.refined(7).exact(), flow))
    mixed = pg.Flow(flow.base, [*flow.transforms, pg.CNF(lambda t, x: -x)])
    assert mixed.is_solved
    last = mixed.refined(2).transforms[2]
    assert isinstance(last, pg.CNF)
    assert last.integrator == pg.FixedStep(40)


def test_points_are_pulled_back_to_where_they_come_from():
    field = pg.MLPField(3, 4, 1, key=jr.key(2))
    cnf = pg.CNF(field, pg.Hutchinson(), pg.FixedStep(100))
    flow = pg.Flow(spatial_base(), [coupling(3), cnf, affine((3,))])
    keys = jr.split(jr.key(1), N)
    draw = flow.push("log_q", keys=keys)
    z, log_q, solve = flow.pull(draw.x, keys=keys)
    np.testing.assert_allclose(z, pg.Flow(flow.base).push("x", keys=keys).x, atol=1e-8)
    np.testing.assert_allclose(log_q, np.asarray(draw.log_q), atol=1e-8)
    assert solve.evaluations == draw.solve.evaluations == 400
    assert flow.draws_at_once == 8192


class Broken(pg.AbstractBijection):
    made: Callable[[jax.Array], Any]

    def forward(self, x):
        return self.made(x)

    def inverse(self, y):
        return y, jnp.zeros(())


def flow_of(bijection, shape=(2,)):
    return pg.Flow(pg.StandardNormal(shape), [bijection])


ORDER = [3, 0, 4, 1, 2, 5]


@pytest.mark.parametrize("shape", [(6,), (2, 3), (3, 1, 2)])
def test_a_permutation_reorders_and_changes_no_volume(shape):
    permutation = pg.Permutation(ORDER)
    x = np.random.default_rng(1).normal(size=shape)
    y, log_det = permutation.forward(jnp.asarray(x))
    np.testing.assert_array_equal(y, x.ravel()[ORDER].reshape(shape))
    back, inverse_log_det = permutation.inverse(y)
    np.testing.assert_array_equal(back, x)
    assert float(log_det) == float(inverse_log_det) == 0.0


def test_random_permutations_take_every_order():
    made = [tuple(np.asarray(pg.Permutation.random(3, key=jr.key(i)).order)) for i in range(60)]
    assert len(set(made)) == 6
    permutation = pg.Permutation.random(40, key=jr.key(0))
    np.testing.assert_array_equal(permutation.order[permutation.back], np.arange(40))


def test_a_permutation_has_nothing_to_train():
    flow = pg.Flow(pg.StandardNormal((6,)), [pg.Permutation(ORDER)])
    assert jax.tree.leaves(eqx.filter(flow, eqx.is_inexact_array)) == []
    x = jnp.asarray(np.random.default_rng(2).normal(size=(N, 6)))
    # A standard normal does not change when it is reordered; nor does its score, but in its order.
    draw = flow.draw("score", key=jr.key(1), n=N)
    assert close(draw.score, -draw.x)
    assert close(flow.log_prob(x), -0.5 * np.sum(x**2, 1) - 3 * np.log(2 * np.pi))


@pytest.mark.parametrize("shape", [2, 5, (2, 3)], ids=str)
def test_couplings_in_a_row_begin_as_the_identity(shape):
    transforms = pg.coupling_transforms(shape, layers=4, width=6, key=jr.key(1))
    assert [type(t).__name__ for t in transforms] == [
        *["Permutation", "AffineCoupling", "AffineCoupling"] * 2,
        "Affine",
    ]
    base = pg.StandardNormal((shape,) if isinstance(shape, int) else shape)
    flow = pg.Flow(base, transforms)
    draw = flow.draw("score", key=jr.key(2), n=N)
    z = np.asarray(pg.Flow(base).sample(key=jr.key(2), n=N))
    # The identity but for the order of the entries.
    assert close(np.sort(draw.x.reshape(N, -1)), np.sort(z.reshape(N, -1)))
    assert close(draw.log_q, jax.vmap(base.log_prob)(jnp.asarray(z)))
    assert close(draw.score, -draw.x)


def test_every_entry_comes_to_depend_on_every_other():
    def stirred(leaf, key):
        return leaf + 0.5 * jr.normal(key, leaf.shape) if eqx.is_inexact_array(leaf) else leaf

    transforms = pg.coupling_transforms(5, layers=4, width=8, key=jr.key(1))
    leaves, structure = jax.tree.flatten(transforms)
    keys = jr.split(jr.key(3), len(leaves))
    flow = jax.tree.unflatten(structure, [stirred(leaf, key) for leaf, key in zip(leaves, keys, strict=True)])

    def mapped(x):
        total = 0.0
        for bijection in flow:
            x, log_det = bijection.forward(x)
            total += log_det
        return x, total

    x = jr.normal(jr.key(4), (5,))
    jacobian = jax.jacfwd(lambda x: mapped(x)[0])(x)
    assert np.abs(jacobian).min() > 1e-4
    assert close(np.linalg.slogdet(jacobian)[1], mapped(x)[1])


def test_log_scales_of_couplings_in_a_row_stay_within_three():
    transforms = pg.coupling_transforms(4, layers=1, width=6, key=jr.key(1))
    (layer,) = [t for t in transforms if isinstance(t, pg.AffineCoupling)]
    bias = jnp.array([0.0, 0.0, 1e3, -1e3])  # shifts, then log-scales
    wild = eqx.tree_at(lambda c: c.network.layers[-1].bias, layer, bias)
    _, log_det = wild.forward(jnp.ones(4))
    y, _ = eqx.tree_at(lambda c: c.network.layers[-1].bias, layer, 0 * bias).forward(jnp.ones(4))
    np.testing.assert_array_equal(y, np.ones(4))
    np.testing.assert_allclose(np.log(wild.forward(jnp.ones(4))[0][2:]), [3.0, -3.0])
    assert close(log_det, 0.0)


REFUSED = {
    "one number, in a row": (lambda: pg.coupling_transforms(1, key=jr.key(0)), r"at least 2, got 1.*`CNF`"),
    "no layers": (lambda: pg.coupling_transforms(3, layers=0, key=jr.key(0)), "`layers` must be at least 1"),
    "a number twice": (lambda: pg.Permutation([0, 2, 2]), "every number from 0 to 2 once"),
    "a table of numbers": (lambda: pg.Permutation([[0, 1]]), "every number from 0 to 1 once"),
    "points of another size, reordered": (
        lambda: flow_of(pg.Permutation([2, 0, 1])),
        r"`Permutation\.forward` does not take a point of shape \(2,\): .*3 entries, not 2",
    ),
    "one number": (lambda: pg.AffineCoupling(1, 4, key=jr.key(0)), r"at least 2, got 1.*`Affine`"),
    "no width": (lambda: pg.AffineCoupling(2, 0, key=jr.key(0)), "`width` must be at least 1, got 0"),
    "no bound": (lambda: coupling_of(bound=0.0), "`bound` must be positive"),
    "points of another size": (
        lambda: flow_of(coupling(3)),
        r"`AffineCoupling\.forward` does not take a point of shape \(2,\): .*3 entries, not 2",
    ),
    "shifts of another size": (
        lambda: flow_of(affine((3,))),
        r"`Affine\.forward` does not take a point of shape \(2,\)",
    ),
    "a smaller point": (
        lambda: flow_of(affine((3,)), (1,)),
        r"`Affine\.forward` (does not take|must return).*\(1,\)",
    ),
    "no determinant": (lambda: flow_of(Broken(lambda x: x)), r"two things.*it returned \(2,\)"),
    "a determinant for each number": (
        lambda: flow_of(Broken(lambda x: (x, x))),
        r"a scalar; it returned \(2,\), \(2,\)",
    ),
    "another shape": (
        lambda: flow_of(Broken(lambda x: (x[:1], x[0]))),
        r"`Broken\.forward` must return .* \(2,\) .*it returned \(1,\), \(\)",
    ),
}


def coupling_of(**options):
    return pg.AffineCoupling(2, 4, key=jr.key(0), **options)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_is_wrong(name):
    build, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        build()
