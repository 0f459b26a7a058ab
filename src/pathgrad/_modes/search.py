"""Search for regions of a target that a flow has lost."""

import math
import time
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from .._flow.flow import Flow
from .._flow.transforms import FullAffine, LowRankAffine
from .._flow.whitened import Whitened
from .._ingredients.target import Target, check_target
from .._numbers.evaluate import weighted_draws
from .._numbers.mode_search import GRADIENTS, ModeSearch, Region
from .._numbers.summary import checked_pair
from .._train.warm_start.budget import Budget
from .._train.warm_start.climb import climb
from .._train.warm_start.evaluator import Evaluator
from .._train.warm_start.gaussian import FullGaussian, Look, balanced_draws
from .._words.arguments import instance, whole
from .._words.arrays import doubles
from .._words.errors import ArgumentError, named
from .._words.keys import one_key
from .chains import LEAPFROGS, Chains, Ends
from .region import FITTED, Measured, Seen, measure, moments, squared_distances

SPREADS = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # in units of the flow's own standard deviations
_TEMPERATURES, _FEWEST = 64, 16
_FEWEST_CHAINS = 4  # from each spread, below which there are fewer temperatures
_OWN = 2048  # draws of the flow, at least
_AT_ONCE = 256  # points whose log q is computed at once
_TRIES, _FAILURES = 12, 4  # places where a Gaussian is fitted, and how many of them in a row may be nothing
_NARROW, _WIDTHS = 0.3, 5  # width of the first Gaussian there, in units of the flow's; and how many to try
_PROBES = 32  # draws by which a width is chosen
_CLEAR, _EFFECTIVE = 0.01, 5.0  # share of the mass, and draws that it rests on, for a region to count
_REFITS, _CLEARLY = 3, 50.0  # of the Gaussian of a region of any shape, until its mass rests on so many
_CONFINED, _CONFINED_CHAINS = 16, 256  # steps of chains that stay within a region, and how many of them
_MOST = 2  # times the gradients of the chains, after which no further place is looked at
_ENOUGH = 1.0  # lost mass, in units of what is covered, after which it is no use to look for more


