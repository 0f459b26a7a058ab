"""Evaluate a flow: numbers with errors, and a verdict that follows from them."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key

from .. import devices as sharing
from .. import metrics
from .._flow.flow import Flow
from .._ingredients.inspection import check_indices
from .._ingredients.target import Target, check_target, log_prob_of
from .._words.arguments import function, instance, shown, whole
from .._words.errors import ArgumentError, named
from .._words.keys import one_key
from .._words.tree import number_of_draws, over_draws
from .check_divergence import DivergenceCheck, check_divergence, has_foreign_formula
from .from_weights import accuracy_of, centred, error_of_mean, ess_influence, of_weights
from .measured import MEASURED
from .mode_search import ModeSearch
from .quantity import measured_rows
from .target_draws import Distances, checked_draws, from_target_draws, log_weights_at
from .verdict import Verdict, judge

_CHECK, _OWN = 2**30 + 1, 2**30 + 2  # folded into the key
_NEEDED = ("log_weight", "evaluations")  # of draws that were made before
_SHIFT_DRAWS = 8192  # how many draws are repeated with twice the solver steps


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Measures of a flow from its importance weights. Printed, it is a table.

    Attributes:
        samples: Number of draws.
        failed: Number of draws whose weight is NaN or plus infinity. With any, the other numbers are NaN.
        ess: Effective sample size as a fraction of the draws.
        ess_err: Standard error of `ess`.
        forward_ess: Effective sample size from exact draws of the target, if there are any. It detects
            modes that the flow has missed.
        elbo: Mean of `log p - log q`; a lower bound on `log_z`.
        kl: Reverse KL divergence, computed with `log_z` from the same draws.
        kl_err: Standard error of `kl`.
        log_z: Log normaliser of the target.
        log_z_err: Standard error of `log_z`.
        khat: Pareto shape of the largest weights; below 0.7 they are reliable.
        largest_weight: The largest weight, in units of their mean. If it is small, so is the tail, and the
            verdict does not mind its shape.
        solver_shift: Change of `log_z` with twice the solver steps, on the same draws. NaN if the
            tolerance of an adaptive solver is already at the limit of the precision.
        solver_shift_err: Standard error of that shift. Both values share their draws, so it is much smaller
            than the error of `log_z` unless the weights themselves change.
        ess_shift: Change of `ess` with twice the solver steps, on the same draws.
        ess_shift_err: Standard error of that shift.
        evaluations: Number of field evaluations for each draw.
        rounding: Accuracy of a log-weight at best, given the floating-point precision and the size of the
            log densities.
        divergence_error: Largest relative error found in the closed-form divergence of a field; `None` if
            none was checked.
        spread: Standard deviation of the bulk of the log-weights: the distance of their quartiles, divided by
            1.349. If it is not far above `rounding`, differences between flow and target may be lost.
        eubo: Mean of `log p - log q` over draws of the target, if there are any; an upper bound on `log_z`.
        eubo_err: Standard error of `eubo`, if those draws are independent.
        log_z_both: Log normaliser from both sides, by bridge sampling: from draws of the flow and of the
            target.
        log_z_both_err: Standard error of that, if the draws are independent.
        mean_shift: How far the mean of a coordinate is from that of the target's draws, at most, in standard
            deviations.
        ks: Largest difference of a coordinate's distribution function from that of the target's draws.
        distances: The same for each number.
        chains: Number of chains that looked for lost modes; `None` if nobody looked.
        reach: How far out they started, in standard deviations of the flow.
        lost: Share of the target's mass that was found where the flow has far too little.
        lost_err: Standard error of `lost`.
        lost_regions: In how many regions it is.
        lost_point: A point in the largest of them, as a plain list of numbers.
    """

    samples: int
    failed: int
    ess: float
    ess_err: float
    forward_ess: float | None
    elbo: float
    kl: float
    kl_err: float
    log_z: float
    log_z_err: float
    khat: float
    largest_weight: float
    solver_shift: float
    solver_shift_err: float
    ess_shift: float
    ess_shift_err: float
    evaluations: float
    rounding: float
    divergence_error: float | None = None
    spread: float | None = None
    eubo: float | None = None
    eubo_err: float | None = None
    log_z_both: float | None = None
    log_z_both_err: float | None = None
    mean_shift: float | None = None
    ks: float | None = None
    distances: Distances | None = None
    chains: int | None = None
    reach: float | None = None
    lost: float | None = None
    lost_err: float | None = None
    lost_regions: int | None = None
    lost_point: list[float] | None = None

    @property
    def verdict(self) -> Verdict:
        """How far the numbers can be trusted, and why."""
        return judge(dataclasses.asdict(self))

    @property
    def warnings(self) -> list[str]:
        """Reasons not to trust the numbers, each with what to do about it; empty if there are none."""
        return self.verdict.explain(dataclasses.asdict(self))

    def __str__(self) -> str:
        numbers = dataclasses.asdict(self)
        # Without an ODE solver, rows about it would mean nothing.
        hidden = () if self.evaluations else ("solver_shift", "ess_shift", "evaluations")
        shown = [quantity for quantity in MEASURED if quantity.name not in hidden]
        rows = [*measured_rows(shown, numbers), *self.verdict.rows(numbers)]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:>{width}}  {value}" for name, value in rows)


