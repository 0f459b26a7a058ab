"""The search for targets with hundreds of coordinates or more."""

import time

import numpy as np

from ..._ingredients.target import Target
from .climb import Climb
from .curvature import Curvature
from .evaluator import Evaluator
from .gaussian import FullGaussian, balanced_draws
from .hessian import from_hessians
from .low_rank import with_directions
from .outcome import StartKind, StartOutcome
from .search import Found, Where, finite_point, search

_DRAWS = 128


def search_large(
    target: Target,
    evaluate: Evaluator,
    where: Where,
    *,
    is_full: bool,
    rng: np.random.Generator,
    deadline: float,
) -> Found:
    """Find a full Gaussian by averaged Hessians; where that is too large or fails, a diagonal one.

    Args:
        target: The target.
        evaluate: Its values.
        where: Where to begin.
        is_full: Whether a matrix with a row for each coordinate is affordable.
        rng: Source of all draws.
        deadline: When to stop, by `time.perf_counter`.
    """
    point = finite_point(evaluate, where.centre, rng)
    if isinstance(point, StartOutcome):
        return Found(None, (), point, StartKind.DIAGONAL)
    # Compiling is not counted, so it moves the deadline.
    curvature = Curvature(target, evaluate.shape)
    evaluate.compile_seconds += curvature.compile_seconds
    deadline += curvature.compile_seconds
    if is_full:
        climb = from_hessians(point[0], evaluate, curvature, rng, deadline)
        if climb is not None:
            return Found(climb, (), climb.outcome, StartKind.HESSIAN)
    z = balanced_draws(_DRAWS, evaluate.dim, rng)
    first = None if isinstance(where.first, FullGaussian) else where.first
    found = search(evaluate, z, Where(point[0], first), is_full=False, rng=rng, deadline=deadline)
    if found.best is None or not found.outcome.is_usable or time.perf_counter() > deadline:
        return found
    look = with_directions(found.best.look, evaluate, curvature, rng)
    if look is None:
        return found
    return Found(Climb(look, found.outcome), found.others, found.outcome, StartKind.LOW_RANK)
