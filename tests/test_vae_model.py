"""The autoencoder's parts: published sizes and settings, initial weights, likelihoods, variances."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax
from scipy.special import expit, log_softmax

from pathgrad._words.errors import UserError
from pathgrad.experiments.vae.layers import Affine, GatedConvolution
from pathgrad.experiments.vae.making import make_model
from pathgrad.experiments.vae.model import Autoencoder
from pathgrad.experiments.vae.networks import Decoder, Encoder, log_likelihood, mean_pixel
from pathgrad.experiments.vae.options import AutoencoderOptions, preset

# Shape and grey levels of the images.
IMAGES = {
    "mnist": ((28, 28), 2),
    "omniglot": ((28, 28), 2),
    "caltech": ((28, 28), 2),
    "freyfaces": ((28, 20), 256),
}
# Flows, numbers from an image to a field, and weights of a field:
# 66 w + (w + 2) w + (w + 2) 64 of a field w units wide.
PUBLISHED_FLOWS = {
    "mnist": (2, 272_448, 1_183_872),
    "omniglot": (5, 140_352, 329_856),
    "caltech": (2, 170_560, 4_464_768),
    "freyfaces": (2, 44_608, 329_856),
}
FLOW_TOTALS = {"mnist": 142_406_016, "omniglot": 182_001_600, "caltech": 96_597_376, "freyfaces": 23_588_224}


def size(tree):
    return sum(math.prod(a.shape) for a in jax.tree.leaves(tree) if hasattr(a, "shape"))


def published(dataset):
    """Return the published model's shapes; its hundreds of millions of weights are never made."""
    options = preset("paper", dataset)
    shape, levels = IMAGES[dataset]
    return eqx.filter_eval_shape(lambda key: make_model(options, shape, levels, key=key), jr.key(0))


@pytest.mark.parametrize("dataset", IMAGES)
def test_numbers_of_parameters(dataset):
    model = published(dataset)
    grey = dataset == "freyfaces"
    encoder, decoder = model.encoder, model.decoder
    assert size(encoder.trunk) == (1_712_704 if grey else 2_171_456)
    assert size((encoder.mean, encoder.variance)) == 32_896
    assert size(decoder.trunk) == (748_032 if grey else 862_720)
    assert size((decoder.head, decoder.last)) == (270_848 if grey else 33)

    cnfs, update, shared = PUBLISHED_FLOWS[dataset]
    assert [size(head) for head in encoder.updates] == [257 * update] * cnfs
    assert [size(layers) for layers in model.fields] == [shared] * cnfs
    assert size((encoder.updates, model.fields)) == FLOW_TOTALS[dataset]
    without_flow = 2_764_480 if grey else 3_067_105
    assert size(model) == without_flow + FLOW_TOTALS[dataset]


@pytest.mark.parametrize(
    ("cnfs", "width", "depth", "rank", "total"),
    [(5, 512, 2, 20, 58_970_560), (1, 2048, 1, 20, 22_520_512)],
    ids=["omniglot", "caltech"],
)
def test_numbers_of_parameters_of_ffjord(cnfs, width, depth, rank, total):
    model = eqx.filter_eval_shape(
        lambda key: Autoencoder((28, 28), key=key, levels=2, cnfs=cnfs, width=width, depth=depth, rank=rank),
        jr.key(0),
    )
    assert size((model.encoder.updates, model.fields)) == total


@pytest.mark.parametrize(
    ("dataset", "flow", "patience"),
    [
        ("mnist", (2, 1024, 2, 64, "softplus"), 35),
        ("omniglot", (5, 512, 2, 64, "softplus"), 35),
        ("omniglot-rebuilt", (5, 512, 2, 64, "softplus"), 35),
        ("caltech", (2, 2048, 2, 20, "tanh"), 100),
        ("freyfaces", (2, 512, 2, 20, "softplus"), 100),
    ],
)
def test_published_settings(dataset, flow, patience):
    options = preset("paper", dataset)
    f, t = options.flow, options.training
    assert options.dataset == dataset
    assert (options.latent, options.channels) == (64, 32)
    assert (f.cnfs, f.width, f.depth, f.rank, f.activation) == flow
    assert (f.divergence, f.noise, f.probes) == ("hutchinson", "gaussian", 1)
    assert (f.solver, f.tolerance, f.end_time) == ("dopri5", 1e-5, 0.5)
    assert (t.optimizer, t.rate, t.batch) == ("adamax", 5e-4, 100)
    assert (t.warmup_epochs, t.patience, t.epochs) == (100, patience, 5000)


