r"""One iteration towards the Gaussian whose score fits that of the target best.

In the coordinates $x = m + L z$ of the present Gaussian the gradient of the log-weight, $L^\top \nabla \ln
p + z$, is fitted by a linear function $a + B z$ of its draws. If the target is Gaussian, this is exact: the
precision is $P = 1 - B$, and the mean moves by $P^{-1} a$. Otherwise it is a Newton step with the mean
Hessian of the draws, which therefore sees the shape of the target as widely as the Gaussian extends. Only a
change of a factor of ten in variance, and of ten standard deviations in location, is believed at a time.

Each iteration changes with the coordinates as the target does, so that it does not matter how badly these are
conditioned. Only the first Gaussian does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .evaluator import Evaluator
from .gaussian import DiagonalGaussian, FullGaussian, Look

_MOST = 10.0  # largest change of a variance, as a factor, and of the mean, in standard deviations
_SHRINK = 0.3  # factor on the scale where too few draws are finite
_BACK = 0.4  # factor on a step that made it worse
_TRIES = 8


class Step(NamedTuple):
    """One iteration: what it led to, and what it wanted to change.

    Attributes:
        look: The Gaussian after it, which is the old one if nothing better was found.
        gain: Gain of the ELBO; infinite if fewer draws are lost.
        growth: Largest change of a variance, as a factor.
        shrinkage: Smallest change of a variance.
        pull: Length of the mean's full step, in standard deviations.
        is_fenced: Whether it was refused because draws would have been lost.
    """

    look: Look
    gain: float
    growth: float
    shrinkage: float
    pull: float
    is_fenced: bool = False

    @property
    def is_last(self) -> bool:
        """Whether there is nothing more to gain."""
        return self.gain < 1e-3


def improve(look: Look, evaluate: Evaluator) -> Step:
    """Take one iteration; the Gaussian is never made worse, judged by the same draws."""
    is_full = isinstance(look.gaussian, FullGaussian)
    fewest = 2 * look.z.shape[1] if is_full else 32
    if look.finite.sum() < max(fewest, len(look.z) // 4):
        after = Look.at(look.gaussian.scaled(_SHRINK), look.z, evaluate)
        return Step(after, np.inf, _SHRINK**2, _SHRINK**2, 0.0)
    return (_improve_full if is_full else _improve_diagonal)(look, evaluate)


def _improve_full(look: Look, evaluate: Evaluator) -> Step:
    old: FullGaussian = look.gaussian
    a, b = _linear_fit(look.z, look.pull, look.finite)
    precision, axes = np.linalg.eigh(np.eye(len(a)) - 0.5 * (b + b.T))
    move, variance = newton(precision, axes.T @ a)

    def moved(share: float) -> FullGaussian:
        factor = old.factor @ (axes * variance ** (0.5 * share)) @ axes.T
        return FullGaussian(old.mean + old.factor @ (axes @ (share * move)), factor)

    return _search(look, moved, move, variance, evaluate)


def _improve_diagonal(look: Look, evaluate: Evaluator) -> Step:
    old: DiagonalGaussian = look.gaussian
    z, pull = look.z[look.finite], look.pull[look.finite]
    centre = z.mean(axis=0)
    b = np.mean((z - centre) * pull, axis=0) / np.mean((z - centre) ** 2, axis=0)
    a = pull.mean(axis=0) - b * centre
    move, variance = newton(1 - b, a)

    def moved(share: float) -> DiagonalGaussian:
        return DiagonalGaussian(
            old.mean + old.deviation * share * move, old.deviation * variance ** (0.5 * share)
        )

    return _search(look, moved, move, variance, evaluate)


def newton(precision: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return step and variance along each axis, within what is believed at a time.

    Along an axis of negative precision the target curves upwards: go uphill, and widen.
    """
    move = np.clip(slope / np.maximum(np.abs(precision), 1 / _MOST), -_MOST, _MOST)
    return move, np.where(precision > 0, 1 / np.clip(precision, 1 / _MOST, _MOST), _MOST)


def _search(
    look: Look, moved: Callable[[float], Any], move: np.ndarray, variance: np.ndarray, evaluate: Evaluator
) -> Step:
    """Shorten the step until it is an improvement."""
    share = 1.0
    change = float(variance.max()), float(variance.min()), float(np.linalg.norm(move))
    is_fenced = False
    for _ in range(_TRIES):
        after = Look.at(moved(share), look.z, evaluate)
        if after.is_better(look):
            gain = np.inf if after.lost < look.lost else after.elbo - look.elbo
            return Step(after, gain, *change)
        is_fenced |= after.lost > look.lost
        share *= _BACK
    return Step(look, 0.0, *change, is_fenced)


def _linear_fit(z: np.ndarray, pull: np.ndarray, use: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit `pull` by `a + b @ z` over the draws in use."""
    if use.all():  # the moments of the draws are exact
        return pull.mean(axis=0), pull.T @ z / len(z)
    design = np.concatenate([np.ones((use.sum(), 1)), z[use]], axis=1)
    solution = np.linalg.lstsq(design, pull[use], rcond=None)[0]
    return solution[0], solution[1:].T
