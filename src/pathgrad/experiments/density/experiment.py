"""Fit a flow of your choice to your own log density. No JAX here: the command line imports this for help."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import pathgrad as pg
from pathgrad._words.paths import expanded

from ..flows.experiment import AbstractFlowExperiment
from ..options import FlowOptions, TrainOptions


@dataclasses.dataclass(frozen=True)
class DensityOptions:
    """Fit a flow of your choice to your own log density: a JAX function of one point, up to a constant.

    The function takes an array of shape (dim,) and returns the log density as a scalar JAX array. It must be
    finite everywhere. (`pathgrad fit` does the same with nothing to choose.)
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
        return f"density-{function}-{self.training.method}-s{self.training.seed}"


def absolute(density: str) -> str:
    """Return the name of a density, with the path of its file made absolute."""
    file, _, function = density.rpartition(":")
    return f"{expanded(file).absolute()}:{function}" if file.endswith(".py") else density


class DensityExperiment(AbstractFlowExperiment):
    """Fit a flow of your choice to your own log density."""

    name: ClassVar[str] = "density"
    summary: ClassVar[str] = "fit a flow of your choice to your own JAX log density"
    Options: ClassVar[type] = DensityOptions
    first_word: ClassVar[str | None] = "density"
    shown_options: ClassVar[tuple[str, ...]] = (*AbstractFlowExperiment.shown_options, "density")

    def problem(self, options: pg.OptionsTable) -> str:
        """Return the name of the function and its dimension."""
        function = str(options.get("density", "")).rpartition(":")[2]
        return f"{function} in {options.get('dim', '?')} dimensions"

    def settled(self, options: DensityOptions) -> tuple[DensityOptions, list[str]]:
        """Make the path of a file absolute, so that the run can be evaluated from any directory."""
        return dataclasses.replace(options, density=absolute(options.density)), []

    def sources(self, options: DensityOptions) -> Sequence[pg.Source]:
        """Return the code of the density."""
        return (pg.Source("density", options.density),)

    def build(self, options: DensityOptions) -> Any:
        from .problem import build

        return build(options)


DENSITY = DensityExperiment()
