"""Measurements on lattice fields, and Markov chains over draws: closed forms, and loops written out."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._numbers.metropolis import walk
from pathgrad.experiments.phi4 import markov
from pathgrad.experiments.phi4.lattice import momenta_squared
from pathgrad.experiments.phi4.observables import AVERAGED, averaged, derived, measure, plane
from pathgrad.experiments.phi4.reference import REFERENCE
from pathgrad.experiments.phi4.theory import Phi4

from .helpers import TOLERANCE

ALGEBRA = TOLERANCE["algebra"]


def measured(theory, phi):
    return jax.tree.map(np.asarray, eqx.filter_jit(measure)(theory, jnp.asarray(phi)))


def free_means(size, mass_squared):
    """Averages in the free theory: each mode is normal with variance 1 / 2(k^2 + m^2)."""
    spectrum = 0.5 / (momenta_squared(size) + mass_squared)
    phi_2, m_2 = spectrum.mean(), spectrum[0, 0] / size**2
    cosines = np.cos(2 * np.pi * np.outer(np.arange(size // 2 + 1), np.arange(size)) / size)
    numbers = {
        "phi_2": phi_2,
        "phi_4": 3 * phi_2**2,
        "abs_magnetisation": math.sqrt(2 * m_2 / math.pi),
        "magnetisation_2": m_2,
        "magnetisation_4": 3 * m_2**2,
        "action_density": 0.5,
        "lowest_mode": spectrum[1, 0],
    }
    return np.array([*(numbers[name] for name in AVERAGED), *(cosines @ spectrum[0] / size)])


def by_loops(phi):
    """The two-point function of one field, at every displacement and summed across, by its definition."""
    size = len(phi)
    shifted = np.array(
        [[np.mean(phi * np.roll(phi, (i, j), (0, 1))) for j in range(size)] for i in range(size)]
    )
    mirrored = (shifted + shifted.T) / 2  # both axes
    reflected = (mirrored + np.roll(mirrored[::-1], 1, 0)) / 2
    return mirrored.sum(1), (reflected + reflected.T) / 2


@pytest.mark.parametrize("size", [4, 5])
def test_measurements_against_loops_over_shifts(size):
    theory = Phi4(size, 0.7, -1.3)
    phi = np.random.default_rng(1).normal(size=(3, size, size)) + 0.2
    found = measured(theory, phi)
    half = size // 2 + 1
    waves = np.exp(2j * np.pi * np.arange(size) / size)
    for i, one in enumerate(phi):
        summed, everywhere = by_loops(one)
        np.testing.assert_allclose(found["two_point"][i], summed[:half], atol=ALGEBRA)
        np.testing.assert_allclose(plane(found["power"][i]), everywhere[:half, :half], atol=ALGEBRA)
        modes = [waves @ one.sum(axis) for axis in (0, 1)]
        lowest = np.mean(np.abs(modes) ** 2) / size**2
        np.testing.assert_allclose(found["lowest_mode"][i], lowest, rtol=ALGEBRA)
        np.testing.assert_allclose(found["phi_2"][i], np.mean(one**2), rtol=ALGEBRA)
        np.testing.assert_allclose(found["phi_4"][i], np.mean(one**4), rtol=ALGEBRA)
        np.testing.assert_allclose(found["magnetisation"][i], one.mean(), rtol=ALGEBRA)
        action = float(theory.action(jnp.asarray(one)))
        np.testing.assert_allclose(found["action_density"][i] * size**2, action, rtol=ALGEBRA)


def test_constant_field_and_checkerboard():
    size, c = 4, 0.6
    theory = Phi4(size, 0.7, -1.3)
    board = c * (-1.0) ** np.add.outer(np.arange(size), np.arange(size))
    found = measured(theory, np.stack([np.full((size, size), c), board]))
    rows = averaged(found)
    flat = derived(rows[0], theory)
    assert flat["susceptibility"] == pytest.approx(size**2 * c**2)
    assert flat["connected_susceptibility"] == pytest.approx(0, abs=ALGEBRA)
    assert flat["binder"] == pytest.approx(2 / 3)
    assert flat["lowest_mode"] == pytest.approx(0, abs=ALGEBRA)
    assert flat["phi_4"] == pytest.approx(c**4)
    np.testing.assert_allclose(flat["two_point"], size * c**2)  # a sum across
    np.testing.assert_allclose(flat["effective_mass"], 0, atol=1e-6)
    # S/V = m^2 c^2 + lambda c^4, and 8 c^2 more on the checkerboard.
    site = -1.3 * c**2 + 0.7 * c**4
    np.testing.assert_allclose(found["action_density"], [site, site + 8 * c**2], rtol=ALGEBRA)
    np.testing.assert_allclose(found["magnetisation"], [c, 0], atol=ALGEBRA)
    np.testing.assert_allclose(found["two_point"][1], 0, atol=ALGEBRA)
    signs = (-1.0) ** np.add.outer(np.arange(3), np.arange(3))
    np.testing.assert_allclose(plane(found["power"][1]), signs * c**2, atol=ALGEBRA)


@pytest.mark.parametrize("size", [2, 5, 6, 12])
def test_what_follows_from_averages_of_the_free_theory(size):
    mass_squared = 0.37
    theory = Phi4(size, 0.0, mass_squared)
    found = derived(free_means(size, mass_squared), theory)
    # On the lattice the free two-point function is a cosh at every distance, with 2 (cosh m - 1) = m^2.
    mass = math.acosh(1 + mass_squared / 2)
    np.testing.assert_allclose(found["effective_mass"], np.full(size // 2, mass), rtol=1e-9)
    assert found["mass_times_size"] == pytest.approx(size * mass)
    assert found["correlation_length"] == pytest.approx(1 / math.sqrt(mass_squared))
    assert found["susceptibility"] == pytest.approx(0.5 / mass_squared)
    assert found["connected_susceptibility"] == pytest.approx(0.5 / mass_squared * (1 - 2 / np.pi))
    assert found["binder"] == pytest.approx(0, abs=ALGEBRA)
    assert found["ward_identity"] == pytest.approx(0.5)
    # Leading axes are kept.
    several = derived(np.stack([free_means(size, m) for m in (0.2, mass_squared)]), theory)
    np.testing.assert_allclose(several["binder"], 0, atol=ALGEBRA)
    np.testing.assert_allclose(several["effective_mass"][1], found["effective_mass"])


def test_names_are_those_of_the_known_values():
    found = derived(free_means(6, 0.37), Phi4(6, 0.0, 0.37))
    assert set(REFERENCE[6]) - {"log_z"} < set(found)


def test_a_mass_that_noise_has_made_imaginary_is_not_a_number():
    means = free_means(4, 0.37)
    means[-1] = 1.1 * means[-2]  # C(2) > C(1)
    found = derived(means, Phi4(4, 0.0, 0.37))
    assert np.isnan(found["mass_times_size"])
    assert np.isfinite(found["correlation_length"])


class Decisions(np.random.Generator):
    """In place of random numbers."""

    def __init__(self, *numbers):
        super().__init__(np.random.PCG64(0))
        self.numbers = np.array(numbers)

    def random(self, n):  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.numbers[:n]


def test_a_rejection_counts_the_state_again():
    weights = np.array([1.0, 0.5, 0.5, 4.0, 1.0, 2.0])
    # Accepted where 1 - u < w'/w; the first number is not looked at.
    chain = walk(np.log(weights), Decisions(0.9, 0.4, 0.6, 0.0, 0.7, 0.51))
    assert chain.held.tolist() == [0, 0, 2, 3, 3, 5]
    assert chain.acceptance == 3 / 5
    # 2^2 + 1 + 2^2 + 1 over twice the length.
    assert markov.tau_of_rejections(chain) == 10 / 12


def test_a_chain_by_key():
    log_weight = np.random.default_rng(1).normal(size=200)
    one, again = (pg.metropolis(log_weight, key=jax.random.key(3)) for _ in range(2))
    assert one.held.tolist() == again.held.tolist()
    assert one.held.tolist() != pg.metropolis(log_weight, key=jax.random.key(4)).held.tolist()
    assert 0.3 < one.acceptance < 0.8
    for wrong in ([0.0, np.nan], [], 1.0):
        with pytest.raises(pg.ArgumentError, match="one number for each draw"):
            pg.metropolis(wrong, key=jax.random.key(0))


def test_zero_weights_are_left_at_once_and_never_entered():
    log_weight = np.array([-np.inf, 0.0, -np.inf, 0.0, -np.inf])
    chain = walk(log_weight, np.random.default_rng(0))
    assert chain.held.tolist() == [0, 1, 1, 3, 3]


def test_metropolis_has_the_right_equilibrium():
    rng = np.random.default_rng(2)
    weight = np.array([1.0, 2.0, 5.0])
    state = rng.integers(3, size=100_000)
    chain = walk(np.log(weight)[state], rng)
    for i, probability in enumerate(weight / weight.sum()):
        mean = markov.autocorrelated_mean((state[chain.held] == i).astype(float))
        assert abs(mean.value - probability) < TOLERANCE["z"] * mean.error
        assert mean.error < 0.005


@pytest.mark.parametrize("spread", [0.2, 0.5, 1.0])
def test_acceptance_of_normal_weights_and_memory_of_a_bystander(spread):
    rng = np.random.default_rng(3)
    log_weight = rng.normal(-(spread**2) / 2, spread, size=200_000)
    chain = walk(log_weight, rng)
    predicted = markov.gaussian_acceptance(math.exp(-(spread**2)))
    assert predicted == pytest.approx(math.erfc(spread / 2))
    assert abs(chain.acceptance - predicted) < 0.005
    # What does not know of the weights is remembered through rejections alone.
    mean = markov.autocorrelated_mean(rng.normal(size=log_weight.size)[chain.held])
    assert mean.tau == pytest.approx(markov.tau_of_rejections(chain), rel=0.06)
    assert abs(mean.value) < TOLERANCE["z"] * mean.error


@pytest.mark.parametrize("memory", [-0.4, 0.0, 0.8])
def test_windowed_estimate_against_a_known_process(memory):
    n, chains = 2**14, 12
    noise = np.random.default_rng(4).normal(size=(n, chains)) * math.sqrt(1 - memory**2)
    x = np.empty_like(noise)
    x[0] = noise[0] / math.sqrt(1 - memory**2)
    for i in range(1, n):
        x[i] = memory * x[i - 1] + noise[i]
    found = [markov.autocorrelated_mean(x[:, i] + 3.0) for i in range(chains)]
    tau = (1 + memory) / (2 * (1 - memory))
    assert np.mean([mean.tau for mean in found]) == pytest.approx(tau, rel=0.05)
    error = math.sqrt(2 * tau / n)
    assert np.mean([mean.error for mean in found]) == pytest.approx(error, rel=0.05)
    squares = sum(((mean.value - 3) / mean.error) ** 2 for mean in found)
    assert 2.2 < squares < 32.9  # 0.1 % of chi-squared with 12 degrees of freedom on either side


def test_a_chain_that_does_not_move_does_not_know_its_error():
    mean = markov.autocorrelated_mean(np.full(10, 2.5))
    assert mean.value == 2.5
    assert math.isnan(mean.error)
    assert math.isnan(mean.tau)
    assert all(map(math.isnan, markov.autocorrelated_mean(np.array([1.0, np.nan]))))
