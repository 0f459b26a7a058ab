"""Encoders and decoders: shapes, patches, gates and layers against NumPy."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax
from scipy.signal import correlate
from scipy.special import expit

from pathgrad.experiments.vae import convolution
from pathgrad.experiments.vae.layers import GatedConvolution
from pathgrad.experiments.vae.making import make_likelihood, make_networks
from pathgrad.experiments.vae.networks import (
    CompactDecoder,
    CompactEncoder,
    MLPDecoder,
    MLPEncoder,
    PublishedDecoder,
    PublishedEncoder,
)
from pathgrad.experiments.vae.networks.compact import from_patches, to_patches
from pathgrad.experiments.vae.options import AutoencoderOptions, NetworkOptions


@pytest.fixture(scope="module", autouse=True)
def quick_to_compile():
    """XLA's own convolutions; ours have their own tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "_rewrites", lambda: False)
        yield


NETWORKS = {
    "compact": NetworkOptions("compact", channels=3, fine_channels=5, hidden=6),
    "straight": NetworkOptions("compact", channels=3, blocks=2, fine_channels=0, hidden=0),
    "published": NetworkOptions("published", channels=3),
    "mlp": NetworkOptions("mlp", hidden=6),
}
LIKELIHOODS: dict[Any, int] = {"softmax": 16, "logistic": 2}


@pytest.mark.parametrize(("shape", "levels"), [((28, 28), 2), ((28, 20), 256), ((8, 12), 256)])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_shapes(shape, levels, network):
    for likelihood, few in LIKELIHOODS.items():
        options = AutoencoderOptions(latent=7, network=network, likelihood=likelihood)
        outputs = make_likelihood(options, levels, key=jr.key(0)).outputs
        grey = 256 if likelihood == "softmax" and network.networks == "published" else few
        assert outputs == (1 if levels == 2 else grey)

        def run(key, images, z, options=options, outputs=outputs):
            encoder, decoder = make_networks(options, shape, outputs, key=key)
            features = encoder(images)
            assert features.shape == (4, encoder.features)
            return decoder(z)

        images, z = (jax.ShapeDtypeStruct((4, *rest), jnp.float64) for rest in (shape, (7,)))
        assert jax.eval_shape(run, jr.key(0), images, z).shape == (4, *shape, outputs)


def test_published_trunks_narrow_as_published():
    """Channels and sizes after every layer, on 28 x 20 images."""
    made = eqx.filter_eval_shape(
        lambda k: (PublishedEncoder((28, 20), key=k), PublishedDecoder((28, 20), 64, 1, key=k)), jr.key(0)
    )

    def way(trunk, first):
        sizes, x = [], jax.ShapeDtypeStruct((2, *first), jnp.float64)
        for layer in trunk:
            x = eqx.filter_eval_shape(lambda layer, x: layer(x), layer, x)
            sizes.append(x.shape[1:])
        return sizes

    down = [(28, 20, 32), (14, 10, 32), (14, 10, 64), (7, 5, 64), (7, 5, 64), (1, 1, 256)]
    up = [(7, 5, 64), (7, 5, 64), (14, 10, 32), (14, 10, 32), (28, 20, 32), (28, 20, 32)]
    assert way(made[0].trunk, (28, 20, 1)) == down
    assert way(made[1].trunk, (1, 1, 64)) == up


def test_gate():
    """Half of the channels, times the sigmoid of the other half, and nothing else in between."""
    layer = GatedConvolution(2, 3, 1, key=jr.key(4))
    x = 2 * jr.normal(jr.key(5), (1, 4, 3, 2))
    whole = np.asarray(x) @ np.asarray(layer.weight)[0, 0] + np.asarray(layer.bias)
    np.testing.assert_allclose(layer(x), whole[..., :3] * expit(whole[..., 3:]), rtol=1e-12)


def test_merged_convolutions_are_the_two_one_after_the_other():
    levels = 7
    decoder = PublishedDecoder((8, 4), 3, levels, key=jr.key(6), channels=2)
    # One layer of the trunk is enough: what follows it is what is merged.
    up = GatedConvolution(3, 2, (8, 4), transposed=True, key=jr.key(9))
    decoder = eqx.tree_at(lambda d: d.trunk, decoder, (up,))
    z = 3 * jr.normal(jr.key(7), (2, 3))
    weights = jr.normal(jr.key(8), (2, 8, 4, levels))

    def merged(factors):
        return eqx.tree_at(lambda d: (d.head, d.last), decoder, factors)(z)

    def one_after_the_other(factors):
        h = up(z[:, None, None, :])
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


# Compact networks


