"""The two-copy gradient of the lattice flow, computed by `flowjax`.

It has no continuous flow, so ours is wrapped as one of its distributions; its `ElboLoss` with
`stick_the_landing` then draws with live parameters and evaluates with frozen ones: two copies. Its interface
takes a single draw, so every draw is solved separately.
"""

import equinox as eqx
import jax
from flowjax.distributions import AbstractDistribution  # pyright: ignore[reportMissingImports]
from flowjax.train.losses import ElboLoss  # pyright: ignore[reportMissingImports]

import pathgrad as pg
from pathgrad._bench.measure import Work
from pathgrad.experiments.phi4.theory import Phi4


class _Distribution(AbstractDistribution):
    flow: pg.Flow
    shape: tuple[int, ...]
    cond_shape: None = None

    def _sample(self, key, condition=None):
        del condition
        return self.flow.sample(key=key, n=1)[0]

    def _log_prob(self, x, condition=None):
        del condition
        return self.flow.log_prob(x[None])[0]


def gradient(flow: pg.Flow, target: Phi4, batch: int) -> Work:
    """Return a program for value and two-copy gradient."""
    model = _Distribution(flow, target.shape)
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    loss = ElboLoss(target.log_prob, batch, stick_the_landing=True)

    def run(parameters, key):
        return jax.value_and_grad(lambda p: loss(p, static, key))(parameters), None

    return Work(run, parameters)
