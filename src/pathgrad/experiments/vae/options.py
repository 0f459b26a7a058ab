"""What can be chosen about an autoencoder. No JAX here: the command line reads it to answer for help."""

import dataclasses
from typing import Any, Literal

from pathgrad._errors import UserError

from ..options import Estimator

Activation = Literal["softplus", "tanh"]
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
    activation: Activation = "softplus"
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
    def method(self) -> str:
        """What tells runs apart first."""
        return self.estimator

    @property
    def rate(self) -> float:
        """The learning rate given, or the optimiser's own."""
        own = {"adamax": 5e-4, "adam": 1e-3}[self.optimizer]
        return own if self.learning_rate is None else self.learning_rate


@dataclasses.dataclass(frozen=True)
class AutoencoderOptions:
    """Train a variational autoencoder whose posterior is a continuous flow."""

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
        return f"vae-{self.dataset}-{self.training.method}-s{self.training.seed}"


# Of the paper's appendix: flows, width, rank, activation, patience.
_PUBLISHED: dict[str, tuple[int, int, int, Activation, int]] = {
    "mnist": (2, 1024, 64, "softplus", 35),
    "omniglot": (5, 512, 64, "softplus", 35),
    "caltech": (2, 2048, 20, "tanh", 100),
    "freyfaces": (2, 512, 20, "softplus", 100),
}

# The weight of the KL term is below one for some five hundred steps.
_SHORT_WARMUP = {"mnist": 2, "omniglot": 3, "caltech": 12, "freyfaces": 30}


def preset(name: str, dataset: str) -> AutoencoderOptions:
    """Return the options of a preset: the published ones of a data set, or small ones for a CPU."""
    kind = dataset.removesuffix("-rebuilt")
    if kind not in _PUBLISHED:
        raise UserError(f"There is no data set {dataset!r}; there are {', '.join(_PUBLISHED)}.")
    cnfs, width, rank, activation, patience = _PUBLISHED[kind]
    flow = AmortisedFlowOptions(cnfs, width, 2, rank, activation)
    training = AutoencoderTrainOptions(patience=patience)
    if name == "paper":
        return AutoencoderOptions(dataset, flow=flow, training=training)  # pyright: ignore[reportArgumentType]
    flow = dataclasses.replace(flow, cnfs=2, width=128, rank=8)
    training = dataclasses.replace(
        training, learning_rate=2e-3, epochs=200, warmup_epochs=_SHORT_WARMUP[kind], patience=20
    )
    return AutoencoderOptions(
        dataset,  # pyright: ignore[reportArgumentType]
        latent=32,
        channels=8,
        flow=flow,
        training=training,
    )


def build(options: AutoencoderOptions) -> Any:
    """Return the `AutoencoderProblem` the options describe."""
    from .problem import build

    return build(options)
