"""What draws of the target say about a flow, which its own draws cannot."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import metrics
from .._flow.flow import Flow
from .._ingredients.target import Target, log_prob_of
from .._named.abstract import labelled
from .._named.given import points_of
from .._words.errors import ArgumentError, named
from .._words.tree import over_draws

_FEWEST = 20
_ROUNDS = 100  # of the fixed point of bridge sampling, which takes about ten
_MOST = 65536  # draws of the target that are used, evenly spaced


@dataclasses.dataclass(frozen=True)
class Distances:
    """How far each number of a flow's draws is from that of the target's.

    Attributes:
        names: A label for each number: of a named parameter, such as `theta[0]`, or of a coordinate.
        mean_shift: Difference of the means, in standard deviations of the target.
        log_sd_ratio: Logarithm of the flow's standard deviation over the target's.
        ks: Largest difference of the two distribution functions. Of a thousand exact draws of each, it is
            about 0.04.
    """

    names: list[str]
    mean_shift: list[float]
    log_sd_ratio: list[float]
    ks: list[float]

    @classmethod
    def between(cls, flow_draws: Any, target_draws: Any, target: Any = None) -> "Distances":
        """Compare draws of a flow with those of its target.

        Args:
            flow_draws: Points, batch axis first.
            target_draws: Likewise.
            target: If it has named parameters, these are compared, and coordinates otherwise.
        """
        (names, q), (_, p) = (labelled(target, x) for x in (flow_draws, target_draws))
        with np.errstate(all="ignore"):  # for a coordinate that never varies
            deviation = p.std(axis=0)
            shift = (q.mean(axis=0) - p.mean(axis=0)) / deviation
            ratio = np.log(q.std(axis=0) / deviation)
        ks = [_largest_difference(a, b) for a, b in zip(q.T, p.T, strict=True)]
        return cls(list(names), shift.tolist(), ratio.tolist(), ks)

    def worst(self) -> dict[str, float]:
        """Return the largest distances."""
        return {"mean_shift": float(np.max(np.abs(self.mean_shift))), "ks": max(self.ks)}


def _largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference of two empirical distribution functions."""
    a, b = np.sort(a), np.sort(b)
    both = np.concatenate([a, b])
    below = (np.searchsorted(x, both, side="right") / len(x) for x in (a, b))
    return float(np.max(np.abs(next(below) - next(below))))


def checked_draws(
    draws: Any, target: Target, shape: tuple[int, ...], name: str = "target_draws"
) -> np.ndarray:
    """Return draws of the target, batch axis first, at most so many; raise if they cannot be such.

    Args:
        draws: What was given: an array, or draws by name.
        target: The target.
        shape: Shape of a point.
        name: Name of the argument that it was given as.
    """
    x = np.asarray(points_of(target, draws, name))
    if x.ndim == 1 + len(shape) + 1 and x.shape[2:] == shape:  # chains and their draws
        x = x.reshape(-1, *shape)
    if x.shape[1:] != shape or len(x) < _FEWEST:
        raise ArgumentError(
            f"{named(name)} must be at least {_FEWEST} points of shape {shape}, batch axis first "
            f"(or chains first, then draws); got an array of shape {x.shape}."
        )
    if not np.isfinite(x).all():
        bad = int(np.sum(~np.isfinite(x.reshape(len(x), -1)).all(axis=1)))
        raise ArgumentError(
            f"{named(name)}: {bad} of {len(x)} points are not finite or outside the support. Leave them out."
        )
    return x[:: math.ceil(len(x) / _MOST)]


def log_weights_at(flow: Flow, target: Target, points: np.ndarray) -> np.ndarray:
    """Return log p - log q at points."""
    size = flow.draws_at_once
    parts = []
    for i in range(0, len(points), size):
        x = jnp.asarray(points[i : i + size], float)
        parts.append(over_draws(log_prob_of, target, x) - flow.exact().log_prob(x, throw=False))
    return np.concatenate([np.asarray(part, float) for part in parts])


def from_target_draws(forward: np.ndarray, own: np.ndarray) -> dict[str, float]:
    """Return measures by log-weights at draws of the target, with those at the flow's own draws.

    Errors take the draws of the target for independent; those of a Markov chain tell less.
    """
    # Where its density cannot even be computed, the flow is as good as zero.
    forward = np.where(np.isnan(forward), np.inf, forward)
    both, error = _bridge(forward, own)
    is_covered = bool(np.isfinite(forward).all())
    shifted = jnp.asarray(forward - forward.max() if is_covered else forward)
    return {
        "forward_ess": float(metrics.forward_ess(shifted)),
        "eubo": float(forward.mean()),
        "eubo_err": float(forward.std() / math.sqrt(max(1, len(forward) - 1))) if is_covered else math.inf,
        "log_z_both": both,
        "log_z_both_err": error,
    }


def _bridge(forward: np.ndarray, own: np.ndarray) -> tuple[float, float]:
    r"""Return the log normaliser by bridge sampling (Meng and Wong 1996), and its standard error.

    The fixed point of $Z = \frac{\langle w / (s_p w / Z + s_q) \rangle_q}{\langle 1 / (s_p w / Z + s_q)
    \rangle_p}$, where $s$ are the shares of the two sets of draws.
    """
    centre = float(np.median(own))
    p, q = forward - centre, own - centre
    share = len(p) / (len(p) + len(q))

    def parts(log_z: float) -> tuple[np.ndarray, np.ndarray]:
        def damped(x: np.ndarray) -> np.ndarray:
            return np.logaddexp(math.log(share) + x - log_z, math.log1p(-share))

        return q - damped(q), -damped(p)

    def log_mean(x: np.ndarray) -> float:
        top = float(x.max())
        return top + math.log(float(np.mean(np.exp(x - top)))) if math.isfinite(top) else top

    log_z = 0.0
    for _ in range(_ROUNDS):
        above, below = parts(log_z)
        after = log_mean(above) - log_mean(below)
        if not math.isfinite(after):
            return math.nan, math.nan
        if abs(after - log_z) < 1e-10:
            break
        log_z = after
    relative = [np.exp(x - log_mean(x)) for x in parts(log_z)]
    error = math.sqrt(sum(float(np.var(x)) / len(x) for x in relative))
    return centre + log_z, error
