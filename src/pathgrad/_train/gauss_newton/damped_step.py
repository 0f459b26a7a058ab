"""Compute a step from the moments of the log-weights: damped, bounded, and shrunk to its signal."""

from typing import NamedTuple

import numpy as np
import scipy.linalg

_LEAST_SHRINK = 0.05
# Computes an inverse from a Cholesky factor.
(_dpotri,) = scipy.linalg.get_lapack_funcs(("potri",), dtype=np.float64)


class DampedStep(NamedTuple):
    r"""A step for one value of the damping.

    The full step $\delta$ would change the log-weights by `length`, $\sqrt{\delta^T A \delta}$, as a standard
    deviation.
    """

    change: np.ndarray  # what to add to the parameters
    length: float
    share: float  # share of the full step that is taken
    explained: float  # share of the log-weights' variance that a linear change explains, beyond noise
    shrink: float  # share of the step that is signal
    predicted: float  # share of these draws' variance that `change` removes if all is linear


def damped_step(
    metric: np.ndarray, cross: np.ndarray, variance: float, *, n: int, damping: float, trust: float
) -> DampedStep:
    r"""Solve $(A + \lambda\,\mathrm{tr}(A)/P\,I)\,\delta = c$, and decide how much of it to take.

    Let $H = A (A + \lambda\,\mathrm{tr}(A)/P\,I)^{-1}$. A fit to pure noise of variance 1 leaves
    $1 - (2\,\mathrm{tr} H - \mathrm{tr} H^2)/N$ of it, and makes a step of squared length
    $\mathrm{tr} H^2/N$ in the metric. The first corrects $R^2$: what is explained beyond it is signal, $S$.
    The second is the noise that the rest, $1 - S$, puts into the step. It is best to take the share
    $S / (S + \text{noise})$ of the step. Repeated, this is a running average: $1/S$ grows by
    $1/\text{noise}$ with each step (down to the least share, which averages over about twenty steps).

    Raises `numpy.linalg.LinAlgError` if the damped metric is not positive.
    """
    size = len(cross)
    shift = damping * np.trace(metric) / size
    damped = metric.copy(order="F")
    damped.flat[:: size + 1] += shift
    factor, lower = scipy.linalg.cho_factor(damped, lower=True, overwrite_a=True)
    full = scipy.linalg.cho_solve((factor, lower), cross)
    inverse, _ = _dpotri(factor, lower=1, overwrite_c=1)
    diagonal = np.diag(inverse)
    square_of_inverse = 2 * np.square(np.tril(inverse, -1)).sum() + diagonal @ diagonal
    trace = size - shift * diagonal.sum()
    trace_of_square = size - 2 * shift * diagonal.sum() + shift**2 * square_of_inverse
    square = full @ metric @ full
    unexplained = (variance - 2 * cross @ full + square) / variance
    left = max(n - 2 * trace + trace_of_square, n / 4)  # degrees of freedom
    explained = min(1.0, max(0.0, 1 - unexplained * n / left))
    noise = (1 - explained) * trace_of_square / left
    shrink = max(_LEAST_SHRINK, explained / max(explained + noise, 1e-300))
    length = float(np.sqrt(max(square, 0.0)))
    share = min(shrink, trust / max(length, 1e-300))
    predicted = (2 * share * (cross @ full) - share**2 * square) / variance
    return DampedStep(share * full, length, share, explained, shrink, predicted)
