"""One evaluation of the lattice field for a batch: how its cost grows with the volume."""

from typing import Any

import equinox as eqx
import jax
import jax.random as jr

from .gradients import Say, cnfs, described, lattice_problem, precision
from .measure import Work, measure
from .options import LatticeOptions


def measure_field(options: LatticeOptions, say: Say) -> dict[str, Any]:
    """Return the record of velocity alone, and of velocity and divergence, under `estimators`."""
    how = options.measure
    how.check()
    with precision(how.dtype):
        flow, target = lattice_problem(options)
        (cnf,) = cnfs(flow)
        parameters, static = eqx.partition(cnf.field, eqx.is_inexact_array)
        x = jr.normal(jr.key(how.seed), (how.batch, *target.shape))

        def velocity(arrays: Any, key: Any) -> Any:
            (parameters, _), x = arrays
            field, t = eqx.combine(parameters, static), jr.uniform(key)
            return jax.vmap(lambda y: field(t, y))(x), None

        def both(arrays: Any, key: Any) -> Any:
            (parameters, prepared), x = arrays
            field, t = eqx.combine(parameters, static), jr.uniform(key)
            return jax.vmap(lambda y: field.velocity_and_divergence(t, y, prepared))(x), None

        # What is prepared once per solve is no part of an evaluation.
        arrays = ((parameters, eqx.filter_jit(lambda field: field.prepare())(cnf.field)), x)
        measured = measure(
            {"velocity": Work(velocity, arrays), "velocity and divergence": Work(both, arrays)},
            repetitions=how.repetitions,
            seed=how.seed,
            say=say,
            pairs=(("velocity and divergence", "velocity"),),
        )
        about = described("phi4 field", options, how, flow)
        for name in ("solver", "solver_steps", "adjoint", "divergence"):  # nothing is solved
            del about[name]
        return about | measured
