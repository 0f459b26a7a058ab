"""What every experiment lets one choose. No JAX here: the command line reads it to answer for help."""

import dataclasses
from typing import Literal

Estimator = Literal["path", "total", "two-copy"]


@dataclasses.dataclass(frozen=True)
class FlowOptions:
    """The flow: a continuous one with a perceptron as its field."""

    base: Literal["standard", "diagonal", "full"] = "diagonal"
    """Where draws begin: a standard normal, or one with trainable diagonal or full covariance."""
    width: int = 64
    """Units in each hidden layer of the field."""
    depth: int = 2
    """Hidden layers of the field; one or two have a closed-form divergence."""
    solver: Literal["rk4", "dopri5", "tsit5"] = "rk4"
    """Fixed Runge-Kutta steps, or adaptive ones."""
    solver_steps: int = 10
    """Number of fixed steps (rk4)."""
    tolerance: float = 1e-5
    """Relative and absolute tolerance of adaptive steps."""
    divergence: Literal["closed", "exact", "hutchinson"] = "closed"
    """Closed form of the field, trace by automatic differentiation, or Hutchinson's noisy estimate."""
    probes: int = 1
    """Noise vectors of the Hutchinson estimate."""
    adjoint: Literal["auto", "discrete", "backsolve"] = "auto"
    """How gradients go back: through each step taken, or by solving again; auto suits the solver."""


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The training."""

    optimizer: Literal["adam", "gauss-newton"] = "adam"
    """adam follows a gradient; gauss-newton takes few, large, expensive steps by least squares on the
    log-weights, for flows of up to some thousands of parameters. It chooses its own draws and lengths:
    of these options only steps (30 by default), draws-per-parameter, max-seconds and seed matter."""
    estimator: Estimator = "path"
    """Gradient of log q: along the path, in total, or by a second, frozen copy of the flow."""
    steps: int = 1000
    """Training steps."""
    batch: int = 256
    """Draws per step."""
    newton_steps: int = 0
    """Steps of gauss-newton after those of adam, in the same run."""
    draws_per_parameter: float = 3.0
    """Draws per step of gauss-newton at the start, in multiples of the number of parameters; up to four
    times as many where a step was mostly noise."""
    learning_rate: float = 5e-3
    """Of Adam, at the start."""
    beta1: float = 0.9
    """Adam's memory of the gradient."""
    beta2: float = 0.999
    """Adam's memory of its square."""
    decay: Literal["cosine", "none"] = "cosine"
    """Let the learning rate fall to a hundredth over the steps, or keep it."""
    clip: float = 0.0
    """Shrink gradients longer than this many times the usual norm; 0 for never."""
    average: float | None = None
    """Decay of a moving average of Adam's parameters, such as 0.999: the average is what is evaluated."""
    max_seconds: float | None = None
    """Stop after this much training time (compiling and evaluation not counted)."""
    seed: int = 0
    """Decides all random numbers."""
    block: int = 50
    """Steps compiled into one block; metrics have a row for each. (One step with gauss-newton.)"""

    @property
    def method(self) -> str:
        """What tells runs apart first: the optimiser, or the gradient that it follows."""
        if self.optimizer != "adam":
            return self.optimizer
        return f"{self.estimator}-gauss-newton" if self.newton_steps else self.estimator
