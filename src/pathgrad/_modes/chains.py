r"""Annealed chains, from far outside a flow to where its target has mass.

A chain starts at a draw of the flow, moved away from the flow's mean by a factor $s$. Temperature by
temperature the density

$$\pi_\beta \propto N(0, s^2)^{1 - \beta}\, p^\beta, \qquad \beta = \tfrac{1}{10 s^2}, \ldots, 1$$

turns into the target, in the coordinates in which the flow's draws are standardised. The ladder of $\beta$
is geometric: near $\beta = s^{-2}$ a mode of the flow's own width begins to hold a chain. Every chain
adapts its own step size, at every temperature. That is not allowed where averages are taken over chains;
here they only say where to look, and what is there is measured by other draws.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._train.warm_start.evaluator import Evaluator

LEAPFROGS = 4  # gradients of a step
_WANTED = 0.7  # acceptance
_SETTLED = 0.75  # share of the temperatures by which the target itself is reached
_HOTTEST = 0.1  # first beta, times the square of the spread
_HALVINGS = 12  # of the distance of a start at which the target is not finite
_SHORTEST, _LONGEST = 1e-5, 3.0  # steps, in units of what suits a normal distribution


class Ends(NamedTuple):
    """Where chains ended, and the target's log density there."""

    u: np.ndarray
    log_p: np.ndarray


class _State(NamedTuple):
    u: np.ndarray
    log_p: np.ndarray
    slope: np.ndarray

    def where(self, chosen: np.ndarray, other: "_State") -> "_State":
        """Return the states of some chains, and others for the rest."""
        column = chosen[:, None]
        return _State(
            np.where(column, self.u, other.u),
            np.where(chosen, self.log_p, other.log_p),
            np.where(column, self.slope, other.slope),
        )


class Chains:
    """Chains in coordinates in which the flow's draws have mean zero and unit covariance.

    Attributes:
        evaluate: The target in these coordinates.
        rng: Source of all noise.
    """

    def __init__(self, evaluate: Evaluator, rng: np.random.Generator) -> None:
        self.evaluate, self.rng = evaluate, rng

    def annealed(self, starts: np.ndarray, spread: np.ndarray, temperatures: int) -> Ends:
        """Cool chains down to the target.

        Args:
            starts: Points to start from.
            spread: How far out each of them is: the factor by which the first density is wider.
            temperatures: Number of temperatures, and so of steps.
        """
        state = self._at(starts)
        for _ in range(_HALVINGS):
            known = np.isfinite(state.log_p)
            if known.all():
                break
            state = state.where(known, self._at(np.where(known[:, None], state.u, 0.5 * state.u)))
        factor = np.ones(len(starts))
        for i in range(temperatures):
            share = min(1.0, i / (_SETTLED * temperatures))
            beta = (_HOTTEST / spread**2) ** (1 - share)
            after, likely = self._leap(state, beta, (1 - beta) / spread**2, factor)
            state = after.where(self.rng.random(len(likely)) < likely, state)
            factor = _adapted(factor, likely)
        return Ends(state.u, state.log_p)

    def confined(self, points: np.ndarray, is_inside: Callable[[Ends], np.ndarray], steps: int) -> Ends:
        """Let chains of the target go on, which never leave a region."""
        state = self._at(points)
        one, factor = np.ones(len(points)), np.ones(len(points))
        for _ in range(steps):
            after, likely = self._leap(state, one, 0 * one, factor)
            may = self.rng.random(len(likely)) < likely
            may &= is_inside(Ends(after.u, after.log_p))
            state = after.where(may, state)
            factor = _adapted(factor, likely)
        return Ends(state.u, state.log_p)

    def _at(self, u: np.ndarray) -> _State:
        with np.errstate(all="ignore"):
            log_p, slope = self.evaluate(u)
            is_finite = np.isfinite(log_p) & np.isfinite(np.sum(slope * slope, axis=1))
        nowhere = _State(u, np.full(len(u), -np.inf), np.zeros_like(u))
        return _State(u, log_p, slope).where(is_finite, nowhere)

    def _leap(
        self, state: _State, beta: np.ndarray, prior: np.ndarray, factor: np.ndarray
    ) -> tuple[_State, np.ndarray]:
        """Propose a Hamiltonian step; return also the probability of taking it."""
        n, dim = state.u.shape
        step = factor * dim**-0.25 / np.sqrt(prior + beta) * self.rng.uniform(0.8, 1.2, n)
        step, warmth, pull = step[:, None], beta[:, None], prior[:, None]

        def energy(s: _State, momentum: np.ndarray) -> np.ndarray:
            return 0.5 * np.sum(pull * s.u**2 + momentum**2, axis=1) - beta * s.log_p

        with np.errstate(all="ignore"):
            momentum = self.rng.standard_normal((n, dim))
            before, now = energy(state, momentum), state
            for _ in range(LEAPFROGS):
                momentum = momentum + 0.5 * step * (warmth * now.slope - pull * now.u)
                now = self._at(now.u + step * momentum)
                momentum = momentum + 0.5 * step * (warmth * now.slope - pull * now.u)
            gain = before - energy(now, momentum)
            return now, np.where(np.isnan(gain), 0.0, np.exp(np.minimum(gain, 0.0)))


def _adapted(factor: np.ndarray, likely: np.ndarray) -> np.ndarray:
    return np.clip(factor * np.exp(0.6 * (likely - _WANTED)), _SHORTEST, _LONGEST)
