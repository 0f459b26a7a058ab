"""What a flow passes from one transform to the next."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .outcome import Outcome, first_failure


class SolveInfo(eqx.Module):
    """What the ODE solves behind a draw cost, and how they ended.

    Attributes:
        evaluations: Number of field evaluations for each draw.
        outcome: An `Outcome`, as a number. A failed solve returns NaN.
    """

    evaluations: Int[Array, "..."]
    outcome: Int[Array, "..."]

    @property
    def succeeded(self) -> Bool[Array, "..."]:
        """Whether every solve reached its end with finite numbers."""
        return jnp.asarray(self.outcome == Outcome.FINE)


class Tally(eqx.Module):
    """Count the field evaluations of the backward pass.

    A backward pass returns nothing but derivatives, so the count is returned as one: `value` takes no part in
    any computation, and the derivative of a loss with respect to it is the number of evaluations in that
    loss's backward pass.

    Attributes:
        value: Any number, such as zero.
    """

    value: Float[Array, ""]


class Draw(eqx.Module):
    r"""A batch of draws, with what is known about them.

    What a draw carries decides how it is differentiated. With a `score`, only `x` depends on the
    parameters, through the sampling path alone, and `log_q` and `score` are constants: this is what the
    path gradient needs. Without a `score`, both `x` and `log_q` carry their total derivative.

    Attributes:
        x: The points, batch axis first.
        log_q: $\ln q(x)$, normalised.
        score: $\nabla_x \ln q(x)$, with the same shape as `x`.
        log_choice: Log-probability of the discrete choices made in sampling (which component of a
            mixture), or `None` if there were none. A choice cannot be differentiated along the path;
            objectives give it its gradient through this number.
        solve: Cost and outcome of the ODE solves, `None` if there were none.
    """

    x: Float[Array, "batch *event"]
    log_q: Float[Array, " batch"] | None = None
    score: Float[Array, "batch *event"] | None = None
    log_choice: Float[Array, " batch"] | None = None
    solve: SolveInfo | None = None


def add_solves(first: SolveInfo | None, second: SolveInfo | None) -> SolveInfo | None:
    """Return the total cost of two solves in sequence, and the first failure."""
    if first is None or second is None:
        return second if first is None else first
    # A failed solve returns NaN, so all later ones fail too, each in its own way.
    outcome = first_failure(first.outcome, second.outcome)
    return SolveInfo(first.evaluations + second.evaluations, outcome)


def merge_chunks(stacked: SolveInfo) -> SolveInfo:
    """Combine the solves of the chunks of one batch: cost of the most expensive, and worst outcome."""
    return SolveInfo(stacked.evaluations.max(), stacked.outcome.max())
