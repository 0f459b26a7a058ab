"""What every estimator offers."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Key

from .._draw import Draw
from .._flow import Flow


class AbstractEstimator(eqx.Module):
    """Draws whose `x` and `log_q` have honest values and the estimator's own derivative.

    An objective is any function of `log_q` and of `log p(x)`; it inherits the estimator from the draws.
    Where `log_choice` is not `None`, it must also give that its gradient, as `reverse_kl` does.
    """

    @abstractmethod
    def draw(self, flow: Flow, *, key: Key[Array, "*batch"], n: int) -> Draw:
        """Make `n` draws in one solve. A failed solve gives NaN and says so in `solve`.

        `key` is what `flow.draw` takes: one, or one for each draw where devices share a batch.
        """
