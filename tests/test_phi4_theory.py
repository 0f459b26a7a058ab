"""The action, the lattice and the free field, against closed forms."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad.experiments.phi4.base import FreeField
from pathgrad.experiments.phi4.lattice import momenta_squared, orbits, spectrum, transform
from pathgrad.experiments.phi4.reference import COUPLINGS, REFERENCE, base_mass_squared, known
from pathgrad.experiments.phi4.theory import Phi4

from .phi4_helpers import transfer_matrix_log_z

M2, COUPLING = -2.7, 3.1


@pytest.mark.parametrize("size", [4, 6])
def test_action_of_simple_fields(size):
    theory, volume, c = Phi4(size, COUPLING, M2), size**2, 0.8
    constant = jnp.full((size, size), c)
    assert jnp.allclose(theory.action(constant), volume * (M2 * c**2 + COUPLING * c**4))
    spike = jnp.zeros((size, size)).at[1, 2].set(c)
    assert jnp.allclose(theory.action(spike), (4 + M2) * c**2 + COUPLING * c**4)
    x, y = jnp.indices((size, size))
    checkerboard = c * (-1.0) ** (x + y)
    expected = volume * (8 * c**2 + M2 * c**2 + COUPLING * c**4)
    assert jnp.allclose(theory.action(checkerboard), expected)


def test_action_site_by_site():
    """An independent sum over links, on an odd lattice and a field without symmetry."""
    size, theory = 5, Phi4(5, COUPLING, M2)
    phi = np.asarray(jr.normal(jr.key(0), (size, size)))
    total = 0.0
    for x in range(size):
        for y in range(size):
            here = phi[x, y]
            total += (phi[(x + 1) % size, y] - here) ** 2 + (phi[x, (y + 1) % size] - here) ** 2
            total += M2 * here**2 + COUPLING * here**4
    assert jnp.allclose(theory.action(jnp.asarray(phi)), total)
    assert jnp.allclose(theory.log_prob(jnp.asarray(phi)), -total)


def test_force():
    theory = Phi4(4, COUPLING, M2)
    phi = jr.normal(jr.key(1), (4, 4))
    neighbours = sum(jnp.roll(phi, s, a) for s in (1, -1) for a in (0, 1))
    force = 2 * (4 + M2) * phi + 4 * COUPLING * phi**3 - 2 * neighbours
    assert jnp.allclose(jax.grad(theory.action)(phi), force)


@pytest.mark.parametrize(
    ("link", "square", "quartic", "rescale"),
    [
        (-1.0, (4 + M2) / 2, COUPLING / 4, 2**0.5),  # with 1/2 before kinetic and mass term
        (-2 * 0.3, 1 - 2 * 0.022, 0.022, None),  # hopping parameter 0.3 and lambda 0.022
    ],
)
def test_other_conventions_are_rescalings(link, square, quartic, rescale):
    """S = link sum phi phi' + square sum phi^2 + quartic sum phi^4 becomes ours with phi = a psi."""
    phi = jr.normal(jr.key(2), (6, 6))
    links = jnp.sum(phi * (jnp.roll(phi, -1, 0) + jnp.roll(phi, -1, 1)))
    theirs = link * links + square * jnp.sum(phi**2) + quartic * jnp.sum(phi**4)
    a = (-2 / link) ** 0.5
    if rescale is not None:
        assert a == pytest.approx(rescale)
    ours = Phi4(6, quartic * a**4, square * a**2 - 4)
    assert jnp.allclose(ours.action(phi / a), theirs)


def test_unbounded_actions_are_refused():
    with pytest.raises(ValueError, match="no lower bound"):
        Phi4(4, -1.0)
    with pytest.raises(ValueError, match="no lower bound"):
        Phi4(4, 0.0, -4.0)
    with pytest.raises(ValueError, match="must be finite"):
        Phi4(4, float("inf"))
    with pytest.raises(ValueError, match="at least 2 sites"):
        Phi4(1, 1.0)


@pytest.mark.parametrize(
    ("size", "count"), [(6, 10), (7, 10), (8, 15), (12, 28), (20, 66), (32, 153), (64, 561)]
)
def test_orbits(size, count):
    index, found = orbits(size)
    assert found == count
    assert index[0, 0] == 0
    assert np.sum(index == 0) == 1
    assert set(index.ravel()) == set(range(count))
    flipped = np.roll(index[::-1], 1, 0)
    assert np.array_equal(index, index.T)
    assert np.array_equal(index, flipped)
    # Two displacements share an orbit only if their distances along the axes agree up to order.
    folded = np.minimum(np.arange(size), size - np.arange(size))
    pairs = {tuple(sorted((folded[x], folded[y]))) for x in range(size) for y in range(size)}
    assert len(pairs) == count


