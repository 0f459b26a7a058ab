"""The limits that numbers of an evaluation are compared with. No JAX here."""

import math
from typing import Any

from .._words.arguments import whole
from .._words.text import written_point
from .quantity import Numbers

NO_SHIFT = 1e-5  # nobody quotes log Z more precisely than this, however small its error
_SINGLE = 2.0**-23  # machine epsilon of single precision, which the command line computes in


def khat_limit(n: int) -> float:
    r"""Return the $\hat k$ below which averages over `n` weighted draws are reliable.

    $\min(1 - 1/\log_{10} n,\; 0.7)$ (Vehtari et al. 2024). Below one half, the weights have a finite
    variance as well.
    """
    n = whole("n", n, 0)
    return min(1 - 1 / math.log10(n), 0.7) if n > 1 else -math.inf


def limits_of(numbers: Numbers) -> dict[str, Any]:
    """Return the limits that numbers are compared with, and what else messages need."""
    # JSON has no infinity: if a message needs k-hat and the file has none, it was infinite.
    khat = number_of(numbers, "khat", math.inf)
    # A shift below this is rounding: no log-weight is more accurate.
    rounding = number_of(numbers, "rounding", _SINGLE * abs(number_of(numbers, "log_z", 0.0)))
    return {
        "khat": khat,
        "khat_limit": khat_limit(int(number_of(numbers, "samples", 0.0))),
        # The limit solved for n: 1 - 1/log10(n) = k.
        "khat_draws": math.ceil(10 ** (1 / (1 - khat))) if khat < 0.7 else math.inf,
        "shift_limit": math.hypot(
            number_of(numbers, "log_z_err"), number_of(numbers, "solver_shift_err", 0.0)
        ),
        "resolution": max(NO_SHIFT, rounding),
        "lost_where": written_point(numbers.get("lost_point")),
    }


def number_of(numbers: Numbers, name: str, missing: float = math.nan) -> float:
    """Return a number by its name, or what stands for a missing one."""
    value = numbers.get(name)
    return float(value) if isinstance(value, int | float) else missing
