"""The search for modes that a fitted flow has lost."""

import dataclasses
import math

import numpy as np
from jaxtyping import Array, Key

from .._flow.flow import Flow
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
    if start is None or not start.pace > 0:
        return 0.0
    return _COSTS * gradients * start.pace + 2 * start.compile_seconds


def with_search(
    found: Evaluation,
    flow: Flow,
    inside: Inside,
    start: WarmStart | None,
    *,
    key: Key[Array, ""],
    gradients: int,
) -> Evaluation:
    """Return an evaluation with what a search in the flow's own coordinates has found besides.

    Args:
        found: The evaluation.
        flow: The flow, which ends with the map of a warm start if there was one.
        inside: The coordinates before that map.
        start: What the warm start found: the search also looks at where its other climbs have ended.
        key: Source of all noise.
        gradients: How many gradients the chains may take.
    """
    if found.failed or not math.isfinite(found.log_z):
        return found
    places = [] if start is None else [mode.location for mode in start.modes]
    points = [inside.within(flow, place[None])[0][0] for place in places]
    numbers = search_modes(*inside.of(flow), key=key, gradients=gradients, points=points).numbers()
    if (point := numbers.get("lost_point")) is not None:
        numbers["lost_point"] = inside.outside(flow, np.reshape(point, (1, *flow.shape)))[0].ravel().tolist()
    return dataclasses.replace(found, **numbers)  # pyright: ignore[reportArgumentType]