@pytest.mark.parametrize("size", [5, 6, 12])
def test_transform_diagonalises_symmetric_convolutions(size):
    index, count = orbits(size)
    on_orbits = np.asarray(jr.normal(jr.key(3), (count,)))
    kernel = on_orbits[index]
    found = spectrum(jnp.asarray(kernel))
    assert np.allclose(found, np.fft.fft2(kernel))
    phi = jr.normal(jr.key(4), (size, size))
    convolved = np.fft.ifft2(np.fft.fft2(kernel) * np.fft.fft2(phi)).real
    assert np.allclose(transform(found * transform(phi)), convolved)
    assert np.allclose(transform(transform(phi)), phi)


@pytest.mark.parametrize("size", [5, 6, 12])
def test_free_field_is_the_free_theory(size):
    """Its log density is -S - ln Z with the known ln Z, and its draws have the known covariance."""
    m2 = 0.37
    base, theory = FreeField(size, m2), Phi4(size, 0.0, m2)
    modes = momenta_squared(size) + m2
    log_z = 0.5 * size**2 * np.log(np.pi) - 0.5 * np.log(modes).sum()
    x = jax.vmap(lambda k: base.draw(key=k)[0])(jr.split(jr.key(5), 20000))
    few = x[:50]
    assert np.allclose(jax.vmap(base.log_prob)(few), -jax.vmap(theory.action)(few) - log_z)
    score = jax.vmap(jax.grad(base.log_prob))(few)
    assert np.allclose(score, -jax.vmap(jax.grad(theory.action))(few))
    # <phi_0 phi_x> from momentum space, for three displacements (one not on an axis).
    covariance = np.fft.ifft2(1 / (2 * modes)).real
    for dx, dy in ((0, 0), (1, 0), (2, 1)):
        products = np.mean(x * np.roll(x, (-dx, -dy), (1, 2)), axis=(1, 2))
        error = products.std() / len(products) ** 0.5
        assert abs(products.mean() - covariance[dx, dy]) < 5 * error


def test_free_field_as_a_flow_has_weight_one():
    flow, theory = pg.Flow(FreeField(6, 0.5)), Phi4(6, 0.0, 0.5)
    found = pg.evaluate(flow, theory, key=jr.key(6), n=512)
    assert found.ess == pytest.approx(1.0, abs=1e-9)
    log_z = 18 * np.log(np.pi) - 0.5 * np.log(momenta_squared(6) + 0.5).sum()
    assert found.log_z == pytest.approx(log_z, abs=1e-9)


def test_free_field_needs_a_mass():
    with pytest.raises(ValueError, match="must be positive"):
        FreeField(4, 0.0)


@pytest.mark.parametrize(("size", "log_z"), [(2, 1.1731847), (3, 1.9698243), (4, 3.2183289)])
def test_transfer_matrix_agrees_with_the_published_digits(size, log_z):
    """What the other tests take for the truth is the truth."""
    assert transfer_matrix_log_z(size) == pytest.approx(log_z, abs=1e-6)


def test_reference_table_is_consistent():
    """Identities between columns, within their errors."""
    assert set(REFERENCE) == set(COUPLINGS)
    for size, row in REFERENCE.items():
        chi, connected, mean = (
            row[n] for n in ("susceptibility", "connected_susceptibility", "abs_magnetisation")
        )
        predicted = chi.value - size**2 * mean.value**2
        doubt = chi.error + connected.error + 2 * size**2 * mean.value * mean.error
        assert abs(connected.value - predicted) < 2 * doubt
        xi = (chi.value / row["lowest_mode"].value - 1) ** 0.5 / (2 * np.sin(np.pi / size))
        assert xi == pytest.approx(row["correlation_length"].value, rel=0.01)
        # The couplings were chosen for this.
        assert 3.8 < size / row["correlation_length"].value < 4.2
    assert known(6, 6.9, -4.0) == {}
    assert base_mass_squared(6, 6.975, -4.0) == pytest.approx(0.4704, abs=1e-4)
    assert base_mass_squared(16, 4.98, -4.0) == pytest.approx(1 / 16)
