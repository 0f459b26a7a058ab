"""What log-weights of a flow's own draws say, with errors."""

import math
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import metrics

_FEWEST = 10  # draws, below which no error means anything
_QUARTILES = 1.349  # their distance in a normal distribution, in standard deviations
_MEASURED = (
    "ess", "ess_err", "elbo", "kl", "kl_err", "log_z", "log_z_err", "khat", "largest_weight",
)  # fmt: skip


def of_weights(log_weights: np.ndarray, rounding: float) -> dict[str, Any]:
    """Return what the flow's own draws say; NaN where there are too few for an error."""
    log_weight, centre = centred(log_weights)
    counts = {
        "samples": int(log_weight.size),
        "failed": int(jnp.sum(jnp.isnan(log_weight) | (log_weight == jnp.inf))),
        "forward_ess": None,
    }
    if log_weight.size < _FEWEST:
        return counts | dict.fromkeys(_MEASURED, math.nan)
    z, kl = metrics.log_z(log_weight), metrics.reverse_kl(log_weight)
    return counts | {
        "ess": float(metrics.ess(log_weight)),
        "ess_err": error_of_mean(ess_influence(log_weight)),
        "elbo": centre + float(metrics.elbo(log_weight)),
        "kl": float(kl.value),
        "kl_err": float(kl.error),
        "log_z": centre + float(z.value),
        "log_z_err": float(z.error),
        "khat": float(metrics.khat(log_weight, rounding)),
        "largest_weight": float(jnp.exp(jnp.max(log_weight) - z.value)),
    }


def accuracy_of(draws: dict[str, np.ndarray]) -> dict[str, float]:
    """Return how coarsely log-weights are rounded, and how much they vary."""
    log_weight = draws["log_weight"]
    is_known = np.isfinite(log_weight)
    if not is_known.any():
        return {"rounding": math.nan, "spread": math.nan}
    # Those of log p at a usual draw: a single one far out, which has no weight, may be huge.
    log_p = (log_weight + draws.get("log_q", np.zeros_like(log_weight)))[is_known].astype(np.float64)
    rounding = float(np.finfo(log_weight.dtype).eps) * float(np.median(np.abs(log_p)))
    return {"rounding": rounding, "spread": _spread(log_weight[is_known].astype(np.float64), rounding)}


def _spread(log_weight: np.ndarray, rounding: float) -> float:
    """Return the standard deviation of the bulk of log-weights; zero only if all of them are equal."""
    low, high = np.quantile(log_weight, [0.25, 0.75])
    if low < high:
        return float(high - low) / _QUARTILES
    # Half of them are the same number, as far as can be told: the rest does not make them less coarse.
    return min(float(np.std(log_weight)), max(rounding, sys.float_info.min))


def centred(log_weight: np.ndarray) -> tuple[Float[Array, " batch"], float]:
    """Subtract the largest log-weight, so that results computed from the rest keep more digits.

    Single-precision numbers near 1600, such as a log Z, are 1e-4 apart, and its error may be as small.
    """
    largest = float(np.max(log_weight))
    centre = largest if math.isfinite(largest) else 0.0
    return jnp.asarray(log_weight - np.asarray(centre, log_weight.dtype)), centre


def error_of_mean(influence: Float[Array, " batch"]) -> float:
    """Return the standard error of an estimate, given the influence of each draw on it."""
    return float(jnp.std(influence) / math.sqrt(max(influence.size - 1, 1)))


def ess_influence(log_weight: Float[Array, " batch"]) -> Float[Array, " batch"]:
    """Return the influence of each draw on the effective sample size, (mean w)^2 / mean w^2."""
    weight = jnp.exp(log_weight - metrics.log_z(log_weight).value)
    size = metrics.ess(log_weight)
    return size * (2 * weight - size * weight**2 - 1)
