"""Distributions of pixels: against SciPy, their gradients, means, draws, and what they keep in memory."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import expit, log_softmax
from scipy.stats import logistic

from pathgrad.experiments.vae.layers import Affine
from pathgrad.experiments.vae.likelihoods import (
    Bernoulli,
    DiscretisedLogistic,
    Softmax,
    SoftmaxOfFeatures,
    log_odds,
)

from .helpers import TOLERANCE

LEVELS = np.arange(256)


def test_bernoulli():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4, 3, 2)) * 3
    logits[0] = [[200.0, -200.0], [200.0, -200.0], [40.0, -0.3]]
    images = rng.integers(0, 2, size=(4, 3, 2)).astype(np.uint8)
    images[0] = [[1, 1], [0, 0], [1, 0]]
    value = lambda a: Bernoulli().log_prob(a[..., None], jnp.asarray(images))  # noqa: E731
    found = value(jnp.asarray(logits))
    p = expit(logits[1:])
    expected = np.where(images[1:] == 1, np.log(p), np.log1p(-p)).sum((1, 2))
    np.testing.assert_allclose(found[1:], expected, rtol=1e-12)
    # Certain and right costs nothing; certain and wrong costs the logit, not infinity or a clamped value.
    certain = -200 - 200 - np.log1p(np.exp(-40.0)) - np.log1p(np.exp(-0.3))
    assert float(found[0]) == pytest.approx(certain, rel=1e-14)

    gradient = jax.grad(lambda a: value(a).sum())(jnp.asarray(logits))
    np.testing.assert_allclose(gradient, images - expit(logits), rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("levels", [5, 256])
def test_softmax(levels):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(3, 2, 4, levels)) * 4
    logits[0, 0, 0, 1] = 900.0
    images = rng.integers(0, levels, size=(3, 2, 4)).astype(np.uint8)
    images[0, 0, :2] = [0, levels - 1]  # both ends, the largest being the byte 255
    value = lambda a: Softmax().log_prob(a, jnp.asarray(images))  # noqa: E731
    found = value(jnp.asarray(logits))
    logs = log_softmax(logits, axis=-1)
    expected = [
        sum(logs[b, i, j, int(images[b, i, j])] for i in range(2) for j in range(4)) for b in range(3)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found[0] < -800

    gradient = jax.grad(lambda a: value(a).sum())(jnp.asarray(logits))
    one_hot = np.eye(levels)[images]
    np.testing.assert_allclose(gradient, one_hot - np.exp(logs), atol=1e-12)


def test_untrained_likelihood_is_that_of_ignorance():
    images = jnp.ones((1, 28, 28), jnp.uint8)
    black_and_white = Bernoulli().log_prob(jnp.zeros((1, 28, 28, 1)), images)
    assert float(black_and_white[0]) == pytest.approx(-784 * math.log(2))
    grey = Softmax().log_prob(jnp.zeros((1, 28, 20, 256)), images[:, :, :20])
    assert float(grey[0]) / (560 * math.log(2)) == pytest.approx(-8)


def test_means():
    rng = np.random.default_rng(2)
    binary = rng.normal(size=(2, 3, 4, 1)) * 5
    np.testing.assert_allclose(Bernoulli().mean(jnp.asarray(binary)), expit(binary[..., 0]), rtol=1e-12)
    logits = rng.normal(size=(2, 3, 4, 6)) * 2
    expected = (np.exp(log_softmax(logits, axis=-1)) * np.arange(6)).sum(-1) / 5
    np.testing.assert_allclose(Softmax().mean(jnp.asarray(logits)), expected, rtol=1e-12)


# 256 classes by way of few outputs


def with_head(likelihood, head):
    return eqx.tree_at(lambda each: each.head, likelihood, head)


@pytest.fixture(scope="module")
def of_features():
    """A likelihood, the outputs of a decoder and the images: seven, of which five are in memory at a time."""
    likelihood = SoftmaxOfFeatures(3, key=jr.key(0))
    bias = 0.5 * jr.normal(jr.key(1), (256,))
    likelihood = with_head(likelihood, Affine(2 * likelihood.head.weight, bias))
    images = np.random.default_rng(3).integers(0, 256, (7, 4, 2)).astype(np.uint8)
    return likelihood, 1.5 * jr.normal(jr.key(2), (7, 4, 2, 3)), jnp.asarray(images)


def test_softmax_of_features_is_the_plain_softmax(of_features):
    """Value, both gradients with a weight of its own for each image, and the mean."""
    likelihood, outputs, images = of_features
    weight = jnp.array([0.3, -1.0, 2.0, 0.0, 0.7, 1.1, -0.4])

    def plain(head, outputs):
        return Softmax().log_prob(head(jax.nn.silu(outputs)), images)

    def chunked(head, outputs):
        return with_head(likelihood, head).log_prob(outputs, images)

    @jax.jit
    def both(head, outputs):
        found = []
        for function in (plain, chunked):
            value, pull = jax.vjp(function, head, outputs)
            # Under `vmap`, too: that is how the gradients of single draws are taken.
            one_by_one = jax.vmap(pull)(jnp.eye(7))
            found.append((value, function(head, outputs), pull(weight), one_by_one))
        return *found, likelihood.mean(outputs), Softmax().mean(head(jax.nn.silu(outputs)))

    expected, found, mean, plain_mean = both(likelihood.head, outputs)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
        assert np.abs(b).max() > 0.1
    np.testing.assert_allclose(mean, plain_mean, rtol=1e-12)


def test_softmax_of_features_keeps_few_logits():
    """Its training step needs a fraction of the memory of all logits, whose place they take."""
    n, likelihood = 50, SoftmaxOfFeatures(4, key=jr.key(0))
    outputs = jax.ShapeDtypeStruct((n, 8, 8, 4), jnp.float32)
    images = jax.ShapeDtypeStruct((n, 8, 8), jnp.uint8)
    head = jax.tree.map(lambda a: a.astype(jnp.float32), likelihood.head)

    def memory(log_prob):
        loss = jax.grad(lambda head, outputs, images: log_prob(head, outputs, images).mean(), (0, 1))
        return jax.jit(loss).lower(head, outputs, images).compile().memory_analysis().temp_size_in_bytes

    def chunked(head, outputs, images):
        return with_head(likelihood, head).log_prob(outputs, images)

    plain = memory(lambda head, outputs, images: Softmax().log_prob(head(outputs), images))
    all_logits = 4 * n * 64 * 256
    assert plain > all_logits
    assert memory(chunked) < 0.5 * all_logits


def assert_frequencies(drawn, probabilities):
    """Counts of the levels of draws: within five standard errors of what is expected, and in total."""
    n = len(drawn)
    counts = np.bincount(drawn, minlength=256)
    expected = n * probabilities
    error = np.sqrt(expected * (1 - probabilities))
    seen = expected > 5
    assert np.abs((counts - expected)[seen] / error[seen]).max() < TOLERANCE["z"]
    rest = expected[~seen].sum()
    assert abs(counts[~seen].sum() - rest) < TOLERANCE["z"] * math.sqrt(rest + 1)


def test_draws_of_softmax_of_features(of_features):
    likelihood, outputs, _ = of_features
    one = jnp.broadcast_to(outputs[0, 0, 0], (40, 30, 10, 3))
    drawn = likelihood.sample(one, key=jr.key(4))
    assert drawn.dtype == jnp.uint8
    probabilities = np.exp(log_softmax(np.asarray(likelihood.head(jax.nn.silu(outputs[0, 0, 0])))))
    assert_frequencies(np.asarray(drawn).ravel(), probabilities)


# 256 ordered levels

# The centre before the sigmoid, and the log of the width in levels: narrow and wide, inside and at the ends.
CENTRES = np.array([0.0, 0.3, -1.7, 4.0, -9.0, 9.0, 0.002])
LOG_WIDTHS = np.array([1.0, 3.0, -1.5, 2.0, 0.0, 4.5, -4.0])


@pytest.fixture(scope="module")
def logistics():
    """Outputs of pixels, and the probabilities of all levels by the distribution function of SciPy."""
    edges = (LEVELS[:-1] + 0.5 - 255 * expit(CENTRES)[:, None]) / np.exp(LOG_WIDTHS)[:, None]
    below, above = logistic.cdf(edges), logistic.sf(edges)
    # From whichever tail is nearer, so that digits are not lost.
    inner = np.where(edges[:, 1:] < 0, np.diff(below), -np.diff(above))
    return np.stack([CENTRES, LOG_WIDTHS], -1), np.concatenate([below[:, :1], inner, above[:, -1:]], 1)


def log_probs(outputs):
    """Log-probabilities of all levels for each pixel: an image of 1x1 pixels for each pair of them."""
    pairs = jnp.broadcast_to(outputs[:, None], (len(outputs), 256, 2)).reshape(-1, 1, 1, 2)
    levels = jnp.tile(jnp.arange(256, dtype=jnp.uint8), len(outputs)).reshape(-1, 1, 1)
    return DiscretisedLogistic().log_prob(pairs, levels).reshape(len(outputs), 256)


def test_discretised_logistic(logistics):
    outputs, expected = logistics
    found = np.exp(np.asarray(log_probs(jnp.asarray(outputs))))
    np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-14)
    mean = DiscretisedLogistic().mean(jnp.asarray(outputs)[:, None, None])[:, 0, 0]
    np.testing.assert_allclose(mean, expected @ LEVELS / 255, rtol=1e-10)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_far_tails_have_a_value_and_a_slope(dtype):
    """A black pixel where white is certain costs about its distance in widths, and says where to go."""
    pairs = [[40.0, -7.0], [-40.0, -7.0], [0.0, -12.0], [0.0, 25.0], [60.0, 0.0], [1.0, 300.0], [1.0, -300.0]]
    outputs = jnp.asarray(pairs, dtype)
    values, pull = jax.vjp(log_probs, outputs)
    (slopes,) = pull(jnp.ones_like(values))
    assert np.isfinite(values).all()
    assert np.isfinite(slopes).all()
    assert (np.asarray(values) <= 0).all()
    # From the edge of the first level to the centre at 255, in widths of e^-7.
    assert float(values[0, 0]) == pytest.approx(-(255 - 0.5) * math.exp(7), rel=1e-5)
    assert float(values[0, 255]) > -1e-30
    # Half of a very wide one is below all levels, and half above; between them, a step of its width.
    assert np.exp(np.asarray(values[3, [0, -1]])) == pytest.approx(0.5)
    np.testing.assert_allclose(values[3, 1:-1], -25 - np.log(4), rtol=1e-6)


def test_draws_of_a_discretised_logistic(logistics):
    outputs, expected = logistics
    for i in (1, 3, 6):
        many = jnp.broadcast_to(jnp.asarray(outputs[i]), (20, 30, 20, 2))
        drawn = DiscretisedLogistic().sample(many, key=jr.key(i))
        assert drawn.dtype == jnp.uint8
        assert_frequencies(np.asarray(drawn).ravel(), expected[i])


def test_log_odds_of_the_mean_image():
    images = np.random.default_rng(0).binomial(1, 0.3, (50, 3, 4)).astype(np.uint8)
    images[:, 0, 0], images[:, 2, 3] = 0, 1
    found = np.asarray(log_odds(images))
    assert found.shape == (3, 4, 1)
    # One more image, half black and half white, so that no pixel is certain.
    p = (images.sum(0, dtype=float) + 0.5) / 51
    np.testing.assert_allclose(expit(found[..., 0]), p, rtol=1e-12)
    assert np.isfinite(found).all()
