"""Check whether the gradients of `Backsolve` can be trusted on a given flow."""

import dataclasses
import enum
import math

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Key

from .._flow.flow import Flow
from .._flow.transforms import CNF
from .._ingredients.target import Target, check_target
from .._solve.adjoints import AbstractAdjoint, Backsolve, Discrete
from .._words.arguments import instance, positive, whole
from .._words.errors import ArgumentError, named
from .._words.keys import one_key
from .._words.tree import number_of_draws
from .estimators import AbstractEstimator, PathGradient
from .objectives import reverse_kl


class Agreement(enum.Enum):
    """How two gradients of the same draws compare. The value is a template for the message."""

    WITHIN_TOLERANCE = "Backsolve can be trusted here: {compared}."
    WITHIN_NOISE = (
        "Backsolve is doubtful here: {compared}. The noise hides the difference now, but it is a bias and "
        "will not average out. Take more steps or tighter tolerances, or use `Discrete()`."
    )
    APART = (
        "Do not trust Backsolve here: {compared}. Take more steps or tighter tolerances, or use `Discrete()`."
    )
    NOT_FINITE = (
        "Do not use Backsolve here: a gradient is not finite; the flow could not be retraced backwards, or a "
        "solve failed. Use `Discrete()`."
    )


@dataclasses.dataclass(frozen=True)
class GradientCheck:
    """A comparison of the gradients of the two adjoints on the same draws. Print it for advice.

    Attributes:
        relative_difference: Norm of the difference, divided by the norm of the discrete gradient.
        noise: Norm of the gradient's Monte Carlo error for these draws, divided by the same norm.
        tolerance: Relative difference up to which backsolve counts as right.
    """

    relative_difference: float
    noise: float
    tolerance: float

    @property
    def agreement(self) -> Agreement:
        """How the gradients compare."""
        difference = self.relative_difference
        if not math.isfinite(difference):
            return Agreement.NOT_FINITE
        if difference <= self.tolerance:
            return Agreement.WITHIN_TOLERANCE
        return Agreement.WITHIN_NOISE if difference <= self.noise else Agreement.APART

    @property
    def trusted(self) -> bool:
        """Whether backsolve can be trusted on this flow."""
        return self.agreement is Agreement.WITHIN_TOLERANCE

    def __str__(self) -> str:
        compared = (
            "its relative difference from the exact gradient of the steps taken is "
            f"{self.relative_difference:.1e} (Monte Carlo error of the gradient itself: {self.noise:.1e})"
        )
        return self.agreement.value.format(compared=compared)


def check_gradients(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, ""],
    n: int = 256,
    estimator: AbstractEstimator = PathGradient(),
    max_steps: int = 4096,
    tolerance: float = 1e-2,
) -> GradientCheck:
    """Compare the discrete and the backsolve adjoint on your own flow.

    Args:
        flow: Any flow with at least one `CNF`.
        target: An object with `log_prob(x)` for one point.
        key: Source of the draws, the same for both.
        n: Number of draws, made in four batches (of `n` each if the flow has `PerDraw` leaves).
        estimator: The estimator whose gradients are compared.
        max_steps: Largest number of steps that can be recorded of an adaptive solve.
        tolerance: Relative difference up to which backsolve counts as right.
    """
    instance("flow", flow, Flow, "a `Flow`")
    instance("estimator", estimator, AbstractEstimator, "an estimator, such as `PathGradient()`")
    key, n, tolerance = one_key(key), whole("n", n), positive("tolerance", tolerance)
    check_target(target, flow.shape)
    if not any(isinstance(transform, CNF) for transform in flow.transforms):
        raise ArgumentError(
            f"`check_gradients` compares adjoints of ODE solves; this {named('flow')} has no `CNF`."
        )
    discrete, noise = _gradient_and_noise(_with_adjoint(flow, Discrete(max_steps)), target, key, n, estimator)
    backsolve, _ = _gradient_and_noise(_with_adjoint(flow, Backsolve()), target, key, n, estimator)
    size, distance = float(np.linalg.norm(discrete)), float(np.linalg.norm(backsolve - discrete))
    if size == distance == 0:  # where q = p, both may be exactly zero
        difference = noise = 0.0
    else:
        difference, noise = (x / size if size != 0 else np.inf for x in (distance, noise))
    return GradientCheck(float(difference), float(noise), tolerance)


def _with_adjoint(flow: Flow, adjoint: AbstractAdjoint) -> Flow:
    return Flow(flow.base, [t.replace(adjoint=adjoint) if isinstance(t, CNF) else t for t in flow.transforms])


def _gradient_and_noise(flow, target, key, n, estimator) -> tuple[np.ndarray, float]:
    """Return the mean gradient of four batches, and the standard error of that mean."""
    batch = -(-n // 4) if number_of_draws(flow) is None else n

    @eqx.filter_jit
    def gradients(flow, target):
        def one(key):
            grad = eqx.filter_grad(reverse_kl)(flow, target, key=key, n=batch, estimator=estimator)
            return ravel_pytree(grad)[0]

        return jax.lax.map(one, jax.random.split(key, 4))

    quarters = np.asarray(gradients(flow, target), np.float64)
    spread = quarters.var(axis=0, ddof=1) / len(quarters)
    return quarters.mean(axis=0), float(np.sqrt(spread.sum()))
