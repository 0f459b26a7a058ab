"""Autoencoders as made from options: published sizes and settings, initial weights, our own sizes."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import expit

import pathgrad as pg
from pathgrad._words.errors import UserError
from pathgrad.experiments.vae.amortised import AmortisedFlow, LogScaleHead, VarianceHead
from pathgrad.experiments.vae.data.datasets import Dataset
from pathgrad.experiments.vae.data.sources import SOURCES
from pathgrad.experiments.vae.experiment import VAE
from pathgrad.experiments.vae.field import LowRank
from pathgrad.experiments.vae.gates import Gates
from pathgrad.experiments.vae.layers import Affine, GatedConvolution
from pathgrad.experiments.vae.making import make_amortised_flow, make_model, make_training
from pathgrad.experiments.vae.networks import PublishedDecoder, PublishedEncoder
from pathgrad.experiments.vae.options import AmortisedFlowOptions, AutoencoderOptions, NetworkOptions, preset

from .vae_helpers import small_model

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
    """How many parameters there are; the count of solver steps, a whole number, is none."""
    leaves = [a for a in jax.tree.leaves(tree) if hasattr(a, "shape")]
    return sum(math.prod(a.shape) for a in leaves if jnp.issubdtype(a.dtype, jnp.inexact))


def shapes_of(name, dataset):
    """Return a preset's model as shapes; its hundreds of millions of weights are never made."""
    options = preset(name, dataset)
    shape, levels = IMAGES[dataset]
    return eqx.filter_eval_shape(lambda key: make_model(options, shape, levels, key=key), jr.key(0))


@pytest.mark.parametrize("dataset", IMAGES)
def test_numbers_of_parameters(dataset):
    model = shapes_of("paper", dataset)
    grey = dataset == "freyfaces"
    assert size(model.encoder) == (1_712_704 if grey else 2_171_456)
    assert size((model.flow.base.mean, model.flow.base.scale)) == 32_896
    assert size(model.decoder.trunk) == (748_032 if grey else 862_720)
    assert size((model.decoder.head, model.decoder.last)) == (270_848 if grey else 33)

    cnfs, update, shared = PUBLISHED_FLOWS[dataset]
    assert [size(head) for head in model.flow.heads] == [257 * update] * cnfs
    assert [size(family) for family in model.flow.families] == [shared] * cnfs
    assert size((model.flow.heads, model.flow.families)) == FLOW_TOTALS[dataset]
    without_flow = 2_764_480 if grey else 3_067_105
    assert size(model) == without_flow + FLOW_TOTALS[dataset]


@pytest.mark.parametrize(
    ("cnfs", "width", "depth", "rank", "total"),
    [(5, 512, 2, 20, 58_970_560), (1, 2048, 1, 20, 22_520_512)],
    ids=["omniglot", "caltech"],
)
def test_numbers_of_parameters_of_ffjord(cnfs, width, depth, rank, total):
    flow = AmortisedFlowOptions(cnfs=cnfs, field="low-rank", width=width, depth=depth, rank=rank)
    options = AutoencoderOptions(flow=flow)
    made = eqx.filter_eval_shape(lambda key: make_amortised_flow(options, 256, 2, key=key), jr.key(0))
    assert size((made.heads, made.families)) == total


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
    assert (options.latent, options.likelihood) == (64, "softmax")
    assert (options.network.networks, options.network.channels) == ("published", 32)
    assert (f.cnfs, f.width, f.depth, f.rank, f.activation) == flow
    assert (f.field, f.divergence, f.noise, f.probes) == ("low-rank", "hutchinson", "gaussian", 1)
    assert (f.solver, f.tolerance, f.end_time, f.adjoint) == ("dopri5", 1e-5, 0.5, "discrete")
    assert (t.optimizer, t.learning_rate, t.batch) == ("adamax", 5e-4, 100)
    assert (t.warmup_epochs, t.patience, t.epochs) == (100, patience, 5000)
    # Nothing of our own.
    assert (t.rate_warmup, t.rate_hold, t.clip, t.average, t.kl_warmup) == (0, 1, 0, 0, 0)
    assert (t.shifts, t.flips, t.max_seconds) == (0, False, None)


