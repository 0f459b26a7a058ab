"""The training loop: blocks of steps, rows of metrics, validation, and when to stop."""

import dataclasses
import functools
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PyTree

from .._gradients.objectives import AbstractObjective
from .._words.arguments import instance, limit, not_negative, whole, whole_or_none
from .._words.errors import ArgumentError, UserError, named
from .._words.keys import one_key
from .._words.outcome import Outcome, Stop
from ..devices import any_process, of_first_process, several_processes
from .method import AbstractMethod, AbstractRunner, Block
from .row import Row
from .state import StepInfo, TrainState, begin, copied, strongly_typed
from .validation import AbstractValidation, Numbers

_VALIDATION = 2**32 - 2  # folded into the training key; steps use the small numbers
_PLANNED_AFTER = 0.05  # fraction of `max_seconds` after which the number of steps is estimated
_GRACE = 1.1  # factor on `max_seconds` by which a training that has become slower may be late
_DOUBT = 4.0  # standard errors by which a loss may be below its bound
_ROUNDING = 1e-3  # nats by which a loss may be below its bound


class TrainingDiverged(UserError):
    """Training cannot continue.

    Attributes:
        state: The last good state.
        outcome: What went wrong.
    """

    def __init__(self, text: str, state: TrainState, outcome: Outcome) -> None:
        super().__init__(text)
        self.state, self.outcome = state, outcome


