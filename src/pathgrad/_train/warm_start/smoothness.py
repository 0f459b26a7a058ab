r"""Whether a target's log density follows its gradient, judged under a Gaussian.

For standard normal $z$ and smooth $f$, Stein's identity holds: $E[z f] = E[\nabla f]$ and, with
$\nabla f$ in place of $f$, $E[(z_j^2 - 1) f] = E[z_j \partial_j f]$. With the log-weight as $f$ the right
sides are seen by the gradient alone, the left sides by the density alone. A jump, or a part whose
derivative is blocked, is only in the density.
"""

import numpy as np

from .gaussian import Look

_CERTAIN = 8.0  # standard errors
_LARGE = 0.3  # nats for a step of one standard deviation


def follows_its_gradient(look: Look) -> bool:
    """Say whether both sides of both identities agree, within the error of the draws."""
    z, pull = look.z[look.finite], look.pull[look.finite]
    if len(z) < 100:
        return True  # nobody can say
    log_weight = look.log_weight
    excess = (log_weight - np.median(log_weight))[:, None]
    for each in (z * excess - pull, (z * z - 1) * excess - z * pull):
        mean = np.abs(each.mean(axis=0))
        error = each.std(axis=0) / len(z) ** 0.5
        if np.any((mean > _LARGE) & (mean > _CERTAIN * error)):
            return False
    return True
