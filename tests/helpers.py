"""The registry of what exists, the flows and targets to try it on, and where tolerances come from."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import pytest
from jax.flatten_util import ravel_pytree
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

ESTIMATORS = {"path": pg.PathGradient(), "total": pg.TotalGradient(), "two-copy": pg.TwoCopyGradient()}
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
    """An asymmetric density with a trainable leaf, or (`skew` zero) a known one."""

    tilt: jnp.ndarray
    skew: jnp.ndarray
    density: Any

    def log_prob(self, x):
        skewed = jnp.vdot(self.tilt, jnp.tanh(x)) - 0.3 * x[0] ** 2 * x[1]
        return self.density.log_prob(x) + self.skew * skewed + 4.0


class FrozenCopy(eqx.Module):
    """A flow as a target: known by its inverse, and nothing to train."""

    flow: pg.Flow

    def log_prob(self, x):
        return pg.freeze(self.flow).exact().log_prob(x[None], throw=False)[0]


def bent_field(bend=1.0):
    matrix, shift = jnp.array([[0.3, -0.8], [0.5, -0.4]]), jnp.array([0.7, -0.2])
    return BentField(matrix, shift, jnp.asarray(bend), curved_field(depth=1))


def trained_base():
    return pg.DiagonalNormal(jnp.array([0.3, -0.5]), jnp.array([-0.2, 0.4]))


def affine_solution(field, t0, t1):
    """Return the matrix and shift of the map of an affine field, by one matrix exponential."""
    d = field.shift.size
    block = jnp.zeros((d + 1, d + 1)).at[:d, :d].set(field.matrix).at[:d, d].set(field.shift)
    whole = expm((t1 - t0) * block)
    return whole[:d, :d], whole[:d, d]


def affine_normal(base, matrix, shift):
    """Return mean and covariance of a diagonal normal after an affine map."""
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
    return pg.FullNormal.from_covariance(*affine_normal(trained_base(), *_straight()))


def skewed_target():
    return FLOWS["closed-rk4-discrete"].target()


class Case(NamedTuple):
    """A flow that every contract is tried on.

    Attributes:
        flow: Of the bend of its field, if it has one.
        linear: Returns matrix and shift of the whole map at `bend` zero, where it is an affine one.
    """

    flow: Callable[[float], pg.Flow]
    linear: Callable[[], Any] | None = None

    @property
    def density(self):
        """The flow's density at `bend` zero, computed independently where that is possible."""
        flow = self.flow(0.0)
        if self.linear is None:
            return FrozenCopy(flow)
        return pg.FullNormal.from_covariance(*affine_normal(flow.base, *self.linear()))

    def target(self, skew=1.0):
        tilt = jnp.array([0.8, -0.4, 0.5])[: self.flow(0.0).shape[0]]
        return SkewedTarget(tilt, jnp.asarray(skew), self.density)


def affine(sign=1.0):
    return pg.Affine(jnp.array([0.4, -0.9]), sign * jnp.array([-0.5, 0.3]))


def full_affine():
    return pg.FullAffine([0.7, -0.2], [[0.3, -0.8], [0.5, 1.4]])


def low_rank_affine():
    return pg.LowRankAffine([0.7, -0.2], [0.5, 2.0], [[0.6], [0.8]], [3.0])


def affine_in_space():
    return pg.Affine(jnp.array([0.4, -0.9, 0.1]), jnp.array([-0.5, 0.3, 0.2]))


def coupling(dim=2, seed=0, **options):
    """A coupling that is not near the identity."""
    return pg.AffineCoupling(dim, 4, 1, key=jr.key(seed), output_scale=2.0, bound=1.5, **options)


def spatial_base():
    return pg.DiagonalNormal(jnp.array([0.3, -0.5, 0.2]), jnp.array([-0.2, 0.4, 0.1]))


def cnf(bend, divergence="closed", adjoint="discrete"):
    (only,) = bent_flow(divergence, "rk4", adjoint, bend).transforms
    return only


def bend_profiles(field):
    """Give a tied field functions that are not zero, and change with time."""
    start_key, rate_key = jr.split(jr.key(9))
    shape = field.profiles.start.shape
    values = 0.3 * jr.normal(start_key, shape), 0.2 * jr.normal(rate_key, shape)
    return eqx.tree_at(lambda f: (f.profiles.start, f.profiles.rate), field, values)


def tied_field():
    return bend_profiles(pg.TiedField(3, 4, key=jr.key(5)))


