"""What every objective offers."""

from abc import abstractmethod
from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from ... import devices
from ..._words.draw import SolveInfo, Tally
from ..._words.outcome import Outcome, failure_if, first_failure
from ..._words.tree import freeze
from .data import Data


class Batch(eqx.Module):
    """What one estimate is made from.

    Attributes:
        keys: Source of noise, one for each draw. Their number is the number of draws.
        data: Entries of the objective's data, one for each draw, batch axis first; `None` where it has none.
        step: Training steps taken before this one, for what changes with them (a warm-up).
        tally: Counts field evaluations of the backward pass; `flow.tallied(batch.tally)` makes it count.
    """

    keys: Key[Array, " batch"]
    data: PyTree[Array] = None
    step: Int[Array, ""] | int = 0
    tally: Tally | None = None

    @property
    def n(self) -> int:
        """Number of draws."""
        return self.keys.shape[0]


class Estimate(eqx.Module):
    """A loss, and what it was made of.

    Attributes:
        loss: An honest value, which falls as the model improves; its gradient is the estimator's.
        each: The loss of each draw or datum, as numbers.
        outcome: `FINE`, or why the loss is not to be used: an `Outcome`. (Of solves, `solve` says it.)
        solve: Cost and outcome of the ODE solves, `None` where there were none.
        numbers: Further scalars worth logging, means over the batch.
    """

    loss: Float[Array, ""]
    each: Float[Array, " batch"]
    outcome: Int[Array, ""] = eqx.field(converter=lambda x: jnp.asarray(x, jnp.int32))
    solve: SolveInfo | None = None
    numbers: dict[str, Float[Array, ""]] = eqx.field(
        default_factory=dict,
        converter=lambda given: {name: jnp.asarray(x, float) for name, x in given.items()},
    )


class AbstractObjective(eqx.Module):
    """What is minimised: a function of a model and a batch.

    A model is a flow, or anything with arrays to train that the objective knows how to make one from: all
    floating-point arrays of the model are trained, those of the objective (a target's) are not.
    """

    @abstractmethod
    def __call__(self, model: PyTree, batch: Batch) -> Estimate:
        """Estimate the loss from the draws of one batch, which may be one device's part of it."""

    @property
    def data(self) -> Data | None:
        """What batches take their data from; `None` for objectives that need draws alone."""
        return None

    @property
    def is_mean(self) -> bool:
        """Whether the loss is the mean of what it is for each draw.

        If it is not, devices cannot share a batch, and the loss has no error that its draws could tell.
        """
        return True

    @property
    def lower_bound(self) -> tuple[float, float] | None:
        """Value and error of what the loss cannot fall below, where that is known.

        A training that does is exploiting an error of its densities, and is told so.
        """
        return None

    def summary(self, each: np.ndarray) -> Mapping[str, float | int | Array]:
        """Return numbers worth logging that need the losses of all draws of a block of steps."""
        return {}


def outcome_of(*checked: tuple[Float[Array, " batch"], Outcome]) -> Int[Array, ""]:
    """Return the failure that stands beside the first array with a number that is not finite, or `FINE`."""
    return first_failure(*(failure_if(~jnp.all(jnp.isfinite(x)), failure) for x, failure in checked))


def choice_term(
    log_choice: Float[Array, " batch"] | None, each: Float[Array, " batch"]
) -> Float[Array, ""] | float:
    """Return zero, with the gradient that a loss has through discrete choices.

    The mean of the other draws is the baseline. It leaves the mean of the gradient as it is and makes
    it vanish draw by draw where q = p, like the path gradient: there all entries of `each` are equal.
    (A single draw has no others; then the gradient is unbiased only.)
    """
    if log_choice is None:
        return 0.0
    n = each.shape[0] * devices.count()
    others = devices.total(jnp.sum(each)) - each
    baseline = others / (n - 1) if n > 1 else jnp.zeros_like(each)
    return jnp.mean((each - baseline) * (log_choice - freeze(log_choice)))
