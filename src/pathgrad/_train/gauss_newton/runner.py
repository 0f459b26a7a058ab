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
_TOLERATED = 0.01  # share of draws that may be not finite
_FACTOR = 3.0  # between the dampings tried
_RESCUE = (10.0, 100.0)  # tried when all of these make things worse
_NO_WORSE = 1.02  # the spread on the trial draws may rise by this much: it has an error
_DAMPINGS = (1e-8, 1e6)
_GROW_BELOW = 0.5  # signal's share of a step below which the draws are doubled


class GaussNewtonState(NamedTuple):
    """What the next step takes over."""

    damping: Float[Array, ""]  # to try around, relative to the mean eigenvalue of the metric
    draws_per_parameter: Float[Array, ""]  # grown when noise dominated a step

    @classmethod
    def of(cls, damping: float, draws_per_parameter: float) -> "GaussNewtonState":
        """Take plain numbers."""
        return cls(jnp.asarray(damping, jnp.float32), jnp.asarray(draws_per_parameter, jnp.float32))


class GaussNewtonRunner(AbstractRunner):
    """Takes the steps of one training, one at a time; its threads use the cores of one device."""

    def __init__(self, method: "GaussNewton", target: Target, key: Key[Array, ""]) -> None:
        self.method, self.target, self.key = method, target, key
        self._prepared: Model | None = None
        self._differentiate: Any = None
        self._weigh: Any = None

    def length(self, step):
        return 1

    def prepare(self, state, length):
        """Compile what a step calls, if that has not happened for this flow."""
        state = on_one_device(state)  # a stage before this one may have shared its draws
        model, vector = Model.split(state.model, self.target)
        static = eqx.filter(model, eqx.is_array, inverse=True)  # arrays are arguments
        if self._prepared is not None and bool(eqx.tree_equal(self._prepared, static)):
            return state
        began = time.perf_counter()
        self._prepared = static
        jit: Any = eqx.filter_jit
        some = jr.split(self.key, self._chunk(state))
        trial = jr.split(self.key, self.method.trials)
        self._differentiate = jit(Model.log_densities_and_scores).lower(model, vector, some).compile()
        self._weigh = jit(Model.log_weights).lower(model, vector, trial).compile()
        self.compile_seconds += time.perf_counter() - began
        return state

    def run(self, state, length):
        """Take one step. The arrays of the info have a leading axis of one, as of a block."""
        # The noise of a step depends on its number alone, so that a resumed run repeats it.
        draw_key, trial_key = jr.split(jr.fold_in(self.key, state.step))
        model, vector = Model.split(state.model, self.target)
        memory: GaussNewtonState = state.memory
        chunk = self._chunk(state)
        wanted = max(_FEWEST_DRAWS, float(memory.draws_per_parameter) * vector.size)
        n = math.ceil(wanted / chunk) * chunk
        moments, found = self._gather(model, vector, jr.split(draw_key, n).reshape(-1, chunk))
        outcome = _outcome(moments, n)
        told: dict[str, float | int] = {"draws": n}
        if outcome == Outcome.FINE:
            vector, memory, more = self._move(model, vector, memory, found, n, trial_key)
            told |= more
        state = state.after(model.flow(vector), memory, good=outcome == Outcome.FINE)
        norm = float(np.linalg.norm(found[1]))
        return Block(state, _info(moments, norm, outcome, state.skipped_in_row), told)

    def _gather(self, model: Model, vector: Array, keys: Key[Array, "chunk batch"]) -> Any:
        """Differentiate draws, a few chunks at a time; return their moments, also as what `_move` takes."""
        moments = Moments(vector.size, self.method.clip)

        def differentiate(some):
            return [np.asarray(each) for each in self._differentiate(model, vector, some)]

        # XLA hardly spreads gradients of single draws over the cores of a CPU: give each a chunk.
        width = _cores()
        with ThreadPoolExecutor(width) as pool:
            for i in range(0, len(keys), width):
                for made in pool.map(differentiate, list(keys[i : i + width])):
                    moments.add(*made)
        return moments, moments.finish()

    def _chunk(self, state: TrainState) -> int:
        return self.method.chunk or default_chunk(state.model)

    def _move(self, model, vector, memory, moments, n: int, key: Key[Array, ""]):
        """Try dampings around the last one; return the parameters and the memory after the best."""
        metric, cross, variance = moments
        if variance == 0:  # the weights are all equal: there is nothing left to gain
            return vector, memory, {}
        trials = self.method.trials
        # The same noise for all parameters, so that differences are sharper than each value.
        keys = jr.split(key, max(1, n // (16 * trials)) * trials).reshape(-1, trials)

        def weights(vector: Array) -> np.ndarray:
            return np.concatenate([np.asarray(self._weigh(model, vector, some), np.float64) for some in keys])

        spread = _spread(weights(vector), self.method.clip)
        last, per_parameter = float(memory.damping), float(memory.draws_per_parameter)

        def attempt(damping: float) -> _Attempt:
            try:
                found = damped_step(metric, cross, variance, n=n, damping=damping, trust=self.method.trust)
            except np.linalg.LinAlgError:
                return _Attempt(np.inf, damping, None, vector)
            there = vector + jnp.asarray(found.change, vector.dtype)
            return _Attempt(spread(weights(there)), damping, found, there)

        tried = [attempt(last * factor) for factor in (_FACTOR, 1.0, 1 / _FACTOR)]
        if min(t.ratio for t in tried) >= 1:
            tried += [attempt(last * factor) for factor in _RESCUE]
        best = min(tried, key=lambda t: t.ratio)
        found = best.found
        if found is None or best.ratio >= _NO_WORSE:
            told = {"damping": best.damping, "length": 0.0, "trial_ratio": best.ratio}
            damping = np.clip(last * _RESCUE[0], *_DAMPINGS)
            return vector, GaussNewtonState.of(damping, per_parameter), told
        if found.shrink < _GROW_BELOW:
            per_parameter = min(2 * per_parameter, self.method.most_draws_per_parameter)
        told = {
            "damping": best.damping,
            "length": found.length * found.share,
            "explained": found.explained,
            "shrink": found.shrink,
            "trial_ratio": best.ratio,
            "agreement": (1 - best.ratio) / max(found.predicted, 1e-300),
        }
        damping = np.clip(min(best.damping, last * _RESCUE[0]), *_DAMPINGS)
        memory = GaussNewtonState.of(damping, per_parameter)
        return best.there, memory, {name: float(value) for name, value in told.items()}


class _Attempt(NamedTuple):
    """A damping, the step that it gives (none where there is no solution), and what trial made of it."""

    ratio: float
    damping: float
    found: DampedStep | None
    there: Array


def _spread(now: np.ndarray, clip: float) -> Callable[[np.ndarray], float]:
    """Return a function of log-weights of the same draws: their clipped variance as a multiple of today's.

    What is not finite today is left out. A draw that a step loses is off the target, and counts as such.
    """
    use = np.isfinite(now)
    now = now[use]
    if not len(now):
        return lambda there: np.inf
    bounds = Bounds.of(now, clip)
    before = np.var(bounds.clip(now, float(np.median(now))))

    def ratio(there: np.ndarray) -> float:
        there = np.where(np.isnan(there[use]), -np.inf, there[use])
        centre = float(np.median(there))
        if np.mean(~np.isfinite(there)) > _TOLERATED or before == 0:
            return np.inf  # it has lost draws altogether, or there was nothing to gain
        return float(np.var(bounds.clip(there, centre)) / before)

    return ratio


def _cores() -> int:
    """Return how many cores of a CPU we may use; one where draws are made by a device of its own."""
    if jax.default_backend() != "cpu":
        return 1
    allowed = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    return min(len(allowed), 16)


def _outcome(moments: Moments, n: int) -> Outcome:
    """Return what was wrong with more draws than can be left out."""
    others = Outcome.TARGET_NOT_FINITE, Outcome.DENSITY_NOT_FINITE, Outcome.GRADIENT_NOT_FINITE
    failures = zip(moments.bad, (Outcome(moments.solve), *others), strict=True)
    found = (failure for bad, failure in failures if bad > _TOLERATED * n)
    return next(found, Outcome.FINE)


def _info(moments: Moments, norm: float, outcome: Outcome, in_row: Array) -> StepInfo:
    """Put a step into the form of a compiled block of one."""
    each = -moments.log_weight
    loss = each.mean() if len(each) else np.nan
    one = [np.asarray([x]) for x in (norm, np.nan, np.nan, outcome, in_row)]  # evaluations are not counted
    return StepInfo(np.asarray([loss]), each[None], {}, *one)