def correlated_field():
    return bend_profiles(pg.CorrelatedField([[1.3, 0.4, -0.2], [0.4, 0.8, 0.1], [-0.2, 0.1, 0.6]]))


def plane(*transforms):
    return pg.Flow(trained_base(), transforms)


def space(*transforms):
    return pg.Flow(spatial_base(), transforms)


def _straight():
    return affine_solution(bent_field(0.0), T0, T1)


def _stretched(bijection):
    return jnp.diag(jnp.exp(bijection.log_scale)), bijection.shift


def _in_a_row(*maps):
    matrix, shift = jnp.eye(2), jnp.zeros(2)
    for more, offset in maps:
        matrix, shift = more @ matrix, more @ shift + offset
    return matrix, shift


BIJECTIONS = {
    "affine": Case(lambda bend: plane(affine()), lambda: _stretched(affine())),
    "affine-full": Case(
        lambda bend: plane(affine(), full_affine()),
        lambda: _in_a_row(_stretched(affine()), (full_affine().matrix, full_affine().shift)),
    ),
    "affine-low-rank": Case(
        lambda bend: plane(affine(), low_rank_affine()),
        lambda: _in_a_row(_stretched(affine()), (low_rank_affine().matrix, low_rank_affine().shift)),
    ),
    "coupling": Case(lambda bend: space(coupling(3))),
    "flipped": Case(lambda bend: space(coupling(3, flip=True))),
    "couplings": Case(
        lambda bend: space(coupling(3), coupling(3, 1, flip=True), pg.Affine.identity((3,)), coupling(3, 2))
    ),
    # Reordered and with two features for each hidden unit, as in `pg.coupling_transforms`.
    "permuted": Case(
        lambda bend: space(
            pg.Permutation([2, 0, 1]), coupling(3, features=pg.tanh_and_log_cosh), coupling(3, 1, flip=True)
        )
    ),
    "defended": Case(
        lambda bend: pg.defended(pg.Flow(pg.StandardNormal((3,)), [coupling(3), affine_in_space()]), 0.3, 1.7)
    ),
    "affine-cnf-affine": Case(
        lambda bend: plane(affine(), cnf(bend, "exact"), affine(-1.0)),
        lambda: _in_a_row(_stretched(affine()), _straight(), _stretched(affine(-1.0))),
    ),
    "coupling-cnf-coupling": Case(
        lambda bend: plane(coupling(), cnf(bend, adjoint="backsolve"), coupling(seed=1, flip=True))
    ),
    "cnf-coupling-cnf": Case(lambda bend: plane(cnf(bend), coupling(), cnf(-bend, "hutchinson"))),
}
FIELDS = {
    "tied": Case(lambda bend: space(pg.CNF(tied_field(), integrator=pg.FixedStep(100), t0=T0, t1=T1))),
    "correlated": Case(
        lambda bend: space(
            coupling(3), pg.CNF(correlated_field(), integrator=pg.FixedStep(100), t0=T0, t1=T1)
        )
    ),
}
FLOWS = (
    BIJECTIONS
    | FIELDS
    | {
        "-".join(names): Case(lambda bend, names=names: bent_flow(*names, bend=bend), _straight)
        for names in itertools.product(DIVERGENCES, INTEGRATORS, ADJOINTS)
    }
)

# Adaptive combinations take long to compile for all contracts. This one runs every day; the rest of
# the product runs in `make test-slow`.
ADAPTIVE_EVERY_DAY = ("closed-dopri5-backsolve",)


def every_flow(only=lambda case: True):
    """Parametrise over the flows of the registry, by name."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if _is_slow(name) else [])
        for name, case in FLOWS.items()
        if only(case)
    ]


def _is_slow(name):
    if name in BIJECTIONS or name in FIELDS or name in ADAPTIVE_EVERY_DAY:
        return False
    if name.startswith("hutchinson-3"):
        return name != "hutchinson-3-rk4-discrete"
    return "rk4" not in name


def cnfs(flow: pg.Flow) -> list[pg.CNF]:
    """Return the transforms of a flow that has no others."""
    assert all(isinstance(transform, pg.CNF) for transform in flow.transforms)
    return [transform for transform in flow.transforms if isinstance(transform, pg.CNF)]


def ravel(tree):
    """Flatten the arrays of a tree into one vector."""
    return ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0]


def has_marks(text):
    """Return whether a text still has marks of arguments (private-use Unicode), which no reader may see."""
    return any("\ue000" <= letter <= "\uf8ff" for letter in text)
