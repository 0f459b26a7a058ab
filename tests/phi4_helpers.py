"""Lattice fields to try things on, exact answers by a method that has nothing to do with flows, and runs."""

import functools

import equinox as eqx
import jax.random as jr
import numpy as np

import pathgrad as pg
from pathgrad.experiments.phi4.field import LatticeField

from . import run_helpers
from .run_helpers import make_evaluation, rows_of

COUPLING = 6.975


def rough_field(size, *, time_kernels=3, features=5, channels=3, scale=0.3, key=1):
    """A field that is far from zero, with every parameter in use."""
    zero = LatticeField.zero(
        size, time_kernels=time_kernels, time_bond=2, features=features, channels=channels, key=jr.key(key)
    )
    kernel = scale * jr.normal(jr.key(key + 1), zero.kernel.shape)
    return eqx.tree_at(lambda f: f.kernel, zero, kernel)


def _gauss_nodes(coupling, n):
    """Nodes and weights of Gauss's quadrature for exp(-coupling phi^4), by Lanczos and Golub-Welsch."""
    x, w = np.polynomial.legendre.leggauss(400)
    x, w = 2.5 * x, 2.5 * w * np.exp(-coupling * (2.5 * x) ** 4)
    basis = [np.sqrt(w / w.sum())]
    diagonal, off = [], []
    for _ in range(n):
        v = x * basis[-1]
        diagonal.append(v @ basis[-1])
        for b in basis * 2:  # twice, to stay orthogonal
            v = v - (v @ b) * b
        off.append(np.linalg.norm(v))
        basis.append(v / off[-1])
    jacobi = np.diag(diagonal) + np.diag(off[: n - 1], 1) + np.diag(off[: n - 1], -1)
    nodes, vectors = np.linalg.eigh(jacobi)
    return nodes, w.sum() * vectors[0] ** 2


@functools.cache
def transfer_matrix_log_z(size, coupling=COUPLING):
    """Return ln Z at m^2 = -4 as the trace of a power of the transfer matrix between rows of the lattice."""
    nodes, weights = _gauss_nodes(coupling, {2: 14, 3: 10, 4: 7}[size])
    rows = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), -1).reshape(-1, size)
    measure = np.stack(np.meshgrid(*[weights] * size, indexing="ij"), -1).reshape(-1, size).prod(1)
    measure *= np.exp(2 * np.sum(rows * np.roll(rows, 1, axis=1), axis=1))
    root = np.sqrt(measure)
    matrix = root[:, None] * np.exp(2 * rows @ rows.T) * root[None, :]
    # Symmetric, so the trace of a product is a sum of squares of entries.
    power = np.linalg.matrix_power(matrix, size // 2)
    other = power if size % 2 == 0 else power @ matrix
    return float(np.log(np.sum(power * other)))


# Run directories made up for tests of tables and figures, opened.


def make_run(path, ess=(0.2, 0.5, 0.9), *, seconds=1.0, **options):
    """Write a run in blocks of ten steps, each of so many seconds."""
    run_helpers.make_run(path, rows_of(ess, seconds), **options)
    return pg.Run.open(path)


def evaluated(run, *, arrays=None, **numbers):
    """Write what an evaluation leaves: one of two known observables is `bias` errors off."""
    kept, _ = make_evaluation(run.directory, **numbers)
    np.savez(run.directory.output("evaluation.npz"), allow_pickle=False, **(kept | (arrays or {})))
    return pg.Run.open(run.path)
