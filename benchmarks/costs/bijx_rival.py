"""The total gradient of the lattice flow, computed by `bijx`.

This uses its lattice field (`ConvVF`) with our weights, its Runge-Kutta solver (`ContFlowRK4`: the classical
method, as many steps as ours, the state solved again in the backward pass) and the total gradient of its
reverse KL divergence, the only gradient it has. Before anything is timed, its velocity and divergence must
equal ours. (That solver is correct only on the interval [0, 1], which is the one used.)
"""

from functools import partial

import bijx  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from bijx.nn import embeddings, features  # pyright: ignore[reportMissingImports]
from flax import nnx  # pyright: ignore[reportMissingImports]

import pathgrad as pg
from pathgrad._bench.measure import Work
from pathgrad._words.errors import UserError
from pathgrad.experiments.phi4.field import LatticeField
from pathgrad.experiments.phi4.lattice import orbits
from pathgrad.experiments.phi4.theory import Phi4

from .lattice import only_cnf


def gradient(flow: pg.Flow, target: Phi4, batch: int) -> Work:
    """Return a program for value and total gradient of the reverse KL divergence."""
    cnf = only_cnf(flow)
    assert isinstance(cnf.integrator, pg.FixedStep)
    field = same_field(cnf.field)
    _check_same(cnf.field, field)
    prior = bijx.IndependentNormal(target.shape, rngs=nnx.Rngs(0))
    model = bijx.Transformed(prior, bijx.ContFlowRK4(field, steps=cnf.integrator.steps))
    graph, parameters, rest = nnx.split(model, nnx.Param, ...)

    def loss(parameters, key):
        x, log_q = nnx.merge(graph, parameters, rest).sample((batch,), rng=key)
        return jnp.mean(log_q - jax.vmap(target.log_prob)(x))

    return Work(lambda p, key: (jax.value_and_grad(loss)(p, key), None), parameters)


def same_field(field: LatticeField) -> bijx.ConvVF:
    """Return the field of `bijx` with the sizes and weights of ours."""
    bonds, times = field.time_bond.shape
    channels, waves = field.feature_bond.shape
    theirs = bijx.ConvVF.build(
        (field.size, field.size),
        time_kernel=embeddings.KernelFourier(times),
        time_kernel_reduced=bonds,
        features=(partial(features.FourierFeatures, waves - 1), partial(features.PolynomialFeatures, (1,))),
        features_reduced=channels,
        use_bias=False,
        rngs=nnx.Rngs(0),
    )
    # They number the orbits differently and put the origin in the middle; for an even size, just before it.
    centre = (field.size - 1) // 2
    number = np.roll(np.asarray(theirs.conv.orbits), (-centre, -centre), (0, 1))
    kernel = np.zeros(field.kernel.shape, field.kernel.dtype)
    kernel[number] = np.asarray(field.kernel)[orbits(field.size)[0]]
    theirs.conv.kernel_params.set_value(jnp.asarray(kernel))
    theirs.time_kernel.superposition.set_value(field.time_bond)
    theirs.feature_superposition.set_value(field.feature_bond)
    theirs.feature_map.features[0].phi_freq.set_value(field.omega[None])
    return theirs


def _check_same(ours: LatticeField, theirs: bijx.ConvVF) -> None:
    x, t = jr.normal(jr.key(2), (ours.size, ours.size)), jnp.asarray(0.3)
    velocity, divergence = ours.velocity_and_divergence(t, x, ours.prepare())
    other, minus_divergence = theirs(t, x)
    # Tolerances for single precision, with sums over the lattice in a different order.
    for a, b in ((velocity, other), (divergence, -minus_divergence)):
        if not np.allclose(a, b, rtol=1e-3, atol=1e-4 * float(jnp.max(jnp.abs(a)))):
            raise UserError(
                "the velocity or divergence of bijx's lattice field differs from ours, which was compared "
                "with bijx 1.3.2. Install that version, or leave --rivals out."
            )
