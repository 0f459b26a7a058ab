"""`pathgrad.fit`: a density alone, or a model with an objective and a method."""

from typing import Any, overload

import jax.random as jr
import optax
from jaxtyping import Array, Key, PyTree

from .._flow.flow import Flow
from .._gradients.estimators import AbstractEstimator
from .._gradients.objectives import AbstractObjective
from .._ingredients.inspection import shape_of
from .._ingredients.target import Target
from .._train.fit import Fit, fit_model
from .._train.method import AbstractMethod
from .._train.progress import progress as shown
from .._train.state import TrainState
from .._words.arguments import instance, number
from .._words.errors import ArgumentError, named
from .._words.keys import one_key
from .clock import Clock
from .pipeline import Pipeline
from .recipe import Recipe
from .result import TargetFit

_SECONDS = 120.0
_RECIPE = Recipe()


@overload
def fit(
    model: Target,
    *,
    key: Key[Array, ""] | None = None,
    max_seconds: float | None = None,
    recipe: Recipe = _RECIPE,
    progress: bool = False,
) -> TargetFit: ...


@overload
def fit(
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
) -> Fit: ...


def fit(
    model: Any,
    objective: AbstractObjective | Target | None = None,
    method: AbstractMethod | None = None,
    *,
    key: Key[Array, ""] | None = None,
    max_seconds: float | None = None,
    recipe: Recipe = _RECIPE,
    progress: bool = False,
    **more: Any,
) -> TargetFit | Fit:
    """Fit a density with nothing chosen, or a model to an objective, or a flow to a target.

    `fit(target)` finds coordinates in which the target is nearly standard normal, tries one kind of flow or
    several, trains the best of them along path gradients until it is good or time is up, and evaluates it.
    `fit(target, recipe=Recipe(...))` replaces or leaves out parts of that.

    `fit(model, objective, method, key=..., steps=...)` trains a model of yours. The short form
    `fit(flow, target, key=..., steps=..., n=256, estimator=PathGradient(), optimizer=optax.adam(1e-3))`
    means `fit(flow, ReverseKL(target, estimator), FirstOrder(optimizer, n), ...)`.

    Args:
        model: A target alone, with `log_prob` and `shape`; or the initial model: a flow, or whatever the
            objective trains.
        objective: What is minimised. A target, an object with `log_prob(x)` for one point, is short for
            `ReverseKL(target)`.
        method: How to train: `FirstOrder`, `GaussNewton`, or `Stages` of them.
        key: Source of all noise; for a target alone by default `jax.random.key(0)`.
        max_seconds: For a target alone, the time of everything, compiling included; by default two minutes.
            Otherwise, stop after this much training time (without compiling).
        recipe: The parts of the fit of a target alone.
        progress: Whether to report progress on standard error.
        more: For a model of yours: `steps`, the total number of steps (`Stages` have a default); `n`, draws
            per step, `estimator` and `optimizer` (short form only); `state` of an earlier fit with the same
            arguments, to continue from.
    """
    if objective is not None and recipe is not _RECIPE:
        raise ArgumentError(f"{named('recipe')} is for a target alone, without an {named('objective')}.")
    if objective is not None:
        if key is None:
            raise ArgumentError(f"Training needs a {named('key')}: `key=jax.random.key(0)`.")
        return fit_model(
            model, objective, method, key=key, max_seconds=max_seconds, progress=progress, **more
        )
    if isinstance(model, Flow):
        raise ArgumentError(f"A flow needs something to fit: give a target or an {named('objective')}.")
    if method is not None or more:
        given = [*(["method"] if method is not None else []), *more]
        raise ArgumentError(
            f"{', '.join(map(named, given))}: for a model of yours, with an {named('objective')}. For a "
            f"target alone, give a {named('recipe')}."
        )
    shape_of(model)
    return fit_target(model, key=key, max_seconds=max_seconds, recipe=recipe, progress=progress)


def fit_target(
    target: Target,
    *,
    key: Key[Array, ""] | None = None,
    max_seconds: float | None = None,
    recipe: Recipe = _RECIPE,
    progress: bool = False,
) -> TargetFit:
    """Fit a density, as `fit(target)` does."""
    seconds = _SECONDS
    if max_seconds is not None:
        seconds = number("max_seconds", max_seconds, lambda x: x > 0, "positive")
    instance("recipe", recipe, Recipe, "a `Recipe`")
    with shown("warm start", visible=progress) as show:
        pipeline = Pipeline(
            target,
            recipe,
            Clock(seconds),
            jr.key(0) if key is None else one_key(key),
            lambda text, share: show(text, [share]),
        )
        return pipeline.run()
