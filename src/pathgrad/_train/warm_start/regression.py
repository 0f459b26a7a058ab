r"""One iteration towards the Gaussian whose score fits that of the target best.

In the coordinates $x = m + L z$ of the present Gaussian the gradient of the log-weight, $L^\top \nabla \ln
p + z$, is fitted by a linear function $a + B z$ of its draws. If the target is Gaussian, this is exact: the
precision is $P = 1 - B$, and the mean moves by $P^{-1} a$. Otherwise it is a Newton step with the mean
Hessian of the draws, which therefore sees the shape of the target as widely as the Gaussian extends. Only a
change of a factor of ten in variance, and of ten standard deviations in location, is believed at a time;
the latter is extended tenfold as long as that helps, since the first Gaussian may be thousands of standard
deviations away.

Each iteration changes with the coordinates as the target does, so that it does not matter how badly these are
conditioned. Only the first Gaussian does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .evaluator import Evaluator
from .gaussian import DiagonalGaussian, FullGaussian, Look

_MOST = 10.0  # largest change of a variance, as a factor, and of the mean, in standard deviations
_LONGEST = 1e30  # most that this limit is extended to
_DISTANT = 1e3  # gain of the ELBO that tells of a first Gaussian far away
_FURTHER = 3.0
_SHRINK = 0.3  # factor on the scale where too few draws are finite
_BACK = 0.4  # factor on a step that made it worse
_TRIES = 8


class Change(NamedTuple):
    """What an iteration wants to change along each axis, in the coordinates of the present Gaussian."""

    full_move: np.ndarray
    variance: np.ndarray

    @classmethod
    def newton(cls, precision: np.ndarray, slope: np.ndarray) -> "Change":
        """Return the change for a precision and a slope along each axis.

        Along an axis of negative precision the target curves upwards: go uphill, and widen.
        """
        move = slope / np.maximum(np.abs(precision), 1 / _MOST)
        return cls(move, np.where(precision > 0, 1 / np.clip(precision, 1 / _MOST, _MOST), _MOST))

    def move(self, limit: float = _MOST) -> np.ndarray:
        """Return the move of the mean, within a limit along each axis."""
        return np.clip(self.full_move, -limit, limit)

    def is_cut(self, limit: float) -> bool:
        """Whether the move is longer than a limit along some axis."""
        return bool(np.abs(self.full_move).max() > limit)


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
    change = Change.newton(precision, axes.T @ a)

    def moved(move: np.ndarray, stretch: np.ndarray) -> FullGaussian:
        factor = old.factor @ (axes * stretch) @ axes.T
        return FullGaussian(old.mean + old.factor @ (axes @ move), factor)

    return _search(look, moved, change, evaluate)


def _improve_diagonal(look: Look, evaluate: Evaluator) -> Step:
    old: DiagonalGaussian = look.gaussian
    z, pull = look.z[look.finite], look.pull[look.finite]
    centre = z.mean(axis=0)
    b = np.mean((z - centre) * pull, axis=0) / np.mean((z - centre) ** 2, axis=0)
    a = pull.mean(axis=0) - b * centre

    def moved(move: np.ndarray, stretch: np.ndarray) -> DiagonalGaussian:
        return DiagonalGaussian(old.mean + old.deviation * move, old.deviation * stretch)

    return _search(look, moved, Change.newton(1 - b, a), evaluate)


def _search(
    look: Look, moved: Callable[[np.ndarray, np.ndarray], Any], change: Change, evaluate: Evaluator
) -> Step:
    """Shorten the step until it is an improvement, or lengthen it as long as it is one."""
    share, is_fenced = 1.0, False
    wanted = float(change.variance.max()), float(change.variance.min()), float(np.linalg.norm(change.move()))
    for _ in range(_TRIES):
        stretch = change.variance ** (0.5 * share)
        after = Look.at(moved(share * change.move(), stretch), look.z, evaluate)
        if after.is_better(look):
            break
        is_fenced |= after.lost > look.lost
        share *= _BACK
    else:
        return Step(look, 0.0, *wanted, is_fenced)
    limit, length = _MOST, 1.0
    while share == 1.0 and limit * length < _LONGEST:
        if change.is_cut(limit):
            limit *= _MOST
        elif after.elbo - look.elbo > _DISTANT:
            # Where the density falls exponentially, or faster, a Newton step is of the same length anywhere.
            length *= _FURTHER
        else:
            break
        further = Look.at(moved(length * change.move(limit), stretch), look.z, evaluate)
        if not further.is_better(after):
            break
        after = further
    return Step(after, np.inf if after.lost < look.lost else after.elbo - look.elbo, *wanted)


def _linear_fit(z: np.ndarray, pull: np.ndarray, use: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit `pull` by `a + b @ z` over the draws in use."""
    if use.all():  # the moments of the draws are exact
        return pull.mean(axis=0), pull.T @ z / len(z)
    design = np.concatenate([np.ones((use.sum(), 1)), z[use]], axis=1)
    solution = np.linalg.lstsq(design, pull[use], rcond=None)[0]
    return solution[0], solution[1:].T
