"""Training autoencoders: that it learns, its rules of stopping, resuming, and steps gone wrong."""

import math
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import pathgrad as pg
from pathgrad._train.checkpoint import load, save
from pathgrad.experiments.vae import step as step_module
from pathgrad.experiments.vae import training
from pathgrad.experiments.vae.data.datasets import Dataset
from pathgrad.experiments.vae.elbo import Terms
from pathgrad.experiments.vae.layers import GatedConvolution
from pathgrad.experiments.vae.model import Autoencoder
from pathgrad.experiments.vae.options import AutoencoderTrainOptions


def autoencoder(shape=(4, 4), *, trunks=False, **changes):
    """A model for small images; without `trunks`, with one layer each for encoder and decoder."""
    settings = {
        "channels": 1,
        "latent": 2,
        "cnfs": 1,
        "width": 4,
        "depth": 1,
        "rank": 1,
        "integrator": pg.FixedStep(2),
    } | changes

    @eqx.filter_jit
    def make(key):
        model = Autoencoder(key, shape, levels=2, **settings)
        if trunks:
            return model
        c = settings["channels"]
        down = GatedConvolution(1, 8 * c, shape, key=key)
        up = GatedConvolution(settings["latent"], c, shape, transposed=True, key=key)
        return eqx.tree_at(lambda m: (m.encoder.trunk, m.decoder.trunk), model, ((down,), (up,)))

    return make(jr.key(0))


def dataset_of(train, validation=None):
    validation = train[:3] if validation is None else validation
    grey = train.dtype != np.uint8
    return Dataset("made up", train, validation, validation, 2, binarise_each_batch=grey)


def different_images(number):
    """Images that are told apart by their first pixels: the number of each in binary."""
    digits = (np.arange(number)[:, None] >> np.arange(16)) & 1
    return digits.reshape(number, 4, 4).astype(np.uint8)


def names(images):
    """Return the numbers of `different_images`."""
    return (np.asarray(images).reshape(len(images), 16) @ (1 << np.arange(16))).tolist()


# Learning


def bars(number, seed):
    """Two rows or two columns of 8 x 8 pixels, anywhere, and two pixels in a hundred turned around."""
    rng = np.random.default_rng(seed)
    images = np.zeros((number, 8, 8), bool)
    for image, at, upright in zip(
        images, rng.integers(7, size=number), rng.random(number), strict=True
    ):
        (image.T if upright < 0.5 else image)[at : at + 2] = True
    return (images ^ (rng.random(images.shape) < 0.02)).astype(np.uint8)


def independent_pixels(train, validation):
    """Return the negative log-likelihood of the best density that has independent pixels."""
    p = (train.sum(0) + 0.5) / (len(train) + 1)
    return -np.mean(np.where(validation, np.log(p), np.log1p(-p)).sum((1, 2)))


@pytest.mark.slow
def test_training_learns():
    """More than an untrained model knows, and than any density without dependence between pixels."""
    train, validation = bars(400, 0), bars(100, 1)
    model = autoencoder((8, 8), channels=4, latent=4, width=16, rank=2, trunks=True)
    # A long warm-up: with a full KL term from the start, the code would be left unused for long.
    options = AutoencoderTrainOptions(batch=25, warmup_epochs=12, block=16)
    optimizer = optax.adamax(2e-2, eps=1e-7)
    trainer = training.AutoencoderTrainer(
        jr.key(1), dataset_of(train, validation), options, optimizer, pg.PathGradient()
    )
    state = training.initial_state(model, optimizer)
    rows = [row for _, row in trainer.blocks(state, 20 * 16)]
    ignorance, factorised = 64 * math.log(2), independent_pixels(train, validation)
    stated = 28.0
    assert stated < 0.8 * factorised < factorised < ignorance
    assert rows[0]["validation"] > factorised
    assert rows[-1]["best_validation"] < stated
    assert rows[-1]["skipped"] == 0
    # Two fixed steps of four evaluations: there, and back.
    assert rows[-1]["evaluations"] == rows[-1]["evaluations_backward"] == 8


# Rules


@pytest.fixture(scope="module")
def model():
    return autoencoder()


