"""ELBO and likelihood of images, against quadrature over the latent space."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

import pathgrad as pg
from pathgrad.experiments.vae import evaluation
from pathgrad.experiments.vae.amortised import AbstractFieldFamily
from pathgrad.experiments.vae.networks import AbstractDecoder
from pathgrad.experiments.vae.verdict import judge

from .vae_helpers import small_model, solved

SHAPE = (8, 4)


@pytest.fixture(scope="module")
def model():
    """A tiny model with one latent number, whose parts all matter."""
    flow = {"cnfs": 2, "width": 5, "end_time": 0.7, "divergence": "hutchinson", "solver_steps": 12}
    model = small_model(SHAPE, seed=3, latent=1, **flow)
    moving, fixed = eqx.partition(model, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: 1.5 * x, moving), fixed)


@pytest.fixture(scope="module")
def images():
    return np.random.RandomState(0).binomial(1, 0.3, (7, *SHAPE)).astype(np.uint8)


@pytest.fixture(scope="module")
def exact(model, images):
    """The log-likelihoods, by quadrature."""
    z = np.linspace(-9, 9, 4001)
    prior = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    found = []
    for image in images:
        repeated = jnp.broadcast_to(jnp.asarray(image), (4001, *SHAPE))
        p = np.exp(np.asarray(model.log_likelihood(jnp.asarray(z)[:, None], repeated)))
        found.append(np.log(np.trapezoid(p * prior, z)))
    return np.array(found)


def test_importance_sampling_finds_the_likelihood(model, images, exact):
    found = list(evaluation.likelihoods(model, images[:3], key=jr.key(1), samples=4001))
    for one, truth in zip(found, exact, strict=False):
        # The relative error of a mean weight is the root of one over the effective number.
        assert 50 < one.effective < 4001
        assert abs(one.log_p - truth) < 5 / np.sqrt(one.effective)


def test_chunks_do_not_change_the_count_and_are_told(model, images, monkeypatch):
    monkeypatch.setattr(evaluation, "_BYTES", 4 * 32 * 64 * 100)  # a hundred draws at a time
    told = []
    list(evaluation.likelihoods(model, images[:2], key=jr.key(1), samples=250, tell=told.append))
    assert told == [100, 200, 250, 350, 450, 500]


def test_elbo_is_below_the_likelihood_by_the_divergence(model, images, exact):
    """Averaged over many keys, log p(x) - ELBO is KL(q | posterior): computed by quadrature as well."""
    bounds = [evaluation.negative_elbos(model, images, key=jr.key(i), batch=4).each for i in range(200)]
    mean, err = np.mean(bounds, axis=0), np.std(bounds, axis=0) / np.sqrt(len(bounds))
    z = jnp.linspace(-9, 9, 2001)[:, None]
    for i, image in enumerate(images):
        flow = evaluation._flow_of_one(model, jnp.asarray(image))
        log_q = np.asarray(flow.log_prob(z))
        repeated = jnp.broadcast_to(jnp.asarray(image), (2001, *SHAPE))
        log_joint = np.asarray(model.log_likelihood(z, repeated)) + np.asarray(
            jax.vmap(model.prior.log_prob)(z)
        )
        divergence = np.trapezoid(np.exp(log_q) * (log_q - log_joint + exact[i]), np.asarray(z[:, 0]))
        assert abs(mean[i] + exact[i] - divergence) < 5 * err[i] + 1e-6
        assert divergence > 0.01


def test_bound_has_no_divergence_noise(model, images):
    """The training divergence is Hutchinson's; evaluation must not be."""
    assert model.posterior(jnp.asarray(images)).is_noisy
    by_trace = solved(model, pg.Exact())
    a = evaluation.negative_elbos(model, images, key=jr.key(5), batch=7)
    b = evaluation.negative_elbos(by_trace, images, key=jr.key(5), batch=7)
    np.testing.assert_allclose(a.each, b.each, atol=1e-6)


