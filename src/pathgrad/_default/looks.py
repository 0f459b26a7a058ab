"""Looks at a flow between rounds of training: by the weights of fresh draws, which need no data."""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from .. import metrics
from .._flow.defended import defended
from .._flow.flow import Flow
from .._ingredients.bases import StandardNormal
from .._ingredients.target import Target
from .._numbers.evaluate import weighted_draws
from .._numbers.foresight import ess_with_more_draws
from .._numbers.verdict import HARMLESS
from .._train.rate import Restarts
from .._train.row import Row
from .._train.state import Best, copied
from .._train.validation import AbstractValidation, Numbers
from .._words.outcome import Stop
from ..devices import on_one_device
from .inside import Inside

_DEFENDED, _STILL_GOOD = 0.98, 0.96  # ESS before and after wider draws are added
_TOLERATED = 0.02  # nats of ELBO that a lower k-hat may cost


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
        # The next look may find larger weights if k-hat is high, however harmless they are in this one.
        return self.ess > (0.98 if self.khat < 0.4 else 0.995) and self.has_light_tail

    def beats(self, other: "Look | None") -> bool:
        """Return whether to keep this flow instead of another; one whose draws failed is never kept."""
        if not math.isfinite(self.elbo):
            return False
        if other is None or not math.isfinite(other.elbo):
            return True
        if not self.elbo > other.elbo - _TOLERATED:
            return False
        return self.elbo > other.elbo or self.khat < other.khat

    @classmethod
    def worthless(cls, n: int) -> "Look":
        """Return the look at a flow some of whose draws failed."""
        return cls(-math.inf, 0.0, math.inf, math.inf, n)

    @classmethod
    def stored(cls, numbers: Any, n: int) -> "Look":
        """Return the look whose numbers but the last were kept in an array."""
        elbo, ess, khat, largest = map(float, np.asarray(numbers))
        return cls(elbo, ess, khat, largest, n)

    @classmethod
    def of_best(cls, best: Best | None, n: int) -> "Look | None":
        """Return the look at a training's best model, at the target near zero; `None` if there is none."""
        return None if best is None or not int(best.step) else cls.stored(best.found, n)

    @classmethod
    def in_row(cls, row: Row, n: int) -> "Look | None":
        """Return the look that a row of metrics holds; `None` if its block did not end with a round."""
        if row.value("is_good") is None:
            return None
        worst = cls.worthless(n)
        found = [row.value(f"look_{name}") for name in cls._fields]
        known = [bad if value is None else float(value) for value, bad in zip(found, worst, strict=True)]
        return cls.stored(known[:-1], n)


def look(flow: Flow, target: Target, *, key: Key[Array, ""], n: int) -> Look:
    """Look at a flow by fresh draws. Any that failed make the look worthless."""
    log_weight = weighted_draws(flow, target, key=key, n=n)["log_weight"].astype(np.float64)
    if np.isnan(log_weight).any() or (log_weight == np.inf).any():
        return Look.worthless(n)
    centre = log_weight.max()
    shifted = jnp.asarray(log_weight - centre, float)
    largest = math.exp(-float(metrics.log_z(shifted).value))
    numbers = float(log_weight.mean()), float(metrics.ess(shifted)), float(metrics.khat(shifted))
    return Look(*numbers, largest, n)


def gains_by_defence(flow: Flow, inside: Inside, seen: Look | None, *, key: Key[Array, ""], n: int) -> bool:
    """Say whether wider draws in the base make the tail of a flow's weights lighter, at little cost."""
    if (
        seen is None
        or seen.ess < _DEFENDED
        or seen.has_light_tail
        or not isinstance(flow.base, StandardNormal)
    ):
        return False
    after = look(*inside.of(defended(flow)), key=key, n=n)
    return after.khat < seen.khat and after.ess > _STILL_GOOD


class Looks(AbstractValidation):
    """A look at the end of each round of `Restarts`, where the learning rate has fallen to zero.

    Attributes:
        inside: The target.
        first: Steps of the first round.
        n: Draws of a look.
    """

    inside: Inside
    first: int = eqx.field(static=True)
    n: int = eqx.field(static=True)

    @property
    def rounds(self) -> Restarts:
        """The rounds of training."""
        return Restarts(self.first)

    def begin(self, model):
        nothing = jnp.asarray(Look.worthless(self.n)[:-1], jnp.float32)
        return dataclasses.replace(super().begin(model), found=nothing)

    def next(self, step):
        return self.rounds.end(self.rounds.ended(step) + 1)

    def place(self, step) -> Numbers:
        return {"round": self.rounds.ended(step - 1) + 1}

    def validated(self, state, method, *, key, mesh):
        assert state.best is not None
        model = method.result(state)
        # In the precision of the state, so that a resumed training compares the same numbers.
        seen = look(*self.inside.of(on_one_device(model)), key=key, n=self.n)
        found = np.asarray(seen[:-1], np.float32)
        seen = Look.stored(found, self.n)
        none = jnp.zeros((), jnp.int32)
        best = dataclasses.replace(state.best, waiting=state.best.waiting + 1)
        if seen.beats(Look.of_best(state.best, self.n)):
            # New arrays: no array may be in two places of a state.
            loss, step = jnp.asarray(-found[0]), jnp.asarray(int(state.step), jnp.int32)
            best = Best(copied(model), loss, step, none, jnp.asarray(found))
        outside = seen._replace(elbo=seen.elbo + self.inside.centre)
        numbers = {f"look_{name}": value for name, value in outside._asdict().items()}
        return dataclasses.replace(state, best=best), numbers | {"is_good": int(seen.is_good)}

    def stop(self, best):
        seen = Look.of_best(best, self.n)
        return Stop.GOOD_ENOUGH if seen is not None and seen.is_good else None
