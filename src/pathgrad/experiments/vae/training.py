"""Epochs: shuffled batches, validation, and when to stop."""

import math
import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

import pathgrad as pg

from .data.datasets import Dataset
from .elbo import terms
from .model import Autoencoder
from .options import AutoencoderTrainOptions
from .step import Moving, StepNumbers, begin, take_step

Row = dict[str, float | int]

_MAX_SKIPPED = 10


class AutoencoderState(eqx.Module):
    """Everything that a training needs to go on.

    Attributes:
        moving: What every step changes.
        best: The model with the best validation so far.
        best_validation: Its negative ELBO; infinite before the first.
        best_epoch: After how many epochs that was.
        waiting: Epochs without an improvement, counted from the end of the warm-up.
    """

    moving: Moving
    best: Autoencoder
    best_validation: Float[Array, ""]
    best_epoch: Int[Array, ""]
    waiting: Int[Array, ""]

    @property
    def step(self) -> Int[Array, ""]:
        """Steps taken."""
        return self.moving.step


def initial_state(model: Autoencoder, optimizer: optax.GradientTransformation) -> AutoencoderState:
    """Return the state before the first step."""
    return AutoencoderState(
        begin(_copied(model), optimizer),
        model,
        jnp.asarray(jnp.inf, jnp.float32),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), jnp.int32),
    )


def _copied(model: Autoencoder) -> Autoencoder:
    """Copy the arrays: those of the model at work are overwritten by the next step."""
    return jax.tree.map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, model)


class AutoencoderTrainer:
    """Runs blocks of steps, validates after every epoch, and keeps the time.

    Attributes:
        seconds: Training time so far, without compiling and validation.
        compile_seconds: Time spent compiling.
        why_stopped: Why `blocks` came to its end, where that was not for lack of time.
    """

    def __init__(
        self,
        key: Any,
        dataset: Dataset,
        options: AutoencoderTrainOptions,
        optimizer: optax.GradientTransformation,
        estimator: pg.AbstractEstimator,
        seconds: float = 0.0,
    ) -> None:
        self._step_key, self._order_key, self._validation_key = jr.split(key, 3)
        self._dataset, self._options = dataset, options
        self._optimizer, self._estimator = optimizer, estimator
        self._steps_an_epoch = steps_an_epoch(dataset, options)
        self._mesh = pg.devices.mesh_for(options.batch)
        self._compiled: dict[Any, Any] = {}
        self.seconds = seconds
        self.compile_seconds = 0.0
        self.why_stopped: str | None = None
        self._last_validation = math.nan

    def blocks(
        self, state: AutoencoderState, steps: int, max_seconds: float | None = None
    ) -> Iterator[tuple[AutoencoderState, Row]]:
        """Train until `steps` steps have been taken, time is used up, or patience is at its end."""
        while (done := int(state.step)) < steps:
            over = max_seconds is not None and self.seconds >= max_seconds
            if pg.devices.any_process(over) if pg.devices.several_processes(self._mesh) else over:
                return
            if int(state.waiting) > self._options.patience:
                self.why_stopped = (
                    f"no better validation for {state.waiting} epochs (--patience prolongs it)."
                )
                return
            epoch, first = divmod(done, self._steps_an_epoch)
            last = min(first + self._options.block, self._steps_an_epoch, first + steps - done)
            moving, numbers = self._run(state.moving, epoch, range(first, last))
            state = eqx.tree_at(lambda s: s.moving, state, moving)
            row = self._row(state, numbers, epoch)
            if last == self._steps_an_epoch:
                state = self._validated(state, epoch + 1)
                row["validation"] = self._last_validation
                row["best_validation"] = float(state.best_validation)
                row["waiting"] = int(state.waiting)
            yield state, row
            self._stop_if_diverged(state, numbers)
        self.why_stopped = "all its epochs are done (--epochs prolongs it)."

    def _run(
        self, moving: Moving, epoch: int, positions: range
    ) -> tuple[Moving, list[StepNumbers]]:
        """Take the steps at these positions of an epoch."""
        order = self._order(epoch)
        beta = jnp.asarray(self.beta(epoch), jnp.float32)
        found = []
        for position in positions:
            begin_at = position * self._options.batch
            chosen = order[begin_at : begin_at + self._options.batch]
            images = self._dataset.train[chosen]
            # The noise of a step depends on its number alone, so that a resumed run repeats it.
            key = jr.fold_in(self._step_key, epoch * self._steps_an_epoch + position)
            arrays, static = eqx.partition(moving, eqx.is_array)
            given = pg.devices.replicated((arrays, images, key, beta), self._mesh)
            run = self._compile(len(chosen), static, given)
            began = time.perf_counter()
            arrays, numbers = jax.block_until_ready(run(*given))
            self.seconds += time.perf_counter() - began
            moving = eqx.combine(arrays, static)
            found.append(jax.tree.map(np.asarray, numbers))
        return moving, found

    def _take_step(self, static: Any, mesh: Any) -> Any:
        def run(arrays, images, key, beta):
            moving = eqx.combine(arrays, static)
            moving, numbers = take_step(
                moving, images, key, beta, self._optimizer, self._estimator, mesh
            )
            return eqx.filter(moving, eqx.is_array), numbers

        # Parameters and moments are by far the largest arrays: overwrite them.
        return jax.jit(run, donate_argnums=0)

    def _compile(self, batch: int, static: Any, given: Any) -> Any:
        """Compile a step for so many images. The last ones of an epoch, if odd, are not shared."""
        if batch not in self._compiled:
            began = time.perf_counter()
            mesh = self._mesh if self._mesh and batch % self._mesh.size == 0 else None
            self._compiled[batch] = self._take_step(static, mesh).lower(*given).compile()
            self.compile_seconds += time.perf_counter() - began
        return self._compiled[batch]

    def _order(self, epoch: int) -> np.ndarray:
        """Return the order in which an epoch sees the images."""
        key = jr.fold_in(self._order_key, epoch)
        return np.asarray(jr.permutation(key, len(self._dataset.train)))

    @property
    def devices(self) -> int:
        """How many devices share a batch."""
        return 1 if self._mesh is None else self._mesh.size

    def beta(self, epoch: int) -> float:
        """Return the weight of the KL term in an epoch, counted from zero."""
        return min((epoch + 1) / max(self._options.warmup_epochs, 1), 1.0)

    def _row(self, state: AutoencoderState, numbers: list[StepNumbers], epoch: int) -> Row:
        """Summarise a block. Numbers are over its good steps; the others are counted."""
        done = int(state.step)
        row: Row = {
            "step": done,
            "epoch": done / self._steps_an_epoch,
            "seconds": self.seconds,
            "beta": self.beta(epoch),
        }
        good = [n for n in numbers if n.good]
        if good:
            names = ("loss", "reconstruction", "kl", "evaluations", "evaluations_backward")
            row |= {name: float(np.mean([getattr(n, name) for n in good])) for name in names}
            squares = [float(n.gradient_norm) ** 2 for n in good]
            row["gradient_norm"] = float(np.mean(squares) ** 0.5)
        row["skipped"] = int(state.moving.skipped)
        return row

    def _validated(self, state: AutoencoderState, epochs: int) -> AutoencoderState:
        """Validate after this many epochs, and keep the model if it is the best so far."""
        key = jr.fold_in(self._validation_key, epochs)
        model = state.moving.model
        value = validate(model, self._dataset.validation, self._options.batch, key, self._mesh)
        value = float(
            np.float32(value)
        )  # as the best one is kept, so that the same again is no better
        self._last_validation = value
        if not np.isfinite(value):
            raise pg.TrainingDiverged(
                f"Training stopped: the validation after epoch {epochs} is {value}. A lower --learning-rate "
                "in a new run may help. The parameters are the last ones.",
                state,
            )
        if value < float(state.best_validation):
            best, waiting = (_copied(state.moving.model), value, epochs), 0
        else:
            best = (state.best, state.best_validation, state.best_epoch)
            waiting = int(state.waiting) + (epochs >= self._options.warmup_epochs)
        return AutoencoderState(
            state.moving,
            best[0],
            jnp.asarray(best[1], jnp.float32),
            jnp.asarray(best[2], jnp.int32),
            jnp.asarray(waiting, jnp.int32),
        )

    def _stop_if_diverged(self, state: AutoencoderState, numbers: list[StepNumbers]) -> None:
        if int(state.moving.skipped_in_row) < _MAX_SKIPPED:
            return
        cause = (
            "the loss or its gradient was not finite (a lower --learning-rate may help; with --adjoint "
            "backsolve, the way back may have failed)"
            if numbers[-1].solved
            else "an ODE solve failed (the field may have grown stiff: lower the learning rate, or use "
            "--solver rk4)"
        )
        raise pg.TrainingDiverged(
            f"Training stopped: the last {int(state.moving.skipped_in_row)} steps were not finite. Likely "
            f"cause: {cause}. The parameters are those of the last good step.",
            state,
        )


