"""Options of an autoencoder, and the published ones. No JAX here: the command line prints them as help."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pathgrad._words.errors import ArgumentError, named

from ..options import Estimator
from .data.sources import find

DatasetName = Literal["mnist", "omniglot", "omniglot-rebuilt", "caltech", "freyfaces"]


@dataclasses.dataclass(frozen=True)
class NetworkOptions:
    """The encoder and the decoder."""

    networks: Literal["compact", "published", "mlp"] = "compact"
    """compact: 3x3 convolutions at a half and a quarter of the resolution, made for a CPU. published: the
    gated 5x5 convolutions of the paper. mlp: two gated dense layers, the quickest."""
    channels: int = 32
    """Channels of the decoder at a quarter of the resolution (compact), or of the outermost convolutions;
    inner ones have up to eight times as many (published)."""
    blocks: int = 1
    """Residual convolutions of the decoder at a quarter of the resolution (compact)."""
    fine_channels: int = 32
    """Channels of the decoder at half the resolution (compact); 0 to go straight from a quarter to pixels, in
    both networks."""
    hidden: int = 256
    """Units of a dense layer with which the decoder begins (compact; 0 for none), or of each layer (mlp)."""


@dataclasses.dataclass(frozen=True)
class AmortisedFlowOptions:
    """The posterior: a normal distribution, transformed by continuous flows adapted to each image."""

    cnfs: int = 2
    """Number of continuous flows, one after the other; 0 for a plain normal."""
    field: Literal["gates", "low-rank"] = "gates"
    """How the encoder adapts a field to an image. gates: it opens, closes and shifts the units of one hidden
    layer. low-rank: it adds a matrix of low rank to every layer, as in the paper."""
    width: int = 512
    """Units in each hidden layer of a field."""
    depth: int = 1
    """Hidden layers of a field; gates have one."""
    rank: int = 20
    """Rank of the update of each layer (low-rank)."""
    activation: Literal["softplus", "tanh"] = "tanh"
    """Activation between the layers of a field (low-rank; gates have tanh)."""
    end_time: float = 1.0
    """Each field is followed from time 0 to this."""
    solver: Literal["dopri5", "tsit5", "rk4"] = "rk4"
    """Adaptive steps with one length for the whole batch, or fixed ones (rk4)."""
    tolerance: float = 1e-5
    """Relative and absolute tolerance of adaptive steps."""
    solver_steps: int = 3
    """Number of fixed steps (rk4) to begin with; more are taken whenever they turn out to be too few."""
    divergence: Literal["closed", "hutchinson", "exact"] = "closed"
    """Divergence used in training: its closed form (one or two hidden layers), a noisy estimate, or its exact
    value by automatic differentiation. Evaluation is always exact."""
    noise: Literal["gaussian", "rademacher"] = "gaussian"
    """Noise of the Hutchinson estimate; rademacher (signs) varies less."""
    probes: int = 1
    """Noise vectors per Hutchinson estimate."""
    adjoint: Literal["discrete", "backsolve"] = "discrete"
    """How gradients are computed: through each solver step, or by solving backwards (as the authors did)."""


@dataclasses.dataclass(frozen=True)
class AutoencoderTrainOptions:
    """Training of the autoencoder."""

    estimator: Estimator = "path"
    """Gradient of log q: along the path, in total, or by a second, frozen copy of the flow."""
    optimizer: Literal["adam", "adamax"] = "adam"
    """adamax is what the authors' code uses, adam what their text says."""
    learning_rate: float = 4e-3
    """Learning rate after its warm-up."""
    rate_warmup: int = 500
    """Steps over which the learning rate grows from zero."""
    rate_hold: float = 0.25
    """Fraction of the training after which the learning rate begins to fall, linearly to zero; 1 for never.
    If the training time is limited, the number of steps that fit into it is measured first."""
    clip: float = 100.0
    """Shrink gradients longer than this; 0 for never."""
    average: float = 0.9995
    """Decay of a moving average of the parameters, which is then what is validated and evaluated; 0 for no
    average."""
    batch: int = 100
    """Images per step; the last batch of an epoch may be smaller."""
    epochs: int = 5000
    """Epochs at most."""
    kl_warmup: int = 1000
    """Steps over which the weight of the KL term grows to one, a little with each step."""
    warmup_epochs: int = 0
    """Epochs over which it grows instead, a little with each epoch (as the authors did)."""
    validate: int = 500
    """Steps between two validations, rounded up to whole epochs."""
    patience: int = 35
    """Stop when more validations than this have passed without a better one, counted from the end of the
    warm-up; the best is what evaluation looks at."""
    shifts: float = 0.0
    """Probability of moving an image by up to one pixel, each time it is seen. (The paper did not.)"""
    flips: bool = False
    """Turn half of the images left to right, each time they are seen. (The paper did not.)"""
    augment_until: float = 0.7
    """Share of the training after which images are no longer shifted. (They are flipped to the end.)"""
    dreams: bool | None = False
    """Let the encoder also learn from images drawn from the model, as many as from the data: it is the first
    to learn a small data set by heart. The decoder learns from the data alone. A step takes almost twice as
    long. None: if images are neither shifted nor flipped."""
    max_seconds: float | None = None
    """Stop after this much training time (compiling, validation and evaluation not counted). The learning
    rate falls to zero within it."""
    seed: int = 0
    """Seed of all random numbers except the split of the data."""
    block: int = 10
    """Steps per row of metrics, after which Ctrl-C takes effect; each epoch ends a block."""

    @property
    def is_dreaming(self) -> bool:
        """Whether the encoder also learns from images of the model."""
        return not (self.shifts or self.flips) if self.dreams is None else self.dreams


