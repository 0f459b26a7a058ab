"""Independence Metropolis on weighted draws."""

from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from .._words.arrays import doubles
from .._words.errors import ArgumentError, named
from .._words.keys import one_key


class Chain(NamedTuple):
    """A Markov chain over draws.

    Attributes:
        held: Index of the draw that is the state, at each time.
        acceptance: Fraction of the proposals accepted.
    """

    held: np.ndarray
    acceptance: float


def metropolis(log_weight: Any, *, key: Key[Array, ""]) -> Chain:
    r"""Return a Markov chain of the target that proposes draws of a flow, in their order.

    A proposal is accepted with probability $\min(1, w' / w)$; else the chain stays where it is, and the state
    counts once more. Acceptance and the times that it stays tell about a flow what the ESS tells, and no
    more: a chain of proposals from a flow goes nowhere that the flow does not go.

    Args:
        log_weight: log p - log q at draws of q, up to a constant.
        key: Source of the decisions.
    """
    log_weight, key = doubles("log_weight", log_weight), one_key(key)
    if log_weight.ndim != 1 or not len(log_weight) or np.isnan(log_weight).any():
        raise ArgumentError(f"{named('log_weight')} must be one number for each draw, none of them NaN.")
    return walk(log_weight, np.random.default_rng(np.asarray(jr.key_data(key)).ravel()))


def walk(log_weight: np.ndarray, rng: np.random.Generator) -> Chain:
    r"""Return the chain of `metropolis`, with the decisions of a generator of NumPy.

    The chain starts at the first draw, without burn-in: it reaches equilibrium after the first acceptances,
    so its start biases a mean by $\tau / N$ standard deviations, less than its error by a factor
    $\sqrt{\tau / N}$. A burn-in would be one more number to explain.
    """
    # Accept where log u < log w' - log w. This form takes no difference of log-weights, so a weight of zero
    # is never accepted, and is left at once if it is the first.
    reach = log_weight - np.log1p(-rng.random(len(log_weight)))
    held, state, current = [], 0, float(log_weight[0])
    for i, (limit, log_w) in enumerate(zip(reach.tolist(), log_weight.tolist(), strict=True)):
        if i and limit > current:
            state, current = i, log_w
        held.append(state)
    accepted = np.count_nonzero(np.diff(held))
    return Chain(np.array(held), accepted / max(len(held) - 1, 1))
