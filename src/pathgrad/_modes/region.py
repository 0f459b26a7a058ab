"""What a flow's own draws have seen, and how much of a target is where they never go."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .._numbers.mode_search import Region
from .._train.warm_start.evaluator import Evaluator
from .._train.warm_start.gaussian import FullGaussian
from .._words.errors import UserError

FITTED = 200  # dimensions up to which coordinates are correlated, and a Gaussian is fitted by gradients
_RATIO = 20.0  # how far p / q must be above its mean, at least, for a point to be lost
_DEVIATIONS = 3.0  # and how many standard deviations of log p - log q above what it is for draws of p
_WIDER = 1.3  # half of the draws by which a region is measured are wider
_DRAWS = 1024


# How far log p, which is given, is above what is already known to be at some points.
Excess = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Measured(NamedTuple):
    """Lost mass by importance weights.

    Attributes:
        regions: For each Gaussian with a draw where mass is lost, the region around it.
        x: The draws.
        mass: Their weights, zero where nothing is lost.
    """

    regions: list[Region]
    x: np.ndarray
    mass: np.ndarray

    @property
    def effective(self) -> float:
        """How many draws the sum of the weights really rests on."""
        relative = self.mass / max(float(self.mass.max()), 1e-300)
        return float(relative.sum()) ** 2 / max(float(np.sum(relative**2)), 1e-300)

    def refitted(self) -> FullGaussian:
        """Return the Gaussian with the moments of the weighted draws, of which none may outweigh the rest."""
        capped = np.minimum(self.mass, self.mass.mean() * math.sqrt(len(self.mass)))
        return moments(self.x, capped)


class Seen(NamedTuple):
    """What a flow's own draws have seen.

    Attributes:
        frame: The Gaussian with their mean and covariance.
        log_z: The log normaliser, of what the flow covers.
        limit: `log p - log q - log_z` above which a point counts as lost. Exact draws of a target with
            the log-weights that were seen hardly ever get there.
    """

    frame: FullGaussian
    log_z: float
    limit: float

    @classmethod
    def of(cls, x: np.ndarray, log_weight: np.ndarray) -> "Seen":
        """Return what draws have seen."""
        is_known = np.isfinite(x).all(axis=1) & np.isfinite(log_weight)
        if np.count_nonzero(is_known) < 2:
            raise UserError(
                "Of the flow's own draws, hardly any has a finite weight: there is nothing that a search "
                "could start from. Evaluate the flow first."
            )
        x, log_weight = x[is_known], log_weight[is_known]
        largest = float(log_weight.max())
        log_z = largest + math.log(float(np.exp(log_weight - largest).sum()) / len(is_known))
        # By quartiles: a single draw in a lost mode must not make it look usual. Under the target,
        # normally distributed log-weights are higher by their variance.
        low, middle, high = np.quantile(log_weight, [0.25, 0.5, 0.75])
        spread = (high - low) / 1.349
        usual = middle - log_z + spread**2 + _DEVIATIONS * spread
        return cls(moments(x), log_z, max(math.log(_RATIO), float(usual)))

    def standardised(self, x: np.ndarray) -> np.ndarray:
        """Return finite points in the coordinates in which the draws are standardised."""
        x = x[np.isfinite(x).all(axis=1)]
        return np.linalg.solve(self.frame.factor, (x - self.frame.mean).T).T


def moments(x: np.ndarray, weight: np.ndarray | None = None) -> FullGaussian:
    """Return the Gaussian with mean and covariance of some points.

    Of few points, hardly their correlations are kept; in many dimensions none, which would be expensive.
    """
    share = np.full(len(x), 1 / len(x)) if weight is None else weight / weight.sum()
    n, dim = 1 / float(np.sum(share**2)), x.shape[1]
    mean = share @ x
    moved = x - mean
    covariance = (moved * share[:, None]).T @ moved * n / max(1.0, n - 1)
    variance = np.diag(covariance)
    variance = np.where(variance > 0, variance, 1e-12 * (1 + mean**2))
    kept = 1 - min(1.0, dim / n) if dim <= FITTED else 0.0
    covariance = kept * covariance + np.diag((1 - kept) * variance + 1e-9 * variance)
    return FullGaussian(mean, np.linalg.cholesky(covariance))


def measure(
    gaussians: Sequence[FullGaussian],
    evaluate: Evaluator,
    excess: Excess,
    seen: Seen,
    rng: np.random.Generator,
) -> Measured:
    """Measure how much lost mass there is under some Gaussians, by importance weights.

    The estimate is unbiased whatever the Gaussians are, and however they were found, since the draws are
    fresh. If they fit badly, it is most often too small. Shares are in units of what the flow covers.
    """
    x, origin, log_r = _mixture_draws(gaussians, rng)
    with np.errstate(all="ignore"):
        log_p = evaluate(x).log_p
        over = excess(x, log_p)
        is_lost = over > seen.limit
        mass = np.where(
            is_lost, np.exp(np.minimum(log_p - log_r - seen.log_z, 300.0)), 0.0
        )  # its square is finite
    regions = []
    for k in range(len(gaussians)):
        lost_here, here = is_lost & (origin == k), np.where(origin == k, mass, 0.0)
        if lost_here.any():
            best = int(np.argmax(np.where(lost_here, log_p, -np.inf)))
            height, log_q = float(log_p[best]), float(log_p[best] - over[best] - seen.log_z)
            error = float(here.std()) / math.sqrt(len(x))
            regions.append(Region(x[best], height, log_q, float(here.mean()), error))
    return Measured(regions, x, mass)


def _mixture_draws(
    gaussians: Sequence[FullGaussian], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return draws of a mixture of Gaussians, half of them wider; which each is from; and its log density."""
    dim = len(gaussians[0].mean)
    wide = np.where(np.arange(_DRAWS) % 2, _WIDER, 1.0)[:, None]
    x = np.concatenate([g.points(wide * rng.standard_normal((_DRAWS, dim))) for g in gaussians])
    log_r = []
    for g in gaussians:
        squares = squared_distances(g, x)
        both = np.logaddexp(-0.5 * squares, -0.5 * squares / _WIDER**2 - dim * math.log(_WIDER))
        log_r.append(both - math.log(2) - 0.5 * dim * math.log(2 * math.pi) - g.log_det)
    joint = np.logaddexp.reduce(log_r, axis=0) - math.log(len(gaussians))
    return x, np.repeat(np.arange(len(gaussians)), _DRAWS), joint


def squared_distances(gaussian: FullGaussian, x: np.ndarray) -> np.ndarray:
    """Return the squared distances of points from the mean of a Gaussian, in its standard deviations."""
    z = np.linalg.solve(gaussian.factor, (x - gaussian.mean).T)
    return np.sum(z * z, axis=0)
