"""How a state moves: what every method of training offers."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import equinox as eqx
from jax.sharding import Mesh
from jaxtyping import Array, Key, PyTree

from .._gradients.objectives import AbstractObjective
from .state import StepInfo, TrainState


class Block(NamedTuple):
    """What some steps came to.

    Attributes:
        state: After them.
        steps: What each of them says, step axis first, as NumPy arrays.
        numbers: What the method has to say about the block as a whole.
    """

    state: TrainState
    steps: StepInfo
    numbers: dict[str, float | int]


class AbstractRunner(ABC):
    """Takes the steps of one training: a method, an objective and a key, with what was compiled for them.

    Attributes:
        compile_seconds: Time spent compiling.
        mesh: The devices that share the draws; `None` for one.
    """

    compile_seconds: float = 0.0
    mesh: Mesh | None = None

    @abstractmethod
    def length(self, step: int) -> int:
        """Return after how many steps from this one a row of metrics is due."""

    @abstractmethod
    def prepare(self, state: TrainState, length: int) -> TrainState:
        """Get ready for some steps: compile what they need. Return the state to take them from."""

    @abstractmethod
    def run(self, state: TrainState, length: int) -> Block:
        """Take the steps. The arrays of the state given are lost: they may be overwritten in place.

        The noise of a step may depend on the key and on its number alone, so that a resumed run repeats it.
        """


class AbstractMethod(eqx.Module):
    """How a state moves, as a value: an optimiser with all its settings."""

    @property
    def steps(self) -> int | None:
        """How many steps it is made for; `None` where it can go on for as long as asked."""
        return None

    @property
    def needs_horizon(self) -> bool:
        """Whether its steps depend on how long the training will be, as a decaying learning rate does."""
        return False

    @abstractmethod
    def init(self, model: PyTree) -> PyTree:
        """Return the memory before the first step."""

    @abstractmethod
    def runner(self, objective: AbstractObjective, *, key: Key[Array, ""]) -> AbstractRunner:
        """Return what takes the steps; refuse an objective that the method cannot serve."""

    @abstractmethod
    def result(self, state: TrainState) -> PyTree:
        """Return the model that the training has come to: the last one, or an average."""
