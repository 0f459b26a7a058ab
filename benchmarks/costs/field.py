"""One evaluation of the lattice field for a batch: how its cost grows with the volume."""

import equinox as eqx
import jax
import jax.random as jr

from pathgrad._bench.gradients import described, lattice_problem, measuring, only_cnf
from pathgrad._bench.measure import Count, Work, measure
from pathgrad._bench.options import LatticeOptions
from pathgrad._bench.record import Record, Say


def measure_field(options: LatticeOptions, say: Say, count: Count | None = None) -> Record:
    """Return the costs of velocity alone, and of velocity and divergence."""
    how = options.measure
    with measuring(how):
        flow, target = lattice_problem(options)
        cnf = only_cnf(flow)
        parameters, static = eqx.partition(cnf.field, eqx.is_inexact_array)
        x = jr.normal(jr.key(how.seed), (how.batch, *target.shape))

        def velocity(arrays, key):
            (parameters, _), x = arrays
            field, t = eqx.combine(parameters, static), jr.uniform(key)
            return jax.vmap(lambda y: field(t, y))(x), None

        def both(arrays, key):
            (parameters, prepared), x = arrays
            field, t = eqx.combine(parameters, static), jr.uniform(key)
            return jax.vmap(lambda y: field.velocity_and_divergence(t, y, prepared))(x), None

        # What is prepared once per solve is no part of an evaluation.
        arrays = ((parameters, eqx.filter_jit(lambda field: field.prepare())(cnf.field)), x)
        works = {"velocity": Work(velocity, arrays), "velocity and divergence": Work(both, arrays)}
        measured = measure(works, how, say, count, (("velocity and divergence", "velocity"),))
        solving = ("solver", "solver_steps", "adjoint", "divergence")  # nothing is solved
        about = described("phi4 field", options, flow)
        return {k: v for k, v in about.items() if k not in solving} | measured
