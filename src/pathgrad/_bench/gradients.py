"""The training gradients of an experiment, as functions to measure."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PyTree

import pathgrad as pg
from pathgrad._runs.experiment import build
from pathgrad._runs.options import flat

from .measure import Work, measure
from .options import MeasureOptions
from .record import Record, Say


def measure_gradients(
    experiment: pg.AbstractExperiment, options: Any, how: MeasureOptions, say: Say
) -> Record:
    """Measure one training gradient of the untrained model that the options describe, with each estimator."""
    how.check()
    with jax.enable_x64(how.dtype == "float64"):
        about, works = programs(experiment, options, how.estimators)
        costs = measure(works, how.repetitions, say, seed=options.training.seed)
    return about | {"dtype": how.dtype} | costs


def programs(
    experiment: pg.AbstractExperiment, options: Any, estimators: Sequence[str]
) -> tuple[Record, dict[str, Work]]:
    """Return a description of the model that the options define, and its gradients by these estimators."""
    training = getattr(options, "training", None)
    if not (hasattr(training, "estimator") and hasattr(training, "batch")):
        raise pg.UserError(
            f"Gradients of the experiment {experiment.name!r} cannot be measured by estimator: its options "
            "must have a table `training` with an `estimator` and a `batch`."
        )
    options = experiment.for_costs(options)
    shells = {name: _untrained(experiment, options, name) for name in estimators}
    works = {n: gradient(s.model, s.objective, options.training.batch) for n, s in shells.items()}
    return described(options, shells[estimators[0]].model), works


def _untrained(experiment: pg.AbstractExperiment, options: Any, estimator: str) -> pg.Training:
    training = dataclasses.replace(options.training, estimator=estimator)
    return build(experiment, dataclasses.replace(options, training=training)).shell()


def gradient(model: PyTree, objective: pg.AbstractObjective, n: int) -> Work:
    """Return value and gradient of an objective for a batch of `n`, as a training step needs them.

    Without the value, log q of the total gradient would be dead code that the compiler removes.
    """
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    data = objective.data
    rows = None  # data, repeated to fill a batch; an argument, since the compiler would fold a constant
    if data is not None:
        rows = jax.tree.map(lambda a: jnp.asarray(np.resize(a, (n, *a.shape[1:]))), data.rows)

    def loss(parameters: PyTree, tally: pg.Tally, rows: PyTree, key: Array) -> tuple[Array, Array | None]:
        change_key, draw_key = jr.split(key)
        shown = rows if data is None else data.changed(rows, key=change_key)
        batch = pg.Batch(jr.split(draw_key, n), shown, tally=tally)
        estimate = objective(eqx.combine(parameters, static), batch)
        return estimate.loss, None if estimate.solve is None else estimate.solve.evaluations

    def run(arrays: tuple[PyTree, PyTree], key: Array) -> tuple[PyTree, tuple[Array, Array] | None]:
        parameters, rows = arrays
        both = jax.value_and_grad(loss, (0, 1), has_aux=True)
        (value, forward), (slope, tally) = both(parameters, pg.Tally(jnp.zeros(())), rows, key)
        return (value, slope), None if forward is None else (forward, tally.value)

    return Work(run, (parameters, rows))


def described(options: Any, model: PyTree) -> Record:
    """Return a flat description of what was measured: options, with automatic choices filled in."""
    table = dataclasses.asdict(options)
    training = table.pop("training")
    description = {name.rpartition(".")[2]: value for name, value in flat(table).items()}
    description |= {name: training[name] for name in ("batch", "seed")}
    solving = (pg.AbstractAdjoint, pg.AbstractIntegrator)
    # Reversed, so that the first of several is kept.
    for part in reversed(jax.tree.leaves(model, is_leaf=lambda x: isinstance(x, solving))):
        if isinstance(part, pg.AbstractAdjoint):
            description["adjoint"] = type(part).__name__.lower()
        elif isinstance(part, pg.AbstractIntegrator):
            description["solver_steps"] = getattr(part, "steps", None)
    trained = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    return description | {"parameters": sum(leaf.size for leaf in trained)}
