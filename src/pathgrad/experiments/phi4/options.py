"""What can be chosen about a lattice run. No JAX here: the command line reads it to answer for help."""

import dataclasses
from typing import Literal

import pathgrad as pg

from ..options import TrainOptions
from .reference import COUPLINGS, MASS_SQUARED


@dataclasses.dataclass(frozen=True)
class LatticeFlowOptions:
    """The flow: a field with the symmetries of the lattice, sines and a full-lattice kernel."""

    base: Literal["free", "unit"] = "free"
    """Where draws begin: a free field, correlated like the target, or independent unit normals."""
    base_mass_squared: float | None = None
    """Mass squared of the free field. By default 1/(2 chi_2) of the target where that is known, else that of
    a correlation length of a quarter of the lattice."""
    time_kernels: int = 3
    """Functions of time, odd: pairs of sine and cosine, and a constant."""
    time_bond: int = 3
    """Mixtures of them."""
    features: int = 12
    """Functions of the field at a site: sines, and the field itself."""
    channels: int = 6
    """Mixtures of them; each has its kernel."""
    solver_steps: int | None = None
    """Runge-Kutta steps. By default enough for the fastest of the time kernels."""
    divergence: Literal["closed", "exact", "hutchinson"] = "closed"
    """Closed form of the field, trace by automatic differentiation, or Hutchinson's noisy estimate."""
    adjoint: Literal["discrete", "backsolve"] = "discrete"
    """How gradients go back: through each step taken, or by solving again in constant memory (the paper)."""


@dataclasses.dataclass(frozen=True)
class Phi4Options:
    """Fit a flow to lattice phi^4 theory in two dimensions.

    The action is a sum over sites: the squared differences to the next site along both axes, plus
    m^2 phi^2 + lambda phi^4; no factors 1/2 or 1/4!.
    """

    size: int = 6
    """Sites along an axis."""
    coupling: float | None = None
    """lambda. By default the benchmark's, where the correlation length is a quarter of the lattice: sizes
    6, 8, 10, 12, 14, 20, 32, 64."""
    mass_squared: float = MASS_SQUARED
    """m^2."""
    init_from: str | None = None
    """Begin with the trained flow of this run, of a smaller or equal lattice: its kernel is padded, and what
    the new model has more of begins at zero. Lattice and model options not given are those of that run."""
    flow: LatticeFlowOptions = LatticeFlowOptions()
    training: TrainOptions = TrainOptions(steps=1500, batch=128, learning_rate=1e-2, beta1=0.8, beta2=0.9)

    @property
    def name(self) -> str:
        return f"phi4-L{self.size}-{self.training.method}-s{self.training.seed}"

    @property
    def action_coupling(self) -> float:
        """The coupling given, or the benchmark's."""
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
    # A ladder of runs, each with a model of its own: see `ladder`.
    "best": Phi4Options(training=TrainOptions("gauss-newton", steps=30)),
}
