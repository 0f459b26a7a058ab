"""What a default fit returns."""

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from .._flow.flow import Flow
from .._ingredients.target import Target
from .._numbers.evaluate import Evaluation, weighted_draws
from .._numbers.summary import Summary, summarise
from .._numbers.to_arviz import to_arviz
from .._numbers.weighted import Expectation, Weighted
from .._train.row import Row
from .._train.warm_start.warm_start import WarmStart
from .._words.errors import in_python, named
from .._words.keys import one_key
from .._words.outcome import Outcome
from .._words.text import duration, percent
from .contender import Round
from .inside import Inside
from .plan import Plan


class Shortfall(enum.Enum):
    """What kept a flow from being good, and what to try. The value is the message to show."""

    NONE = ""
    START = (
        "the warm start had not found the best Gaussian when it ended; begin nearer to the target, with a "
        f"{named('start')} or {named('draws')} in the recipe, or give it more {named('max_seconds')}"
    )
    ROUNDS = f"training ended after the {named('rounds')} that were asked for; more may help"
    TIME = f"training ended because its time was used up; give it more {named('max_seconds')}"
    FLOW = (
        "the flow hardly came closer to the target in its last round of training. Transform the parameters "
        f"of the target, or give a more flexible {named('flow')} in the recipe"
    )
    OUTSIDE = (
        "training stopped because the target was NaN or infinite at draws of the flow, and the flow from "
        "before that was kept. Map bounded parameters to the whole line, and look for logarithms of negative "
        "numbers and for overflows"
    )
    DIVERGED = (
        "training diverged, and the flow from before that was kept: the target may be steep or discontinuous "
        "somewhere. Smooth it, or transform its parameters"
    )

    @classmethod
    def of_failure(cls, failure: Outcome | None) -> "Shortfall":
        """Return what to say of a training that diverged."""
        is_outside = failure in (Outcome.TARGET_NOT_FINITE, Outcome.GRADIENT_NOT_FINITE)
        return cls.OUTSIDE if is_outside else cls.DIVERGED

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

    @property
    def _inside(self) -> Inside:
        start = self.start
        return Inside(self.target, start is not None, 0.0 if start is None else start.elbo, self.plan.double)

    def sample(self, n: int, *, key: Key[Array, ""] | None = None) -> np.ndarray:
        """Return independent draws of the flow, in double precision; without a `key`, the same each time."""
        inner, _ = self._inside.of(self.flow)
        return self._inside.outside(self.flow, inner.sample(key=self._key(key), n=n))[0]

    def log_prob(self, x: Any) -> np.ndarray:
        """Return the flow's log density of some points, batch axis first.

        In NumPy, for points in double precision; `flow.log_prob` is the function to differentiate or compile.
        """
        return self._inside.log_prob(self.flow, x)

    def weighted(self, n: int, *, key: Key[Array, ""] | None = None) -> Weighted:
        """Return draws of the flow with weights, by which averages over them are averages over the target.

        Args:
            n: Number of draws.
            key: Source of the draws; by default the same each time.
        """
        draws = self._draws(n, key)
        return Weighted.smoothed(draws["x"], draws["log_weight"])

    def expect(
        self, f: Callable[[Array], Any], n: int = 10_000, *, key: Key[Array, ""] | None = None
    ) -> Expectation:
        """Return the average of a function over the target, and its standard error, from weighted draws.

        Args:
            f: A JAX function of one point, which returns a number, an array or a tree of arrays.
            n: Number of draws.
            key: Source of the draws; by default the same each time.
        """
        return self.weighted(n, key=key).expect(f)

    def resample(self, n: int, *, key: Key[Array, ""] | None = None) -> np.ndarray:
        """Return draws of the target without weights: draws of the flow, repeated as their weights say.

        They are made from as many draws of the flow, so that together they are worth at most `n` times the
        ESS. Where the verdict is bad, they are no draws of the target.

        Args:
            n: Number of draws.
            key: Source of the draws; by default the same each time.
        """
        return self.weighted(n, key=key).resample(n, key=jr.fold_in(self._key(key), 1))

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

    def _key(self, key: Key[Array, ""] | None) -> Key[Array, ""]:
        return jr.fold_in(self.key, 2**31) if key is None else one_key(key)

    def _draws(self, n: int, key: Key[Array, ""] | None = None) -> dict[str, np.ndarray]:
        inside = self._inside
        return inside.outward(self.flow, weighted_draws(*inside.of(self.flow), key=self._key(key), n=n))

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
            lines.append(in_python(f"Why the ESS is not higher: {self.shortfall.text}."))
        return "\n".join([*lines, str(self.evaluation)])
