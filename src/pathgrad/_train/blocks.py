"""Training steps that JAX can compile, many of them in one call."""

import time
from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Key, PyTree

from .._gradients.objectives import AbstractObjective
from .._words.memory import check_program
from .._words.tree import number_of_draws
from ..devices import mesh_for, replicated
from ..metrics import gradient_norm
from .method import AbstractMethod, AbstractRunner, Block
from .state import StepInfo, TrainState

_ORDER = 2**32 - 1  # folded into the training key; steps use the small numbers
_CHANGE = 2**32 - 1  # folded into the key of a step


class AbstractCompiledMethod(AbstractMethod):
    """A method whose step is a JAX function, which `runner` compiles in blocks.

    It must have the attributes `n`, `block` and `devices`, with the same meaning as in `FirstOrder`.
    """

    n: eqx.AbstractVar[int]
    block: eqx.AbstractVar[int]
    devices: eqx.AbstractVar[tuple[Any, ...] | None]

    @abstractmethod
    def step(
        self,
        state: TrainState,
        objective: AbstractObjective,
        *,
        key: Key[Array, ""],
        data: PyTree[Array] = None,
        mesh: Mesh | None = None,
    ) -> tuple[TrainState, StepInfo, PyTree]:
        """Take one step; return the new state, information about the step, and the gradient used.

        Args:
            state: The state before the step.
            objective: What is minimised.
            key: Fresh noise for this step.
            data: Entries of the objective's data, one for each draw, after `Data.changed`.
            mesh: The devices that share the draws.
        """

    def runner(self, objective, *, key):
        return CompiledRunner(self, objective, key)


class CompiledRunner(AbstractRunner):
    """Runs blocks of steps, compiled once for each batch size, whatever the number of steps."""

    def __init__(
        self, method: AbstractCompiledMethod, objective: AbstractObjective, key: Key[Array, ""]
    ) -> None:
        self.method, self.objective, self.key = method, objective, key
        # Draws are not split between devices if they have their own leaves, or if their loss is no mean.
        undivided = number_of_draws(objective) is not None or not objective.is_mean
        self.mesh = None if undivided else mesh_for(method.n, method.devices)
        # For each batch size: everything but arrays in the state, and the program compiled for that.
        self._compiled: dict[int, tuple[PyTree, Any]] = {}

    def length(self, step):
        n, block, data = self.method.n, self.method.block, self.objective.data
        if data is None:
            return block - step % block
        # A block ends with its epoch, and before a batch that is smaller than the others.
        position, full = step % data.steps_per_epoch(n), len(data) // n
        return min(block - position % block, full - position) if position < full else 1

    def _batch_size(self, step: int) -> int:
        n, data = self.method.n, self.objective.data
        if data is None or step % data.steps_per_epoch(n) < len(data) // n:
            return n
        return len(data) % n

    def prepare(self, state, length):
        """Compile for the batches of these steps, unless that is already done."""
        if number_of_draws(state.model) is not None:
            self.mesh = None
        size = self._batch_size(int(state.step))
        arrays, static = eqx.partition(state, eqx.is_array)
        cached = self._compiled.get(size)
        # A trainer may be used again with another model, which has another function inside.
        if cached is None or not bool(eqx.tree_equal(cached[0], static)):
            began = time.perf_counter()
            data = self._data(int(state.step), length)
            mesh = self.mesh if self.mesh is not None and size % self.mesh.size == 0 else None
            run = jax.jit(_block_of(self.method, self.objective, static, mesh), donate_argnums=0)
            lowered = run.lower(*self._arguments(arrays, data, length))
            compiled = lowered.compile()
            check_program(compiled, "a block of steps")
            self._compiled[size] = static, compiled
            self.compile_seconds += time.perf_counter() - began
        return state

    def run(self, state, length):
        first = int(state.step)
        data = self._data(first, length)
        arrays, static = eqx.partition(state, eqx.is_array)
        _, run = self._compiled[self._batch_size(first)]
        arrays, steps, snr = jax.block_until_ready(run(*self._arguments(arrays, data, length)))
        steps = jax.tree.map(lambda a: np.asarray(a)[:length], steps)
        numbers = {"gradient_snr": float(snr)} if np.isfinite(snr) else {}
        if self.objective.data is not None:
            epoch = self.objective.data.steps_per_epoch(self.method.n)
            numbers["epoch"] = (first + length) / epoch
        return Block(eqx.combine(arrays, static), steps, numbers)

    def _data(self, step: int, length: int) -> PyTree[np.ndarray]:
        """Return the data of `length` steps, padded to a full block."""
        data = self.objective.data
        if data is None:
            return None
        batches = data.batches(step, length, self.method.n, key=jr.fold_in(self.key, _ORDER))
        return jax.tree.map(lambda a: np.resize(a, (self.method.block, *a.shape[1:])), batches)

    def _arguments(self, arrays: PyTree, data: PyTree, length: int) -> tuple[Any, ...]:
        others = self.key, eqx.filter(self.objective, eqx.is_array), data
        return replicated((arrays, *others, np.asarray(length, np.int32)), self.mesh)


