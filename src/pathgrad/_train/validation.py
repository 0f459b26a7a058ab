"""Validation: judge a model on data that it does not learn from, keep the best, and stop in time."""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key, PyTree

from .. import devices
from .._gradients.objectives import AbstractObjective, Batch
from .._words.arguments import function, instance, whole, whole_or_none
from .._words.errors import ArgumentError, named
from .._words.outcome import Stop
from .method import AbstractMethod
from .state import Best, TrainState, copied

Numbers = dict[str, float | int]  # of a row of metrics, by name


class AbstractValidation(eqx.Module):
    """When to judge the model of a training, how, and when it is time to stop.

    The best model is part of the state, and what is decided about it depends on the state alone: so a resumed
    training keeps the same one.
    """

    def begin(self, model: PyTree) -> Best:
        """Return what is known before the first step: no model has been judged yet."""
        none = [jnp.zeros((), jnp.int32) for _ in range(2)]  # no array may be in two places of a state
        return Best(model, jnp.asarray(jnp.inf, jnp.float32), *none)

    @abstractmethod
    def next(self, step: int) -> int:
        """Return the first step after this one at which to judge. A block of steps ends there."""

    @abstractmethod
    def validated(
        self, state: TrainState, method: AbstractMethod, *, key: Key[Array, ""], mesh: Mesh | None
    ) -> tuple[TrainState, Numbers]:
        """Judge a state's model, and keep it if it is the best; return numbers for the row of metrics."""

    @abstractmethod
    def stop(self, best: Best) -> Stop | None:
        """Return why to stop, if it is time to."""

    def place(self, step: int) -> Numbers:
        """Return numbers for the rows of metrics that tell where in the training a step is."""
        return {}


class Validation(AbstractValidation):
    """How often to validate, on what, and with how much patience.

    Attributes:
        objective: An objective with its own `data`; its mean over these is the validation loss. It should not
            change with the step, as one with a warm-up does. The value does not depend on the estimator;
            `TotalGradient` is the cheapest.
        every: Steps between two validations.
        n: Number of entries evaluated at a time.
        patience: Stop when more validations than this have passed without a better one. `None` for never.
        patient_until: Validations before this step do not count against patience: during a warm-up another
            loss is trained.
        watch: Called as `watch(model, key=...)` before each validation. It returns `None`, or a function that
            replaces the models of the training from then on: by ones that are solved more finely. The best
            model is then measured again.
    """

    objective: AbstractObjective
    every: int = eqx.field(static=True, converter=lambda value: whole("every", value))
    n: int = eqx.field(static=True, default=256, converter=lambda value: whole("n", value))
    patience: int | None = eqx.field(
        static=True, default=None, converter=lambda value: whole_or_none("patience", value, 0)
    )
    patient_until: int = eqx.field(
        static=True, default=0, converter=lambda value: whole("patient_until", value, 0)
    )
    watch: Callable[..., Callable[[PyTree], PyTree] | None] | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        instance("objective", self.objective, AbstractObjective, "an objective with data")
        if self.watch is not None:
            function("watch", self.watch, "watch(model, key=...)")
        if self.objective.data is None:
            raise ArgumentError(
                f"A validation needs data; the {named('objective')} {type(self.objective).__name__} has none."
            )

    def next(self, step):
        return step + self.every - step % self.every

    def validated(self, state, method, *, key, mesh):
        assert state.best is not None
        step, model, best = int(state.step), method.result(state), state.best
        if self.watch is not None and (change := self.watch(model, key=key)) is not None:
            state = state.with_models(change, method.init)
            model, best = method.result(state), self.again(state.best, step, key=key, mesh=mesh)
        loss = self.loss(model, step, key=key, mesh=mesh)
        best = self.after(best, model, loss, step)
        numbers = {"validation": loss, "best_validation": float(best.loss), "waiting": int(best.waiting)}
        return dataclasses.replace(state, best=best), numbers

    def stop(self, best):
        is_over = self.patience is not None and int(best.waiting) > self.patience
        return Stop.PATIENCE_USED_UP if is_over else None

    def loss(self, model: PyTree, step: int, *, key: Key[Array, ""], mesh: Mesh | None = None) -> float:
        """Return the mean of the objective over all its data, in which every entry counts equally."""
        data = self.objective.data
        assert data is not None
        total = 0.0
        model, objective = devices.replicated((model, self.objective), mesh)
        for i, (rows, new) in enumerate(data.in_turn(self.n)):
            rows_and_key = devices.replicated((rows, jr.fold_in(key, i)), mesh)
            losses = _losses(model, objective, jnp.asarray(step), *rows_and_key, self.n, mesh)
            total += float(np.sum(np.asarray(losses, np.float64)[:new]))
        # In the precision of `Best.loss`, so that the same loss again does not count as better.
        return float(np.float32(total / len(data)))

    def after(self, best: Best, model: PyTree, loss: float, step: int) -> Best:
        """Return the best model after one more validation."""
        if loss < float(best.loss):
            counts = jnp.asarray(step, jnp.int32), jnp.zeros((), jnp.int32)
            return Best(copied(model), jnp.asarray(loss, jnp.float32), *counts)
        waiting = int(best.waiting) + (step >= self.patient_until)
        return Best(best.model, best.loss, best.step, jnp.asarray(waiting, jnp.int32))

    def again(self, best: Best | None, step: int, *, key: Key[Array, ""], mesh: Mesh | None = None) -> Best:
        """Return the best model with its loss measured again: `watch` has changed how it is computed."""
        assert best is not None
        if not int(best.step):
            return best
        loss = self.loss(best.model, step, key=key, mesh=mesh)
        known = loss if math.isfinite(loss) else math.inf
        return Best(best.model, jnp.asarray(known, jnp.float32), best.step, best.waiting)


@eqx.filter_jit
def _losses(
    model, objective: AbstractObjective, step, rows, key, n: int, mesh: Mesh | None
) -> Float[Array, " batch"]:
    arrays, static = eqx.partition((model, objective), eqx.is_array)

    def part(common, rows, keys):
        arrays, step = common
        model, objective = eqx.combine(arrays, static)
        return objective(model, Batch(keys, rows, step)).each

    assert objective.data is not None
    change_key, draw_key = jr.split(key)
    rows = objective.data.changed(rows, key=change_key)
    return devices.for_each_draw(part, mesh)((arrays, step), rows, jr.split(draw_key, n))
