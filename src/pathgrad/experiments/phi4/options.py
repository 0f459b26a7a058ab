"""The options of a lattice run. No JAX here: the command line imports this module to print help."""

import dataclasses
from typing import Literal

import pathgrad as pg
from pathgrad._words.errors import check_at_least_one

from ..options import TrainOptions
from .reference import COUPLINGS, MASS_SQUARED


@dataclasses.dataclass(frozen=True)
class LatticeFlowOptions:
    """The flow: its velocity is a convolution of sines of the field, with the symmetries of the lattice."""

    base: Literal["free", "unit"] = "free"
    """Base distribution: a free field, correlated like the target, or independent standard normals."""
    base_mass_squared: float | None = None
    """Mass squared of the free field. By default 1/(2 chi_2) where the susceptibility chi_2 is known,
    else (4/size)^2: a correlation length of a quarter of the lattice."""
    time_kernels: int = 3
    """Number of functions of time in the kernel, odd: pairs of sine and cosine, and a constant."""
    time_bond: int = 3
    """Number of mixtures of these functions of time."""
    features: int = 12
    """Number of functions of the field at a site: sines, and the field itself."""
    channels: int = 6
    """Number of mixtures of these features; each has its own kernel."""
    solver_steps: int | None = None
    """Number of Runge-Kutta steps. By default enough to resolve the fastest time kernel."""
    divergence: Literal["closed", "exact", "hutchinson"] = "closed"
    """Divergence of the field: closed form, exact trace by autodiff, or Hutchinson's noisy estimate."""
    adjoint: Literal["discrete", "backsolve"] = "discrete"
    """Backward pass: through every solver step, or by a backward solve in constant memory (the paper)."""


@dataclasses.dataclass(frozen=True)
class Phi4Options:
    """Fit a flow to lattice phi^4 theory in two dimensions.

    The action is a sum over sites of the squared differences to the next site along both axes, plus
    m^2 phi^2 + lambda phi^4, without factors 1/2 or 1/4!.
    """

    size: int = 6
    """Number of sites along each axis of the square lattice."""
    coupling: float | None = None
    """lambda in the action. By default the benchmark's for sizes 6, 8, 10, 12, 14, 20, 32 and 64,
    where the correlation length is about a quarter of the lattice."""
    mass_squared: float = MASS_SQUARED
    """m^2 in the action; may be negative."""
    init_from: str | None = None
    """Start from the trained flow of this run, of an equal or smaller lattice, padded with zeros.
    Lattice and model options that are not given are taken from that run."""
    flow: LatticeFlowOptions = LatticeFlowOptions()
    training: TrainOptions = TrainOptions(steps=1500, batch=128, learning_rate=1e-2, beta1=0.8, beta2=0.9)

    @property
    def name(self) -> str:
        return f"phi4-L{self.size}-{self.training.method}-s{self.training.seed}"

    @property
    def action_coupling(self) -> float:
        """The given coupling, or the benchmark's."""
        check_at_least_one(size=self.size)
        if self.coupling is not None:
            return self.coupling
        if self.size not in COUPLINGS:
            raise pg.ArgumentError(
                f"There is no benchmark coupling for {pg.named('size')} {self.size}, only for "
                f"{', '.join(map(str, COUPLINGS))}: give {pg.named('coupling')}."
            )
        return COUPLINGS[self.size]


PRESETS = {
    "fast": Phi4Options(),
    "paper": Phi4Options(
        size=12,
        flow=LatticeFlowOptions(
            base="unit",
            time_kernels=21,
            time_bond=20,
            features=50,
            channels=20,
            solver_steps=50,
            adjoint="backsolve",
        ),
        training=TrainOptions(steps=20000, batch=5000, learning_rate=5e-4, decay="none", block=10),
    ),
    # A ladder of runs, each with its own model: see `ladder`.
    "best": Phi4Options(training=TrainOptions("gauss-newton", steps=30)),
}
