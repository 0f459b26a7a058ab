"""What every estimator offers."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Key

from .._draw import Draw
from .._flow import Flow


class AbstractEstimator(eqx.Module):
    """Draws whose `x` and `log_q` have honest values and the estimator's own derivative.

    An objective that is linear in `log_q` and `log p(x)` inherits the estimator from the draws. (One that is
    not must weigh them by itself: along the path alone its gradient would be biased.) Where `log_choice`
    is not `None`, it must also give that its gradient, as `ReverseKL` does.
    """

    @abstractmethod
    def draw(self, flow: Flow, *, key: Key[Array, "*batch"], n: int) -> Draw:
        """Make `n` draws in one solve. A failed solve gives NaN and says so in `solve`.

        `key` is what `flow.draw` takes: one, or one for each draw where devices share a batch.
        """
