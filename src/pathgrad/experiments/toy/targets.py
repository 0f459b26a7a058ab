"""The targets of the experiment by name, and its problem."""

import pathgrad as pg
from pathgrad.targets.small import AbstractSmallTarget, Banana, Correlated, Funnel, Mixture, Ring

from ..flows.making import make_flow, make_training
from ..flows.problem import FlowProblem
from .experiment import ToyOptions

TARGETS: dict[str, type[AbstractSmallTarget]] = {
    target.name: target for target in (Banana, Ring, Mixture, Funnel, Correlated)
}


def build(options: ToyOptions) -> FlowProblem:
    """Return the problem that the options describe."""
    target = TARGETS[options.target](options.dim)
    flow = make_flow(options.flow, target.shape, key=pg.run_keys(options.training.seed)[0])
    training = make_training(options.training, flow, target, float(target.log_z))
    return FlowProblem(training, sample_target=target.sample)
