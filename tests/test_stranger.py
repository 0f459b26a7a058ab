"""What somebody else can bring: an objective, a method, an estimator, a bijection and a field of their own.

Everything here is written from public names only, as in a package that builds on this one, and then trained,
saved, resumed to the same bits and evaluated together.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import pathgrad as pg

N = 8


class Swirl(eqx.Module):
    """A field without a formula for its divergence: a rotation, faster or slower by radius, and a drift."""

    speed: jax.Array
    drift: jax.Array

    def __call__(self, t, x):
        turn = self.speed * jnp.exp(-jnp.sum(x**2)) * (1 + t)
        return turn * jnp.array([-x[1], x[0]]) + self.drift


class Shear(pg.AbstractBijection):
    """A bijection: the first coordinate moves and stretches the second."""

    bend: jax.Array
    stretch: jax.Array

    def forward(self, x):
        log_scale = self.stretch * jnp.tanh(x[0])
        return jnp.array([x[0], x[1] * jnp.exp(log_scale) + self.bend * x[0] ** 2]), log_scale

    def inverse(self, y):
        log_scale = self.stretch * jnp.tanh(y[0])
        return jnp.array([y[0], (y[1] - self.bend * y[0] ** 2) * jnp.exp(-log_scale)]), -log_scale


class Halfway(pg.AbstractEstimator):
    """An estimator: the mean of the path and the total gradient, which has their mean too."""

    def draw(self, flow, *, key, n):
        path = pg.PathGradient().draw(flow, key=key, n=n)
        total = pg.TotalGradient().draw(flow, key=key, n=n)
        assert path.log_q is not None
        assert total.log_q is not None
        return pg.Draw(path.x, (path.log_q + total.log_q) / 2, None, path.log_choice, path.solve)


class FreeEnergy(pg.AbstractObjective):
    """An objective: the mean of log q - log p, which falls no lower than minus the log normaliser."""

    target: pg.Target
    estimator: pg.AbstractEstimator
    log_z: float = eqx.field(static=True)

    def __call__(self, model, batch):
        draw = self.estimator.draw(model.tallied(batch.tally), key=batch.keys, n=batch.n)
        assert draw.log_q is not None
        log_p = jnp.stack([self.target.log_prob(x) for x in draw.x])
        each = draw.log_q - log_p
        outcome = pg.outcome_of(
            (log_p, pg.Outcome.TARGET_NOT_FINITE), (draw.log_q, pg.Outcome.DENSITY_NOT_FINITE)
        )
        loss = jnp.mean(each) + pg.choice_term(draw.log_choice, pg.freeze(each))
        return pg.Estimate(loss, pg.freeze(each), outcome, draw.solve)

    @property
    def lower_bound(self):
        return -self.log_z, 0.0

    def summary(self, each):
        return {"ess": pg.metrics.ess(jnp.asarray(-each))}


class LogVariance(pg.AbstractObjective):
    """An objective: half the variance of the log-weights, at draws that are held fixed."""

    target: pg.Target
    estimator: pg.AbstractEstimator

    def __call__(self, model, batch):
        x = pg.freeze(self.estimator.draw(model, key=batch.keys, n=batch.n).x)
        log_p = jnp.stack([self.target.log_prob(point) for point in x])
        pulled = model.pull(x, keys=batch.keys)
        log_weight = log_p - pulled.log_q
        loss = 0.5 * jnp.var(log_weight)
        outcome = jnp.where(jnp.isfinite(loss), pg.Outcome.FINE, pg.Outcome.DENSITY_NOT_FINITE)
        spread = {"log_z_here": pg.freeze(jnp.mean(log_weight))}
        return pg.Estimate(loss, -pg.freeze(log_weight), outcome, pulled.solve, spread)

    @property
    def is_mean(self):
        return False

    def summary(self, each):
        return {"ess": pg.metrics.ess(jnp.asarray(-each))}


class Mixed(pg.AbstractObjective):
    """An objective made of another and of draws of the target: a little maximum likelihood."""

    inner: pg.AbstractObjective
    rows: pg.Data = eqx.field(static=True)

    def __call__(self, model, batch):
        found = self.inner(model, batch)
        likelihood = -jnp.mean(model.pull(batch.data, keys=batch.keys).log_q)
        return pg.Estimate(
            found.loss + 0.1 * likelihood, found.each, found.outcome, found.solve, {"likelihood": likelihood}
        )

    @property
    def data(self):
        return self.rows


class SignDescent(pg.AbstractCompiledMethod):
    """A method: each parameter moves by the same length, against the sign of a remembered gradient."""

    rate: float = eqx.field(static=True)
    n: int = eqx.field(static=True, default=N)
    block: int = eqx.field(static=True, default=4)
    devices: tuple[Any, ...] | None = eqx.field(static=True, default=None)

    def init(self, model):
        return jax.tree.map(jnp.zeros_like, eqx.filter(model, eqx.is_inexact_array))

    def result(self, state):
        return state.model

    def step(self, state, objective, *, key, data=None, mesh=None):
        keys = jr.split(key, self.n)

        def loss_of(model):
            estimate = objective(model, pg.Batch(keys, data, state.step))
            return estimate.loss, estimate

        (loss, estimate), gradient = eqx.filter_value_and_grad(loss_of, has_aux=True)(state.model)
        memory = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.memory, gradient)
        updates = jax.tree.map(lambda m: -self.rate * jnp.sign(m), memory)
        model = eqx.apply_updates(state.model, updates)
        after = state.after(model, memory)
        info = pg.StepInfo(
            loss,
            estimate.each,
            estimate.numbers,
            pg.metrics.gradient_norm(gradient),
            estimate.solve.evaluations,
            jnp.zeros(()),
            estimate.outcome,
            after.skipped_in_row,
        )
        return after, info, gradient


def banana():
    def log_prob(x):
        return -0.5 * (x[0] - 0.4) ** 2 - 2.0 * (x[1] - 0.5 * x[0] ** 2 + 0.3) ** 2

    return pg.LogDensity(log_prob, (2,)), float(np.log(2 * np.pi / 2.0))


def flow():
    swirl = Swirl(jnp.array(0.2), jnp.array([0.1, 0.0]))
    return pg.Flow(
        pg.DiagonalNormal.standard((2,)),
        [pg.CNF(swirl, integrator=pg.FixedStep(4), t0=0.3, t1=1.1), Shear(jnp.array(0.05), jnp.array(0.1))],
    )


def objective():
    target, log_z = banana()
    return FreeEnergy(target, Halfway(), log_z)


def run(trainer, state, steps):
    rows = []
    for state, row in trainer.blocks(state, steps):
        rows.append(row)
    return state, rows


def test_a_bijection_and_a_field_of_ones_own_have_the_right_score():
    draw = flow().sample_with_score(key=jr.key(0), n=5)
    score = jax.grad(lambda x: jnp.sum(flow().log_prob(x)))(draw.x)
    np.testing.assert_allclose(np.asarray(draw.score), score, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(np.asarray(draw.log_q), flow().log_prob(draw.x), rtol=1e-7, atol=1e-7)


def test_an_estimator_of_ones_own_lies_between_the_two_it_is_made_of():
    target, _ = banana()

    def gradient(estimator):
        grad = eqx.filter_grad(pg.reverse_kl)
        found = grad(flow(), target, key=jr.key(1), n=N, estimator=estimator)
        return ravel_pytree(found)[0]

    path, total, own = map(gradient, (pg.PathGradient(), pg.TotalGradient(), Halfway()))
    np.testing.assert_allclose(own, (path + total) / 2, rtol=1e-10, atol=1e-12)
    assert np.linalg.norm(path - total) > 0.1


@pytest.fixture(scope="module")
def trained():
    method = pg.Stages([(SignDescent(rate=0.02), 40), (pg.FirstOrder(optax.adam(0.01), N, block=25), 75)])
    trainer = pg.Trainer(objective(), method, key=jr.key(2))
    return method, trainer, *run(trainer, trainer.init(flow()), method.steps)


def test_a_method_of_ones_own_trains_as_the_first_of_two_stages(trained):
    _, trainer, state, rows = trained
    assert [row.step for row in rows] == [*range(4, 44, 4), 50, 75, 100, 115]
    assert [row.more["stage"] for row in rows] == [0.0] * 10 + [1.0] * 4
    assert rows[-1].ess > 0.9 > rows[0].ess
    assert all(row.gradient_snr is not None and row.below_bound is None for row in rows)
    assert trainer.stopped is pg.Stop.STEPS_TAKEN
    target, log_z = banana()
    found = pg.evaluate(trainer.result(state), target, key=jr.key(3), n=4096)
    assert found.ess > 0.9
    assert found.verdict.level <= pg.Level.USABLE
    assert abs(found.log_z - log_z) < 5 * found.log_z_err + 1e-3


@pytest.fixture(scope="module")
def another(trained):
    """A trainer of the same training that has taken no step of it."""
    return pg.Trainer(objective(), trained[0], key=jr.key(2))


@pytest.mark.parametrize("at", [10, 40, 60], ids=["first stage", "between", "second stage"])
def test_a_break_in_any_stage_changes_nothing(trained, another, at, tmp_path):
    method, trainer, whole, _ = trained
    half, _ = run(trainer, trainer.init(flow()), at)
    eqx.tree_serialise_leaves(tmp_path / "half.eqx", half)
    loaded = eqx.tree_deserialise_leaves(tmp_path / "half.eqx", another.init(flow()))
    resumed, _ = run(another, loaded, method.steps)
    assert eqx.tree_equal(resumed, whole)


def test_an_objective_of_ones_own():
    """The log-weights become nearly constant, and their mean the log normaliser."""
    target, log_z = banana()
    fit = pg.fit(
        flow(),
        LogVariance(target, pg.TotalGradient()),
        pg.FirstOrder(optax.adam(0.02), N, block=50),
        key=jr.key(4),
        steps=150,
    )
    first, *_, last = fit.history
    assert last.loss is not None
    assert first.loss is not None
    assert last.ess is not None
    assert last.loss < 0.1 * first.loss
    assert 0 < last.ess < 1
    assert abs(last.more["log_z_here"] - log_z) < 0.5 * abs(first.more["log_z_here"] - log_z)


def test_a_method_of_ones_own_learns_from_data_and_is_validated():
    """Its data are changed by `Data.change`, and the best model is kept."""
    rows = np.zeros((24, 2))

    class Shifted(pg.AbstractObjective):
        entries: pg.Data = eqx.field(static=True)

        def __call__(self, model, batch):
            each = jnp.sum((model.base.mean - batch.data) ** 2, axis=1)
            solve = pg.SolveInfo(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
            return pg.Estimate(jnp.mean(each), pg.freeze(each), pg.Outcome.FINE, solve)

        @property
        def data(self):
            return self.entries

    def change(entry, *, key):
        return entry + jnp.array([1.0, -0.5]) + 0.01 * jr.normal(key, (2,))

    data = pg.Data(rows, change=change)
    validation = pg.Validation(Shifted(data), every=3, n=N)
    trainer = pg.Trainer(Shifted(data), SignDescent(rate=0.1), key=jr.key(6), validation=validation)
    state, found = run(trainer, trainer.init(pg.Flow(pg.DiagonalNormal.standard((2,)))), 30)
    np.testing.assert_allclose(trainer.result(state).base.mean, [1.0, -0.5], atol=0.11)
    assert min(r.validation for r in found if r.validation is not None) < 0.02
    assert int(state.best.step) % 3 == 0 < int(state.best.step)


def test_an_objective_with_data_of_the_target():
    """Draws of the target come from `Data` too, and a resumed training repeats them."""
    rng = np.random.default_rng(0)
    first = rng.normal(0.4, 1.0, 30)
    draws = np.stack([first, 0.5 * first**2 - 0.3 + rng.normal(0, 0.5, 30)], axis=1)
    trainer = pg.Trainer(
        Mixed(objective(), pg.Data(draws)),
        pg.FirstOrder(optax.adam(0.02), N, block=3, average=0.9),
        key=jr.key(5),
    )
    begin = trainer.init(flow())
    whole, rows = run(trainer, begin, 16)
    assert rows[-1].more["likelihood"] < rows[0].more["likelihood"]
    half, _ = run(trainer, begin, 7)
    assert eqx.tree_equal(run(trainer, half, 16)[0], whole)
