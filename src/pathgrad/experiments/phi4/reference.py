"""Known values of the benchmark theories (m^2 = -4), by lattice size. No JAX here."""

from typing import NamedTuple

MASS_SQUARED = -4.0

# Couplings at which the correlation length is about a quarter of the lattice. 6 to 14 after Albergo, Kanwar,
# Shanahan (2019), the rest after Gerdes et al. (2022).
COUPLINGS = {
    6: 6.975,
    8: 6.008,
    10: 5.55,
    12: 5.276,
    14: 5.113,
    20: 4.807,
    32: 4.572,
    64: 4.398,
}


class Known(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float


def _row(*numbers: float) -> dict[str, Known]:
    names = (
        "log_z",
        "phi_2",
        "phi_4",
        "abs_magnetisation",
        "susceptibility",
        "connected_susceptibility",
        "binder",
        "lowest_mode",
        "mass_times_size",
        "correlation_length",
    )
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return {name: Known(*pair) for name, pair in zip(names, pairs, strict=True)}


# Monte Carlo (Metropolis with embedded clusters, 100 jackknife blocks; log Z by thermodynamic integration).
# The definitions are those of `observables`. log Z at sizes 6, 8 and 10 and phi^2, phi^4 and chi_2 at size 6
# are exact, from the transfer matrix; log Z at 12 and 20 is known better from the weights of trained flows.
REFERENCE = {
    6: _row(
        6.984948, 1e-6,  0.161387, 1e-6,  0.052573, 1e-6,  0.14150, 3e-5,  1.06287, 1e-5,
        0.3424, 1e-4,  0.1918, 2e-4,  0.3322, 1e-4,  3.965, 0.003,  1.4834, 5e-4,
    ),
    8: _row(
        15.98649, 3e-5,  0.18385, 4e-5,  0.06675, 2e-5,  0.1422, 1e-4,  1.895, 0.003,
        0.601, 0.001,  0.209, 0.001,  0.5676, 3e-4,  3.969, 0.009,  1.998, 0.002,
    ),
    10: _row(
        28.197, 0.002,  0.19904, 4e-5,  0.07699, 3e-5,  0.1413, 1e-4,  2.912, 0.005,
        0.915, 0.002,  0.220, 0.001,  0.8584, 5e-4,  3.97, 0.01,  2.503, 0.003,
    ),
    12: _row(
        43.7487, 0.0017,  0.21046, 5e-5,  0.08498, 3e-5,  0.1404, 2e-4,  4.124, 0.009,
        1.287, 0.002,  0.227, 0.001,  1.207, 0.001,  3.95, 0.01,  3.003, 0.005,
    ),
    14: _row(
        62.33, 0.01,  0.21837, 5e-5,  0.09066, 4e-5,  0.1372, 2e-4,  5.366, 0.013,
        1.677, 0.004,  0.225, 0.001,  1.597, 0.001,  4.04, 0.02,  3.452, 0.006,
    ),
    20: _row(
        138.954, 0.004,  0.23721, 6e-5,  0.10453, 4e-5,  0.1353, 2e-4,  10.60, 0.03,
        3.28, 0.01,  0.238, 0.001,  3.102, 0.004,  3.99, 0.03,  4.97, 0.01,
    ),
    32: _row(
        382.32, 0.05,  0.25665, 9e-5,  0.11932, 6e-5,  0.1321, 4e-4,  25.7, 0.1,
        7.79, 0.04,  0.253, 0.002,  7.34, 0.02,  3.93, 0.06,  8.06, 0.03,
    ),
    64: _row(
        1619.0, 0.2,  0.2761, 1e-4,  0.13449, 7e-5,  0.1230, 7e-4,  89.2, 0.9,
        27.2, 0.2,  0.254, 0.003,  25.7, 0.1,  4.1, 0.2,  16.0, 0.1,
    ),
}  # fmt: skip


def known(size: int, coupling: float, mass_squared: float) -> dict[str, Known]:
    """Return what is known of a theory; empty if it is not one of the benchmark's."""
    if mass_squared != MASS_SQUARED or COUPLINGS.get(size) != coupling:
        return {}
    return REFERENCE[size]


def base_mass_squared(size: int, coupling: float, mass_squared: float) -> float:
    r"""Return $M^2$ of a free field like the theory.

    $1 / 2\chi_2$ where that is known, else that of a correlation length of a quarter of the lattice.
    """
    there = known(size, coupling, mass_squared)
    return 1 / (2 * there["susceptibility"].value) if there else (4 / size) ** 2
