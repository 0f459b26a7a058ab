"""From options to something that can be trained. Built on public names only."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.random as jr
import optax

import pathgrad as pg
from pathgrad._errors import UserError

from .options import FlowOptions, TrainOptions

ESTIMATORS: dict[str, Callable[[], pg.AbstractEstimator]] = {
    "path": pg.PathGradient,
    "total": pg.TotalGradient,
    "two-copy": pg.TwoCopyGradient,
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """A flow, its target, and how to bring them together.

    Attributes:
        flow: Untrained.
        target: An object with `log_prob(x)` for one point.
        settings: For the trainer.
        steps: Training steps at most.
        log_z: The log normaliser, where known.
        log_z_err: Its standard error; zero where it is exact.
        sample_target: One exact draw of the target, `sample_target(key=...)`, where there are any.
        evaluation_refine: Times the solver steps of training that evaluation should take by default.
        measure: What evaluation should find out beyond weights. Called with the number of draws, it returns
            an object that is fed each chunk of `pg.weighted_chunks` by `add(chunk)`, and whose
            `finish(evaluation)` returns further results for evaluation.json, and arrays for
            evaluation.npz and the picture.
    """

    flow: pg.Flow
    target: Any
    settings: pg.Settings
    steps: int
    log_z: float | None = None
    log_z_err: float = 0.0
    sample_target: Callable[..., Any] | None = None
    evaluation_refine: int = 1
    measure: Any = None

    def initial_state(self, flow: pg.Flow | None = None) -> pg.TrainState:
        """Return the state before the first step, of the untrained flow or of another one like it."""
        return pg.init(flow or self.flow, self.target, self.settings.optimizer)

    def trainer(self, key: Any, seconds: float) -> pg.Trainer:
        """Return what trains it, after so many seconds of training already."""
        return pg.Trainer(key, self.settings, seconds)


def keys(seed: int):
    """Return the keys of a run: for the initial flow, for training, and for what comes after."""
    return jr.split(jr.key(_checked(seed)), 3)


def evaluation_key(training_seed: int, seed: int):
    """Return a key for draws of a trained flow, unlike any that it was trained with."""
    return jr.fold_in(keys(training_seed)[2], _checked(seed))


def _checked(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed must be from 0 to {2**32 - 1}, got {seed}.")
    return seed


def make_flow(options: FlowOptions, shape: tuple[int, ...], key: Any) -> pg.Flow:
    """Build the flow the options describe."""
    if options.divergence == "closed" and options.depth > 2:
        raise ValueError(
            f"--divergence closed needs --depth 1 or 2, got {options.depth}; for a deeper field use "
            "--divergence exact or hutchinson."
        )
    bases = {
        "standard": pg.StandardNormal,
        "diagonal": pg.DiagonalNormal.standard,
        "full": pg.FullNormal.standard,
    }
    divergences = {
        "closed": pg.ClosedForm,
        "exact": pg.Exact,
        "hutchinson": lambda: pg.Hutchinson(options.probes),
    }
    adjoints = {"auto": None, "discrete": pg.Discrete(), "backsolve": pg.Backsolve()}
    integrator = (
        pg.FixedStep(options.solver_steps)
        if options.solver == "rk4"
        else pg.Adaptive(options.tolerance, options.tolerance, options.solver)
    )
    field = pg.MLPField(math.prod(shape), options.width, options.depth, key=key)
    cnf = pg.CNF(field, divergences[options.divergence](), integrator, adjoints[options.adjoint])
    return pg.Flow(bases[options.base](shape), [cnf])


def make_settings(options: TrainOptions) -> pg.Settings:
    """Build what the trainer needs to know."""
    for name in ("steps", "batch", "block"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(options, name)}.")
    for name, value in (
        ("learning-rate", options.learning_rate),
        ("max-seconds", 1.0 if options.max_seconds is None else options.max_seconds),
    ):
        if not 0 < value < math.inf:
            raise ValueError(f"--{name} must be a positive number, got {value}.")
    for name, value in (("beta1", options.beta1), ("beta2", options.beta2)):
        if not 0 <= value < 1:
            raise ValueError(f"--{name} must be at least 0 and below 1, got {value}.")
    if options.clip != 0 and not 1 < options.clip < math.inf:
        raise ValueError(f"--clip must be 0 or greater than 1, got {options.clip}.")
    return pg.Settings(
        _optimizer(options), ESTIMATORS[options.estimator](), n=options.batch, block=options.block
    )


def _optimizer(options: TrainOptions) -> Any:
    if options.optimizer == "gauss-newton":
        if not 1 < options.draws_per_parameter < math.inf:
            raise ValueError(
                "--draws-per-parameter must be greater than 1 (with fewer draws than parameters the least "
                f"squares fit noise), got {options.draws_per_parameter}."
            )
        return pg.GaussNewton(options.draws_per_parameter)
    rate: Any = options.learning_rate
    if options.decay == "cosine":
        rate = optax.cosine_decay_schedule(options.learning_rate, options.steps, alpha=0.01)
    optimizer = optax.adam(rate, options.beta1, options.beta2)
    if options.clip:
        optimizer = optax.chain(pg.clip_by_measured_norm(options.clip), optimizer)
    return optimizer
