"""What can be chosen about an autoencoder, and what others chose. No JAX here: help is made of it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pathgrad._words.errors import ArgumentError, named

from ..options import Estimator
from .data.sources import find

DatasetName = Literal["mnist", "omniglot", "omniglot-rebuilt", "caltech", "freyfaces"]


@dataclasses.dataclass(frozen=True)
class AmortisedFlowOptions:
    """The posterior: a normal, carried by continuous flows that the encoder adapts to each image."""

    cnfs: int = 2
    """Continuous flows, one after the other."""
    width: int = 512
    """Units in each hidden layer of a field."""
    depth: int = 2
    """Hidden layers of a field."""
    rank: int = 20
    """Rank of the update of each layer by the encoder."""
    activation: Literal["softplus", "tanh"] = "softplus"
    """Between the layers of a field."""
    end_time: float = 0.5
    """Each field is followed from time 0 to this."""
    solver: Literal["dopri5", "tsit5", "rk4"] = "dopri5"
    """Adaptive steps with one length for the whole batch, or fixed ones."""
    tolerance: float = 1e-5
    """Relative and absolute tolerance of adaptive steps."""
    solver_steps: int = 4
    """Number of fixed steps (rk4)."""
    divergence: Literal["hutchinson", "closed", "exact"] = "hutchinson"
    """In training: a noisy estimate, its exact value in closed form (one or two hidden layers), or exactly
    by automatic differentiation. Evaluation is always exact."""
    noise: Literal["gaussian", "rademacher"] = "gaussian"
    """Of the Hutchinson estimate; rademacher (signs) varies less."""
    probes: int = 1
    """Noise vectors of the Hutchinson estimate."""
    adjoint: Literal["discrete", "backsolve"] = "discrete"
    """How gradients go back: through each step taken, or by solving again (as the authors did)."""


@dataclasses.dataclass(frozen=True)
class AutoencoderTrainOptions:
    """The training."""

    estimator: Estimator = "path"
    """Gradient of log q: along the path, in total, or by a second, frozen copy of the flow."""
    optimizer: Literal["adamax", "adam"] = "adamax"
    """adamax is what the authors' code uses, adam what their text says."""
    learning_rate: float | None = None
    """By default 0.0005 for adamax and 0.001 for adam; the small preset has 0.002 for both."""
    batch: int = 100
    """Images per step; the last batch of an epoch may be smaller."""
    epochs: int = 5000
    """Epochs at most."""
    warmup_epochs: int = 100
    """Over these the weight of the KL term grows to one."""
    patience: int = 35
    """Stop when the validation has not improved for more epochs than this, counted from the end of the
    warm-up; the best epoch is what evaluation looks at."""
    average: float | None = None
    """Decay of a moving average of the parameters, such as 0.999. The average is then what is validated and
    evaluated."""
    max_seconds: float | None = None
    """Stop after this much training time (compiling, validation and evaluation not counted)."""
    seed: int = 0
    """Decides all random numbers but the split of the data."""
    block: int = 10
    """Steps to a row of metrics, and until Ctrl-C is heard; an epoch always ends one."""

    @property
    def rate(self) -> float:
        """The learning rate given, or the optimiser's own."""
        own = {"adamax": 5e-4, "adam": 1e-3}[self.optimizer]
        return own if self.learning_rate is None else self.learning_rate


@dataclasses.dataclass(frozen=True)
class AutoencoderOptions:
    """Train a variational autoencoder on images; its posterior is a normal carried by continuous flows.

    The encoder gives every image a low-rank update of the flow's layers. Loss and validation are in nats per
    image. `pathgrad evaluate` then gives ELBO and likelihood of the test images, with exact divergences.
    """

    dataset: DatasetName = "mnist"
    """Images: `pathgrad data list` says which there are. freyfaces has 256 grey levels, the others are
    black and white."""
    data: str | None = None
    """Folder of the images; by default that of the environment variable PATHGRAD_DATA, else one in the
    user's cache, where `pathgrad data download` puts them."""
    split_seed: int = 123
    """Decides which images of freyfaces (and omniglot) are for training, validation and test."""
    latent: int = 64
    """Size of the latent vector."""
    channels: int = 32
    """Of the outermost convolutions; inner ones have up to eight times as many."""
    flow: AmortisedFlowOptions = AmortisedFlowOptions()
    training: AutoencoderTrainOptions = AutoencoderTrainOptions()

    @property
    def name(self) -> str:
        """For the run directory."""
        return f"vae-{self.dataset}-{self.training.estimator}-s{self.training.seed}"


