"""Steps that JAX can compile: many of them in one call, for methods of first order and their like."""

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
from .._words.tree import number_of_draws
from ..devices import mesh_for, replicated
from ..metrics import gradient_norm
from .method import AbstractMethod, AbstractRunner, Block
from .state import StepInfo, TrainState

_ORDER = 2**32 - 1  # folded into the key of a training; steps have the small numbers
_CHANGE = 2**32 - 1  # folded into the key of a step


class AbstractCompiledMethod(AbstractMethod):
    """A method whose step is a JAX function. `runner` compiles blocks of it; `step` is all there is to write.

    It must have the attributes `n`, `block` and `devices`, with the meaning that they have for `FirstOrder`.
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
        """Take one step; return the state, what there is to say, and the gradient that was followed.

        Args:
            state: Before the step.
            objective: What is minimised.
            key: Fresh noise for this step.
            data: Entries of the objective's data, one for each draw, as they are to be seen in this step.
            mesh: The devices that share the draws.
        """

    def runner(self, objective, *, key):
        return CompiledRunner(self, objective, key)


class CompiledRunner(AbstractRunner):
    """Blocks of steps, compiled once for each size of a batch, whatever their number."""

    def __init__(
        self, method: AbstractCompiledMethod, objective: AbstractObjective, key: Key[Array, ""]
    ) -> None:
        self.method, self.objective, self.key = method, objective, key
        # Leaves that belong to single draws stay together, and so do draws whose loss is no mean.
        alone = number_of_draws(objective) is not None or not objective.is_mean
        self.mesh = None if alone else mesh_for(method.n, method.devices)
        # For each size of a batch: what is not an array in the state, and the program compiled for that.
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
        """Compile for the batches of these steps, if that has not happened."""
        if number_of_draws(state.model) is not None:
            self.mesh = None
        size = self._batch_size(int(state.step))
        arrays, static = eqx.partition(state, eqx.is_array)
        kept = self._compiled.get(size)
        # A trainer may be given another model, with another function inside.
        if kept is None or not bool(eqx.tree_equal(kept[0], static)):
            began = time.perf_counter()
            data = self._data(int(state.step), length)
            mesh = self.mesh if self.mesh is not None and size % self.mesh.size == 0 else None
            run = jax.jit(_block_of(self.method, self.objective, static, mesh), donate_argnums=0)
            lowered = run.lower(*self._arguments(arrays, data, length))
            self._compiled[size] = static, lowered.compile()
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
        """Return the data of some steps, filled up to those of a whole block."""
        data = self.objective.data
        if data is None:
            return None
        own = data.batches(step, length, self.method.n, key=jr.fold_in(self.key, _ORDER))
        return jax.tree.map(lambda a: np.resize(a, (self.method.block, *a.shape[1:])), own)

    def _arguments(self, arrays: PyTree, data: PyTree, length: int) -> tuple[Any, ...]:
        others = self.key, eqx.filter(self.objective, eqx.is_array), data
        return replicated((arrays, *others, np.asarray(length, np.int32)), self.mesh)


def _block_of(
    method: AbstractCompiledMethod, objective: AbstractObjective, static: Any, mesh: Mesh | None
) -> Any:
    """Return a function that takes up to a block of steps, as many as it is told.

    The number is not compiled in: the last steps of a training, of an epoch or before a validation run
    through the very same code as all others, so that nothing depends on where blocks end.
    """
    fixed = eqx.filter(objective, eqx.is_array, inverse=True)

    def run(arrays, key, objective_arrays, data, length):
        objective = eqx.combine(objective_arrays, fixed)

        def step(arrays, i):
            state = eqx.combine(arrays, static)
            step_key = jr.fold_in(key, state.step)
            own = jax.tree.map(lambda a: a[i], data)
            if objective.data is not None:
                change_key = jr.fold_in(step_key, _CHANGE)
                own = objective.data.changed(own, key=change_key, progress=state.progress)
            state, info, gradient = method.step(state, objective, key=step_key, data=own, mesh=mesh)
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
    """Signal and noise of the gradients of a block's good steps (Welford's method). None of them is kept."""

    steps: Array
    mean: PyTree
    scatter: Array  # sum of squared distances from the mean

    @classmethod
    def none(cls, like: PyTree) -> "BlockGradients":
        """Begin, with the tree of parameters that the gradients are of."""
        return cls(jnp.zeros(()), jax.tree.map(jnp.zeros_like, like), jnp.zeros(()))

    def add(self, gradient: PyTree, good: Bool[Array, ""]) -> "BlockGradients":
        """Take one more into account, if its step was good."""
        steps = self.steps + good
        new = jax.tree.map(lambda g, m: jnp.where(good, g, m), gradient, self.mean)
        away = jax.tree.map(jnp.subtract, new, self.mean)
        mean = jax.tree.map(lambda m, a: m + a / jnp.maximum(steps, 1), self.mean, away)
        # No difference of large numbers, as the mean square less the square of the mean would be.
        more = jnp.square(gradient_norm(away)) * (steps - 1) / jnp.maximum(steps, 1)
        return BlockGradients(steps, mean, self.scatter + jnp.where(good, more, 0))

    def snr(self) -> Array:
        """Return what `metrics.gradient_snr` makes of them; not finite for fewer than two."""
        return gradient_norm(self.mean) / jnp.sqrt(self.scatter / (self.steps - 1))
