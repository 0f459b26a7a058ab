"""The options of a fit. No JAX here: the command line imports this to print help."""

import dataclasses
from typing import Literal

MOST_ROUNDS = 40  # each is twice as long as the one before
FlowWord = Literal["auto", "couplings", "tied", "couplings-tied", "network"]


@dataclasses.dataclass(frozen=True)
class FitTrainOptions:
    """The training: rounds of steps, each twice as long as the one before. It may end after any of them."""

    max_seconds: float = 120.0
    """Seconds for everything, with compiling and evaluation. Training ends earlier if the flow is good."""
    batch: int | None = None
    """Draws (samples of the flow) per step. By default 64 to 512: fewer in many dimensions, and for slow
    densities."""
    first: int | None = None
    """Steps of the first round. By default 1500, or fewer in many dimensions and for slow densities."""
    rounds: int | None = None
    """Rounds at most; training ends earlier if the flow is good. By default as many as fit into the time.
    A run that is resumed may get more, to train for longer."""
    look_draws: int | None = None
    """Fresh draws by which the flow is judged after each round. By default 16384 to 65536."""
    seed: int = 0
    """Seed of all random numbers."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What the fit finds. It is kept in config.toml to open the run again; there is no need to give it."""

    coordinates: Literal["unknown", "own", "full", "diagonal"] = "unknown"
    """Coordinates in which the flow is trained: those of the density, or of a Gaussian with full or diagonal
    covariance."""
    directions: int = 0
    """Directions in which a diagonal covariance is stretched further."""
    centre: float = 0.0
    """What is subtracted from the log density, so that numbers near zero keep their digits."""
    cut: int | None = None
    """Where the clock ended the search for that Gaussian; left out if it ended by itself."""
    defended: bool = False
    """Whether a tenth of the draws of the finished flow start from a wider base."""

    @property
    def is_known(self) -> bool:
        """Whether the fit has found it."""
        return self.coordinates != "unknown"


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """Fit your own log density, a JAX function of one point up to a constant, with nothing to choose.

    The function takes an array of shape (dim,) and returns the log density as a scalar JAX array. The best
    Gaussian is found first, then several kinds of flow are compared, the best is trained until it is good or
    time is up, and evaluated. The options fix what is otherwise decided on the way; config.toml has what was
    decided. (`pathgrad train density` trains a flow of your choice instead.)
    """

    density: str = ""
    """The function, as package.module:function or path/to/file.py:function; or an object with log_prob.
    You may also give it as the first argument, without the name of this option."""
    dim: int | None = None
    """Number of coordinates of a point. It may be left out for an object that has a shape, such as a
    pathgrad.LogDensity."""
    numpyro: bool = False
    """The function is a model of NumPyro. Its parameters keep their names, and need no transformation."""
    data: str | None = None
    """For a model of NumPyro, a JSON file with its arguments by name; lists become arrays."""
    flow: FlowWord = "auto"
    """Kind of flow: affine couplings are quick, and learn funnels and bends; a tied field suits many
    dimensions; a network as velocity field is slow, and the most flexible; auto compares some of them."""
    warm_start: bool = True
    """Leave out the best Gaussian, in whose coordinates the flow is trained. The density should then have
    about location zero and scale one."""
    precision: Literal["auto", "single", "double"] = "auto"
    """Precision of the log density (the flow is in single precision); auto takes double where it matters."""
    defence: bool = True
    """Never give the finished flow a wider base, even where that makes the tail of its weights lighter."""
    training: FitTrainOptions = FitTrainOptions()
    found: Found = Found()

    @property
    def name(self) -> str:
        return f"fit-{self.density.rpartition(':')[2]}-s{self.training.seed}"
