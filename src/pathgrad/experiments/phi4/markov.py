r"""Autocorrelation of an independence Metropolis chain.

Autocorrelation times are $\tau = \frac12 + \sum_{t \ge 1} \rho(t)$: independent states have 1/2, and a mean
over $N$ states has the squared error $2 \tau\, \mathrm{var} / N$.
"""

import math
from typing import NamedTuple

import numpy as np

from pathgrad._numbers.metropolis import Chain

# In units of tau. Wider than the usual 5, because the chain stays long at a draw of large weight: its
# autocorrelation is no single exponential, and with many draws the noise of more terms is small.
_WINDOW = 10.0


class Average(NamedTuple):
    """The mean of an autocorrelated series."""

    value: float
    error: float  # its standard error, with autocorrelation
    tau: float  # integrated autocorrelation time


def gaussian_acceptance(ess: float) -> float:
    r"""Return the acceptance for normal log-weights: $\operatorname{erfc}(\sqrt{-\ln \mathrm{ESS}} / 2)$."""
    return math.erfc(math.sqrt(max(-math.log(ess), 0.0)) / 2)


def tau_of_rejections(chain: Chain) -> float:
    r"""Return the autocorrelation time of an observable that is independent of the weights.

    Its $\rho(t)$ is the probability of $t$ rejections in a row: the fraction of pairs of times at distance
    $t$ with the same state. Over all distances, a state held $n$ times has $n (n - 1) / 2$ such pairs; so
    $\tau = \sum n^2 / 2N$.
    """
    _, times = np.unique(chain.held, return_counts=True)
    return float(np.sum(times.astype(float) ** 2) / (2 * len(chain.held)))


def autocorrelated_mean(series: np.ndarray) -> Average:
    r"""Average a series and estimate its autocorrelation time, with the window of Madras and Sokal.

    The sum over $\rho(t)$ ends at the first $t \ge 10 \tau$: the rest would add only noise. Each $\rho$ is
    biased low because the mean is estimated from the same series; the factor $1 + (2t + 1) / N$ corrects this
    (Wolff 2004).
    """
    n = len(series)
    value = float(np.mean(series))
    centred = series - value
    variance = float(np.mean(centred**2))
    if not variance > 0:  # a chain that never moved, or has a NaN, gives no error estimate
        return Average(value, math.nan, math.nan)
    length = 1 << (2 * n - 1).bit_length()  # zero-padded, so that the ends do not wrap around
    modes = np.fft.rfft(centred, length)
    rho = np.fft.irfft(modes.real**2 + modes.imag**2, length)[:n]
    rho /= np.arange(n, 0, -1) * variance
    taus = np.cumsum(rho) - 0.5
    window = int(np.argmax(np.arange(n) >= _WINDOW * np.maximum(taus, 0.5))) or n - 1
    tau = max(float(taus[window]) * (1 + (2 * window + 1) / n), 0.5 / n)
    return Average(value, math.sqrt(2 * tau * variance / n), tau)
