"""Gaussians in double precision, and how well they fit a target."""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from .evaluator import Evaluator

TOLERATED = 0.01  # share of draws that may have no finite numbers


class AbstractGaussian(ABC):
    """The distribution of `mean + factor @ z` for standard normal `z`, however the factor is stored."""

    mean: np.ndarray

    @abstractmethod
    def points(self, z: np.ndarray) -> np.ndarray:
        """Return the points of some standard normal draws, one row each."""

    @abstractmethod
    def whitened(self, gradient: np.ndarray) -> np.ndarray:
        """Return gradients with respect to `z` from gradients with respect to points."""

    @property
    @abstractmethod
    def log_det(self) -> float:
        """Log of the absolute determinant of the factor."""

    @property
    @abstractmethod
    def deviation(self) -> np.ndarray:
        """Standard deviation of each coordinate."""

    @abstractmethod
    def inverted(self, point: np.ndarray) -> np.ndarray:
        """Return the `z` of a point."""

    def distance(self, other: Any) -> float:
        """Return how far the mean of another one is, in standard deviations of this one."""
        return float(np.linalg.norm(self.inverted(other.mean)))

    @abstractmethod
    def moved_to(self, mean: np.ndarray) -> Any:
        """Return the same distribution around another mean."""

    @abstractmethod
    def scaled(self, factor: float) -> Any:
        """Return the same distribution, wider by a factor."""


class FullGaussian(AbstractGaussian):
    """A Gaussian with a whole matrix as its factor."""

    def __init__(self, mean: np.ndarray, factor: np.ndarray) -> None:
        self.mean, self.factor = mean, factor

    def points(self, z):
        return self.mean + z @ self.factor.T

    def whitened(self, gradient):
        return gradient @ self.factor

    @property
    def log_det(self):
        return float(np.linalg.slogdet(self.factor)[1])

    @property
    def deviation(self):
        return np.linalg.norm(self.factor, axis=1)

    def inverted(self, point):
        return np.linalg.solve(self.factor, point - self.mean)

    def moved_to(self, mean):
        return FullGaussian(mean, self.factor)

    def scaled(self, factor):
        return FullGaussian(self.mean, factor * self.factor)


class DiagonalGaussian(AbstractGaussian):
    """A Gaussian with independent coordinates."""

    def __init__(self, mean: np.ndarray, deviation: np.ndarray) -> None:
        self.mean, self._deviation = mean, deviation

    def points(self, z):
        return self.mean + z * self._deviation

    def whitened(self, gradient):
        return gradient * self._deviation

    @property
    def log_det(self):
        return float(np.sum(np.log(self._deviation)))

    @property
    def deviation(self):
        return self._deviation

    def inverted(self, point):
        return (point - self.mean) / self._deviation

    def moved_to(self, mean):
        return DiagonalGaussian(mean, self._deviation)

    def scaled(self, factor):
        return DiagonalGaussian(self.mean, factor * self._deviation)


class LowRankGaussian(AbstractGaussian):
    """A Gaussian with independent coordinates, after a few orthonormal directions were stretched."""

    def __init__(
        self, mean: np.ndarray, scale: np.ndarray, directions: np.ndarray, stretch: np.ndarray
    ) -> None:
        self.mean, self.scale, self.directions, self.stretch = mean, scale, directions, stretch

    def _stretched(self, rows: np.ndarray) -> np.ndarray:
        return rows + (rows @ self.directions) * (self.stretch - 1) @ self.directions.T

    def points(self, z):
        return self.mean + self._stretched(z) * self.scale

    def whitened(self, gradient):
        return self._stretched(gradient * self.scale)

    @property
    def log_det(self):
        return float(np.sum(np.log(self.scale)) + np.sum(np.log(self.stretch)))

    @property
    def deviation(self):
        more = (self.stretch**2 - 1) * self.directions**2
        return self.scale * np.sqrt(1 + more.sum(axis=1))

    def inverted(self, point):
        along = self.directions * (1 / self.stretch - 1) @ self.directions.T
        away = (point - self.mean) / self.scale
        return away + along @ away

    def moved_to(self, mean):
        return LowRankGaussian(mean, self.scale, self.directions, self.stretch)

    def scaled(self, factor):
        return LowRankGaussian(self.mean, factor * self.scale, self.directions, self.stretch)


class Look(NamedTuple):
    """A Gaussian, and the target at its draws.

    Attributes:
        gaussian: The Gaussian.
        z: The standard normal draws.
        log_p: Log density of the target at each draw.
        pull: Gradient with respect to `z` of the log-weight of each draw: zero everywhere if the
            Gaussian is the target.
        finite: Which draws have finite numbers.
    """

    gaussian: Any
    z: np.ndarray
    log_p: np.ndarray
    pull: np.ndarray
    finite: np.ndarray

    @classmethod
    def at(cls, gaussian: AbstractGaussian, z: np.ndarray, evaluate: Evaluator) -> "Look":
        """Evaluate the target at the Gaussian's draws."""
        with np.errstate(over="ignore", invalid="ignore"):
            values = evaluate(gaussian.points(z))
            pull = gaussian.whitened(values.gradient) + z
            finite = values.finite & np.isfinite(np.sum(pull * pull, axis=1))
        return cls(gaussian, z, values.log_p, pull, finite)

    @property
    def outside(self) -> int:
        """Number of draws without finite numbers."""
        return int(np.sum(~self.finite))

    @property
    def log_weight(self) -> np.ndarray:
        """Log-weights of the finite draws."""
        z = self.z[self.finite]
        normaliser = 0.5 * z.shape[1] * math.log(2 * math.pi) + self.gaussian.log_det
        return self.log_p[self.finite] + 0.5 * np.sum(z * z, axis=1) + normaliser

    @property
    def elbo(self) -> float:
        """Mean log-weight of the finite draws; minus infinity if there are none."""
        log_weight = self.log_weight
        return float(np.mean(log_weight)) if len(log_weight) else -math.inf

    @property
    def lost(self) -> int:
        """Number of draws without finite numbers, beyond the few that do no harm."""
        return max(0, self.outside - int(TOLERATED * len(self.z)))

    def is_better(self, other: "Look") -> bool:
        """Say whether fewer draws are lost than by another Gaussian, or as many and the ELBO is higher."""
        return (-self.lost, self.elbo) > (-other.lost, other.elbo)


def balanced_draws(n: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """Return standard normal draws in pairs of opposite sign, whose second moments are exactly one.

    With them the regression of a Gaussian's score, which is linear, is exact, and its ELBO too. Where there
    are fewer pairs than coordinates, only the variance of each coordinate can be exact.
    """
    half = rng.standard_normal((max(1, n // 2), dim))
    if len(half) > dim:
        values, vectors = np.linalg.eigh(half.T @ half / len(half))
        half = half @ (vectors / np.sqrt(values)) @ vectors.T
    else:
        half /= np.sqrt(np.mean(half * half, axis=0))
    return np.concatenate([half, -half])
