"""Draws with weights, which together stand for the target: averages with errors, draws without weights."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from .. import metrics
from .._words.arguments import function, whole
from .._words.arrays import doubles
from .._words.errors import ArgumentError, UserError, named
from .._words.keys import one_key
from .._words.tree import over_draws

_SMOOTHED = 0.7  # k-hat below which the fitted tail is that of the weights


class Expectation(NamedTuple):
    """An average over the target, and its standard error: two arrays, or two trees of arrays."""

    value: Any
    error: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Weighted:
    """Draws of a flow with normalised weights. Averages over them are averages over the target.

    The largest weights are smoothed (`pathgrad.metrics.psis`) if k-hat is below 0.7. Above that the fitted
    tail goes far beyond the weights there are, and following it does more harm than good, most of all where
    weights hardly vary.

    Attributes:
        x: The draws, in double precision, draws first.
        log_weight: Logarithms of the weights, which add up to one.
        khat: Pareto shape of the largest weights, before they were smoothed.
    """

    x: np.ndarray
    log_weight: np.ndarray
    khat: float

    @classmethod
    def smoothed(cls, x: np.ndarray, log_weight: np.ndarray) -> "Weighted":
        """Smooth the weights of some draws if that helps, and normalise them.

        Args:
            x: The draws, draws first.
            log_weight: Their log p - log q, up to a constant.
        """
        x, log_weight = doubles("x", x), doubles("log_weight", log_weight)
        if log_weight.ndim != 1 or x.shape[:1] != log_weight.shape or not log_weight.size:
            raise ArgumentError(
                f"{named('log_weight')} must have one number for each draw of {named('x')}, got shapes "
                f"{log_weight.shape} and {x.shape}."
            )
        return cls(x, *smoothed(log_weight))

    @functools.cached_property
    def weight(self) -> np.ndarray:
        """The weights, which add up to one."""
        return np.exp(self.log_weight)

    @property
    def ess(self) -> float:
        """Effective sample size, as a fraction of the draws."""
        return float(1 / (len(self.weight) * np.sum(self.weight**2)))

    def expect(self, f: Callable[[Array], Any]) -> Expectation:
        r"""Return the average of a function over the target, and its standard error.

        $$\hat f = \sum_i w_i f(x_i), \qquad \mathrm{error}^2 = \sum_i w_i^2 (f(x_i) - \hat f)^2$$

        Args:
            f: A JAX function of one point, called in double precision. It returns a number, an array or a
                tree of arrays. Where the target has no mass, it may return anything.
        """
        function("f", f, "f(x)")
        with jax.enable_x64(True):
            values = jax.jit(lambda x: over_draws(lambda _, x: f(x), None, x))(jnp.asarray(self.x))
        leaves, structure = jax.tree.flatten(values)
        found = [self._averaged(np.asarray(leaf, np.float64)) for leaf in leaves]
        return Expectation(*(jax.tree.unflatten(structure, part) for part in zip(*found, strict=True)))

    @property
    def mean(self) -> Expectation:
        """Mean of each coordinate, and its standard error."""
        return Expectation(*self._averaged(self.x))

    @property
    def sd(self) -> Expectation:
        """Standard deviation of each coordinate, and its standard error."""
        variance, error = self._averaged((self.x - self.mean.value) ** 2)
        return Expectation(np.sqrt(variance), 0.5 * error / np.sqrt(variance))

    def resample(self, n: int, *, key: Key[Array, ""]) -> np.ndarray:
        """Return draws of the target without weights: some of these, repeated as their weights say.

        However many are asked for, together they are worth no more than `ess` times the number of these
        draws. Resampling is systematic: a draw appears as often as its weight says, rounded up or down.

        Args:
            n: Number of draws.
            key: Source of the choice.
        """
        n, key = whole("n", n), one_key(key)
        if not np.isfinite(self.weight).all():
            raise UserError(
                "Draws cannot be resampled: some of their weights are not finite, because the target is NaN "
                "or infinite there. Read the verdict of the evaluation."
            )
        return self.x[systematic(self.weight, n, key=key)]

    def _averaged(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weighted mean over the first axis, and its standard error."""
        weight = self.weight.reshape(-1, *[1] * (values.ndim - 1))
        values = np.where(weight == 0, 0.0, values)
        mean = np.asarray(np.sum(weight * values, axis=0))
        # Not the mean square minus the square of the mean, a difference of large numbers.
        return mean, np.asarray(np.sqrt(np.sum((weight * (values - mean)) ** 2, axis=0)))


def smoothed(log_weight: Any) -> tuple[np.ndarray, float]:
    """Return normalised log-weights, smoothed if that helps, and k-hat before that."""
    log_weight = np.asarray(log_weight, np.float64)
    largest = log_weight.max()
    shifted = log_weight - (largest if np.isfinite(largest) else 0.0)
    found = metrics.psis(jnp.asarray(shifted, float))
    smooth = np.asarray(found.log_weight, np.float64)
    # Only the tail has changed: the rest keeps the digits that it has.
    is_kept = not found.khat < _SMOOTHED or smooth == shifted.astype(found.log_weight.dtype)
    smooth = np.where(is_kept, shifted, smooth)
    with np.errstate(divide="ignore", invalid="ignore"):  # if all weights are zero, or one is infinite
        return smooth - np.log(np.exp(smooth).sum()), float(found.khat)


def systematic(weight: np.ndarray, n: int, *, key: Key[Array, ""]) -> np.ndarray:
    """Return the indices of `n` draws by systematic resampling, in random order."""
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel())
    share = np.cumsum(weight)
    found = np.searchsorted(share / share[-1], (rng.random() + np.arange(n)) / n, side="right")
    return rng.permutation(np.minimum(found, len(share) - 1))
