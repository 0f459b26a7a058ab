"""Options of an autoencoder, and the published ones. No JAX here: the command line prints them as help."""

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
    """The posterior: a normal distribution, transformed by continuous flows adapted to each image."""

    cnfs: int = 2
    """Number of continuous flows, one after the other."""
    width: int = 512
    """Units in each hidden layer of a field, the neural network (MLP) of a flow."""
    depth: int = 2
    """Hidden layers of a field."""
    rank: int = 20
    """Rank of the encoder's update of each layer of a field."""
    activation: Literal["softplus", "tanh"] = "softplus"
    """Activation function of the fields."""
    end_time: float = 0.5
    """The ODE of each flow is solved from time 0 to this time."""
    solver: Literal["dopri5", "tsit5", "rk4"] = "dopri5"
    """ODE solver: dopri5 and tsit5 take adaptive steps, the same for the whole batch; rk4 fixed ones."""
    tolerance: float = 1e-5
    """Relative and absolute tolerance of the adaptive solvers."""
    solver_steps: int = 4
    """Number of fixed steps (rk4 only)."""
    divergence: Literal["hutchinson", "closed", "exact"] = "hutchinson"
    """Divergence in training: noisy estimate, closed form (depth 1 or 2), or exact by autodiff.
    Evaluation is always exact."""
    noise: Literal["gaussian", "rademacher"] = "gaussian"
    """Noise of the Hutchinson estimate; rademacher (random signs) has less variance."""
    probes: int = 1
    """Noise vectors per Hutchinson estimate."""
    adjoint: Literal["discrete", "backsolve"] = "discrete"
    """Backward pass: through every solver step, or by a backward solve (as in the paper)."""


@dataclasses.dataclass(frozen=True)
class AutoencoderTrainOptions:
    """Training of the autoencoder."""

    estimator: Estimator = "path"
    """Gradient estimator: path, total (the usual one), or two-copy (path, by a frozen copy of the flow)."""
    optimizer: Literal["adamax", "adam"] = "adamax"
    """adamax as in the code of the paper, or adam as in its text."""
    learning_rate: float | None = None
    """Learning rate: by default 0.0005 for adamax and 0.001 for adam; 0.002 in the preset small."""
    batch: int = 100
    """Images per step; the last batch of an epoch may be smaller."""
    epochs: int = 5000
    """Maximum number of epochs."""
    warmup_epochs: int = 100
    """Number of epochs over which the weight of the KL term grows to one."""
    patience: int = 35
    """Stop when validation has not improved for more than this many epochs after the warm-up.
    The best epoch is evaluated."""
    average: float | None = None
    """Decay rate of a moving average of the parameters, such as 0.999.
    The average is then validated and evaluated."""
    max_seconds: float | None = None
    """Stop after this many seconds of training (without compilation, validation and evaluation)."""
    seed: int = 0
    """Seed of all random numbers except the split of the data."""
    block: int = 10
    """Steps per row of metrics, after which Ctrl-C takes effect; each epoch ends a block."""

    @property
    def rate(self) -> float:
        """The given learning rate, or the optimiser's default."""
        default = {"adamax": 5e-4, "adam": 1e-3}[self.optimizer]
        return default if self.learning_rate is None else self.learning_rate


@dataclasses.dataclass(frozen=True)
class AutoencoderOptions:
    """Train a variational autoencoder on images, with a posterior made of continuous flows.

    The encoder gives every image a low-rank update of the layers of its flows. Losses are in nats per image.
    Afterwards, `pathgrad evaluate` computes ELBO and likelihood of test images, with exact divergences.
    """

    dataset: DatasetName = "mnist"
    """Data set; `pathgrad data list` shows which ones you have.
    freyfaces has 256 grey levels, the others are black and white."""
    data: str | None = None
    """Folder of the images. By default the environment variable PATHGRAD_DATA,
    else a folder in the user's cache; `pathgrad data download` uses the same."""
    split_seed: int = 123
    """Seed of the split of freyfaces, and of the choice of omniglot's validation images."""
    latent: int = 64
    """Dimension of the latent vector."""
    channels: int = 32
    """Channels of the outermost convolutions; inner ones have up to eight times as many."""
    flow: AmortisedFlowOptions = AmortisedFlowOptions()
    training: AutoencoderTrainOptions = AutoencoderTrainOptions()

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return f"vae-{self.dataset}-{self.training.estimator}-s{self.training.seed}"


@dataclasses.dataclass(frozen=True)
class AutoencoderEvaluateOptions:
    """The evaluation."""

    samples: int | None = None
    """Draws per image for its likelihood, by default 5000 (2000 for caltech)."""
    nll_images: int = 0
    """Number of test images whose likelihood to estimate by importance sampling (a fixed random choice).
    This is slow; Ctrl-C stops it and keeps the results so far.
    The ELBO is always computed for all test images."""
    data: Path | None = None
    """Folder of the images, if not the one used in training."""
    refine: int | None = None
    """Take this many times the solver steps (or the accuracy) of training, by default 1."""


@dataclasses.dataclass(frozen=True)
class Known:
    """What is known about one data set; settings and results from Vaitl et al. 2022, appendix and table 2.

    Attributes:
        title: Name for readers.
        flow: Options of the posterior.
        patience: Epochs without improvement after which training stops.
        short_warmup: Our own choice for the preset `small`: epochs of warm-up, about five hundred steps.
        samples: Draws per likelihood.
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
    # Different images, so the paper's results do not apply.
    "omniglot-rebuilt": dataclasses.replace(_LETTERS, title="Omniglot, rebuilt", results={}),
    "caltech": Known("Caltech 101 silhouettes", _SHAPES, 100, 12, 2000, {"path": 101.93, "total": 104.03}),
    "freyfaces": Known("Frey Faces", patience=100, short_warmup=30, results={"path": 4.35, "total": 4.39}),
}


def known_of(dataset: str) -> Known:
    """Return what is known about a data set; only its name if a later version added it."""
    return _KNOWN.get(dataset) or Known(dataset)


def preset(name: str, dataset: str) -> AutoencoderOptions:
    """Return the options of a preset: the published ones for a data set, or small ones for a CPU."""
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
    """Raise an error unless all values are at least `least`; `None` means not given."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ArgumentError(f"{named(name)} must be at least {least}, got {value}.")
