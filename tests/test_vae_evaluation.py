"""ELBO and likelihood of images, against quadrature over the latent space."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from jaxtyping import Array

import pathgrad as pg
from pathgrad._words.tree import one_draw
from pathgrad.experiments.vae import evaluation, importance
from pathgrad.experiments.vae.amortised import AbstractFieldFamily, AmortisedFlow, LogScaleHead
from pathgrad.experiments.vae.layers import Affine
from pathgrad.experiments.vae.likelihoods import AbstractLikelihood
from pathgrad.experiments.vae.model import Autoencoder
from pathgrad.experiments.vae.networks import AbstractDecoder, AbstractEncoder
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
    found = list(importance.likelihoods(model, images[:3], key=jr.key(1), samples=4001))
    for one, truth in zip(found, exact, strict=False):
        # The relative error of a mean weight is the root of one over the effective number.
        assert 50 < one.effective < 4001
        assert abs(one.log_p - truth) < 5 / np.sqrt(one.effective)


def test_batches_do_not_change_weights_nor_other_images_draws(model, images, monkeypatch):
    """The same weights as of all draws of an image at once, with their keys; and the images one by one."""
    monkeypatch.setattr(importance, "_AT_ONCE", 32)
    told, samples, key = [], 75, jr.key(7)
    found = list(
        importance.likelihoods(model, images[[5, 2]], key=key, samples=samples, rows=[5, 2], tell=told.append)
    )
    assert told == [75, 150]
    for one, row in zip(found, [5, 2], strict=True):
        flow = one_draw(model.posterior(jnp.asarray(images[row])[None]).exact())
        repeated = jnp.broadcast_to(images[row], (samples, *SHAPE))
        keys = jr.split(jr.fold_in(key, row), samples)
        reconstruction, kl, _ = evaluation.terms(model, flow, repeated, keys, samples)
        weight = np.exp(-np.asarray(reconstruction + kl))
        assert one.log_p == pytest.approx(np.log(weight.mean()), rel=1e-9)
        assert one.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum(), rel=1e-9)


class Linear(AbstractDecoder):
    """Pixels that are a linear map of the latent numbers."""

    weight: Array

    def __call__(self, z):
        return (z @ self.weight).reshape(-1, *SHAPE, 1)


class Gaussian(AbstractLikelihood):
    """Levels with normal noise, so that the marginal is normal too."""

    outputs: int = 1
    sd: float = 0.8

    def log_prob(self, outputs, images):
        return jnp.sum(jax.scipy.stats.norm.logpdf(images, outputs[..., 0], self.sd), axis=(1, 2))

    def mean(self, outputs):
        return outputs[..., 0]

    def sample(self, outputs, *, key):
        raise NotImplementedError


def test_where_the_posterior_is_right_a_few_draws_give_the_marginal(images):
    """A linear-Gaussian model, whose marginal is normal: every weight is p(x) if its q is the posterior."""
    rng = np.random.default_rng(4)
    directions = np.linalg.qr(rng.normal(size=(32, 3)))[0].T * np.array([[0.7], [1.9], [0.2]])
    sd, likelihood = 0.8, Gaussian()
    precision = 1 + (directions**2).sum(1) / sd**2  # diagonal, as the directions are orthogonal
    to_mean = directions.T / sd**2 / precision
    base = LogScaleHead(
        Affine(jnp.asarray(to_mean), jnp.zeros(3)),
        Affine(jnp.zeros((32, 3)), jnp.asarray(-0.5 * np.log(precision))),
    )

    class Flat(AbstractEncoder):
        features: int = 32

        def __call__(self, images):
            return images.reshape(images.shape[0], -1)

    flow = AmortisedFlow(base, (), ())
    model = Autoencoder(Flat(), flow, Linear(jnp.asarray(directions)), likelihood, 2)
    covariance: Any = directions.T @ directions + sd**2 * np.eye(32)
    marginal = scipy.stats.multivariate_normal(cov=covariance)
    for image, one in zip(
        images, importance.likelihoods(model, images, key=jr.key(2), samples=6), strict=True
    ):
        assert one.log_p == pytest.approx(marginal.logpdf(image.ravel()), rel=1e-10)
        assert one.effective == pytest.approx(6)
    # With a wrong posterior the mean weight is still right, up to its error.
    wrong = eqx.tree_at(
        lambda m: m.flow.base.scale.bias, model, base.scale.bias + jnp.array([0.3, 0.1, -0.2])
    )
    for image, one in zip(
        images, importance.likelihoods(wrong, images, key=jr.key(3), samples=900), strict=True
    ):
        assert 100 < one.effective < 899
        assert abs(one.log_p - marginal.logpdf(image.ravel())) < 5 / np.sqrt(one.effective)


def test_likelihoods_take_no_more_solver_steps_than_they_need(model, images, monkeypatch):
    """And say by how much twice as many would move them: an error of fourth order here, far more at first."""
    errors = {1: 1.7, 2: -0.4, 4: 0.026, 8: 0.002, 16: 0.0, 32: 0.0}

    def found(model, images, *, refine, samples, **how):
        assert (samples, len(images)) == (40, 2)
        return iter([importance.Likelihood(-80.0 + errors[refine] * f, 9.0) for f in (0.5, 1.5)])

    monkeypatch.setattr(importance, "likelihoods", found)

    def chosen(limit):
        return importance.coarsest(model, images[:2], key=jr.key(5), samples=40, limit=limit)

    assert chosen(0.025) == (4, pytest.approx(0.024))
    assert chosen(0.0001)[0] == 16
    monkeypatch.setitem(errors, 2, math.nan)
    assert chosen(9.0)[0] == 4


def test_elbo_is_below_the_likelihood_by_the_divergence(model, images, exact):
    """Averaged over many keys, log p(x) - ELBO is KL(q | posterior): computed by quadrature as well."""
    bounds = [evaluation.negative_elbos(model, images, key=jr.key(i), batch=4).each for i in range(200)]
    mean, err = np.mean(bounds, axis=0), np.std(bounds, axis=0) / np.sqrt(len(bounds))
    z = jnp.linspace(-9, 9, 2001)[:, None]
    for i, image in enumerate(images):
        flow = one_draw(model.posterior(jnp.asarray(image)[None]).exact())
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
