"""Watch the ODE solver of a training, and let it take one more step where it is too coarse."""

from collections.abc import Callable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Key

from .evaluation import negative_elbos
from .model import Autoencoder

LIMIT = 0.05  # nats by which the ELBO may move with twice the steps


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
        """Return how to take one more step, or `None` if there are enough."""
        steps = int(model.flow.solver_steps)
        if steps == 0 or not model.flow.families:
            return None
        coarse, fine = (negative_elbos(model, self.images, key=key, refine=k) for k in (1, 2))
        if abs(coarse.shift(fine)["solver_shift"]) <= self.limit:
            return None
        return lambda each: with_steps(each, steps + 1)


def with_steps(model: Autoencoder, steps: int) -> Autoencoder:
    """Return the same model, its flow solved with so many steps."""
    return eqx.tree_at(lambda m: m.flow, model, model.flow.with_steps(steps))


def settled(model: Autoencoder) -> Autoencoder:
    """Let the solver take the steps that the arrays of a model say, after they were loaded."""
    steps = int(model.flow.solver_steps)
    is_same = steps in (0, getattr(model.flow.integrator, "steps", 0))
    return model if is_same else with_steps(model, steps)
