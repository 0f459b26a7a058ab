"""Build a flow and its target from options."""

import functools

from jaxtyping import Array, Key

import pathgrad as pg
from pathgrad._words.errors import check_at_most
from pathgrad._words.memory import check_memory

from ..flows.making import ADJOINTS, MOST_STEPS, make_divergence, make_training
from ..flows.problem import FlowProblem
from .base import FreeField
from .evaluation import LatticeMeasurement
from .field import LatticeField
from .options import LatticeFlowOptions, Phi4Options
from .reference import base_mass_squared, known
from .theory import Phi4

# Solver steps per period of the fastest time kernel. With fewer than two the solver cannot resolve it, and
# training goes wrong silently, because the density of the flow is wrong.
_STEPS_A_PERIOD, _FEWEST_A_PERIOD, _FEWEST = 4, 2, 6
_TABLES = 8  # numbers for each site, before there are any draws


def solver_steps(options: LatticeFlowOptions) -> int:
    """Return the requested number of Runge-Kutta steps, or by default enough for the time kernels."""
    fastest = (options.time_kernels - 1) // 2
    enough, least = max(_FEWEST, _STEPS_A_PERIOD * fastest), max(1, _FEWEST_A_PERIOD * fastest)
    if options.solver_steps is None:
        return enough
    check_at_most(MOST_STEPS, solver_steps=options.solver_steps)
    if options.solver_steps < least:
        raise pg.ArgumentError(
            f"{pg.named('solver_steps')} {options.solver_steps} cannot resolve {options.time_kernels} time "
            f"kernels, the fastest with {fastest} periods: take at least {least} (better {enough}), or fewer "
            f"{pg.named('time_kernels')}."
        )
    return options.solver_steps


def make_flow(options: LatticeFlowOptions, target: Phi4, *, key: Key[Array, ""]) -> pg.Flow:
    """Return the untrained flow: the base and a zero velocity."""
    mass_squared = options.base_mass_squared
    if mass_squared is not None and options.base != "free":
        raise pg.ArgumentError(
            f"{pg.named('base_mass_squared')} only applies to a free field: leave it out, or use "
            f"{pg.named('base')} free."
        )
    if mass_squared is None:
        mass_squared = base_mass_squared(target.size, target.coupling, target.mass_squared)
    base = FreeField(target.size, mass_squared) if options.base == "free" else pg.StandardNormal(target.shape)
    field = LatticeField.zero(
        target.size,
        time_kernels=options.time_kernels,
        time_bond=options.time_bond,
        features=options.features,
        channels=options.channels,
        key=key,
    )
    divergence = make_divergence(options.divergence, 1, pg.Hutchinson())
    integrator = pg.FixedStep(solver_steps(options))
    return pg.Flow(base, [pg.CNF(field, divergence, integrator, ADJOINTS[options.adjoint])])


def build(options: Phi4Options) -> FlowProblem:
    """Return the problem that the options describe."""
    check_memory(_TABLES * options.size**2, size=options.size)
    target = Phi4(options.size, options.action_coupling, options.mass_squared)
    log_z = known(target.size, target.coupling, target.mass_squared).get("log_z", (None, 0.0))
    flow = make_flow(options.flow, target, key=pg.run_keys(options.training.seed)[0])
    return FlowProblem(
        make_training(options.training, flow, target, *log_z),
        # Path gradients train well with few steps; densities, and so weights, need more.
        refine=2,
        measure=functools.partial(LatticeMeasurement, target),
    )