def test_published_training():
    """No factor on the rate, no bias of the mean image, a validation with every epoch, all as before."""
    options, blank = preset("paper", "caltech"), np.zeros((250, 4, 4), np.uint8)
    model = small_model(network=NetworkOptions("published", channels=1), field="low-rank")
    training = make_training(options.training, model, Dataset("made up", blank, blank, blank, 2, False))
    assert isinstance(training.method, pg.FirstOrder)
    assert training.method.rate is None
    assert training.objective.data.augment is None
    assert training.steps == 5000 * 3
    assert isinstance(training.validation, pg.Validation)
    assert (training.validation.every, training.validation.patient_until) == (3, 300)
    assert eqx.tree_equal(training.model, model)
    # Adamax's first step is the learning rate in every coordinate, whatever the gradient.
    gradient = jnp.array([3.0, -1e-3])
    updates, _ = training.method.optimizer.update(gradient, training.method.optimizer.init(gradient))
    np.testing.assert_allclose(np.asarray(updates), [-5e-4, 5e-4], rtol=1e-3)


def test_published_model_is_solved_as_published():
    model = shapes_of("paper", "caltech")
    assert (model.flow.divergence.noise_kind, model.flow.divergence.probes) == ("gaussian", 1)
    integrator = model.flow.integrator
    assert (integrator.solver, integrator.rtol, integrator.atol) == ("dopri5", 1e-5, 1e-5)
    assert isinstance(model.flow.base, VarianceHead)
    assert not model.flow.base.is_grey
    assert shapes_of("paper", "freyfaces").flow.base.is_grey
    images = jax.ShapeDtypeStruct((3, 28, 28), jnp.uint8)
    flow = eqx.filter_eval_shape(lambda m, i: m.posterior(i), model, images)
    assert [(cnf.t0, cnf.t1) for cnf in flow.transforms] == [(0.0, 0.5)] * 2
    assert [cnf.field.activation for cnf in flow.transforms] == ["tanh"] * 2
    assert flow.base.mean.value.shape == (3, 64)


def test_model_for_a_cpu():
    """For MNIST: 3x3 convolutions with 32 channels, 64 latent numbers, two flows with 512 gates."""
    model = shapes_of("cpu", "mnist")
    assert size(model) == 2_009_764
    encoder = 4 * 9 * 16 + 16 + (64 * 32 + 32) + (32 * 9 * 32 + 32) + 2 * 256 * (49 * 32 + 1)
    assert size(model.encoder) == encoder
    assert [size(family) for family in model.flow.families] == [512 * 64 * 2 + 512 + 64] * 2
    assert [size(head) for head in model.flow.heads] == [257 * (2 * 512 + 64)] * 2
    assert (model.flow.integrator, model.flow.divergence) == (pg.FixedStep(3), pg.ClosedForm())


@pytest.mark.parametrize("dataset", ["caltech", "freyfaces"])
def test_few_images_have_smaller_models(dataset):
    few, many = preset("cpu", dataset), preset("cpu", "mnist")
    assert size(shapes_of("cpu", dataset)) < size(shapes_of("cpu", "mnist"))
    assert few.training.flips > many.training.flips
    assert (preset("tiny", dataset).training.max_seconds, few.training.max_seconds) == (20, 3600)
    plain = dataclasses.replace(few, training=dataclasses.replace(few.training, shifts=0.0, flips=False))
    # Settled, so that a run states it.
    assert [VAE.settled(options)[0].training.dreams for options in (few, plain, many)] == [False, True, False]
    training = dataclasses.replace(many.training, shifts=0.0, max_seconds=None)
    assert AutoencoderOptions() == dataclasses.replace(many, training=training)


