"""Train a model in one call."""

from typing import NamedTuple

import optax
from jaxtyping import Array, Key, PyTree

from .._flow.flow import Flow
from .._gradients.estimators import AbstractEstimator, PathGradient
from .._gradients.objectives import AbstractObjective, ReverseKL
from .._ingredients.inspection import check_indices
from .._ingredients.target import Target, check_is_target, check_target
from .._words.arguments import instance, limit, whole_or_none
from .._words.errors import ArgumentError, named
from .._words.keys import one_key
from .._words.outcome import Stop
from ..devices import on_one_device
from .first_order import FirstOrder
from .method import AbstractMethod
from .progress import report
from .row import Row
from .state import TrainState
from .trainer import Trainer, TrainingDiverged


class Fit(NamedTuple):
    """A finished training run.

    Attributes:
        model: The trained model, with the last parameters, or their average if the method keeps one.
        history: One row of metrics for each block of steps.
        state: The state to continue from.
        stopped: Why training ended.
        seconds: Training time, without compiling.
        compile_seconds: Time spent compiling.
    """

    model: PyTree
    history: list[Row]
    state: TrainState
    stopped: Stop | None
    seconds: float
    compile_seconds: float

    @property
    def flow(self) -> Flow:
        """The trained flow: the model, or the one that it holds."""
        return self.model if isinstance(self.model, Flow) else self.model.flow


def fit_model(
    model: PyTree,
    objective: AbstractObjective | Target,
    method: AbstractMethod | None = None,
    *,
    key: Key[Array, ""],
    steps: int | None = None,
    max_seconds: float | None = None,
    n: int | None = None,
    estimator: AbstractEstimator | None = None,
    optimizer: optax.GradientTransformation | None = None,
    state: TrainState | None = None,
    progress: bool = False,
) -> Fit:
    """Fit a model to an objective, or a flow to a target: `pathgrad.fit` with these arguments."""
    key = one_key(key)
    steps = whole_or_none("steps", steps, 0)
    max_seconds = limit("max_seconds", max_seconds)
    method = _chosen_method(method, optimizer, n)
    objective = _chosen_objective(objective, estimator)
    if state is not None:
        instance("state", state, TrainState, "the `state` of an earlier fit")
    if isinstance(objective, ReverseKL):
        _check_target(*objective.parts(model))
    steps = method.steps if steps is None else steps
    if steps is None and max_seconds is None:
        raise ArgumentError(f"Training needs an end: give {named('steps')}, {named('max_seconds')}, or both.")
    trainer = Trainer(objective, method, key=key)
    state = trainer.init(model) if state is None else state
    history: list[Row] = []
    try:
        with report(steps, visible=progress, max_seconds=max_seconds) as show_row:
            for state, row in trainer.blocks(state, steps, max_seconds):
                history.append(row)
                show_row(row)
    except TrainingDiverged as failure:
        failure.state = on_one_device(failure.state)
        raise
    state = on_one_device(state)
    return Fit(
        trainer.result(state), history, state, trainer.stopped, trainer.seconds, trainer.compile_seconds
    )


def _chosen_method(
    method: AbstractMethod | None, optimizer: optax.GradientTransformation | None, n: int | None
) -> AbstractMethod:
    if method is None:
        optimizer = optax.adam(1e-3) if optimizer is None else optimizer
        return FirstOrder(optimizer, 256 if n is None else n)
    instance("method", method, AbstractMethod, "a method, such as `FirstOrder(optax.adam(1e-3))`")
    if n is not None or optimizer is not None:
        raise ArgumentError(
            f"{named('n')} and {named('optimizer')} belong to a `FirstOrder` method: pass "
            f"`FirstOrder(optimizer, n)` as the {named('method')}, or leave {named('method')} out."
        )
    return method


def _check_target(flow: Flow, target: Target) -> None:
    check_target(target, flow.shape)
    check_indices(target, flow.shape)


def _chosen_objective(
    objective: AbstractObjective | Target, estimator: AbstractEstimator | None
) -> AbstractObjective:
    if not isinstance(objective, AbstractObjective):
        check_is_target(objective, name="objective")
        return ReverseKL(objective, PathGradient() if estimator is None else estimator)
    if estimator is not None:
        raise ArgumentError(f"{named('estimator')} belongs to the objective: `ReverseKL(target, estimator)`.")
    return objective
