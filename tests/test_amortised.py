"""Amortised flows: `PerDraw` leaves of base, field and target against the matrix exponential."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.linalg import expm

import pathgrad as pg

from .helpers import ESTIMATORS, RTOL, T0, T1, TOLERANCE

N = 5
KEY = jr.key(3)

# Shared or per-draw matrix, divergence, integrator, adjoint. Steps as in the other closed-form tests.
RK4, DOPRI5 = pg.FixedStep(100), pg.Adaptive(RTOL, RTOL, "dopri5")
SOLVES = {
    "shared-exact-rk4-discrete": (False, pg.Exact(), RK4, pg.Discrete()),
    "shared-exact-rk4-backsolve": (False, pg.Exact(), RK4, pg.Backsolve()),
    "shared-closed-dopri5-backsolve": (False, pg.ClosedForm(), DOPRI5, pg.Backsolve()),
    "per_draw-closed-rk4-discrete": (True, pg.ClosedForm(), RK4, pg.Discrete()),
    "per_draw-hutchinson-rk4-backsolve": (True, pg.Hutchinson(), RK4, pg.Backsolve()),
}


# An adaptive solve takes long to compile; those of autoencoders are in the daily tests.
EVERY_SOLVE = [pytest.param(name, marks=[pytest.mark.slow] if "dopri5" in name else []) for name in SOLVES]


class AffineField(pg.AbstractTractableField):
    """dx/dt = A x + b, written for one point."""

    matrix: Any
    shift: Any

    def __call__(self, t, x):
        return self.matrix @ x + self.shift

    def prepare(self):
        return jnp.trace(self.matrix)

    def velocity_and_divergence(self, t, x, prepared):
        return self(t, x), prepared


class Decoder(eqx.Module):
    """An asymmetric density around a centre of each draw's own, with a shared tilt."""

    center: Any
    tilt: jnp.ndarray

    def log_prob(self, x):
        away = x - self.center
        return -0.3 * jnp.vdot(away, away) + jnp.vdot(self.tilt, jnp.tanh(away + 0.4))


def parameters(*, per_draw_matrix):
    rng = np.random.default_rng(5)
    matrices = np.array([[0.3, -0.8], [0.5, -0.4]]) + 0.3 * rng.normal(size=(N, 2, 2))
    leaves = {
        "mean": rng.normal(size=(N, 2)),
        "log_scale": np.array([-0.2, 0.4]),
        "matrix": matrices if per_draw_matrix else matrices[0],
        "shift": rng.normal(size=(N, 2)),
        "center": rng.normal(size=(N, 2)),
        "tilt": np.array([0.8, -0.5]),
    }
    return jax.tree.map(jnp.asarray, leaves)


def amortised(p, divergence, integrator, adjoint):
    """Build flow and target as an encoder would."""
    base = pg.DiagonalNormal(jnp.zeros(2), p["log_scale"])
    base = eqx.tree_at(lambda b: b.mean, base, pg.PerDraw(p["mean"]))
    matrix = pg.PerDraw(p["matrix"]) if p["matrix"].ndim == 3 else p["matrix"]
    field = AffineField(matrix, pg.PerDraw(p["shift"]))
    flow = pg.Flow(base, [pg.CNF(field, divergence, integrator, adjoint, T0, T1)])
    return flow, Decoder(pg.PerDraw(p["center"]), p["tilt"])


def build(solve, p):
    return amortised(p, *SOLVES[solve][1:])


