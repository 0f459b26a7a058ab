"""`Tally`: the derivative with respect to it against a count of the field's actual evaluations."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._words.tree import freeze

from .helpers import ESTIMATORS, T0, T1, TOLERANCE, cnfs, trained_base

N = 3
KEY = jr.key(5)
CALLS = [0]
INTEGRATORS = {"rk4": pg.FixedStep(3), "dopri5": pg.Adaptive(1e-4, 1e-4)}
ADJOINTS = {"discrete": pg.Discrete(), "backsolve": pg.Backsolve()}
TARGET = pg.LogDensity(
    lambda x: 0.8 * jnp.tanh(x[0]) - 0.5 * jnp.vdot(x, x) - 0.3 * jnp.sin(x[1]) * x[0], (2,)
)


def count():
    CALLS[0] += 1


class CountedField(eqx.Module):
    """A bent field which counts each evaluation once, however many draws go through it."""

    matrix: jax.Array

    def __call__(self, t, x):
        jax.debug.callback(count)
        return jnp.tanh(self.matrix @ x + jnp.sin(2 * t)) - 0.2 * x


def parameters(seed=0):
    return jnp.array([[0.9, -1.1], [0.4, 0.6]]) + 0.3 * jr.normal(jr.key(seed), (2, 2))


def flow_of(cnfs, tallies):
    """Return a flow with one matrix, integrator and adjoint for each of its transforms."""
    transforms = [
        pg.CNF(CountedField(matrix), pg.Exact(), integrator, adjoint, T0, T1, tally)
        for (matrix, integrator, adjoint), tally in zip(cnfs, tallies, strict=True)
    ]
    return pg.Flow(trained_base(), transforms)


@functools.cache
def differentiated(integrator, adjoint, estimator):
    """Compile once: loss, forward evaluations, and derivatives of `scale` times the loss."""

    def loss(matrix, tally, scale):
        flow = flow_of([(matrix, INTEGRATORS[integrator], ADJOINTS[adjoint])], [tally])
        found = pg.ReverseKL(TARGET, ESTIMATORS[estimator])(flow, pg.Batch(jr.split(KEY, N)))
        return scale * found.loss, found.solve.evaluations

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))


def run(function, *arguments):
    """Call a compiled function, and also return how often it evaluated the field."""
    CALLS[0] = 0
    result = jax.block_until_ready(function(*arguments))
    jax.effects_barrier()
    return *result, CALLS[0]


def tally(value=0.0):
    return pg.Tally(jnp.asarray(value))


def combinations():
    """Return all of them. Adaptive solves are slow to compile: two for every day, the rest for slow ones."""
    every_day = (("dopri5", "discrete", "path"), ("dopri5", "backsolve", "total"))
    for names in itertools.product(INTEGRATORS, ADJOINTS, ESTIMATORS):
        slow = names[0] == "dopri5" and names not in every_day
        yield pytest.param(*names, id="-".join(names), marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("integrator", "adjoint", "estimator"), list(combinations()))
def test_derivative_is_the_number_of_evaluations_on_the_way_back(integrator, adjoint, estimator):
    function = differentiated(integrator, adjoint, estimator)
    (_, forward), (gradient, counted), calls = run(function, parameters(), tally(), 1.0)
    assert float(counted.value) == calls - int(forward) > 0
    assert bool(jnp.all(jnp.abs(gradient) > 1e-3))
    if integrator == "rk4":
        # Every step of a solve once more; the two-copy estimator has two solves.
        assert calls - int(forward) == 4 * 3 * (2 if estimator == "two-copy" else 1)

    # Neither a larger loss nor one of the other sign takes more evaluations; nor does a value count.
    (_, _), (scaled, again), calls_again = run(function, parameters(), tally(7.3), -3.0)
    assert float(again.value) == float(counted.value)
    assert calls_again == calls
    np.testing.assert_allclose(scaled, -3 * gradient, rtol=TOLERANCE["algebra"])


@pytest.mark.parametrize(
    ("adjoint", "estimator"), [("discrete", "path"), ("backsolve", "total"), ("discrete", "two-copy")]
)
def test_gradients_are_the_same_without_a_tally(adjoint, estimator):
    function = differentiated("rk4", adjoint, estimator)
    (loss, forward), (gradient, _), calls = run(function, parameters(), tally(1.9), 1.0)
    (plain_loss, plain_forward), (plain, nothing), plain_calls = run(function, parameters(), None, 1.0)
    assert nothing is None
    assert (int(plain_forward), plain_calls) == (int(forward), calls)
    np.testing.assert_allclose(plain_loss, loss, rtol=TOLERANCE["algebra"])
    np.testing.assert_allclose(plain, gradient, rtol=TOLERANCE["algebra"])


def two_transforms(matrices, tallies, estimator):
    cnfs = [(matrices[0], pg.FixedStep(3), pg.Discrete()), (matrices[1], pg.FixedStep(5), pg.Backsolve())]
    flow = flow_of(cnfs, tallies)
    return pg.reverse_kl(flow, TARGET, key=KEY, n=N, estimator=ESTIMATORS[estimator])


@pytest.mark.parametrize("estimator", ["path", pytest.param("two-copy", marks=pytest.mark.slow)])
def test_one_tally_adds_up_transforms(estimator):
    matrices = (parameters(0), parameters(1))
    loss = jax.jit(jax.grad(lambda one: two_transforms(matrices, (one, one), estimator)))
    assert float(loss(tally()).value) == 4 * (3 + 5) * (2 if estimator == "two-copy" else 1)


def test_a_tally_each_tells_transforms_apart():
    matrices = (parameters(0), parameters(1))
    loss = jax.jit(jax.grad(lambda tallies: two_transforms(matrices, tallies, "total")))
    assert [float(t.value) for t in loss((tally(), tally()))] == [4 * 3, 4 * 5]


def test_freezing_spares_tallies():
    """Else the inverse solve of the two-copy estimator would go uncounted."""

    def value(matrix, counter):
        frozen = freeze(flow_of([(matrix, pg.FixedStep(2), pg.Discrete())], [counter]))
        (cnf,) = cnfs(frozen)
        assert cnf.tally is not None
        return jnp.sum(cnf.field.matrix) + 5 * cnf.tally.value

    matrix, counter = jax.grad(value, argnums=(0, 1))(parameters(), tally())
    assert not np.any(matrix)
    assert float(counter.value) == 5
