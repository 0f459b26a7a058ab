"""Fit a flow to a user's own log density. No JAX here: the command line imports this to print help."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import pathgrad as pg

from ..flows.experiment import AbstractFlowExperiment
from ..options import FlowOptions, TrainOptions


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """Fit a flow to your own log density: a JAX function of one point, up to a constant.

    The function takes an array of shape (dim,) and returns the log density as a scalar JAX array. It must be
    finite everywhere.
    """

    density: str = ""
    """The function, as package.module:function or path/to/file.py:function.
    You may also give it as the first argument, without the name of this option."""
    dim: int = 0
    """Number of coordinates of a point (required)."""
    flow: FlowOptions = FlowOptions()
    training: TrainOptions = TrainOptions()

    @property
    def name(self) -> str:
        function = self.density.rpartition(":")[2]
        return f"fit-{function}-{self.training.method}-s{self.training.seed}"


class FitExperiment(AbstractFlowExperiment):
    """Fit a flow to your own log density."""

    name: ClassVar[str] = "fit"
    summary: ClassVar[str] = "fit a flow to your own JAX log density"
    Options: ClassVar[type] = FitOptions
    first_word: ClassVar[str | None] = "density"
    shown_options: ClassVar[tuple[str, ...]] = (*AbstractFlowExperiment.shown_options, "density")

    @property
    def command(self) -> str:
        return self.name

    def problem(self, options: pg.OptionsTable) -> str:
        """Return the name of the function and its dimension."""
        function = str(options.get("density", "")).rpartition(":")[2]
        return f"{function} in {options.get('dim', '?')} dimensions"

    def settled(self, options: FitOptions) -> tuple[FitOptions, list[str]]:
        """Make the path of a file absolute, so that the run can be evaluated from any directory."""
        file, _, function = options.density.rpartition(":")
        if not file.endswith(".py"):
            return options, []
        density = f"{Path(file).expanduser().absolute()}:{function}"
        return dataclasses.replace(options, density=density), []

    def build(self, options: FitOptions) -> Any:
        from .density import build

        return build(options)


FIT = FitExperiment()
