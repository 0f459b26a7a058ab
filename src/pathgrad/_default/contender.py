"""One flow in training: rounds of steps, and a look at its weights after each."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Key

from .. import metrics
from .._flow.flow import Flow
from .._gradients.objectives import ReverseKL
from .._ingredients.target import Target
from .._numbers.evaluate import weighted_draws
from .._numbers.foresight import ess_with_more_draws
from .._numbers.verdict import HARMLESS
from .._train.first_order import FirstOrder
from .._train.rate import Restarts
from .._train.row import Row
from .._train.state import TrainState
from .._train.trainer import Trainer, TrainingDiverged
from ..devices import on_one_device
from .kinds import Kind

_RATE = 0.01  # Adam's, for a flow of the user's
_SLOW_STEP = 4e-3  # seconds
_DRAWS, _FEWER_DRAWS = 65_536, 16_384
_TOLERATED = 0.02  # nats of ELBO that a lower k-hat may cost
_LOOKS = 2**30  # folded into the key; rounds use the small numbers


class Look(NamedTuple):
    """What the weights of some draws say of a flow.

    Attributes:
        elbo: Lower bound on the log normaliser.
        ess: Effective sample size, as a fraction.
        khat: Pareto shape of the largest weights.
        largest: The largest weight, in units of their mean.
        n: Number of draws.
    """

    elbo: float
    ess: float
    khat: float
    largest: float
    n: int

    @property
    def has_light_tail(self) -> bool:
        """Whether a verdict would find nothing wrong with the tail of the weights."""
        # K-hat varies by a tenth from look to look.
        return self.khat < 0.4 or ess_with_more_draws(self.n, *self[1:4]) >= HARMLESS

    @property
    def is_good(self) -> bool:
        """Whether more training would be wasted."""
        return self.ess > 0.98 and self.has_light_tail

    def beats(self, other: "Look | None") -> bool:
        """Return whether to keep this flow instead of another."""
        if other is None or not math.isfinite(other.elbo):
            return True
        if not self.elbo > other.elbo - _TOLERATED:
            return False
        return self.elbo > other.elbo or self.khat < other.khat


def look(flow: Flow, target: Target, *, key: Key[Array, ""], n: int) -> Look:
    """Look at a flow by fresh draws. Any that failed make the look worthless."""
    log_weight = weighted_draws(flow, target, key=key, n=n)["log_weight"].astype(np.float64)
    if np.isnan(log_weight).any() or (log_weight == np.inf).any():
        return Look(-math.inf, 0.0, math.inf, math.inf, n)
    centre = log_weight.max()
    shifted = jnp.asarray(log_weight - centre, float)
    largest = math.exp(-float(metrics.log_z(shifted).value))
    numbers = float(log_weight.mean()), float(metrics.ess(shifted)), float(metrics.khat(shifted))
    return Look(*numbers, largest, n)


class Round(NamedTuple):
    """A round of training, as it is remembered.

    Attributes:
        kind: What was trained.
        number: Which of its rounds, from one.
        steps: Steps taken by its end.
        look: What the flow was like then.
        seconds: Wall time since the beginning of the fit.
    """

    kind: Kind | None
    number: int
    steps: int
    look: Look
    seconds: float


class Contender:
    """A flow in training, its trainer, and the best flow so far.

    Attributes:
        kind: Of which kind it is; `None` for a flow of the user's.
        n: Draws of a step.
        first: Steps of the first round.
        best: The best flow so far; the one to begin with before any round.
        seen: The look at the best flow.
        rounds: Rounds taken.
        kept: The round after which the best flow was found; zero for none.
        failed: Whether training has diverged.
        history: Rows of metrics.
        seconds: Wall time of its rounds and looks, compiling included.
    """

    def __init__(
        self,
        kind: Kind | None,
        flow: Flow,
        target: Target,
        n: int,
        first: int,
        key: Key[Array, ""],
        look_draws: int | None = None,
    ) -> None:
        self.kind, self.n, self.first = kind, n, first
        self.best, self.seen, self.rounds, self.kept = flow, None, 0, 0
        self.failed, self.seconds, self._look_draws = False, 0.0, look_draws
        self.history: list[Row] = []
        self._target, self._key, self._schedule = target, key, Restarts(first)
        rate = _RATE if kind is None else kind.learning_rate
        adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate, b2=0.99))
        method = FirstOrder(adam, n, rate=self._schedule)
        self._trainer = Trainer(ReverseKL(target), method, key=key)
        self._state: TrainState = self._trainer.init(flow)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return "your flow" if self.kind is None else self.kind.value

    @property
    def elbo(self) -> float:
        """The lower bound of the best flow; minus infinity before any look."""
        return -math.inf if self.seen is None else self.seen.elbo

    @property
    def is_good(self) -> bool:
        """Whether more training would be wasted."""
        return self.seen is not None and self.seen.is_good

    @property
    def draws(self) -> int:
        """Draws of a look: fewer where steps take long."""
        if self._look_draws is not None:
            return self._look_draws
        steps = max(self.steps, 1)
        return _DRAWS if self._trainer.seconds / steps < _SLOW_STEP else _FEWER_DRAWS

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self._state.step)

    @property
    def next_seconds(self) -> float:
        """Training time that the next round will take; zero if that is not known."""
        if not self.steps:
            return 0.0
        return self._trainer.seconds / self.steps * (self._schedule.end(self.rounds + 1) - self.steps)

    def train_round(self, tell: Callable[[Row], None] = lambda row: None) -> None:
        """Train one more round. If it diverges, the best flow so far stays the best."""
        try:
            for self._state, row in self._trainer.blocks(self._state, self._schedule.end(self.rounds + 1)):
                self.history.append(row)
                tell(row)
        except TrainingDiverged as failure:
            self.failed, self._state = True, failure.state
        self.rounds += 1

    def look(self) -> Look:
        """Look at the flow as it is now, and keep it if it is the best."""
        flow = on_one_device(self._trainer.result(self._state))
        seen = look(flow, self._target, key=jr.fold_in(self._key, _LOOKS + self.rounds), n=self.draws)
        if seen.beats(self.seen):
            # A copy: the next round overwrites the arrays of the state.
            self.best, self.seen, self.kept = jax.tree.map(_copied, flow), seen, self.rounds
        return seen


def _copied(leaf):
    return leaf.copy() if isinstance(leaf, jax.Array) else leaf
