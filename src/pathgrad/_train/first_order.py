"""First-order training: steps along a gradient, with any optimiser from Optax."""

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PyTree

from .. import devices as sharing
from .._gradients.objectives import AbstractObjective, Batch, Estimate
from .._words.arguments import instance, share, shown, whole
from .._words.draw import SolveInfo, Tally
from .._words.errors import ArgumentError, named
from .._words.outcome import Outcome, failure_if, first_failure
from .._words.tree import number_of_draws
from ..metrics import gradient_norm
from .blocks import AbstractCompiledMethod
from .rate import AbstractRate
from .state import StepInfo, copied


def check_optimizer(optimizer: Any) -> None:
    """Raise unless an optimiser is one of Optax."""
    is_class = isinstance(optimizer, type)
    if is_class or not (callable(getattr(optimizer, "init", None)) and hasattr(optimizer, "update")):
        raise ArgumentError(
            f"{named('optimizer')} must be one of Optax, such as `optax.adam(1e-3)`, got {shown(optimizer)}."
        )


class Average(eqx.Module):
    """A moving average of the parameters, and how many steps it has seen."""

    parameters: PyTree
    steps: Int[Array, ""]

    def add(self, parameters: PyTree, decay: float, good: Bool[Array, ""]) -> "Average":
        """Add the parameters after a step, unless it was skipped."""
        # A short memory at first, so that even a short training forgets its initial parameters.
        steps = self.steps.astype(jnp.result_type(float))
        decay_now = jnp.minimum(decay, (1 + steps) / (10 + steps))
        share = jnp.where(good, 1 - decay_now, 0.0)
        mixed = jax.tree.map(lambda a, p: a + share.astype(a.dtype) * (p - a), self.parameters, parameters)
        return Average(mixed, self.steps + good)


class Memory(eqx.Module):
    """What the next step needs: the optimiser's state, and the average if there is one."""

    optimizer: PyTree
    average: Average | None


class FirstOrder(AbstractCompiledMethod):
    """Follow the objective's gradient with an Optax optimiser.

    A step that is not finite is skipped, and counted.

    Attributes:
        optimizer: Any Optax optimiser. Those with a line search, such as `optax.lbfgs`, evaluate the batch
            several times in a step; they suit large batches and `TotalGradient`, the derivative of the
            values that they see.
        n: Draws per step; if the objective has data, as many entries of it.
        block: Steps in one compiled block, and per row of metrics.
        average: Decay of a moving average of the parameters, such as 0.999; the average is then the result
            of the training. `None` for no average.
        rate: Factor on the updates by step and progress, such as `Trapezoid`; `None` for no factor. Unlike a
            schedule of Optax, it works for a training that ends after some time.
        devices: The devices that share the draws, as many of them as can share `n` evenly. Default: all
            devices of all processes.
    """

    optimizer: optax.GradientTransformation = eqx.field(static=True)
    n: int = eqx.field(static=True)
    block: int = eqx.field(static=True)
    average: float | None = eqx.field(static=True)
    rate: AbstractRate | None
    devices: tuple[Any, ...] | None = eqx.field(static=True)

    def __init__(
        self,
        optimizer: optax.GradientTransformation,
        n: int = 256,
        *,
        block: int = 50,
        average: float | None = None,
        rate: AbstractRate | None = None,
        devices: Sequence[Any] | None = None,
    ) -> None:
        """Set the attributes described above."""
        self.optimizer, self.rate = optimizer, rate
        self.n, self.block = whole("n", n), whole("block", block)
        self.average = None if average is None else share("average", average)
        self.devices = None if devices is None else tuple(devices)

    def __check_init__(self):
        check_optimizer(self.optimizer)
        if self.rate is not None:
            instance("rate", self.rate, AbstractRate, "a rate, such as `Trapezoid()`, or `None`")

    @property
    def needs_horizon(self):
        return self.rate is not None

    def init(self, model):
        parameters = eqx.filter(model, eqx.is_inexact_array)
        average = None
        if self.average is not None:
            average = Average(copied(parameters), jnp.zeros((), jnp.int32))
        return Memory(self.optimizer.init(parameters), average)

    def result(self, state):
        average = state.memory.average
        return state.model if average is None else eqx.combine(average.parameters, state.model)

    def step(self, state, objective, *, key, data=None, mesh=None):
        parameters, fixed = eqx.partition(state.model, eqx.is_inexact_array)
        n = self.n if data is None else jax.tree.leaves(data)[0].shape[0]
        estimate, solve, gradient, counted = _differentiate(
            parameters, fixed, objective, (jr.split(key, n), data), state.step, mesh
        )
        norm = gradient_norm(gradient)
        more = {}
        if isinstance(self.optimizer, optax.GradientTransformationExtraArgs):
            # For a line search: the loss of the same batch, with other parameters.
            per_draw = jr.split(key, n), data
            loss_at = functools.partial(
                _loss, fixed=fixed, objective=objective, per_draw=per_draw, step=state.step, mesh=mesh
            )
            more = {"value": estimate.loss, "grad": gradient, "value_fn": loss_at}
        updates, optimizer_state = self.optimizer.update(gradient, state.memory.optimizer, parameters, **more)
        if self.rate is not None:
            factor = self.rate(state.step, state.progress)
            updates = jax.tree.map(lambda u: factor.astype(u.dtype) * u, updates)
        outcome = first_failure(
            # First: a failed solve makes everything after it not finite too.
            solve.outcome,
            estimate.outcome,
            failure_if(~jnp.isfinite(estimate.loss), Outcome.DENSITY_NOT_FINITE),
            failure_if(~jnp.isfinite(norm), Outcome.GRADIENT_NOT_FINITE),
            failure_if(~jnp.isfinite(gradient_norm(updates)), Outcome.UPDATE_NOT_FINITE),
        )
        good = outcome == Outcome.FINE
        moved = eqx.apply_updates(parameters, updates)
        parameters, optimizer_state = jax.tree.map(
            lambda new, old: jnp.where(good, new, old) if eqx.is_array(new) else new,
            (moved, optimizer_state),
            (parameters, state.memory.optimizer),
        )
        average = state.memory.average
        if average is not None and self.average is not None:
            average = average.add(parameters, self.average, good)
        model, memory = eqx.combine(parameters, fixed), Memory(optimizer_state, average)
        after = state.after(model, memory, good=good)
        measured = estimate.loss, estimate.each, estimate.numbers, norm, solve.evaluations, counted
        return after, StepInfo(*measured, outcome, after.skipped_in_row), gradient


