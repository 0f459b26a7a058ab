"""From options to something that can be trained. Built on public names only."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Key, PyTree

import pathgrad as pg

from .options import FlowOptions, TrainOptions

ESTIMATORS: dict[str, Callable[[], pg.AbstractEstimator]] = {
    "path": pg.PathGradient,
    "total": pg.TotalGradient,
    "two-copy": pg.TwoCopyGradient,
}


@runtime_checkable
class Measurement(Protocol):
    """Collects what evaluation finds out beyond weights, chunk by chunk."""

    def add(self, chunk: dict[str, np.ndarray]) -> None:
        """Take in some draws."""
        ...

    def finish(self, found: pg.Evaluation) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return results for evaluation.json, and arrays for evaluation.npz."""
        ...


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained, and how.

    Attributes:
        model: Untrained.
        objective: What is minimised.
        method: How the model moves.
        steps: Training steps at most.
        validation: How models are judged on other data, if at all.
    """

    model: PyTree
    objective: pg.AbstractObjective
    method: pg.AbstractMethod
    steps: int
    validation: pg.Validation | None = None

    def trainer(self, *, key: Key[Array, ""]) -> pg.Trainer:
        """Return what trains it."""
        return pg.Trainer(self.objective, self.method, key=key, validation=self.validation)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A flow to be fitted to a target.

    Attributes:
        training: Of the flow, by its reverse KL divergence.
        sample_target: One exact draw of the target, `sample_target(key=...)`, where there are any.
        evaluation_refine: Times the solver steps of training that evaluation should take by default.
        measure: What evaluation should find out beyond weights. Called with the number of draws, it returns
            an object that is fed each chunk of `pg.weighted_chunks` by `add(chunk)`, and whose
            `finish(found)` returns further results for evaluation.json, and arrays for
            evaluation.npz and the picture.
    """

    training: Training
    sample_target: Callable[..., Array] | None = None
    evaluation_refine: int = 1
    measure: Callable[[int], Measurement] | None = None

    @property
    def objective(self) -> pg.ReverseKL:
        """What is minimised."""
        assert isinstance(self.training.objective, pg.ReverseKL)
        return self.training.objective

    @property
    def target(self) -> pg.Target:
        """The target of the flow."""
        assert self.objective.target is not None
        return self.objective.target


def keys(seed: int) -> Key[Array, " 3"]:
    """Return the keys of a run: for the initial flow, for training, and for what comes after."""
    return jr.split(jr.key(_checked(seed)), 3)


def evaluation_key(training_seed: int, seed: int) -> Key[Array, ""]:
    """Return a key for draws of a trained flow, unlike any that it was trained with."""
    return jr.fold_in(keys(training_seed)[2], _checked(seed))


def _checked(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise pg.ArgumentError(f"{pg.named('seed')} must be from 0 to {2**32 - 1}, got {seed}.")
    return seed


def make_flow(options: FlowOptions, shape: tuple[int, ...], *, key: Key[Array, ""]) -> pg.Flow:
    """Build the flow the options describe."""
    if options.divergence == "closed" and options.depth > 2:
        raise pg.ArgumentError(
            f"{pg.named('divergence')} closed needs {pg.named('depth')} 1 or 2, got {options.depth}; for a "
            f"deeper field use {pg.named('divergence')} exact or hutchinson."
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


def make_training(
    options: TrainOptions,
    flow: pg.Flow,
    target: pg.Target,
    log_z: float | None = None,
    log_z_err: float = 0.0,
) -> Training:
    """Return the training of a flow that the options describe."""
    check_training(options)
    objective = pg.ReverseKL(target, ESTIMATORS[options.estimator](), log_z, log_z_err)
    return Training(flow, objective, _method(options), options.all_steps)


def check_training(options: TrainOptions) -> None:
    """Raise unless the numbers make sense."""
    for name in ("steps", "batch", "block"):
        if getattr(options, name) < 1:
            raise pg.ArgumentError(
                f"{pg.named(name)} must be at least 1, got {getattr(options, name)}."
            )
    for name in ("learning_rate", "max_seconds"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise pg.ArgumentError(f"{pg.named(name)} must be a positive number, got {value}.")
    for name in ("beta1", "beta2"):
        if not 0 <= getattr(options, name) < 1:
            raise pg.ArgumentError(
                f"{pg.named(name)} must be at least 0 and below 1, got {getattr(options, name)}."
            )
    if options.clip != 0 and not 1 < options.clip < math.inf:
        raise pg.ArgumentError(
            f"{pg.named('clip')} must be 0 or greater than 1, got {options.clip}."
        )
    if options.newton_steps < 0 or (options.newton_steps and options.optimizer != "adam"):
        raise pg.ArgumentError(
            f"{pg.named('newton_steps')} come after those of adam, and are at least 0; got "
            f"{options.newton_steps} with {pg.named('optimizer')} {options.optimizer}."
        )
    if not 1 < options.draws_per_parameter < math.inf:
        raise pg.ArgumentError(
            f"{pg.named('draws_per_parameter')} must be greater than 1 (with fewer draws than parameters the "
            f"least squares fit noise), got {options.draws_per_parameter}."
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
