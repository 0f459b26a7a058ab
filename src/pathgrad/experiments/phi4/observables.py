r"""Measurements of lattice fields, and the observables that follow from their averages.

Here $V = L^2$, $M = \frac1V \sum_x \phi_x$ and $\phi_k = \sum_x e^{ikx} \phi_x$. The two-point function
is $G(\Delta) = \frac1V \sum_x \langle \phi_x \phi_{x+\Delta} \rangle$, and its spectrum
$\tilde G(k) = \langle |\phi_k|^2 \rangle / V$; so $\tilde G(0) = \chi_2 = V \langle M^2 \rangle$.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .lattice import orbit_means, orbits, spectrum, transform
from .theory import Phi4


def measure(theory: Phi4, phi: Float[Array, "batch size size"]) -> dict[str, Float[Array, "batch ..."]]:
    r"""Measure each field of a batch; `derived` gets all observables from averages of these numbers.

    - `phi_2`, `phi_4`: mean over the sites of $\phi^2$, $\phi^4$.
    - `magnetisation`: $M$, with its sign.
    - `action_density`: $S / V$.
    - `lowest_mode`: $|\phi_k|^2 / V$ at $k = 2\pi/L$, averaged over both axes.
    - `two_point`: $C(t) = \sum_y G(t, y)$ for $t = 0 \dots L/2$, averaged over both axes; the sum sets the
      momentum along the other axis to zero.
    - `power`: $|\phi_k|^2 / V$ for each momentum, once averaged over the point operations; see `plane`.
    """
    volume = theory.size**2
    square = phi * phi
    # Sums over the slices of the lattice, with either axis as time.
    slices = jnp.stack([phi.sum(axis=-1), phi.sum(axis=-2)], axis=1)
    modes = jnp.fft.rfft(slices, axis=-1)
    along = jnp.mean(modes.real**2 + modes.imag**2, axis=1) / volume
    return {
        "phi_2": square.mean(axis=(-1, -2)),
        "phi_4": (square * square).mean(axis=(-1, -2)),
        "magnetisation": phi.mean(axis=(-1, -2)),
        "action_density": jax.vmap(theory.action)(phi) / volume,
        "lowest_mode": along[:, 1],
        "two_point": jnp.fft.irfft(along, theory.size, axis=-1)[:, : theory.size // 2 + 1],
        # With cas = cos + sin the squares at (k, l), (-k, l), (k, -l) and (-k, -l) add up to those of the
        # Fourier transform.
        "power": transform(phi) ** 2,
    }


# Averages that `derived` needs, besides the two-point function.
AVERAGED = (
    "phi_2",
    "phi_4",
    "abs_magnetisation",
    "magnetisation_2",
    "magnetisation_4",
    "action_density",
    "lowest_mode",
)


def averaged(measured: dict[str, np.ndarray]) -> np.ndarray:
    """Return one row for each field: the numbers in `AVERAGED`, then the two-point function."""
    m = measured["magnetisation"]
    powers = {"abs_magnetisation": np.abs(m), "magnetisation_2": m**2, "magnetisation_4": m**4}
    columns = [(powers | measured)[name] for name in AVERAGED]
    return np.concatenate([np.stack(columns, axis=1), measured["two_point"]], axis=1)


def derived(means: np.ndarray, theory: Phi4) -> dict[str, Any]:
    r"""Return observables from averages (last axis) of the rows of `averaged`, by their names in `reference`.

    - `phi_2`, `phi_4`, `abs_magnetisation`: $\langle\phi^2\rangle$, $\langle\phi^4\rangle$ and
      $\langle|M|\rangle$.
    - `susceptibility`: $\chi_2 = V \langle M^2 \rangle$.
    - `connected_susceptibility`: $V (\langle M^2 \rangle - \langle |M| \rangle^2)$.
    - `binder`: $1 - \langle M^4 \rangle / 3 \langle M^2 \rangle^2$.
    - `lowest_mode`: $\tilde G$ at $k = 2\pi/L$ along an axis.
    - `mass_times_size`: $L\, m(L/2)$, from `effective_mass`.
    - `correlation_length`: $\sqrt{\chi_2 / \tilde G - 1} / 2 \sin(\pi / L)$, by the second moment.
    - `ward_identity`: $\langle S \rangle / V + \lambda \langle \phi^4 \rangle$, which is always 1/2: rescale
      all fields in $Z$ to see it.
    - `two_point`: $C(t)$ for $t = 0 \dots L/2$.
    - `effective_mass`: $m(t) = \operatorname{arcosh}\{[C(t-1) + C(t+1)] / 2 C(t)\}$ for $t = 1 \dots L/2$.

    A value is NaN where noise has pushed the argument of a root or an arcosh out of its domain.
    """
    size, volume = theory.size, theory.size**2
    mean = {name: means[..., i] for i, name in enumerate(AVERAGED)}
    two_point = means[..., len(AVERAGED) :]
    chi = volume * mean["magnetisation_2"]
    # The lattice is periodic: one step past the middle is C(L - L//2 - 1).
    last = two_point[..., size - size // 2 - 1, None]
    after = np.concatenate([two_point[..., 2:], last], axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mass = np.arccosh((two_point[..., :-1] + after) / (2 * two_point[..., 1:]))
        length = np.sqrt(chi / mean["lowest_mode"] - 1) / (2 * np.sin(np.pi / size))
        binder = 1 - mean["magnetisation_4"] / (3 * mean["magnetisation_2"] ** 2)
    return {
        "phi_2": mean["phi_2"],
        "phi_4": mean["phi_4"],
        "abs_magnetisation": mean["abs_magnetisation"],
        "susceptibility": chi,
        "connected_susceptibility": chi - volume * mean["abs_magnetisation"] ** 2,
        "binder": binder,
        "lowest_mode": mean["lowest_mode"],
        "mass_times_size": size * mass[..., -1],
        "correlation_length": length,
        "ward_identity": mean["action_density"] + theory.coupling * mean["phi_4"],
        "two_point": two_point,
        "effective_mass": mass,
    }


def plane(power: np.ndarray) -> np.ndarray:
    r"""Return $G(\Delta)$ for displacements from 0 to L/2 along each axis, from averages of `power`.

    Momenta are along the last two axes; any axes before them are kept.
    """
    size = power.shape[-1]
    half = size // 2 + 1
    # The transform is its own inverse up to 1/V, and an average over orbits has the symmetry it requires.
    full = np.asarray(spectrum(jnp.asarray(orbit_means(power)[..., orbits(size)[0]])))
    return full[..., :half, :half] / size**2
