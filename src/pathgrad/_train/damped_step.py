"""From the moments of the log-weights to a step: damped, bounded, and shrunk to what of it is signal."""

from typing import NamedTuple

import numpy as np
import scipy.linalg

_LEAST_SHRINK = 0.05
(_dpotri,) = scipy.linalg.get_lapack_funcs(
    ("potri",), dtype=np.float64
)  # an inverse from its Cholesky factor


class DampedStep(NamedTuple):
    r"""A step for one value of the damping.

    Attributes:
        change: What to add to the parameters.
        length: Standard deviation of the change of the log-weights that the full step would make,
            $\sqrt{\delta^T A \delta}$; that of `change` is this times `share`.
        share: Of the full step that is taken.
        explained: Share of the variance of the log-weights that a linear change takes away, corrected for
            what it takes from pure noise.
        shrink: Share of the step that is signal.
        predicted: Share of the variance that `change` takes away if all is linear.
    """

    change: np.ndarray
    length: float
    share: float
    explained: float
    shrink: float
    predicted: float


def damped_step(
    metric: np.ndarray,
    cross: np.ndarray,
    variance: float,
    *,
    n: int,
    damping: float,
    trust: float,
) -> DampedStep:
    r"""Solve $(A + \lambda\,\mathrm{tr}(A)/P)\,\delta = c$, and decide how much of it to take.

    With $p$ effective parameters a fit to pure noise explains a share $p/N$ of its variance; the usual
    correction of $R^2$ takes that away. What is left is signal, $S$, against the noise
    $(1 - S)\,p/(N - p)$ that the fit has put into the step. The share $S / (S + \text{noise})$ of it loses
    least. Repeated, that is a running average: $1/S$ grows by $1/\text{noise}$ with each step.
    """
    size = len(cross)
    shift = damping * np.trace(metric) / size
    damped = metric + shift * np.eye(size)
    factor, lower = scipy.linalg.cho_factor(damped, lower=True, overwrite_a=True)
    full = scipy.linalg.cho_solve((factor, lower), cross)
    inverse, _ = _dpotri(factor, lower=1)
    effective = size - shift * np.trace(inverse)
    square = full @ metric @ full
    unexplained = (variance - 2 * cross @ full + square) / variance
    left = max(n - effective, n / 4)  # degrees of freedom
    explained = max(0.0, 1 - unexplained * n / left)
    shrink = max(_LEAST_SHRINK, explained / (explained + (1 - explained) * effective / left))
    length = float(np.sqrt(square))
    share = shrink * min(1.0, trust / max(length, 1e-300))
    predicted = (2 * share * (cross @ full) - share**2 * square) / variance
    return DampedStep(share * full, length, share, explained, shrink, predicted)
