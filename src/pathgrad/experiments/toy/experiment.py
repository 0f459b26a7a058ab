"""Small targets with known answers. No JAX here: the command line imports this module to print help."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from ..flows.experiment import AbstractFlowExperiment
from ..options import FlowOptions, TrainOptions

TargetName = Literal["banana", "ring", "mixture", "funnel", "correlated"]


@dataclasses.dataclass(frozen=True)
class ToyOptions:
    """Fit a flow to a small target with a known normalising constant and exact samples."""

    target: TargetName = "banana"
    """In two dimensions: a curved banana, a tilted ring, or a mixture of three normal distributions.
    In any number of dimensions: a funnel, or a correlated and skewed density."""
    dim: int = 2
    """Dimension (funnel and correlated only)."""
    flow: FlowOptions = FlowOptions()
    training: TrainOptions = TrainOptions()

    @property
    def name(self) -> str:
        return f"toy-{self.target}-{self.training.method}-s{self.training.seed}"


class ToyExperiment(AbstractFlowExperiment):
    """Fit a flow to a small target with known answers."""

    name: ClassVar[str] = "toy"
    summary: ClassVar[str] = "fit a flow to a small target with known answers"
    Options: ClassVar[type] = ToyOptions
    presets: ClassVar[Mapping[str, str]] = {"fast": "takes seconds", "accurate": "takes minutes"}

    def preset(self, /, **given: str) -> ToyOptions:
        if given.get("preset") != "accurate":
            return ToyOptions()
        flow = FlowOptions(width=128, solver_steps=16)
        return ToyOptions(flow=flow, training=TrainOptions(steps=5000, batch=512, learning_rate=3e-3))

    def build(self, options: ToyOptions) -> Any:
        from .targets import build

        return build(options)


TOY = ToyExperiment()
