"""The best Gaussian for a target, with nothing to choose."""

import math
import time
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from ..._flow.transforms import FullAffine, LowRankAffine
from ..._ingredients.target import Target, check_is_target
from ..._named.given import points_of, start_of
from ..._words.arguments import limit, whole_or_none
from ..._words.arrays import doubles
from ..._words.errors import ArgumentError, named
from ..._words.keys import one_key
from .budget import Budget
from .evaluator import Evaluator
from .gaussian import AbstractGaussian, DiagonalGaussian, FullGaussian, Look, LowRankGaussian, balanced_draws
from .large import search_large
from .outcome import StartKind, StartOutcome
from .search import Found, Means, search
from .smoothness import follows_its_gradient

_REGRESSION = 200  # dimensions up to which ten draws for each are cheaper than second derivatives
_HESSIAN = 2500  # and up to which a full matrix is affordable
_FRESH = 1024  # draws for the ELBO, of small points
_OUTSIDE = 0.005  # share of these that may have no finite value
_FEWEST = 12  # times the draws that Gaussians are compared by, for which there must be time


class LocalMode(NamedTuple):
    """Another Gaussian at which a climb ended: around another mode, or a wide one that covers several.

    Attributes:
        map: From standard normal draws to those of the Gaussian.
        location: Its mean, with the shape of a point.
        scale: Standard deviation of each coordinate.
        elbo: Its ELBO. How far it is below that of the best one says how much weight the mode may have.
    """

    map: FullAffine | LowRankAffine
    location: np.ndarray
    scale: np.ndarray
    elbo: float


class WarmStart(NamedTuple):
    """The Gaussian that `warm_start` found.

    Attributes:
        map: From standard normal draws to those of the Gaussian.
        elbo: Its ELBO, by fresh draws: a lower bound on the target's log normaliser. Minus infinity if
            nothing was found.
        elbo_err: Standard error of the ELBO.
        kind: The kind of Gaussian.
        outcome: How the search ended.
        modes: Other places where climbs ended, for a search of modes.
        outside: Share of the fresh draws at which the target or its gradient was not finite.
        gradients: Number of gradients of the target evaluated.
        seconds: Time spent, without compiling.
        compile_seconds: Time spent compiling.
        pace: Seconds for a gradient of the target, at best: neighbours of this process slow down the rest.
        cut: Where the clock ended the search, for another one to end at the same place; `None` if it ended
            by itself.
    """

    map: FullAffine | LowRankAffine
    elbo: float
    elbo_err: float
    kind: StartKind
    outcome: StartOutcome
    modes: tuple[LocalMode, ...]
    outside: float
    gradients: int
    seconds: float
    compile_seconds: float
    pace: float = math.nan
    cut: int | None = None


def warm_start(
    target: Target,
    *,
    key: Key[Array, ""],
    start: Any = None,
    draws: Any = None,
    dim: int | None = None,
    max_seconds: float | None = None,
    cut: int | None = None,
) -> WarmStart:
    """Find the Gaussian that is nearest to a target: the coordinates in which to train a flow.

    From several first Gaussians around one point it climbs to better ones, by fitting the gradient of the
    target's log density (`ScoreRegression`), until two climbs end at the same one. All numbers are in
    double precision, whatever the program around it uses.

    Args:
        target: An object with `log_prob(x)` for one point.
        key: Source of the draws.
        start: A point to start from, or a dictionary of named parameters. Default: the origin.
        draws: Approximate draws, batch axis first, from which the first Gaussian is made; or by name, as a
            dictionary of arrays or an object of ArviZ.
        dim: Number of coordinates, for a target without the attribute `shape` whose points are vectors.
        max_seconds: Stop after this much time (without compiling).
        cut: Stop where an earlier search with the same arguments did: its attribute `cut`.
    """
    check_is_target(target)
    key, dim, cut = one_key(key), whole_or_none("dim", dim), whole_or_none("cut", cut, 0)
    max_seconds = limit("max_seconds", max_seconds)
    start, draws = start_of(target, start), points_of(target, draws, "draws")
    start = None if start is None else doubles("start", start)
    draws = None if draws is None else doubles("draws", draws)
    shape = _shape_of(target, start, draws, dim)
    evaluate = Evaluator(target, shape)
    began, budget = time.perf_counter(), Budget(max_seconds, cut)
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel())
    size = evaluate.dim
    is_full = size <= _HESSIAN
    first = None if draws is None else _moments(draws, size, is_full=is_full)
    centre = np.zeros(size) if first is None else first.mean
    centre = centre if start is None else np.asarray(start, np.float64).ravel()
    means = Means(evaluate, centre, first, rng, budget)
    draws_each = max(256, 10 * size) if size <= _REGRESSION else 256
    if max_seconds is not None and _is_too_slow(evaluate, centre, max(1.0, max_seconds) / draws_each):
        found = Found(None, (), StartOutcome.TOO_SLOW, StartKind.DIAGONAL)
    elif size <= _REGRESSION:
        found = search(means, balanced_draws(draws_each, size, rng), is_full=True)
    else:
        found = search_large(target, means, is_full=is_full)
    return _finished(found, means, began)


