"""The registry of what exists, the flows and targets to try it on, and where tolerances come from."""

import itertools

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import pytest
from jax.scipy.linalg import expm

import pathgrad as pg

# Leave the defaults: an interval that does not begin at 0 and is not of length 1.
T0, T1 = 0.3, 2.0
RTOL = 1e-9

TOLERANCE = {
    "algebra": 1e-12,
    # Fixed steps were chosen so that their error is below that of the adaptive solves.
    "solve": 1e2 * RTOL,
    # Backsolve and the second copy solve the equation again: errors of two solves.
    "two solves": 1e3 * RTOL,
    # Monte Carlo at a fixed seed.
    "z": 5.0,
}

ESTIMATORS = {
    "path": pg.PathGradient(),
    "total": pg.TotalGradient(),
    "two-copy": pg.TwoCopyGradient(),
}
DIVERGENCES = {
    "closed": pg.ClosedForm(),
    "exact": pg.Exact(),
    "hutchinson": pg.Hutchinson(),
    "hutchinson-3": pg.Hutchinson(probes=3, noise="gaussian"),
}
INTEGRATORS = {
    "rk4": pg.FixedStep(100),
    "dopri5": pg.Adaptive(RTOL, RTOL, "dopri5"),
    "tsit5": pg.Adaptive(RTOL, RTOL, "tsit5"),
}
ADJOINTS = {"discrete": pg.Discrete(), "backsolve": pg.Backsolve()}


def every(*registries):
    """Parametrise over all combinations of the registries, by name."""
    return [
        pytest.param(*names, id="-".join(names), marks=_marks(names))
        for names in itertools.product(*registries)
    ]


# Adaptive combinations take long to compile for all contracts. This one runs every day; the rest of
# the product runs in `make test-slow`.
ADAPTIVE_EVERY_DAY = (("closed", "dopri5", "backsolve"),)


def _marks(names):
    marks = [
        pytest.mark.xdist_group("-".join(names))
    ]  # what shares compiled functions stays together
    several = "hutchinson-3" in names and names[1:] != ("rk4", "discrete")
    if several or ("rk4" not in names and names not in ADAPTIVE_EVERY_DAY):
        marks.append(pytest.mark.slow)
    return marks


class BentField(pg.AbstractTractableField):
    """dx/dt = A x + b + bend * curved(t, x).

    Everything about it is known where `bend` is zero. The same compiled functions serve both cases.
    """

    matrix: jnp.ndarray
    shift: jnp.ndarray
    bend: jnp.ndarray
    curved: pg.MLPField

    def __call__(self, t, x):
        return self.matrix @ x + self.shift + self.bend * self.curved(t, x)

    def prepare(self):
        return jnp.trace(self.matrix), self.curved.prepare()

    def velocity_and_divergence(self, t, x, prepared):
        trace, inner = prepared
        velocity, divergence = self.curved.velocity_and_divergence(t, x, inner)
        affine = self.matrix @ x + self.shift
        return affine + self.bend * velocity, trace + self.bend * divergence


class SkewedTarget(eqx.Module):
    """An asymmetric density in two dimensions with a trainable leaf, or (`skew` zero) a known normal."""

    tilt: jnp.ndarray
    skew: jnp.ndarray
    normal: pg.FullNormal

    def log_prob(self, x):
        skewed = jnp.vdot(self.tilt, jnp.tanh(x)) - 0.3 * x[0] ** 2 * x[1]
        return self.normal.log_prob(x) + self.skew * skewed + 4.0


def bent_field(bend=1.0):
    matrix, shift = jnp.array([[0.3, -0.8], [0.5, -0.4]]), jnp.array([0.7, -0.2])
    return BentField(matrix, shift, jnp.asarray(bend), curved_field(depth=1))


def trained_base():
    return pg.DiagonalNormal(jnp.array([0.3, -0.5]), jnp.array([-0.2, 0.4]))


def affine_solution(field, t0, t1):
    """Return the matrix and shift of the map that an affine field makes, by one matrix exponential."""
    d = field.shift.size
    block = jnp.zeros((d + 1, d + 1)).at[:d, :d].set(field.matrix).at[:d, d].set(field.shift)
    whole = expm((t1 - t0) * block)
    return whole[:d, :d], whole[:d, d]


def affine_normal(base, field, t0, t1):
    """Return mean and covariance of a diagonal normal carried along an affine field."""
    matrix, shift = affine_solution(field, t0, t1)
    variance = jnp.diag(jnp.exp(2 * base.log_scale))
    return matrix @ base.mean + shift, matrix @ variance @ matrix.T


def curved_field(depth=2):
    return pg.MLPField(dim=2, width=5, depth=depth, key=jr.key(7), output_scale=2.0)


def bent_flow(divergence="closed", integrator="rk4", adjoint="discrete", bend=1.0, field=None):
    cnf = pg.CNF(
        bent_field(bend) if field is None else field,
        DIVERGENCES[divergence],
        INTEGRATORS[integrator],
        ADJOINTS[adjoint],
        T0,
        T1,
    )
    return pg.Flow(trained_base(), [cnf])


def straight_density():
    """The density of `bent_flow` with `bend` zero."""
    return pg.FullNormal.from_covariance(*affine_normal(trained_base(), bent_field(0.0), T0, T1))


def skewed_target(skew=1.0):
    return SkewedTarget(jnp.array([0.8, -0.4]), jnp.asarray(skew), straight_density())


def ravel(tree):
    """Flatten the arrays of a tree into one vector."""
    from jax.flatten_util import ravel_pytree

    return ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0]


def has_marks(text):
    """Whether a text has marks of arguments left (Unicode of private use), which no reader may see."""
    return any("\ue000" <= letter <= "\uf8ff" for letter in text)