def test_published_model_is_solved_as_published():
    model = published("caltech")
    assert (model.divergence.noise_kind, model.divergence.probes) == ("gaussian", 1)
    integrator = model.integrator
    assert (integrator.solver, integrator.rtol, integrator.atol) == ("dopri5", 1e-5, 1e-5)
    assert (model.end_time, model.rank, model.activation) == (0.5, 20, "tanh")
    images = jax.ShapeDtypeStruct((3, 28, 28), jnp.uint8)
    flow = eqx.filter_eval_shape(lambda m, i: m.posterior(i), model, images)
    assert [(cnf.t0, cnf.t1) for cnf in flow.transforms] == [(0.0, 0.5)] * 2
    assert flow.base.mean.value.shape == (3, 64)


def test_other_optimiser_has_its_own_rate():
    training = preset("paper", "mnist").training
    adam = type(training)(optimizer="adam")
    assert adam.rate == 1e-3
    assert type(training)(optimizer="adam", learning_rate=0.02).rate == 0.02


def test_unknown_data_set_has_no_preset():
    with pytest.raises(UserError, match=r"no data set 'cifar'.*mnist, omniglot"):
        preset("paper", "cifar")
    assert AutoencoderOptions().dataset == "mnist"


@pytest.mark.parametrize(("shape", "levels"), [((28, 28), 2), ((28, 20), 256), ((8, 12), 5)])
def test_shapes(shape, levels):
    def run(key, images, z):
        encoder = Encoder(shape, key=key, levels=levels, channels=3, latent=7, update_sizes=[11, 13])
        decoder = Decoder(shape, key=key, levels=levels, channels=3, latent=7)
        return encoder(images), decoder(z)

    images = jax.ShapeDtypeStruct((4, *shape), jnp.uint8)
    z = jax.ShapeDtypeStruct((4, 7), jnp.float64)
    (mean, log_scale, numbers), logits = jax.eval_shape(run, jr.key(0), images, z)
    assert mean.shape == log_scale.shape == (4, 7)
    assert [n.shape for n in numbers] == [(4, 11), (4, 13)]
    assert logits.shape == (4, *shape) + ((levels,) if levels > 2 else ())


def test_trunk_narrows_as_published():
    """Channels, sizes and kernels of every layer, on 28 x 20 images."""
    encoder = eqx.filter_eval_shape(
        lambda k: Encoder((28, 20), key=k, levels=2, channels=32, latent=64, update_sizes=[]), jr.key(0)
    )
    decoder = eqx.filter_eval_shape(
        lambda k: Decoder((28, 20), key=k, levels=2, channels=32, latent=64), jr.key(0)
    )

    def way(trunk, first):
        sizes, x = [], jax.ShapeDtypeStruct((2, *first), jnp.float64)
        for layer in trunk:
            x = eqx.filter_eval_shape(lambda layer, x: layer(x), layer, x)
            sizes.append(x.shape[1:])
        return sizes

    down = [(28, 20, 32), (14, 10, 32), (14, 10, 64), (7, 5, 64), (7, 5, 64), (1, 1, 256)]
    up = [(7, 5, 64), (7, 5, 64), (14, 10, 32), (14, 10, 32), (28, 20, 32), (28, 20, 32)]
    assert way(encoder.trunk, (28, 20, 1)) == down
    assert way(decoder.trunk, (1, 1, 64)) == up


def assert_uniform(values, bound):
    """Within the bound, and filling it: the root mean square of a uniform is its bound over root 3."""
    values = np.asarray(values).ravel()
    assert np.abs(values).max() <= bound
    assert np.abs(values).max() > bound * (1 - 20 / values.size)
    tolerance = 5 * bound * math.sqrt(4 / 45 / values.size)  # five standard errors of its square
    assert abs(np.mean(values**2) - bound**2 / 3) < bound * tolerance
    assert abs(np.mean(values)) < 5 * bound / math.sqrt(3 * values.size)


def test_initial_weights_of_affine_maps():
    head = Affine.random(256, 300, key=jr.key(0))
    assert_uniform(head.weight, 1 / 16)
    assert_uniform(head.bias, 1 / 16)


@pytest.mark.parametrize(
    ("transposed", "fan_in"), [(False, 64 * 25), (True, 32 * 25)], ids=["plain", "transposed"]
)
def test_initial_weights_of_convolutions(transposed, fan_in):
    """PyTorch counts input channels for plain convolutions, and output channels for transposed ones."""
    layer = GatedConvolution(64, 32, 5, transposed=transposed, key=jr.key(1))
    bound = 1 / math.sqrt(fan_in)
    assert layer.weight.shape == (5, 5, 64, 64)
    opened, gate = np.split(np.asarray(layer.weight), 2, axis=-1)
    assert_uniform(opened, bound)
    assert_uniform(gate, bound)
    assert np.abs(opened - gate).min() > 0
    assert_uniform(layer.bias, bound)


