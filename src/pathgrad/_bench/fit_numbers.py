"""How good a flow is on a target: numbers from fresh draws, with log p in double precision."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

import pathgrad as pg

from .record import Record

_CHUNK = 1024
_EXACT = 8192  # draws of the target
_FEW = 2000  # draws of an estimate of log Z whose error is published


def measured(
    flow: pg.Flow, target: pg.targets.BenchmarkTarget, *, key: Key[Array, ""], draws: int
) -> dict[str, float | None]:
    """Return numbers by name; one that is not finite, or for which nothing is known, is `None`.

    `mean_error` is the largest error of a mean among the reference's columns, in standard deviations of the
    reference, and `mean_error_weighted` that of importance-weighted means.
    """
    draw_key, exact_key = jr.split(key)
    found = pg.weighted_draws(flow, target, key=draw_key, n=draws)
    with jax.enable_x64(True):
        log_weight = log_p(target, found["x"]) - found["log_q"].astype(float)
        log_z = pg.metrics.log_z(jnp.asarray(log_weight))
        numbers = {
            "elbo": np.mean(log_weight),
            "elbo_err": np.std(log_weight) / math.sqrt(draws),
            "log_z": log_z.value,
            "log_z_err": log_z.error,
            "ess": pg.metrics.ess(jnp.asarray(log_weight)),
            "khat": pg.metrics.khat(jnp.asarray(log_weight)),
            "largest_weight": np.exp(np.max(log_weight) - float(log_z.value)),
            "forward_ess": forward_ess(flow, target, key=exact_key),
        }
        numbers |= errors_of_means(target, found["x"], log_weight) | errors_of_log_z(target, log_weight)
    return {name: _number(value) for name, value in numbers.items()}


def log_p(target: pg.targets.BenchmarkTarget, x: np.ndarray) -> np.ndarray:
    """Return log densities in double precision; `enable_x64` must be on."""
    return _in_chunks(_log_p, target, x)


@eqx.filter_jit
def _log_p(target: pg.targets.BenchmarkTarget, x: Array) -> Array:
    return jax.vmap(target.log_prob)(x)


@eqx.filter_jit
def _columns(target: pg.targets.BenchmarkTarget, x: Array) -> Array:
    return jax.vmap(target.constrain)(x)


def _in_chunks(function, target: pg.targets.BenchmarkTarget, x: np.ndarray) -> np.ndarray:
    parts = [x[i : i + _CHUNK] for i in range(0, len(x), _CHUNK)]
    return np.concatenate([np.asarray(function(target, jnp.asarray(part, float))) for part in parts])


def errors_of_means(target: pg.targets.BenchmarkTarget, x: np.ndarray, log_weight: np.ndarray) -> Record:
    """Compare means with those of the reference; of columns with heavy tails, means of the logarithms."""
    if target.reference is None:
        return {"mean_error": None, "mean_error_weighted": None}
    names, heavy = target.reference.names, target.reference.heavy
    columns = _in_chunks(_columns, target, x)
    mean, sd = target.reference.mean, target.reference.sd
    if target.reference.draws is not None:
        truth = target.reference.draws.reshape(-1, len(names)).astype(float)
        logs = np.array([name in heavy for name in names])
        truth, columns = (np.where(logs, np.log(np.where(logs, a, 1.0)), a) for a in (truth, columns))
        mean, sd = truth.mean(axis=0), truth.std(axis=0, ddof=1)
    weight = np.exp(log_weight - np.max(log_weight))
    means = {"mean_error": columns.mean(axis=0), "mean_error_weighted": weight @ columns / weight.sum()}
    return {name: np.max(np.abs(value - mean) / sd) for name, value in means.items()}


def errors_of_log_z(target: pg.targets.BenchmarkTarget, log_weight: np.ndarray) -> Record:
    """Return the mean absolute error of log Z estimated from few draws, over independent batches of them."""
    batches = len(log_weight) // _FEW
    if target.log_z is None or batches < 2:
        return {"log_z_mae": None, "log_z_mae_err": None}
    rows = log_weight[: batches * _FEW].reshape(batches, _FEW)
    errors = np.abs(
        np.array([float(pg.metrics.log_z(jnp.asarray(row)).value) for row in rows]) - target.log_z
    )
    return {"log_z_mae": errors.mean(), "log_z_mae_err": errors.std(ddof=1) / math.sqrt(batches)}


def forward_ess(flow: pg.Flow, target: pg.targets.BenchmarkTarget, *, key: Key[Array, ""]) -> float | None:
    """Return the effective sample size from draws of the target: exact ones, else those of the reference."""
    sample = target.sample
    if sample is not None:
        x = jax.vmap(lambda key: sample(key=key))(jr.split(key, _EXACT))
    else:
        x = target.reference_points()
        if x is None:
            return None
    # In the precision that the flow has.
    single = jnp.asarray(x, jnp.float32)
    log_q = np.asarray(flow.exact().log_prob(single, throw=False), float)
    return float(pg.metrics.forward_ess(jnp.asarray(log_p(target, np.asarray(single)) - log_q)))


def _number(value) -> float | None:
    return float(value) if value is not None and math.isfinite(float(value)) else None
