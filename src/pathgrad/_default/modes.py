"""The search for modes that a fitted flow has lost."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from .._flow.flow import Flow
from .._flow.transforms import AbstractBijection
from .._modes.search import search_modes
from .._numbers.evaluate import Evaluation
from .._numbers.mode_search import GRADIENTS
from .._train.warm_start.warm_start import WarmStart
from .inside import Inside

_SHARE = 0.1  # of the gradients of the training, at most, for the chains of the search
_COSTS = 3.0  # times the chains' gradients, for what may come after them


def gradients_for(trained: int) -> int:
    """Return how many gradients a search may take after a training with so many."""
    return min(GRADIENTS, int(_SHARE * trained))


def seconds_of(gradients: int, start: WarmStart | None) -> float:
    """Return about how long a search takes, given what the warm start took."""
    if start is None or not start.gradients:
        return 0.0
    return _COSTS * gradients * start.seconds / start.gradients + 2 * start.compile_seconds


def with_search(
    found: Evaluation,
    flow: Flow,
    inside: Inside,
    places: Sequence[np.ndarray] = (),
    *,
    key: Key[Array, ""],
    gradients: int,
) -> Evaluation:
    """Return an evaluation with what a search in the flow's own coordinates has found besides.

    Args:
        found: The evaluation.
        flow: The flow, which ends with the map of a warm start if there was one.
        inside: The coordinates before that map.
        places: Further points of the target to look at, where other climbs have ended.
        key: Source of all noise.
        gradients: How many gradients the chains may take.
    """
    if found.failed or not math.isfinite(found.log_z):
        return found
    points: Any = places
    if inside.is_mapped:
        with jax.enable_x64(True):
            points = [outside_in(flow, place) for place in places]
    numbers = search_modes(*inside.of(flow), key=key, gradients=gradients, points=points).numbers()
    point = numbers.get("lost_point")
    if point is not None and inside.is_mapped:
        with jax.enable_x64(True):
            numbers["lost_point"] = inside_out(flow, np.asarray(point).reshape(flow.shape)).ravel().tolist()
    return dataclasses.replace(found, **numbers)  # pyright: ignore[reportArgumentType]


def outside_in(flow: Flow, x: np.ndarray) -> np.ndarray:
    """Return a point of the target in the coordinates before a flow's last transform."""
    to_target = flow.transforms[-1]
    assert isinstance(to_target, AbstractBijection)
    return np.asarray(to_target.inverse(jnp.asarray(x, float))[0], float)


def inside_out(flow: Flow, z: np.ndarray) -> np.ndarray:
    """Return a point before a flow's last transform in the coordinates of the target."""
    to_target = flow.transforms[-1]
    assert isinstance(to_target, AbstractBijection)
    return np.asarray(to_target.forward(jnp.asarray(z, float))[0], float)