@dataclasses.dataclass(frozen=True)
class AutoencoderOptions:
    """Train a variational autoencoder on images, with a posterior made of continuous flows.

    Loss and validation are in nats per image. `pathgrad evaluate` then gives ELBO and likelihood of the test
    images, with exact divergences.
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
    """Size of the latent vector."""
    likelihood: Literal["softmax", "logistic"] = "softmax"
    """Distribution of grey pixels: 256 unordered classes, as in the paper, or a discretised logistic, whose
    bits per pixel are not to be compared with published ones."""
    network: NetworkOptions = NetworkOptions()
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
    """Number of test images whose likelihood to estimate by importance sampling (a fixed random choice; all
    if there are fewer). An image takes about half a second of a core with the preset for a CPU. What is
    known is saved every two minutes, and when Ctrl-C stops it. The ELBO is always of all test images."""
    data: Path | None = None
    """Folder of the images, if not the one used in training."""
    refine: int | None = None
    """Take this many times the solver steps (or the accuracy) of training, by default 1. Likelihoods take
    as many as twice the steps would not change by 0.01 nats, whatever is given here."""


@dataclasses.dataclass(frozen=True)
class Known:
    """What is usual for one data set.

    Attributes:
        title: For people.
        published: The published posterior (Vaitl et al. 2022, appendix).
        patience: Epochs of patience of the published training.
        cpu: Our own options for a CPU core and an hour or less.
        samples: Draws behind each likelihood.
        results: Published negative ELBO of test images by estimator (table 2), in the unit of the data set.
    """

    title: str
    published: AmortisedFlowOptions
    patience: int
    cpu: AutoencoderOptions
    samples: int = 5000
    results: Mapping[str, float] = dataclasses.field(default_factory=dict)


def _published(**flow: Any) -> AmortisedFlowOptions:
    """Return a posterior of the paper, or of the authors' code where the paper is silent."""
    common = {"field": "low-rank", "depth": 2, "activation": "softplus", "end_time": 0.5}
    solver = {"solver": "dopri5", "solver_steps": 4, "divergence": "hutchinson"}
    return AmortisedFlowOptions(**(common | solver | flow))


_HOUR = 3600.0
_MANY = AutoencoderOptions(training=AutoencoderTrainOptions(shifts=0.4, max_seconds=_HOUR))
# Few images: what keeps them from being learnt by heart counts for more than the size of the networks.
_FEW = dataclasses.replace(
    _MANY,
    network=NetworkOptions(fine_channels=16, hidden=0),
    flow=AmortisedFlowOptions(cnfs=1, width=256),
    training=AutoencoderTrainOptions(
        learning_rate=2e-3, rate_warmup=300, rate_hold=0.4, kl_warmup=800, patience=60,
        shifts=0.5, flips=True, augment_until=0.9, dreams=None, max_seconds=_HOUR,
    ),
)  # fmt: skip
_FACES = dataclasses.replace(
    _FEW,
    network=NetworkOptions(channels=64, blocks=2, fine_channels=0, hidden=0),
    training=dataclasses.replace(
        _FEW.training, learning_rate=3e-3, rate_warmup=200, kl_warmup=300, average=0.999, clip=2000.0
    ),
)
_LETTERS = Known("Omniglot", _published(cnfs=5, rank=64), 35, _MANY, results={"path": 96.61, "total": 98.33})
_KNOWN = {
    "mnist": Known(
        "MNIST", _published(width=1024, rank=64), 35, _MANY, results={"path": 82.09, "total": 82.82}
    ),
    "omniglot": _LETTERS,
    # Different images, so the paper's results do not apply.
    "omniglot-rebuilt": dataclasses.replace(_LETTERS, title="Omniglot, rebuilt", results={}),
    "caltech": Known(
        "Caltech 101 silhouettes",
        _published(width=2048, activation="tanh"),
        100,
        _FEW,
        samples=2000,
        results={"path": 101.93, "total": 104.03},
    ),
    "freyfaces": Known("Frey Faces", _published(), 100, _FACES, results={"path": 4.35, "total": 4.39}),
}


def known_of(dataset: str) -> Known:
    """Return what is known of a data set: of one that only a later version knows, its name."""
    return _KNOWN.get(dataset) or Known(dataset, _published(), 35, _MANY)


def preset(name: str, dataset: str) -> AutoencoderOptions:
    """Return the options of a preset: for a CPU, the published ones of a data set, or tiny ones."""
    find(dataset)
    known = known_of(dataset)
    if name == "paper":
        training = AutoencoderTrainOptions(
            optimizer="adamax", learning_rate=5e-4, rate_warmup=0, rate_hold=1.0, clip=0.0, average=0.0,
            kl_warmup=0, warmup_epochs=100, validate=1, patience=known.patience,
        )  # fmt: skip
        options = AutoencoderOptions(
            network=NetworkOptions("published"), flow=known.published, training=training
        )
    elif name == "tiny":
        options = AutoencoderOptions(
            latent=8,
            network=NetworkOptions("mlp", hidden=64),
            flow=AmortisedFlowOptions(cnfs=1, width=32),
            training=dataclasses.replace(
                known.cpu.training, average=0.99, max_seconds=20.0, kl_warmup=50, rate_warmup=20
            ),
        )
    else:
        options = known.cpu
    return dataclasses.replace(options, dataset=dataset)


def check_least(least: int, **values: int | None) -> None:
    """Raise an error unless all values are at least `least`; `None` means not given."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ArgumentError(f"{named(name)} must be at least {least}, got {value}.")
