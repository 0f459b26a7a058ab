"""One training step, as a pure function of a key and a state."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from .. import devices
from .._draw import SolveInfo
from .._estimators import AbstractEstimator, PathGradient
from .._flow import Flow
from .._objective import Estimate, estimate_reverse_kl
from .._target import Target
from .._tree import number_of_draws
from ..metrics import gradient_norm
from .gauss_newton import GaussNewton

# What made a step useless; several can be true at once.
SOLVE_FAILED, TARGET_NOT_FINITE, DENSITY_NOT_FINITE, GRADIENT_NOT_FINITE = 1, 2, 4, 8
UPDATE_NOT_FINITE = 16


class TrainState(eqx.Module):
    """Everything the next step needs.

    Attributes:
        flow: As trained so far.
        target: As trained so far; unchanged unless it is trained too.
        optimizer_state: Of the optimiser.
        step: Steps taken, skipped ones included.
        skipped: Steps that were skipped because something was not finite.
        skipped_in_row: Skipped steps since the last good one.
    """

    flow: Flow
    target: Any
    optimizer_state: PyTree
    step: Int[Array, ""]
    skipped: Int[Array, ""]
    skipped_in_row: Int[Array, ""]


class StepInfo(NamedTuple):
    """What the reader wants to know about one step.

    Attributes:
        loss: Mean of `log q - log p`; falls as the flow improves.
        log_weight: `log p - log q` of each draw.
        gradient_norm: Euclidean norm of the estimator's gradient, before the optimiser.
        evaluations: Field evaluations of the forward solve.
        cause: Zero for a good step, else a sum of the constants of this module.
        in_row: Skipped steps in a row, this one included.
    """

    loss: Float[Array, "..."]
    log_weight: Float[Array, "... batch"]
    gradient_norm: Float[Array, "..."]
    evaluations: Int[Array, "..."]
    cause: Int[Array, "..."]
    in_row: Int[Array, "..."]


def _trainable(flow: Any, target: Any, train_target: bool) -> tuple[PyTree, PyTree]:  # noqa: FBT001
    """Split into what the optimiser moves and the rest."""
    moving, fixed = eqx.partition((flow, target), eqx.is_inexact_array)
    if train_target:
        return moving, fixed
    return (moving[0], jax.tree.map(lambda _: None, target)), (fixed[0], target)


def trainable(state: TrainState, train_target: bool) -> PyTree:  # noqa: FBT001
    """Return what the optimiser moves."""
    return _trainable(state.flow, state.target, train_target)[0]


def init(
    flow: Flow,
    target: Target,
    optimizer: optax.GradientTransformation | GaussNewton,
    *,
    train_target: bool = False,
) -> TrainState:
    """Return the state before the first step."""
    # Weakly typed arrays would change type on the way through a checkpoint, and be compiled for twice.
    flow, target = jax.tree.map(
        lambda x: jnp.asarray(x, x.dtype) if eqx.is_inexact_array(x) else x, (flow, target)
    )
    parameters, _ = _trainable(flow, target, train_target)
    zero = jnp.zeros((), jnp.int32)
    return TrainState(flow, target, optimizer.init(parameters), zero, zero, zero)


def step(
    key: Key[Array, ""],
    state: TrainState,
    optimizer: optax.GradientTransformation | GaussNewton,
    *,
    n: int,
    estimator: AbstractEstimator = PathGradient(),
    train_target: bool = False,
    mesh: Mesh | None = None,
) -> tuple[TrainState, StepInfo]:
    """Take one step. If anything is not finite the parameters stay as they are, and the info says why.

    Args:
        key: Fresh noise for this step.
        state: From `init` or an earlier step.
        optimizer: The same as given to `init`; of Optax, since `GaussNewton` needs a `Trainer`.
        n: Number of draws.
        estimator: Whose gradient is followed.
        train_target: Whether the target's own array leaves (a decoder) are trained as well.
        mesh: The devices that share the draws, from `mesh_for`. Default: wherever the state is.
    """
    state, info, _ = step_and_gradient(
        key, state, optimizer, n=n, estimator=estimator, train_target=train_target, mesh=mesh
    )
    return state, info


def step_and_gradient(
    key: Key[Array, ""],
    state: TrainState,
    optimizer: optax.GradientTransformation | GaussNewton,
    *,
    n: int,
    estimator: AbstractEstimator,
    train_target: bool,
    mesh: Mesh | None,
) -> tuple[TrainState, StepInfo, PyTree]:
    """As `step`, and return the gradient that was followed."""
    if isinstance(optimizer, GaussNewton):
        raise TypeError(
            "`step` follows one gradient; a step of `GaussNewton` is more than that: use `fit` or `Trainer`."
        )
    if number_of_draws((state.flow, state.target)) is not None:
        mesh = None  # leaves that belong to single draws stay together
    parameters, fixed = _trainable(state.flow, state.target, train_target)
    arrays, static = eqx.partition(fixed, eqx.is_array)

    def part(whole, keys):
        """Return the estimate and the gradient, over the draws of all devices, from those of one."""
        parameters, arrays = whole

        def loss_of(parameters):
            flow, target = eqx.combine(parameters, arrays, static)
            found = estimate_reverse_kl(
                flow, target, key=keys, n=keys.shape[0], estimator=estimator
            )
            return found.loss, found

        (_, found), gradient = jax.value_and_grad(loss_of, has_aux=True)(parameters)
        return _of_all_devices(found), devices.average(gradient)

    keys = jax.random.split(key, n)
    estimate, gradient = devices.spread(part, mesh)((parameters, arrays), keys)
    norm = gradient_norm(gradient)
    updates, optimizer_state = optimizer.update(gradient, state.optimizer_state, parameters)
    cause = _cause(estimate, norm, gradient_norm(updates))
    good = cause == 0
    moved = eqx.apply_updates(parameters, updates)
    parameters, optimizer_state = _choose(
        good, (moved, optimizer_state), (parameters, state.optimizer_state)
    )
    flow, target = eqx.combine(parameters, fixed)
    in_row = jnp.where(good, 0, state.skipped_in_row + 1)
    state = TrainState(flow, target, optimizer_state, state.step + 1, state.skipped + ~good, in_row)
    solve = estimate.solve
    evaluations = jnp.zeros((), jnp.int32) if solve is None else solve.evaluations
    info = StepInfo(estimate.loss, estimate.log_weight, norm, evaluations, cause, in_row)
    return state, info, gradient


def _of_all_devices(estimate: Estimate) -> Estimate:
    """Return the estimate from the draws of all devices: three messages, with that of the gradient."""
    loss, log_weight = devices.average(estimate.loss), devices.gather(estimate.log_weight)
    solve = estimate.solve or SolveInfo(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
    numbers = (solve.evaluations, solve.outcome, ~estimate.log_prob_finite)
    most, failed, unfinite = devices.largest(jnp.stack([n.astype(jnp.int32) for n in numbers]))
    found = None if estimate.solve is None else SolveInfo(most, failed)
    return Estimate(loss, log_weight, unfinite == 0, found)


def _cause(estimate, norm: Array, update_norm: Array) -> Int[Array, ""]:
    solved: Bool[Array, ""] | bool = True if estimate.solve is None else estimate.solve.succeeded
    density_finite = jnp.all(jnp.isfinite(estimate.log_weight)) | ~estimate.log_prob_finite
    checks = (
        (solved, SOLVE_FAILED),
        (estimate.log_prob_finite, TARGET_NOT_FINITE),
        (density_finite, DENSITY_NOT_FINITE),
        (jnp.isfinite(norm), GRADIENT_NOT_FINITE),
        (jnp.isfinite(update_norm) | ~jnp.isfinite(norm), UPDATE_NOT_FINITE),
    )
    return sum(
        (jnp.where(fine, 0, code) for fine, code in checks), start=jnp.zeros((), jnp.int32)
    ).astype(jnp.int32)


def _choose(good: Array, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(good, a, b) if eqx.is_array(a) else a, new, old)