def _is_too_slow(evaluate: Evaluator, centre: np.ndarray, most: float) -> bool:
    """Say whether there is no time to compare some Gaussians, with `most` seconds for a point of each."""
    for _ in range(3):  # the first calls have more to do than to compute
        evaluate(centre[None])
        if _FEWEST * evaluate.pace <= most:
            return False
        if evaluate.pace * evaluate.at_once > 1:
            break
    return True


def _finished(found: Found, means: Means, began: float) -> WarmStart:
    """Look at the best Gaussian with fresh draws."""
    evaluate, centre, rng = means.evaluate, means.centre, means.rng
    shape = evaluate.shape

    def ends(outside: float) -> tuple[Any, ...]:
        seconds = time.perf_counter() - began, evaluate.compile_seconds
        return outside, evaluate.gradients, *seconds, evaluate.pace, means.budget.cut

    if found.best is None:
        nothing = LowRankAffine(centre.reshape(shape), np.ones(shape))
        return WarmStart(nothing, -math.inf, math.inf, StartKind.DIAGONAL, found.outcome, (), *ends(1.0))
    gaussian = found.best.look.gaussian
    fresh = _FRESH if evaluate.dim <= _REGRESSION else _FRESH // 4
    look = Look.at(gaussian, rng.standard_normal((fresh, evaluate.dim)), evaluate)
    outcome = found.outcome
    if outcome.is_usable and not look.finite.any():
        outcome = StartOutcome.NOWHERE_FINITE
    elif outcome.is_usable and look.outside > _OUTSIDE * fresh:
        outcome = StartOutcome.BOUNDED
    elif outcome.is_usable and not follows_its_gradient(look):
        outcome = StartOutcome.DISCONTINUOUS
    log_weight = look.log_weight
    error = float(np.std(log_weight)) / max(1, len(log_weight)) ** 0.5 if len(log_weight) else math.inf
    modes = tuple(_mode(one.look, shape) for one in found.others)
    numbers = look.elbo, error, found.kind, outcome, modes, *ends(look.outside / fresh)
    return WarmStart(affine_of(gaussian, shape), *numbers)


def _mode(look: Look, shape: tuple[int, ...]) -> LocalMode:
    gaussian = look.gaussian
    places = gaussian.mean.reshape(shape), gaussian.deviation.reshape(shape)
    return LocalMode(affine_of(gaussian, shape), *places, look.elbo)


def affine_of(gaussian: AbstractGaussian, shape: tuple[int, ...]) -> FullAffine | LowRankAffine:
    """Return the map from standard normal draws to those of a Gaussian."""
    mean = gaussian.mean.reshape(shape)
    if isinstance(gaussian, FullGaussian):
        # Triangular, with the same distribution: then a coordinate depends on those before it alone.
        lower = np.asarray(np.linalg.qr(gaussian.factor.T, mode="r")).T
        return FullAffine(mean, lower * np.sign(np.diag(lower)))
    if isinstance(gaussian, LowRankGaussian):
        return LowRankAffine(mean, gaussian.scale.reshape(shape), gaussian.directions, gaussian.stretch)
    return LowRankAffine(mean, gaussian.deviation.reshape(shape))


def _shape_of(target: Target, start: Any, draws: Any, dim: int | None) -> tuple[int, ...]:
    known = [
        *([tuple(target.shape)] if hasattr(target, "shape") else []),  # pyright: ignore
        *([np.shape(start)] if start is not None else []),
        *([np.shape(draws)[1:]] if draws is not None else []),
        *([(dim,)] if dim is not None else []),
    ]
    if not known:
        raise ArgumentError(
            f"The target does not say how many coordinates a point has: give {named('dim')}, or a point as "
            f"{named('start')}, or use `LogDensity(log_prob, shape)`."
        )
    if len(set(known)) > 1 or math.prod(known[0]) < 1:
        raise ArgumentError(
            f"{named('start')}, {named('draws')}, {named('dim')} and the target must agree on the shape of a "
            f"point, which has at least one coordinate; got {', '.join(map(str, known))}."
        )
    return known[0]


def _moments(draws: Any, size: int, *, is_full: bool) -> AbstractGaussian:
    """Return the Gaussian with mean and variance of some draws, and their correlation if there are enough."""
    draws = np.asarray(draws, np.float64).reshape(-1, size)
    draws = draws[np.isfinite(draws).all(axis=1)]
    if len(draws) < 2:
        raise ArgumentError(f"{named('draws')} must have at least two finite points, batch axis first.")
    mean, deviation = draws.mean(axis=0), draws.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1e-3 * (1 + np.abs(mean)))
    if not is_full:
        return DiagonalGaussian(mean, deviation)
    if len(draws) < 2 * draws.shape[1]:
        return FullGaussian(mean, np.diag(deviation))
    standard = (draws - mean) / deviation
    correlation = standard.T @ standard / len(draws) + 1e-9 * np.eye(len(mean))
    return FullGaussian(mean, deviation[:, None] * np.linalg.cholesky(correlation))