@functools.cache
def evidence(solve):
    """Compile once for each solve: draws with score, `log q` by the inverse, losses and gradients."""

    @jax.jit
    def run(p):
        def loss(p, estimator):
            return pg.reverse_kl(*build(solve, p), key=KEY, n=N, estimator=estimator)

        flow, _ = build(solve, p)
        draw = flow.sample_with_score(key=KEY, n=N)
        z = pg.Flow(flow.base).sample(key=KEY, n=N)
        both = {e: jax.value_and_grad(loss)(p, ESTIMATORS[e]) for e in ("path", "total")}
        # Compiling another adaptive solve takes long; its inverse is in `test_contracts.py`.
        adaptive = isinstance(SOLVES[solve][2], pg.Adaptive)
        log_prob = draw.log_q if adaptive else flow.log_prob(draw.x, key=KEY)
        return z, draw, log_prob, both

    p = parameters(per_draw_matrix=SOLVES[solve][0])
    return p, *as_numpy(run(p))


def as_numpy(tree):
    return jax.tree.map(np.asarray, tree)


def solution(p):
    """Return x = M z + s of each draw, by the matrix exponential of one block matrix."""
    block = jnp.zeros((N, 3, 3)).at[:, :2, :2].set(p["matrix"]).at[:, :2, 2].set(p["shift"])
    whole = jax.vmap(expm)((T1 - T0) * block)
    return whole[:, :2, :2], whole[:, :2, 2]


def exact_log_q(p, x):
    """Return the normal log density that each draw has, written out."""
    matrix, shift = solution(p)
    # x = M (m + s e) + shift, so that e = (M s)^-1 (x - M m - shift), by Cramer's rule.
    (a, b), (c, d) = jnp.moveaxis(matrix * jnp.exp(p["log_scale"]), 0, -1)
    u, v = (x - jnp.einsum("nij,nj->ni", matrix, p["mean"]) - shift).T
    determinant = a * d - b * c
    squared = ((d * u - b * v) ** 2 + (a * v - c * u) ** 2) / determinant**2
    return -0.5 * squared - jnp.log(2 * jnp.pi) - jnp.log(jnp.abs(determinant))


def exact_x(p, noise):
    matrix, shift = solution(p)
    z = p["mean"] + jnp.exp(p["log_scale"]) * noise
    return jnp.einsum("nij,nj->ni", matrix, z) + shift


@jax.jit
def exact(p, z):
    """Return draws, `log q`, score, and loss and gradients by autodiff of the closed form.

    The path gradient is the derivative in the live parameters where those of `log q` are a frozen copy.
    """
    noise = (z - p["mean"]) * jnp.exp(-p["log_scale"])

    def loss(live, frozen):
        x = exact_x(live, noise)
        log_p = jax.vmap(lambda c, x: Decoder(c, live["tilt"]).log_prob(x))(live["center"], x)
        return jnp.mean(exact_log_q(frozen, x) - log_p)

    x = exact_x(p, noise)
    value, (path, explicit) = jax.value_and_grad(loss, (0, 1))(p, p)
    score = jax.grad(lambda x: exact_log_q(p, x).sum())(x)
    return x, exact_log_q(p, x), score, value, path, jax.tree.map(jnp.add, path, explicit)


@functools.cache
def truth(solve):
    p, z, draw, _, _ = evidence(solve)
    per_draw_matrix = SOLVES[solve][0]
    whole = p | {"matrix": jnp.broadcast_to(p["matrix"], (N, 2, 2))}
    x, log_q, score, value, path, total = as_numpy(exact(whole, z))
    if isinstance(SOLVES[solve][1], pg.Hutchinson):
        # Signs e in two dimensions: e A e = tr A + e_0 e_1 (A_01 + A_10), with one unknown sign.
        off_diagonal = np.asarray(p["matrix"][:, 0, 1] + p["matrix"][:, 1, 0])
        sign = -np.sign((draw.log_q - log_q) / off_diagonal)
        shift = -(T1 - T0) * sign
        log_q = log_q + shift * off_diagonal
        value = value + np.mean(shift * off_diagonal)
        total["matrix"] = total["matrix"] + shift[:, None, None] / N * (1 - np.eye(2))
        assert set(sign) == {-1.0, 1.0}
    gradients = {"path": path, "total": total}
    if not per_draw_matrix:
        for gradient in gradients.values():
            gradient["matrix"] = gradient["matrix"].sum(0)
    return x, log_q, score, value, gradients