def search_modes(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, ""],
    gradients: int = GRADIENTS,
    points: Any = (),
    draws: dict[str, np.ndarray] | None = None,
) -> ModeSearch:
    """Search for regions of a target that a flow has lost, by starting outside its own draws.

    Draws of the flow are moved away from its mean, by factors of 2 to 100, and from there chains are cooled
    down to the target. Some end where the flow has far less mass than its own draws lead to expect: p / q is
    at least twenty times its mean, or three standard deviations above what is usual. Around such ends the
    target is fitted by Gaussians, and the mass that is lost there is measured by fresh draws of these. So it
    does not matter that chains come to places without mass, as they do for funnels and bananas: only mass
    counts. If several modes are lost, the search ends once it has found as much as the flow covers.

    It cannot find a region that chains pass by: one that is much narrower than the flow is, in several
    dimensions, or behind others that catch all chains.

    Args:
        flow: The flow.
        target: An object with `log_prob(x)` for one point.
        key: Source of all noise.
        gradients: How many gradients of the target the chains may compute, which says how many chains there
            are. Where some end outside the flow, measuring what is there takes more: some thousand for each
            place, and no further place is looked at after twice as many in all.
        points: Further places to look at, with the shape of points, batch axis first: where other fits, or
            other climbs of a warm start, have ended.
        draws: Weighted draws of that flow, with `x` and `log_weight`, if you have some thousands already.
    """
    instance("flow", flow, Flow, "a `Flow`")
    key, gradients, points = one_key(key), whole("gradients", gradients), doubles("points", points)
    check_target(target, flow.shape)
    if points.size and points.shape[1:] != flow.shape:
        raise ArgumentError(
            f"{named('points')} must be points of shape {flow.shape}, batch axis first; got an array of "
            f"shape {points.shape}."
        )
    draws = None if draws is None else dict(checked_pair(draws))
    began = time.perf_counter()
    search = _Search(flow.exact(), target, key, draws, gradients)
    temperatures = gradients // (LEAPFROGS * _FEWEST_CHAINS * len(SPREADS))
    temperatures = max(_FEWEST, min(_TEMPERATURES, temperatures))
    each = max(1, gradients // (LEAPFROGS * temperatures * len(SPREADS)))
    ends = search.ends(each, temperatures, points)
    is_lost = search.is_lost(ends)
    regions = search.regions(ends, is_lost)
    return ModeSearch(
        regions=tuple(sorted(regions, key=lambda region: -region.share)),
        chains=each * len(SPREADS),
        reach=SPREADS[-1],
        ends=float(np.mean(is_lost)),
        gradients=search.evaluate.gradients,
        seconds=time.perf_counter() - began,
    )


class _Search:
    """A search, and what it has found so far, in coordinates in which the flow's draws are standardised."""

    def __init__(
        self,
        flow: Flow,
        target: Target,
        key: Key[Array, ""],
        draws: dict[str, np.ndarray] | None,
        gradients: int,
    ) -> None:
        self.flow, self.shape, self.dim = flow, flow.shape, math.prod(flow.shape)
        self.most, self.confined = _MOST * gradients, max(64, _CONFINED_CHAINS * gradients // GRADIENTS)
        draw_key, noise_key = jr.split(key)
        if draws is None:
            n = flow.draws_at_once  # the size of a chunk, whose program may be compiled already
            draws = weighted_draws(flow, target, key=draw_key, n=n * math.ceil(_OWN / n))
        x = np.asarray(draws["x"], float).reshape(-1, self.dim)
        self.seen = Seen.of(x, np.asarray(draws["log_weight"], float))
        self.own = self.seen.standardised(x)
        self.rng = np.random.default_rng(np.asarray(jr.key_data(noise_key)).ravel())
        frame = self.seen.frame
        mean, scale = frame.mean.reshape(self.shape), frame.deviation.reshape(self.shape)
        to_target = FullAffine(mean, frame.factor) if self.dim <= FITTED else LowRankAffine(mean, scale)
        self.evaluate = Evaluator(Whitened(target, to_target), self.shape)
        self.chains = Chains(self.evaluate, self.rng)
        self.found: list[tuple[FullGaussian, Region]] = []

    def ends(self, each: int, temperatures: int, points: np.ndarray) -> Ends:
        """Let chains run; return their ends, with further points to look at."""
        spread = np.repeat(SPREADS, each)
        chosen = self.own[self.rng.integers(len(self.own), size=len(spread))]
        ends = self.chains.annealed(spread[:, None] * chosen, spread, temperatures)
        if not points.size:
            return ends
        u = self.seen.standardised(points.reshape(-1, self.dim))
        log_p = self.evaluate(u).log_p
        log_p = np.where(np.isfinite(log_p), log_p, -np.inf)
        return Ends(np.concatenate([u, ends.u]), np.concatenate([log_p, ends.log_p]))

    def log_q(self, u: np.ndarray) -> np.ndarray:
        """Return the flow's log density of points; NaN where it is not known."""
        x = self.seen.frame.points(u)
        parts = []
        for i in range(0, len(x), _AT_ONCE):
            part = x[i : i + _AT_ONCE]
            full = np.concatenate([part, np.broadcast_to(part[-1], (_AT_ONCE - len(part), self.dim))])
            with np.errstate(over="ignore"):  # beyond single precision q is zero
                single = jnp.asarray(full.reshape(-1, *self.shape), float)
            log_q = self.flow.log_prob(single, throw=False)
            parts.append(np.asarray(log_q, float)[: len(part)])
        return np.concatenate(parts) + self.seen.frame.log_det

    def excess(self, u: np.ndarray, log_p: np.ndarray) -> np.ndarray:
        """Return how far log p is above what the flow, and the regions found so far, have at points."""
        covered = self.log_q(u) + self.seen.log_z
        for gaussian, region in self.found:
            constant = 0.5 * self.dim * math.log(2 * math.pi) + gaussian.log_det
            log_r = -0.5 * squared_distances(gaussian, u) - constant
            covered = np.logaddexp(covered, log_r + math.log(region.share) + self.seen.log_z)
        with np.errstate(invalid="ignore"):
            # Where the flow's own density is not known, nothing is said.
            return np.where(np.isnan(covered), -np.inf, log_p - covered)

    def is_lost(self, ends: Ends) -> np.ndarray:
        """Say at which points the flow has lost the target."""
        return self.excess(*ends) > self.seen.limit

    def regions(self, ends: Ends, is_lost: np.ndarray) -> list[Region]:
        """Measure what is lost around the ends of chains, until that is enough."""
        is_open, failures = is_lost.copy() if self.dim <= FITTED else np.zeros_like(is_lost), 0
        z = balanced_draws(max(256, 4 * self.dim), self.dim, self.rng) if is_open.any() else np.empty(0)
        for _ in range(_TRIES):
            if not is_open.any() or failures == _FAILURES or self._is_enough:
                break
            i = int(np.argmax(np.where(is_open, ends.log_p, -np.inf)))
            first = Look.at(self._first(ends.u[i], float(ends.log_p[i])), z, self.evaluate)
            gaussian = climb(first, self.evaluate, Budget()).look.gaussian
            failures = 0 if self._keep(gaussian) else failures + 1
            is_open[i] = False
            is_open &= self.is_lost(ends)
        left = is_lost & self.is_lost(ends)
        if left.any() and self.ratio <= _ENOUGH:
            self._keep(self._by_moments(ends.u[left]), _REFITS)
        return self._measured_again()

    def _first(self, point: np.ndarray, log_p: float) -> FullGaussian:
        """Return a Gaussian around a point, so narrow that most of its draws are about as high."""
        z = self.rng.standard_normal((_PROBES, self.dim))
        width = _NARROW
        for width in _NARROW * 10.0 ** -np.arange(_WIDTHS):
            with np.errstate(all="ignore"):
                heights = self.evaluate(point + width * z).log_p
            if np.median(np.nan_to_num(heights, nan=-np.inf)) > log_p - self.dim - 5:
                break
        return FullGaussian(point, width * np.eye(self.dim))

    def _measured_again(self) -> list[Region]:
        """Measure all regions together, so that none is counted twice, by draws that did not choose them."""
        gaussians, self.found = [gaussian for gaussian, _ in self.found], []
        if not gaussians:
            return []
        regions = self._measured(gaussians).regions
        total = 1 + math.fsum(region.share for region in regions)
        error = math.hypot(*(region.share_err for region in regions))
        place, volume = self.seen.frame.points, self.seen.frame.log_det
        return [
            Region(
                place(r.point[None])[0].reshape(self.shape),
                *(r.log_p - volume, r.log_q - volume, r.share / total, _error_of_share(r, total, error)),
            )
            for r in regions
            if r.share > _CLEAR * total
        ]

    @property
    def _is_enough(self) -> bool:
        return self.ratio > _ENOUGH or self.evaluate.gradients > self.most

    @property
    def ratio(self) -> float:
        """Mass of the regions found so far, in units of what the flow covers."""
        return math.fsum(region.share for _, region in self.found)

    def _measured(self, gaussians: list[FullGaussian]) -> Measured:
        return measure(gaussians, self.evaluate, self.excess, self.seen, self.rng)

    def _keep(self, gaussian: FullGaussian, refits: int = 0) -> bool:
        """Measure a region, and keep it if it counts; else fit it anew to what was measured, if that may."""
        measured = self._measured([gaussian])
        for _ in range(refits):
            if measured.effective >= _CLEARLY or not measured.mass.any():
                break
            gaussian = measured.refitted()
            measured = self._measured([gaussian])
        is_kept = measured.effective >= _EFFECTIVE and measured.regions[0].share > _CLEAR
        if is_kept:
            self.found.append((gaussian, measured.regions[0]))
        return is_kept

    def _by_moments(self, points: np.ndarray) -> FullGaussian:
        """Return the Gaussian with the moments of a region of any shape, for which chains stay inside."""
        chosen = points[self.rng.integers(len(points), size=self.confined)]
        return moments(self.chains.confined(chosen, self.is_lost, _CONFINED).u)


def _error_of_share(region: Region, total: float, error: float) -> float:
    """Return the error of a region's share, given the mass of everything and the error of all regions."""
    others = math.sqrt(max(0.0, error * error - region.share_err * region.share_err))
    own, rest = region.share_err * (total - region.share), region.share * others
    return math.hypot(own / total, rest / total) / total
