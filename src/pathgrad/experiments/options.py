"""Options that experiments share. No JAX here: the command line imports this module to print help."""

import dataclasses
from typing import Any, Literal

from pathgrad._words.errors import named

Estimator = Literal["path", "total", "two-copy"]
# Options of Adam's steps alone.
ADAM = ("batch", "learning_rate", "beta1", "beta2", "decay", "clip", "average", "block")


@dataclasses.dataclass(frozen=True)
class FlowOptions:
    """The flow: a continuous normalizing flow whose velocity field is a neural network (MLP)."""

    base: Literal["standard", "diagonal", "full"] = "diagonal"
    """Base distribution: standard normal, or normal with trainable mean and diagonal or full covariance."""
    width: int = 64
    """Units in each hidden layer of the network."""
    depth: int = 2
    """Hidden layers of the network; with one or two its divergence has a closed form."""
    solver: Literal["rk4", "dopri5", "tsit5"] = "rk4"
    """ODE solver: rk4 takes fixed steps, dopri5 and tsit5 adaptive ones."""
    solver_steps: int = 10
    """Number of fixed steps (rk4 only)."""
    tolerance: float = 1e-5
    """Relative and absolute tolerance of the adaptive solvers."""
    divergence: Literal["closed", "exact", "hutchinson"] = "closed"
    """Divergence of the field: closed form, exact trace by autodiff, or Hutchinson's noisy estimate."""
    probes: int = 1
    """Noise vectors per Hutchinson estimate."""
    adjoint: Literal["auto", "discrete", "backsolve"] = "auto"
    """Backward pass: discrete differentiates each solver step, backsolve solves an ODE backward,
    auto uses discrete for fixed steps and backsolve for adaptive ones."""


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """Training of the flow."""

    optimizer: Literal["adam", "gauss-newton"] = "adam"
    """adam follows the gradient; gauss-newton takes a few large, expensive least-squares steps.
    It suits up to a few thousand parameters. Of the options below it uses only steps (default 30),
    draws-per-parameter, max-seconds and seed."""
    estimator: Estimator = "path"
    """Gradient estimator: path, total (the usual one), or two-copy (path, by a frozen copy of the flow)."""
    steps: int = 1000
    """Training steps."""
    batch: int = 256
    """Draws (samples of the flow) per step."""
    newton_steps: int = 0
    """gauss-newton steps to take after the adam steps, in the same run."""
    draws_per_parameter: float = 3.0
    """Initial draws per gauss-newton step and parameter; up to four times as many after noisy steps."""
    learning_rate: float = 5e-3
    """Adam's initial learning rate."""
    beta1: float = 0.9
    """Adam's decay rate for the running mean of the gradient."""
    beta2: float = 0.999
    """Adam's decay rate for the running mean of the squared gradient."""
    decay: Literal["cosine", "none"] = "cosine"
    """Learning rate: cosine decay to a hundredth of its initial value, or constant (none)."""
    clip: float = 0.0
    """Clip gradients to this many times their recent average norm; 0 turns clipping off."""
    average: float | None = None
    """Decay rate of a moving average of Adam's parameters, such as 0.999; the average is evaluated."""
    max_seconds: float | None = None
    """Stop after this many seconds of training, not counting compilation and evaluation."""
    seed: int = 0
    """Seed of all random numbers."""
    block: int = 50
    """Steps per compiled block; each block adds one row of metrics. (gauss-newton: always one step.)"""

    @property
    def unused(self) -> dict[str, str]:
        """Options that the optimiser does not look at, and why."""
        if self.optimizer == "gauss-newton":
            return dict.fromkeys(("estimator", *ADAM), f"{named('optimizer')} is gauss-newton")
        if not self.newton_steps:
            return {"draws_per_parameter": f"{named('optimizer')} is {self.optimizer}"}
        return {}

    @property
    def method(self) -> str:
        """Short name of the method, for labels: the optimiser, or the gradient it follows."""
        return method_of(self.optimizer, self.estimator, self.newton_steps)


def unused_of(flow: Any) -> dict[str, str]:
    """Return the options of a flow that its other options make void, and why."""
    void = {}
    if hasattr(flow, "probes") and flow.divergence != "hutchinson":
        void["probes"] = f"{named('divergence')} is {flow.divergence}"
    if (solver := getattr(flow, "solver", None)) is not None:
        void["tolerance" if solver == "rk4" else "solver_steps"] = f"{named('solver')} is {solver}"
    return void


def method_of(optimizer: str, estimator: str, newton_steps: object) -> str:
    """Return the short name of a method; a file may hold any words here."""
    if optimizer != "adam":
        return optimizer
    return f"{estimator}-gauss-newton" if newton_steps else estimator
