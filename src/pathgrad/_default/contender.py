"""One flow in training: rounds of steps, and a look at its weights after each."""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import optax
from jaxtyping import Array, Key

from .._flow.flow import Flow
from .._train.first_order import FirstOrder
from .._train.rate import Restarts
from .._train.row import Row
from .._train.trainer import Trainer, TrainingDiverged
from .._words.outcome import Outcome
from ..devices import on_one_device
from .inside import Inside, InsideKL
from .kinds import Kind
from .looks import Look, Looks

_RATE = 0.01  # Adam's, for a flow of the user's
# Draws of a look: as many as some dozen steps take, and enough for k-hat. (A number that depends on the clock
# would make two runs with the same options differ.)
_STEPS_OF_A_LOOK, _FEWEST, _MOST = 128, 16_384, 65_536


class Parts(NamedTuple):
    """What a contender is trained with."""

    objective: InsideKL
    method: FirstOrder
    validation: Looks


def parts_of(kind: Kind | None, inside: Inside, n: int, first: int, look_draws: int) -> Parts:
    """Return objective, method and validation for a kind of flow; `None` for a flow of the user's."""
    rate = _RATE if kind is None else kind.learning_rate
    adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate, b2=0.99))
    method = FirstOrder(adam, n, rate=Restarts(first))
    return Parts(InsideKL(inside), method, Looks(inside, first, look_draws))


def draws_of_a_look(n: int) -> int:
    """Return the number of draws of a look, given that of a step."""
    return max(_FEWEST, min(_MOST, _STEPS_OF_A_LOOK * n))


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

    @property
    def name(self) -> str:
        """What the flow is called in messages."""
        return name_of(self.kind)


def name_of(kind: Kind | None) -> str:
    """Return what a flow is called in messages."""
    return "your flow" if kind is None else kind.value


class Contender:
    """A flow in training, its trainer, and the best flow so far.

    Attributes:
        kind: Of which kind it is; `None` for a flow of the user's.
        inside: The target.
        n: Draws of a step.
        first: Steps of the first round.
        look_draws: Draws of a look.
        trainer: What trains it.
        state: The state of training, with the best flow in it.
        failure: Why training has diverged; `None` if it has not.
        history: Rows of metrics.
        seconds: Wall time of its rounds and looks, compiling included.
    """

    def __init__(
        self,
        kind: Kind | None,
        flow: Flow,
        inside: Inside,
        n: int,
        first: int,
        look_draws: int,
        key: Key[Array, ""],
    ) -> None:
        self.kind, self.inside, self.n, self.first, self.look_draws = kind, inside, n, first, look_draws
        self.failure: Outcome | None = None
        self.seconds, self._initial = 0.0, flow
        self.history: list[Row] = []
        objective, method, looks = parts_of(kind, inside, n, first, look_draws)
        self._rounds = looks.rounds
        self.trainer = Trainer(objective, method, key=key, validation=looks)
        self.state = self.trainer.init(flow)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return name_of(self.kind)

    @property
    def best(self) -> Flow:
        """The best flow so far; before any that is worth keeping, the one to begin with."""
        return on_one_device(self.trainer.result(self.state)) if self.kept else self._initial

    @property
    def seen(self) -> Look | None:
        """The look at the best flow."""
        return Look.of_best(self.state.best, self.look_draws)

    @property
    def kept(self) -> int:
        """The round after which the best flow was found; zero for none."""
        assert self.state.best is not None
        return self._rounds.ended(int(self.state.best.step))

    @property
    def elbo(self) -> float:
        """The lower bound of the best flow; minus infinity before any look."""
        return -math.inf if self.seen is None else self.seen.elbo

    @property
    def is_good(self) -> bool:
        """Whether more training would be wasted."""
        return self.seen is not None and self.seen.is_good

    @property
    def failed(self) -> bool:
        """Whether training has diverged."""
        return self.failure is not None

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self.state.step)

    @property
    def rounds(self) -> int:
        """Rounds that are over."""
        return self._rounds.ended(self.steps)

    def seconds_to(self, rounds: int) -> float:
        """Return the training time until so many rounds are over; zero if that is not known."""
        each = self.trainer.seconds / self.steps if self.steps else 0.0
        return each * (self._rounds.end(rounds) - self.steps)

    def try_out(self) -> float:
        """Train one block of steps, which belong to the first round, and return the seconds of a step."""
        self._train(lambda row: None, blocks=1)
        return self.trainer.seconds / max(1, self.steps)

    def advance(self, tell: Callable[[Row], None] = lambda row: None) -> Look:
        """Train one more round and look. If that diverges, the best flow so far stays the best."""
        return self._train(tell) or Look.worthless(self.look_draws)

    def _train(self, tell: Callable[[Row], None], blocks: int | None = None) -> Look | None:
        """Train until a round or some blocks are over; return the look at its end."""
        seen = None
        try:
            rows = self.trainer.blocks(self.state, self._rounds.end(self.rounds + 1))
            for self.state, row in itertools.islice(rows, blocks):
                self.history.append(row)
                tell(row)
                seen = Look.in_row(row, self.look_draws)
        except TrainingDiverged as failure:
            self.failure, self.state = failure.outcome, failure.state
        return seen
