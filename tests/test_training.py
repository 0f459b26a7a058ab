"""Training: the steps, what happens when they fail, and that a break changes nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import pathgrad as pg
from pathgrad._train import checkpoint
from pathgrad._train import step as one

from .helpers import ravel


def narrow_target(mean=(1.0, -2.0), scale=(0.5, 2.0)):
    mean, scale = jnp.array(mean), jnp.array(scale)
    return pg.LogDensity(lambda x: -0.5 * jnp.sum(((x - mean) / scale) ** 2) + 3.0, (2,))


def normal_flow():
    return pg.Flow(pg.DiagonalNormal.standard((2,)))


def run_blocks(trainer, state, steps):
    rows = []
    for state, row in trainer.blocks(state, steps):
        rows.append(row)
    return state, rows


def test_fit_finds_the_normal_it_can_represent_without_any_noise_left():
    fit = pg.fit(
        normal_flow(),
        narrow_target(),
        key=jr.key(0),
        steps=600,
        n=16,
        optimizer=optax.adam(optax.cosine_decay_schedule(0.1, 600)),
        block=200,
    )
    np.testing.assert_allclose(fit.flow.base.mean, [1.0, -2.0], atol=1e-6)
    np.testing.assert_allclose(jnp.exp(fit.flow.base.log_scale), [0.5, 2.0], rtol=1e-6)
    last = fit.history[-1]
    log_z = 3.0 + np.log(2 * np.pi * 0.5 * 2.0)
    assert last["step"] == 600
    assert abs(last["log_z"] - log_z) < 1e-6
    assert last["ess"] > 1 - 1e-6
    assert last["gradient_norm"] < 1e-4
    assert [r["step"] for r in fit.history] == [200, 400, 600]
    assert fit.history[0]["seconds"] < last["seconds"] == fit.seconds


def test_step_is_the_gradient_and_the_optimiser_and_nothing_else():
    flow, target, optimizer = normal_flow(), narrow_target(), optax.adam(0.1)
    state = pg.init(flow, target, optimizer)
    state, info = pg.step(jr.key(3), state, optimizer, n=8, estimator=pg.TotalGradient())
    value, gradient = eqx.filter_value_and_grad(
        lambda f: pg.reverse_kl(f, target, key=jr.key(3), n=8, estimator=pg.TotalGradient())
    )(flow)
    parameters = eqx.filter(flow, eqx.is_inexact_array)
    updates, _ = optimizer.update(gradient, optimizer.init(parameters), parameters)
    np.testing.assert_allclose(
        ravel(state.flow), ravel(eqx.apply_updates(flow, updates)), rtol=1e-12
    )
    np.testing.assert_allclose(info.loss, value, rtol=1e-12)
    np.testing.assert_allclose(info.gradient_norm, jnp.linalg.norm(ravel(gradient)), rtol=1e-12)
    np.testing.assert_allclose(-info.log_weight.mean(), value, rtol=1e-12)
    assert (int(state.step), int(state.skipped), int(info.cause)) == (1, 0, 0)


def test_bad_steps_are_skipped_and_counted_and_leave_everything_as_it_was():
    # NaN wherever a draw is far out: about every other batch of 8.
    target = pg.LogDensity(
        lambda x: jnp.where(jnp.abs(x[0]) > 1.8, jnp.nan, -0.5 * jnp.sum((x - 0.2) ** 2)), (2,)
    )
    optimizer = optax.adam(0.01)
    state = pg.init(normal_flow(), target, optimizer)
    take = eqx.filter_jit(lambda k, s: pg.step(k, s, optimizer, n=8))
    outcomes = []
    for i in range(30):
        before = state
        x = state.flow.sample(key=jr.key(i), n=8)
        expected_bad = bool(jnp.any(jnp.abs(x[:, 0]) > 1.8))
        state, info = take(jr.key(i), state)
        outcomes.append(expected_bad)
        assert bool(int(info.cause) & one.TARGET_NOT_FINITE) == expected_bad
        if expected_bad:
            kept = (state.flow, state.optimizer_state), (before.flow, before.optimizer_state)
            assert eqx.tree_equal(*kept)
        else:
            assert not np.array_equal(ravel(state.flow), ravel(before.flow))
    assert 0 < sum(outcomes) < 30
    assert int(state.skipped) == sum(outcomes)
    assert int(state.step) == 30


def _gradient_breaks(x):
    # The value is fine; the derivative of sqrt at zero times zero is NaN.
    return -0.5 * jnp.sum(x**2) + jnp.sqrt(0.0 * x[0])


DIVERGING = {
    "target": (lambda x: jnp.sum(x) * jnp.nan, None, "the target's log density"),
    "gradient": (_gradient_breaks, None, "the gradient was not finite"),
    "solver": (
        lambda x: -0.5 * jnp.sum(x**2),
        pg.Adaptive(1e-8, 1e-8, max_steps=2),
        "an ODE solve failed",
    ),
}


@pytest.mark.parametrize("case", DIVERGING)
def test_training_stops_with_the_step_and_the_cause(case):
    log_prob, integrator, text = DIVERGING[case]
    flow = normal_flow()
    if integrator is not None:
        field = pg.MLPField(2, 4, 1, key=jr.key(0), output_scale=5.0)
        flow = pg.Flow(pg.StandardNormal((2,)), [pg.CNF(field, integrator=integrator)])
    with pytest.raises(pg.TrainingDiverged, match=text) as caught:
        pg.fit(
            flow,
            pg.LogDensity(log_prob, (2,)),
            key=jr.key(0),
            steps=40,
            n=4,
            block=20,
            max_failures=15,
        )
    assert "15 steps in a row from step 0 on" in str(caught.value)
    np.testing.assert_array_equal(ravel(caught.value.state.flow), ravel(flow))


def test_streak_is_found_across_blocks_and_named_by_its_first_step():
    class Growing(eqx.Module):
        """Finite until the flow has walked far enough."""

        def log_prob(self, x):
            return jnp.where(x[0] > 39.5, jnp.nan, 10.0 * x[0])

    flow = pg.Flow(pg.DiagonalNormal(jnp.zeros(1), jnp.full(1, -8.0)))
    with pytest.raises(pg.TrainingDiverged, match=r"8 steps in a row from step 40 on"):
        # The total gradient in the mean has no noise: it moves by exactly one a step, from 0 to 40.
        pg.fit(
            flow,
            Growing(),
            key=jr.key(0),
            steps=100,
            n=1,
            block=5,
            max_failures=8,
            estimator=pg.TotalGradient(),
            optimizer=optax.sgd(0.1),
        )


def test_resumed_training_repeats_the_same_bits(tmp_path):
    field = pg.MLPField(2, 6, 1, key=jr.key(1))
    flow = pg.Flow(pg.DiagonalNormal.standard((2,)), [pg.CNF(field, integrator=pg.FixedStep(3))])
    target = narrow_target()
    settings = pg.Settings(optax.adam(0.01), n=8, block=5)
    whole_state, whole_rows = run_blocks(
        pg.Trainer(jr.key(2), settings), pg.init(flow, target, settings.optimizer), 20
    )
    state, first_rows = run_blocks(
        pg.Trainer(jr.key(2), settings), pg.init(flow, target, settings.optimizer), 10
    )
    checkpoint.save(tmp_path / "half.ckpt", state, step=10, meta={})
    like = pg.init(flow, target, settings.optimizer)
    state = checkpoint.load(tmp_path / "half.ckpt", like)
    state, last_rows = run_blocks(pg.Trainer(jr.key(2), settings), state, 20)
    assert eqx.tree_equal(state, whole_state)

    def timeless(rows):
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    assert timeless(first_rows + last_rows) == timeless(whole_rows)
    assert [row["evaluations"] for row in whole_rows] == [12.0] * 4


def test_length_of_blocks_does_not_matter():
    target, results = narrow_target(), []
    for block in (10, 4):  # 4 leaves a rest
        fit = pg.fit(
            normal_flow(),
            target,
            key=jr.key(5),
            steps=10,
            n=4,
            block=block,
            optimizer=optax.sgd(0.1),
        )
        results.append(ravel(fit.flow))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)


def test_targets_are_trained_only_when_asked():
    class Shifted(eqx.Module):
        shift: jax.Array

        def log_prob(self, x):
            return -0.5 * jnp.sum((x - self.shift) ** 2) - 0.5 * jnp.sum((self.shift - 2.0) ** 2)

    target = Shifted(jnp.array([0.0, 0.5]))
    rate = optax.cosine_decay_schedule(0.05, 500)
    common = {"key": jr.key(0), "steps": 500, "n": 8, "block": 500, "optimizer": optax.adam(rate)}
    fixed = pg.fit(normal_flow(), target, **common)
    np.testing.assert_array_equal(fixed.target.shift, target.shift)
    np.testing.assert_allclose(fixed.flow.base.mean, [0.0, 0.5], atol=1e-3)
    trained = pg.fit(normal_flow(), target, train_target=True, **common)
    np.testing.assert_allclose(trained.target.shift, [2.0, 2.0], atol=0.05)


def test_max_seconds_counts_training_only():
    fit = pg.fit(
        normal_flow(), narrow_target(), key=jr.key(0), steps=10**9, n=4, block=2000, max_seconds=0.3
    )
    blocks = len(fit.history)
    assert fit.seconds >= 0.3
    assert fit.seconds - fit.seconds / blocks <= 0.3 + 0.3 / blocks + 0.2  # stopped in time
    assert fit.history[-1]["step"] == 2000 * blocks


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
    with pytest.raises(ValueError, match="factor > 1"):
        pg.clip_by_measured_norm(factor=1.0)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="`n` must be at least 1"):
        pg.Trainer(jr.key(0), pg.Settings(optax.adam(0.1), n=0))
    with pytest.raises(ValueError, match="`block` must be at least 1"):
        pg.Trainer(jr.key(0), pg.Settings(optax.adam(0.1), block=-1))