class Trainer:
    """Trains a model with a method, and measures the time.

    Iterating over `blocks` yields the state and a row of metrics after every block, so that a caller
    can save, print, or stop in between.

    Attributes:
        seconds: Training time so far, without compiling, validation and what the caller does between blocks.
        stopped: Why `blocks` ended.
    """

    def __init__(
        self,
        objective: AbstractObjective,
        method: AbstractMethod,
        *,
        key: Key[Array, ""],
        validation: AbstractValidation | None = None,
        max_failures: int = 10,
        seconds: float = 0.0,
    ) -> None:
        """Prepare a training run.

        Args:
            objective: What is minimised.
            method: How to train.
            key: Source of all noise. That of a step depends only on this key and the step's number, so that
                a resumed run repeats it.
            validation: How to judge models on the way, if at all.
            max_failures: Number of skipped steps in a row after which training stops.
            seconds: Training time spent before, for a run that is resumed.
        """
        instance("objective", objective, AbstractObjective, "an objective, such as `ReverseKL(target)`")
        instance("method", method, AbstractMethod, "a method, such as `FirstOrder(optax.adam(1e-3))`")
        if validation is not None:
            instance("validation", validation, AbstractValidation, "a `Validation`, or `None`")
        key, max_failures = one_key(key), whole("max_failures", max_failures)
        seconds = not_negative("seconds", seconds)
        self.objective, self.method, self.validation = objective, method, validation
        self.seconds, self._max_failures, self._key = seconds, max_failures, key
        self.stopped: Stop | None = None
        self._origin: int | None = None  # the step at which `seconds` were zero
        self._limits: tuple[int | None, float | None] | None = None  # of the last call of `blocks`
        self._lap = 0, 0.0  # step and seconds since which the pace is measured

    @functools.cached_property
    def _runner(self) -> AbstractRunner:
        """What takes the steps. Made when first needed: that may fail, and a state can be read without it."""
        return self.method.runner(self.objective, key=self._key)

    @property
    def compile_seconds(self) -> float:
        """Time spent compiling."""
        return self._runner.compile_seconds

    @property
    def devices(self) -> int:
        """How many devices share the draws."""
        return 1 if self._runner.mesh is None else self._runner.mesh.size

    def init(self, model: PyTree) -> TrainState:
        """Return the state before the first step."""
        model = strongly_typed(model)
        best = None if self.validation is None else self.validation.begin(model)
        return begin(model, self.method.init(model), best)

    def prepare(self, state: TrainState, steps: int | None) -> None:
        """Compile what `blocks` needs first; what fails here fails before anything is done or written."""
        done = int(state.step)
        if steps is None or done < steps:
            self._runner.prepare(state, self._length(done, steps))

    def result(self, state: TrainState) -> PyTree:
        """Return the trained model: the best one, if there was a validation."""
        if state.best is not None and int(state.best.step):
            return state.best.model
        return self.method.result(state)

    def blocks(
        self, state: TrainState, steps: int | None, max_seconds: float | None = None
    ) -> Iterator[tuple[TrainState, Row]]:
        """Train until `steps` steps have been taken in total, or time or patience runs out.

        Each block overwrites the arrays of the state yielded before: copy what you want to keep. The state
        that you pass in is not changed.
        """
        steps = whole_or_none("steps", steps, 0)
        max_seconds = limit("max_seconds", max_seconds)
        if self.validation is not None and state.best is None:
            raise ArgumentError(
                f"This {named('state')} was made without a validation: start with `trainer.init(model)`."
            )
        state = self._begun(copied(state), steps, max_seconds)
        while (done := int(state.step)) < (end := self._end(state, steps)):
            if self._must_stop(state, max_seconds):
                return
            if self._can_plan(state, max_seconds):
                assert max_seconds is not None
                left = round((done - self._first) * (max_seconds / self.seconds - 1))
                state = _planned(state, of_first_process(min(end, done + max(1, left))))
                continue
            length = self._length(done, end)
            state = self._runner.prepare(state, length)
            began = time.perf_counter()
            block = self._runner.run(state, length)
            self.seconds += time.perf_counter() - began
            state, numbers = self._kept_pace(block.state, max_seconds), self._numbers(block)
            if self.validation is not None and self._is_validated(state, end, max_seconds):
                key = jr.fold_in(jr.fold_in(self._key, _VALIDATION), int(state.step))
                mesh = self._runner.mesh
                state, more = self.validation.validated(state, self.method, key=key, mesh=mesh)
                numbers |= more
            yield state, Row.of(numbers)
            _stop_if_diverged(state, block.steps, done, self._max_failures)
            _stop_if_unknown(state, numbers.get("validation", 0.0))
        is_whole = steps is not None and int(state.step) >= steps
        self.stopped = Stop.STEPS_TAKEN if is_whole else Stop.TIME_USED_UP

    def _begun(self, state: TrainState, steps: int | None, max_seconds: float | None) -> TrainState:
        """Return the state to begin with: its plan is kept only if it was made for the same limits."""
        self.stopped, first = None, int(state.step)
        self._lap = first, self.seconds
        # The clock of a resumed run goes on; that of a new trainer begins with the state that it is given.
        is_new_clock = self._origin is None and not self.seconds
        if self._origin is None:
            self._origin = 0 if self.seconds else first
        is_planned = (first == 0 or not is_new_clock) and self._limits in (None, (steps, max_seconds))
        self._limits = steps, max_seconds
        if max_seconds is None:
            return _planned(state, steps or 0)
        return state if is_planned else _planned(state, 0)

    @property
    def _first(self) -> int:
        return self._origin or 0

    @property
    def _needs_horizon(self) -> bool:
        data = self.objective.data
        return self.method.needs_horizon or (data is not None and data.augment is not None)

    def _end(self, state: TrainState, steps: int | None) -> int:
        """Return after which step to stop, whatever the clock says."""
        end = sys.maxsize if steps is None else steps
        return min(end, int(state.horizon)) if int(state.horizon) else end

    def _can_plan(self, state: TrainState, max_seconds: float | None) -> bool:
        """Say whether the length of a training that ends by the clock is to be estimated now."""
        if max_seconds is None or int(state.horizon) or not self._needs_horizon:
            return False
        known = int(state.step) > self._first and self.seconds >= _PLANNED_AFTER * max_seconds
        return any_process(known) if several_processes(self._runner.mesh) else known

    def _kept_pace(self, state: TrainState, max_seconds: float | None) -> TrainState:
        """Shorten the plan of a training that has become too slow for it, as with more solver steps.

        Otherwise it would end before its learning rate is down. (Several processes have several clocks; they
        keep to their plan.)
        """
        done, horizon = int(state.step), int(state.horizon)
        if (
            max_seconds is None
            or not horizon
            or not self._needs_horizon
            or several_processes(self._runner.mesh)
        ):
            return state
        step, seconds = self._lap
        if self.seconds - seconds < _PLANNED_AFTER * max_seconds:
            return state
        pace, self._lap = (self.seconds - seconds) / (done - step), (done, self.seconds)
        if self.seconds + pace * (horizon - done) <= _GRACE * max_seconds:
            return state
        return _planned(state, done + max(1, round((max_seconds - self.seconds) / pace)))

    def _must_stop(self, state: TrainState, max_seconds: float | None) -> bool:
        if self._is_over(state, max_seconds):
            self.stopped = Stop.TIME_USED_UP
        elif self.validation is not None and state.best is not None:
            self.stopped = self.validation.stop(state.best)
        return self.stopped is not None

    def _is_over(self, state: TrainState, max_seconds: float | None) -> bool:
        """Say whether time is used up."""
        # A plan is kept to, within limits, so that the learning rate reaches its end.
        grace = _GRACE if int(state.horizon) and self._needs_horizon else 1.0
        over = max_seconds is not None and self.seconds >= grace * max_seconds
        # Every process has its own clock; the first whose time is up stops all of them.
        return any_process(over) if several_processes(self._runner.mesh) else over

    def _is_validated(self, state: TrainState, end: int, max_seconds: float | None) -> bool:
        """Say whether a validation is due: regularly, and at the end of a training that has a plan."""
        assert self.validation is not None
        step = int(state.step)
        if self.validation.next(step - 1) == step:
            return True
        is_last = step >= end or self._is_over(state, max_seconds)
        return is_last and self._needs_horizon

    def _length(self, done: int, steps: int | None) -> int:
        """Return the number of steps of the next block."""
        ends = [self._runner.length(done)]
        if steps is not None:
            ends.append(steps - done)
        if self.validation is not None:
            ends.append(self.validation.next(done) - done)
        return min(ends)

    def _numbers(self, block: Block) -> Numbers:
        """Summarise a block: means over its good steps, and the number of skipped ones."""
        counts = {"step": int(block.state.step), "skipped": int(block.state.skipped)}
        if self.method.needs_horizon and int(block.state.horizon):
            counts["planned_steps"] = int(block.state.horizon)
        if self.validation is not None:
            counts |= self.validation.place(int(block.state.step))
        numbers = {"seconds": self.seconds, **counts, **block.numbers}
        good = np.asarray(block.steps.outcome) == Outcome.FINE
        if good.any():
            numbers = self._means(block.steps, good) | numbers
        # An objective or method may return arrays, which `Row.of` would drop: make them plain numbers.
        plain = {name: v if isinstance(v, int) else float(v) for name, v in numbers.items()}
        return plain | self._alarm(plain)

    def _means(self, infos: StepInfo, good: np.ndarray) -> dict[str, Any]:
        """Return means over the good steps of a block, and the objective's summary of their draws."""
        losses = np.asarray(infos.each)[good].ravel()
        means = {name: np.asarray(values)[good].mean() for name, values in infos.numbers.items()}
        means |= self.objective.summary(losses)
        for name in ("loss", "evaluations", "evaluations_backward"):
            means[name] = np.asarray(getattr(infos, name))[good].mean()
        means["gradient_norm"] = np.sqrt(np.mean(np.square(np.asarray(infos.gradient_norm)[good])))
        if self.objective.is_mean:
            with np.errstate(invalid="ignore"):  # a draw with a weight of zero has an infinite loss
                means["loss_err"] = losses.std() / losses.size**0.5
        return means

    def _alarm(self, numbers: Numbers) -> Numbers:
        """Return how far the loss is below its bound, if that is more than chance.

        No true density gets there: the solver's error in log q has grown, and with the total gradient it
        keeps growing, since that gradient rewards it. The effective sample size alone does not show it.
        """
        if self.objective.lower_bound is None or "loss_err" not in numbers:
            return {}
        bound, error = self.objective.lower_bound
        below = bound - numbers["loss"]
        # Where q = p only rounding is left of the scatter, and log densities may be large.
        doubt = max(_DOUBT * math.hypot(numbers["loss_err"], error), _ROUNDING)
        return {"below_bound": below} if below > doubt else {}


def _planned(state: TrainState, horizon: int) -> TrainState:
    """Return the state of a training that will have taken so many steps at its end."""
    return dataclasses.replace(state, horizon=jnp.asarray(min(horizon, 2**31 - 1), jnp.int32))


def _stop_if_unknown(state: TrainState, validation: float) -> None:
    if math.isfinite(validation):
        return
    outcome = Outcome.VALIDATION_NOT_FINITE
    raise TrainingDiverged(
        f"Training stopped at step {int(state.step)}: {outcome.text} ({validation}). The parameters are "
        "those of the last step.",
        state,
        outcome,
    )


def _stop_if_diverged(state: TrainState, infos: StepInfo, done: int, limit: int) -> None:
    in_row = np.asarray(infos.in_row)
    if in_row.max() < limit:
        return
    last = int(np.argmax(in_row >= limit))
    first = done + last + 1 - int(in_row[last])
    outcome = Outcome(int(np.asarray(infos.outcome)[last]))
    raise TrainingDiverged(
        f"Training stopped: {limit} steps in a row from step {first} on were not finite. Likely cause: "
        f"{outcome.text}. The parameters are those of the last good step.",
        state,
        outcome,
    )
