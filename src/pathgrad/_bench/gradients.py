"""The training gradients of flows, as programs to measure."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import pathgrad as pg
from pathgrad._errors import UserError
from pathgrad.experiments import problem
from pathgrad.experiments.phi4.problem import make_flow as make_lattice_flow
from pathgrad.experiments.phi4.reference import COUPLINGS
from pathgrad.experiments.phi4.theory import Phi4
from pathgrad.experiments.problem import ESTIMATORS

from .measure import Work, measure
from .options import CnfOptions, LatticeOptions, MeasureOptions

Say = Callable[[str], None]


def precision(name: str) -> Any:
    """Compute in `float32` or `float64` within a `with` statement, whatever holds outside."""
    return jax.enable_x64(name == "float64")


@contextlib.contextmanager
def told_to_users():
    """Turn what a wrong option made a constructor say into a message for users."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from error


def training_gradient(
    flow: pg.Flow, target: Any, estimator: pg.AbstractEstimator, batch: int
) -> Work:
    """Return value and gradient of the reverse KL divergence, as a training step needs them.

    Without the value, log q of the total gradient would be dead code, and be removed.
    """
    parameters, static = eqx.partition(flow, eqx.is_inexact_array)

    def loss(parameters: Any, tally: pg.Tally, key: Any) -> Any:
        whole = counted(eqx.combine(parameters, static), tally)
        found = pg.ReverseKL(target, estimator)(whole, pg.Batch(jr.split(key, batch)))
        return found.loss, found.solve

    def run(parameters: Any, key: Any) -> Any:
        differentiated = jax.value_and_grad(loss, (0, 1), has_aux=True)
        (value, solve), (gradient, tally) = differentiated(parameters, pg.Tally(jnp.zeros(())), key)
        return (value, gradient), (solve.evaluations, tally.value)

    return Work(run, parameters)


def counted(flow: pg.Flow, tally: pg.Tally) -> pg.Flow:
    """Return the flow with a place for its backward evaluations."""
    return flow.tallied(tally)


def cnfs(flow: pg.Flow) -> list[pg.CNF]:
    """Return the transforms of a flow that has only continuous ones."""
    return [each for each in flow.transforms if isinstance(each, pg.CNF)]


def training_gradients(
    flow: pg.Flow, target: Any, estimators: Sequence[str], batch: int
) -> dict[str, Work]:
    """Return the training gradient by each of several estimators."""
    return {name: training_gradient(flow, target, ESTIMATORS[name](), batch) for name in estimators}


def cnf_problem(options: CnfOptions) -> tuple[pg.Flow, Any]:
    """Return the flow and its target, a standard normal."""
    with told_to_users():
        flow = problem.make_flow(options.flow, (options.dim,), key=jr.key(options.measure.seed))
    return flow, pg.LogDensity(lambda x: -0.5 * jnp.sum(x**2), (options.dim,))


def lattice_problem(options: LatticeOptions) -> tuple[pg.Flow, Phi4]:
    """Return the flow and its target; the cost does not depend on the coupling."""
    with told_to_users():
        target = Phi4(options.size, COUPLINGS.get(options.size, 5.0))
        flow = make_lattice_flow(options.flow, target, key=jr.key(options.measure.seed))
    (cnf,) = cnfs(flow)
    divergences = {"closed": pg.ClosedForm, "exact": pg.Exact, "hutchinson": pg.Hutchinson}
    changed = cnf.replace(divergence=divergences[options.divergence]())
    return pg.Flow(flow.base, [changed]), target


def measure_cnf(options: CnfOptions, say: Say) -> dict[str, Any]:
    """Return the record of one configuration."""
    return measure_flow("cnf", options, cnf_problem, say)


def measure_lattice(options: LatticeOptions, say: Say) -> dict[str, Any]:
    """Return the record of one configuration."""
    return measure_flow("phi4", options, lattice_problem, say)


def measure_flow(what: str, options: Any, build: Callable[[Any], Any], say: Say) -> dict[str, Any]:
    """Return the record of one configuration: all options, what was measured, and ratios."""
    how = options.measure
    how.check()
    with precision(how.dtype):
        flow, target = build(options)
        works = training_gradients(flow, target, how.estimators, how.batch)
        measured = measure(works, repetitions=how.repetitions, seed=how.seed, say=say)
        return described(what, options, how, flow) | measured


def described(what: str, options: Any, how: MeasureOptions, flow: pg.Flow) -> dict[str, Any]:
    """Return a flat description of what was measured: options, with what they left to be found."""
    cnf = cnfs(flow)[0]
    steps = cnf.integrator.steps if isinstance(cnf.integrator, pg.FixedStep) else None
    flat = dataclasses.asdict(options)
    for part in ("flow", "measure"):
        flat |= flat.pop(part)
    del flat["estimators"]
    parameters = jax.tree.leaves(eqx.filter(flow, eqx.is_inexact_array))
    return (
        {"what": what}
        | flat
        | {
            "solver": flat.get("solver", "rk4"),
            "solver_steps": steps,
            "adjoint": type(cnf.adjoint).__name__.lower(),
            "parameters": sum(leaf.size for leaf in parameters),
        }
        | ({"volume": flat["size"] ** 2} if "size" in flat else {})
    )
