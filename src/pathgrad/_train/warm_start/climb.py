"""From a first Gaussian to the best one nearby, iteration by iteration."""

from typing import NamedTuple

import numpy as np

from .budget import Budget
from .evaluator import Evaluator
from .gaussian import Look
from .outcome import StartOutcome
from .regression import Step, improve

_ITERATIONS = 100
_FAR = 1e12  # no posterior is so wide, or so far away
_THIN = 1e-14  # of the location: rounding leaves nothing of a Gaussian so narrow
_WANTED = 2.0  # factor of variance, or step in standard deviations, that a converged Gaussian does not want


class Climb(NamedTuple):
    """Where a climb ended, and how."""

    look: Look
    outcome: StartOutcome

    @property
    def is_over(self) -> bool:
        """Whether it ended by itself."""
        return self.outcome is StartOutcome.CONVERGED

    def is_same(self, other: "Climb") -> bool:
        """Say whether another climb ended at the same Gaussian, within what its draws can tell."""
        near = self.look.gaussian.distance(other.look.gaussian) < 1.0
        return near and abs(self.look.elbo - other.look.elbo) < 0.1 + 0.02 * self.look.z.shape[1]


def climb(look: Look, evaluate: Evaluator, budget: Budget) -> Climb:
    """Improve a Gaussian until there is nothing to gain."""
    for _ in range(_ITERATIONS):
        if budget.is_used_up:
            return Climb(look, StartOutcome.TIME_USED_UP)
        step = improve(look, evaluate)
        look = step.look
        outcome = _trouble(look)
        if outcome is not None or step.is_last:
            return Climb(look, outcome or _at_rest(step))
    return Climb(look, StartOutcome.NOT_CONVERGED)


def _trouble(look: Look) -> StartOutcome | None:
    """Return why it makes no sense to go on, if it makes none."""
    gaussian = look.gaussian
    size, width = np.abs(gaussian.mean), gaussian.deviation
    if not np.max(size + width) < _FAR:
        return StartOutcome.IMPROPER
    if np.min(width / (1 + size)) < _THIN:
        return StartOutcome.UNBOUNDED if look.lost == 0 else StartOutcome.BOUNDED
    return None


def _at_rest(step: Step) -> StartOutcome:
    """Say how a climb ended whose steps gain nothing any more."""
    if step.growth <= _WANTED and step.pull <= _WANTED:
        return StartOutcome.CONVERGED
    return StartOutcome.BOUNDED if step.is_fenced else StartOutcome.NOT_CONVERGED
