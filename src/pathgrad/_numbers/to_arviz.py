"""Draws for ArviZ, in the spelling of whichever version is installed."""

import importlib.util
import inspect
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from .. import metrics
from .._named.abstract import named_values
from .._named.numpyro_target import NumpyroTarget
from .._words.arguments import shown
from .._words.errors import ArgumentError, named
from .._words.extras import needed
from .._words.keys import one_key
from .summary import checked_pair, smoothed_weights
from .weighted import systematic


def to_arviz(
    target: Any,
    draws: Mapping[str, Any],
    *,
    weighted: bool = False,
    data: bool = True,
    verdict: str | None = None,
    key: Key[Array, ""] | None = None,
) -> Any:
    """Return draws as an object of ArviZ: `InferenceData` up to version 0, `DataTree` from version 1 on.

    ArviZ knows no weights. So the group `posterior` has draws that are resampled by their weights, as many as
    they are worth, and can be used as they are. Some appear more than once; ArviZ's own effective sample size
    and R-hat do not see that. The group `sample_stats` has `lp` (log p), `log_q` and `log_weight` of each;
    its attributes say how good the weights were. Needs the extra `arviz`.

    Args:
        target: The target. Without names, its points are the parameter `x`.
        draws: Arrays `x`, `log_q` and `log_weight`, as from `weighted_draws`.
        weighted: Keep the draws of the flow as they are instead, to be weighted by `log_weight`.
        data: Whether a NumPyro model adds its data, their log likelihoods and posterior predictive draws.
        verdict: What an evaluation said of the flow, to be kept.
        key: Source of the choice of draws; by default `jax.random.key(0)`.
    """
    if not isinstance(draws, Mapping):
        raise ArgumentError(f"{named('draws')} must be arrays by name, got {shown(draws)}.")
    missing = [name for name in ("x", "log_q", "log_weight") if name not in draws]
    if missing:
        raise ArgumentError(
            f"{named('draws')} must have x, log_q and log_weight; there is no {missing[0]!r}."
        )
    key = jr.key(0) if key is None else one_key(key)
    checked_pair(draws)
    log_weight, log_q = (np.asarray(draws[name], np.float64) for name in ("log_weight", "log_q"))
    chosen = np.arange(len(log_weight)) if weighted else _resampled(log_weight, key)
    values = named_values(target, np.asarray(draws["x"])[chosen])
    stats = {"lp": log_weight + log_q, "log_q": log_q, "log_weight": log_weight}
    groups: dict[str, Any] = {
        "posterior": _one_chain(values),
        "sample_stats": _one_chain({name: array[chosen] for name, array in stats.items()}),
    }
    if data and isinstance(target, NumpyroTarget):
        groups |= _of_data(target, values, key)
    made = _from_dict(groups)
    said = {"verdict": verdict or "not evaluated", "distinct_draws": len(np.unique(chosen))}
    for group in ("posterior", "sample_stats"):
        made[group].attrs.update(_attributes(log_weight) | said | {"is_weighted": int(weighted)})
    return made


def _resampled(log_weight: np.ndarray, key: Key[Array, ""]) -> np.ndarray:
    """Return indices of draws, each about as often as its weight says, in random order."""
    weight = smoothed_weights(log_weight)
    number = max(1, math.floor(1 / float(weight @ weight)))
    return systematic(weight, number, key=key)


def _of_data(target: NumpyroTarget, values: dict[str, np.ndarray], key: Key[Array, ""]) -> dict[str, Any]:
    found = {"observed_data": target.observed}
    if not found["observed_data"]:
        return {}
    found["posterior_predictive"] = _one_chain(target.predictive(values, key=jr.fold_in(key, 1)))
    if not target.summed_out:
        found["log_likelihood"] = _one_chain(target.log_likelihood(values))
    return found


def _attributes(log_weight: np.ndarray) -> dict[str, Any]:
    """Return what the weights say, in types that files can hold."""
    centre = float(log_weight.max())
    shifted = jnp.asarray(log_weight - centre, float)
    z = metrics.log_z(shifted)
    return {
        "inference_library": "pathgrad",
        "ess": float(metrics.ess(shifted)),
        "khat": float(metrics.khat(shifted)),
        "log_z": centre + float(z.value),
        "log_z_err": float(z.error),
        "flow_draws": len(log_weight),
    }


def _one_chain(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value)[None] for name, value in values.items()}


def _from_dict(groups: dict[str, Any]) -> Any:
    # The package of version 1's data structures can be installed on its own.
    has, has_base = (importlib.util.find_spec(name) is not None for name in ("arviz", "arviz_base"))
    from_dict = needed("arviz_base" if has_base and not has else "arviz", "arviz").from_dict
    is_old = "posterior" in inspect.signature(from_dict).parameters
    return from_dict(**groups) if is_old else from_dict(groups)
