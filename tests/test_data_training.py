"""Training on data: the order of batches, validation, patience, and that a break changes nothing."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import pathgrad as pg
from pathgrad._runs.checkpoint import load, save


class Walker(eqx.Module):
    """Something to train: a number that every step of `walking` raises by one."""

    place: jax.Array


class Walk(pg.AbstractObjective):
    """A loss that falls by one with each unit of the place. `each` tells which entries were seen."""

    entries: pg.Data = eqx.field(static=True)
    seen: list = eqx.field(static=True)
    of: str = eqx.field(static=True, default="entry")

    @property
    def data(self):
        return self.entries

    def __call__(self, model, batch):
        bits = jr.key_data(batch.keys)[:, 0].astype(jnp.float64)
        each = {"entry": batch.data.astype(jnp.float64), "key": bits}[self.of]
        return pg.Estimate(-model.place, each, pg.Outcome.FINE, numbers={"n": 1.0 * each.size})

    def summary(self, each):
        self.seen.append(each)
        return {}


class Table(pg.AbstractObjective):
    """A validation loss that depends on the place alone."""

    losses: tuple = eqx.field(static=True)
    every: int = eqx.field(static=True, default=1)

    @property
    def data(self):
        return pg.Data(np.zeros(2))

    def __call__(self, model, batch):
        index = jnp.round(model.place / self.every).astype(int) - 1
        each = jnp.full(batch.n, jnp.asarray(self.losses)[index])
        return pg.Estimate(jnp.mean(each), each, pg.Outcome.FINE)


def walking(n, *, block=50, average=None):
    return pg.FirstOrder(optax.sgd(1.0), n, block=block, average=average)


def run(trainer, steps, state=None, **more):
    state = trainer.init(Walker(jnp.zeros(()))) if state is None else state
    rows = []
    for state, row in trainer.blocks(state, steps, **more):
        rows.append(row)
    return state, rows


def epochs_of(key, of="entry"):
    """Return what three epochs of eleven entries in batches of four see."""
    seen = []
    objective = Walk(pg.Data(np.arange(11)), seen, of)
    trainer = pg.Trainer(objective, walking(4, block=2), key=key)
    _, rows = run(trainer, 9)
    # A block ends with the epoch, and before a batch that is smaller than the others.
    assert [row.step for row in rows] == [2, 3, 5, 6, 8, 9]
    assert [row.epoch for row in rows] == pytest.approx([2 / 3, 1, 5 / 3, 2, 8 / 3, 3])
    assert [row.more["n"] for row in rows] == [4, 3] * 3
    whole = np.concatenate(seen)
    return [whole[i : i + 11].tolist() for i in (0, 11, 22)]


def test_every_epoch_sees_every_entry_once_in_an_order_of_its_own():
    epochs = epochs_of(jr.key(7))
    for epoch in epochs:
        assert sorted(epoch) == list(range(11))
        assert epoch != list(range(11))
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert epochs_of(jr.key(7)) == epochs
    assert all(a != b for a, b in zip(epochs, epochs_of(jr.key(8)), strict=True))


def test_no_draw_shares_its_noise_with_another():
    keys, others = ({bits for epoch in epochs_of(jr.key(seed), "key") for bits in epoch} for seed in (7, 8))
    assert len(keys) == 33
    assert not keys & others


def validated(losses, *, every=1, patience=None, patient_until=0, n=1, steps=100, **more):
    """Train on one entry, with a table of validation losses."""
    table = Table(tuple(losses), every)
    validation = pg.Validation(table, every=every, n=2, patience=patience, patient_until=patient_until)
    objective = Walk(pg.Data(np.zeros(1)), [])
    trainer = pg.Trainer(objective, walking(n, **more), key=jr.key(0), validation=validation)
    state, rows = run(trainer, steps)
    return trainer, state, rows


def test_waiting_counts_from_the_end_of_the_warmup():
    # Best after the second validation. Validations 4 and later count: 4, 5, 6 are three, more than two.
    trainer, state, rows = validated(
        [9.0, 5.0, 6.0, 7.0, 8.0, 5.5, 1.0], every=2, patience=2, patient_until=8
    )
    rows = [row for row in rows if row.validation is not None]
    assert [row.step for row in rows] == [2, 4, 6, 8, 10, 12]
    assert [row.waiting for row in rows] == [0, 0, 0, 1, 2, 3]
    assert [row.validation for row in rows] == [9.0, 5.0, 6.0, 7.0, 8.0, 5.5]
    assert [row.best_validation for row in rows] == [9.0] + [5.0] * 5
    assert trainer.stopped is pg.Stop.PATIENCE_USED_UP
    assert (int(state.best.step), float(state.best.loss)) == (4, 5.0)
    # The best is what the training results in; the last goes on being trained.
    assert float(trainer.result(state).place) == 4
    assert float(state.model.place) == 12


def test_an_improvement_ends_the_waiting():
    _, state, rows = validated([5.0, 6.0, 4.0, 4.5, 4.5, 0.0], patience=1)
    assert [row.waiting for row in rows] == [0, 1, 0, 1, 2]
    assert int(state.best.step) == float(state.best.model.place) == 3


@pytest.mark.parametrize("value", [0.5, 0.1], ids=["float32", "between-two-float32"])
def test_the_same_again_is_no_improvement(value):
    _, state, rows = validated([value] * 6, patience=1)
    assert [row.waiting for row in rows] == [0, 1, 2]
    assert int(state.best.step) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_validation_that_is_no_number_is_an_error(value):
    """It is raised after the row of its block, which is not lost."""
    validation = pg.Validation(Table((3.0, value)), every=1, n=2)
    objective = Walk(pg.Data(np.zeros(1)), [])
    trainer = pg.Trainer(objective, walking(1), key=jr.key(0), validation=validation)
    blocks = trainer.blocks(trainer.init(Walker(jnp.zeros(()))), 9)
    assert [next(blocks)[1].step for _ in range(2)] == [1, 2]
    with pytest.raises(pg.TrainingDiverged, match=f"stopped at step 2: .*{value}") as caught:
        next(blocks)
    assert caught.value.outcome is pg.Outcome.VALIDATION_NOT_FINITE


def test_a_state_that_was_begun_without_validation_is_refused():
    objective = Walk(pg.Data(np.zeros(1)), [])
    begin = pg.Trainer(objective, walking(1), key=jr.key(0)).init(Walker(jnp.zeros(())))
    validation = pg.Validation(Table((1.0,)), every=1, n=2)
    trainer = pg.Trainer(objective, walking(1), key=jr.key(0), validation=validation)
    with pytest.raises(pg.ArgumentError, match="`state` was made without a validation"):
        next(trainer.blocks(begin, 1))


def test_the_average_is_what_is_validated():
    """The place moves from 0 to 1 and 2; its average, with the short memory of the start, lags behind."""
    trainer, state, rows = validated([0.0] * 9, steps=2, average=0.9999)
    average = 0.1 * 0 + 0.9 * 1  # 1/10 of the past in the first step, 2/11 in the second
    average = 2 / 11 * average + 9 / 11 * 2
    assert float(trainer.method.result(state).place) == pytest.approx(average)
    # Of two equal validations the first is kept: the average after one step.
    assert float(trainer.result(state).place) == pytest.approx(0.9)
    assert len(rows) == 2


@pytest.mark.parametrize(("n", "batches"), [(3, 3), (7, 1), (10, 1)])
def test_validation_weighs_entries_and_not_batches(n, batches):
    class Squares(Table):
        def __call__(self, model, batch):
            assert batch.n == n
            return pg.Estimate(jnp.zeros(()), batch.data**2, pg.Outcome.FINE)

    class Seven(Squares):
        @property
        def data(self):
            return pg.Data(np.array([0.0, 1.0, 3.0, 2.0, 5.0, 9.0, 31.0]))

    validation = pg.Validation(Seven((0.0,)), every=1, n=n)
    loss = validation.loss(Walker(jnp.zeros(())), 0, key=jr.key(0))
    assert loss == pytest.approx((0 + 1 + 9 + 4 + 25 + 81 + 961) / 7)
    assert len(list(validation.objective.data.in_turn(n))) == batches


def test_entries_are_changed_anew_each_time():
    """Pixels drawn black or white by their grey level: neither steps nor entries share their draws."""
    grey = np.linspace(0, 1, 5)
    seen = []

    class Pixels(Walk):
        def __call__(self, model, batch):
            assert batch.data.dtype == jnp.uint8
            each = batch.data @ (2.0 ** jnp.arange(5))  # the pixels as one number
            return pg.Estimate(-model.place, each, pg.Outcome.FINE)

    def draw(entry, *, key):
        return jr.bernoulli(key, entry).astype(jnp.uint8)

    data = pg.Data(np.broadcast_to(grey, (8, 5)).copy(), change=draw)
    run(pg.Trainer(Pixels(data, seen), walking(4), key=jr.key(0)), 500)
    drawn = np.concatenate(seen).astype(int)[:, None] >> np.arange(5) & 1
    assert drawn.shape == (2000, 5)
    error = np.sqrt(grey * (1 - grey) / len(drawn))
    assert np.all(np.abs(drawn.mean(0) - grey) <= 5 * error)
    assert len(np.unique(drawn, axis=0)) == 8  # the three grey pixels in all combinations


def test_a_break_in_an_epoch_changes_nothing(tmp_path):
    """Mid-epoch, mid-block, with a smaller last batch, the best model and an average in the state."""
    seen = []
    objective = Walk(pg.Data(np.arange(11)), seen)
    losses = tuple(np.random.default_rng(0).normal(size=40).tolist())

    def trainer():
        validation = pg.Validation(Table(losses), every=3, n=2)
        method = walking(4, block=2, average=0.9)
        return pg.Trainer(objective, method, key=jr.key(3), validation=validation)

    whole, whole_rows = run(trainer(), 14)
    order = np.concatenate(seen)
    seen.clear()
    half, first = run(trainer(), 7)
    save(tmp_path / "half", half, step=7, meta={})
    half = load(tmp_path / "half", trainer().init(Walker(jnp.zeros(()))))
    resumed, rest = run(trainer(), 14, half)
    assert eqx.tree_equal(resumed, whole)
    np.testing.assert_array_equal(np.concatenate(seen), order)
    numbers = [(r.step, r.epoch, r.validation, r.waiting) for r in first[:-1] + rest]
    assert numbers == [(r.step, r.epoch, r.validation, r.waiting) for r in whole_rows]


def test_time_that_is_used_up_ends_the_training():
    trainer = pg.Trainer(Walk(pg.Data(np.arange(9)), []), walking(4, block=1), key=jr.key(0))
    state, rows = run(trainer, None, max_seconds=1e-9)
    assert [row.step for row in rows] == [1]
    assert trainer.stopped is pg.Stop.TIME_USED_UP
    assert int(state.step) == 1


def test_bad_data_and_validations_are_refused():
    with pytest.raises(pg.ArgumentError, match=r"one common, non-empty first axis.*\[2, 3\]"):
        pg.Data((np.zeros(2), np.zeros(3)))
    with pytest.raises(pg.ArgumentError, match="non-empty"):
        pg.Data(np.zeros((0, 4)))
    with pytest.raises(pg.ArgumentError, match="needs data; the `objective` ReverseKL has none"):
        pg.Validation(pg.ReverseKL(pg.LogDensity(lambda x: -x @ x, (2,))), every=1)
    with pytest.raises(pg.ArgumentError, match="`every` must be at least 1"):
        pg.Validation(Table((0.0,)), every=0)
