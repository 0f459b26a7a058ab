"""What an experiment builds out of options: something to train, to evaluate, and to draw from."""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PyTree

from .._gradients.objectives import AbstractObjective
from .._train.method import AbstractMethod
from .._train.state import TrainState
from .._train.trainer import Trainer
from .._train.validation import Validation
from .._words.errors import ArgumentError, named

# Hears what is being done, how much of it is done, and how much there is in all.
Tell = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained, and how: an untrained model, for so many steps at most.

    `settle` makes what is not an array in a model agree with its arrays, where training changes both.
    """

    model: PyTree
    objective: AbstractObjective
    method: AbstractMethod
    steps: int
    validation: Validation | None = None
    settle: Callable[[PyTree], PyTree] | None = None

    def loaded(self, state: TrainState) -> TrainState:
        """Return a state as it was when a checkpoint, which holds arrays alone, was made of it."""
        return state if self.settle is None else state.with_models(self.settle)

    def trainer(self, *, key: Key[Array, ""]) -> Trainer:
        """Return what trains it."""
        return Trainer(self.objective, self.method, key=key, validation=self.validation)


class Trained(NamedTuple):
    """What a training has come to: its last state, and the model to use (last, average, or best)."""

    model: PyTree
    state: TrainState


class Findings(NamedTuple):
    """What an evaluation has found so far: for evaluation.json what JSON can hold, and for evaluation.npz."""

    numbers: dict[str, Any]
    arrays: Mapping[str, np.ndarray]


class AbstractProblem(abc.ABC):
    """Something that can be trained, and what can be done with the result."""

    @property
    @abc.abstractmethod
    def training(self) -> Training:
        """What is trained, and how. Data are loaded here, if any are needed."""

    def shell(self) -> Training:
        """Return a training of the same model, method and validation, to read a checkpoint into.

        Override it where `training` loads data that drawing can do without.
        """
        return self.training

    @abc.abstractmethod
    def evaluate(self, trained: Trained, how: Any, *, key: Key[Array, ""], tell: Tell) -> Iterator[Findings]:
        """Yield what is found out, everything so far each time: what comes later may take long.

        The options `how` are of the experiment's `EvaluateOptions`, and `tell` hears how far things are.
        """

    @abc.abstractmethod
    def sample(
        self, model: PyTree, *, key: Key[Array, ""], n: int, refine: int | None
    ) -> dict[str, np.ndarray]:
        """Draw from a trained model: arrays with the `n` draws along their first axis.

        The solver takes `refine` times the steps of training; `None` stands for what suits the problem.
        """


def run_keys(seed: int) -> Key[Array, " 3"]:
    """Return the keys of a run: for the initial model, for training, and for what comes after."""
    return jr.split(jr.key(_checked(seed)), 3)


def evaluation_key(training_seed: int, seed: int) -> Key[Array, ""]:
    """Return a key for draws of a trained model, unlike any that it was trained with."""
    return jr.fold_in(run_keys(training_seed)[2], _checked(seed))


def _checked(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise ArgumentError(f"{named('seed')} must be from 0 to {2**32 - 1}, got {seed}.")
    return seed