@pytest.mark.parametrize(("dataset", "source"), SOURCES.items(), ids=SOURCES)
@pytest.mark.parametrize("name", ["cpu", "paper", "tiny"])
def test_warm_ups_are_over_before_the_training_is(name, dataset, source):
    t = preset(name, dataset).training
    epoch = math.ceil(source.images[0] / t.batch)
    assert max(t.kl_warmup, t.rate_warmup, t.warmup_epochs * epoch) < t.epochs * epoch


def test_unknown_data_set_has_no_preset():
    with pytest.raises(UserError, match=r"no data set 'cifar'.*mnist, omniglot"):
        preset("paper", "cifar")
    assert AutoencoderOptions().dataset == "mnist"


def assert_uniform(values, bound):
    """Within the bound, and filling it: the root mean square of a uniform is its bound over root 3."""
    values = np.asarray(values).ravel()
    assert np.abs(values).max() <= bound
    assert np.abs(values).max() > bound * (1 - 20 / values.size)
    tolerance = 5 * bound * math.sqrt(4 / 45 / values.size)  # five standard errors of its square
    assert abs(np.mean(values**2) - bound**2 / 3) < bound * tolerance
    assert abs(np.mean(values)) < 5 * bound / math.sqrt(3 * values.size)


def assert_normal(values, scale):
    """Mean and variance of a normal, within five standard errors."""
    values = np.asarray(values).ravel()
    assert abs(values.mean()) < 5 * scale / math.sqrt(values.size)
    assert abs(np.mean(values**2) / scale**2 - 1) < 5 * math.sqrt(2 / values.size)


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


def test_initial_weights_of_published_networks():
    """Every layer by its own fan-in, gate and bias included; a kernel that is not square counts as it is."""
    encoder = PublishedEncoder((12, 8), key=jr.key(2), channels=6)
    fan_ins = [25, 25 * 6, 25 * 6, 25 * 12, 25 * 12, 6 * 12]
    for layer, fan_in in zip(encoder.trunk, fan_ins, strict=True):
        assert_uniform(layer.weight, 1 / math.sqrt(fan_in))
        assert np.abs(layer.bias).max() <= 1 / math.sqrt(fan_in)
    decoder = PublishedDecoder((12, 8), 40, 20, key=jr.key(3), channels=6)
    for layer, fan_in in zip(decoder.trunk, [6 * 12, *[25 * c for c in (12, 6, 6, 6, 6)]], strict=True):
        assert_uniform(layer.weight, 1 / math.sqrt(fan_in))
        assert np.abs(layer.bias).max() <= 1 / math.sqrt(fan_in)
    assert_uniform(decoder.head[0], 1 / math.sqrt(25 * 6))
    assert_uniform(decoder.last.weight, 1 / math.sqrt(20))
    options = AutoencoderOptions(latent=40, flow=AmortisedFlowOptions(cnfs=1, field="low-rank", width=4))
    flow = make_amortised_flow(options, 48, 2, key=jr.key(2))
    for head in (flow.base.mean, flow.base.scale, *flow.heads):
        assert_uniform(head.weight, 1 / math.sqrt(48))
        assert np.abs(head.bias).max() <= 1 / math.sqrt(48)
    assert np.abs(flow.base.mean.weight - flow.base.scale.weight).min() > 0


def test_initial_weights_of_our_own_flow():
    """Fields begin as small changes, and standard deviations near 0.6."""
    options = AutoencoderOptions(latent=40, flow=AmortisedFlowOptions(cnfs=2, width=50))
    flow = make_amortised_flow(options, 90, 2, key=jr.key(5))
    assert_normal(flow.base.mean.weight, 0.5 / math.sqrt(90))
    assert_normal(flow.base.scale.weight, 0.1 / math.sqrt(90))
    np.testing.assert_array_equal(flow.base.scale.bias, -0.5)
    families = [family for family in flow.families if isinstance(family, Gates)]
    for head, family in zip(flow.heads, families, strict=True):
        assert_normal(head.weight, 0.3 / math.sqrt(90))
        assert not np.any(head.bias)
        assert_normal(family.inner, 1 / math.sqrt(40))
        assert_normal(family.outer, 0.3 / math.sqrt(50))
        assert_normal(family.inner_time, 1.0)
    assert np.abs(families[0].inner - families[1].inner).min() > 0


