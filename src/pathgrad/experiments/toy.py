"""Small targets with known answers."""

import dataclasses
from typing import Any, Literal

from .options import FlowOptions, TrainOptions

TargetName = Literal["banana", "ring", "mixture", "funnel", "correlated"]


@dataclasses.dataclass(frozen=True)
class ToyOptions:
    """Fit a flow to a small target whose normaliser and draws are known exactly."""

    target: TargetName = "banana"
    """In two dimensions a curved, skewed banana, a tilted ring, or a mixture of three normals; in any number
    of dimensions a funnel, or a correlated and skewed density."""
    dim: int = 2
    """Dimensions (funnel and correlated)."""
    flow: FlowOptions = FlowOptions()
    training: TrainOptions = TrainOptions()

    @property
    def name(self) -> str:
        """For the run directory."""
        return f"toy-{self.target}-{self.training.method}-s{self.training.seed}"


PRESETS = {
    "fast": ToyOptions(),
    "accurate": ToyOptions(
        flow=FlowOptions(width=128, solver_steps=16),
        training=TrainOptions(steps=5000, batch=512, learning_rate=3e-3),
    ),
}


def build(options: ToyOptions) -> Any:
    """Return the `Problem` the options describe."""
    from .problem import Problem, keys, make_flow, make_training
    from .toy_targets import TARGETS

    target = TARGETS[options.target](options.dim)
    flow_key, _, _ = keys(options.training.seed)
    flow = make_flow(options.flow, target.shape, key=flow_key)
    training = make_training(options.training, flow, target, float(target.log_z))
    return Problem(training, sample_target=target.sample)
