"""What training carries from step to step, and what it reports about each step."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree


class Best(eqx.Module):
    """The best model so far, judged by validation."""

    model: PyTree
    loss: Float[Array, ""]  # infinite before the first validation
    step: Int[Array, ""]  # training steps taken to get it
    waiting: Int[Array, ""]  # validations since then that count against patience
    found: PyTree = None  # what else a validation remembers of it


class TrainState(eqx.Module):
    """Everything the next step needs.

    Attributes:
        model: The model as trained so far: a flow, or whatever the objective trains.
        memory: What the method carries along: moments, an average of the parameters, a damping.
        step: Steps taken, skipped ones included.
        skipped: Steps that were skipped because something was not finite.
        skipped_in_row: Skipped steps since the last good one.
        best: The best model so far, if there is a validation.
        horizon: Number of steps at which the training will end; 0 as long as that is unknown.
    """

    model: PyTree
    memory: PyTree
    step: Int[Array, ""]
    skipped: Int[Array, ""]
    skipped_in_row: Int[Array, ""]
    best: Best | None = None
    horizon: Int[Array, ""] | int = 0

    @property
    def progress(self) -> Float[Array, ""]:
        """Share of the training that is done, from 0 to 1; 0 as long as its length is not known."""
        known = jnp.maximum(jnp.asarray(self.horizon), 1)
        share = jnp.minimum(self.step / known, 1.0)
        return jnp.where(jnp.asarray(self.horizon) > 0, share, 0.0).astype(jnp.float32)

    def after(self, model: PyTree, memory: PyTree, *, good: Bool[Array, ""] | bool = True) -> "TrainState":
        """Return the state after one more step, which counts as skipped unless it was good.

        For a skipped step, pass model and memory as they were before it.
        """
        skipped = jnp.where(good, 0, 1)
        return dataclasses.replace(
            self,
            model=model,
            memory=memory,
            step=self.step + 1,
            skipped=self.skipped + skipped,
            skipped_in_row=(self.skipped_in_row + 1) * skipped,
        )

    def with_models(
        self, change: Callable[[PyTree], PyTree], init: Callable[[PyTree], PyTree]
    ) -> "TrainState":
        """Return the state with its models replaced by what a function makes of them.

        Args:
            change: May change what is static in a model, and values of arrays, but not which arrays there
                are.
            init: The method's `init`. Moments and averages have the structure of the model, and follow it.
        """
        best, model = self.best, change(self.model)
        if best is not None:
            best = dataclasses.replace(best, model=change(best.model))
        structure = jax.tree.structure(eqx.filter_eval_shape(init, model))
        memory = jax.tree.unflatten(structure, jax.tree.leaves(self.memory))
        return dataclasses.replace(self, model=model, memory=memory, best=best)


class StepInfo(NamedTuple):
    """Information about a step; for a block of steps, with a leading step axis.

    Attributes:
        loss: Value of the objective.
        each: Value of the objective for each draw.
        numbers: Further scalars of the objective, by name.
        gradient_norm: Euclidean norm of the estimator's gradient, before the optimiser.
        evaluations: Field evaluations of the forward solve.
        evaluations_backward: Field evaluations of the backward pass.
        outcome: `FINE`, or why the step was skipped: an `Outcome`, as a number.
        in_row: Skipped steps in a row, this one included.
    """

    loss: Float[Array, "..."] | np.ndarray
    each: Float[Array, "... batch"] | np.ndarray
    numbers: dict[str, Float[Array, "..."]] | dict[str, np.ndarray]
    gradient_norm: Float[Array, "..."] | np.ndarray
    evaluations: Array | np.ndarray
    evaluations_backward: Float[Array, "..."] | np.ndarray
    outcome: Int[Array, "..."] | np.ndarray
    in_row: Int[Array, "..."] | np.ndarray


def begin(model: PyTree, memory: PyTree, best: Best | None = None) -> TrainState:
    """Return the state before the first step."""
    none = [jnp.zeros((), jnp.int32) for _ in range(4)]  # no array may be in two places of a state
    return TrainState(model, memory, none[0], none[1], none[2], best, none[3])


def strongly_typed(model: PyTree) -> PyTree:
    """Make all array types strong in JAX's sense: a checkpoint would not preserve weak ones."""
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype) if eqx.is_inexact_array(x) else x, model)


def copied(tree: PyTree) -> PyTree:
    """Copy every array, since the next block overwrites those of the current state."""
    return jax.tree.map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, tree)