def steps_an_epoch(dataset: Dataset, options: AutoencoderTrainOptions) -> int:
    """Return how many batches the training images make, the last smaller one included."""
    return -(-len(dataset.train) // options.batch)


def validate(
    model: Autoencoder, images: np.ndarray, batch: int, key: Any, mesh: Mesh | None = None
) -> float:
    """Return the mean negative ELBO of the images: one draw each, divergence as in training."""
    total = 0.0
    model = pg.devices.replicated(model, mesh)
    for i, part in enumerate(padded_batches(images, batch)):
        given = pg.devices.replicated((jnp.asarray(part), jr.fold_in(key, i)), mesh)
        each = _negative_elbos(model, *given, mesh)
        total += float(np.sum(np.asarray(each, np.float64)[: len(images) - i * batch]))
    return total / len(images)


@eqx.filter_jit
def _negative_elbos(
    model: Autoencoder, images: Array, key: Any, mesh: Mesh | None
) -> Float[Array, " batch"]:
    arrays, static = eqx.partition(model, eqx.is_array)

    def part(arrays, images, keys):
        model = eqx.combine(arrays, static)
        found = terms(model, images, key=keys, estimator=pg.TotalGradient())
        return found.reconstruction + found.kl

    keys = jr.split(key, images.shape[0])
    return pg.devices.for_each_draw(part, mesh)(arrays, images, keys)


def padded_batches(images: np.ndarray, batch: int) -> Iterator[np.ndarray]:
    """Yield batches of one size, the last filled up with images from the front: compile once."""
    for begin_at in range(0, len(images), batch):
        part = images[begin_at : begin_at + batch]
        yield np.concatenate([part, np.resize(images, (batch - len(part), *images.shape[1:]))])
