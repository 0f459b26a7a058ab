"""Learning rates over a training that ends by the clock: a made-up clock, and every factor of every step."""

import types

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import pathgrad as pg
from pathgrad._runs.checkpoint import load, save
from pathgrad._train import trainer as trainer_module
from pathgrad._train.blocks import CompiledRunner

KEY = jr.key(2)
RATE = pg.Trapezoid(warmup=4, hold=0.25)


class Walker(eqx.Module):
    """Something to train: a place, and a number that every step makes another one of."""

    place: jax.Array
    noise: jax.Array


class Walk(pg.AbstractObjective):
    """The slope of the place is minus one at every step, so that it moves by the factor on the rate."""

    entries: pg.Data | None = eqx.field(static=True, default=None)

    @property
    def data(self):
        return self.entries

    def __call__(self, model, batch):
        each = -model.place + jax.vmap(lambda key: jr.normal(key) * model.noise)(batch.keys)
        return pg.Estimate(jnp.mean(each), each, pg.Outcome.FINE)


class Clock:
    """Time passes by the steps that are taken, and in no other way."""

    def __init__(self, pace):
        self.now, self.pace = 0.0, pace  # seconds of a step, by its number


@pytest.fixture
def clock(monkeypatch):
    clock, run = Clock(lambda step: 0.125), CompiledRunner.run

    def counted(self, state, length):
        clock.now += sum(clock.pace(int(state.step) + i) for i in range(length))
        return run(self, state, length)

    monkeypatch.setattr(CompiledRunner, "run", counted)
    monkeypatch.setattr(trainer_module, "time", types.SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def walker():
    return Walker(jnp.zeros(()), jnp.ones(()))


def method(rate: pg.AbstractRate | None = RATE, block=1):
    return pg.FirstOrder(optax.sgd(1.0), 2, block=block, rate=rate)


def trainer(rate: pg.AbstractRate | None = RATE, block=1, data=None, **more):
    return pg.Trainer(Walk(data), method(rate, block), key=KEY, **more)


def train(made, state, steps=None, max_seconds=None, until=None):
    """Train; return the state, and the factor of every block of one step."""
    places = [float(state.model.place)]
    for state, row in made.blocks(state, steps, max_seconds):
        places.append(float(state.model.place))
        if row.step == until:
            break
    return state, np.diff(places)


def factors(horizon, warmup=4, hold=0.25):
    """Of every step, in NumPy."""
    step = np.arange(horizon)
    grown = np.minimum((step + 1) / warmup, 1.0)
    return grown * np.minimum((1 - step / horizon) / (1 - hold), 1.0)


def test_trapezoid():
    rate = pg.Trapezoid(warmup=10, hold=0.5)
    at = lambda step, progress: float(rate(jnp.asarray(step), jnp.asarray(progress)))  # noqa: E731
    assert [at(0, 0.0), at(4, 0.0), at(9, 0.0), at(50, 0.5)] == [0.1, 0.5, 1.0, 1.0]
    assert [at(50, 0.75), at(50, 1.0)] == [0.5, 0.0]
    assert at(4, 0.75) == 0.25
    never = pg.Trapezoid(hold=1.0)
    assert float(never(jnp.asarray(0), jnp.asarray(1.0))) == 1.0
    for warmup, hold in ((-1, 0.5), (0, 1.5), (0, -0.1)):
        with pytest.raises(
            pg.ArgumentError, match=r"`warmup` must be at least 0, got -1|`hold` must be from"
        ):
            pg.Trapezoid(warmup, hold)


def test_rate_of_a_training_of_known_length():
    made = trainer()
    state, found = train(made, made.init(walker()), 40)
    np.testing.assert_allclose(found, factors(40), rtol=1e-6)
    assert (int(state.horizon), float(state.progress), made.stopped) == (40, 1.0, pg.Stop.STEPS_TAKEN)


def test_the_steps_that_fit_are_estimated(clock):
    """Eight steps a second for ten seconds; a twentieth of them is enough to know."""
    made, horizons = trainer(), []
    state = made.init(walker())
    for state, _ in made.blocks(state, 1000, 10.0):
        horizons.append(int(state.horizon))
    assert horizons == [0] * 4 + [80] * 76
    assert made.seconds == 10.0
    assert made.stopped is pg.Stop.TIME_USED_UP
    # The rate falls to zero at the end, as if the length had been known.
    again = trainer()
    known, found = train(again, again.init(walker()), 80)
    np.testing.assert_allclose(found, factors(80), rtol=1e-6)
    assert eqx.tree_equal(state, known)
    assert again.stopped is pg.Stop.STEPS_TAKEN


def test_a_plan_is_kept_to_within_limits(clock):
    made = trainer()
    # Twice as fast from the tenth step on: nothing is added.
    clock.pace = lambda step: 0.125 if step < 10 else 0.0625
    state, _ = train(made, made.init(walker()), None, 10.0)
    assert int(state.step) == 80
    assert made.seconds == 10 / 8 + 70 / 16
    # Slower by a twentieth: the plan is kept.
    made, clock.pace = trainer(), lambda step: 0.125 if step < 5 else 0.13125
    state, found = train(made, made.init(walker()), None, 10.0)
    assert (int(state.step), int(state.horizon)) == (80, 80)
    assert made.stopped is pg.Stop.TIME_USED_UP
    np.testing.assert_allclose(found, factors(80), rtol=1e-6)


def test_a_plan_that_has_become_too_long_is_shortened(clock):
    """Twice as slow from the twentieth step on: 20 steps in 2.5 s, and 30 more in the rest of ten seconds."""
    made, clock.pace = trainer(), lambda step: 0.125 if step < 20 else 0.25
    state, found = train(made, made.init(walker()), None, 10.0)
    steps = int(state.step)
    assert int(state.horizon) == steps
    assert 50 <= steps <= 52
    assert 10.0 <= made.seconds <= 10.5
    assert made.stopped is pg.Stop.TIME_USED_UP
    # As planned at first, and in the end as if the length had been known: down to zero.
    np.testing.assert_allclose(found[:20], factors(80)[:20], rtol=1e-6)
    np.testing.assert_allclose(found[-10:], factors(steps)[-10:], rtol=1e-6)
    assert found[-1] < 0.03


def test_a_resumed_training_keeps_its_plan(clock, tmp_path):
    made = trainer(block=3)
    whole, _ = train(made, made.init(walker()), 1000, 10.0)
    # Blocks of three: it is known after six steps.
    assert int(whole.step) == int(whole.horizon) == 80
    for until in (3, 6, 42):
        first = trainer(block=3)
        half, _ = train(first, first.init(walker()), 1000, 10.0, until=until)
        assert int(half.horizon) == (0 if until <= 6 else 80)
        save(tmp_path / f"{until}", half, step=until, meta={})
        second = trainer(block=3, seconds=first.seconds)
        resumed, _ = train(second, load(tmp_path / f"{until}", second.init(walker())), 1000, 10.0)
        assert eqx.tree_equal(resumed, whole)
    # There is nothing left to do in a third one.
    third = trainer(block=3, seconds=second.seconds)
    assert list(third.blocks(whole, 1000, 10.0)) == []


def test_other_limits_need_another_plan(clock):
    made = trainer()
    state, _ = train(made, made.init(walker()), 8)
    # Of a trainer that goes on, the first seconds count.
    state, found = train(made, state, 1000, 5.0)
    assert (int(state.step), int(state.horizon), made.seconds) == (40, 40, 5.0)
    np.testing.assert_allclose(found, factors(40)[8:], rtol=1e-6)
    state, _ = train(made, state, 1000, 6.0)
    assert int(state.horizon) == 48
    state, _ = train(made, state, 50, 60.0)
    assert (int(state.step), made.stopped) == (50, pg.Stop.STEPS_TAKEN)
    # That of another trainer begins at zero: so many seconds more.
    more = pg.fit(walker(), Walk(), method(), key=KEY, max_seconds=5.0, state=state)
    assert (int(more.state.step), int(more.state.horizon)) == (90, 90)


def test_nothing_is_planned_that_nobody_asks_for(clock):
    made = trainer(rate=None)
    state, found = train(made, made.init(walker()), None, 5.0)
    assert (int(state.step), int(state.horizon), made.seconds) == (40, 0, 5.0)
    np.testing.assert_allclose(found, 1.0, rtol=1e-12)
    # In stages, if any of them asks; and for data that are augmented less towards the end.
    stages = pg.Stages([(pg.FirstOrder(optax.sgd(0.1)), 3), (pg.FirstOrder(optax.sgd(0.1), rate=RATE), 4)])
    assert stages.needs_horizon
    assert not pg.Stages([(method(None), 3)]).needs_horizon


def test_augmented_data_ask_for_a_plan(clock):
    seen = lambda row, *, key, progress: row + progress  # noqa: E731
    for augment, horizon in ((None, 0), (seen, 40)):
        made = trainer(None, 2, pg.Data(np.zeros(4), augment=augment))
        state, _ = train(made, made.init(walker()), None, 5.0)
        assert int(state.horizon) == horizon
