r"""What more draws would show, if the tail of the weights goes on as it has begun.

K-hat is the shape of that tail and says nothing of its size. Weights that are all between 0.9 and 1.1, but
for a few that reach 1.3 with a heavy tail, have a large k-hat, and averages over them are as good as can be.
So how much a tail matters is worked out from its shape, the largest weight and the number of draws together.

No JAX here: code that only reads results judges them by the same rules.
"""

import math

MORE = 100  # times as many draws


def ess_with_more_draws(n: int, ess: float, khat: float, largest_weight: float) -> float:
    r"""Return the ESS, as a fraction, that `MORE` times as many draws would have.

    Let $w$ have mean one. Beyond the largest of $n$ weights, $1 + E$, the tail that k-hat describes goes on
    as $P(w - 1 > y) = \frac1n (E / y)^{1/k}$, and $m n$ draws reach until $y = E m^k$. The draws in between
    raise the variance of the weights, $1/\mathrm{ESS} - 1$, by

    $$\frac1n \int_E^{E m^k} 2 y \left(\frac{E}{y}\right)^{1/k} dy = \frac{E^2}{n}\, \frac{2k}{2k - 1}
      \left(m^{2k - 1} - 1\right).$$

    This is infinite in the limit if $k \ge 1/2$, but what counts is what a user could ever meet.

    Args:
        n: Number of draws.
        ess: Their effective sample size, as a fraction.
        khat: Pareto shape of their largest weights.
        largest_weight: The largest weight, in units of their mean.
    """
    if not (khat < math.inf and ess > 0 and n > 0):  # also false for NaN
        return math.nan
    if khat <= 0:
        return ess  # the tail ends soon
    power, log_more = 2 * khat - 1, math.log(MORE)
    if power * log_more > 600:
        return 0.0
    growth = log_more if power == 0 else math.expm1(power * log_more) / power
    excess = largest_weight - 1
    return 1 / (1 / ess + 2 * khat * growth * excess**2 / n)
