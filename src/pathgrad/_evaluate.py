"""How good is a flow? Numbers with errors, and a verdict in words."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from . import metrics
from ._flow import Flow
from ._target import Target, log_prob_of
from ._tree import over_draws

_SHIFT_DRAWS = 8192  # how many draws are repeated with twice the solver steps


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What importance weights say about a flow.

    Attributes:
        samples: Number of draws.
        failed: Draws whose weight is NaN or plus infinity. If there are any, the numbers are NaN too.
        ess: Effective sample size as a fraction of the draws.
        forward_ess: The same from exact draws of the target, where it has them. It sees modes that the
            flow has missed.
        elbo: Mean of `log p - log q`; a lower bound of `log_z`.
        kl: Reverse KL divergence, with the flow's own `log_z`.
        kl_err: Its standard error.
        log_z: Log normaliser of the target.
        log_z_err: Its standard error.
        khat: Pareto shape of the largest weights; below 0.7 they can be relied on.
        solver_shift: How far `log_z` moves with twice the solver steps, on the same draws. NaN where the
            tolerance of an adaptive solver is already at the limit of the precision.
        evaluations: Field evaluations of one draw.
        verdict: The numbers in words.
    """

    samples: int
    failed: int
    ess: float
    forward_ess: float | None
    elbo: float
    kl: float
    kl_err: float
    log_z: float
    log_z_err: float
    khat: float
    solver_shift: float
    evaluations: float
    verdict: str


@eqx.filter_jit
def _weights(flow: Flow, target: Any, key: Any, n: int) -> tuple[Array, Array, Array, Array]:
    draw = flow.draw("log_q", key=key, n=n, chunk=n)
    log_p = over_draws(lambda t, x: log_prob_of(t, x), target, draw.x)
    evaluations = jnp.zeros(()) if draw.solve is None else draw.solve.evaluations
    assert draw.log_q is not None
    return draw.x, draw.log_q, log_p - draw.log_q, evaluations


def weighted_draws(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, ""],
    n: int,
    tell: Callable[[int], None] = lambda done: None,
) -> dict[str, np.ndarray]:
    """Draw `n` points with their log density and importance weight, a chunk at a time.

    Args:
        flow: The flow; its density is computed without noise.
        target: An object with `log_prob(x)` for one point.
        key: Source of the draws.
        n: Number of draws.
        tell: Called with the number of draws made so far.

    Returns:
        Arrays `x`, `log_q`, `log_weight` (`log p - log q`), and `evaluations` for each chunk.
    """
    if n < 1:
        raise ValueError(f"The number of samples must be at least 1, got {n}.")
    flow = flow.exact()
    chunk = min(n, flow._chunk(None))
    key = jr.fold_in(key, 2**30)  # unlike any key of training, should the same one be given to both
    parts = []
    for i in range(math.ceil(n / chunk)):
        parts.append(jax.tree.map(np.asarray, _weights(flow, target, jr.fold_in(key, i), chunk)))
        tell(min(n, (i + 1) * chunk))
    x, log_q, log_weight = (np.concatenate([p[i] for p in parts])[:n] for i in range(3))
    evaluations = np.stack([p[3] for p in parts])
    return {"x": x, "log_q": log_q, "log_weight": log_weight, "evaluations": evaluations}


def evaluate(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, ""],
    n: int = 16384,
    sample_target: Callable[[Any], Any] | None = None,
    draws: dict[str, np.ndarray] | None = None,
) -> Evaluation:
    """Evaluate a flow against its target, with exact divergences.

    Args:
        flow: The flow.
        target: An object with `log_prob(x)` for one point.
        key: Source of the draws.
        n: Number of draws.
        sample_target: One exact draw of the target from a key, for the forward ESS.
        draws: The result of `weighted_draws` with the same key, to save making it again.
    """
    if draws is None:
        draws = weighted_draws(flow, target, key=key, n=n)
    log_weight = jnp.asarray(draws["log_weight"])
    z, kl = metrics.log_z(log_weight), metrics.reverse_kl(log_weight)
    numbers = {
        "samples": int(log_weight.size),
        "failed": int(jnp.sum(jnp.isnan(log_weight) | (log_weight == jnp.inf))),
        "ess": float(metrics.ess(log_weight)),
        "elbo": float(metrics.elbo(log_weight)),
        "kl": float(kl.value),
        "kl_err": float(kl.error),
        "log_z": float(z.value),
        "log_z_err": float(z.error),
        "khat": float(metrics.khat(log_weight)),
        "evaluations": float(draws["evaluations"].mean()),
        "solver_shift": _solver_shift(flow, target, key, log_weight),
        "forward_ess": None
        if sample_target is None
        else _forward_ess(flow, target, sample_target, key),
    }
    return Evaluation(**numbers, verdict=_verdict(numbers))


def _solver_shift(
    flow: Flow, target: Target, key: Key[Array, ""], log_weight: Float[Array, " batch"]
) -> float:
    """Return how far log Z moves when the first draws are solved with twice the steps."""
    if not flow.transforms or eqx.tree_equal(flow.refined(2), flow) is True:
        # Nothing to solve; or tolerances already as tight as the precision of the numbers allows.
        return 0.0 if not flow.transforms else math.nan
    n = min(log_weight.size, _SHIFT_DRAWS)
    # The first draws of the same key; only the solver differs.
    finer = weighted_draws(flow.refined(2), target, key=key, n=n)["log_weight"]
    return float(metrics.log_z(jnp.asarray(finer)).value - metrics.log_z(log_weight[:n]).value)


def _forward_ess(flow: Flow, target: Target, sample_target: Any, key: Key[Array, ""]) -> float:
    x = jax.vmap(sample_target)(jr.split(jr.fold_in(key, 2**31), _SHIFT_DRAWS))
    log_p = jax.vmap(lambda y: log_prob_of(target, y))(x)
    return float(metrics.forward_ess(log_p - flow.exact().log_prob(x, throw=False)))


def _verdict(numbers: dict[str, Any]) -> str:
    """Say in words what the numbers mean and what to do."""
    if numbers["failed"]:
        return (
            f"unusable: {numbers['failed']} of {numbers['samples']} draws have no finite weight. Lower the "
            "learning rate, take more solver steps, or check the target for NaN."
        )
    said = metrics.khat_verdict(numbers["khat"], numbers["samples"])
    forward = numbers["forward_ess"]
    if forward is not None and forward < 0.5 * numbers["ess"]:
        said += (
            f" But exact draws of the target give an ESS of only {forward:.1%}: the flow misses a mode or a "
            "tail of it."
        )
    shift, error = abs(numbers["solver_shift"]), numbers["log_z_err"]
    if math.isnan(shift):
        said += (
            " The ODE solver could not be checked: its tolerance is at the limit of the precision."
        )
    if shift > 3 * error and shift > 1e-3:
        said += (
            f" The ODE solver is too coarse: log Z moves by {numbers['solver_shift']:+.4f} with twice the "
            "steps, more than its error; evaluate (or train) with more."
        )
    return said
