"""Steps of `GaussNewton`: gather moments, try dampings on fresh draws, take the best."""

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from ..._ingredients.target import Target
from ..._words.outcome import Outcome
from ...devices import on_one_device
from ..method import AbstractRunner, Block
from ..state import StepInfo, TrainState
from .damped_step import DampedStep, damped_step
from .moments import Bounds, Model, Moments, default_chunk

if TYPE_CHECKING:
    from .method import GaussNewton

_FEWEST_DRAWS = 512
_TOLERATED = 0.01  # share of draws that may have numbers that are not finite
_FACTOR = 3.0  # ratio between the dampings tried
_RESCUE = (10.0, 100.0)  # factors tried if none of these helps
_NO_WORSE = 1.02  # factor by which the spread of the trial draws may rise: it has an error
_DAMPINGS = (1e-8, 1e6)  # smallest and largest
_GROW_BELOW = 0.5  # share of signal in a step below which the draws are doubled


class GaussNewtonState(NamedTuple):
    """What the next step needs from the steps before."""

    damping: Float[Array, ""]  # centre of those to try, relative to the mean eigenvalue of the metric
    draws_per_parameter: Float[Array, ""]  # doubled when a step was mostly noise

    @classmethod
    def of(cls, damping: float, draws_per_parameter: float) -> "GaussNewtonState":
        """Make a state from plain numbers."""
        return cls(jnp.asarray(damping, jnp.float32), jnp.asarray(draws_per_parameter, jnp.float32))


