"""Many steps: compiled blocks, one row of metrics for each, and the call that does it all."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Key

from .. import metrics
from .._errors import UserError
from .._estimators import AbstractEstimator, PathGradient
from .._flow import Flow
from .._target import Target
from ..devices import any_process, mesh_for, on_one_device, replicated, several_processes
from . import step as one
from .block_gradients import BlockGradients
from .gauss_newton import GaussNewton
from .row import Row as TypedRow
from .step import StepInfo, TrainState

Row = dict[str, float | int]

_CAUSES = {
    one.SOLVE_FAILED: "an ODE solve failed (too many steps, or the state became infinite: the field may "
    "have grown stiff; lower the learning rate, or use `FixedStep`)",
    one.TARGET_NOT_FINITE: "the target's log density was NaN or infinite at a draw (is it finite "
    "everywhere the flow can go?)",
    one.DENSITY_NOT_FINITE: "the flow's own log density was not finite (the learning rate may be too high)",
    one.GRADIENT_NOT_FINITE: "the gradient was not finite (does the target have a gradient everywhere? "
    "`jnp.where` around an undefined branch still differentiates it)",
    one.UPDATE_NOT_FINITE: "the optimiser made a finite gradient into an update that is not (check its "
    "learning rate)",
}


class TrainingDiverged(UserError):
    """Too many steps in a row were not finite. `state` is the last good one."""

    def __init__(self, message: str, state: Any) -> None:
        super().__init__(message)
        self.state = state


class Settings(NamedTuple):
    """How to train, apart from what.

    Attributes:
        optimizer: Any Optax optimiser, or `GaussNewton`.
        estimator: Whose gradient is followed. `GaussNewton` has its own.
        n: Draws per step. `GaussNewton` takes as many as it needs.
        block: Steps in one compiled block, and per row of metrics. One with `GaussNewton`.
        train_target: Whether the target's array leaves are trained as well.
        max_failures: Skipped steps in a row after which training stops.
        devices: That share the draws. Default: all there are, of all processes; of those as many as
            `n` can be divided by. `GaussNewton` uses one.
    """

    optimizer: optax.GradientTransformation | GaussNewton
    estimator: AbstractEstimator = PathGradient()
    n: int = 256
    block: int = 50
    train_target: bool = False
    max_failures: int = 10
    devices: Sequence[Any] | None = None


class Fit(NamedTuple):
    """A finished training.

    Attributes:
        flow: The trained flow.
        target: The target, trained too if that was asked for.
        history: One row of metrics for each block of steps.
        state: To continue from.
        seconds: Training time, without compiling.
        compile_seconds: Time spent compiling.
    """

    flow: Flow
    target: Any
    history: list[Row]
    state: TrainState
    seconds: float
    compile_seconds: float


def _run_block(
    key: Key[Array, ""], state: TrainState, settings: Settings, mesh: Mesh | None, length: int
):
    arrays, static = eqx.partition(state, eqx.is_array)
    optimizer: Any = settings.optimizer

    def body(carry, _):
        arrays, gradients = carry
        state = eqx.combine(arrays, static)
        # The noise of a step depends on its number alone, so that a resumed run repeats it.
        step_key = jr.fold_in(key, state.step)
        state, info, gradient = one.step_and_gradient(
            step_key,
            state,
            optimizer,
            n=settings.n,
            estimator=settings.estimator,
            train_target=settings.train_target,
            mesh=mesh,
        )
        gradients = gradients.add(gradient, info.cause == 0)
        return (eqx.filter(state, eqx.is_array), gradients), info

    begin = (arrays, BlockGradients.none(one.trainable(state, settings.train_target)))
    (arrays, gradients), infos = jax.lax.scan(body, begin, length=length)
    return eqx.combine(arrays, static), infos, gradients.snr()


class FirstOrder:
    """Compiled blocks of steps of an Optax optimiser.

    Attributes:
        compile_seconds: Time spent compiling.
    """

    def __init__(self, key: Key[Array, ""], settings: Settings) -> None:
        self.key = key
        self.settings = settings
        self.block = settings.block
        self.mesh = mesh_for(settings.n, settings.devices)
        self.compile_seconds = 0.0
        self._compiled: dict[int, Any] = {}

    def prepare(self, state: TrainState, length: int) -> None:
        """Compile for this number of steps, if that has not happened."""
        if length not in self._compiled:
            began = time.perf_counter()
            run: Any = eqx.filter_jit(_run_block)
            lowered = run.lower(*self._arguments(state, length))
            self._compiled[length] = lowered.compile()
            self.compile_seconds += time.perf_counter() - began

    def run(self, state: TrainState, length: int) -> tuple[TrainState, StepInfo, Row]:
        """Take the steps."""
        run = self._compiled[length]
        state, infos, snr = jax.block_until_ready(run(*self._arguments(state, length)))
        more: Row = {} if not np.isfinite(snr) else {"gradient_snr": float(snr)}
        return state, jax.tree.map(np.asarray, infos), more

    def _arguments(self, state: TrainState, length: int) -> Any:
        key, state = replicated((self.key, state), self.mesh)
        return key, state, self.settings, self.mesh, length


class Trainer:
    """Runs blocks of steps and keeps the time.

    Iterating over `blocks` yields the state and a row of metrics after every block, so that a caller
    can save, print, or stop in between.

    Attributes:
        seconds: Training time so far: no compiling, nothing the caller does between blocks.
    """

    def __init__(self, key: Key[Array, ""], settings: Settings, seconds: float = 0.0) -> None:
        for name in ("n", "block", "max_failures"):
            if getattr(settings, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(settings, name)}.")
        self.settings = settings
        self.seconds = seconds
        self._method: Any
        if not isinstance(settings.optimizer, GaussNewton):
            self._method = FirstOrder(key, settings)
        else:
            from .second_order import SecondOrder

            if jax.process_count() > 1:
                raise UserError(
                    "Gauss-Newton runs in one process. Start it once, or train with Adam."
                )
            if settings.train_target:
                raise ValueError(
                    "`GaussNewton` trains the flow alone; with `train_target` use an Optax optimiser."
                )
            self._method = SecondOrder(key, settings.optimizer)

    @property
    def compile_seconds(self) -> float:
        """Time spent compiling."""
        return self._method.compile_seconds

    @property
    def devices(self) -> int:
        """How many devices share the draws."""
        return 1 if self._method.mesh is None else self._method.mesh.size

    def blocks(
        self, state: TrainState, steps: int, max_seconds: float | None = None
    ) -> Iterator[tuple[TrainState, Row]]:
        """Train until `steps` steps have been taken in all, or the time is used up."""
        while (done := int(state.step)) < steps:
            # Every process has its own clock; the first to be at the end ends it for all.
            over = max_seconds is not None and self.seconds >= max_seconds
            if any_process(over) if several_processes(self._method.mesh) else over:
                return
            length = min(self._method.block, steps - done)
            self._method.prepare(state, length)
            began = time.perf_counter()
            state, infos, more = self._method.run(state, length)
            self.seconds += time.perf_counter() - began
            yield state, _row(state, infos, self.seconds) | more
            _stop_if_diverged(state, infos, done, self.settings.max_failures)


def _row(state: TrainState, infos: StepInfo, seconds: float) -> Row:
    """Summarise a block. Numbers are over its good steps; the others are counted."""
    good = infos.cause == 0
    row: Row = {"step": int(state.step), "seconds": seconds}
    log_weight = jnp.asarray(infos.log_weight[good].ravel())
    if log_weight.size:
        row["loss"] = float(infos.loss[good].mean())
        with np.errstate(invalid="ignore"):  # a weight of zero makes the loss infinite
            row["loss_err"] = float(infos.log_weight[good].std() / log_weight.size**0.5)
        row["ess"] = float(metrics.ess(log_weight))
        row["log_z"] = float(metrics.log_z(log_weight).value)
        row["kl"] = float(metrics.reverse_kl(log_weight).value)
        row["gradient_norm"] = float(np.sqrt(np.mean(np.square(infos.gradient_norm[good]))))
        if not np.isnan(infos.evaluations).any():
            row["evaluations"] = float(infos.evaluations[good].mean())
    row["skipped"] = int(state.skipped)
    return row


def _stop_if_diverged(state: TrainState, infos: StepInfo, done: int, limit: int) -> None:
    if infos.in_row.max() < limit:
        return
    last = int(np.argmax(infos.in_row >= limit))
    first = done + last + 1 - int(infos.in_row[last])
    cause = int(infos.cause[last])
    reasons = "; ".join(text for bit, text in _CAUSES.items() if cause & bit)
    raise TrainingDiverged(
        f"Training stopped: {limit} steps in a row from step {first} on were not finite. Likely cause: "
        f"{reasons}. The parameters are those of the last good step.",
        state,
    )


def fit(
    flow: Flow,
    target: Target,
    *,
    key: Key[Array, ""],
    steps: int,
    n: int = 256,
    estimator: AbstractEstimator = PathGradient(),
    optimizer: optax.GradientTransformation | GaussNewton | None = None,
    train_target: bool = False,
    block: int = 50,
    max_seconds: float | None = None,
    max_failures: int = 10,
    state: TrainState | None = None,
    progress: bool = False,
    devices: Sequence[Any] | None = None,
) -> Fit:
    """Fit a flow to a target by minimising the reverse KL divergence.

    Args:
        flow: Where to begin.
        target: An object with `log_prob(x)` for one point, up to a constant.
        key: Source of all noise.
        steps: Number of steps in all.
        n: Draws per step (of an Optax optimiser).
        estimator: Whose gradient is followed (by an Optax optimiser).
        optimizer: Any Optax optimiser, or `GaussNewton()`. Default: `optax.adam(1e-3)`.
        train_target: Whether the target's own array leaves (a decoder) are trained as well.
        block: Steps in one compiled block, and per row of the history.
        max_seconds: Stop after this much training time (without compiling).
        max_failures: Steps in a row that may be not finite before `TrainingDiverged` is raised.
        state: Continue from the state of an earlier fit with the same arguments.
        progress: Whether to report progress on standard error.
        devices: That share the draws of a step. Default: all, as far as `n` can be divided by them.
    """
    from .progress import report

    settings = Settings(
        optax.adam(1e-3) if optimizer is None else optimizer,
        estimator,
        n,
        block,
        train_target,
        max_failures,
        devices,
    )
    trainer = Trainer(key, settings)
    if state is None:
        state = one.init(flow, target, settings.optimizer, train_target=train_target)
    history: list[Row] = []
    try:
        with report(steps, visible=progress, max_seconds=max_seconds) as tell:
            for state, row in trainer.blocks(state, steps, max_seconds):
                history.append(row)
                tell(TypedRow.of(row))
    except TrainingDiverged as failure:
        failure.state = on_one_device(failure.state)
        raise
    state = on_one_device(state)
    return Fit(state.flow, state.target, history, state, trainer.seconds, trainer.compile_seconds)
