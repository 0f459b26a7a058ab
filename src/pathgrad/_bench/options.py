"""What can be chosen about a measurement. No JAX here: the command line reads it to answer for help."""

import dataclasses
from typing import Literal

from pathgrad._words.errors import ArgumentError, named
from pathgrad.experiments.options import Estimator, FlowOptions
from pathgrad.experiments.phi4.options import PRESETS, LatticeFlowOptions
from pathgrad.experiments.vae.options import AmortisedFlowOptions, DatasetName, preset

Divergence = Literal["closed", "exact", "hutchinson"]


@dataclasses.dataclass(frozen=True)
class MeasureOptions:
    """The measurement."""

    batch: int = 64
    """Draws per gradient (images, of an autoencoder)."""
    estimators: tuple[Estimator, ...] = ("path", "total", "two-copy")
    """Which gradients to measure; they take turns."""
    repetitions: int = 7
    """Rounds that are timed, after one that warms up. 0 to time nothing: memory and compiling only."""
    seed: int = 0
    """Decides weights and draws. (The flow is untrained.)"""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of everything; training has float32."""

    def check(self) -> None:
        """Raise unless this can be measured."""
        if self.batch < 1 or self.repetitions < 0:
            raise ArgumentError(
                f"{named('batch')} must be at least 1 and {named('repetitions')} at least 0, got "
                f"{self.batch} and {self.repetitions}."
            )
        if not self.estimators or len(set(self.estimators)) < len(self.estimators):
            raise ArgumentError(
                f"{named('estimators')} takes one or several of path, total, two-copy, each once."
            )
        if not 0 <= self.seed < 2**32:
            raise ArgumentError(f"{named('seed')} must be from 0 to {2**32 - 1}, got {self.seed}.")


@dataclasses.dataclass(frozen=True)
class CnfOptions:
    """A continuous flow with a perceptron as its field; the target is a standard normal."""

    dim: int = 64
    """Dimension of the draws."""
    flow: FlowOptions = FlowOptions(width=1024, solver_steps=20)
    measure: MeasureOptions = MeasureOptions()


@dataclasses.dataclass(frozen=True)
class LatticeOptions:
    """A flow for lattice phi^4 theory."""

    size: int = 12
    """Sites along an axis."""
    divergence: Divergence = "closed"
    """Closed form of the field, trace by automatic differentiation, or Hutchinson's noisy estimate."""
    flow: LatticeFlowOptions = LatticeFlowOptions()
    measure: MeasureOptions = MeasureOptions()


@dataclasses.dataclass(frozen=True)
class ImagesOptions:
    """A variational autoencoder, on random images: the pixels are drawn from the seed."""

    dataset: DatasetName = "mnist"
    """Whose image size, grey levels and published model to take."""
    latent: int = 32
    """Size of the latent vector."""
    channels: int = 8
    """Of the outermost convolutions; inner ones have up to eight times as many."""
    flow: AmortisedFlowOptions = AmortisedFlowOptions()
    measure: MeasureOptions = MeasureOptions(batch=100)


def lattice_preset(name: str | None) -> LatticeOptions:
    """Return the defaults of the `paper`, else of `fast`, the model that trains on a CPU."""
    return LatticeOptions(flow=PRESETS["paper" if name == "paper" else "fast"].flow)


def images_preset(name: str, dataset: str) -> ImagesOptions:
    """Return the defaults of a `small` model, or of the one that the `paper` has for a data set."""
    found = preset(name, dataset)
    return ImagesOptions(found.dataset, found.latent, found.channels, found.flow)