@dataclasses.dataclass(frozen=True)
class AutoencoderEvaluateOptions:
    """The evaluation."""

    samples: int | None = None
    """Draws for each image of the likelihood, by default 5000 (2000 for caltech)."""
    nll_images: int = 0
    """How many test images, chosen at random and the same for all runs, to estimate the likelihood of by
    importance sampling. This takes long; Ctrl-C ends it, and keeps what there is. The ELBO is always of all
    test images."""
    data: Path | None = None
    """Folder of the images, if not where they were in training."""
    refine: int | None = None
    """Times the solver steps (or the accuracy) of training to take, by default 1."""


@dataclasses.dataclass(frozen=True)
class Known:
    """What is usual for one data set; settings and results are of Vaitl et al. 2022, appendix and table 2.

    Attributes:
        title: For people.
        flow: The posterior.
        patience: Epochs.
        short_warmup: Ours: epochs of some five hundred steps, in which the KL term weighs less than one.
        samples: Draws behind each likelihood.
        results: Negative ELBO of the test images by estimator, in the unit of the data set.
    """

    title: str
    flow: AmortisedFlowOptions = AmortisedFlowOptions()
    patience: int = 35
    short_warmup: int = 2
    samples: int = 5000
    results: Mapping[str, float] = dataclasses.field(default_factory=dict)


_DIGITS = AmortisedFlowOptions(width=1024, rank=64)
_SHAPES = AmortisedFlowOptions(width=2048, activation="tanh")
_LETTERS = Known(
    "Omniglot", AmortisedFlowOptions(cnfs=5, rank=64), 35, 3, results={"path": 96.61, "total": 98.33}
)
_KNOWN = {
    "mnist": Known("MNIST", _DIGITS, results={"path": 82.09, "total": 82.82}),
    "omniglot": _LETTERS,
    # Other images: the paper's results say nothing about them.
    "omniglot-rebuilt": dataclasses.replace(_LETTERS, title="Omniglot, rebuilt", results={}),
    "caltech": Known("Caltech 101 silhouettes", _SHAPES, 100, 12, 2000, {"path": 101.93, "total": 104.03}),
    "freyfaces": Known("Frey Faces", patience=100, short_warmup=30, results={"path": 4.35, "total": 4.39}),
}


def known_of(dataset: str) -> Known:
    """Return what is known of a data set: of one that only a later version knows, its name."""
    return _KNOWN.get(dataset) or Known(dataset)


def preset(name: str, dataset: str) -> AutoencoderOptions:
    """Return the options of a preset: the published ones of a data set, or small ones for a CPU."""
    find(dataset)
    known = known_of(dataset)
    training = AutoencoderTrainOptions(patience=known.patience)
    options = AutoencoderOptions(dataset, flow=known.flow, training=training)  # pyright: ignore[reportArgumentType]
    if name == "paper":
        return options
    training = dataclasses.replace(
        training, learning_rate=2e-3, epochs=200, warmup_epochs=known.short_warmup, patience=20
    )
    flow = dataclasses.replace(known.flow, cnfs=2, width=128, rank=8)
    return dataclasses.replace(options, latent=32, channels=8, flow=flow, training=training)


def check_least(least: int, **values: int | None) -> None:
    """Raise unless all values are at least this; one that is `None` was not given."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ArgumentError(f"{named(name)} must be at least {least}, got {value}.")
