"""The training gradients of an experiment, as programs to measure."""

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
    """Measure one training gradient of the untrained model that the options describe, by each estimator."""
    how.check()
    with jax.enable_x64(how.dtype == "float64"):
        about, works = programs(experiment, options, how.estimators)
        costs = measure(works, how.repetitions, say, seed=options.training.seed)
    return about | {"dtype": how.dtype} | costs


def programs(
    experiment: pg.AbstractExperiment, options: Any, estimators: Sequence[str]
) -> tuple[Record, dict[str, Work]]:
    """Return a description of the model that the options describe, and its gradients by these estimators."""
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

    Without the value, log q of the total gradient would be dead code, and be removed.
    """
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    data = objective.data
    rows = None  # repeated until they fill a batch; arguments, since a constant would be folded
    if data is not None:
        rows = jax.tree.map(lambda a: jnp.asarray(np.resize(a, (n, *a.shape[1:]))), data.rows)

    def loss(parameters: PyTree, tally: pg.Tally, rows: PyTree, key: Array) -> tuple[Array, Array | None]:
        seen = rows if data is None else data.changed(rows, key=key)
        batch = pg.Batch(jr.split(key, n), seen, tally=tally)
        found = objective(eqx.combine(parameters, static), batch)
        return found.loss, None if found.solve is None else found.solve.evaluations

    def run(arrays: tuple[PyTree, PyTree], key: Array) -> tuple[PyTree, tuple[Array, Array] | None]:
        parameters, rows = arrays
        both = jax.value_and_grad(loss, (0, 1), has_aux=True)
        (value, there), (slope, tally) = both(parameters, pg.Tally(jnp.zeros(())), rows, key)
        return (value, slope), None if there is None else (there, tally.value)

    return Work(run, (parameters, rows))


def described(options: Any, model: PyTree) -> Record:
    """Return a flat description of what was measured: options, with what they left to be found."""
    table = dataclasses.asdict(options)
    training = table.pop("training")
    found = {name.rpartition(".")[2]: value for name, value in flat(table).items()}
    found |= {name: training[name] for name in ("batch", "seed")}
    solving = (pg.AbstractAdjoint, pg.AbstractIntegrator)
    # Reversed, so that of several the first one is told.
    for part in reversed(jax.tree.leaves(model, is_leaf=lambda x: isinstance(x, solving))):
        if isinstance(part, pg.AbstractAdjoint):
            found["adjoint"] = type(part).__name__.lower()
        elif isinstance(part, pg.AbstractIntegrator):
            found["solver_steps"] = getattr(part, "steps", None)
    trained = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    return found | {"parameters": sum(leaf.size for leaf in trained)}