def _loss(
    parameters: PyTree, *, fixed: PyTree, objective: AbstractObjective, per_draw, step, mesh: Mesh | None
) -> Float[Array, ""]:
    """Return the loss of a batch, over the draws of all devices, with the derivative of the estimator."""
    if number_of_draws((parameters, fixed)) is not None:
        mesh = None
    arrays, static = eqx.partition((fixed, objective), eqx.is_array)

    def part(common, per_draw):
        parameters, arrays, step = common
        keys, data = per_draw
        fixed, objective = eqx.combine(arrays, static)
        return sharing.average(objective(eqx.combine(parameters, fixed), Batch(keys, data, step)).loss)

    return sharing.spread(part, mesh)((parameters, arrays, step), per_draw)


def _differentiate(
    parameters: PyTree, fixed: PyTree, objective: AbstractObjective, per_draw, step, mesh: Mesh | None
) -> tuple[Estimate, SolveInfo, PyTree, Array]:
    """Return estimate, solves, gradient and backward evaluations, over the draws of all devices."""
    if number_of_draws((parameters, fixed)) is not None:
        mesh = None  # `PerDraw` leaves are not split between devices
    arrays, static = eqx.partition((fixed, objective), eqx.is_array)

    def part(common, per_draw):
        parameters, arrays, step = common
        keys, data = per_draw
        fixed, objective = eqx.combine(arrays, static)

        def loss_of(parameters, tally):
            estimate = objective(eqx.combine(parameters, fixed), Batch(keys, data, step, tally))
            return estimate.loss, estimate

        differentiated = jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True)
        (_, estimate), (gradient, counted) = differentiated(parameters, Tally(jnp.zeros(())))
        return _of_all_devices(estimate, gradient, counted.value)

    return sharing.spread(part, mesh)((parameters, arrays, step), per_draw)


def _of_all_devices(estimate: Estimate, gradient: PyTree, counted: Array):
    """Combine the results of all devices, by three messages between them."""
    loss, numbers, gradient = sharing.average((estimate.loss, estimate.numbers, gradient))
    losses = sharing.gather(estimate.each)
    none = SolveInfo(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
    solve = none if estimate.solve is None else estimate.solve
    counts = [estimate.outcome, solve.evaluations, solve.outcome, counted]
    outcome, evaluations, solved, counted = sharing.largest(
        jnp.stack([jnp.asarray(c, jnp.int32) for c in counts])
    )
    return Estimate(loss, losses, outcome, None, numbers), SolveInfo(evaluations, solved), gradient, counted
