r"""A full Gaussian for hundreds of coordinates, from averaged second derivatives.

The best Gaussian fulfils $E[\nabla \ln p] = 0$ and $\Sigma^{-1} = -E[\nabla^2 \ln p]$, with means over its
own draws. A regression of the score needs several draws for each coordinate to see the second; here
Hessians of eight draws, of opposite signs in pairs, are averaged over a few iterations. They begin at a mode.
The way there is the only part that depends on how well the coordinates are conditioned, unless there is a
first Gaussian, in whose coordinates it is then walked.
"""

import contextlib
from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import fmin_l_bfgs_b

from .climb import Climb
from .curvature import POINTS, Curvature
from .evaluator import Values
from .gaussian import FullGaussian, Look, balanced_draws
from .outcome import StartOutcome
from .search import Means

_ITERATIONS = 12
_DRAWS = 64  # for the mean gradient of an iteration
_PATIENCE = 500  # iterations towards the mode
_FAR = 1e12
_STEP = 3.0  # longest step of the mean, in standard deviations of a direction, per square root of dimension


class _TimeUp(Exception):
    pass


def mode_from(means: Means) -> np.ndarray:
    """Climb from the centre to a mode, or as far as time allows."""
    around = means.first
    if around is None:
        return _mode_from(means.centre, means.evaluate, means)

    def inside(z: np.ndarray) -> Values:
        values = means.evaluate(around.points(z))
        return Values(values.log_p, around.whitened(values.gradient))

    return around.points(_mode_from(around.inverted(means.centre), inside, means)[None])[0]


def _mode_from(point: np.ndarray, evaluate: Callable[[np.ndarray], Values], means: Means) -> np.ndarray:
    best = [float(evaluate(point[None]).log_p[0]), point]
    high = abs(best[0]) + 1e10  # in place of a value that is not finite: the line search comes back

    def loss(x):
        values = evaluate(x[None])
        if not values.finite[0]:
            return high, np.zeros_like(x)
        if values.log_p[0] > best[0]:
            best[:] = float(values.log_p[0]), x.copy()
        if means.budget.is_used_up or np.abs(x).max() > _FAR:
            raise _TimeUp
        return -float(values.log_p[0]), -values.gradient[0]

    with contextlib.suppress(_TimeUp):
        fmin_l_bfgs_b(loss, point, m=20, maxiter=_PATIENCE, maxfun=2 * _PATIENCE, factr=1e4, pgtol=1e-3)
    return best[1]


def from_hessians(means: Means, curvature: Curvature) -> Climb | None:
    """Return the best Gaussian around the mode near the centre; `None` if there is none.

    Its precision is averaged over several Gaussians, each made from the one before.
    """
    evaluate, rng, budget = means.evaluate, means.rng, means.budget
    mean = mode_from(means)
    if np.abs(mean).max() > _FAR:
        return None
    z = balanced_draws(4 * POINTS, len(mean), rng)
    precision = -curvature.matrix(np.broadcast_to(mean, (POINTS, len(mean))))
    upper = _factor(precision)
    best, averaged = None, 0
    for i in range(_ITERATIONS + 1):
        is_last = budget.is_used_up or i == _ITERATIONS
        if upper is None:
            break
        draws = _pairs(8 * _DRAWS if is_last else _DRAWS, len(mean), rng)
        step = _step(upper, evaluate(mean + _scaled(upper, draws)).gradient)
        # The first steps travel, later ones are noise around the right place, which shorter steps average.
        mean = mean + step * (1.0 if i < 3 or is_last else 2 / (i + 1))
        look = Look.at(FullGaussian(mean, _lower(upper)), z, evaluate)
        if best is None or look.is_better(best):
            best = look
        if is_last:
            break
        latest = -curvature.matrix(mean + _scaled(upper, _pairs(POINTS, len(mean), rng)))
        if not np.isfinite(latest).all():  # one of the points was outside
            continue
        # The first one was at a single point. After that, the mean of all.
        averaged += 1
        precision = latest if averaged == 1 else precision + (latest - precision) / averaged
        upper = _factor(precision)
    if best is None or not best.finite.any():
        return None
    if budget.is_used_up:
        return Climb(best, StartOutcome.TIME_USED_UP)
    return Climb(best, _judged(precision))


def _judged(precision: np.ndarray) -> StartOutcome:
    """Say whether the last precision is one: positive along every direction."""
    if not np.isfinite(precision).all():
        return StartOutcome.NOT_CONVERGED
    with contextlib.suppress(np.linalg.LinAlgError):
        cholesky(precision)
        return StartOutcome.CONVERGED
    is_flat = abs(np.linalg.eigvalsh(precision)[0]) < 1e-10 * np.abs(np.diag(precision)).mean()
    return StartOutcome.IMPROPER if is_flat else StartOutcome.NOT_CONVERGED


def _pairs(n: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    half = rng.standard_normal((n // 2, dim))
    return np.concatenate([half, -half])


def _factor(precision: np.ndarray) -> np.ndarray | None:
    """Return the upper Cholesky factor of a precision, with as much added as it takes."""
    if not np.isfinite(precision).all():
        return None
    scale = np.abs(np.diag(precision)).mean()
    for more in (0.0, 1e-6, 1e-4, 1e-2, 1.0):
        try:
            return cholesky(precision + more * scale * np.eye(len(precision)))
        except np.linalg.LinAlgError:
            continue
    return None


def _scaled(upper: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Turn standard normal draws into those of the covariance."""
    return solve_triangular(upper, z.T).T


def _lower(upper: np.ndarray) -> np.ndarray:
    """Return a factor of the covariance."""
    return solve_triangular(upper, np.eye(len(upper)))


def _step(upper: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return a Newton step with the mean gradient of some draws."""
    finite = np.isfinite(gradient).all(axis=1)
    if not finite.any():
        return np.zeros(len(upper))
    slope = gradient[finite].mean(axis=0)
    length = np.linalg.norm(solve_triangular(upper, slope, trans=1))
    share = min(1.0, _STEP * len(upper) ** 0.5 / max(length, 1e-300))
    return share * cho_solve((upper, False), slope)
