"""The regression of the score as a training method, one iteration for each step."""

from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from ..._flow.flow import Flow
from ..._flow.transforms import FullAffine, LowRankAffine
from ..._gradients.objectives import ReverseKL
from ..._ingredients.bases import StandardNormal
from ..._ingredients.target import Target
from ..._words.arguments import whole_or_none
from ..._words.errors import ArgumentError, named
from ..._words.outcome import Outcome
from ..method import AbstractMethod, AbstractRunner, Block
from ..state import StepInfo
from .evaluator import Evaluator
from .gaussian import AbstractGaussian, DiagonalGaussian, FullGaussian, Look, balanced_draws
from .regression import improve


class ScoreRegression(AbstractMethod):
    r"""Fit a Gaussian by regression of the score: the closed-form step for an affine flow. For `ReverseKL`
    alone.

    The model must be `Flow(StandardNormal(shape), [FullAffine(...)])`, or a `LowRankAffine` without
    directions for independent coordinates. In the coordinates of the present Gaussian the gradient of the
    log-weight is fitted by a linear function of the draws, whose slope and offset give the next covariance
    and mean. A Gaussian target is found exactly, others in ten to thirty steps; the objective's estimator
    is not used. The draws are the same in all steps, so that there is no noise, and the ELBO never falls.
    Everything is in double precision.

    `warm_start` uses it from several first Gaussians.

    Attributes:
        n: Number of draws. Default: ten for each coordinate, and at least 256.
    """

    n: int | None = eqx.field(static=True, default=None, converter=lambda n: whole_or_none("n", n))

    def init(self, model):
        """Return an empty memory; raise an error if the model is not a Gaussian with a fixed map."""
        gaussian_of(model)

    def runner(self, objective, *, key):
        if not isinstance(objective, ReverseKL) or objective.target is None:
            raise ArgumentError(
                "`ScoreRegression` fits the gradient of a log density: it needs the objective "
                f"`ReverseKL(target)` with a target that is not trained, got {type(objective).__name__}."
            )
        return ScoreRegressionRunner(self, objective.target, key)

    def result(self, state):
        return state.model


def gaussian_of(model: Any) -> AbstractGaussian:
    """Return the Gaussian that a flow stands for."""
    if isinstance(model, Flow) and isinstance(model.base, StandardNormal) and len(model.transforms) == 1:
        (only,) = model.transforms
        if isinstance(only, FullAffine):
            return FullGaussian(only.shift.ravel(), only.matrix)
        if isinstance(only, LowRankAffine) and not only.rank:
            return DiagonalGaussian(only.shift.ravel(), only.scale.ravel())
    raise ArgumentError(
        f"`ScoreRegression` trains a {named('model')} of the form `Flow(StandardNormal(shape), "
        "[FullAffine(shift, matrix)])`, or with `LowRankAffine(shift, scale)` instead."
    )


class ScoreRegressionRunner(AbstractRunner):
    """Takes the steps of one training run, one at a time."""

    def __init__(self, method: ScoreRegression, target: Target, key: Key[Array, ""]) -> None:
        self.method, self.target, self.key = method, target, key
        self._evaluate: Evaluator | None = None
        self._z = np.zeros((0, 0))

    def length(self, step):
        return 1

    def prepare(self, state, length):
        """Compile the target's gradient, and make the draws of all steps."""
        shape = state.model.shape
        if self._evaluate is None or self._evaluate.shape != shape:
            self._evaluate = Evaluator(self.target, shape)
            self.compile_seconds += self._evaluate.compile_seconds
            n = self.method.n or max(256, 10 * self._evaluate.dim)
            rng = np.random.default_rng(np.asarray(jr.key_data(self.key)).ravel())
            self._z = balanced_draws(n, self._evaluate.dim, rng)
        return state

    def run(self, state, length):
        """Take one step. The arrays of its info have a leading axis of length one, as for a block."""
        assert self._evaluate is not None
        before = self._evaluate.gradients
        step = improve(Look.at(gaussian_of(state.model), self._z, self._evaluate), self._evaluate)
        look, gaussian = step.look, step.look.gaussian
        mean = gaussian.mean.reshape(state.model.shape)
        if isinstance(gaussian, FullGaussian):
            map = FullAffine(mean, gaussian.factor)
        else:
            map = LowRankAffine(mean, gaussian.deviation.reshape(mean.shape))
        good = bool(look.finite.any())
        state = state.after(Flow(state.model.base, [map]), state.memory, good=good)
        outcome = Outcome.FINE if good else Outcome.TARGET_NOT_FINITE
        norm = float(np.linalg.norm(look.pull[look.finite].mean(axis=0))) if good else np.nan
        numbers = {"elbo": look.elbo, "outside": look.outside, "draws": self._evaluate.gradients - before}
        losses = -look.log_weight[None]
        rest = [np.asarray([x]) for x in (norm, np.nan, np.nan, outcome, state.skipped_in_row)]
        loss = losses.mean(axis=1) if good else np.asarray([np.nan])
        return Block(state, StepInfo(loss, losses, {}, *rest), numbers)