def recorded_steps(monkeypatch, *, good=True, solved=True):
    """Put in place of the step one that only counts, in the model too, and return what it was given."""
    seen = []

    def note(number, images, beta, key):
        found = SimpleNamespace(
            step=int(number), images=names(images), beta=float(beta), key=tuple(key.tolist())
        )
        seen.append(found)

    def take_step(moving, images, key, beta, optimizer, estimator, mesh):
        jax.debug.callback(note, moving.step, images, beta, jr.key_data(key), ordered=True)
        zero, true = jnp.zeros(()), jnp.asarray(True)
        numbers = step_module.StepNumbers(
            zero, zero, zero, zero, jnp.zeros((), jnp.int32), zero, true & solved, true & good
        )
        counted = eqx.tree_at(
            lambda m: (m.step, m.skipped_in_row, m.model.encoder.mean.bias),
            moving,
            (
                moving.step + 1,
                moving.skipped_in_row + (0 if good else 1),
                jnp.zeros_like(moving.model.encoder.mean.bias) + moving.step + 1,
            ),
        )
        return counted, numbers

    monkeypatch.setattr(training, "take_step", take_step)
    return seen


def validations(monkeypatch, values):
    values = iter(values)
    monkeypatch.setattr(training, "validate", lambda *given: next(values))


def run(model, images, options, *, steps=10**6, key=jr.key(2), **more):
    """Return the rows and the last state of a training."""
    optimizer = optax.sgd(1.0)
    trainer = training.AutoencoderTrainer(
        key, dataset_of(images), options, optimizer, pg.PathGradient()
    )
    state, rows = training.initial_state(model, optimizer), []
    for state, row in trainer.blocks(state, steps, **more):
        rows.append(row)
    jax.effects_barrier()
    return rows, state


def steps_behind(model):
    """Return after how many steps of `recorded_steps` a model was taken."""
    return float(model.encoder.mean.bias[0])


def test_waiting_begins_with_the_end_of_the_warmup(model, monkeypatch):
    recorded_steps(monkeypatch)
    # Best after the second epoch. Epochs 4 and later count: 4, 5, 6 are three, more than two.
    validations(monkeypatch, [9.0, 5.0, 6.0, 7.0, 8.0, 5.5, 1.0])
    options = AutoencoderTrainOptions(batch=4, warmup_epochs=4, patience=2)
    rows, state = run(model, different_images(8), options)
    assert [row["waiting"] for row in rows] == [0, 0, 0, 1, 2, 3]
    assert [row["validation"] for row in rows] == [9.0, 5.0, 6.0, 7.0, 8.0, 5.5]
    assert [row["best_validation"] for row in rows] == [9.0] + [5.0] * 5
    assert (int(state.best_epoch), float(state.best_validation)) == (2, 5.0)
    assert steps_behind(state.best) == 2 * 2
    assert steps_behind(state.moving.model) == 6 * 2


def test_an_improvement_ends_the_waiting(model, monkeypatch):
    recorded_steps(monkeypatch)
    validations(monkeypatch, [5.0, 6.0, 4.0, 4.5, 4.5, 0.0])
    options = AutoencoderTrainOptions(batch=8, warmup_epochs=0, patience=1)
    rows, state = run(model, different_images(8), options)
    assert [row["waiting"] for row in rows] == [0, 1, 0, 1, 2]
    assert int(state.best_epoch) == steps_behind(state.best) == 3


@pytest.mark.parametrize("value", [0.5, 0.1], ids=["float32", "between-two-float32"])
def test_the_same_again_is_no_improvement(model, monkeypatch, value):
    recorded_steps(monkeypatch)
    validations(monkeypatch, [value] * 6)
    options = AutoencoderTrainOptions(batch=8, warmup_epochs=0, patience=1)
    rows, state = run(model, different_images(8), options, steps=6)
    assert [row["waiting"] for row in rows] == [0, 1, 2]
    assert int(state.best_epoch) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_validation_that_is_no_number_is_an_error(model, monkeypatch, value):
    recorded_steps(monkeypatch)
    validations(monkeypatch, [3.0, value])
    with pytest.raises(pg.TrainingDiverged, match=f"validation after epoch 2 is {value}"):
        run(model, different_images(4), AutoencoderTrainOptions(batch=4))


def test_weight_of_the_divergence_grows_with_the_epochs(model, monkeypatch):
    seen = recorded_steps(monkeypatch)
    validations(monkeypatch, np.arange(9.0, 0.0, -1))
    images = different_images(6)
    rows, _ = run(model, images, AutoencoderTrainOptions(batch=3, warmup_epochs=4), steps=12)
    assert [row["beta"] for row in rows] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert [s.beta for s in seen] == np.repeat([0.25, 0.5, 0.75, 1.0, 1.0, 1.0], 2).tolist()
    seen.clear()
    run(model, images, AutoencoderTrainOptions(batch=3, warmup_epochs=0), steps=2)
    assert [s.beta for s in seen] == [1.0, 1.0]


