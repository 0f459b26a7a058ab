"""Weighted draws of a finished fit, in the coordinates of its target."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from .._flow.flow import Flow
from .._flow.transforms import AbstractBijection
from .._numbers.evaluate import weighted_draws
from .inside import Inside


def draws_of(flow: Flow, inside: Inside, *, key: Key[Array, ""], n: int) -> dict[str, np.ndarray]:
    """Return `x`, `log_q` and `log_weight` of draws, in double precision.

    Weights are computed in the coordinates in which the flow was trained, where they keep their digits.
    """
    arrays = weighted_draws(*inside.of(flow), key=key, n=n)
    log_weight = arrays["log_weight"].astype(np.float64) + inside.centre
    x, log_det = outside(flow, arrays["x"]) if inside.is_mapped else (arrays["x"].astype(np.float64), 0.0)
    return {"x": x, "log_q": arrays["log_q"] - log_det, "log_weight": log_weight}


def outside(flow: Flow, z: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return points before a flow's last transform in the coordinates after it, and the log-determinants."""
    to_target = flow.transforms[-1]
    assert isinstance(to_target, AbstractBijection)
    with jax.enable_x64(True):
        x, log_det = jax.jit(jax.vmap(to_target.forward))(jnp.asarray(z, jnp.float64))  # pyright: ignore
        return np.asarray(x), np.asarray(log_det)
