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
from pathgrad._train.trainer import _VALIDATION
from pathgrad.experiments.vae.augmentation import Augmentation, draw_pixels
from pathgrad.experiments.vae.data.datasets import Dataset
from pathgrad.experiments.vae.dreams import _DREAM, Dreaming, made_up
from pathgrad.experiments.vae.evaluation import Bound, prior_draws
from pathgrad.experiments.vae.making import WarmUp, make_training
from pathgrad.experiments.vae.options import AutoencoderTrainOptions, NetworkOptions
from pathgrad.experiments.vae.watch import SolverWatch, settled

from .helpers import TOLERANCE
from .vae_helpers import small_model, solved

# Nothing of what makes a long training better: a constant rate, all of the KL term, no average.
PLAIN = AutoencoderTrainOptions(
    batch=4, kl_warmup=0, rate_warmup=0, rate_hold=1.0, average=0.0, validate=1, clip=0.0
)


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


def stopped_after(step, trainer, state, steps):
    """The state and the rows of a training of so many steps, interrupted."""
    rows = []
    for state, row in trainer.blocks(state, steps):
        rows.append(dataclasses.replace(row, seconds=0.0))
        if row.step == step:
            break
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
    model = small_model((8, 8), latent=4, network=NetworkOptions("mlp", hidden=32), width=16)
    # As in the preset, but shorter: the rate grows and falls, and so does the part of the initial weights.
    options = AutoencoderTrainOptions(
        batch=25, block=16, kl_warmup=100, rate_warmup=20, average=0.98, learning_rate=1e-2, validate=1
    )
    training = make_training(options, model, dataset_of(train, validation))
    trainer = training.trainer(key=jr.key(1))
    _, rows = run(trainer, trainer.init(training.model), 20 * 16)
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
    weights = [float(WarmUp(0, 4, 2)(step)) for step in range(12)]
    assert weights == np.repeat([0.25, 0.5, 0.75, 1.0, 1.0, 1.0], 2).tolist()
    assert float(WarmUp(0, 0, 2)(0)) == 1.0
    # Or with the steps: within the first epoch, if need be.
    assert [float(WarmUp(4, 0, 2)(step)) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert (WarmUp(0, 4, 2).length, WarmUp(9, 4, 2).length) == (8, 9)


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def trained(model):
    """Two epochs of six batches, the last smaller, and two steps of a third."""
    images = random_images(22)
    options = dataclasses.replace(
        PLAIN, block=3, warmup_epochs=2, learning_rate=0.05, average=0.9, rate_warmup=3, rate_hold=0.5,
        clip=30.0, shifts=0.5, flips=True,
    )  # fmt: skip
    training = make_training(options, model, dataset_of(images))
    trainer = training.trainer(key=jr.key(5))
    return training, trainer, *run(trainer, trainer.init(model), 14)


def test_resumed_training_has_the_same_bits(model, trained, tmp_path):
    training, trainer, whole, whole_rows = trained
    assert [row.step for row in whole_rows] == [3, 5, 6, 9, 11, 12, 14]
    # Stopped after nine of fourteen steps: the rate falls with the share of all of them.
    half, first = stopped_after(9, trainer, trainer.init(model), 14)
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
    # With every epoch, and at the end, where the rate is zero.
    assert [row.step for row in rows if row.validation is not None] == [6, 12, 14]


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


def test_only_the_posterior_learns_from_dreams(model):
    """Their loss is added to the gradient, for images made up by known draws, and to nothing else."""
    options = dataclasses.replace(PLAIN, dreams=None, kl_warmup=8)
    dreaming = make_training(options, model, dataset_of(random_images(5))).objective
    assert isinstance(dreaming, Dreaming)
    assert not isinstance(
        make_training(
            dataclasses.replace(options, flips=True), model, dataset_of(random_images(5))
        ).objective,
        Dreaming,
    )
    batch = pg.Batch(jr.split(jr.key(4), 5), jnp.asarray(random_images(5)), 2)
    keys = jax.vmap(lambda key: jr.split(jr.fold_in(key, _DREAM)))(batch.keys)
    images = made_up(model, keys[:, 0])
    dream_batch = pg.Batch(keys[:, 1], images, 2)
    parameters, static = eqx.partition(model, eqx.is_inexact_array)

    @eqx.filter_jit
    def gradients(parameters):
        def loss(objective, batch):
            found = jax.value_and_grad(lambda p: objective(eqx.combine(p, static), batch).loss)
            return found(parameters)

        return loss(dreaming, batch), loss(dreaming.real, batch), loss(dreaming.real, dream_batch)

    (value, both), (real_value, real), (dream_value, dream) = gradients(parameters)
    assert value == pytest.approx(real_value)
    assert dreaming(model, batch).numbers["dream"] == pytest.approx(dream_value)
    assert eqx.tree_equal(both.decoder, real.decoder, rtol=1e-9)
    assert not eqx.tree_equal(dream.decoder, jax.tree.map(jnp.zeros_like, dream.decoder), atol=1e-3)
    for part in ("encoder", "flow"):
        summed = jax.tree.map(jnp.add, getattr(real, part), getattr(dream, part))
        assert eqx.tree_equal(getattr(both, part), summed, rtol=1e-9, atol=1e-12)


def test_dreams_are_draws_of_the_model(model):
    images = np.asarray(made_up(model, jr.split(jr.key(1), 4000)), float)
    _, means, _ = prior_draws(model, key=jr.key(2), n=4000)
    means = np.asarray(means)
    # Neighbouring pixels depend on each other through the latent numbers.
    for of in (lambda x: x.mean(0), lambda x: (x[:, :, 1:] * x[:, :, :-1]).mean(0)):
        np.testing.assert_allclose(of(images), of(means), atol=5 * 0.5 * math.sqrt(2 / 4000))


def test_grey_images_are_drawn_black_and_white():
    grey = np.linspace(0, 1, 16).reshape(4, 4).astype(np.float32)
    data = make_training(PLAIN, small_model(), dataset_of(grey[None])).objective.data
    assert data.change is draw_pixels
    drawn = jax.vmap(lambda key: draw_pixels(jnp.asarray(grey), key=key))(jr.split(jr.key(0), 2000))
    assert drawn.dtype == jnp.uint8
    error = np.sqrt(grey * (1 - grey) / len(drawn))
    assert np.all(np.abs(np.asarray(drawn).mean(0) - grey) <= 5 * error)


def test_steps_that_are_not_finite_are_skipped(model):
    """Five steps an epoch; in every second epoch, and from the fourth on, the loss is not a number."""
    options = dataclasses.replace(PLAIN, estimator="total")
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
    model = solved(small_model(), pg.Adaptive(1e-9, 1e-9, max_steps=2))
    trainer = make_training(PLAIN, model, dataset_of(random_images(60))).trainer(key=jr.key(0))
    with pytest.raises(pg.TrainingDiverged) as caught:
        run(trainer, trainer.init(model), 100)
    assert caught.value.outcome is pg.Outcome.TOO_MANY_STEPS
    assert int(caught.value.state.step) == 10


# What is done to images


def seen(image, how, number, progress):
    keys = jr.split(jr.key(3), number)
    change = lambda key: how(jnp.asarray(image), key=key, progress=jnp.asarray(progress))  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(change))(keys))


