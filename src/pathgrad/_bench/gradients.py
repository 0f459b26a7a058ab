"""The training gradients of flows, as programs to measure."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, PyTree

import pathgrad as pg
from pathgrad._words.errors import UserError
from pathgrad.experiments.flows.making import ESTIMATORS, make_flow
from pathgrad.experiments.phi4.problem import make_flow as make_lattice_flow
from pathgrad.experiments.phi4.reference import COUPLINGS
from pathgrad.experiments.phi4.theory import Phi4

from .measure import Count, Work, measure
from .options import CnfOptions, ImagesOptions, LatticeOptions, MeasureOptions
from .record import Record, Say

DIVERGENCES = {"closed": pg.ClosedForm, "exact": pg.Exact, "hutchinson": pg.Hutchinson}


def measure_flow(options: CnfOptions | LatticeOptions, say: Say, count: Count | None = None) -> Record:
    """Measure the training gradients of a flow, with a perceptron as its field or on a lattice."""
    how = options.measure
    with measuring(how):
        if isinstance(options, CnfOptions):
            what, (flow, target) = "cnf", cnf_problem(options)
        else:
            what, (flow, target) = "phi4", lattice_problem(options)
        works = training_gradients(flow, target, how)
        return described(what, options, flow) | measure(works, how, say, count)


@contextlib.contextmanager
def measuring(how: MeasureOptions) -> Iterator[None]:
    """Check what is asked for, and compute in its precision, whatever holds outside."""
    how.check()
    with jax.enable_x64(how.dtype == "float64"):
        yield


@contextlib.contextmanager
def told_to_users() -> Iterator[None]:
    """Turn what a wrong option made a constructor say into a message for users."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from error


def cnf_problem(options: CnfOptions) -> tuple[pg.Flow, pg.LogDensity]:
    """Return the flow and its target, a standard normal."""
    with told_to_users():
        flow = make_flow(options.flow, (options.dim,), key=jr.key(options.measure.seed))
    return flow, pg.LogDensity(lambda x: -0.5 * jnp.sum(x**2), (options.dim,))


def lattice_problem(options: LatticeOptions) -> tuple[pg.Flow, Phi4]:
    """Return the flow and its target; the cost does not depend on the coupling."""
    with told_to_users():
        target = Phi4(options.size, COUPLINGS.get(options.size, 5.0))
        flow = make_lattice_flow(options.flow, target, key=jr.key(options.measure.seed))
    changed = only_cnf(flow).replace(divergence=DIVERGENCES[options.divergence]())
    return pg.Flow(flow.base, [changed]), target


def only_cnf(flow: pg.Flow) -> pg.CNF:
    """Return the one transform of a lattice flow, or the first of several of a kind."""
    cnf = flow.transforms[0]
    assert isinstance(cnf, pg.CNF)
    return cnf


def training_gradients(flow: pg.Flow, target: pg.Target, how: MeasureOptions) -> dict[str, Work]:
    """Return value and gradient of the reverse KL divergence, by each estimator."""

    def work(estimator: pg.AbstractEstimator) -> Work:
        def loss(flow: pg.Flow, key: Array) -> tuple[Array, pg.SolveInfo | None]:
            found = pg.ReverseKL(target, estimator)(flow, pg.Batch(jr.split(key, how.batch)))
            return found.loss, found.solve

        return gradient(flow, loss)

    return {name: work(ESTIMATORS[name]()) for name in how.estimators}


def gradient(flow: pg.Flow, loss: Callable[[pg.Flow, Array], tuple[Array, pg.SolveInfo | None]]) -> Work:
    """Return value and gradient of a loss of a flow and a key, as a training step needs them.

    Without the value, log q of the total gradient would be dead code, and be removed.
    """
    parameters, static = eqx.partition(flow, eqx.is_inexact_array)

    def tallied(parameters: PyTree, tally: pg.Tally, key: Array) -> tuple[Array, pg.SolveInfo | None]:
        return loss(eqx.combine(parameters, static).tallied(tally), key)

    def run(parameters: PyTree, key: Array) -> tuple[PyTree, tuple[Array, Array]]:
        both = jax.value_and_grad(tallied, (0, 1), has_aux=True)
        (value, solve), (slope, tally) = both(parameters, pg.Tally(jnp.zeros(())), key)
        return (value, slope), (solve.evaluations, tally.value)

    return Work(run, parameters)


def described(what: str, options: CnfOptions | LatticeOptions | ImagesOptions, flow: pg.Flow) -> Record:
    """Return a flat description of what was measured: options, with what they left to be found."""
    cnf = only_cnf(flow)
    flat = dataclasses.asdict(options)
    for part in ("flow", "measure"):
        flat |= flat.pop(part)
    del flat["estimators"]
    steps = cnf.integrator.steps if isinstance(cnf.integrator, pg.FixedStep) else None
    found = {
        "solver": flat.get("solver", "rk4"),
        "solver_steps": steps,
        "adjoint": type(cnf.adjoint).__name__.lower(),
        "parameters": parameter_count(flow),
    }
    volume = {"volume": flat["size"] ** 2} if "size" in flat else {}
    return {"what": what} | flat | found | volume


def parameter_count(model: PyTree) -> int:
    """Return how many numbers a model has that can be trained."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