class GaussNewtonRunner(AbstractRunner):
    """Takes the steps of one training run, one at a time; its threads use the cores of one device."""

    def __init__(self, method: "GaussNewton", target: Target, key: Key[Array, ""]) -> None:
        self.method, self.target, self.key = method, target, key
        self._prepared: Model | None = None
        self._differentiate: Any = None
        self._weigh: Any = None

    def length(self, step):
        return 1

    def prepare(self, state, length):
        """Compile what a step calls, unless that is already done for this flow."""
        state = on_one_device(state)  # a stage before this one may have shared its draws
        model, vector = Model.split(state.model, self.target)
        static = eqx.filter(model, eqx.is_array, inverse=True)  # arrays are arguments
        if self._prepared is not None and bool(eqx.tree_equal(self._prepared, static)):
            return state
        began = time.perf_counter()
        self._prepared = static
        jit: Any = eqx.filter_jit
        keys = jr.split(self.key, self._chunk(state))
        trial_keys = jr.split(self.key, self.method.trials)
        self._differentiate = jit(Model.log_densities_and_scores).lower(model, vector, keys).compile()
        self._weigh = jit(Model.log_weights).lower(model, vector, trial_keys).compile()
        self.compile_seconds += time.perf_counter() - began
        return state

    def run(self, state, length):
        """Take one step. The arrays of its info have a leading axis of length one, as for a block."""
        # The noise of a step depends on the key and its number alone, so that a resumed run repeats it.
        draw_key, trial_key = jr.split(jr.fold_in(self.key, state.step))
        model, vector = Model.split(state.model, self.target)
        memory: GaussNewtonState = state.memory
        chunk = self._chunk(state)
        wanted = max(_FEWEST_DRAWS, float(memory.draws_per_parameter) * vector.size)
        n = math.ceil(wanted / chunk) * chunk
        moments, covariances = self._gather(model, vector, jr.split(draw_key, n).reshape(-1, chunk))
        outcome = _outcome(moments, n)
        numbers: dict[str, float | int] = {"draws": n}
        if outcome == Outcome.FINE:
            vector, memory, more = self._move(model, vector, memory, covariances, n, trial_key)
            numbers |= more
        state = state.after(model.flow(vector), memory, good=outcome == Outcome.FINE)
        norm = float(np.linalg.norm(covariances[1]))
        return Block(state, _info(moments, norm, outcome, state.skipped_in_row), numbers)

    def _gather(self, model: Model, vector: Array, keys: Key[Array, "chunk batch"]) -> Any:
        """Differentiate draws, a few chunks at a time; return their moments, and these as covariances."""
        moments = Moments(vector.size, self.method.clip)

        def differentiate(chunk_keys):
            return [np.asarray(array) for array in self._differentiate(model, vector, chunk_keys)]

        # XLA hardly spreads gradients of single draws over the cores of a CPU: give each core a chunk.
        width = _cores()
        with ThreadPoolExecutor(width) as pool:
            for i in range(0, len(keys), width):
                for arrays in pool.map(differentiate, list(keys[i : i + width])):
                    moments.add(*arrays)
        return moments, moments.finish()

    def _chunk(self, state: TrainState) -> int:
        return self.method.chunk or default_chunk(state.model)

    def _move(self, model, vector, memory, covariances, n: int, key: Key[Array, ""]):
        """Try dampings around the last one; return parameters and memory after the best, and numbers."""
        metric, cross, variance = covariances
        if variance == 0:  # the weights are all equal: there is nothing left to gain
            return vector, memory, {}
        trials = self.method.trials
        # The same noise for all parameters, so that differences are more accurate than each value.
        keys = jr.split(key, max(1, n // (16 * trials)) * trials).reshape(-1, trials)

        def weights(vector: Array) -> np.ndarray:
            return np.concatenate([np.asarray(self._weigh(model, vector, k), np.float64) for k in keys])

        spread = _spread(weights(vector), self.method.clip)
        last, per_parameter = float(memory.damping), float(memory.draws_per_parameter)

        def attempt(damping: float) -> _Attempt:
            try:
                step = damped_step(metric, cross, variance, n=n, damping=damping, trust=self.method.trust)
            except np.linalg.LinAlgError:
                return _Attempt(np.inf, damping, None, vector)
            moved = vector + jnp.asarray(step.change, vector.dtype)
            return _Attempt(spread(weights(moved)), damping, step, moved)

        tried = [attempt(last * factor) for factor in (_FACTOR, 1.0, 1 / _FACTOR)]
        if min(t.ratio for t in tried) >= 1:
            tried += [attempt(last * factor) for factor in _RESCUE]
        best = min(tried, key=lambda t: t.ratio)
        step = best.step
        if step is None or best.ratio >= _NO_WORSE:
            numbers = {"damping": best.damping, "length": 0.0, "trial_ratio": best.ratio}
            damping = np.clip(last * _RESCUE[0], *_DAMPINGS)
            return vector, GaussNewtonState.of(damping, per_parameter), numbers
        if step.shrink < _GROW_BELOW:
            per_parameter = min(2 * per_parameter, self.method.most_draws_per_parameter)
        numbers = {
            "damping": best.damping,
            "length": step.length * step.share,
            "explained": step.explained,
            "shrink": step.shrink,
            "trial_ratio": best.ratio,
            "agreement": (1 - best.ratio) / max(step.predicted, 1e-300),
        }
        damping = np.clip(min(best.damping, last * _RESCUE[0]), *_DAMPINGS)
        memory = GaussNewtonState.of(damping, per_parameter)
        return best.vector, memory, {name: float(value) for name, value in numbers.items()}


class _Attempt(NamedTuple):
    """A damping, its step (`None` if there is no solution), and how it did on the trial draws."""

    ratio: float  # clipped variance of the trial log-weights, divided by the one before
    damping: float
    step: DampedStep | None
    vector: Array  # parameters after the step


def _spread(old: np.ndarray, clip: float) -> Callable[[np.ndarray], float]:
    """Return a function of new log-weights of the same draws: their clipped variance over that of the old.

    Draws that were not finite before are left out. One that becomes NaN counts as outside the target.
    """
    use = np.isfinite(old)
    old = old[use]
    if not len(old):
        return lambda new: np.inf
    bounds = Bounds.of(old, clip)
    before = np.var(bounds.clip(old, float(np.median(old))))

    def ratio(new: np.ndarray) -> float:
        new = np.where(np.isnan(new[use]), -np.inf, new[use])
        centre = float(np.median(new))
        if np.mean(~np.isfinite(new)) > _TOLERATED or before == 0:
            return np.inf  # the step loses draws, or there was nothing to gain
        return float(np.var(bounds.clip(new, centre)) / before)

    return ratio


def _cores() -> int:
    """Return how many CPU cores we may use; one if draws are made by another device."""
    if jax.default_backend() != "cpu":
        return 1
    allowed = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    return min(len(allowed), 16)


def _outcome(moments: Moments, n: int) -> Outcome:
    """Return the first failure that affects more draws than can be left out, or `FINE`."""
    others = Outcome.TARGET_NOT_FINITE, Outcome.DENSITY_NOT_FINITE, Outcome.GRADIENT_NOT_FINITE
    failures = zip(moments.bad, (Outcome(moments.solve), *others), strict=True)
    return next((failure for bad, failure in failures if bad > _TOLERATED * n), Outcome.FINE)


def _info(moments: Moments, norm: float, outcome: Outcome, in_row: Array) -> StepInfo:
    """Return the info of a step in the form of a compiled block of one step."""
    losses = -moments.log_weight
    loss = losses.mean() if len(losses) else np.nan
    one = [np.asarray([x]) for x in (norm, np.nan, np.nan, outcome, in_row)]  # evaluations are not counted
    return StepInfo(np.asarray([loss]), losses[None], {}, *one)