def share_of(found, image):
    return np.mean((found == image).all((1, 2)))


def test_shifts_repeat_the_edges():
    """Each of nine shifts, no shift included, with a ninth of the probability of any."""
    n, image = 3000, np.arange(12, dtype=np.uint8).reshape(3, 4)
    found = seen(image, Augmentation(0.4, flips=False, until=0.7), n, 0.5)
    assert found.dtype == np.uint8
    shares, padded = [], np.pad(image, 1, mode="edge")
    for i in range(3):
        for j in range(3):
            shifted = padded[i : i + 3, j : j + 4]
            p = 0.4 / 9 + (0.6 if i == j == 1 else 0.0)
            assert abs(share_of(found, shifted) - p) < TOLERANCE["z"] * math.sqrt(p * (1 - p) / n)
            shares.append(share_of(found, shifted))
    assert sum(shares) == pytest.approx(1.0)


def test_shifts_end_and_flips_do_not():
    n, image = 1000, np.arange(12, dtype=np.uint8).reshape(3, 4)
    found = seen(image, Augmentation(1.0, flips=True, until=0.7), n, 0.7)
    flipped = share_of(found, image[:, ::-1])
    assert abs(flipped - 0.5) < TOLERANCE["z"] * 0.5 / math.sqrt(n)
    assert flipped + share_of(found, image) == 1.0
    assert Augmentation(0.0, flips=False, until=1.0).or_none is None