@pytest.mark.parametrize("solve", EVERY_SOLVE)
def test_every_draw_follows_its_own_matrix_exponential(solve):
    _, _, draw, log_prob, _ = evidence(solve)
    x, log_q, score, _, _ = truth(solve)
    np.testing.assert_allclose(draw.x, x, rtol=TOLERANCE["solve"])
    np.testing.assert_allclose(draw.log_q, log_q, rtol=TOLERANCE["solve"])
    np.testing.assert_allclose(draw.score, score, rtol=TOLERANCE["solve"], atol=1e-8)
    np.testing.assert_allclose(log_prob, log_q, rtol=TOLERANCE["two solves"])


@pytest.mark.parametrize("estimator", ["path", "total"])
@pytest.mark.parametrize("solve", EVERY_SOLVE)
def test_gradients_of_per_draw_and_shared_leaves(solve, estimator):
    *_, both = evidence(solve)
    *_, expected_value, expected = truth(solve)
    value, gradient = both[estimator]
    assert abs(value - expected_value) < TOLERANCE["solve"] * abs(expected_value)
    for name, leaf in expected[estimator].items():
        assert np.abs(leaf).max() > 0.01
        error = np.abs(gradient[name] - leaf).max()
        assert error < TOLERANCE["two solves"] * np.abs(leaf).max(), name


def test_path_and_total_are_not_the_same_gradient():
    """In every leaf of the flow, so that the test above can tell one from the other; not in the target."""
    *_, gradients = truth("shared-exact-rk4-discrete")
    for name, path in gradients["path"].items():
        difference = np.abs(gradients["total"][name] - path).max()
        if name in ("center", "tilt"):
            assert difference < 1e-12
        else:
            assert difference > 0.01


def test_chunks_change_neither_draws_nor_gradients():
    """Two whole chunks and a remainder; per-draw leaves, noise and keys are cut with the draws."""
    solve = "per_draw-hutchinson-rk4-backsolve"
    p, _, draw, _, both = evidence(solve)

    @jax.jit
    def run(p):
        def loss(p):
            flow, _ = build(solve, p)
            x, log_q = flow.sample_and_log_prob(key=KEY, n=N, chunk=2)
            log_p = jax.vmap(lambda c, x: Decoder(c, p["tilt"]).log_prob(x))(p["center"], x)
            return jnp.mean(log_q - log_p)

        flow, _ = build(solve, p)
        draw = flow.draw("score", key=KEY, n=N, chunk=2)
        return draw, jax.grad(loss)(p)

    chunked, gradient = as_numpy(run(p))
    np.testing.assert_allclose(chunked.x, draw.x, rtol=1e-12)
    np.testing.assert_allclose(chunked.log_q, draw.log_q, rtol=1e-12)
    np.testing.assert_allclose(chunked.score, draw.score, rtol=1e-11)
    assert chunked.solve.succeeded
    assert chunked.solve.evaluations == draw.solve.evaluations == 400
    for name, leaf in both["total"][1].items():
        np.testing.assert_allclose(gradient[name], leaf, rtol=1e-10, atol=1e-12)


