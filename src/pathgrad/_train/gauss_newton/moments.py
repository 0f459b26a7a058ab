"""Gradients of single log-weights, and their moments, in memory that does not grow with the draws."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key

from ..._flow.flow import Flow
from ..._ingredients.target import Target, log_prob_of
from ..._words.draw import SolveInfo
from ..._words.outcome import Outcome
from ..._words.tree import number_of_draws, over_draws

(_dsyrk,) = scipy.linalg.get_blas_funcs(("syrk",), dtype=np.float64)
_BULKS = 8.0  # standard deviations of the bulk within which nothing is clipped
_ROWS = 1024  # gradients added to the metric at a time: it is read and written once for each batch of them


class Model(eqx.Module):
    """A flow as a function of one vector of parameters, and the target that log-weights refer to."""

    unravel: Callable[[Array], Any] = eqx.field(static=True)  # from the vector to the parameters' tree
    fixed: Any  # the rest of the flow
    target: Any

    @classmethod
    def split(cls, flow: Flow, target: Target) -> tuple["Model", Float[Array, " parameter"]]:
        """Split a flow into a model and the vector of its parameters."""
        if number_of_draws((flow, target)) is not None:
            raise ValueError(
                "Gauss-Newton needs parameters that all draws share; this flow or target has `PerDraw` "
                "leaves (an encoder's?). Train it with an Optax optimiser."
            )
        parameters, fixed = eqx.partition(flow, eqx.is_inexact_array)
        vector, unravel = ravel_pytree(parameters)
        return cls(unravel, fixed, target), vector

    def flow(self, vector: Float[Array, " parameter"]) -> Flow:
        """Return the flow with these parameters."""
        return eqx.combine(self.unravel(vector), self.fixed)

    def log_weights(self, vector, keys: Key[Array, " batch"]) -> Float[Array, " batch"]:
        """Return `log p - log q` of one draw for each key."""
        draw = self.flow(vector).push("log_q", keys=keys)
        assert draw.log_q is not None
        return over_draws(log_prob_of, self.target, draw.x) - draw.log_q

    def log_densities_and_scores(self, vector, keys: Key[Array, " batch"]):
        """Return for each draw `log p`, `log q`, the parameters' score, and how its solves ended.

        Draws are made first, which needs no density, then held fixed and mapped back to the base. So the
        score, the gradient of `log q` at a fixed point, is an ordinary gradient, one for each draw.
        """
        draw = self.flow(vector).push("x", keys=keys)

        def log_prob(vector, x, key):
            _, log_q, solve = self.flow(vector).pull(x[None], keys=key[None])
            return log_q[0], _outcome(solve)

        # `vmap` is outside the solve on purpose: here every draw needs its own gradient.
        differentiate = jax.vmap(jax.value_and_grad(log_prob, has_aux=True), in_axes=(None, 0, 0))
        (log_q, outcome), scores = differentiate(vector, draw.x, keys)
        log_p = over_draws(log_prob_of, self.target, draw.x)
        return log_p, log_q, scores, jnp.maximum(outcome, _outcome(draw.solve))


def _outcome(solve: SolveInfo | None) -> Int[Array, ""]:
    return jnp.asarray(Outcome.FINE, jnp.int32) if solve is None else solve.outcome


def default_chunk(flow: Flow) -> int:
    """Return how many draws to differentiate at a time: few enough to fit into a cache."""
    return min(512, max(128, 2**13 // max(1, math.prod(flow.shape))))


class Bounds(NamedTuple):
    """How far from their median log-weights are clipped.

    The left tail of log-weights is heavy: a single draw far off the target can dominate their variance. It
    still shows where to go, but not how far. On that side the bound is several standard deviations of the
    bulk, estimated from the median distance, which the tail does not change; it is at most `most`.
    Outliers to the right are where the target has more weight than the flow. These are the ones that lower
    the effective sample size, and are kept up to `most`.
    """

    below: float
    above: float

    @classmethod
    def of(cls, log_weight: np.ndarray, most: float) -> "Bounds":
        """Choose the bounds from the log-weights of some draws."""
        bulk = 1.4826 * np.median(np.abs(log_weight - np.median(log_weight)))
        return cls(min(most, _BULKS * bulk) if bulk > 0 else most, most)

    def clip(self, log_weight: np.ndarray, centre: float) -> np.ndarray:
        """Return the distances from the centre, with outliers clipped."""
        return np.clip(log_weight - centre, -self.below, self.above)


class Moments:
    r"""Means over draws of $s s^T$, $s$, $s\,\psi$ and $\psi$, where $\psi$ is the clipped log-weight.

    In double precision, whatever that of the flow: the eigenvalues of the metric span many orders of
    magnitude. Draws with a number that is not finite are left out and counted.
    """

    def __init__(self, parameters: int, clip: float) -> None:
        self._square = np.zeros((parameters, parameters), order="F")
        self._sum = np.zeros(parameters)
        self._cross = np.zeros(parameters)
        self._psi = self._psi_square = 0.0
        self._bounds: Bounds | None = None
        self._centre = np.nan
        self._clip = clip
        self._waiting: list[np.ndarray] = []
        self.log_weight = np.zeros(0)  # `log p - log q` of the draws that count
        self.bad = np.zeros(4, int)  # draws with a failed solve, or else log p, log q or gradient not finite
        self.solve = int(Outcome.FINE)  # the worst outcome of a solve

    def add(self, log_p: np.ndarray, log_q: np.ndarray, scores: np.ndarray, outcome: np.ndarray) -> None:
        """Add one chunk of draws; `outcome` is how their solves ended."""
        solved = outcome == Outcome.FINE
        self.solve = max(self.solve, int(outcome.max()))
        # Minus infinity means a draw outside the target, which is clipped like any other outlier.
        finite = (log_p < np.inf, np.isfinite(log_q), np.isfinite(scores).all(axis=1))
        # After a failed solve nothing is finite: count only the solve.
        fine = np.stack([solved, *(ok | ~solved for ok in finite)])
        self.bad += (~fine).sum(axis=1)
        use = fine.all(axis=0)
        log_weight = log_p[use].astype(np.float64) - log_q[use]
        self.log_weight = np.concatenate([self.log_weight, log_weight])
        self._waiting.append(scores[use])
        if sum(map(len, self._waiting)) >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        scores = np.concatenate([np.zeros((0, len(self._sum))), *self._waiting])
        self._waiting.clear()
        if not len(scores):
            return
        if self._bounds is None:  # the first draws decide where to clip
            self._centre = float(np.median(self.log_weight))
            if not np.isfinite(self._centre):
                return  # most draws are outside the target: nothing can be learnt from them
            self._bounds = Bounds.of(self.log_weight, self._clip)
        psi = self._bounds.clip(self.log_weight[-len(scores) :], self._centre)
        # Half of a symmetric matrix, in place: with thousands of parameters this is a large part of a step.
        _dsyrk(1.0, scores, 1.0, self._square, trans=1, lower=1, overwrite_c=1)
        self._sum += scores.sum(axis=0)
        self._cross += scores.T @ psi
        self._psi += psi.sum()
        self._psi_square += psi @ psi

    def finish(self) -> tuple[np.ndarray, np.ndarray, float]:
        r"""Return $A = \mathrm{Cov}(s, s)$, $\mathrm{Cov}(s, \psi)$ and $\mathrm{Var}(\psi)$."""
        self._flush()
        if len(self.log_weight) and self._bounds is None:
            self.bad[1] += len(self.log_weight)
        n = max(len(self.log_weight), 1)
        mean, psi = self._sum / n, self._psi / n
        metric = self._square / n
        metric += np.tril(metric, -1).T
        metric -= np.outer(mean, mean)
        return metric, self._cross / n - mean * psi, float(self._psi_square / n - psi**2)