@eqx.filter_jit
def _weights(
    flow: Flow, target: Target, key: Key[Array, ""], n: int, mesh: Mesh | None
) -> tuple[Array, Array, Array, Array]:
    arrays, static = eqx.partition((flow, target), eqx.is_array)

    def part(arrays, keys):
        flow, target = eqx.combine(arrays, static)
        size = keys.shape[0]
        draw = flow.draw("log_q", key=keys, n=size, chunk=size)
        log_p = over_draws(log_prob_of, target, draw.x)
        evaluations = jnp.zeros(()) if draw.solve is None else draw.solve.evaluations
        assert draw.log_q is not None
        return draw.x, draw.log_q, log_p - draw.log_q, evaluations

    return sharing.for_each_draw(part, mesh)(arrays, jr.split(key, n))


def weighted_chunks(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, ""],
    n: int,
    tell: Callable[[int], None] = lambda done: None,
    devices: Sequence[Any] | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """Draw `n` points with their log density and importance weight, and yield them a chunk at a time.

    Only one chunk at a time is in memory, so there can be any number of draws.

    Args:
        flow: The flow; its density is computed without noise.
        target: An object with `log_prob(x)` for one point.
        key: Source of the draws.
        n: Number of draws.
        tell: Called with the number of draws made so far.
        devices: The devices that share the draws. Default: all. With several processes, either all call
            this, or each passes its own devices (`jax.local_devices()`).

    Returns:
        For each chunk the arrays `x`, `log_q`, `log_weight` (`log p - log q`), draws first, and
        `evaluations`, the number of field evaluations for each draw.
    """
    instance("flow", flow, Flow, "a `Flow`")
    function("tell", tell, "tell(done)")
    key, n = one_key(key), whole("n", n)
    check_target(target, flow.shape)
    # `PerDraw` leaves are not split between devices.
    has_per_draw = number_of_draws((flow, target)) is not None
    mesh = None if has_per_draw else sharing.mesh_for(None, devices)
    return _chunks(flow.exact(), target, key, n, tell, mesh)


def _chunks(
    flow: Flow, target: Target, key: Key[Array, ""], n: int, tell: Callable[[int], None], mesh: Mesh | None
):
    chunk = min(n, flow.draws_at_once)
    key = jr.fold_in(key, 2**30)  # unlike any key of a training run with the same key
    flow, target = sharing.replicated((flow, target), mesh)
    for i in range(math.ceil(n / chunk)):
        chunk_key = sharing.replicated(jr.fold_in(key, i), mesh)
        arrays = jax.tree.map(np.asarray, _weights(flow, target, chunk_key, chunk, mesh))
        x, log_q, log_weight = (array[: n - i * chunk] for array in arrays[:3])
        tell(min(n, (i + 1) * chunk))
        yield {"x": x, "log_q": log_q, "log_weight": log_weight, "evaluations": arrays[3]}


def weighted_draws(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, ""],
    n: int,
    tell: Callable[[int], None] = lambda done: None,
    devices: Sequence[Any] | None = None,
) -> dict[str, np.ndarray]:
    """Return all chunks of `weighted_chunks`, joined; `evaluations` has one entry for each chunk."""
    chunks = weighted_chunks(flow, target, key=key, n=n, tell=tell, devices=devices)
    return _joined(chunks, "x", "log_q", "log_weight")


def _joined(chunks: Iterator[dict[str, np.ndarray]], *names: str) -> dict[str, np.ndarray]:
    """Join the named arrays of all chunks, and `evaluations`; nothing else is kept in memory."""
    parts = [{name: chunk[name] for name in (*names, "evaluations")} for chunk in chunks]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in names}
    return joined | {"evaluations": np.stack([part["evaluations"] for part in parts])}