def test_means_over_images_and_over_batches():
    each = np.array([1.0, 2.0, 3.0, 4.0, 100.0])
    bound = evaluation.Bound(each, np.zeros(5), np.zeros(3))
    assert bound.each.mean() == pytest.approx(22.0)
    assert bound.mean_of_batches(2) == pytest.approx((1.5 + 3.5 + 100.0) / 3)


def test_draws_of_the_prior(model):
    z, mean, x = evaluation.prior_draws(model, key=jr.key(0), n=600)
    assert z.shape == (600, 1)
    assert x.dtype == jnp.uint8
    np.testing.assert_allclose(mean, jax.nn.sigmoid(model.decoder(z)[..., 0]), rtol=1e-10)
    error = np.asarray(x, float).mean(0) - np.asarray(mean).mean(0)
    assert np.abs(error).max() < 5 * 0.5 / np.sqrt(600)


@pytest.mark.parametrize("likelihood", ["softmax", "logistic"])
def test_grey_draws_are_levels(likelihood):
    grey = small_model(SHAPE, levels=256, cnfs=0, likelihood=likelihood)
    _, mean, x = evaluation.prior_draws(grey, key=jr.key(0), n=400)
    assert x.dtype == jnp.uint8
    error = np.asarray(x, float).mean() / 255 - float(np.mean(mean))
    assert abs(error) < 5 * 0.5 / np.sqrt(400 * 32)


class Ramp(AbstractDecoder):
    """Logits that are linear in the latent numbers, with another slope for each, and the same everywhere."""

    slopes: Array

    def __call__(self, z):
        return jnp.broadcast_to((z @ self.slopes)[:, None, None, None], (z.shape[0], *SHAPE, 1))


def test_the_latent_numbers_that_matter_most_are_moved_alone():
    slopes, z, values = jnp.array([0.1, -0.6, 0.0, 0.3]), jnp.array([0.5, -0.2, 1.0, 0.4]), [-2.0, 0.3, 2.0]
    ramp = eqx.tree_at(lambda m: m.decoder, small_model(SHAPE, latent=4, cnfs=0), Ramp(slopes))
    rows, along = evaluation.traversals(ramp, z, jnp.array(values), 3)
    assert rows.tolist() == [1, 3, 0]
    assert along.shape == (3, 3, *SHAPE)
    for row, images in zip(rows, along, strict=True):
        logits = slopes @ z + slopes[row] * (jnp.array(values) - z[row])
        np.testing.assert_allclose(images[:, 2, 1], jax.nn.sigmoid(logits), rtol=1e-6)


class Wrong(pg.AbstractTractableField):
    """A field whose closed-form divergence is off by some factor."""

    inner: pg.AbstractTractableField
    factor: float

    def __call__(self, t, x):
        return self.inner(t, x)

    def prepare(self):
        return self.inner.prepare()

    def velocity_and_divergence(self, t, x, prepared):
        velocity, divergence = self.inner.velocity_and_divergence(t, x, prepared)
        return velocity, self.factor * divergence


class WrongFamily(AbstractFieldFamily):
    """Fields of another family, made wrong."""

    inner: AbstractFieldFamily
    factor: float

    @property
    def size(self):
        return self.inner.size

    @property
    def prepared_size(self):
        return self.inner.prepared_size

    def __call__(self, numbers):
        field = self.inner(numbers)
        assert isinstance(field, pg.AbstractTractableField)
        return Wrong(field, self.factor)


def test_divergences_of_posteriors_are_checked(model, images):
    """The number that the verdict is made from: for fields of your own, too."""
    families = lambda m: m.flow.families  # noqa: E731

    def error(factor):
        made = tuple(WrongFamily(f, factor) for f in model.flow.families)
        return evaluation.divergence_error(eqx.tree_at(families, model, made), images, key=jr.key(0))

    assert evaluation.divergence_error(model, images, key=jr.key(0)) < 1e-9
    assert error(1.0) < 1e-9
    assert error(1.05) > 1e-3
    numbers = {"failed": 0, "dataset": "mnist", "divergence_error": error(1.05)}
    assert judge(numbers).level is pg.Level.UNUSABLE
    assert evaluation.divergence_error(small_model(SHAPE, cnfs=0), images, key=jr.key(0)) is None
