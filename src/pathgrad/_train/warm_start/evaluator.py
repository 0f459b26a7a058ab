"""Log densities and gradients of a target at many points, in double precision."""

import math
import time
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from ..._ingredients.target import Target, log_prob_of
from ..._words.tree import over_draws

_AT_ONCE = 128  # points of one call: enough to fill a core's vectors
_FEW = 8  # and for large points, which do that alone, and a single one of which climbs to a mode
_LARGE = 200


class Values(NamedTuple):
    """What is known at some points; a log density or a gradient may be anything but a finite number."""

    log_p: np.ndarray
    gradient: np.ndarray

    @property
    def finite(self) -> np.ndarray:
        """Which points have a finite log density and gradient."""
        return np.isfinite(self.log_p) & np.isfinite(self.gradient).all(axis=1)


class Evaluator:
    """Evaluates a target, always the same number of points at once, so that it is compiled once.

    Points are plain vectors in NumPy. What is done with the numbers costs little beside the target, and
    needs no compiling that way.

    Attributes:
        gradients: Number of points evaluated so far.
        pace: Seconds for each point, in the quickest call so far.
        compile_seconds: Time spent compiling.
    """

    def __init__(self, target: Target, shape: tuple[int, ...]) -> None:
        """Compile for points of one shape."""
        self.shape, self.dim = shape, int(np.prod(shape))
        self.gradients, self.pace = 0, math.inf
        self.at_once = _AT_ONCE if self.dim <= _LARGE else _FEW
        began = time.perf_counter()
        arrays, static = eqx.partition(target, eqx.is_array)
        self._arrays = arrays

        def run(arrays, points):
            def density(target, x):
                return log_prob_of(target, x.reshape(shape))

            target = eqx.combine(arrays, static)
            return over_draws(lambda t, x: jax.value_and_grad(density, 1)(t, x), target, points)

        with jax.enable_x64(True):
            points = jax.ShapeDtypeStruct((self.at_once, self.dim), np.float64)
            self._run = jax.jit(run).lower(arrays, points).compile()
        self.compile_seconds = time.perf_counter() - began

    def __call__(self, points: np.ndarray) -> Values:
        """Evaluate points, one row each."""
        self.gradients += len(points)
        parts = [self._part(points[i : i + self.at_once]) for i in range(0, len(points), self.at_once)]
        return Values(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _part(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        full = np.concatenate([points, np.broadcast_to(points[-1], (self.at_once - len(points), self.dim))])
        began = time.perf_counter()
        with jax.enable_x64(True):
            log_p, gradient = map(np.asarray, self._run(self._arrays, full))
        self.pace = min(self.pace, (time.perf_counter() - began) / self.at_once)
        return log_p[: len(points)].astype(np.float64), gradient[: len(points)].astype(np.float64)
