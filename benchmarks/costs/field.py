"""Cost of one evaluation of the lattice field for a batch."""

import equinox as eqx
import jax
import jax.random as jr

from pathgrad._bench.measure import Work
from pathgrad._bench.options import MeasureOptions
from pathgrad._bench.record import Record, Say
from pathgrad.experiments.phi4.options import Phi4Options

from .lattice import lattice_problem, only_cnf
from .measure import gradients_of, measured


def measure_field(options: Phi4Options, how: MeasureOptions, say: Say) -> Record:
    """Return the costs of the velocity alone, and of velocity and divergence."""
    seed, batch = options.training.seed, options.training.batch
    with jax.enable_x64(False):
        flow, target = lattice_problem(options)
        field = only_cnf(flow).field
        parameters, static = eqx.partition(field, eqx.is_inexact_array)
        x = jr.normal(jr.key(seed), (batch, *target.shape))

        def velocity(arrays, key):
            (parameters, _), x = arrays
            field, t = eqx.combine(parameters, static), jr.uniform(key)
            return jax.vmap(lambda y: field(t, y))(x), None

        def both(arrays, key):
            (parameters, prepared), x = arrays
            field, t = eqx.combine(parameters, static), jr.uniform(key)
            return jax.vmap(lambda y: field.velocity_and_divergence(t, y, prepared))(x), None

        # The preparation happens once per solve and is not part of an evaluation.
        arrays = ((parameters, eqx.filter_jit(lambda field: field.prepare())(field)), x)
        works = {"velocity": Work(velocity, arrays), "velocity and divergence": Work(both, arrays)}
        pairs = (("velocity and divergence", "velocity"),)
        about, _ = gradients_of(options, how)
        solving = ("solver_steps", "adjoint", "divergence")  # no ODE is solved
        described = {k: v for k, v in about.items() if k not in solving} | {"what": "phi4 field"}
        return described | measured(works, how, say, seed=seed, pairs=pairs)