@pytest.mark.parametrize("side", [2, 4])
def test_patches_keep_neighbours_together(side):
    """A patch has the pixels of a square, row by row; and back."""
    x = np.arange(2.0 * 8 * 12 * 3).reshape(2, 8, 12, 3)
    patches = np.asarray(to_patches(jnp.asarray(x), side))
    assert patches.shape == (2, 8 // side, 12 // side, 3 * side**2)
    for i in range(8 // side):
        for j in range(12 // side):
            square = x[:, i * side : (i + 1) * side, j * side : (j + 1) * side]
            np.testing.assert_array_equal(patches[:, i, j], square.reshape(2, -1))
    np.testing.assert_array_equal(from_patches(jnp.asarray(patches), side), x)


def silu(x):
    return x * expit(x)


def convolved(x, layer):
    """A 3x3 convolution with zeros around the image, by SciPy, one pair of channels after the other."""
    weight, bias = np.asarray(layer.weight), np.asarray(layer.bias)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    found = np.zeros((*x.shape[:3], len(bias))) + bias
    for b in range(len(x)):
        for i in range(x.shape[-1]):
            for o in range(len(bias)):
                found[b, :, :, o] += correlate(padded[b, :, :, i], weight[:, :, i, o], "valid")
    return found


def affine(x, layer):
    return x @ np.asarray(layer.weight) + np.asarray(layer.bias)


def gated(x, layer):
    opened, gate = np.split(affine(x, layer.both), 2, axis=-1)
    return opened * expit(gate)


def shaken(network, seed):
    """Give every array, biases too, other values."""
    arrays, rest = eqx.partition(network, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    keys = jr.split(jr.key(seed), len(leaves))
    moved = [a + 0.2 * jr.normal(k, a.shape) for a, k in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, moved), rest)


@pytest.mark.parametrize("fine", [3, 0], ids=["fine", "straight"])
def test_compact_networks_are_those_of_a_loop(fine):
    """Layer by layer in NumPy: the last layers see the whole image, so nothing can be in another place."""
    encoder = shaken(CompactEncoder((8, 4), key=jr.key(0), fine=fine, coarse=2, blocks=2, features=5), 1)
    images = np.random.default_rng(0).random((2, 8, 4))
    h = np.asarray(to_patches(jnp.asarray(images)[..., None], 2 if fine else 4))
    if fine:
        h = np.asarray(to_patches(jnp.asarray(silu(convolved(h, encoder.fine))), 2))
    h = affine(h, encoder.mix)
    for block in encoder.blocks:
        h = h + convolved(silu(h), block.convolution)
    features = gated(silu(h).reshape(2, -1), encoder.last)

    sizes = {"hidden": 4 if fine else 0, "coarse": 3, "blocks": 1, "fine": fine, "fine_blocks": 1}
    decoder = shaken(CompactDecoder((8, 4), 2, 2, key=jr.key(2), **sizes), 3)
    z = np.random.default_rng(1).normal(size=(2, 2))
    h = affine(gated(z, decoder.hidden) if fine else z, decoder.first).reshape(2, 2, 1, 3)
    for block in decoder.blocks:
        h = h + convolved(silu(h), block.convolution)
    if fine:
        h = np.asarray(from_patches(jnp.asarray(affine(silu(h), decoder.mix)), 2))
        for block in decoder.fine_blocks:
            h = h + convolved(silu(h), block.convolution)
    last = jnp.asarray(convolved(silu(h), decoder.last))
    pixels = np.asarray(from_patches(last, 2 if fine else 4)) + np.asarray(decoder.bias)

    found = jax.jit(lambda images, z: (encoder(images), decoder(z)))(images, z)
    np.testing.assert_allclose(found[0], features, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found[1], pixels, rtol=1e-10, atol=1e-12)
    assert found[1].shape == (2, 8, 4, 2)


def test_dense_networks_are_those_of_a_loop():
    encoder = shaken(MLPEncoder((4, 8), key=jr.key(0), width=5), 1)
    decoder = shaken(MLPDecoder((4, 8), 3, 2, key=jr.key(2), width=6), 3)
    rng = np.random.default_rng(0)
    images, z = rng.random((2, 4, 8)), rng.normal(size=(2, 3))
    features, h = images.reshape(2, -1), z
    for one, other in zip(encoder.layers, decoder.layers, strict=True):
        features, h = gated(features, one), gated(h, other)
    pixels = affine(h, decoder.last).reshape(2, 4, 8, 2) + np.asarray(decoder.bias)
    np.testing.assert_allclose(encoder(jnp.asarray(images)), features, rtol=1e-11)
    np.testing.assert_allclose(decoder(jnp.asarray(z)), pixels, rtol=1e-11)


def test_options_reach_the_compact_networks():
    given = NetworkOptions("compact", channels=8, blocks=3, fine_channels=4, hidden=10)
    make = lambda key, given: make_networks(AutoencoderOptions(network=given), (8, 8), 1, key=key)  # noqa: E731
    encoder, decoder = eqx.filter_eval_shape(make, jr.key(0), given)
    assert (len(encoder.blocks), encoder.features, encoder.mix.bias.size) == (1, 256, 32)
    assert (len(decoder.blocks), len(decoder.fine_blocks)) == (3, 2)
    assert decoder.first.weight.shape == (10, 2 * 2 * 8)
    assert decoder.mix.weight.shape == (8, 4 * 4)
    straight = dataclasses.replace(given, fine_channels=0, hidden=0)
    encoder, decoder = eqx.filter_eval_shape(make, jr.key(0), straight)
    assert (encoder.fine, decoder.hidden, decoder.mix, decoder.fine_blocks) == (None, None, None, ())
    assert decoder.last.weight.shape == (3, 3, 8, 16)
