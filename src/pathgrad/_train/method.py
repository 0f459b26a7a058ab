"""The interface of all training methods."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import equinox as eqx
from jax.sharding import Mesh
from jaxtyping import Array, Key, PyTree

from .._gradients.objectives import AbstractObjective
from .state import StepInfo, TrainState


class Block(NamedTuple):
    """The result of a block of steps.

    Attributes:
        state: The state after the steps.
        steps: Information about each step, step axis first, as NumPy arrays.
        numbers: Further numbers of the method, for the block.
    """

    state: TrainState
    steps: StepInfo
    numbers: dict[str, float | int]


class AbstractRunner(ABC):
    """Takes the steps of one training run: holds method, objective and key, and what was compiled for them.

    Attributes:
        compile_seconds: Time spent compiling.
        mesh: The devices that share the draws; `None` for one.
    """

    compile_seconds: float = 0.0
    mesh: Mesh | None = None

    @abstractmethod
    def length(self, step: int) -> int:
        """Return the number of steps from this one to the next row of metrics."""

    @abstractmethod
    def prepare(self, state: TrainState, length: int) -> TrainState:
        """Compile what the next steps need. Return the state to take them from."""

    @abstractmethod
    def run(self, state: TrainState, length: int) -> Block:
        """Take the steps. Do not use the given state afterwards: its arrays may be overwritten in place.

        The noise of a step must depend only on the key and the step's number: a resumed run repeats it.
        """


class AbstractMethod(eqx.Module):
    """A way to train: an optimiser with all its settings."""

    @property
    def steps(self) -> int | None:
        """Number of steps that the method is made for; `None` if it has no end of its own."""
        return None

    @property
    def needs_horizon(self) -> bool:
        """Whether its steps depend on how long the training will be, as a decaying learning rate does."""
        return False

    @abstractmethod
    def init(self, model: PyTree) -> PyTree:
        """Return the method's memory before the first step."""

    @abstractmethod
    def runner(self, objective: AbstractObjective, *, key: Key[Array, ""]) -> AbstractRunner:
        """Return what takes the steps; raise an error if the method cannot minimise the objective."""

    @abstractmethod
    def result(self, state: TrainState) -> PyTree:
        """Return the trained model: the last one, or an average."""