def epochs_of(model, monkeypatch, key):
    """Return what three epochs of eleven images in batches of four see, and the keys of the steps."""
    seen = recorded_steps(monkeypatch)
    validations(monkeypatch, [3.0, 2.0, 1.0])
    options = AutoencoderTrainOptions(batch=4, block=2)
    rows, _ = run(model, different_images(11), options, steps=9, key=key)
    # A block ends with the epoch, even if that leaves it shorter.
    assert [row["step"] for row in rows] == [2, 3, 5, 6, 8, 9]
    assert ["validation" in row for row in rows] == [False, True] * 3
    assert rows[2]["epoch"] == pytest.approx(5 / 3)
    assert [s.step for s in seen] == list(range(9))
    assert [len(s.images) for s in seen] == [4, 4, 3] * 3
    epochs = [[i for s in seen[at : at + 3] for i in s.images] for at in (0, 3, 6)]
    return epochs, [s.key for s in seen]


def test_every_epoch_sees_every_image_once_in_an_order_of_its_own(model, monkeypatch):
    epochs, keys = epochs_of(model, monkeypatch, jr.key(7))
    for epoch in epochs:
        assert sorted(epoch) == list(range(11))
        assert epoch != list(range(11))
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert len(set(keys)) == 9
    assert epochs_of(model, monkeypatch, jr.key(7)) == (epochs, keys)
    other_epochs, other_keys = epochs_of(model, monkeypatch, jr.key(8))
    assert all(a != b for a, b in zip(epochs, other_epochs, strict=True))
    assert not set(keys) & set(other_keys)


def test_time_that_is_used_up_ends_the_training(model, monkeypatch):
    recorded_steps(monkeypatch)
    options = AutoencoderTrainOptions(batch=4, block=1)
    rows, state = run(model, different_images(9), options, max_seconds=1e-9)
    assert [row["step"] for row in rows] == [1]
    assert rows[0]["seconds"] > 0
    assert int(state.step) == 1


# Resuming


def same_bits(one, other):
    one, other = (jax.tree.leaves(eqx.filter(t, eqx.is_array)) for t in (one, other))
    return all(
        a.dtype == b.dtype and np.array_equal(np.asarray(a), np.asarray(b))
        for a, b in zip(one, other, strict=True)
    )


def test_resumed_training_has_the_same_bits(model, tmp_path):
    rng = np.random.default_rng(3)
    images = rng.integers(0, 2, (16, 4, 4)).astype(np.uint8)
    options = AutoencoderTrainOptions(batch=4, block=3, warmup_epochs=2)
    optimizer = optax.adamax(0.05, eps=1e-7)

    def trainer():
        return training.AutoencoderTrainer(
            jr.key(5), dataset_of(images), options, optimizer, pg.PathGradient()
        )

    def begin():
        return training.initial_state(model, optimizer)

    def without_time(rows):
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    whole, file, interrupted = [], tmp_path / "state", 7
    for state, row in trainer().blocks(begin(), 12):
        whole.append(row)
        if int(state.step) == interrupted:  # three quarters of the second epoch
            save(file, state, step=interrupted, meta={})
    assert [row["step"] for row in whole] == [3, 4, 7, 8, 11, 12]

    rest, resumed = [], load(file, begin())
    assert int(resumed.step) == interrupted
    for resumed, row in trainer().blocks(resumed, 12):
        rest.append(row)
    assert without_time(rest) == without_time(whole[3:])
    assert same_bits(resumed, state)
    assert not same_bits(state.moving.model, model)
    assert rest[-1]["loss"] != rest[0]["loss"]


# Steps


def test_grey_images_are_drawn_anew_for_every_batch(model, monkeypatch):
    probabilities = np.linspace(0, 1, 16).reshape(4, 4).astype(np.float32)
    drawn, batch = [], 5

    def terms(model, images, *, key, estimator, tally):
        assert images.dtype == jnp.uint8
        jax.debug.callback(lambda i: drawn.append(np.asarray(i)), images, ordered=True)
        nothing = jnp.zeros(images.shape[0]) + 0 * jnp.sum(model.encoder.mean.bias)
        return Terms(nothing, nothing, None)

    monkeypatch.setattr(step_module, "terms", terms)
    validations(monkeypatch, np.arange(1000.0, 0.0, -1))
    grey = np.broadcast_to(probabilities, (2 * batch, 4, 4)).copy()
    run(model, grey, AutoencoderTrainOptions(batch=batch), steps=200)
    drawn = np.stack(drawn)  # step, image, pixels
    assert drawn.shape == (200, batch, 4, 4)
    assert set(np.unique(drawn)) == {0, 1}
    flat = drawn.reshape(-1, 16)
    error = np.sqrt(probabilities * (1 - probabilities) / len(flat))
    assert np.all(np.abs(flat.mean(0).reshape(4, 4) - probabilities) <= 5 * error)
    # Neither steps nor the images of a batch share their draws.
    assert len(np.unique(drawn.reshape(200, -1), axis=0)) == 200
    assert len(np.unique(flat, axis=0)) > 500

    drawn = []
    black_and_white = different_images(batch)
    run(model, black_and_white, AutoencoderTrainOptions(batch=batch), steps=1)
    assert sorted(names(drawn[0])) == list(range(batch))