def _block_of(
    method: AbstractCompiledMethod, objective: AbstractObjective, static: Any, mesh: Mesh | None
) -> Any:
    """Return a function that takes a given number of steps, up to a full block.

    The number is not compiled in: the last steps of a run, of an epoch or before a validation go
    through exactly the same code as all others, so that nothing depends on where blocks end.
    """
    fixed = eqx.filter(objective, eqx.is_array, inverse=True)

    def run(arrays, key, objective_arrays, data, length):
        objective = eqx.combine(objective_arrays, fixed)

        def step(arrays, i):
            state = eqx.combine(arrays, static)
            step_key = jr.fold_in(key, state.step)
            rows = jax.tree.map(lambda a: a[i], data)
            if objective.data is not None:
                change_key = jr.fold_in(step_key, _CHANGE)
                rows = objective.data.changed(rows, key=change_key, progress=state.progress)
            state, info, gradient = method.step(state, objective, key=step_key, data=rows, mesh=mesh)
            return eqx.filter(state, eqx.is_array), info, gradient

        def body(i, carry):
            arrays, infos, gradients = carry
            arrays, info, gradient = step(arrays, i)
            infos = jax.tree.map(lambda all, one: all.at[i].set(one), infos, info)
            return arrays, infos, gradients.add(gradient, info.outcome == 0)

        _, info, gradient = jax.eval_shape(step, arrays, 0)
        infos = jax.tree.map(lambda s: jnp.zeros((method.block, *s.shape), s.dtype), info)
        carry = arrays, infos, BlockGradients.none(gradient)
        arrays, infos, gradients = lax.fori_loop(0, length, body, carry)
        return arrays, infos, gradients.snr()

    return run


class BlockGradients(NamedTuple):
    """Signal and noise of the gradients of a block's good steps (Welford's method). No gradient is stored."""

    steps: Array
    mean: PyTree
    scatter: Array  # sum of squared distances from the mean

    @classmethod
    def none(cls, like: PyTree) -> "BlockGradients":
        """Start without gradients; `like` is a tree of their shapes."""
        return cls(jnp.zeros(()), jax.tree.map(jnp.zeros_like, like), jnp.zeros(()))

    def add(self, gradient: PyTree, good: Bool[Array, ""]) -> "BlockGradients":
        """Add one more gradient, if its step was good."""
        steps = self.steps + good
        new = jax.tree.map(lambda g, m: jnp.where(good, g, m), gradient, self.mean)
        deviation = jax.tree.map(jnp.subtract, new, self.mean)
        mean = jax.tree.map(lambda m, d: m + d / jnp.maximum(steps, 1), self.mean, deviation)
        # Not the mean square minus the square of the mean, a difference of large numbers.
        more = jnp.square(gradient_norm(deviation)) * (steps - 1) / jnp.maximum(steps, 1)
        return BlockGradients(steps, mean, self.scatter + jnp.where(good, more, 0))

    def snr(self) -> Array:
        """Return their signal-to-noise ratio, as `metrics.gradient_snr`; not finite for fewer than two."""
        return gradient_norm(self.mean) / jnp.sqrt(self.scatter / (self.steps - 1))