def test_initial_weights_of_the_networks():
    """Every layer by its own fan-in, gate and bias included; a kernel that is not square counts as it is."""
    encoder = Encoder((12, 8), key=jr.key(2), levels=2, channels=6, latent=40, update_sizes=[60])
    fan_ins = [25, 25 * 6, 25 * 6, 25 * 12, 25 * 12, 6 * 12]
    for layer, fan_in in zip(encoder.trunk, fan_ins, strict=True):
        assert_uniform(layer.weight, 1 / math.sqrt(fan_in))
        assert np.abs(layer.bias).max() <= 1 / math.sqrt(fan_in)
    for head in (encoder.mean, encoder.variance, *encoder.updates):
        assert_uniform(head.weight, 1 / math.sqrt(48))
    assert np.abs(encoder.mean.weight - encoder.variance.weight).min() > 0
    decoder = Decoder((12, 8), key=jr.key(3), levels=20, channels=6, latent=40)
    for layer, fan_in in zip(decoder.trunk, [6 * 12, *[25 * c for c in (12, 6, 6, 6, 6)]], strict=True):
        assert_uniform(layer.weight, 1 / math.sqrt(fan_in))
        assert np.abs(layer.bias).max() <= 1 / math.sqrt(fan_in)
    assert_uniform(decoder.head[0], 1 / math.sqrt(25 * 6))
    assert_uniform(decoder.last.weight, 1 / math.sqrt(20))


def test_gate():
    """Half of the channels, times the sigmoid of the other half, and nothing else in between."""
    layer = GatedConvolution(2, 3, 1, key=jr.key(4))
    x = 2 * jr.normal(jr.key(5), (1, 4, 3, 2))
    whole = np.asarray(x) @ np.asarray(layer.weight)[0, 0] + np.asarray(layer.bias)
    np.testing.assert_allclose(layer(x), whole[..., :3] * expit(whole[..., 3:]), rtol=1e-12)