def test_data_know_how_far_training_is():
    """Changes see what is left by augmentation, and validation sees neither."""

    def augment(row, *, key, progress):
        return row + 10 * (progress < 0.5)

    data = pg.Data(np.arange(3.0), change=lambda row, *, key: 2 * row, augment=augment)
    rows = jnp.arange(3.0)
    np.testing.assert_array_equal(data.changed(rows, key=jr.key(0), progress=0.4), [20, 22, 24])
    np.testing.assert_array_equal(data.changed(rows, key=jr.key(0), progress=jnp.asarray(0.5)), [0, 2, 4])
    training = make_training(
        dataclasses.replace(PLAIN, flips=True), small_model(), dataset_of(random_images(8))
    )
    assert training.objective.data.augment is not None
    assert isinstance(training.validation, pg.Validation)
    assert training.validation.objective.data.augment is None


def test_decoders_begin_with_the_mean_image():
    images = random_images(30)
    training = make_training(PLAIN, small_model(), dataset_of(images))
    p = (images.sum(0, dtype=float) + 0.5) / 31
    np.testing.assert_allclose(training.model.decoder.bias[..., 0], np.log(p / (1 - p)), rtol=1e-12)


# The solver


def bent(model):
    """A model whose field turns too fast for few solver steps."""
    outer = lambda m: m.flow.families[0].outer  # noqa: E731
    return eqx.tree_at(outer, model, 30 * outer(model))


def test_enough_solver_steps_are_left_alone():
    watch, key = SolverWatch(random_images(20)), jr.key(0)
    fine = bent(small_model(solver_steps=40))
    assert watch(fine, key=key) is None
    assert settled(fine) is fine
    # Without a flow or with adaptive steps there is nothing to count.
    assert watch(small_model(cnfs=0), key=key) is watch(small_model(solver="dopri5"), key=key) is None


@pytest.mark.parametrize(("shift", "taken"), [(0.06, 4), (-0.06, 4), (0.5, 6), (100.0, 6), (float("nan"), 6)])
def test_the_worse_the_solver_the_more_steps_are_added(shift, taken, monkeypatch):
    """By the power law of a fourth-order method, and at most twice as many at a time."""
    monkeypatch.setattr(Bound, "shift", lambda self, fine: {"solver_shift": shift})
    coarse = small_model(solver_steps=3)
    change = SolverWatch(random_images(2))(coarse, key=jr.key(0))
    assert change is not None
    assert int(change(coarse).flow.solver_steps) == taken


def test_more_solver_steps_where_there_are_too_few(tmp_path):
    """With the moments and the average it had, a best model measured as the others are, and when resumed."""
    images = random_images(16)
    options = dataclasses.replace(PLAIN, average=0.9, learning_rate=1e-3, block=4)
    training = make_training(options, bent(small_model(solver_steps=1)), dataset_of(images, images))
    trainer, steps, rows = training.trainer(key=jr.key(1)), [], []
    state = trainer.init(training.model)
    for state, row in trainer.blocks(state, 8):
        rows.append(row)
        steps.append(state.model.flow.integrator.steps)
        assert state.best.model.flow.integrator.steps == steps[-1] == int(state.best.model.flow.solver_steps)
        if row.step == 4:
            save(tmp_path / "state", state, step=4, meta={})
    assert steps == [2, 4]
    assert [row.evaluations for row in rows] == [4, 8]
    assert int(state.memory.average.steps) == 8
    key = jr.fold_in(jr.fold_in(jr.key(1), _VALIDATION), 8)
    assert isinstance(training.validation, pg.Validation)
    assert float(state.best.loss) == training.validation.loss(state.best.model, 8, key=key)

    again = training.trainer(key=jr.key(1))
    like = eqx.filter_eval_shape(again.init, training.model)
    half = load(tmp_path / "state", like)
    # A checkpoint holds arrays alone: the solver follows them.
    assert half.model.flow.integrator.steps == 1
    half = training.loaded(half)
    assert half.model.flow.integrator.steps == half.best.model.flow.integrator.steps == 2
    resumed, _ = run(again, half, 8)
    assert eqx.tree_equal(resumed, state)
