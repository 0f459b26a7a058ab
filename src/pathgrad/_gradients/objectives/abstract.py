"""The interface of all objectives."""

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
    """What one estimate of the loss is computed from.

    Attributes:
        keys: Random keys, one for each draw. Their number is the number of draws.
        data: Entries of the objective's data, one for each draw, batch axis first; `None` if it has none.
        step: Number of training steps before this one, for schedules (a warm-up).
        tally: Counts field evaluations of the backward pass; pass it on with `flow.tallied(batch.tally)`.
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
    """An estimate of the loss, and what it consists of.

    Attributes:
        loss: The loss, which falls as the model improves; its gradient is the estimator's.
        each: The loss of each draw or datum, without a gradient.
        outcome: `FINE`, or why the loss must not be used: an `Outcome`. (Failed solves are in `solve`.)
        solve: Cost and outcome of the ODE solves, `None` if there were none.
        numbers: Further scalars worth logging, as means over the batch.
    """

    loss: Float[Array, ""]
    each: Float[Array, " batch"]
    outcome: Int[Array, ""] = eqx.field(converter=lambda x: jnp.asarray(x, jnp.int32))
    solve: SolveInfo | None = None
    numbers: dict[str, Float[Array, ""]] = eqx.field(
        default_factory=dict,
        converter=lambda numbers: {name: jnp.asarray(x, float) for name, x in numbers.items()},
    )


class AbstractObjective(eqx.Module):
    """What is minimised: a function of a model and a batch.

    A model is a flow, or anything that the objective can make one from. All floating-point arrays of the
    model are trained; those of the objective (a target's) are not.
    """

    @abstractmethod
    def __call__(self, model: PyTree, batch: Batch) -> Estimate:
        """Estimate the loss from one batch, or from one device's part of it."""

    @property
    def data(self) -> Data | None:
        """The data that batches are taken from; `None` for objectives that need draws alone."""
        return None

    @property
    def is_mean(self) -> bool:
        """Whether the loss is the mean over draws of the loss of each draw.

        If not, devices cannot share a batch, and the error of the loss cannot be estimated from its draws.
        """
        return True

    @property
    def lower_bound(self) -> tuple[float, float] | None:
        """Value and standard error of a lower bound on the loss, or `None` if none is known.

        A training run that falls below it exploits an error in its densities; its metrics then show this.
        """
        return None

    def summary(self, each: np.ndarray) -> Mapping[str, float | int | Array]:
        """Return numbers worth logging, computed from the losses of all draws of a block of steps."""
        return {}


def outcome_of(*checked: tuple[Float[Array, " batch"], Outcome]) -> Int[Array, ""]:
    """Return the failure paired with the first array that is not finite everywhere, or `FINE`."""
    return first_failure(*(failure_if(~jnp.all(jnp.isfinite(x)), failure) for x, failure in checked))


def choice_term(
    log_choice: Float[Array, " batch"] | None, each: Float[Array, " batch"]
) -> Float[Array, ""] | float:
    """Return zero, with the gradient of the loss through discrete choices.

    The mean loss of the other draws is the baseline. It does not change the mean of the gradient, and makes
    it vanish draw by draw where q = p, like the path gradient: there all entries of `each` are equal.
    (A single draw has no others; then the gradient is unbiased, but need not vanish.)
    """
    if log_choice is None:
        return 0.0
    n = each.shape[0] * devices.count()
    others = devices.total(jnp.sum(each)) - each
    baseline = others / (n - 1) if n > 1 else jnp.zeros_like(each)
    return jnp.mean((each - baseline) * (log_choice - freeze(log_choice)))
