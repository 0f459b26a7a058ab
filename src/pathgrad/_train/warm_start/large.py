"""The search for targets with hundreds of coordinates or more."""

from ..._ingredients.target import Target
from .climb import Climb
from .curvature import Curvature
from .gaussian import DiagonalGaussian, balanced_draws
from .hessian import from_hessians
from .low_rank import with_directions
from .outcome import StartKind, StartOutcome
from .search import Found, Means, finite_point, search

_DRAWS = 128


def search_large(target: Target, means: Means, *, is_full: bool) -> Found:
    """Find a full Gaussian by averaged Hessians; where that is too large or fails, a diagonal one.

    Args:
        target: The target.
        means: What to work with.
        is_full: Whether a matrix with a row for each coordinate is affordable.
    """
    point, first, evaluate = finite_point(means), means.first, means.evaluate
    if isinstance(point, StartOutcome):
        return Found(None, (), point, StartKind.DIAGONAL)
    # Compiling is not counted.
    curvature = Curvature(target, evaluate.shape)
    evaluate.compile_seconds += curvature.compile_seconds
    means.budget.extend(curvature.compile_seconds)
    if is_full:
        climb = from_hessians(means._replace(centre=point[0]), curvature)
        if climb is not None:
            return Found(climb, (), climb.outcome, StartKind.HESSIAN)
    z = balanced_draws(_DRAWS, evaluate.dim, means.rng)
    first = None if first is None else DiagonalGaussian(first.mean, first.deviation)
    found = search(means._replace(centre=point[0], first=first), z, is_full=False)
    if found.best is None or not found.outcome.is_usable or means.budget.is_used_up:
        return found
    look = with_directions(found.best.look, evaluate, curvature, means.rng)
    if look is None:
        return found
    return Found(Climb(look, found.outcome), found.others, found.outcome, StartKind.LOW_RANK)
