"""What a default fit returns."""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from .._flow.flow import Flow
from .._ingredients.target import Target
from .._numbers.evaluate import Evaluation
from .._numbers.summary import Summary, summarise
from .._numbers.to_arviz import to_arviz
from .._train.row import Row
from .._train.warm_start.warm_start import WarmStart
from .._words.errors import in_python, named
from .._words.text import duration, percent
from .contender import Round
from .draws import draws_of
from .inside import Inside
from .plan import Plan


class Shortfall(enum.Enum):
    """What kept a flow from being good, and what to try. The value is the message to show."""

    NONE = ""
    ROUNDS = f"training ended after the {named('rounds')} that were asked for; more may help"
    TIME = f"training ended because its time was used up; give it more {named('max_seconds')}"
    FLOW = (
        "no flow that was tried came close to the target. Transform its parameters, or give a "
        f"{named('flow')} of your own in the recipe"
    )
    DIVERGED = (
        "training diverged, and the flow from before that was kept: the target may be steep or discontinuous "
        "somewhere. Smooth it, or transform its parameters"
    )

    @property
    def text(self) -> str:
        """The message, with the names of arguments marked."""
        return self.value


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetFit:
    """A density that was fitted with nothing chosen.

    Attributes:
        flow: The flow, in the coordinates of the target.
        target: The target.
        evaluation: ESS, log Z, k-hat and the like, from fresh draws, with a verdict.
        start: What the warm start found; `None` if there was none.
        plan: What was decided on the way. `fit(target, key=key, recipe=Recipe(plan=plan))` repeats it.
        rounds: What each round of training led to, in order.
        history: Rows of metrics of the flow that was kept.
        shortfall: What kept the flow from being good, if anything did.
        seconds: Wall time in all, compiling included.
        key: The source of all noise.
    """

    flow: Flow
    target: Target
    evaluation: Evaluation
    start: WarmStart | None
    plan: Plan
    rounds: list[Round]
    history: list[Row]
    shortfall: Shortfall
    seconds: float
    key: Key[Array, ""]

    @property
    def gradients(self) -> int:
        """Gradients of the target that were computed, for all flows that were tried."""
        taken = {one.kind: one.steps for one in self.rounds}  # the last round of each
        return (0 if self.start is None else self.start.gradients) + self.plan.n * sum(taken.values())

    def sample(self, n: int, *, key: Key[Array, ""] | None = None) -> Float[Array, "n *event"]:
        """Return independent draws of the flow; without a `key`, the same ones each time."""
        key = jr.fold_in(self.key, 2**31) if key is None else key
        return self.flow.sample(key=key, n=n)

    def log_prob(self, x: Float[Array, "batch *event"]) -> Float[Array, " batch"]:
        """Return the flow's log density of some points."""
        return self.flow.log_prob(x)

    def summary(self, n: int = 16384, *, probabilities: Sequence[float] = (0.05, 0.5, 0.95)) -> Summary:
        """Return mean, standard deviation and quantiles of each parameter, with errors, from fresh draws.

        Args:
            n: Number of weighted draws.
            probabilities: Of the quantiles.
        """
        return summarise(self.target, self._draws(n), probabilities)

    def to_arviz(self, n: int = 4096, *, weighted: bool = False, data: bool = True) -> Any:
        """Return fresh draws as an object of ArviZ, with the verdict; `pathgrad.to_arviz` says what is in it.

        Args:
            n: Number of weighted draws, which are resampled to as many as they are worth.
            weighted: Keep them as they are, with their weights beside them.
            data: Whether a NumPyro model adds its data, their log likelihoods and posterior predictive draws.
        """
        said = self.evaluation.verdict.sentence(dataclasses.asdict(self.evaluation))
        draws = self._draws(n)
        return to_arviz(self.target, draws, weighted=weighted, data=data, verdict=said, key=self.key)

    def _draws(self, n: int) -> dict[str, np.ndarray]:
        start = self.start
        centre = 0.0 if start is None else start.elbo
        inside = Inside(self.target, start is not None, centre, self.plan.double)
        return draws_of(self.flow, inside, key=jr.fold_in(self.key, 2**31), n=n)

    def __str__(self) -> str:
        lines = (
            [] if self.start is None else [f"warm start: {self.start.kind.value}, ELBO {self.start.elbo:.4f}"]
        )
        for one in self.rounds:
            lines.append(
                f"{one.name}, round {one.number}, {one.steps} steps: ESS {percent(one.look.ess)}, "
                f"k-hat {one.look.khat:.2f} ({duration(one.seconds)})"
            )
        if self.plan.double:
            lines.append(
                "The target is evaluated in double precision: single precision is too coarse for it."
            )
        if self.plan.defended:
            lines.append("One tenth of the base's draws are wider, for a lighter tail of the weights.")
        if self.shortfall is not Shortfall.NONE:
            lines.append(in_python(f"Not good enough: {self.shortfall.text}."))
        return "\n".join([*lines, str(self.evaluation)])
