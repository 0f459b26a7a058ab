"""What an experiment builds from options: something to train, to evaluate, and to draw samples from."""

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
from .._train.validation import AbstractValidation
from .._words.arguments import whole
from .._words.errors import ArgumentError, named

# Progress callback: receives what is being done, how much of it is done, and how much there is in total.
Tell = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained and how: an untrained model, an objective, a method, and at most so many steps.

    `settle` makes the static parts of a model agree with its arrays, for models whose training changes both.
    `finish` makes the model to use of the trained one.
    """

    model: PyTree
    objective: AbstractObjective
    method: AbstractMethod
    steps: int
    validation: AbstractValidation | None = None
    settle: Callable[[PyTree], PyTree] | None = None
    finish: Callable[[PyTree], PyTree] | None = None

    def loaded(self, state: TrainState) -> TrainState:
        """Return a state as it was when a checkpoint, which holds arrays alone, was made of it."""
        return state if self.settle is None else state.with_models(self.settle, self.method.init)

    def trainer(self, *, key: Key[Array, ""]) -> Trainer:
        """Return the trainer for it."""
        return Trainer(self.objective, self.method, key=key, validation=self.validation)


class Trained(NamedTuple):
    """The result of a training: its last state, and the model to use (last, average, or best)."""

    model: PyTree
    state: TrainState


class Findings(NamedTuple):
    """Results of an evaluation so far: `numbers` for evaluation.json, and `arrays` for evaluation.npz."""

    numbers: dict[str, Any]
    arrays: Mapping[str, np.ndarray]


class AbstractProblem(abc.ABC):
    """Something that can be trained, and what can be done with the result."""

    @property
    @abc.abstractmethod
    def training(self) -> Training:
        """What is trained, and how. Data are loaded here, if needed."""

    def shell(self) -> Training:
        """Return a training of the same model, method and validation, to load a checkpoint into.

        Override it where `training` loads data that sampling does not need.
        """
        return self.training

    def concluded(self, options: Any, trained: Trained, *, key: Key[Array, ""]) -> Any:
        """Return the options with what is decided once training is over, such as how to `finish` the model.

        The run then has these options.
        """
        return options

    @abc.abstractmethod
    def evaluate(self, trained: Trained, how: Any, *, key: Key[Array, ""], tell: Tell) -> Iterator[Findings]:
        """Yield all results so far, again and again: later ones may take long.

        The options `how` are the experiment's `EvaluateOptions`, and `tell` receives the progress.
        """

    @abc.abstractmethod
    def sample(
        self, model: PyTree, *, key: Key[Array, ""], n: int, refine: int | None
    ) -> dict[str, np.ndarray]:
        """Draw from a trained model: return arrays with the `n` draws along their first axis.

        The solver takes `refine` times the steps of training; `None` means what suits the problem.
        """


def run_keys(seed: int) -> Key[Array, " 3"]:
    """Return the keys of a run: for the initial model, for training, and for everything after training."""
    return jr.split(jr.key(_checked(seed)), 3)


def evaluation_key(training_seed: int, seed: int) -> Key[Array, ""]:
    """Return a key for draws from a trained model, different from every key used in training."""
    return jr.fold_in(run_keys(training_seed)[2], _checked(seed))


def _checked(seed: int) -> int:
    seed = whole("seed", seed, None)
    if not 0 <= seed < 2**32:
        raise ArgumentError(f"{named('seed')} must be from 0 to {2**32 - 1}, got {seed}.")
    return seed
