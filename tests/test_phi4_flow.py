"""Flows on the lattice against exact answers: the free theory, the transfer matrix, each other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import pathgrad as pg
from pathgrad.experiments.phi4.base import FreeField
from pathgrad.experiments.phi4.field import LatticeField
from pathgrad.experiments.phi4.lattice import momenta_squared, orbits
from pathgrad.experiments.phi4.reference import REFERENCE
from pathgrad.experiments.phi4.theory import Phi4
from pathgrad.experiments.phi4.transfer import enlarging_matrix, grow

from .helpers import ravel
from .phi4_helpers import COUPLING, rough_field, transfer_matrix_log_z


def linear_field(size, m2):
    """The field whose flow takes unit normals to the free field: constant in time, linear, nothing else."""
    index, count = orbits(size)
    _, first = np.unique(index, return_index=True)
    growth = 0.5 * np.log(1 / (2 * (momenta_squared(size) + m2)))
    taps = np.fft.ifft2(growth).real.ravel()[first]
    field = LatticeField.zero(size, time_kernels=1, time_bond=1, features=2, channels=1, key=jr.key(0))
    return eqx.tree_at(
        lambda f: (f.time_bond, f.feature_bond, f.kernel),
        field,
        (jnp.ones((1, 1)), jnp.array([[0.0, 2.0]]), jnp.asarray(taps).reshape(count, 1, 1)),
    )


@pytest.mark.parametrize("size", [4, 5])
def test_linear_flow_is_the_free_theory(size):
    m2 = 0.6
    theory = Phi4(size, 0.0, m2)
    cnf = pg.CNF(linear_field(size, m2), integrator=pg.FixedStep(80))
    flow = pg.Flow(pg.StandardNormal((size, size)), [cnf])
    draw = flow.sample_with_score(key=jr.key(1), n=16)
    assert draw.score is not None
    log_z = 0.5 * size**2 * np.log(np.pi) - 0.5 * np.log(momenta_squared(size) + m2).sum()
    action = jax.vmap(theory.action)(draw.x)
    assert jnp.allclose(draw.log_q + action + log_z, 0, atol=1e-6)
    assert jnp.allclose(draw.score, -jax.vmap(jax.grad(theory.action))(draw.x), atol=1e-5)

    def norm(estimator):
        gradient = eqx.filter_grad(
            lambda f: pg.reverse_kl(f, theory, key=jr.key(2), n=16, estimator=estimator)
        )(flow)
        return jnp.linalg.norm(ravel(gradient))

    # The optimum: no path gradient, and a total one that is all noise.
    assert norm(pg.PathGradient()) < 1e-5
    assert norm(pg.TotalGradient()) > 0.1


def rough_flow(size=4, steps=8, **more):
    cnf = pg.CNF(rough_field(size, **more), integrator=pg.FixedStep(steps))
    return pg.Flow(FreeField(size, 0.5), [cnf])


@pytest.mark.slow
def test_path_and_total_gradients_agree_in_the_mean():
    """512 draws, 20 times: the difference of the means, parameter by parameter, is within its noise."""
    flow, theory = rough_flow(steps=4, scale=0.05), Phi4(4, COUPLING)

    @eqx.filter_jit
    def difference(key):
        path, total = (
            eqx.filter_grad(lambda f, e=e: pg.reverse_kl(f, theory, key=key, n=512, estimator=e))(flow)
            for e in (pg.PathGradient(), pg.TotalGradient())
        )
        return ravel(path), ravel(path) - ravel(total)

    path, apart = jax.lax.map(difference, jr.split(jr.key(3), 20))
    z = apart.mean(0) / (apart.std(0, ddof=1) / 20**0.5)
    assert jnp.abs(z).max() < 5.5  # the largest of some hundred Student variables
    assert jnp.linalg.norm(apart.mean(0)) < 0.04 * jnp.linalg.norm(path.mean(0))
    assert jnp.linalg.norm(apart[0]) > 1e-3 * jnp.linalg.norm(path.mean(0))


def test_log_density_converges_with_the_fourth_power_of_the_step():
    keys = {"key": jr.key(4), "n": 8}
    exact = rough_flow(steps=128).sample_and_log_prob(**keys)[1]
    errors = [
        jnp.abs(rough_flow(steps=steps).sample_and_log_prob(**keys)[1] - exact).max() for steps in (8, 16, 32)
    ]
    order = np.log2(errors[0] / errors[1]), np.log2(errors[1] / errors[2])
    assert min(order) > 3.7
    assert errors[0] > 1e-8


def small_flow(size, mass_squared):
    field = LatticeField.zero(size, time_kernels=3, time_bond=2, features=6, channels=3, key=jr.key(5))
    return pg.Flow(FreeField(size, mass_squared), [pg.CNF(field, integrator=pg.FixedStep(4))])


def trained(size, steps):
    flow, theory = small_flow(size, 0.5), Phi4(size, COUPLING)
    rate = optax.cosine_decay_schedule(2e-2, steps, 0.05)
    method = pg.FirstOrder(optax.adam(rate, 0.8, 0.9), 64, block=20)
    return pg.fit(flow, theory, method, key=jr.key(6), steps=steps), theory


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(2, marks=pytest.mark.slow),
        pytest.param(3, marks=pytest.mark.slow),
        4,
        pytest.param(6, marks=pytest.mark.slow),
    ],
)
def test_log_z_against_the_transfer_matrix(size):
    """A flow trained for seconds gives the exact log Z within its error, and never a loss below the bound."""
    exact = REFERENCE[6]["log_z"].value if size == 6 else transfer_matrix_log_z(size)
    fit, theory = trained(size, 80)
    found = pg.evaluate(fit.flow.refined(2), theory, key=jr.key(7), n=4096)
    assert found.ess > 0.8
    assert found.log_z_err < 0.008
    assert abs(found.log_z - exact) < 4 * found.log_z_err
    assert abs(found.solver_shift) < found.log_z_err
    for row in fit.history:
        assert row.loss_err is not None
        assert row.loss > -exact - 5 * row.loss_err


@pytest.mark.parametrize(("small", "large"), [(3, 5), (4, 4), (4, 6), (4, 7), (6, 12)])
def test_padding_keeps_every_displacement(small, large):
    """Unfold, halve the taps at L/2, pad, fold: done site by site on the full kernels."""
    small_index, count = orbits(small)
    large_index, _ = orbits(large)
    taps = np.asarray(jr.normal(jr.key(8), (count,)))
    padded = (enlarging_matrix(small, large) @ taps)[large_index]
    expected = np.zeros((large, large))
    half = small // 2
    for dx in range(-half, half + 1):
        for dy in range(-half, half + 1):
            edges = sum(small % 2 == 0 and abs(d) == half for d in (dx, dy))
            expected[dx % large, dy % large] += taps[small_index[dx % small, dy % small]] / 2**edges
    assert np.allclose(padded, expected)
    # Both kernels do the same to a constant field.
    assert padded.sum() == pytest.approx(taps[small_index].sum())


def transform_of(flow):
    (cnf,) = flow.transforms
    assert isinstance(cnf, pg.CNF)
    return cnf


def test_enlarged_flow_does_the_same_to_constant_fields():
    """Their velocity depends on the sum of the kernel only, which padding keeps."""
    source = rough_flow(4)
    like = pg.Flow(FreeField(6, 0.3), [pg.CNF(rough_field(6, key=11), integrator=pg.FixedStep(8))])
    grown = grow(source, like)
    assert grown.shape == (6, 6)
    assert grown.base is like.base
    t, c = jnp.asarray(0.4), 0.7
    before = transform_of(source).field(t, jnp.full((4, 4), c))
    after = transform_of(grown).field(t, jnp.full((6, 6), c))
    assert jnp.allclose(after, before[0, 0])


def test_larger_model_begins_as_the_same_flow():
    source = rough_flow(4, features=5, channels=3, time_kernels=3)
    larger = rough_field(4, features=8, channels=5, time_kernels=7, key=12)
    like = pg.Flow(source.base, [transform_of(source).replace(field=larger)])
    grown = grow(source, like)
    x = source.sample(key=jr.key(9), n=4)
    assert jnp.allclose(grown.sample(key=jr.key(9), n=4), x)
    assert jnp.allclose(grown.log_prob(x), source.log_prob(x))
    with pytest.raises(ValueError, match="not shrink"):
        grow(grown, source)
    with pytest.raises(ValueError, match="from size 4 to 3"):
        grow(source, pg.Flow(FreeField(3, 0.5), [pg.CNF(rough_field(3))]))
