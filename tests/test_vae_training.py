"""Training autoencoders: that it learns, the weight of its KL term, resuming, and steps gone wrong."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._runs.checkpoint import load, save
from pathgrad.experiments.vae.data.datasets import Dataset
from pathgrad.experiments.vae.layers import GatedConvolution
from pathgrad.experiments.vae.making import WarmUp, draw_pixels, make_training
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
        model = Autoencoder(shape, key=key, levels=2, **settings)
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


def random_images(number, seed=3):
    return np.random.default_rng(seed).integers(0, 2, (number, 4, 4)).astype(np.uint8)


def run(trainer, state, steps):
    rows = []
    for state, row in trainer.blocks(state, steps):
        rows.append(dataclasses.replace(row, seconds=0.0))
    return state, rows


def bars(number, seed):
    """Two rows or two columns of 8 x 8 pixels, anywhere, and two pixels in a hundred turned around."""
    rng = np.random.default_rng(seed)
    images = np.zeros((number, 8, 8), bool)
    for image, at, upright in zip(images, rng.integers(7, size=number), rng.random(number), strict=True):
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
    options = AutoencoderTrainOptions(batch=25, warmup_epochs=12, block=16, learning_rate=2e-2)
    training = make_training(options, model, dataset_of(train, validation))
    trainer = training.trainer(key=jr.key(1))
    _, rows = run(trainer, trainer.init(model), 20 * 16)
    ignorance, factorised = 64 * math.log(2), independent_pixels(train, validation)
    stated = 28.0
    assert stated < 0.8 * factorised < factorised < ignorance
    assert rows[0].validation > factorised
    assert rows[-1].best_validation < stated
    assert rows[-1].skipped == 0
    # Two fixed steps of four evaluations: forward, and backward.
    assert rows[-1].evaluations == rows[-1].evaluations_backward == 8
    assert 0 < rows[-1].gradient_snr < math.inf


def test_weight_of_the_divergence_grows_with_the_epochs():
    weights = [float(WarmUp(4, 2)(step)) for step in range(12)]
    assert weights == np.repeat([0.25, 0.5, 0.75, 1.0, 1.0, 1.0], 2).tolist()
    assert float(WarmUp(0, 2)(0)) == 1.0


@pytest.fixture(scope="module")
def model():
    return autoencoder()


@pytest.fixture(scope="module")
def trained(model):
    """Two epochs of six batches, the last smaller, and two steps of a third."""
    images = random_images(22)
    options = AutoencoderTrainOptions(batch=4, block=3, warmup_epochs=2, learning_rate=0.05, average=0.9)
    training = make_training(options, model, dataset_of(images))
    trainer = training.trainer(key=jr.key(5))
    return training, trainer, *run(trainer, trainer.init(model), 14)


def test_resumed_training_has_the_same_bits(model, trained, tmp_path):
    training, trainer, whole, whole_rows = trained
    assert [row.step for row in whole_rows] == [3, 5, 6, 9, 11, 12, 14]
    half, first = run(trainer, trainer.init(model), 9)
    save(tmp_path / "state", half, step=9, meta={})
    again = training.trainer(key=jr.key(5))
    resumed, rest = run(again, load(tmp_path / "state", again.init(model)), 14)
    assert first + rest == whole_rows
    assert eqx.tree_equal(resumed, whole)
    assert not eqx.tree_equal(whole.model, model)


def test_rows_say_what_the_bound_is_made_of(trained):
    """And the weight of its second term; signal and evaluations are there as for any flow."""
    _, _, _, rows = trained
    for row in rows:
        weight, parts = row.more["beta"], (row.more["reconstruction"], row.kl)
        assert weight == (0.5 if row.step <= 6 else 1.0)
        assert row.loss == pytest.approx(parts[0] + weight * parts[1], rel=1e-12)
        assert row.evaluations == row.evaluations_backward == 8
        assert (row.gradient_snr is None) == (row.step in (6, 12))  # blocks of one step
    assert [row.step for row in rows if row.validation is not None] == [6, 12]


def test_validation_is_the_whole_bound(trained, model):
    """Both terms with their full weight, whatever the warm-up; draws follow the key."""
    training, *_ = trained
    images = training.validation.objective.data.rows
    found = training.validation.loss(model, 0, key=jr.key(9))
    _, draw_key = jr.split(jr.fold_in(jr.key(9), 0))
    batch = pg.Batch(jr.split(draw_key, training.validation.n))
    padded = jnp.asarray(np.resize(images, (training.validation.n, 4, 4)))
    flow, target = model.posterior(padded), model.joint(padded)
    each = pg.ReverseKL(target)(flow, batch).each[: len(images)]
    assert found == pytest.approx(float(jnp.mean(each)), rel=1e-6)
    assert found != pytest.approx(training.validation.loss(model, 0, key=jr.key(10)), rel=1e-6)


def test_grey_images_are_drawn_black_and_white():
    grey = np.linspace(0, 1, 16).reshape(4, 4).astype(np.float32)
    data = make_training(
        AutoencoderTrainOptions(batch=1), autoencoder(), dataset_of(grey[None])
    ).objective.data
    assert data.change is draw_pixels
    drawn = jax.vmap(lambda key: draw_pixels(jnp.asarray(grey), key=key))(jr.split(jr.key(0), 2000))
    assert drawn.dtype == jnp.uint8
    error = np.sqrt(grey * (1 - grey) / len(drawn))
    assert np.all(np.abs(np.asarray(drawn).mean(0) - grey) <= 5 * error)


def test_steps_that_are_not_finite_are_skipped(model):
    """Five steps an epoch; in every second epoch, and from the fourth on, the loss is not a number."""
    options = AutoencoderTrainOptions(batch=4, estimator="total")
    training = make_training(options, model, dataset_of(random_images(20)))
    weights = jnp.array([0.5, math.nan, 0.5, math.nan, math.nan])
    objective = dataclasses.replace(training.objective, beta=lambda step: weights[step // 5])
    trainer = pg.Trainer(objective, training.method, key=jr.key(6))
    rows, kept = [], []

    def go_on():
        for state, row in trainer.blocks(trainer.init(model), 100):
            rows.append(row)
            # Copies: the next block overwrites these arrays.
            arrays = eqx.filter((state.model, state.memory), eqx.is_array)
            kept.append(jax.tree.map(np.array, arrays))

    with pytest.raises(pg.TrainingDiverged, match="10 steps in a row from step 15 on") as caught:
        go_on()
    assert caught.value.outcome is pg.Outcome.DENSITY_NOT_FINITE
    assert [row.step for row in rows] == [5, 10, 15, 20, 25]
    assert [row.skipped for row in rows] == [0, 5, 5, 10, 15]
    assert [row.loss is None for row in rows] == [False, True, False, True, True]
    assert eqx.tree_equal(kept[1], kept[0])
    assert not eqx.tree_equal(kept[2], kept[1])
    assert eqx.tree_equal(kept[4], kept[2])
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(kept[4]))


def test_failed_solves_are_named_as_the_cause():
    model = autoencoder(integrator=pg.Adaptive(1e-9, 1e-9, max_steps=2))
    options = AutoencoderTrainOptions(batch=4, block=10)
    trainer = make_training(options, model, dataset_of(random_images(60))).trainer(key=jr.key(0))
    with pytest.raises(pg.TrainingDiverged) as caught:
        run(trainer, trainer.init(model), 100)
    assert caught.value.outcome is pg.Outcome.TOO_MANY_STEPS
    assert int(caught.value.state.step) == 10
