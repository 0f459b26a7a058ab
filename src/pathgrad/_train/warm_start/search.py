"""Several first Gaussians, of which the best is taken."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .budget import Budget
from .climb import Climb, climb
from .evaluator import Evaluator
from .gaussian import AbstractGaussian, DiagonalGaussian, FullGaussian, Look
from .outcome import StartKind, StartOutcome

_SCALES = (0.1, 1.0, 0.01, 1e-3, 1e-5)
_SCOUTS = 4  # climbs from elsewhere, once a Gaussian is found
_SPREAD, _NARROW = 1.5, 0.1  # where they begin, and how wide, in units of that Gaussian
_PROBES = 128  # points tried where the given one has no finite log density
_FAR_APART = 3.0  # standard deviations, of each of two modes


class Found(NamedTuple):
    """The best of several climbs, and all others that ended somewhere else."""

    best: Climb | None
    others: tuple[Climb, ...]
    outcome: StartOutcome
    kind: StartKind


class Means(NamedTuple):
    """What a search works with.

    Attributes:
        evaluate: Values of the target.
        centre: The point around which to begin.
        first: The Gaussian to begin with, if there is one.
        rng: Source of all draws.
        budget: How long it may take.
    """

    evaluate: Evaluator
    centre: np.ndarray
    first: AbstractGaussian | None
    rng: np.random.Generator
    budget: Budget


def search(means: Means, z: np.ndarray, *, is_full: bool) -> Found:
    """Climb from several first Gaussians, until two climbs end at the same one.

    Args:
        means: What to work with.
        z: The draws by which Gaussians are compared.
        is_full: Whether coordinates may be correlated.
    """
    evaluate, _, first, rng, budget = means
    make = _full if is_full else DiagonalGaussian
    gaussians: list[AbstractGaussian] = [] if first is None else [first]
    kind = StartKind.FULL if is_full else StartKind.DIAGONAL
    found = finite_point(means)
    if isinstance(found, StartOutcome) and not gaussians:
        return Found(None, (), found, kind)
    if not isinstance(found, StartOutcome):
        point, slope = found
        gaussians += [make(point, np.full_like(point, s)) for s in _scales(slope)][: None if is_full else 2]
    climbs: list[Climb] = []
    for gaussian in gaussians:
        climbs.append(climb(Look.at(gaussian, z, evaluate), evaluate, budget))
        last = climbs[-1]
        if last.outcome is StartOutcome.TIME_USED_UP or _is_confirmed(last, climbs[:-1]):
            break
        if not is_full and last.is_over:  # one is expensive
            break
    best = _best(climbs)
    if best.is_over and is_full:
        for scout in _scouts(best.look.gaussian, rng):
            climbs.append(climb(Look.at(scout, z, evaluate), evaluate, budget))
    return _judged(climbs, kind)


def _scouts(gaussian: AbstractGaussian, rng: np.random.Generator) -> list[AbstractGaussian]:
    """Return narrow Gaussians at a few places under a wide one, which may cover several modes."""
    places = gaussian.points(_SPREAD * rng.standard_normal((_SCOUTS, len(gaussian.mean))))
    return [gaussian.scaled(_NARROW).moved_to(place) for place in places]


def _full(mean: np.ndarray, deviation: np.ndarray) -> FullGaussian:
    return FullGaussian(mean, np.diag(deviation))


def _scales(slope: float) -> Iterator[float]:
    """Yield scales for the first Gaussian, beginning with one over which the log density changes by one."""
    if 0 < slope < math.inf:
        yield min(1.0, 1 / slope)
    yield from _SCALES


def finite_point(means: Means) -> tuple[np.ndarray, float] | StartOutcome:
    """Return a point where the target has a value and a gradient, and the length of the gradient there."""
    evaluate, centre, *_ = means
    values = evaluate(centre[None])
    points, has_value = centre[None], np.isfinite(values.log_p).any()
    if not values.finite.any():
        spread = np.repeat(10.0 ** np.arange(-4, 4), _PROBES // 8)
        points = centre + spread[:, None] * means.rng.standard_normal((len(spread), len(centre)))
        values = evaluate(points)
        has_value |= np.isfinite(values.log_p).any()
    if not values.finite.any():
        return StartOutcome.NO_GRADIENT if has_value else StartOutcome.NOWHERE_FINITE
    best = int(np.argmax(np.where(values.finite, values.log_p, -np.inf)))
    return points[best], float(np.linalg.norm(values.gradient[best]))


def _is_confirmed(last: Climb, before: list[Climb]) -> bool:
    """Say whether a climb ended at the best Gaussian so far, and not for the first time."""
    better = [c for c in before if c.look.elbo > last.look.elbo + 1.0 and c.is_over]
    return last.is_over and not better and any(c.is_over and last.is_same(c) for c in before)


def _best(climbs: list[Climb]) -> Climb:
    def merit(one: Climb) -> Any:
        return one.is_over, -one.look.lost, one.look.elbo

    best = max([c for c in climbs if c.outcome.is_usable] or climbs, key=merit)
    # An ELBO is a lower bound on the log normaliser: if there is one, no climb gets above it by going astray.
    astray = [c for c in climbs if not c.outcome.is_usable and not c.look.lost]
    return max([best, *(c for c in astray if c.look.elbo > best.look.elbo + 1.0)], key=lambda c: c.look.elbo)


def _judged(climbs: list[Climb], kind: StartKind) -> Found:
    best = _best(climbs)
    others: list[Climb] = []
    for one in climbs:
        is_new = all(_is_apart(one, other) for other in (best, *others))
        if one.is_over and is_new:
            others.append(one)
    return Found(best, tuple(others), best.outcome, kind)


def _is_apart(one: Climb, other: Climb) -> bool:
    """Say whether two Gaussians are at different places, or of very different width."""
    a, b = one.look.gaussian, other.look.gaussian
    is_wider = abs(a.log_det - b.log_det) > 2 + 0.1 * len(a.mean)
    return is_wider or min(a.distance(b), b.distance(a)) > _FAR_APART
