"""From options to something that can be trained."""

import dataclasses
import math
from typing import Any

import optax

import pathgrad as pg

from ..problem import ESTIMATORS, keys
from .data.datasets import Dataset, load
from .data.sources import data_folder
from .model import Autoencoder
from .options import AmortisedFlowOptions, AutoencoderOptions
from .training import AutoencoderState, AutoencoderTrainer, initial_state, steps_an_epoch


@dataclasses.dataclass(frozen=True)
class AutoencoderProblem:
    """A model, its images, and how to bring them together.

    Attributes:
        model: Untrained.
        dataset: The images.
        options: Of the whole.
        log_z: Unknown, as for other problems.
    """

    model: Autoencoder
    dataset: Dataset
    options: AutoencoderOptions
    log_z: None = None

    @property
    def steps(self) -> int:
        """Training steps at most."""
        training = self.options.training
        return training.epochs * steps_an_epoch(self.dataset, training)

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        training = self.options.training
        if training.optimizer == "adam":
            return optax.adam(training.rate)
        return optax.adamax(training.rate, eps=1e-7)

    def initial_state(self) -> AutoencoderState:
        """Return the state before the first step."""
        return initial_state(self.model, self._optimizer)

    def trainer(self, key: Any, seconds: float) -> AutoencoderTrainer:
        """Return what trains it, after so many seconds of training already."""
        training = self.options.training
        estimator = ESTIMATORS[training.estimator]()
        return AutoencoderTrainer(key, self.dataset, training, self._optimizer, estimator, seconds)


def make_model(
    options: AutoencoderOptions, shape: tuple[int, int], levels: int, key: Any
) -> Autoencoder:
    """Return the untrained model for images of this shape."""
    flow = options.flow
    if not 0 < abs(flow.end_time) < math.inf:
        raise ValueError(f"--end-time must be a number other than zero, got {flow.end_time}.")
    if flow.cnfs < 0 or options.channels < 1:
        raise ValueError(
            f"--cnfs must be at least 0 and --channels at least 1, got {flow.cnfs} and {options.channels}."
        )
    return Autoencoder(
        key,
        shape,
        levels=levels,
        channels=options.channels,
        latent=options.latent,
        cnfs=flow.cnfs,
        width=flow.width,
        depth=flow.depth,
        rank=flow.rank,
        activation=flow.activation,
        divergence=_divergence(flow),
        integrator=_integrator(flow),
        adjoint=pg.Discrete() if flow.adjoint == "discrete" else pg.Backsolve(),
        end_time=flow.end_time,
    )


def _divergence(flow: AmortisedFlowOptions) -> pg.AbstractDivergence:
    if flow.divergence == "closed" and flow.depth > 2:
        raise ValueError(
            f"--divergence closed needs --depth 1 or 2, got {flow.depth}; for a deeper field use "
            "--divergence exact or hutchinson."
        )
    if flow.divergence == "hutchinson":
        return pg.Hutchinson(flow.probes, flow.noise)
    return pg.ClosedForm() if flow.divergence == "closed" else pg.Exact()


def _integrator(flow: AmortisedFlowOptions) -> pg.AbstractIntegrator:
    if flow.solver == "rk4":
        return pg.FixedStep(flow.solver_steps)
    return pg.Adaptive(flow.tolerance, flow.tolerance, flow.solver)


def build(options: AutoencoderOptions) -> AutoencoderProblem:
    """Load the images and return the problem the options describe."""
    training = options.training
    for name in ("batch", "epochs", "block"):
        if getattr(training, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(training, name)}.")
    for name in ("warmup_epochs", "patience"):
        if getattr(training, name) < 0:
            raise ValueError(f"--{name} must be at least 0, got {getattr(training, name)}.")
    for name, value in (("learning-rate", training.rate), ("max-seconds", training.max_seconds)):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"--{name} must be a positive number, got {value}.")
    dataset = load(options.dataset, data_folder(options.data), options.split_seed)
    height, width = dataset.train.shape[1:]
    model_key, _, _ = keys(training.seed)
    return AutoencoderProblem(
        make_model(options, (height, width), dataset.levels, model_key), dataset, options
    )