def test_steps_that_are_not_finite_are_skipped(model, monkeypatch):
    """Five steps an epoch; in every second epoch, and from the fourth on, the loss is not a number."""
    weights = {0: 0.5, 1: math.nan, 2: 0.5, 3: math.nan, 4: math.nan}
    validations(monkeypatch, [5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    options = AutoencoderTrainOptions(batch=4)
    optimizer = optax.adamax(0.01)
    rng = np.random.default_rng(4)
    images = rng.integers(0, 2, (20, 4, 4)).astype(np.uint8)
    trainer = training.AutoencoderTrainer(
        jr.key(6), dataset_of(images), options, optimizer, pg.TotalGradient()
    )
    monkeypatch.setattr(trainer, "beta", lambda epoch: weights[epoch])
    state, rows, kept = training.initial_state(model, optimizer), [], []

    def go_on():
        for after, row in trainer.blocks(state, 100):
            rows.append(row)
            # Copies: the next step overwrites these arrays.
            arrays = eqx.filter((after.moving.model, after.moving.optimizer_state), eqx.is_array)
            kept.append((jax.tree.map(np.array, arrays), int(after.moving.skipped_in_row)))

    with pytest.raises(pg.TrainingDiverged, match=r"last 10 steps were not finite.*learning-rate"):
        go_on()
    assert [row["step"] for row in rows] == [5, 10, 15, 20, 25]
    assert [row["skipped"] for row in rows] == [0, 5, 5, 10, 15]
    assert [in_row for _, in_row in kept] == [0, 5, 0, 5, 10]
    assert ["loss" in row for row in rows] == [True, False, True, False, False]
    arrays = [a for a, _ in kept]
    assert same_bits(arrays[1], arrays[0])
    assert not same_bits(arrays[2], arrays[1])
    assert same_bits(arrays[4], arrays[2])
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(arrays[4]))


def test_failed_solves_are_named_as_the_cause(model, monkeypatch):
    recorded_steps(monkeypatch, good=False, solved=False)
    options = AutoencoderTrainOptions(batch=4, block=10)
    with pytest.raises(pg.TrainingDiverged, match=r"an ODE solve failed.*--solver rk4") as raised:
        run(model, different_images(60), options)
    assert int(raised.value.state.step) == 10


# Validation


@pytest.mark.parametrize(("batch", "batches"), [(3, 3), (7, 1), (10, 1)])
def test_validation_weighs_images_and_not_batches(model, monkeypatch, batch, batches):
    seen = []

    def negative_elbos(model, images, key, mesh):
        assert mesh is None
        assert images.shape == (batch, 4, 4)
        seen.append(tuple(np.asarray(jr.key_data(key)).tolist()))
        return jnp.sum(images, axis=(1, 2), dtype=jnp.float32) ** 2

    monkeypatch.setattr(training, "_negative_elbos", negative_elbos)
    images = different_images(40)[[0, 1, 3, 2, 5, 9, 31]]
    found = training.validate(model, images, batch, jr.key(3))
    assert found == pytest.approx(np.mean([0, 1, 4, 1, 4, 4, 25]))
    assert len(set(seen)) == len(seen) == batches


def test_validation_is_the_whole_bound(model):
    """Both terms with their full weight, whatever the warm-up; draws follow the key."""
    images = different_images(3)
    found = training.validate(model, images, 3, jr.key(9))
    key = jr.fold_in(jr.key(9), 0)
    terms = eqx.filter_jit(step_module.terms)(
        model, jnp.asarray(images), key=key, estimator=pg.PathGradient()
    )
    assert found == pytest.approx(float(jnp.mean(terms.reconstruction + terms.kl)), rel=1e-12)
    assert found != pytest.approx(training.validate(model, images, 3, jr.key(10)), rel=1e-6)


def test_training_leaves_the_model_that_it_began_with(model, monkeypatch):
    """Steps overwrite the arrays of the model at work, and of no other."""
    recorded_steps(monkeypatch)
    validations(monkeypatch, [3.0, 4.0])
    before = jax.tree.map(np.array, eqx.filter(model, eqx.is_array))
    _, state = run(model, different_images(4), AutoencoderTrainOptions(batch=2), steps=4)
    assert same_bits(model, before)
    assert not same_bits(state.best, before)
    assert (steps_behind(state.best), steps_behind(state.moving.model)) == (2, 4)