def evaluate(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, ""],
    n: int = 16384,
    sample_target: Callable[..., Array] | None = None,
    refine: int = 1,
    draws: Mapping[str, Any] | None = None,
    devices: Sequence[Any] | None = None,
    divergence: DivergenceCheck | None = None,
    target_draws: Any = None,
    search: ModeSearch | None = None,
) -> Evaluation:
    """Evaluate a flow against its target, with exact divergences.

    Args:
        flow: The flow.
        target: An object with `log_prob(x)` for one point.
        key: Source of the draws.
        n: Number of draws.
        sample_target: Called as `sample_target(key=...)` for one exact draw of the target, to compute the
            forward ESS.
        refine: Multiple of the flow's own solver steps to take: `flow.refined(refine)` is evaluated.
        draws: The result of `weighted_draws` of that flow with the same key, if you have it already; `x` is
            not used, and `log_q` may be missing.
        devices: The devices that share the draws, as in `weighted_chunks`. Default: all.
        divergence: The result of `check_divergence` of that flow. By default it is computed if a field that
            is not from this library has its own formula for its divergence.
        target_draws: Draws of the target from elsewhere, such as a long Markov chain: for the forward ESS,
            an upper bound on the log normaliser, that from both sides, and distances. An array of points,
            batch axis first; or, by name, a dictionary of arrays or an object of ArviZ.
        search: The result of `search_modes` of that flow.
    """
    instance("flow", flow, Flow, "a `Flow`")
    key, n, refine = one_key(key), whole("n", n), whole("refine", refine)
    _check_others(sample_target, draws, divergence, search)
    check_target(target, flow.shape)
    check_indices(target, flow.shape)
    target_draws = None if target_draws is None else checked_draws(target_draws, target, flow.shape)
    flow = flow.refined(refine) if refine > 1 else flow
    if draws is not None:
        draws = {name: np.asarray(draws[name]) for name in ("log_q", *_NEEDED) if name in draws}
    else:
        draws = _joined(weighted_chunks(flow, target, key=key, n=n, devices=devices), "log_q", "log_weight")
    accuracy = accuracy_of(draws)
    numbers: dict[str, Any] = of_weights(draws["log_weight"], accuracy["rounding"]) | accuracy
    numbers["evaluations"] = float(draws["evaluations"].mean())
    if sample_target is not None:
        numbers["forward_ess"] = _forward_ess(flow, target, sample_target, key)
    numbers |= _solver_shift(flow, target, key, draws["log_weight"], devices)
    if divergence is None and has_foreign_formula(flow):
        divergence = check_divergence(flow, key=jr.fold_in(key, _CHECK))
    numbers["divergence_error"] = divergence.worst if divergence is not None and divergence.fields else None
    if target_draws is not None:
        own = flow.sample(key=jr.fold_in(key, _OWN), n=min(n, _SHIFT_DRAWS))
        numbers |= _beside(flow, target, target_draws, own, draws["log_weight"])
    if search is not None:
        numbers |= search.numbers()
    return Evaluation(**numbers)


def _beside(
    flow: Flow, target: Target, target_draws: np.ndarray, own: Array, log_weight: np.ndarray
) -> dict[str, Any]:
    """Return what draws of the target say."""
    distances = Distances.between(own, target_draws, target)
    numbers = from_target_draws(log_weights_at(flow, target, target_draws), log_weight)
    return numbers | {"distances": distances} | distances.worst()


def _check_others(sample_target: object, draws: object, divergence: object, search: object) -> None:
    if sample_target is not None:
        function("sample_target", sample_target, "sample_target(key=...)")
    if draws is not None and not (isinstance(draws, Mapping) and set(_NEEDED) <= set(draws)):
        raise ArgumentError(f"{named('draws')} must be the result of `weighted_draws`, got {shown(draws)}.")
    if divergence is not None:
        instance("divergence", divergence, DivergenceCheck, "the result of `check_divergence`")
    if search is not None:
        instance("search", search, ModeSearch, "the result of `search_modes`")


def _solver_shift(
    flow: Flow, target: Target, key: Key[Array, ""], log_weight: np.ndarray, devices: Sequence[Any] | None
) -> dict[str, float]:
    """Return how much log Z and ESS change when the first draws are solved with twice the steps."""
    names = ("solver_shift", "solver_shift_err", "ess_shift", "ess_shift_err")
    if not flow.is_solved:
        return dict.fromkeys(names, 0.0)
    if eqx.tree_equal(flow.refined(2), flow) is True:
        # Tolerances are already as tight as the precision of the numbers allows.
        return dict.fromkeys(names, math.nan)
    # The first draws of the same key; only the solver differs.
    n = min(log_weight.size, _SHIFT_DRAWS)
    before, centre = centred(log_weight[:n])
    chunks = weighted_chunks(flow.refined(2), target, key=key, n=n, devices=devices)
    finer = _joined(chunks, "log_weight")["log_weight"]
    after = jnp.asarray(finer - np.asarray(centre, finer.dtype))
    z, finer_z = metrics.log_z(before).value, metrics.log_z(after).value
    # The influence of a draw on log Z is w / Z - 1; the difference of the two is its influence on the shift.
    error = error_of_mean(jnp.exp(after - finer_z) - jnp.exp(before - z))
    ess_error = error_of_mean(ess_influence(after) - ess_influence(before))
    shifts = finer_z - z, error, metrics.ess(after) - metrics.ess(before), ess_error
    return dict(zip(names, map(float, shifts), strict=True))


def _forward_ess(
    flow: Flow, target: Target, sample_target: Callable[..., Array], key: Key[Array, ""]
) -> float:
    keys = jr.split(jr.fold_in(key, 2**31), _SHIFT_DRAWS)
    x = over_draws(lambda _, key: sample_target(key=key), None, keys)
    log_p = over_draws(log_prob_of, target, x)
    return float(metrics.forward_ess(log_p - flow.exact().log_prob(x, throw=False)))
