"""What gradients cost: FLOPs and bytes of the compiled program, which no busy machine can change."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

import pathgrad as pg
from benchmarks.costs.flops import flops_of as flops
from benchmarks.costs.lattice import only_cnf

from .helpers import ADJOINTS, DIVERGENCES, ESTIMATORS

DIM, WIDTH, BATCH = 64, 1024, 64


@functools.cache
def flow(divergence, adjoint, integrator=pg.FixedStep(10)):
    field = pg.MLPField(DIM, WIDTH, 2, key=jr.key(0))
    cnf = pg.CNF(field, DIVERGENCES[divergence], integrator, ADJOINTS[adjoint])
    # In float32, as it is trained.
    single = jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, cnf)
    base = pg.DiagonalNormal(jnp.zeros(DIM, jnp.float32), jnp.zeros(DIM, jnp.float32))
    return pg.Flow(base, [single])


def compile_for(fn, flow):
    parameters, static = eqx.partition(flow, eqx.is_inexact_array)
    run = jax.jit(lambda parameters, key: fn(eqx.combine(parameters, static), key))
    return run.lower(parameters, jr.key(0)).compile()


@functools.cache
def training_gradient(estimator, divergence, adjoint, integrator=pg.FixedStep(10)):
    return gradient_of(flow(divergence, adjoint, integrator), estimator)


def gradient_of(flow, estimator):
    """Value and gradient, as a training step needs them: without the value, log q would be dead code."""
    target = pg.LogDensity(lambda x: -0.5 * jnp.sum(x**2), (DIM,))

    def loss(flow, key):
        return pg.reverse_kl(flow, target, key=key, n=BATCH, estimator=ESTIMATORS[estimator])

    return compile_for(lambda f, key: eqx.filter_value_and_grad(loss)(f, key), flow)


def temporary_bytes(compiled):
    return compiled.memory_analysis().temp_size_in_bytes


BARS = {"hutchinson": 0.90, "closed": 0.92}


@functools.cache
def once_per_solve(estimator):
    """FLOPs of `prepare` of the closed form; the total gradient also goes back through it.

    The compiler counts the body of a loop once, so that work done once per solve weighs too much.
    """
    field = only_cnf(flow("closed", "discrete")).field

    def prepared(field, key):
        del key
        return jnp.sum(field.prepare() ** 2)

    if estimator == "total":
        return flops(compile_for(lambda f, key: eqx.filter_value_and_grad(prepared)(f, key), field))
    return flops(compile_for(prepared, field))


@pytest.mark.parametrize("adjoint", ADJOINTS)
@pytest.mark.parametrize("divergence", BARS)
def test_path_gradient_is_cheaper_than_the_total_one(divergence, adjoint):
    path = training_gradient("path", divergence, adjoint)
    total = training_gradient("total", divergence, adjoint)
    assert flops(path) <= BARS[divergence] * flops(total)
    if divergence == "closed":  # and in the limit of many steps
        loops = flops(path) - once_per_solve("path"), flops(total) - once_per_solve("total")
        assert loops[0] <= BARS[divergence] * loops[1]
    assert temporary_bytes(path) <= 1.1 * temporary_bytes(total)


def test_second_copy_costs_more():
    path = training_gradient("path", "hutchinson", "discrete")
    two_copy = training_gradient("two-copy", "hutchinson", "discrete")
    assert flops(two_copy) >= 1.4 * flops(path)


def test_closed_form_divergence_costs_less_than_a_second_velocity():
    field = only_cnf(flow("closed", "discrete")).field
    parameters, static = eqx.partition(field, eqx.is_inexact_array)
    x, t = jnp.ones((BATCH, DIM), jnp.float32), jnp.ones((), jnp.float32)

    def velocity(parameters, x):
        return jax.vmap(lambda y: eqx.combine(parameters, static)(t, y))(x)

    def both(parameters, prepared, x):
        own = eqx.combine(parameters, static)
        return jax.vmap(lambda y: own.velocity_and_divergence(t, y, prepared))(x)

    alone = jax.jit(velocity).lower(parameters, x).compile()
    together = jax.jit(both).lower(parameters, field.prepare(), x).compile()
    assert flops(together) <= 2.1 * flops(alone)


@pytest.mark.parametrize("estimator", ["path", "total"])
def test_backsolve_needs_the_memory_of_one_step(estimator):
    few, many = (
        temporary_bytes(training_gradient(estimator, "closed", "backsolve", pg.FixedStep(steps)))
        for steps in (10, 1000)
    )
    assert many <= 1.02 * few


@pytest.mark.slow
def test_adaptive_backsolve_needs_no_room_for_its_steps():
    few, many = (
        temporary_bytes(training_gradient("path", "closed", "backsolve", pg.Adaptive(max_steps=max_steps)))
        for max_steps in (64, 4096)
    )
    assert many <= 1.02 * few


def test_path_gradient_solves_forwards_once():
    """Its cost is that of drawing with the score, and of a backward pass through the sampling map alone."""
    one = flow("closed", "discrete")
    whole = flops(training_gradient("path", "closed", "discrete"))
    forward = flops(compile_for(lambda f, key: f.sample_with_score(key=key, n=BATCH), one))

    def loss(f, key):
        return jnp.sum(f.sample(key=key, n=BATCH))

    there_and_back = flops(compile_for(lambda f, key: eqx.filter_value_and_grad(loss)(f, key), one))
    there = flops(compile_for(loss, one))
    assert whole <= 1.05 * (forward + there_and_back - there)


def test_path_gradient_of_couplings_evaluates_each_network_once():
    """In passes through a network: 3 for the total gradient, 1 + 1 + 2 along the path, 5 by two copies.

    A second evaluation of the networks would make the path gradient as expensive as two copies.
    """
    flips = [False, True] * 4
    couplings = [
        pg.AffineCoupling(DIM, 256, key=key, flip=flip)
        for key, flip in zip(jr.split(jr.key(0), len(flips)), flips, strict=True)
    ]
    one = pg.Flow(pg.DiagonalNormal.standard((DIM,)), couplings)
    costs = {estimator: gradient_of(one, estimator) for estimator in ESTIMATORS}
    assert flops(costs["path"]) <= 1.40 * flops(costs["total"])
    assert flops(costs["two-copy"]) >= 1.6 * flops(costs["total"])
    assert temporary_bytes(costs["path"]) <= 1.1 * temporary_bytes(costs["total"])
