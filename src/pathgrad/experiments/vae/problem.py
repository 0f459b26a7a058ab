"""From options to something that can be trained."""

import dataclasses
import math

import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key, UInt8

import pathgrad as pg

from ..problem import ESTIMATORS, Training, keys
from .data.datasets import Dataset, load
from .data.sources import data_folder
from .model import Autoencoder
from .options import AmortisedFlowOptions, AutoencoderOptions, AutoencoderTrainOptions


@dataclasses.dataclass(frozen=True)
class AutoencoderProblem:
    """A model to be trained on images.

    Attributes:
        training: Of the model, by its negative ELBO.
        dataset: The images.
        options: Of the whole.
    """

    training: Training
    dataset: Dataset
    options: AutoencoderOptions

    @property
    def steps_per_epoch(self) -> int:
        """How many batches the training images make, the last smaller one included."""
        data = self.training.objective.data
        assert data is not None
        return data.steps_per_epoch(self.options.training.batch)


@dataclasses.dataclass(frozen=True)
class WarmUp:
    """The weight of the KL term: it grows to one, a step with each epoch.

    Attributes:
        epochs: After how many it is one.
        steps_per_epoch: Training steps of one.
    """

    epochs: int
    steps_per_epoch: int

    def __call__(self, step: Int[Array, ""] | int) -> Float[Array, ""]:
        """Return the weight of a step, counted from zero."""
        epoch = jnp.asarray(step) // self.steps_per_epoch
        return jnp.minimum((epoch + 1) / max(self.epochs, 1), 1.0)


def draw_pixels(
    image: Float[Array, "height width"], *, key: Key[Array, ""]
) -> UInt8[Array, "height width"]:
    """Draw a grey image black and white."""
    return jr.bernoulli(key, image).astype(jnp.uint8)


def make_training(
    options: AutoencoderTrainOptions, model: Autoencoder, dataset: Dataset
) -> Training:
    """Return the training of a model on images that the options describe."""
    data = pg.Data(dataset.train, change=draw_pixels if dataset.binarise_each_batch else None)
    epoch = data.steps_per_epoch(options.batch)
    objective = pg.NegativeELBO(
        data, ESTIMATORS[options.estimator](), WarmUp(options.warmup_epochs, epoch)
    )
    optimizer = (
        optax.adam(options.rate)
        if options.optimizer == "adam"
        else optax.adamax(options.rate, eps=1e-7)
    )
    return Training(
        model,
        objective,
        pg.FirstOrder(optimizer, options.batch, block=options.block, average=options.average),
        options.epochs * epoch,
        pg.Validation(
            # No gradient is taken, and log q without its score is the cheapest.
            pg.NegativeELBO(pg.Data(dataset.validation), pg.TotalGradient()),
            every=epoch,
            n=options.batch,
            patience=options.patience,
            patient_until=options.warmup_epochs * epoch,
        ),
    )


def make_model(
    options: AutoencoderOptions, shape: tuple[int, int], levels: int, *, key: Key[Array, ""]
) -> Autoencoder:
    """Return the untrained model for images of this shape."""
    flow = options.flow
    if not 0 < abs(flow.end_time) < math.inf:
        raise pg.ArgumentError(
            f"{pg.named('end_time')} must be a number other than zero, got {flow.end_time}."
        )
    if flow.cnfs < 0 or options.channels < 1:
        raise pg.ArgumentError(
            f"{pg.named('cnfs')} must be at least 0 and {pg.named('channels')} at least 1, got {flow.cnfs} "
            f"and {options.channels}."
        )
    return Autoencoder(
        shape,
        key=key,
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
        raise pg.ArgumentError(
            f"{pg.named('divergence')} closed needs {pg.named('depth')} 1 or 2, got {flow.depth}; for a "
            f"deeper field use {pg.named('divergence')} exact or hutchinson."
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
    for name, least in (
        ("batch", 1),
        ("epochs", 1),
        ("block", 1),
        ("warmup_epochs", 0),
        ("patience", 0),
    ):
        value = getattr(training, name)
        if value < least:
            raise pg.ArgumentError(f"{pg.named(name)} must be at least {least}, got {value}.")
    for name, value in (("learning_rate", training.rate), ("max_seconds", training.max_seconds)):
        if value is not None and not 0 < value < math.inf:
            raise pg.ArgumentError(f"{pg.named(name)} must be a positive number, got {value}.")
    dataset = load(options.dataset, data_folder(options.data), options.split_seed)
    height, width = dataset.train.shape[1:]
    model_key, _, _ = keys(training.seed)
    model = make_model(options, (height, width), dataset.levels, key=model_key)
    return AutoencoderProblem(make_training(training, model, dataset), dataset, options)