def test_bernoulli_likelihood():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4, 3, 2)) * 3
    logits[0] = [[200.0, -200.0], [200.0, -200.0], [40.0, -0.3]]
    images = rng.integers(0, 2, size=(4, 3, 2)).astype(np.uint8)
    images[0] = [[1, 1], [0, 0], [1, 0]]
    found = log_likelihood(jnp.asarray(logits), jnp.asarray(images))
    p = expit(logits[1:])
    expected = np.where(images[1:] == 1, np.log(p), np.log1p(-p)).sum((1, 2))
    np.testing.assert_allclose(found[1:], expected, rtol=1e-12)
    # Certain and right costs nothing; certain and wrong costs the logit, not infinity or a clamped value.
    certain = -200 - 200 - np.log1p(np.exp(-40.0)) - np.log1p(np.exp(-0.3))
    assert float(found[0]) == pytest.approx(certain, rel=1e-14)

    gradient = jax.grad(lambda a: log_likelihood(a, jnp.asarray(images)).sum())(jnp.asarray(logits))
    np.testing.assert_allclose(gradient, images - expit(logits), rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("levels", [5, 256])
def test_categorical_likelihood(levels):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(3, 2, 4, levels)) * 4
    logits[0, 0, 0, 1] = 900.0
    images = rng.integers(0, levels, size=(3, 2, 4)).astype(np.uint8)
    images[0, 0, :2] = [0, levels - 1]  # both ends, the largest being the byte 255
    found = log_likelihood(jnp.asarray(logits), jnp.asarray(images))
    logs = log_softmax(logits, axis=-1)
    expected = [
        sum(logs[b, i, j, int(images[b, i, j])] for i in range(2) for j in range(4)) for b in range(3)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found[0] < -800

    gradient = jax.grad(lambda a: log_likelihood(a, jnp.asarray(images)).sum())(jnp.asarray(logits))
    one_hot = np.eye(levels)[images]
    np.testing.assert_allclose(gradient, one_hot - np.exp(logs), atol=1e-12)


def test_untrained_likelihood_is_that_of_ignorance():
    zeros = jnp.zeros((1, 28, 28))
    images = jnp.ones((1, 28, 28), jnp.uint8)
    assert float(log_likelihood(zeros, images)[0]) == pytest.approx(-784 * math.log(2))
    grey = log_likelihood(jnp.zeros((1, 28, 20, 256)), images[:, :, :20])
    assert float(grey[0]) / (560 * math.log(2)) == pytest.approx(-8)


def test_mean_pixel():
    rng = np.random.default_rng(2)
    binary = rng.normal(size=(2, 3, 4)) * 5
    np.testing.assert_allclose(mean_pixel(jnp.asarray(binary)), expit(binary), rtol=1e-12)
    logits = rng.normal(size=(2, 3, 4, 6)) * 2
    expected = (np.exp(log_softmax(logits, axis=-1)) * np.arange(6)).sum(-1) / 5
    np.testing.assert_allclose(mean_pixel(jnp.asarray(logits)), expected, rtol=1e-12)


def test_merged_convolutions_are_the_two_one_after_the_other():
    levels = 7
    decoder = Decoder((8, 4), key=jr.key(6), levels=levels, channels=2, latent=3)
    z = 3 * jr.normal(jr.key(7), (2, 3))
    weights = jr.normal(jr.key(8), (2, 8, 4, levels))

    def merged(factors):
        return eqx.tree_at(lambda d: (d.head, d.last), decoder, factors)(z)

    def one_after_the_other(factors):
        h = z[:, None, None, :]
        for layer in decoder.trunk:
            h = layer(h)
        (weight, bias), last = factors
        layout = ("NHWC", "HWIO", "NHWC")
        h = lax.conv_general_dilated(h, weight, (1, 1), "SAME", dimension_numbers=layout) + bias
        return jnp.einsum("bhwi,io->bhwo", h, last.weight) + last.bias

    @jax.jit
    def both(factors):
        found = []
        for function in (merged, one_after_the_other):
            value, pull = jax.vjp(function, factors)
            found.append((value, pull(weights)[0]))
        return found

    one, other = both((decoder.head, decoder.last))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
        assert np.abs(b).max() > 0.05


def log_scales(levels, pre):
    """Return the log standard deviations of q0 for given outputs of the variance head, with slopes."""
    pre = jnp.asarray(pre)
    encoder = Encoder((4, 4), key=jr.key(9), levels=levels, channels=1, latent=pre.size, update_sizes=[])
    # Without the convolutions the heads see the pixels.
    mean = Affine(jnp.zeros((16, pre.size)), jnp.zeros(pre.size))
    encoder = eqx.tree_at(lambda e: (e.trunk, e.mean), encoder, ((), mean))

    @jax.jit
    def run(bias):
        changed = eqx.tree_at(lambda e: e.variance, encoder, Affine(mean.weight, bias))
        return changed(jnp.ones((1, 4, 4), jnp.uint8))[1][0]

    value, slope = jax.jvp(run, (pre,), (jnp.ones_like(pre),))
    return np.asarray(value), np.asarray(slope)


def test_variance_is_a_softplus():
    pre = np.array([-14.0, -3.0, -0.2, 0.0, 1.7, 30.0])
    value, slope = log_scales(2, pre)
    variance = np.log1p(np.exp(pre))
    np.testing.assert_allclose(np.exp(2 * value), variance, rtol=1e-9)
    np.testing.assert_allclose(slope, expit(pre) / variance / 2, rtol=1e-9)


def test_tiny_variances_stay_finite():
    """In double precision, softplus is zero below -745; its logarithm tends to its argument."""
    pre = np.array([-1e4, -800.0, -100.0, -15.5, -15.0, -14.5])
    value, slope = log_scales(2, pre)
    # ln ln(1 + e^a) = a - e^a / 2 + ...
    np.testing.assert_allclose(2 * value, pre - np.exp(pre) / 2, rtol=1e-7)
    np.testing.assert_allclose(slope, 0.5, rtol=1e-6)


def test_grey_images_have_clipped_variances():
    pre = np.array([-1e4, -20.0, -5.0, -4.5, 0.3, 6.9, 7.1, 50.0])
    value, slope = log_scales(256, pre)
    softplus = np.logaddexp(0, pre)
    np.testing.assert_allclose(np.exp(2 * value), np.clip(softplus, 0.01, 7.0), rtol=1e-10)
    inside = (softplus > 0.01) & (softplus < 7)
    assert inside.tolist() == [False, False, False, True, True, True, False, False]
    assert np.all(slope[~inside] == 0)
    expected = expit(pre[inside]) / softplus[inside] / 2
    np.testing.assert_allclose(slope[inside], expected, rtol=1e-10)


@pytest.mark.parametrize("levels", [2, 256])
def test_pixels_come_in_from_zero_to_one(levels):
    """The brightest pixel of any kind of image is a one to the encoder."""
    encoder = Encoder((4, 4), key=jr.key(1), levels=levels, channels=1, latent=2, update_sizes=[])
    other = Encoder((4, 4), key=jr.key(1), levels=3, channels=1, latent=2, update_sizes=[])
    pixels = np.zeros((1, 4, 4), np.uint8)
    pixels[0, 1, 2] = pixels[0, 3, 0] = 1
    run = eqx.filter_jit(lambda e, i: e(i)[0])
    mean = run(encoder, jnp.asarray(pixels * np.uint8(levels - 1)))
    np.testing.assert_allclose(mean, run(other, jnp.asarray(pixels * np.uint8(2))), rtol=1e-12)
    assert np.abs(mean - run(encoder, jnp.zeros((1, 4, 4), jnp.uint8))).min() > 1e-6
