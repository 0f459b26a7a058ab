"""The benchmark's targets that need no data, or data of their own: densities, normalisers, samples."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats

import pathgrad as pg
from pathgrad.targets.cox import CoxProcess
from pathgrad.targets.mixtures import NormalBlobs, two_blobs
from pathgrad.targets.wells import ManyWells

from . import target_helpers
from .target_helpers import HERE, needs_data

SYNTHETIC = pg.targets.NAMES[:8]
NORMALISED = [name for name in SYNTHETIC if name != "many-well-32"]


def points(target, number=5, scale=1.0):
    return scale * np.asarray(jr.normal(jr.key(3), (number, *target.shape)))


def both(target, x):
    """Values and gradients, compiled together."""
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(target.log_prob)))(x)
    return np.asarray(values), np.asarray(gradients)


def funnel(x):
    return stats.norm.logpdf(x[0], 0, 3) + stats.norm.logpdf(x[1:], 0, np.exp(x[0] / 2)).sum()


def correlated(x):
    z = np.sinh(np.arcsinh(x) - 0.5)
    chain = 0.8 ** np.abs(np.subtract.outer(np.arange(20), np.arange(20)))
    slope = np.cosh(np.arcsinh(x) - 0.5) / np.sqrt(1 + x**2)
    normal: Any = stats.multivariate_normal
    return normal.logpdf(z, np.zeros(20), chain) + np.log(slope).sum()


def banana(x):
    spine = 0.3 * x[0] + 0.5 * x[0] ** 2 - 0.8
    return stats.norm.logpdf(x[0], 0.5, 1.2) + stats.norm.logpdf(x[1], spine, 0.55)


def blobs(x, name):
    if name == "two-modes":
        end = 2 * np.array([math.cos(0.6), math.sin(0.6)])
        means, shares = np.stack([-end, end]), [0.7, 0.3]
    else:
        density: Any = pg.targets.load(name).density
        means, shares = np.asarray(density.means), np.full(40, 1 / 40)
    return np.log(np.dot(shares, [stats.norm.pdf(x, m).prod() for m in means]))


def wells(x):
    return sum(0.5 * u + 6 * u**2 - u**4 - 0.5 * v**2 for u, v in x.reshape(16, 2))


AGAIN = {
    "funnel-10": funnel, "correlated-20": correlated, "banana": banana, "many-well-32": wells,
    "two-modes": functools.partial(blobs, name="two-modes"), "seeds": target_helpers.seeds,
}  # fmt: skip


@pytest.mark.parametrize("name", AGAIN)
def test_log_density_against_another_implementation(name):
    target = pg.targets.load(name)
    x = points(target)
    values, gradients = both(target, x)
    np.testing.assert_allclose(values, [AGAIN[name](point) for point in x], rtol=1e-11)
    # One direction, by central differences.
    way, step = points(target, 1)[0], 1e-5
    moved = [AGAIN[name](x[0] + s * way) for s in (step, -step)]
    assert gradients[0] @ way == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("dim", [2, 50])
def test_forty_blobs_are_those_of_the_papers(dim):
    target = pg.targets.load(f"gmm40-{dim}")
    assert isinstance(target.density, NormalBlobs)
    means = np.asarray(target.density.means)
    assert means.shape == (40, dim)
    assert np.abs(means).max() < 40
    if dim == 2:
        # Not those of JAX's present way to split random bits.
        np.testing.assert_allclose(means[:2], [[-15.758228, 18.116531], [-34.808891, 21.225481]], rtol=1e-6)
    x = means[:3] + points(target, 3)
    np.testing.assert_allclose(both(target, x)[0], [blobs(p, target.name) for p in x], rtol=1e-11)


@pytest.mark.parametrize("name", ["banana", "ring", "two-modes"])
def test_normaliser_in_the_plane(name):
    target = pg.targets.load(name)
    axis = np.linspace(-25, 25, 2001)  # rough: smooth densities that vanish at the edge need no more
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    total = np.exp(np.asarray(jax.jit(jax.vmap(target.log_prob))(grid))).sum() * (axis[1] - axis[0]) ** 2
    assert math.log(total) == pytest.approx(target.log_z, abs=1e-7)


def test_normaliser_of_many_wells():
    one = integrate.quad(lambda u: math.exp(0.5 * u + 6 * u**2 - u**4), -6, 6, points=[-1.7, 1.7])[0]
    log_z = 16 * (math.log(one) + 0.5 * math.log(2 * math.pi))
    target = pg.targets.load("many-well-32")
    assert target.log_z == pytest.approx(log_z, abs=1e-9)
    assert target.log_z == pytest.approx(164.69568, abs=1e-5)  # as published
    assert [pg.targets.load(name).log_z for name in NORMALISED] == [0.0] * len(NORMALISED)


def test_samples_of_wells_and_blobs():
    keys = jr.split(jr.key(5), 10_000)
    x = np.asarray(jax.vmap(lambda key: ManyWells(2).sample(key=key))(keys))
    norm = integrate.quad(lambda u: math.exp(0.5 * u + 6 * u**2 - u**4), -6, 6)[0]

    def below(u):
        u = np.sort(u)
        fine = np.linspace(-6, 6, 4001)
        mass = integrate.cumulative_simpson(np.exp(0.5 * fine + 6 * fine**2 - fine**4), x=fine, initial=0)
        return np.interp(u, fine, mass / norm)

    for column, cdf in ((0, below), (1, stats.norm.cdf), (2, below), (3, stats.norm.cdf)):
        ranks = cdf(np.sort(x[:, column]))
        assert stats.kstest(ranks, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(x.T)[0, 2]) < 5 / math.sqrt(len(x))
    y = np.asarray(jax.vmap(lambda key: two_blobs(4.0).sample(key=key))(keys))
    # Means -0.4 times the end of the second; the variance along the line is 1 + 4^2 * 0.7 * 0.3.
    end = 2 * np.array([math.cos(0.6), math.sin(0.6)])
    variance = 1 + 16 * 0.21
    along, across = y @ end / 2, y @ np.array([-end[1], end[0]]) / 2
    assert along.mean() == pytest.approx(-0.8, abs=5 * math.sqrt(variance / len(y)))
    assert along.var() == pytest.approx(variance, rel=0.05)
    assert across.var() == pytest.approx(1, rel=0.05)


def test_samples_are_exact_where_they_are_offered():
    # E[exp(log r - log p)] = 1 for a normalised r that is narrower than p.
    target = pg.targets.load("funnel-10")
    sample = target.sample
    assert sample is not None
    x = jax.vmap(lambda key: sample(key=key))(jr.split(jr.key(6), 4000))
    narrow = jax.scipy.stats.norm.logpdf(x[:, 0], 0.5, 1.5)
    narrow += jax.scipy.stats.norm.logpdf(x[:, 1:], 0, 0.8 * jnp.exp(x[:, :1] / 2)).sum(1)
    ratio = np.exp(np.asarray(narrow - jax.vmap(target.log_prob)(x)))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / math.sqrt(len(ratio))
    offered = [name for name in pg.targets.NAMES[:8] if pg.targets.load(name).sample is not None]
    assert offered == list(SYNTHETIC)
    assert pg.targets.load("seeds").sample is None


@pytest.mark.parametrize("cells", [5, 9])
def test_cox_process_against_another_implementation(cells):
    places = np.random.default_rng(0).random((126, 2))
    places[0] = 1.0  # on the edge
    target = CoxProcess.of(places, cells)
    x = 4 + points(target)
    values, gradients = both(target, x)
    np.testing.assert_allclose(values, [target_helpers.cox(p, places, cells) for p in x], rtol=1e-10)
    # The rule for the quadratic form, against derivatives of what it replaces; the second ones too.
    covariance = np.linalg.inv(np.asarray(target.precision))
    slope = -np.linalg.solve(covariance, x[0] - (math.log(126) - 1.91 / 2))
    slope += np.asarray(target.counts) - np.exp(x[0]) / cells**2
    np.testing.assert_allclose(gradients[0], slope, rtol=1e-9)
    hessian = jax.jit(jax.hessian(target.log_prob))(jnp.asarray(x[0]))
    expected = -np.asarray(target.precision) - np.diag(np.exp(x[0])) / cells**2
    np.testing.assert_allclose(hessian, expected, rtol=1e-9, atol=1e-9)


@needs_data
def test_pines():
    table = np.genfromtxt(HERE / "targets" / "pines.csv", delimiter=",")[1:, 1:]
    target = pg.targets.load("cox-1600", HERE)
    assert isinstance(target.density, CoxProcess)
    assert target.shape == (1600,)
    assert pg.targets.load("cox-1024", HERE).shape == (1024,)
    counts = np.histogram2d(*table.T, bins=40, range=[[0, 1], [0, 1]])[0]
    np.testing.assert_array_equal(np.asarray(target.density.counts).reshape(40, 40), counts)
    value = target.log_prob(jnp.full(1600, 4.0))
    # A constant field: the quadratic form sums the precision, and the rest is known.
    total = float(np.sum(np.asarray(target.density.precision)))
    prior = -0.5 * (4 - math.log(126) + 0.955) ** 2 * total
    constant = -0.5 * (target.density.log_det + 1600 * math.log(2 * math.pi))
    assert value == pytest.approx(prior + constant + 126 * 4 - math.exp(4), rel=1e-12)


@needs_data
@pytest.mark.parametrize("name", ["credit", "credit-prior", "ionosphere", "sonar"])
def test_logistic_regressions_against_another_implementation(name):
    target = pg.targets.load(name, HERE)
    x = points(target, 3, 0.5)
    values, gradients = both(target, x)
    if name.startswith("credit"):
        again = functools.partial(target_helpers.credit, prior=name == "credit-prior")
    else:
        again = functools.partial(target_helpers.labelled, name=name)
    np.testing.assert_allclose(values, [again(p) for p in x], rtol=1e-11)
    way, step = points(target, 1)[0], 1e-5
    slope = (again(x[0] + step * way) - again(x[0] - step * way)) / (2 * step)
    assert gradients[0] @ way == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("name", [*SYNTHETIC, "seeds"])
def test_single_precision_stays_single_and_finite(name):
    """Also far out, where flows are at first."""
    target = pg.targets.load(name)
    x = points(target, 4, 3.0)
    exact = both(target, x)
    values, gradients = both(target, jnp.asarray(x, jnp.float32))
    assert values.dtype == gradients.dtype == np.float32
    np.testing.assert_allclose(values, exact[0], rtol=1e-4, atol=1e-3)
    assert np.isfinite(gradients).all()


def test_the_catalogue_answers_in_words():
    with pytest.raises(pg.UserError, match=r"no target 'bananna'.*Did you mean 'banana'\?"):
        pg.targets.load("bananna")
    target = pg.targets.load("seeds")
    assert target.log_z is not None
    assert target.published[0].what == "ELBO"
    assert target.published[0].value < target.log_z
    assert pg.targets.load("banana") is pg.targets.load("banana")
