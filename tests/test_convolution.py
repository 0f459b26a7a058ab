"""Both convolutions against their definitions, and their derivatives against XLA's own convolution."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax

from pathgrad.experiments.vae import convolution
from pathgrad.experiments.vae.convolution import convolve, convolve_transposed

# height, width, kernel, stride, padding, output padding (of the transposed one)
CASES = [
    (9, 6, (5, 5), 1, 2, 0),
    (7, 5, (5, 5), 2, 2, 1),
    (10, 7, (5, 5), 2, 2, 0),
    (5, 8, (5, 3), 1, 1, 0),
    (7, 5, (7, 5), 1, 0, 0),
    (6, 4, (4, 4), 2, 1, 1),
    (9, 9, (5, 5), 3, 3, 2),
]


def draw(height, width, kernel, dtype=jnp.float64, batch=3, channels=2, out=3):
    one, two = jr.split(jr.key(0))
    x = jr.normal(one, (batch, height, width, channels), dtype)
    return x, jr.normal(two, (*kernel, channels, out), dtype)


def sum_over_taps(x, weight, stride, padding):
    x, weight = np.asarray(x), np.asarray(weight)
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    kh, kw = weight.shape[:2]
    h, w = (x.shape[1] - kh) // stride + 1, (x.shape[2] - kw) // stride + 1
    y = np.empty((x.shape[0], h, w, weight.shape[3]))
    for i in range(h):
        for j in range(w):
            patch = x[:, i * stride : i * stride + kh, j * stride : j * stride + kw]
            y[:, i, j] = np.tensordot(patch, weight, 3)
    return y


def sum_of_copies(x, weight, stride, padding, output_padding):
    x, weight = np.asarray(x), np.asarray(weight)
    (b, h, w, _), (kh, kw, _, out) = x.shape, weight.shape
    full = ((h - 1) * stride + kh + output_padding, (w - 1) * stride + kw + output_padding)
    y = np.zeros((b, *full, out))
    for i in range(h):
        for j in range(w):
            copy = np.einsum("bc,klco->bklo", x[:, i, j], weight)
            y[:, i * stride : i * stride + kh, j * stride : j * stride + kw] += copy
    return y[:, padding : full[0] - padding, padding : full[1] - padding]


def stock(x, weight, stride, padding):
    pads = ((padding, padding),) * 2
    return lax.conv_general_dilated(
        x, weight, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def stock_transposed(x, weight, stride, padding, extra):
    pads = [(k - 1 - padding, k - 1 - padding + extra) for k in weight.shape[:2]]
    return lax.conv_general_dilated(
        x,
        weight[::-1, ::-1],
        (1, 1),
        pads,
        lhs_dilation=(stride, stride),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def value_and_derivatives(f, x, weight):
    def all_of_them(x, weight):
        y, back = jax.vjp(f, x, weight)
        towards = jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
        return y, *back(towards)

    return jax.jit(all_of_them)(x, weight)


def agree(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("h", "w", "kernel", "stride", "padding", "extra"), CASES)
def test_convolve(h, w, kernel, stride, padding, extra):
    x, weight = draw(h, w, kernel)
    found = value_and_derivatives(lambda x, k: convolve(x, k, stride=stride, padding=padding), x, weight)
    agree(found[:1], [sum_over_taps(x, weight, stride, padding)])
    agree(found, value_and_derivatives(lambda x, k: stock(x, k, stride, padding), x, weight))


@pytest.mark.parametrize(("h", "w", "kernel", "stride", "padding", "extra"), CASES)
def test_convolve_transposed(h, w, kernel, stride, padding, extra):
    x, weight = draw(h, w, kernel)
    found = value_and_derivatives(
        lambda x, k: convolve_transposed(x, k, stride=stride, padding=padding, output_padding=extra),
        x,
        weight,
    )
    agree(found[:1], [sum_of_copies(x, weight, stride, padding, extra)])
    expected = value_and_derivatives(lambda x, k: stock_transposed(x, k, stride, padding, extra), x, weight)
    agree(found, expected)


@pytest.mark.parametrize("padding", [0, 2])
def test_from_one_pixel(padding):
    x, weight = draw(1, 1, (7, 5))
    found = value_and_derivatives(lambda x, k: convolve_transposed(x, k, padding=padding), x, weight)
    agree(found[:1], [sum_of_copies(x, weight, 1, padding, 0)])
    expected = value_and_derivatives(lambda x, k: stock_transposed(x, k, 1, padding, 0), x, weight)
    agree(found, expected)


def test_chunks_do_not_change_the_result(monkeypatch):
    x, weight = draw(6, 9, (5, 5), batch=7)
    whole = value_and_derivatives(lambda x, k: convolve(x, k, padding=2), x, weight)
    monkeypatch.setattr(convolution, "_chunk", lambda *_: 3)
    agree(value_and_derivatives(lambda x, k: convolve(x, k, padding=2), x, weight), whole)


def test_other_devices_use_the_stock_convolution(monkeypatch):
    x, weight = draw(7, 5, (5, 5))
    here = convolve(x, weight, stride=2, padding=2)
    back = convolve_transposed(x, weight, stride=2, padding=2, output_padding=1)
    monkeypatch.setattr(convolution, "_rewrites", lambda: False)
    agree([here], [convolve(x, weight, stride=2, padding=2)])
    there = convolve_transposed(x, weight, stride=2, padding=2, output_padding=1)
    agree([back], [there])


@pytest.mark.parametrize("stride", [1, 2])
def test_single_precision(stride):
    x, weight = draw(28, 20, (5, 5), jnp.float32, batch=4, channels=8, out=8)

    def f(x, k):
        return convolve(x, k, stride=stride, padding=2)

    found = value_and_derivatives(f, x, weight)
    exact = value_and_derivatives(f, x.astype(jnp.float64), weight.astype(jnp.float64))
    for a, b in zip(found, exact, strict=True):
        assert a.dtype == jnp.float32
        assert jnp.sqrt(jnp.mean((a - b) ** 2) / jnp.mean(b**2)) < 2e-5