def test_heads_must_fit_their_fields():
    key = jr.key(0)
    base = LogScaleHead.normal(5, 2, key=key)
    with pytest.raises(ValueError, match=r"heads give \[9\] numbers, and the fields need \[8\]"):
        AmortisedFlow(base, [Affine.normal(5, 9, key=key)], [Gates(2, 3, key=key)])
    wanted = LowRank(2, 3, 1, 1, key=key).size
    AmortisedFlow(base, [Affine.normal(5, wanted, key=key)], [LowRank(2, 3, 1, 1, key=key)])
    with pytest.raises(ValueError, match="multiples of four"):
        small_model((4, 6))


def log_scales(pre, *, is_grey):
    """Return the log standard deviations of q0 for given outputs of the variance head, with slopes."""
    pre = jnp.asarray(pre)
    mean = Affine(jnp.zeros((1, pre.size)), jnp.zeros(pre.size))

    @jax.jit
    def run(bias):
        return VarianceHead(mean, Affine(mean.weight, bias), is_grey).log_scale(jnp.ones((1, 1)))[0]

    value, slope = jax.jvp(run, (pre,), (jnp.ones_like(pre),))
    return np.asarray(value), np.asarray(slope)


def test_variance_is_a_softplus():
    pre = np.array([-14.0, -3.0, -0.2, 0.0, 1.7, 30.0])
    value, slope = log_scales(pre, is_grey=False)
    variance = np.log1p(np.exp(pre))
    np.testing.assert_allclose(np.exp(2 * value), variance, rtol=1e-9)
    np.testing.assert_allclose(slope, expit(pre) / variance / 2, rtol=1e-9)


def test_tiny_variances_stay_finite():
    """In double precision, softplus is zero below -745; its logarithm tends to its argument."""
    pre = np.array([-1e4, -800.0, -100.0, -15.5, -15.0, -14.5])
    value, slope = log_scales(pre, is_grey=False)
    # ln ln(1 + e^a) = a - e^a / 2 + ...
    np.testing.assert_allclose(2 * value, pre - np.exp(pre) / 2, rtol=1e-7)
    np.testing.assert_allclose(slope, 0.5, rtol=1e-6)


def test_grey_images_have_clipped_variances():
    pre = np.array([-1e4, -20.0, -5.0, -4.5, 0.3, 6.9, 7.1, 50.0])
    value, slope = log_scales(pre, is_grey=True)
    softplus = np.logaddexp(0, pre)
    np.testing.assert_allclose(np.exp(2 * value), np.clip(softplus, 0.01, 7.0), rtol=1e-10)
    inside = (softplus > 0.01) & (softplus < 7)
    assert inside.tolist() == [False, False, False, True, True, True, False, False]
    assert np.all(slope[~inside] == 0)
    expected = expit(pre[inside]) / softplus[inside] / 2
    np.testing.assert_allclose(slope[inside], expected, rtol=1e-10)


def test_pixels_come_in_from_zero_to_one():
    """The brightest pixel of any kind of image is a one to the encoder."""
    model = small_model(cnfs=0)
    pixels = np.zeros((1, 4, 4), np.uint8)
    pixels[0, 1, 2] = pixels[0, 3, 0] = 1
    features = model.encoder(jnp.asarray(pixels, float))
    for levels in (2, 256):
        other = dataclasses.replace(model, levels=levels)
        flow = other.posterior(jnp.asarray(pixels * np.uint8(levels - 1)))
        mean, log_scale = (leaf[0] for leaf in jax.tree.leaves(flow.base))
        np.testing.assert_allclose(mean, model.flow.base.mean(features)[0], rtol=1e-12)
        np.testing.assert_allclose(log_scale, model.flow.base.log_scale(features)[0], rtol=1e-12)
    assert np.abs(features - model.encoder(jnp.zeros((1, 4, 4)))).min() > 1e-6