def test_mixture_with_weights_of_each_draw():
    """Each draw is what its own mixture would have made of the same key; so is each gradient."""
    rng = np.random.default_rng(8)
    logits, centers = rng.normal(size=(N, 2)), rng.normal(size=(N, 2))
    shared = pg.NormalMixture.at(np.array([[1.0, -0.5], [-2.0, 0.7]]), 0.6)

    @jax.jit
    def together(logits):
        def loss(base):
            estimate = pg.ReverseKL(target)(pg.Flow(base), pg.Batch(jr.split(KEY, N)))
            return estimate.loss, -estimate.each

        base = eqx.tree_at(lambda b: b.logits, shared, pg.PerDraw(logits))
        target = Decoder(pg.PerDraw(jnp.asarray(centers)), jnp.array([0.8, -0.5]))
        gradient, log_weight = jax.grad(loss, has_aux=True)(base)
        return pg.Flow(base).draw("log_q", key=KEY, n=N), log_weight, gradient

    @jax.jit
    def alone(logits):
        base = eqx.tree_at(lambda b: b.logits, shared, logits)
        return pg.Flow(base).draw("log_q", key=KEY, n=N)

    draw, log_weight, gradient = as_numpy(together(jnp.asarray(logits)))
    for i in range(N):
        own = as_numpy(alone(jnp.asarray(logits[i])))
        np.testing.assert_allclose(draw.x[i], own.x[i], atol=1e-12)
        np.testing.assert_allclose(draw.log_q[i], own.log_q[i], atol=1e-12)
        np.testing.assert_allclose(draw.log_choice[i], own.log_choice[i], atol=1e-12)
    # The score function of the pick, times what the loss of this draw has over that of the others.
    log_weights = np.log(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
    picked = np.isclose(log_weights, draw.log_choice[:, None])
    assert np.all(picked.sum(1) == 1)
    others = (log_weight.sum() - log_weight) / (N - 1)
    surplus = -(log_weight - others) / N
    expected = surplus[:, None] * (picked - np.exp(log_weights))
    np.testing.assert_allclose(gradient.logits.value, expected, atol=1e-12)


def test_the_wrong_number_of_draws_is_refused():
    flow, _ = build("shared-exact-rk4-discrete", parameters(per_draw_matrix=False))
    with pytest.raises(ValueError, match="for 5 draws, and 4 were asked for"):
        flow.sample(key=KEY, n=4)
    with pytest.raises(ValueError, match="for 5 draws, and 7 were asked for"):
        flow.log_prob(jnp.zeros((7, 2)))


def test_leaves_that_disagree_on_the_number_of_draws_are_refused():
    p = parameters(per_draw_matrix=False)
    flow, _ = build("shared-exact-rk4-discrete", p | {"shift": jnp.zeros((3, 2))})
    with pytest.raises(ValueError, match=r"disagree on the number of draws: \[3, 5\]"):
        flow.sample(key=KEY, n=5)


def test_what_all_draws_share_is_prepared_once():
    """A bias of each draw's own must not copy the closed form's matrix for each draw."""
    field = pg.MLPField(3, 7, 2, key=jr.key(0))
    bias = pg.PerDraw(jnp.zeros((N, 7)))
    own_bias = eqx.tree_at(lambda f: f.layers[0].bias, field, bias)
    own_weight = eqx.tree_at(lambda f: f.layers[1].weight, field, pg.PerDraw(jr.normal(jr.key(1), (N, 7, 7))))
    keys = jr.split(jr.key(2), N)
    for changed, shape in ((own_bias, (7, 7)), (own_weight, (N, 7, 7))):
        dynamics = pg.CNF(changed)._dynamics(jnp.zeros((N, 3)), keys)
        (prepared,) = jax.tree.leaves(dynamics.prepared)
        assert prepared.shape == shape
    flow = pg.Flow(pg.StandardNormal((3,)), [pg.CNF(own_bias, integrator=pg.FixedStep(4))])
    plain = pg.Flow(pg.StandardNormal((3,)), [pg.CNF(field, integrator=pg.FixedStep(4))])
    own, reference = (
        eqx.tree_at(lambda f: f.transforms[0].field.layers[0].bias, f, b)
        .sample_with_score(key=KEY, n=N)
        for f, b in ((flow, bias), (plain, jnp.zeros(7)))
    )  # fmt: skip
    np.testing.assert_allclose(own.log_q, reference.log_q, rtol=TOLERANCE["algebra"])
    np.testing.assert_allclose(own.score, reference.score, rtol=1e-10)
