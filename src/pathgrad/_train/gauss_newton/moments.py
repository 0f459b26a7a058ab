"""Gradients of single log-weights, and their moments in memory that does not grow with the draws."""

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
_BULKS = 8.0  # standard deviations of the bulk that are left as they are
_ROWS = 1024  # gradients added to the metric at a time: it is read and written once for each batch of them


class Model(eqx.Module):
    """A flow as a function of one vector of parameters, and the target that log-weights refer to."""

    unravel: Callable[[Array], Any] = eqx.field(static=True)  # from the vector to the parameters' tree
    fixed: Any  # the rest of the flow
    target: Any

    @classmethod
    def split(cls, flow: Flow, target: Target) -> tuple["Model", Float[Array, " parameter"]]:
        """Take the parameters out of a flow."""
        if number_of_draws((flow, target)) is not None:
            raise ValueError(
                "Gauss-Newton needs parameters that all draws share; this flow or target has `PerDraw` "
                "leaves (an encoder's?). Train it with an Optax optimiser."
            )
        parameters, fixed = eqx.partition(flow, eqx.is_inexact_array)
        vector, unravel = ravel_pytree(parameters)
        return cls(unravel, fixed, target), vector

    def flow(self, vector: Float[Array, " parameter"]) -> Flow:
        """Put parameters back."""
        return eqx.combine(self.unravel(vector), self.fixed)

    def log_weights(self, vector, keys: Key[Array, " batch"]) -> Float[Array, " batch"]:
        """Return `log p - log q` of one draw for each key."""
        draw = self.flow(vector).push("log_q", keys=keys)
        assert draw.log_q is not None
        return over_draws(log_prob_of, self.target, draw.x) - draw.log_q

    def log_densities_and_scores(self, vector, keys: Key[Array, " batch"]):
        """Return for each draw `log p`, `log q`, the parameters' score, and how its solves ended.

        Draws are made first, which needs no density, then held fixed and sent back. So the score, the
        gradient of `log q` at a fixed point, is an ordinary gradient, one for each draw.
        """
        draw = self.flow(vector).push("x", keys=keys)

        def log_prob(vector, x, key):
            _, log_q, solve = self.flow(vector).pull(x[None], keys=key[None])
            return log_q[0], _outcome(solve)

        # Outside the solve on purpose: here every draw is to have a gradient of its own.
        each = jax.vmap(jax.value_and_grad(log_prob, has_aux=True), in_axes=(None, 0, 0))
        (log_q, outcome), scores = each(vector, draw.x, keys)
        log_p = over_draws(log_prob_of, self.target, draw.x)
        return log_p, log_q, scores, jnp.maximum(outcome, _outcome(draw.solve))


def _outcome(solve: SolveInfo | None) -> Int[Array, ""]:
    return jnp.asarray(Outcome.FINE, jnp.int32) if solve is None else solve.outcome


def default_chunk(flow: Flow) -> int:
    """Return how many draws to differentiate at a time: few enough to stay in a cache."""
    return min(512, max(128, 2**13 // max(1, math.prod(flow.shape))))


class Bounds(NamedTuple):
    """How far from their median log-weights count.

    The left tail of log-weights is heavy: a single draw that has fallen off the target can outweigh the rest
    of a variance. It still says where to go, but not how far. On that side the bound is several standard
    deviations of the bulk, read off the median distance, which the tail does not change; `most` at most.
    Outliers to the right are where the target has more weight than the flow. They are what spoils an
    effective sample size, and are kept up to `most`.
    """

    below: float
    above: float

    @classmethod
    def of(cls, log_weight: np.ndarray, most: float) -> "Bounds":
        """Read them off some draws."""
        bulk = 1.4826 * np.median(np.abs(log_weight - np.median(log_weight)))
        return cls(min(most, _BULKS * bulk) if bulk > 0 else most, most)

    def clip(self, log_weight: np.ndarray, centre: float) -> np.ndarray:
        """Return the distances from the centre, outliers pulled in."""
        return np.clip(log_weight - centre, -self.below, self.above)


class Moments:
    r"""Means over draws of $s s^T$, $s$, $s\,\psi$ and $\psi$, where $\psi$ is the clipped log-weight.

    In double precision whatever the flow's: the metric's eigenvalues spread over many orders of magnitude.
    Draws with a number that is not finite are left out and counted.
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
        self.bad = np.zeros(4, int)  # whose solve failed, or else log p, log q or gradient is not finite
        self.solve = int(Outcome.FINE)  # the worst that became of a solve

    def add(self, log_p: np.ndarray, log_q: np.ndarray, scores: np.ndarray, outcome: np.ndarray) -> None:
        """Take in one chunk of draws; `outcome` is what became of their solves."""
        solved = outcome == Outcome.FINE
        self.solve = max(self.solve, int(outcome.max()))
        # Minus infinity is a draw outside the target, and clipped like any that has fallen off it.
        finite = (log_p < np.inf, np.isfinite(log_q), np.isfinite(scores).all(axis=1))
        # What a failed solve leaves is not finite either, and not to be blamed on anything else.
        fine = np.stack([solved, *(each | ~solved for each in finite)])
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
        if self._bounds is None:  # the first draws say where to clip
            self._centre = float(np.median(self.log_weight))
            if not np.isfinite(self._centre):
                return  # most draws are outside the target: nothing can be learnt from them
            self._bounds = Bounds.of(self.log_weight, self._clip)
        psi = self._bounds.clip(self.log_weight[-len(scores) :], self._centre)
        # Half of a symmetric matrix, in place: for thousands of parameters this is a good part of a step.
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
