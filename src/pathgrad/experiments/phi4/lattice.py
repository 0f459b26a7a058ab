r"""The square periodic lattice: its point symmetries, its momenta, and a real Fourier transform."""

import functools

import numpy as np
from jaxtyping import Array, Float

# Up to this size one product with a V x V matrix is faster than two with an L x L one; at 12 it is slower.
_DENSE = 8


@functools.cache
def orbits(size: int) -> tuple[np.ndarray, int]:
    """Number the orbits of the displacements under the reflections and rotations of the square.

    Returns the number of each displacement's orbit, which is 0 for the origin, and how many orbits there are.
    """
    folded = np.minimum(np.arange(size), size - np.arange(size))
    low = np.minimum(folded[:, None], folded[None, :])
    high = np.maximum(folded[:, None], folded[None, :])
    # The unordered pairs low <= high, in the order (0, 0), (0, 1), (1, 1), (0, 2), ... As int32, since 64-bit
    # indices depend on whether double precision is on, and JAX mixes up the programs compiled for the two.
    numbers = (high * (high + 1) // 2 + low).astype(np.int32)
    return numbers, (size // 2 + 1) * (size // 2 + 2) // 2


def orbit_means(x: np.ndarray) -> np.ndarray:
    """Average over the members of each orbit; the last two axes are the lattice, any before are kept."""
    index, count = orbits(x.shape[-1])
    members = np.eye(count)[index.ravel()]
    return x.reshape(*x.shape[:-2], -1) @ (members / members.sum(axis=0))


@functools.cache
def _cas(size: int) -> np.ndarray:
    angle = 2 * np.pi * np.outer(np.arange(size), np.arange(size)) / size
    return (np.cos(angle) + np.sin(angle)) / np.sqrt(size)


def transform(x: Float[Array, "*channel size size"]) -> Float[Array, "*channel size size"]:
    r"""Apply the separable Hartley transform and transpose; its own inverse.

    A convolution with a kernel that is even along each axis becomes a product in this basis, as in the
    Fourier basis, but with real numbers and two small matrix products. The transposed result saves a copy; a
    kernel that is also symmetric under exchange of the axes has a symmetric spectrum, and is not affected.
    """
    size = x.shape[-1]
    matrix = _cas(size).astype(x.dtype)
    if size <= _DENSE:
        flat = x.reshape(*x.shape[:-2], size * size)
        return (flat @ np.kron(matrix, matrix)).reshape(x.shape).swapaxes(-1, -2)
    return (x @ matrix).swapaxes(-1, -2) @ matrix


def spectrum(kernel: Float[Array, "*channel size size"]) -> Float[Array, "*channel size size"]:
    r"""Return the spectrum $\hat K(k) = \sum_\Delta K(\Delta) \cos(k_1 \Delta_1) \cos(k_2 \Delta_2)$.

    The kernel must be symmetric under the eight point operations; the spectrum then is too.
    """
    return transform(kernel) * kernel.shape[-1]


@functools.cache
def momenta_squared(size: int) -> np.ndarray:
    r"""Return $\hat k^2 = \sum_\mu 4 \sin^2(k_\mu / 2)$, the spectrum of the lattice Laplacian."""
    one = 4 * np.sin(np.pi * np.arange(size) / size) ** 2
    return one[:, None] + one[None, :]
