r"""Second-order training: natural-gradient steps, found by least squares on the log-weights.

Let $s = \nabla_\theta \ln q_\theta(x)$ be the score of the parameters at a fixed point. A small step $\delta$
changes the log-weight $\ln w = \ln p - \ln q_\theta$ at that point by $-s\cdot\delta$. Gauss-Newton takes the
step that leaves the log-weights as constant as a linear change can make them,

$$\delta = \arg\min_\delta \mathrm{Var}_q(\ln w - s\cdot\delta)
  \quad\Leftrightarrow\quad A\,\delta = \mathrm{Cov}_q(s, \ln w), \qquad A = \mathrm{Cov}_q(s, s).$$

$A$ is the Fisher metric, and the right-hand side is minus the gradient of the reverse KL: this is the natural
gradient. As both sides come from the same draws, only what the model cannot explain makes noise, and there
is none if the model can reach q = p. `docs/second-order.md` derives it.

Three things limit a step. It is damped, $A + \lambda\,\mathrm{tr}(A)/P\,I$, with the $\lambda$ that did best
on fresh draws; it is no longer than the trust radius in the metric; and it is shrunk to the share that is
signal (see `damped_step`), which makes it an average over steps once only noise is left.
"""

import equinox as eqx
import jax

from ..._gradients.objectives import ReverseKL
from ..._words.arguments import number, positive, whole_or_none
from ..._words.errors import ArgumentError, UserError, named
from ..method import AbstractMethod
from .runner import GaussNewtonRunner, GaussNewtonState


class GaussNewton(AbstractMethod):
    """Train a flow by least squares on the log-weights: few, large, expensive steps. For `ReverseKL` alone.

    For flows of up to a few thousand parameters, where it is far ahead of first-order training: a step
    costs one gradient per draw, a few draws per parameter, and a linear solve. The objective's estimator is
    not used. It is deterministic, and runs can be resumed as with any method.

    Attributes:
        draws_per_parameter: Draws of a step, as a multiple of the number of parameters. Below about 2
            the least squares fit noise.
        max_draws_per_parameter: Limit up to which draws are doubled when a step was mostly noise. Default:
            four times `draws_per_parameter`.
        damping: Initial damping, relative to the mean eigenvalue of the metric.
        trust: Largest change of the log-weights by one step, as the standard deviation over draws.
        clip: Log-weights are clipped at this distance from their median, and below it also at eight standard
            deviations of their bulk: a draw far off the target shows where to go, not how far.
        trials: Least number of fresh draws to choose the damping with.
        chunk: Draws differentiated at a time; the default bounds the memory.
        max_parameters: Largest number of parameters allowed; the metric of more would fill the memory.
    """

    draws_per_parameter: float = 3.0
    max_draws_per_parameter: float | None = None
    damping: float = 0.1
    trust: float = 1.0
    clip: float = 5.0
    trials: int = 512
    chunk: int | None = None
    max_parameters: int = 10_000

    def __check_init__(self):
        for name in ("draws_per_parameter", "damping"):
            positive(name, getattr(self, name))
        for name in ("trust", "clip"):  # infinity: no limit
            number(name, getattr(self, name), lambda x: x > 0, "positive")
        for name in ("trials", "max_parameters", "chunk"):
            whole_or_none(name, getattr(self, name))
        if self.max_draws_per_parameter is not None:
            positive("max_draws_per_parameter", self.max_draws_per_parameter)
        if not 1 < self.draws_per_parameter <= self.most_draws_per_parameter:
            raise ArgumentError(
                "Need 1 < draws_per_parameter <= max_draws_per_parameter (with fewer draws than parameters, "
                f"least squares would fit noise), got {self.draws_per_parameter} and "
                f"{self.max_draws_per_parameter}."
            )

    @property
    def most_draws_per_parameter(self) -> float:
        """`max_draws_per_parameter`, or its default."""
        most = self.max_draws_per_parameter
        return 4 * self.draws_per_parameter if most is None else most

    def init(self, model):
        """Return the memory before the first step; raise an error if there are too many parameters."""
        parameters = eqx.filter(model, eqx.is_inexact_array)
        count = sum(leaf.size for leaf in jax.tree.leaves(parameters))
        if count == 0:
            raise UserError("The flow has no trainable parameters.")
        if count > self.max_parameters:
            raise UserError(
                f"The flow has {count} parameters, too many for Gauss-Newton: its metric has {count}^2 "
                f"entries ({8e-9 * count**2:.1f} GB, and some copies), and each step needs the gradients of "
                f"{self.draws_per_parameter * count:.0f} single draws. Use Adam with path gradients "
                f"as the {named('optimizer')}, or a smaller field. "
                f"(`GaussNewton(max_parameters={self.max_parameters})` is the limit.)"
            )
        return GaussNewtonState.of(self.damping, self.draws_per_parameter)

    def runner(self, objective, *, key):
        if not isinstance(objective, ReverseKL) or objective.target is None:
            raise ArgumentError(
                "`GaussNewton` works on the log-weights of a flow: it needs the objective "
                "`ReverseKL(target)` with a target that is not trained, got "
                f"{type(objective).__name__}. Use `FirstOrder`."
            )
        if jax.process_count() > 1:
            raise UserError("Gauss-Newton runs in one process only. Start just one, or train with Adam.")
        return GaussNewtonRunner(self, objective.target, key)

    def result(self, state):
        return state.model
