"""Build a flow and its training from options, with public names only."""

import math
from typing import Literal

import optax
from jaxtyping import Array, Key

import pathgrad as pg
from pathgrad._words.errors import check_at_least_one, check_at_most
from pathgrad._words.memory import check_memory

from ..options import FlowOptions, TrainOptions

_COPIES = 4  # of the weights: themselves, their gradient, and two moments of it
MOST_STEPS = 100_000  # of a solver; more would show rounding

# What the words of the command line stand for.
ESTIMATORS = {"path": pg.PathGradient, "total": pg.TotalGradient, "two-copy": pg.TwoCopyGradient}
ADJOINTS = {"auto": None, "discrete": pg.Discrete(), "backsolve": pg.Backsolve()}
BASES = {
    "standard": pg.StandardNormal,
    "diagonal": pg.DiagonalNormal.standard,
    "full": pg.FullNormal.standard,
}


def make_flow(options: FlowOptions, shape: tuple[int, ...], *, key: Key[Array, ""]) -> pg.Flow:
    """Build the flow that the options describe."""
    sizes = {"width": options.width, "depth": options.depth}
    check_at_least_one(**sizes, probes=options.probes)
    dim = math.prod(shape)
    weights = (2 * dim + options.width * (options.depth - 1)) * options.width
    weights += dim**2 if options.base == "full" else 0
    check_memory(_COPIES * weights, dim=dim, **sizes)
    divergence = make_divergence(options.divergence, options.depth, pg.Hutchinson(options.probes))
    field = pg.MLPField(math.prod(shape), options.width, options.depth, key=key)
    integrator = make_integrator(options.solver, options.solver_steps, options.tolerance)
    cnf = pg.CNF(field, divergence, integrator, ADJOINTS[options.adjoint])
    return pg.Flow(BASES[options.base](shape), [cnf])


def make_divergence(word: str, depth: int, noisy: pg.Hutchinson) -> pg.AbstractDivergence:
    """Return the divergence that a word stands for, for a field with `depth` hidden layers."""
    if word == "closed" and depth > 2:
        raise pg.ArgumentError(
            f"{pg.named('divergence')} closed needs {pg.named('depth')} 1 or 2, got {depth}; for a deeper "
            f"field use {pg.named('divergence')} exact or hutchinson."
        )
    return {"closed": pg.ClosedForm(), "exact": pg.Exact(), "hutchinson": noisy}[word]


def make_integrator(
    word: Literal["rk4", "dopri5", "tsit5"], steps: int, tolerance: float
) -> pg.AbstractIntegrator:
    """Return the integrator that a word stands for: fixed or adaptive steps."""
    check_at_least_one(solver_steps=steps)
    check_at_most(MOST_STEPS, solver_steps=steps)
    if not 0 < tolerance < 1:
        raise pg.ArgumentError(f"{pg.named('tolerance')} must be between 0 and 1, got {tolerance}.")
    return pg.FixedStep(steps) if word == "rk4" else pg.Adaptive(tolerance, tolerance, word)


def make_training(
    options: TrainOptions,
    flow: pg.Flow,
    target: pg.Target,
    log_z: float | None = None,
    log_z_err: float = 0.0,
) -> pg.Training:
    """Return the training that the options describe, of a flow on a target."""
    check_training(options)
    # Of each draw at least its position, its velocity and its score.
    check_memory(3 * options.batch * math.prod(flow.shape), batch=options.batch)
    objective = pg.ReverseKL(target, ESTIMATORS[options.estimator](), log_z, log_z_err)
    return pg.Training(flow, objective, _method(options), options.steps + options.newton_steps)


def check_training(options: TrainOptions) -> None:
    """Raise an error unless the numbers make sense."""
    noise = "greater than 1 (with fewer draws than parameters, least squares would fit noise)"
    for names, is_right, right in (
        (("steps", "batch", "block"), lambda v: v >= 1, "at least 1"),
        (("learning_rate", "max_seconds"), lambda v: v is None or 0 < v < math.inf, "a positive number"),
        (("beta1", "beta2"), lambda v: 0 <= v < 1, "at least 0 and below 1"),
        (("clip",), lambda v: v == 0 or 1 < v < math.inf, "0 or greater than 1"),
        (("draws_per_parameter",), lambda v: 1 < v < math.inf, noise),
    ):
        for name in names:
            if not is_right(value := getattr(options, name)):
                raise pg.ArgumentError(f"{pg.named(name)} must be {right}, got {value}.")
    if options.newton_steps < 0 or (options.newton_steps and options.optimizer != "adam"):
        raise pg.ArgumentError(
            f"{pg.named('newton_steps')} must be at least 0 and follow steps of adam; got "
            f"{options.newton_steps} with {pg.named('optimizer')} {options.optimizer}."
        )


def _method(options: TrainOptions) -> pg.AbstractMethod:
    newton = pg.GaussNewton(options.draws_per_parameter)
    if options.optimizer == "gauss-newton":
        return newton
    rate: optax.ScalarOrSchedule = options.learning_rate
    if options.decay == "cosine":
        rate = optax.cosine_decay_schedule(options.learning_rate, options.steps, alpha=0.01)
    optimizer = optax.adam(rate, options.beta1, options.beta2)
    if options.clip:
        optimizer = optax.chain(pg.clip_by_measured_norm(options.clip), optimizer)
    adam = pg.FirstOrder(optimizer, options.batch, block=options.block, average=options.average)
    if not options.newton_steps:
        return adam
    return pg.Stages([(adam, options.steps), (newton, options.newton_steps)])
