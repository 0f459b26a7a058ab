"""Watch the ODE solver of a training, and let it take more steps where it is too coarse."""

import math
from collections.abc import Callable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Key

from .evaluation import negative_elbos
from .model import Autoencoder

LIMIT = 0.05  # nats by which the ELBO may move with twice the steps
_ORDER = 4  # of the solver's fixed steps: their error falls with this power of their number
_MOST = 2.0  # by which the number of steps may grow at once: far from its limit the power law is a guess


class SolverWatch:
    """Compares the ELBO of some images with the one that twice the solver steps give, on the same draws.

    A flow that is solved too coarsely is trained to exploit the error: its ELBO is better than it should be.
    """

    def __init__(self, images: np.ndarray, limit: float = LIMIT) -> None:
        """Watch by these images."""
        self.images, self.limit = images, limit

    def __call__(
        self, model: Autoencoder, *, key: Key[Array, ""]
    ) -> Callable[[Autoencoder], Autoencoder] | None:
        """Return how to take as many steps as it needs, or `None` if there are enough.

        It is one more step where the error is near the limit. A total gradient makes fields stiff faster than
        one step a validation could follow.
        """
        steps = int(model.flow.solver_steps)
        if steps == 0 or not model.flow.families:
            return None
        coarse, fine = (negative_elbos(model, self.images, key=key, refine=k) for k in (1, 2))
        shift = abs(coarse.shift(fine)["solver_shift"])
        if shift <= self.limit:
            return None
        growth = (shift / self.limit) ** (1 / _ORDER) if math.isfinite(shift) else _MOST
        return lambda each: with_steps(each, math.ceil(steps * min(growth, _MOST)))


def with_steps(model: Autoencoder, steps: int) -> Autoencoder:
    """Return the same model, its flow solved with so many steps."""
    return eqx.tree_at(lambda m: m.flow, model, model.flow.with_steps(steps))


def settled(model: Autoencoder) -> Autoencoder:
    """Let the solver take the steps that the arrays of a model say, after they were loaded."""
    steps = int(model.flow.solver_steps)
    is_same = steps in (0, getattr(model.flow.integrator, "steps", 0))
    return model if is_same else with_steps(model, steps)
