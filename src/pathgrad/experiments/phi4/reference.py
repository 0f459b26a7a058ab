"""Known values of the benchmark theories (m^2 = -4), by lattice size. No JAX here."""

import csv
import importlib.resources
from typing import NamedTuple

MASS_SQUARED = -4.0

# Names of the observables for readers; all but the last have a known value in `REFERENCE`.
WORDS = {
    "log_z": "log Z",
    "phi_2": "⟨φ²⟩",
    "phi_4": "⟨φ⁴⟩",
    "abs_magnetisation": "⟨|M|⟩",
    "susceptibility": "χ₂",
    "connected_susceptibility": "χ₂ connected",
    "binder": "Binder cumulant",
    "lowest_mode": "lowest mode",
    "mass_times_size": "m L",
    "correlation_length": "correlation length",
    "ward_identity": "Ward identity",
}


class Known(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float


# Monte Carlo (Metropolis with embedded clusters, 100 jackknife blocks; log Z by thermodynamic integration).
# Definitions as in `observables`. log Z at sizes 6, 8, 10, and phi^2, phi^4 and chi_2 at size 6, are exact,
# from the transfer matrix; log Z at 12 and 20 is from the weights of trained flows, which are more precise.
_TABLE = importlib.resources.files(__package__ or "").joinpath("reference.csv").read_text("utf-8")
_ROWS = {int(row["size"]): row for row in csv.DictReader(_TABLE.splitlines())}
REFERENCE = {
    size: {name: Known(float(row[name]), float(row[f"{name}_err"])) for name in tuple(WORDS)[:-1]}
    for size, row in _ROWS.items()
}
# Couplings at which the correlation length is about a quarter of the lattice: sizes 6 to 14 after Albergo,
# Kanwar, Shanahan (2019), the rest after Gerdes et al. (2022).
COUPLINGS = {size: float(row["coupling"]) for size, row in _ROWS.items()}


def known(size: int, coupling: float, mass_squared: float) -> dict[str, Known]:
    """Return the known values of a theory; empty if it is not part of the benchmark."""
    if mass_squared != MASS_SQUARED or COUPLINGS.get(size) != coupling:
        return {}
    return REFERENCE[size]


def base_mass_squared(size: int, coupling: float, mass_squared: float) -> float:
    r"""Return $M^2$ of a free field that resembles the theory.

    $1 / 2\chi_2$ where that is known, else $(4/L)^2$: a correlation length of a quarter of the lattice.
    """
    references = known(size, coupling, mass_squared)
    return 1 / (2 * references["susceptibility"].value) if references else (4 / size) ** 2
