"""Training: the steps, what happens when they fail, and that a break changes nothing."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import pathgrad as pg
from pathgrad._runs import checkpoint

from .helpers import ravel


def narrow_target(mean=(1.0, -2.0), scale=(0.5, 2.0)):
    mean, scale = jnp.array(mean), jnp.array(scale)
    return pg.LogDensity(lambda x: -0.5 * jnp.sum(((x - mean) / scale) ** 2) + 3.0, (2,))


def normal_flow():
    return pg.Flow(pg.DiagonalNormal.standard((2,)))


def adam(rate, n, **more):
    return pg.FirstOrder(optax.adam(rate), n, **more)


def run_blocks(trainer, state, steps):
    rows = []
    for state, row in trainer.blocks(state, steps):
        rows.append(row)
    return state, rows


def timeless(rows):
    return [dataclasses.replace(row, seconds=0.0) for row in rows]


def test_fit_finds_the_normal_it_can_represent_without_any_noise_left():
    fit = pg.fit(
        normal_flow(),
        pg.ReverseKL(narrow_target()),
        adam(optax.cosine_decay_schedule(0.1, 600), 16, block=200),
        key=jr.key(0),
        steps=600,
    )
    np.testing.assert_allclose(fit.model.base.mean, [1.0, -2.0], atol=1e-6)
    np.testing.assert_allclose(jnp.exp(fit.model.base.log_scale), [0.5, 2.0], rtol=1e-6)
    last = fit.history[-1]
    log_z = 3.0 + np.log(2 * np.pi * 0.5 * 2.0)
    assert last.step == 600
    assert fit.stopped is pg.Stop.STEPS_TAKEN
    assert abs(last.log_z - log_z) < 1e-6
    assert last.ess > 1 - 1e-6
    assert last.gradient_norm < 1e-4
    assert [r.step for r in fit.history] == [200, 400, 600]
    assert fit.history[0].seconds < last.seconds == fit.seconds


def test_the_short_way_is_the_general_one():
    optimizer = optax.adam(0.05)
    common = {"key": jr.key(0), "steps": 6}
    short = pg.fit(
        normal_flow(), narrow_target(), n=4, estimator=pg.TotalGradient(), optimizer=optimizer, **common
    )
    objective = pg.ReverseKL(narrow_target(), pg.TotalGradient())
    general = pg.fit(normal_flow(), objective, pg.FirstOrder(optimizer, 4), **common)
    assert eqx.tree_equal(short.flow, general.flow)
    assert timeless(short.history) == timeless(general.history)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (({"method": adam(0.1, 4), "n": 4, "steps": 1}), "`n` and `optimizer` belong"),
        (({"steps": 1, "estimator": pg.PathGradient(), "own": True}), "belongs to the objective"),
        ({}, "Training needs an end"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(arguments, said):
    arguments = dict(arguments)
    objective = pg.ReverseKL(narrow_target()) if arguments.pop("own", None) else narrow_target()
    with pytest.raises(pg.ArgumentError, match=said):
        pg.fit(normal_flow(), objective, key=jr.key(0), **arguments)


def test_step_is_the_gradient_and_the_optimiser_and_nothing_else():
    flow, target, optimizer = normal_flow(), narrow_target(), optax.adam(0.1)
    method, objective = pg.FirstOrder(optimizer, 8), pg.ReverseKL(target, pg.TotalGradient())
    state = pg.Trainer(objective, method, key=jr.key(0)).init(flow)
    state, info, followed = method.step(state, objective, key=jr.key(3))
    value, gradient = eqx.filter_value_and_grad(
        lambda f: pg.reverse_kl(f, target, key=jr.key(3), n=8, estimator=pg.TotalGradient())
    )(flow)
    parameters = eqx.filter(flow, eqx.is_inexact_array)
    updates, _ = optimizer.update(gradient, optimizer.init(parameters), parameters)
    np.testing.assert_allclose(ravel(state.model), ravel(eqx.apply_updates(flow, updates)), rtol=1e-12)
    np.testing.assert_allclose(ravel(followed), ravel(gradient), rtol=1e-12)
    np.testing.assert_allclose(info.loss, value, rtol=1e-12)
    np.testing.assert_allclose(info.gradient_norm, jnp.linalg.norm(ravel(gradient)), rtol=1e-12)
    np.testing.assert_allclose(info.each.mean(), value, rtol=1e-12)
    assert (int(state.step), int(state.skipped), int(info.outcome)) == (1, 0, pg.Outcome.FINE)


def test_bad_steps_are_skipped_and_counted_and_leave_everything_as_it_was():
    # NaN wherever a draw is far out: about every other batch of 8.
    target = pg.LogDensity(
        lambda x: jnp.where(jnp.abs(x[0]) > 1.8, jnp.nan, -0.5 * jnp.sum((x - 0.2) ** 2)), (2,)
    )
    method, objective = adam(0.01, 8, average=0.9), pg.ReverseKL(target)
    state = pg.Trainer(objective, method, key=jr.key(0)).init(normal_flow())
    take = eqx.filter_jit(lambda key, state: method.step(state, objective, key=key)[:2])
    outcomes = []
    for i in range(30):
        before = state
        x = state.model.sample(key=jr.key(i), n=8)
        expected_bad = bool(jnp.any(jnp.abs(x[:, 0]) > 1.8))
        state, info = take(jr.key(i), state)
        outcomes.append(expected_bad)
        assert (int(info.outcome) == pg.Outcome.TARGET_NOT_FINITE) == expected_bad
        if expected_bad:
            assert eqx.tree_equal((state.model, state.memory), (before.model, before.memory))
        else:
            assert not np.array_equal(ravel(state.model), ravel(before.model))
    assert 0 < sum(outcomes) < 30
    assert int(state.skipped) == sum(outcomes)
    assert int(state.step) == 30


def test_the_average_of_the_parameters_is_what_training_results_in():
    """Against the recursion written out, with its short memory at the start."""
    decay, target = 0.8, narrow_target()
    method, objective = adam(0.3, 4, average=decay), pg.ReverseKL(target)
    trainer = pg.Trainer(objective, method, key=jr.key(4))
    state = trainer.init(normal_flow())
    average = ravel(state.model)
    for i in range(12):
        state, _, _ = method.step(state, objective, key=jr.fold_in(jr.key(4), i))
        own = min(decay, (1 + i) / (10 + i))
        average = own * average + (1 - own) * ravel(state.model)
        np.testing.assert_allclose(ravel(trainer.result(state)), average, rtol=1e-12)
    fit = pg.fit(normal_flow(), objective, method, key=jr.key(4), steps=12)
    np.testing.assert_allclose(ravel(fit.flow), average, rtol=1e-12)
    np.testing.assert_allclose(ravel(fit.state.model), ravel(state.model), rtol=1e-12)
    assert np.abs(ravel(fit.flow) - ravel(fit.state.model)).max() > 0.01


def _gradient_breaks(x):
    # The value is fine; the derivative of sqrt at zero times zero is NaN.
    return -0.5 * jnp.sum(x**2) + jnp.sqrt(0.0 * x[0])


DIVERGING = {
    "target": (lambda x: jnp.sum(x) * jnp.nan, None, pg.Outcome.TARGET_NOT_FINITE),
    "gradient": (_gradient_breaks, None, pg.Outcome.GRADIENT_NOT_FINITE),
    "solver": (
        lambda x: -0.5 * jnp.sum(x**2),
        pg.Adaptive(1e-8, 1e-8, max_steps=2),
        pg.Outcome.TOO_MANY_STEPS,
    ),
}


@pytest.mark.parametrize("case", DIVERGING)
def test_training_stops_with_the_step_and_the_cause(case):
    log_prob, integrator, outcome = DIVERGING[case]
    flow = normal_flow()
    if integrator is not None:
        field = pg.MLPField(2, 4, 1, key=jr.key(0), output_scale=5.0)
        flow = pg.Flow(pg.StandardNormal((2,)), [pg.CNF(field, integrator=integrator)])
    objective = pg.ReverseKL(pg.LogDensity(log_prob, (2,)))
    trainer = pg.Trainer(objective, adam(1e-3, 4, block=20), key=jr.key(0), max_failures=15)
    with pytest.raises(pg.TrainingDiverged, match="15 steps in a row from step 0 on") as caught:
        run_blocks(trainer, trainer.init(flow), 40)
    assert caught.value.outcome is outcome
    assert outcome.message in caught.value.text
    np.testing.assert_array_equal(ravel(caught.value.state.model), ravel(flow))


def test_streak_is_found_across_blocks_and_named_by_its_first_step():
    class Growing(eqx.Module):
        """Finite until the flow has walked far enough."""

        def log_prob(self, x):
            return jnp.where(x[0] > 39.5, jnp.nan, 10.0 * x[0])

    flow = pg.Flow(pg.DiagonalNormal(jnp.zeros(1), jnp.full(1, -8.0)))
    # The total gradient in the mean has no noise: it moves by exactly one a step, from 0 to 40.
    objective = pg.ReverseKL(Growing(), pg.TotalGradient())
    method = pg.FirstOrder(optax.sgd(0.1), 1, block=5)
    trainer = pg.Trainer(objective, method, key=jr.key(0), max_failures=8)
    with pytest.raises(pg.TrainingDiverged, match=r"8 steps in a row from step 40 on"):
        run_blocks(trainer, trainer.init(flow), 100)


def test_resumed_training_repeats_the_same_bits(tmp_path):
    """Also from the middle of a block: where blocks end changes nothing."""
    field = pg.MLPField(2, 6, 1, key=jr.key(1))
    flow = pg.Flow(pg.DiagonalNormal.standard((2,)), [pg.CNF(field, integrator=pg.FixedStep(3))])
    objective, method = pg.ReverseKL(narrow_target()), adam(0.01, 8, block=5, average=0.9)

    def trainer():
        return pg.Trainer(objective, method, key=jr.key(2))

    begin = trainer().init(flow)
    whole_state, whole_rows = run_blocks(trainer(), begin, 20)
    state, first_rows = run_blocks(trainer(), begin, 10)
    checkpoint.save(tmp_path / "half.safetensors", state, step=10, meta={})
    state = checkpoint.load(tmp_path / "half.safetensors", begin)
    state, last_rows = run_blocks(trainer(), state, 20)
    assert eqx.tree_equal(state, whole_state)
    assert timeless(first_rows + last_rows) == timeless(whole_rows)
    assert [row.evaluations for row in whole_rows] == [12.0] * 4
    assert [row.evaluations_backward for row in whole_rows] == [12.0] * 4

    odd, rows = run_blocks(trainer(), begin, 7)
    assert [row.step for row in rows] == [5, 7]
    odd, rows = run_blocks(trainer(), odd, 20)
    assert [row.step for row in rows] == [10, 15, 20]
    assert eqx.tree_equal(odd, whole_state)


def test_the_state_given_is_left_as_it_is():
    trainer = pg.Trainer(pg.ReverseKL(narrow_target()), adam(0.1, 4, block=2), key=jr.key(0))
    begin = trainer.init(normal_flow())
    before = ravel(begin)
    run_blocks(trainer, begin, 6)
    np.testing.assert_array_equal(ravel(begin), before)


def test_length_of_blocks_does_not_matter():
    results = []
    for block in (10, 4):  # 4 leaves a rest
        method = pg.FirstOrder(optax.sgd(0.1), 4, block=block)
        fit = pg.fit(normal_flow(), narrow_target(), method, key=jr.key(5), steps=10)
        results.append(ravel(fit.flow))
    np.testing.assert_array_equal(results[0], results[1])


def test_targets_are_trained_only_as_part_of_the_model():
    class Shifted(eqx.Module):
        shift: jax.Array

        def log_prob(self, x):
            return -0.5 * jnp.sum((x - self.shift) ** 2) - 0.5 * jnp.sum((self.shift - 2.0) ** 2)

    target = Shifted(jnp.array([0.0, 0.5]))
    method = adam(optax.cosine_decay_schedule(0.05, 500), 8, block=500)
    common = {"key": jr.key(0), "steps": 500}
    fixed = pg.fit(normal_flow(), pg.ReverseKL(target), method, **common)
    np.testing.assert_allclose(fixed.model.base.mean, [0.0, 0.5], atol=1e-3)
    both = pg.WithTarget(normal_flow(), target)
    trained = pg.fit(both, pg.ReverseKL(), method, **common)
    np.testing.assert_allclose(trained.model.target.shift, [2.0, 2.0], atol=0.05)
    assert trained.flow is trained.model.flow
    np.testing.assert_allclose(trained.model.flow.base.mean, [2.0, 2.0], atol=0.05)
    for model, objective in ((both, pg.ReverseKL(target)), (normal_flow(), pg.ReverseKL())):
        with pytest.raises(pg.ArgumentError, match="WithTarget"):
            pg.fit(model, objective, method, key=jr.key(0), steps=1)


def test_a_trainer_that_is_given_another_model_trains_that():
    """Also where the two differ by a function inside, which no array shows."""

    def losses(trainer, activation):
        field = pg.MLPField(2, 4, 1, key=jr.key(0), activation=activation, output_scale=3.0)
        flow = pg.Flow(pg.StandardNormal((2,)), [pg.CNF(field, integrator=pg.FixedStep(2))])
        return [row.loss for _, row in trainer.blocks(trainer.init(flow), 1)]

    def trainer():
        return pg.Trainer(pg.ReverseKL(narrow_target()), adam(0.1, 4), key=jr.key(0))

    used = trainer()
    assert losses(used, jnp.tanh) != losses(used, jnp.sin)
    assert losses(used, jnp.sin) == losses(trainer(), jnp.sin)


def test_a_loss_that_is_no_mean_has_no_error():
    class Spread(pg.AbstractObjective):
        @property
        def is_mean(self):
            return False

        def __call__(self, model, batch):
            _, log_q, _ = model.pull(model.push("x", keys=batch.keys).x, keys=batch.keys)
            return pg.Estimate(jnp.var(log_q), log_q, pg.Outcome.FINE, numbers={"step": 7.0})

    (row,) = pg.fit(normal_flow(), Spread(), adam(0.1, 4), key=jr.key(0), steps=3).history
    assert row.loss > 0
    assert row.loss_err is None
    assert row.step == 3  # what an objective calls its numbers cannot change what the trainer says


def test_stages_that_make_no_sense_are_refused():
    first, second = adam(0.1, 4), adam(0.1, 8)
    with pytest.raises(pg.ArgumentError, match="write them in one list"):
        pg.Stages([(pg.Stages([(first, 1)]), 2)])
    with pytest.raises(pg.ArgumentError, match="at least one pair"):
        pg.Stages([])
    objective = pg.NegativeELBO(pg.Data(np.zeros((9, 2))))
    with pytest.raises(pg.ArgumentError, match=r"the same `n`, so that .* got \[4, 8\]"):
        pg.Stages([(first, 1), (second, 1)]).runner(objective, key=jr.key(0))


def test_max_seconds_counts_training_only():
    method = adam(1e-3, 4, block=2000)
    fit = pg.fit(normal_flow(), narrow_target(), method, key=jr.key(0), max_seconds=0.3)
    blocks = len(fit.history)
    assert fit.stopped is pg.Stop.TIME_USED_UP
    assert fit.seconds >= 0.3
    assert fit.seconds - fit.seconds / blocks <= 0.3 + 0.3 / blocks + 0.2  # stopped in time
    assert fit.history[-1].step == 2000 * blocks


def test_a_loss_below_its_bound_is_in_the_row():
    """A bound that is wrong by one stands for densities that are: the loss is further below than chance."""
    target = narrow_target()
    log_z = 3.0 + np.log(2 * np.pi)
    flow = pg.Flow(pg.DiagonalNormal(jnp.array([1.0, -2.0]), jnp.log(jnp.array([0.5, 2.0]))))
    for known, expected in ((log_z, None), (log_z - 1.0, 1.0)):
        objective = pg.ReverseKL(target, log_z=float(known))
        (row,) = pg.fit(flow, objective, adam(1e-9, 16), key=jr.key(0), steps=5).history
        if expected is None:
            assert row.below_bound is None
        else:
            assert row.below_bound == pytest.approx(expected, abs=1e-5)


def test_clipping_follows_the_measured_norm():
    clip = pg.clip_by_measured_norm(factor=2.0, decay=0.9, warmup=5)
    direction = {"a": jnp.array([0.6]), "b": jnp.array([0.0, -0.8])}
    state = clip.init(direction)
    norms = []
    for size in [3.0] * 10 + [300.0, 3.0, 5.0]:
        clipped, state = clip.update(jax.tree.map(lambda g, size=size: size * g, direction), state)
        norms.append(float(pg.metrics.gradient_norm(clipped)))
    # The usual norm is 3: all pass, the outlier is cut to twice that, and hardly moves the threshold.
    np.testing.assert_allclose(norms[:10], 3.0, rtol=1e-12)
    np.testing.assert_allclose(norms[10], 6.0, rtol=1e-6)
    np.testing.assert_allclose(norms[11:], [3.0, 5.0], rtol=1e-12)
    with pytest.raises(ValueError, match="`factor` must be larger than 1"):
        pg.clip_by_measured_norm(factor=1.0)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="`n` must be at least 1"):
        adam(0.1, 0)
    with pytest.raises(ValueError, match="`block` must be at least 1"):
        adam(0.1, 4, block=-1)
    with pytest.raises(ValueError, match="`average` must be between 0 and 1"):
        adam(0.1, 4, average=1.0)
    with pytest.raises(ValueError, match="`max_failures` must be at least 1"):
        pg.Trainer(pg.ReverseKL(narrow_target()), adam(0.1, 4), key=jr.key(0), max_failures=0)
